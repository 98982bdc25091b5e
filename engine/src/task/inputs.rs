//! The inputs of a task in one list: sources, then the channels of its gates. Their places are the channel indices of
//! the alignment machine.

use crate::channel::capture::Restores;
use crate::channel::input::InputChannel;
use crate::clock::{EpochMillis, Timestamp};
use crate::time::CombinedTime;

/// One input.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "few, and most are channels, which are read record by record"
)]
pub enum TaskInput {
    /// A source, which is a head of its own.
    Source {
        /// The head.
        head: usize,
        /// Whether it may not emit: its barrier is through and others' are not.
        is_blocked: bool,
        /// Whether it has ended.
        is_ended: bool,
        /// When there may be something to read.
        busy_until: Timestamp,
    },
    /// A channel of a gate.
    Channel {
        /// The gate's head.
        head: usize,
        /// The channel.
        channel: InputChannel,
    },
}

impl TaskInput {
    pub(super) fn head(&self) -> usize {
        match *self {
            Self::Source { head, .. } | Self::Channel { head, .. } => head,
        }
    }

    /// How many restores its next recovered entry has been through; none if none is left.
    pub(super) fn next_recovered(&self) -> Option<Restores> {
        match self {
            Self::Source { .. } => None,
            Self::Channel { channel, .. } => channel.next_recovered(),
        }
    }

    /// Entries that wait in its lane.
    pub(super) fn queued(&self) -> u64 {
        match self {
            Self::Source { .. } => 0,
            Self::Channel { channel, .. } => channel.queued(),
        }
    }

    /// Whether nothing at all comes from it any more.
    pub(super) fn is_ended(&self) -> bool {
        match self {
            Self::Source { is_ended, .. } => *is_ended,
            Self::Channel { channel, .. } => channel.is_ended,
        }
    }

    pub(super) fn set_blocked(&mut self, blocked: bool) {
        match self {
            Self::Source { is_blocked, .. } => *is_blocked = blocked,
            Self::Channel { channel, .. } => channel.is_blocked = blocked,
        }
    }
}

/// What a gate's head was told of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct GateTime {
    pub(super) watermark: EpochMillis,
    pub(super) is_idle: bool,
    /// What the watermark fires must come out before the head is told more.
    pub(super) is_due: bool,
}

impl Default for GateTime {
    fn default() -> Self {
        Self { watermark: EpochMillis::MIN, is_idle: false, is_due: false }
    }
}

impl GateTime {
    /// What the channels of `head` make together.
    pub(super) fn of(inputs: &[TaskInput], head: usize) -> CombinedTime {
        CombinedTime::of(inputs.iter().filter_map(|input| match input {
            TaskInput::Channel { head: of, channel } if *of == head => {
                Some((channel.watermark, channel.is_idle))
            }
            TaskInput::Channel { .. } | TaskInput::Source { .. } => None,
        }))
    }
}
