//! What travels in a channel beside records.
//!
//! An event either stands in the sequence of buffers, in band, or goes ahead of it on the priority side together with
//! the position it stands for. Producers write them, the task's input loop hands them to the alignment machine and the
//! finish machine; operators see watermarks and status only.

use crate::channel::options::CheckpointOptions;
use crate::clock::{EpochMillis, Timestamp};
use crate::id::{CheckpointId, SubtaskId};

/// A place between two buffers of one channel: the number of buffers its producer had pushed before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// The marker of one checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Barrier {
    /// Which checkpoint.
    pub checkpoint: CheckpointId,
    /// When the checkpoint was triggered; an alignment timeout counts from here.
    pub timestamp: Timestamp,
    /// How it is taken.
    pub options: CheckpointOptions,
}

/// One event of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Everything before is part of the checkpoint. On the priority side iff it is unaligned.
    Barrier(Barrier),
    /// Priority: a barrier that may time out stands in band at `position`.
    Announcement {
        /// The barrier announced.
        barrier: Barrier,
        /// Where it stands.
        position: Position,
    },
    /// Nobody is to wait for the barrier of this checkpoint on this channel.
    Cancel {
        /// Which checkpoint.
        checkpoint: CheckpointId,
    },
    /// No record that follows is older, except late ones.
    Watermark(EpochMillis),
    /// The channel's watermark doesn't count until the channel is active again.
    Idle,
    /// The channel's watermark counts again.
    Active,
    /// No more records; operators may finish. The producer stays.
    EndOfData {
        /// Whether the operators are to finish for good; otherwise the job only stops here.
        drain: bool,
    },
    /// The last entry of a channel.
    EndOfPartition,
    /// Priority, published before [`Event::EndOfPartition`] is: where it stands is the entry's position.
    FinishNotice {
        /// One more than the highest barrier or cancellation the producer put into the channel.
        next: CheckpointId,
    },
    /// Measures how long a record takes from its source to here.
    LatencyMarker {
        /// When the source sent it.
        emitted_at: Timestamp,
        /// Which source.
        source: SubtaskId,
    },
}

impl Event {
    /// Whether it goes ahead of all buffers, on the priority side.
    pub const fn is_priority(&self) -> bool {
        match self {
            Self::Barrier(barrier) => barrier.options.is_unaligned(),
            Self::Announcement { .. } | Self::FinishNotice { .. } => true,
            Self::Cancel { .. }
            | Self::Watermark(_)
            | Self::Idle
            | Self::Active
            | Self::EndOfData { .. }
            | Self::EndOfPartition
            | Self::LatencyMarker { .. } => false,
        }
    }

    /// Whether it is part of what an unaligned checkpoint captures of a channel.
    pub const fn is_captured(&self) -> bool {
        match self {
            Self::Watermark(_) | Self::Idle | Self::Active => true,
            Self::Barrier(_)
            | Self::Announcement { .. }
            | Self::Cancel { .. }
            | Self::EndOfData { .. }
            | Self::EndOfPartition
            | Self::FinishNotice { .. }
            | Self::LatencyMarker { .. } => false,
        }
    }
}
