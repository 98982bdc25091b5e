//! Stopping a job with a savepoint.
//!
//! `Idle → Saving → Terminating → Ended`, or back to `Idle` if there is no savepoint. The states of
//! tasks are looked at only after the savepoint's outcome is known, whatever order the reports come
//! in; a task that failed meanwhile then means that side effects of the savepoint are pending.

use super::message::StopOutcome;
use super::request::RequestId;
use super::tasks::{TaskState, Tasks};
use crate::id::CheckpointId;

/// How far stopping is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Nobody stops the job.
    #[default]
    Idle,
    /// The savepoint is under way.
    Saving {
        /// Who asked.
        request: RequestId,
    },
    /// It is complete; the tasks are leaving.
    Terminating {
        /// Who asked.
        request: RequestId,
        /// The savepoint.
        savepoint: CheckpointId,
    },
    /// The outcome has been told.
    Ended,
}

impl Stop {
    /// A user stops the job. False if someone else does already.
    pub fn begin(&mut self, request: RequestId) -> bool {
        let is_idle = *self == Self::Idle;
        if is_idle {
            *self = Self::Saving { request };
        }
        is_idle
    }

    /// The savepoint is complete.
    pub fn saved(&mut self, savepoint: CheckpointId) {
        match *self {
            Self::Saving { request } => *self = Self::Terminating { request, savepoint },
            Self::Idle | Self::Terminating { .. } | Self::Ended => {}
        }
    }

    /// There is no savepoint.
    pub fn not_saved(&mut self) {
        match self {
            Self::Saving { .. } => *self = Self::Idle,
            Self::Idle | Self::Terminating { .. } | Self::Ended => {}
        }
    }

    /// The job is cancelled: whom to tell what, if a savepoint is complete and tasks are still
    /// leaving.
    pub fn cancel(&mut self) -> Option<(RequestId, StopOutcome)> {
        let Self::Terminating { request, savepoint } = *self else { return None };
        *self = Self::Ended;
        Some((request, StopOutcome::SideEffectsPending { savepoint }))
    }

    /// Whom to tell what, if the tasks as they are decide it.
    pub fn conclude(&mut self, tasks: &Tasks) -> Option<(RequestId, StopOutcome)> {
        let Self::Terminating { request, savepoint } = *self else { return None };
        let (mut all_finished, mut some_failed) = (true, false);
        for (_, task) in tasks.iter() {
            match task.state {
                TaskState::Finished => {}
                TaskState::Running => all_finished = false,
                TaskState::Created
                | TaskState::Scheduled
                | TaskState::Deploying
                | TaskState::Initializing
                | TaskState::Canceling
                | TaskState::Canceled
                | TaskState::Failed => some_failed = true,
            }
        }
        let outcome = if some_failed {
            StopOutcome::SideEffectsPending { savepoint }
        } else if all_finished {
            StopOutcome::Stopped { savepoint }
        } else {
            return None;
        };
        *self = Self::Ended;
        Some((request, outcome))
    }

    /// Only the stop savepoint may be taken.
    pub fn is_saving(&self) -> bool {
        matches!(self, Self::Saving { .. })
    }

    /// Nobody stops the job.
    pub fn is_idle(&self) -> bool {
        *self == Self::Idle
    }
}
