//! What the alignment machine is told and what it answers. The task carries the answers out in the order they come.

use crate::channel::event::{Barrier, Position};
use crate::id::{ChannelIndex, CheckpointId};

/// Something happened at the inputs of a task.
///
/// A source chained into the task is one more channel: its trigger comes as [`Input::Barrier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// The reader came to a barrier that stands in band.
    Barrier {
        /// Where.
        channel: ChannelIndex,
        /// What it says.
        barrier: Barrier,
    },
    /// A barrier on the priority side: it stands for `position`, whatever its options say.
    PriorityBarrier {
        /// Where.
        channel: ChannelIndex,
        /// What it says.
        barrier: Barrier,
        /// Buffers numbered below are before the barrier; all of them are in the channel.
        position: Position,
    },
    /// A priority entry says that a barrier stands in band at `position`, which may still be on its way.
    Announcement {
        /// Where.
        channel: ChannelIndex,
        /// The barrier announced.
        barrier: Barrier,
        /// Where it stands.
        position: Position,
    },
    /// The reader came to a cancellation.
    Cancel {
        /// Where.
        channel: ChannelIndex,
        /// Of which checkpoint.
        checkpoint: CheckpointId,
    },
    /// A priority entry says that EndOfPartition stands at `position` and all before it is in the channel.
    FinishNotice {
        /// Where.
        channel: ChannelIndex,
        /// One more than the highest barrier or cancellation the producer put into the channel.
        next: CheckpointId,
        /// Where EndOfPartition stands.
        position: Position,
    },
    /// The reader came to EndOfData: no record follows in this channel.
    EndOfData {
        /// Where.
        channel: ChannelIndex,
    },
    /// The reader came to EndOfPartition. Barriers inserted before it are delivered by this very input.
    EndOfPartition {
        /// Where.
        channel: ChannelIndex,
    },
    /// The coordinator triggers this task directly.
    Trigger {
        /// The checkpoint.
        barrier: Barrier,
    },
    /// The capture of `channel` has reached the position that [`Output::CaptureUntil`] named last.
    CaptureReached {
        /// Where.
        channel: ChannelIndex,
        /// For which checkpoint.
        checkpoint: CheckpointId,
    },
    /// The moment that [`Machine::deadline`](super::Machine::deadline) named may have come.
    Tick,
    /// The coordinator gave the checkpoint up.
    Abort {
        /// Which checkpoint.
        checkpoint: CheckpointId,
    },
    /// Bytes of records were handed to the operators.
    Processed {
        /// How many.
        bytes: u64,
    },
    /// Bytes were captured as channel state.
    Captured {
        /// For which checkpoint.
        checkpoint: CheckpointId,
        /// How many.
        bytes: u64,
    },
    /// The task goes away; nothing that comes later has an effect.
    Close,
}

/// What the task is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Read nothing but the priority side of `channel` until [`Output::Resume`].
    Block {
        /// Which channel.
        channel: ChannelIndex,
    },
    /// Read `channel` again.
    Resume {
        /// Which channel.
        channel: ChannelIndex,
    },
    /// Open the input part of the checkpoint's channel state; capture starts at each channel's read position.
    CaptureStart {
        /// Which checkpoint.
        checkpoint: CheckpointId,
    },
    /// Capture `channel` up to `position`, in this step and each later one, after the priority side is served and before
    /// anything is read; then say [`Input::CaptureReached`]. At [`Output::CaptureStop`] what is missing is taken first.
    CaptureUntil {
        /// Which channel.
        channel: ChannelIndex,
        /// The end of the range.
        position: Position,
    },
    /// Capture `channel` up to the tail loaded, in this step and each later one, after the priority side is served and
    /// before anything is read, until told otherwise: so never past an unserved priority entry's position.
    CaptureLoaded {
        /// Which channel.
        channel: ChannelIndex,
    },
    /// The input part is complete: no capture grows any more.
    CaptureStop {
        /// Which checkpoint.
        checkpoint: CheckpointId,
    },
    /// Drop the input part and stop capturing.
    CaptureAbort {
        /// Which checkpoint.
        checkpoint: CheckpointId,
    },
    /// Take the task's snapshot here and send the barrier on.
    Snapshot {
        /// The checkpoint; its options say unaligned if its timeout has passed.
        barrier: Barrier,
    },
    /// All barriers have come: the snapshot's asynchronous part no longer waits for the inputs.
    Completed {
        /// Which checkpoint.
        checkpoint: CheckpointId,
    },
    /// The checkpoint is given up here: drop its snapshot if there is one, send the cancellation on, and tell the
    /// coordinator unless it was the one who said so. Nothing up to it is taken any more.
    Abort {
        /// Which checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: AbortReason,
    },
    /// A trigger can't be followed; tell the coordinator that the checkpoint is subsumed.
    Decline {
        /// Which checkpoint.
        checkpoint: CheckpointId,
    },
}

/// Why a task gave a checkpoint up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AbortReason {
    /// A newer checkpoint came before all barriers of this one.
    Subsumed,
    /// A predecessor gave it up.
    CancellationBarrier,
    /// A channel ended and checkpoints after finished tasks are switched off.
    InputEndOfStream,
    /// The coordinator gave it up.
    Notice,
}

/// What the machine answers, to be carried out in order and then cleared.
pub type Outputs = Vec<Output>;
