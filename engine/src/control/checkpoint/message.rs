//! What goes into the coordinator and what comes out.
//!
//! Tasks are always named by attempt: a message of, or to, an attempt that isn't current changes
//! nothing.

use std::time::Duration;

use super::failure::FailureReason;
use super::metadata::{Contributions, Metadata};
use super::options::{CheckpointOptions, SnapshotKind};
use super::request::RequestId;
use super::tasks::TaskState;
use crate::clock::Timestamp;
use crate::id::{AttemptId, ChannelIndex, CheckpointId, SubtaskId};

/// A channel whose barrier has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitingChannel {
    /// Which input channel of the task.
    pub channel: ChannelIndex,
    /// Bytes known to be queued before the barrier.
    pub bytes_before_barrier: u64,
}

/// What a snapshot cost its task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AckMetrics {
    /// From the first barrier to the last.
    pub alignment: Duration,
    /// Taking the snapshot on the task's thread.
    pub sync: Duration,
    /// Writing it.
    pub writing: Duration,
    /// Bytes of records in flight that were stored; the checkpoint counts as unaligned if there
    /// were any.
    pub persisted_bytes: u64,
}

/// A task has stored its snapshot.
#[derive(Clone, Debug, Hash)]
pub struct Ack<S> {
    /// Of which checkpoint.
    pub checkpoint: CheckpointId,
    /// Which attempt.
    pub task: AttemptId,
    /// State by operator, in the order of the chain.
    pub operators: Vec<Option<S>>,
    /// Records in flight towards the task.
    pub channels: Option<S>,
    /// Inputs whose end the head operator has seen.
    pub ended_inputs: Vec<u32>,
    /// Inputs on which records were captured although their edge can't hand them to other subtasks.
    pub pinned_inputs: Vec<u32>,
    /// All operators had finished when the snapshot was taken.
    pub operators_finished: bool,
    /// The snapshot holds prepared work that only the completion commits.
    pub holds_uncommitted: bool,
    /// What it cost.
    pub metrics: AckMetrics,
}

impl<S> Ack<S> {
    /// An acknowledgement without state.
    pub fn empty(checkpoint: CheckpointId, task: AttemptId) -> Self {
        Self {
            checkpoint,
            task,
            operators: Vec::new(),
            channels: None,
            ended_inputs: Vec::new(),
            pinned_inputs: Vec::new(),
            operators_finished: false,
            holds_uncommitted: false,
            metrics: AckMetrics::default(),
        }
    }

    /// All state in it.
    pub(super) fn into_states(self) -> impl Iterator<Item = S> {
        self.operators.into_iter().flatten().chain(self.channels)
    }
}

/// Part of the job was deployed anew.
#[derive(Clone, Debug)]
pub struct Restored<S> {
    /// From which checkpoint; none: from the beginning.
    pub checkpoint: Option<CheckpointId>,
    /// The new attempts.
    pub tasks: Vec<AttemptId>,
    /// Tasks of the restored part that the checkpoint records as finished: not deployed.
    pub left_out: Vec<SubtaskId>,
    /// Union state those left behind.
    pub contributions: Contributions<S>,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input<S> {
    /// A user wants a snapshot.
    Request {
        /// For the outcome.
        request: RequestId,
        /// What is wanted.
        kind: SnapshotKind,
    },
    /// A user stops the job with a savepoint.
    Stop {
        /// For the outcome.
        request: RequestId,
        /// As if the sources were exhausted.
        is_drain: bool,
    },
    /// A worker reports a task's state.
    TaskState {
        /// Which attempt.
        task: AttemptId,
        /// Its new state.
        state: TaskState,
    },
    /// A task has stored its snapshot.
    Ack(Ack<S>),
    /// A task, or its worker in its place, can't take part.
    Decline {
        /// In which checkpoint.
        checkpoint: CheckpointId,
        /// Which attempt.
        task: AttemptId,
        /// Why.
        reason: FailureReason,
        /// Channels without barrier at that moment.
        waiting: Vec<WaitingChannel>,
    },
    /// A task tells what it waits for; kept for the report if the checkpoint fails.
    Progress {
        /// In which checkpoint.
        checkpoint: CheckpointId,
        /// Which attempt.
        task: AttemptId,
        /// Channels without barrier.
        waiting: Vec<WaitingChannel>,
    },
    /// A task has nothing more to do and asks for its finish permit.
    FinishRequest {
        /// Which attempt.
        task: AttemptId,
    },
    /// Only a completed checkpoint can let the task go on.
    AwaitsCheckpoint {
        /// Which attempt.
        task: AttemptId,
        /// The first checkpoint whose completion will do, if the task has taken part in one
        /// already.
        since: Option<CheckpointId>,
    },
    /// The task can go on.
    AwaitWithdrawn {
        /// Which attempt.
        task: AttemptId,
    },
    /// The task has sent its end of data.
    EndOfDataReached {
        /// Which attempt.
        task: AttemptId,
    },
    /// The state of an operator's half on the control thread.
    CoordinatorState {
        /// In which checkpoint.
        checkpoint: CheckpointId,
        /// The operator's id.
        operator: String,
        /// Its state.
        state: S,
    },
    /// The metadata is durable: the checkpoint is complete.
    StoreDone {
        /// Which.
        checkpoint: CheckpointId,
    },
    /// The metadata could not be written.
    StoreFailed {
        /// Of which checkpoint.
        checkpoint: CheckpointId,
        /// False: it may have become durable after all, so no file may be deleted.
        is_outcome_known: bool,
    },
    /// All ids below this one are durably ours.
    IdReserved {
        /// The first id that is not.
        below: CheckpointId,
    },
    /// No ids could be reserved.
    ReserveFailed,
    /// A checkpoint's files are gone.
    Discarded {
        /// Which.
        checkpoint: CheckpointId,
    },
    /// These tasks are going to be restarted.
    Failover {
        /// All tasks of the failing part, finished ones included.
        tasks: Vec<SubtaskId>,
    },
    /// They were deployed anew.
    Restored(Restored<S>),
    /// The job is cancelled.
    Cancel,
    /// The coordinator ends.
    Shutdown,
    /// Time has passed.
    Tick,
}

/// A pending checkpoint that keeps a task from finishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldCheckpoint {
    /// Which.
    pub checkpoint: CheckpointId,
    /// Its options.
    pub options: CheckpointOptions,
    /// When it was triggered.
    pub timestamp: Timestamp,
    /// A trigger has been sent to the task: if it hasn't seen it, it acts as if it had.
    pub is_triggered: bool,
}

/// How stopping with a savepoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// Savepoint complete, all tasks finished.
    Stopped {
        /// The savepoint.
        savepoint: CheckpointId,
    },
    /// The savepoint is complete but a task failed after it: what it has prepared is committed by
    /// starting from the savepoint, which is never done automatically.
    SideEffectsPending {
        /// The savepoint.
        savepoint: CheckpointId,
    },
    /// No savepoint; the job goes on, or fails over.
    Failed {
        /// Why.
        reason: FailureReason,
    },
}

/// What came of a user's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The snapshot is complete.
    Completed {
        /// Its id.
        checkpoint: CheckpointId,
    },
    /// There is none.
    Failed {
        /// Its id, if it had got one.
        checkpoint: Option<CheckpointId>,
        /// Why.
        reason: FailureReason,
    },
    /// The job was to be stopped.
    Stop(StopOutcome),
}

/// A task that had not acknowledged when its checkpoint failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unacknowledged {
    /// Which attempt.
    pub task: AttemptId,
    /// Channels without barrier, as last heard.
    pub waiting: Vec<WaitingChannel>,
}

/// For log and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A checkpoint was started.
    Triggered {
        /// Which.
        checkpoint: CheckpointId,
        /// What for.
        kind: SnapshotKind,
        /// Tasks that have to acknowledge.
        awaited: usize,
        /// Tasks that count as acknowledged since they had finished.
        finished: usize,
    },
    /// A task acknowledged.
    Acknowledged {
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// Which attempt.
        task: AttemptId,
        /// What it cost.
        metrics: AckMetrics,
    },
    /// An acknowledgement came for a checkpoint that isn't pending; its state is discarded.
    LateAck {
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// Which attempt.
        task: AttemptId,
        /// It had expired, rather than being unknown.
        was_pending: bool,
        /// What it cost.
        metrics: AckMetrics,
    },
    /// A checkpoint is complete.
    Completed {
        /// Which.
        checkpoint: CheckpointId,
        /// What for.
        kind: SnapshotKind,
        /// Since its trigger.
        took: Duration,
    },
    /// A request or a checkpoint failed.
    Failed {
        /// Which, if it had got an id.
        checkpoint: Option<CheckpointId>,
        /// What for.
        kind: SnapshotKind,
        /// Why.
        reason: FailureReason,
        /// Who had not acknowledged.
        unacknowledged: Vec<Unacknowledged>,
    },
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Output<S> {
    /// Tell a task to begin.
    Trigger {
        /// Which attempt.
        task: AttemptId,
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// The moment of the trigger: alignment timeouts count from it.
        timestamp: Timestamp,
        /// For the barriers.
        options: CheckpointOptions,
    },
    /// Tell a task that a checkpoint is complete.
    NotifyComplete {
        /// Which attempt.
        task: AttemptId,
        /// Which checkpoint.
        checkpoint: CheckpointId,
    },
    /// Tell a task that a checkpoint will not be.
    NotifyAborted {
        /// Which attempt.
        task: AttemptId,
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// The latest complete one, in case its notice was lost.
        latest: Option<CheckpointId>,
    },
    /// Tell a task that nothing refers to a checkpoint.
    NotifySubsumed {
        /// Which attempt.
        task: AttemptId,
        /// Which checkpoint.
        checkpoint: CheckpointId,
    },
    /// The task may emit end of partition and leave.
    PermitGranted {
        /// Which attempt.
        task: AttemptId,
    },
    /// It may not yet; the grant follows when none of these waits for it.
    PermitHold {
        /// Which attempt.
        task: AttemptId,
        /// Oldest first.
        pending: Vec<HeldCheckpoint>,
    },
    /// Make all ids below this one durably ours; answered by `IdReserved` or `ReserveFailed`.
    ReserveIds {
        /// The first id that is not.
        below: CheckpointId,
    },
    /// Write the metadata; answered by `StoreDone` or `StoreFailed`.
    Finalize(Metadata<S>),
    /// A state belongs to no checkpoint.
    DiscardState {
        /// The checkpoint it was made for.
        checkpoint: CheckpointId,
        /// The state.
        state: S,
    },
    /// Remove a checkpoint: first its metadata, then what nothing else refers to; answered by
    /// `Discarded`.
    DiscardCheckpoint {
        /// Which.
        checkpoint: CheckpointId,
    },
    /// The job fails.
    FailJob {
        /// The checkpoint by which it fails, if it had got an id.
        checkpoint: Option<CheckpointId>,
        /// Why.
        reason: FailureReason,
        /// False: restarting from the last checkpoint would repeat side effects.
        may_restart: bool,
    },
    /// Tell a user the outcome.
    Promise {
        /// Of which request.
        request: RequestId,
        /// What came of it.
        outcome: Outcome,
    },
    /// For log and metrics.
    Fact(Fact),
}

/// Collects what to do, in order.
pub type Outputs<S> = Vec<Output<S>>;
