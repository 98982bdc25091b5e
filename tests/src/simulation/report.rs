//! What one schedule tells: what was wrong, and how much of the engine it has reached.

use super::reach::Reach;

/// What became of a schedule.
#[derive(Debug)]
pub struct Report {
    /// What was wrong, if anything was.
    pub violation: Option<String>,
    /// Steps done.
    pub steps: u64,
    /// The most tasks at a time.
    pub tasks: usize,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Crashes and failures of the disk.
    pub crashes: u64,
    /// Failures of user code and sinks.
    pub failures: u64,
    /// Whether its finite sources end at different times.
    pub ends_apart: bool,
    /// A digest of all that happened.
    pub digest: u64,
    /// The races met.
    pub reach: Reach,
}
