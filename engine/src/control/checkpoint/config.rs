//! What a job sets about its checkpoints.

use std::time::Duration;

use super::options::CheckpointMode;
use crate::error::{Error, Result};

/// Options of the coordinator, under their names in the configuration.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// `checkpoint.mode`, `checkpoint.unaligned.enabled` and `checkpoint.aligned-timeout`.
    pub mode: CheckpointMode,
    /// `checkpoint.interval`; none: never.
    pub interval: Option<Duration>,
    /// `checkpoint.timeout`: from trigger to the last acknowledgement.
    pub timeout: Duration,
    /// `checkpoint.min-pause`: from a completion to the next periodic trigger.
    pub min_pause: Duration,
    /// `checkpoint.max-concurrent`, at least 1; more only with aligned checkpoints.
    pub max_concurrent: usize,
    /// `checkpoint.tolerable-failed`; none: unlimited.
    pub tolerable_failed: Option<u32>,
    /// `checkpoint.num-retained`, at least 1.
    pub num_retained: usize,
    /// Take checkpoints although some tasks have finished.
    pub after_finish: bool,
    /// Requests that may wait.
    pub queue_max: usize,
}

impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            mode: CheckpointMode::ExactlyOnce,
            interval: None,
            timeout: Duration::from_secs(600),
            min_pause: Duration::ZERO,
            max_concurrent: 1,
            tolerable_failed: None,
            num_retained: 2,
            after_finish: true,
            queue_max: 1000,
        }
    }
}

impl CoordinatorConfig {
    /// Refuses settings that contradict each other.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::error::ErrorKind::Config), naming the option.
    pub fn check(&self) -> Result<()> {
        let is_unaligned = matches!(self.mode, CheckpointMode::ExactlyOnceUnaligned { .. });
        if self.max_concurrent == 0 || self.num_retained == 0 || self.queue_max == 0 {
            return Err(Error::config(
                "checkpoint.max-concurrent and checkpoint.num-retained must be at least 1",
            ));
        }
        if is_unaligned && self.max_concurrent > 1 {
            return Err(Error::config(
                "checkpoint.max-concurrent must be 1 with checkpoint.unaligned.enabled",
            ));
        }
        Ok(())
    }
}
