//! The inputs of a task in one list: sources, then the channels of its gates. Their places are the channel indices of
//! the alignment machine.

use crate::channel::input::InputChannel;
use crate::clock::{EpochMillis, Timestamp};
use crate::time::least_watermark;

/// One input.
#[derive(Debug)]
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

    /// Whether it has recovered entries left.
    pub(super) fn has_recovered(&self) -> bool {
        match self {
            Self::Source { .. } => false,
            Self::Channel { channel, .. } => channel.has_recovered(),
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

/// The watermark of a gate: the least of the channels that count.
#[derive(Clone, Copy, Debug)]
pub(super) struct GateTime {
    pub(super) watermark: EpochMillis,
    pub(super) is_idle: bool,
}

impl Default for GateTime {
    fn default() -> Self {
        Self { watermark: EpochMillis::MIN, is_idle: false }
    }
}

impl GateTime {
    /// The least watermark of the channels of `head` that count, if any does.
    pub(super) fn least(inputs: &[TaskInput], head: usize) -> Option<EpochMillis> {
        least_watermark(inputs.iter().filter_map(|input| match input {
            TaskInput::Channel { head: of, channel } if *of == head => {
                Some((channel.watermark, channel.is_idle))
            }
            TaskInput::Channel { .. } | TaskInput::Source { .. } => None,
        }))
    }
}
