//! The heads of a task's chains: where the task puts records in.

use tidegate_netstack::buffer::Buffer;

use super::op::Signal;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::ChannelIndex;
use crate::record::key_group::KeyGroupRange;
use crate::sink::Readiness;
use crate::source::Poll;

/// One head with the whole chain behind it.
pub enum Head {
    /// Reads an input.
    Source(Box<dyn HeadSource>),
    /// Reads the buffers of one gate.
    Gate {
        /// The edge that the gate reads.
        edge: usize,
        /// What takes the buffers.
        input: Box<dyn HeadInput>,
    },
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Source(_) => f.write_str("Source"),
            Self::Gate { edge, .. } => write!(f, "Gate({edge})"),
        }
    }
}

/// What all heads do.
pub trait Driven {
    /// Whether a batch may come.
    fn ready(&mut self, now: Timestamp) -> Readiness;
    /// The most records a batch may have.
    fn batch_max(&self) -> usize;
    /// Takes a signal.
    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()>;
}

/// A source's head.
pub trait HeadSource: Driven {
    /// Lets the reader emit at most `limit` records; answers what it said and how many it emitted.
    fn poll(&mut self, limit: usize, now: Timestamp) -> Result<(Poll, usize)>;
}

/// How far a batch went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Offset of the next unread frame in the buffer; its length if none is left.
    pub next: usize,
    /// Records taken.
    pub records: usize,
}

/// A gate's head.
pub trait HeadInput: Driven {
    /// Takes at most `limit` records of `buffer` from offset `from` on.
    fn take(&mut self, channel: ChannelIndex, buffer: &Buffer, from: usize, limit: usize) -> Taken;

    /// How many nanoseconds state was copied so far because a snapshot was being written.
    fn copy_nanos(&self) -> u64 {
        0
    }

    /// Whether windows or timers fire that go before anything else: no record and no further signal comes meanwhile.
    fn is_firing(&self) -> bool {
        false
    }

    /// Goes on with what takes longer than a batch: windows and timers that fire. `true` while there may be more.
    ///
    /// # Errors
    /// The task fails.
    fn proceed(&mut self, _now: Timestamp) -> Result<bool> {
        Ok(false)
    }

    /// Of frames that another subtask's channel held, those whose key groups are in `range`: for in-flight records of a checkpoint
    /// that is restored with another parallelism. `None` if the edge's records have no owner.
    fn route(&self, _frames: &[u8], _range: KeyGroupRange) -> Option<Vec<u8>> {
        None
    }

    /// Checks untrusted frames.
    ///
    /// # Errors
    /// They are not whole frames of the input's record type.
    fn check(&self, frames: &[u8]) -> Result<()>;

    /// The next processing-time timer.
    fn deadline(&self) -> Option<Timestamp> {
        None
    }
}

impl Head {
    /// Whether windows or timers fire that go before anything else.
    pub(crate) fn is_firing(&self) -> bool {
        match self {
            Self::Source(_) => false,
            Self::Gate { input, .. } => input.is_firing(),
        }
    }

    pub(crate) fn driven(&mut self) -> &mut dyn Driven {
        match self {
            Self::Source(source) => &mut **source as &mut dyn Driven,
            Self::Gate { input, .. } => &mut **input as &mut dyn Driven,
        }
    }
}
