//! What the finish machine is told and what it answers.

use crate::channel::event::Barrier;
use crate::id::{ChannelIndex, CheckpointId};

/// Something that matters for the task's end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The task runs: its state is restored.
    Start,
    /// The source has no more records.
    SourceEnded,
    /// The coordinator triggers the task, or a source is asked to stop with a savepoint.
    Trigger {
        /// The checkpoint.
        barrier: Barrier,
    },
    /// The reader came to EndOfData.
    EndOfData {
        /// Where.
        channel: ChannelIndex,
        /// Whether it said drain.
        drain: bool,
    },
    /// The reader came to EndOfPartition, and the alignment machine was told.
    EndOfPartition {
        /// Where.
        channel: ChannelIndex,
    },
    /// The step last asked for is done.
    StepDone,
    /// A consumer has read EndOfData.
    EndOfDataAcked {
        /// Which lane.
        lane: usize,
    },
    /// The task took a snapshot and sent the barrier on; its asynchronous part runs.
    SnapshotTaken {
        /// The checkpoint.
        barrier: Barrier,
    },
    /// The asynchronous part of a snapshot is over: acknowledged, failed or aborted.
    SnapshotOver {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The checkpoint is complete.
    Complete {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The checkpoint was given up.
    Aborted {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The latest complete one, in case its notice was lost.
        latest: Option<CheckpointId>,
    },
    /// After `end_input`, the operator wants the task to wait for it.
    FinalizePending {
        /// Which operator.
        operator: usize,
    },
    /// The operator no longer wants that.
    Finalized {
        /// Which operator.
        operator: usize,
    },
    /// What the operator waited for failed.
    FinalizeFailed {
        /// Which operator.
        operator: usize,
    },
    /// All that was sent before [`Output::Flush`] has been received by the consumers' processes.
    Flushed,
    /// The coordinator has recorded the task as finished.
    Granted,
    /// The coordinator waits for the task in these checkpoints.
    Hold {
        /// Each of them, ascending.
        pending: Vec<Barrier>,
    },
    /// The job is cancelled.
    Cancel,
}

/// One step of ending a task's operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Send MAX watermark; event-time timers fire.
    EmitMaxWatermark,
    /// Tell the operator that an input has ended.
    EndInput {
        /// Its place in the chain.
        operator: usize,
        /// Which of its inputs.
        input: usize,
    },
    /// Let a processing-time timer that runs end, drop those that wait.
    QuiesceTimers {
        /// Its place in the chain.
        operator: usize,
    },
    /// Run all mails of the operator, continuations of the lowest priority included, and those they cause.
    RunMails {
        /// Its place in the chain.
        operator: usize,
    },
    /// Let the operator emit its last records.
    Finish {
        /// Its place in the chain.
        operator: usize,
    },
}

/// What the task is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Do the step, in as many rounds as it takes, then say [`Input::StepDone`].
    Run(Step),
    /// Tell the producer of `channel` that its EndOfData was read.
    AckEndOfData {
        /// Which channel.
        channel: ChannelIndex,
    },
    /// Send EndOfData on every lane.
    BroadcastEndOfData {
        /// Whether operators downstream are to finish for good.
        drain: bool,
    },
    /// Hand the trigger to the alignment machine.
    Take {
        /// The checkpoint.
        barrier: Barrier,
    },
    /// The trigger came when the task was gone.
    DeclineClosing {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Run the operators' commit hooks.
    NotifyComplete {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// The checkpoint was given up: tell the snapshot machine, which tells the operators, then the alignment machine.
    Abort {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// Tell the coordinator whether nothing but a completed checkpoint lets the task go on.
    AwaitsCheckpoint(bool),
    /// Send all that is unsent, then say [`Input::Flushed`].
    Flush,
    /// Ask the coordinator for the permit to finish. Asking again is harmless.
    AskPermit {
        /// The last checkpoint the task took part in.
        last_snapshot: Option<CheckpointId>,
    },
    /// Take no more mail; what is there holds no trigger.
    CloseMailbox,
    /// Send the last event of each lane.
    EmitEndOfPartition,
    /// Close each operator, also if an earlier one failed to close.
    CloseOperators,
    /// The task fails.
    Fail {
        /// Why.
        cause: Failure,
    },
}

/// Why a task that ends fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// What an operator wanted to be waited for failed.
    Finalize {
        /// Its place in the chain.
        operator: usize,
    },
    /// The savepoint that was to end the job was given up.
    Savepoint {
        /// Which.
        checkpoint: CheckpointId,
    },
}

/// What the machine answers, to be carried out in order and then cleared.
pub type Outputs = Vec<Output>;
