//! Why a checkpoint fails, and how many failures a job bears.
//!
//! The reasons and their two properties are one table; [`Tolerance`] counts consecutive failed
//! checkpoints, each id once, and never one at or below the last that succeeded.

use std::collections::BTreeSet;
use std::fmt;

use super::options::SnapshotKind;
use crate::id::CheckpointId;

/// Why a request or a checkpoint failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureReason {
    /// A periodic request while the periodic schedule is off.
    PeriodicSchedulerShutdown,
    /// The queue of requests is full.
    TooManyRequests,
    /// A periodic request too soon after the last completion.
    MinimumTimeBetween,
    /// Some task is neither running nor finished, or none runs.
    NotAllRequiredTasksRunning,
    /// The job has a blocking edge and can't be stopped with a savepoint.
    BlockingOutputExists,
    /// No id could be reserved.
    IoWhileTriggering,
    /// The asynchronous part of a snapshot failed.
    Async,
    /// A task said no.
    Declined,
    /// Not complete within the timeout.
    Expired,
    /// Its metadata could not be written.
    FinalizeFailed,
    /// A newer one completed first.
    Subsumed,
    /// A task was not ready.
    DeclinedTaskNotReady,
    /// A task had closed its mailbox.
    DeclinedTaskClosing,
    /// A task had begun a newer one.
    DeclinedSubsumed,
    /// A task received a cancel instead of a barrier.
    DeclinedOnCancellationBarrier,
    /// A channel ended before its barrier, with checkpoints after finish off.
    DeclinedInputEndOfStream,
    /// The coordinator ended.
    CoordinatorShutdown,
    /// The job is being stopped with a savepoint.
    CoordinatorSuspend,
    /// Part of the job restarts.
    FailoverRegion,
    /// A task failed.
    TaskFailure,
    /// A worker could not take the trigger.
    TaskCheckpointFailure,
    /// A worker spoke of a checkpoint nobody knows.
    UnknownTaskNotification,
    /// Aborted while it was being triggered.
    TriggerFailure,
    /// A shared stream of channel state failed because of another checkpoint.
    ChannelStateSharedStream,
}

impl FailureReason {
    /// Every reason.
    pub const ALL: [Self; 24] = [
        Self::PeriodicSchedulerShutdown,
        Self::TooManyRequests,
        Self::MinimumTimeBetween,
        Self::NotAllRequiredTasksRunning,
        Self::BlockingOutputExists,
        Self::IoWhileTriggering,
        Self::Async,
        Self::Declined,
        Self::Expired,
        Self::FinalizeFailed,
        Self::Subsumed,
        Self::DeclinedTaskNotReady,
        Self::DeclinedTaskClosing,
        Self::DeclinedSubsumed,
        Self::DeclinedOnCancellationBarrier,
        Self::DeclinedInputEndOfStream,
        Self::CoordinatorShutdown,
        Self::CoordinatorSuspend,
        Self::FailoverRegion,
        Self::TaskFailure,
        Self::TaskCheckpointFailure,
        Self::UnknownTaskNotification,
        Self::TriggerFailure,
        Self::ChannelStateSharedStream,
    ];

    /// It ends a request before there is a checkpoint.
    pub const fn is_preflight(self) -> bool {
        self.properties().0
    }

    /// It counts against the tolerated number.
    pub const fn is_counted(self) -> bool {
        self.properties().1
    }

    /// (before there is a checkpoint, counted)
    const fn properties(self) -> (bool, bool) {
        match self {
            Self::PeriodicSchedulerShutdown
            | Self::TooManyRequests
            | Self::MinimumTimeBetween
            | Self::NotAllRequiredTasksRunning
            | Self::BlockingOutputExists => (true, false),
            Self::IoWhileTriggering => (true, true),
            Self::Async | Self::Declined | Self::Expired | Self::FinalizeFailed => (false, true),
            Self::Subsumed
            | Self::DeclinedTaskNotReady
            | Self::DeclinedTaskClosing
            | Self::DeclinedSubsumed
            | Self::DeclinedOnCancellationBarrier
            | Self::DeclinedInputEndOfStream
            | Self::CoordinatorShutdown
            | Self::CoordinatorSuspend
            | Self::FailoverRegion
            | Self::TaskFailure
            | Self::TaskCheckpointFailure
            | Self::UnknownTaskNotification
            | Self::TriggerFailure
            | Self::ChannelStateSharedStream => (false, false),
        }
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PeriodicSchedulerShutdown => "the periodic schedule is off",
            Self::TooManyRequests => "too many requests are waiting",
            Self::MinimumTimeBetween => "too soon after the last one",
            Self::NotAllRequiredTasksRunning => "not all required tasks are running",
            Self::BlockingOutputExists => "the job has a blocking output",
            Self::IoWhileTriggering => "no checkpoint id could be reserved",
            Self::Async => "the asynchronous part of a snapshot failed",
            Self::Declined => "a task declined it",
            Self::Expired => "it took longer than its timeout",
            Self::FinalizeFailed => "its metadata could not be written",
            Self::Subsumed => "a newer one completed first",
            Self::DeclinedTaskNotReady => "a task was not ready",
            Self::DeclinedTaskClosing => "a task was closing",
            Self::DeclinedSubsumed => "a task had begun a newer one",
            Self::DeclinedOnCancellationBarrier => "a task received a cancel instead of a barrier",
            Self::DeclinedInputEndOfStream => "an input ended before its barrier",
            Self::CoordinatorShutdown => "the coordinator has ended",
            Self::CoordinatorSuspend => "the job is being stopped with a savepoint",
            Self::FailoverRegion => "part of the job restarts",
            Self::TaskFailure => "a task failed",
            Self::TaskCheckpointFailure => "a worker could not take the trigger",
            Self::UnknownTaskNotification => "a worker spoke of an unknown checkpoint",
            Self::TriggerFailure => "it was aborted while being triggered",
            Self::ChannelStateSharedStream => "another checkpoint broke a shared stream",
        })
    }
}

/// Who noticed the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureOrigin {
    /// The coordinator itself: a timeout, the store, a lost task.
    Coordinator,
    /// A task's own message.
    Task,
}

/// How many consecutive failed checkpoints a job bears.
#[derive(Clone, Debug, Hash)]
pub struct Tolerance {
    /// None: without limit.
    tolerable: Option<u32>,
    consecutive: u32,
    /// Ids above `last_success` that have been counted.
    counted: BTreeSet<CheckpointId>,
    last_success: Option<CheckpointId>,
}

impl Tolerance {
    /// Bears `tolerable` failed checkpoints in a row; `None`: any number.
    pub fn new(tolerable: Option<u32>) -> Self {
        Self { tolerable, consecutive: 0, counted: BTreeSet::new(), last_success: None }
    }

    /// A failure; true if the job is to fail by it. `id` is none if no id had been given.
    pub fn failed(
        &mut self,
        id: Option<CheckpointId>,
        kind: SnapshotKind,
        reason: FailureReason,
        origin: FailureOrigin,
    ) -> bool {
        match origin {
            FailureOrigin::Task if kind.is_stop() => return true,
            FailureOrigin::Coordinator if kind.is_savepoint() => return false,
            FailureOrigin::Task | FailureOrigin::Coordinator => {}
        }
        let Some(tolerable) = self.tolerable else { return false };
        if !reason.is_counted() || id.is_some_and(|id| Some(id) <= self.last_success) {
            return false;
        }
        if id.is_some_and(|id| !self.counted.insert(id)) {
            return false;
        }
        self.consecutive += 1;
        if self.consecutive <= tolerable {
            return false;
        }
        self.consecutive = 0;
        true
    }

    /// Checkpoint `id` succeeded.
    pub fn succeeded(&mut self, id: CheckpointId) {
        if Some(id) > self.last_success {
            self.last_success = Some(id);
            self.consecutive = 0;
            self.counted.retain(|&counted| counted > id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKPOINT: SnapshotKind = SnapshotKind::Checkpoint;

    /// Fails checkpoint `id`; 1 if the job fails by it.
    fn fail(tolerance: &mut Tolerance, id: u64, reason: FailureReason) -> u32 {
        let id = Some(CheckpointId(id));
        tolerance.failed(id, CHECKPOINT, reason, FailureOrigin::Coordinator).into()
    }

    #[test]
    fn fm_01_a_success_resets_and_late_failures_of_older_ids_are_ignored() {
        let mut tolerance = Tolerance::new(Some(2));
        let mut failures = fail(&mut tolerance, 1, FailureReason::Declined);
        failures += fail(&mut tolerance, 2, FailureReason::Declined);
        tolerance.succeeded(CheckpointId(2));
        for id in [1, 3, 4] {
            failures += fail(&mut tolerance, id, FailureReason::Declined);
        }
        assert_eq!(failures, 0);
        assert_eq!(fail(&mut tolerance, 5, FailureReason::Declined), 1);
    }

    #[test]
    fn fm_02_the_third_counted_failure_in_a_row_fails_the_job_once() {
        let mut tolerance = Tolerance::new(Some(2));
        let reasons = [
            (1, FailureReason::Declined),
            (2, FailureReason::Declined),
            (3, FailureReason::FailoverRegion),
            (4, FailureReason::Declined),
        ];
        let failed: Vec<_> =
            reasons.map(|(id, reason)| fail(&mut tolerance, id, reason)).into_iter().collect();
        assert_eq!(failed, [0, 0, 0, 1]);
    }

    #[test]
    fn fm_03_io_counts_others_are_ignored_and_success_resets() {
        let mut tolerance = Tolerance::new(Some(2));
        let mut failures = fail(&mut tolerance, 1, FailureReason::IoWhileTriggering);
        failures += fail(&mut tolerance, 2, FailureReason::Declined);
        failures += fail(&mut tolerance, 3, FailureReason::TaskFailure);
        tolerance.succeeded(CheckpointId(4));
        failures += fail(&mut tolerance, 5, FailureReason::Expired);
        assert_eq!(failures, 0);
    }

    #[test]
    fn fm_04_exactly_five_reasons_count() {
        let mut tolerance = Tolerance::new(Some(0));
        let failing: Vec<_> = (1..)
            .zip(FailureReason::ALL)
            .filter(|&(id, reason)| fail(&mut tolerance, id, reason) == 1)
            .map(|(_, reason)| reason)
            .collect();
        let expected = [
            FailureReason::IoWhileTriggering,
            FailureReason::Async,
            FailureReason::Declined,
            FailureReason::Expired,
            FailureReason::FinalizeFailed,
        ];
        assert_eq!(failing, expected);
    }

    #[test]
    fn fm_05_one_id_counts_once() {
        let mut tolerance = Tolerance::new(Some(2));
        let failures: u32 = (0..3).map(|_| fail(&mut tolerance, 1, FailureReason::Declined)).sum();
        assert_eq!(failures, 0);
        assert_eq!(fail(&mut tolerance, 2, FailureReason::Declined), 0);
        assert_eq!(fail(&mut tolerance, 3, FailureReason::Declined), 1);
    }

    #[test]
    fn savepoints_count_only_if_a_task_declines_and_a_stop_savepoint_then_fails_the_job() {
        let mut tolerance = Tolerance::new(Some(0));
        let id = Some(CheckpointId(1));
        let stop = SnapshotKind::StopSavepoint { is_drain: true };
        let mut failed = |kind, origin| tolerance.failed(id, kind, FailureReason::Declined, origin);
        assert!(!failed(SnapshotKind::Savepoint, FailureOrigin::Coordinator));
        assert!(!failed(stop, FailureOrigin::Coordinator));
        assert!(failed(SnapshotKind::Savepoint, FailureOrigin::Task));
        assert!(failed(stop, FailureOrigin::Task));
    }

    #[test]
    fn without_limit_nothing_fails_the_job() {
        let mut tolerance = Tolerance::new(None);
        let failures: u32 =
            (1..1000).map(|id| fail(&mut tolerance, id, FailureReason::Expired)).sum();
        assert_eq!(failures, 0);
    }
}
