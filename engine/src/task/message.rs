//! What the control thread tells a task, and what the task reports.

use crate::barrier::AlignmentReport;
use crate::channel::capture::CapturedChannel;
use crate::channel::event::Barrier;
use crate::error::Error;
use crate::id::{AttemptId, CheckpointId};
use crate::state::part::Part;

/// What a task is told.
#[derive(Clone, Debug)]
pub enum Mail {
    /// Take part in a checkpoint: to a source, or to a task whose predecessors have all finished.
    Trigger(Barrier),
    /// A checkpoint is complete.
    Complete(CheckpointId),
    /// A checkpoint was given up; the latest complete one comes along, in case its own notice was lost.
    Aborted {
        /// Which.
        checkpoint: CheckpointId,
        /// The latest complete one.
        latest: Option<CheckpointId>,
    },
    /// The task may leave (FLIP-147's race between finishing and triggering: the permit is given where plans are made).
    PermitGranted,
    /// The task may not leave yet; it asks again when it has taken part in these.
    PermitHeld(Vec<Barrier>),
    /// Sources: read no more.
    Stop {
        /// Whether the input has ended for good.
        drain: bool,
    },
}

/// What a task reports, with who it is.
#[derive(Debug)]
pub struct Report {
    /// Which attempt.
    pub attempt: AttemptId,
    /// What.
    pub kind: ReportKind,
}

/// A channel whose barrier has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedBarrier {
    /// The edge.
    pub edge: usize,
    /// The producing subtask's index.
    pub producer: u32,
    /// Bytes of records that are queued before the barrier, as far as they have arrived.
    pub bytes: u64,
}

/// What a task reports.
#[derive(Debug)]
pub enum ReportKind {
    /// The task is made and its state restored.
    Running,
    /// The synchronous part of a checkpoint is done; the parts are to be stored, then acknowledged.
    Snapshot {
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// The state.
        parts: Vec<Part>,
        /// What was in flight, and the watermark at each channel's read position.
        channels: Vec<CapturedChannel>,
        /// Whether the task's operators had finished before.
        operators_finished: bool,
        /// The inputs whose end the operators have been told.
        ended_inputs: Vec<u32>,
        /// How the alignment went.
        alignment: Option<AlignmentReport>,
    },
    /// The task can't take part in a checkpoint.
    Declined {
        /// Which.
        checkpoint: CheckpointId,
        /// Why.
        cause: Error,
    },
    /// Barriers that had not come when the task heard that a checkpoint was given up.
    Waiting {
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// The barriers.
        barriers: Vec<AwaitedBarrier>,
    },
    /// The task has sent its end of data.
    EndOfData,
    /// Only a completed checkpoint lets the task go on, or no longer.
    AwaitsCheckpoint(bool),
    /// The task has nothing left to do and asks for its permit.
    FinishRequest {
        /// The last checkpoint it took part in.
        last: Option<CheckpointId>,
    },
    /// The task has left.
    Finished,
    /// The task has failed.
    Failed(Error),
}
