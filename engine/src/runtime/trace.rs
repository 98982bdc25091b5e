//! `tracing` events of a job, behind the feature of that name: its states, restarts and checkpoints.
//!
//! What has happened is found by comparing the status before and after a change; it is told when the status is no longer
//! locked, because a subscriber may well ask for it.

use super::status::{Board, CheckpointStats, JobState};
use crate::clock::EpochMillis;
use crate::id::CheckpointId;

/// What of a status events are made of.
pub(super) struct Moment {
    state: JobState,
    restarts: u32,
    completed: u64,
    failed: u64,
    under_way: Option<(CheckpointId, EpochMillis)>,
}

/// What has happened.
pub(super) enum Happened {
    State(JobState, Option<String>),
    Restarted { restarts: u32, cause: Option<String> },
    Triggered(CheckpointId),
    Completed(CheckpointStats),
    Failed(Option<String>),
}

impl Moment {
    pub(super) fn of(board: &Board) -> Self {
        Self {
            state: board.state,
            restarts: board.restarts,
            completed: board.checkpoints_completed,
            failed: board.checkpoints_failed,
            under_way: board.checkpoint_under_way,
        }
    }

    /// What has happened since.
    pub(super) fn until(&self, board: &Board) -> Vec<Happened> {
        let mut all = Vec::new();
        if board.restarts > self.restarts {
            let cause = board.last_failure.clone();
            all.push(Happened::Restarted { restarts: board.restarts, cause });
        }
        if board.state != self.state {
            let cause = board.last_failure.clone().filter(|_| board.state == JobState::Failed);
            all.push(Happened::State(board.state, cause));
        }
        if let Some((id, _)) = board.checkpoint_under_way
            && board.checkpoint_under_way != self.under_way
        {
            all.push(Happened::Triggered(id));
        }
        if board.checkpoints_completed > self.completed {
            all.extend(board.checkpoints.last().copied().map(Happened::Completed));
        }
        if board.checkpoints_failed > self.failed {
            all.push(Happened::Failed(board.last_checkpoint_failure.clone()));
        }
        all
    }
}

impl Happened {
    /// Tells it to the subscriber.
    pub(super) fn tell(self, job: &str) {
        match self {
            Self::State(JobState::Failed, cause) => {
                tracing::error!(job, cause, "the job failed");
            }
            Self::State(state, _) => tracing::info!(job, ?state, "the job's state changed"),
            Self::Restarted { restarts, cause } => {
                tracing::warn!(job, restarts, cause, "an attempt failed; the job restarts");
            }
            Self::Triggered(id) => {
                tracing::debug!(job, checkpoint = id.0, "a checkpoint was triggered");
            }
            Self::Completed(done) => {
                let ms = done.duration.as_secs_f64() * 1e3;
                let checkpoint = done.id.0;
                tracing::debug!(
                    job,
                    checkpoint,
                    ms,
                    bytes = done.bytes,
                    "a checkpoint is complete"
                );
            }
            Self::Failed(cause) => tracing::warn!(job, cause, "a checkpoint failed"),
        }
    }
}
