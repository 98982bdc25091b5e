//! What the machine knows of one channel, and the barriers it holds for the place right before EndOfPartition.
//!
//! `Open -> Ending -> Closed`. A barrier is put into an ending channel only, in ascending order, never one that the
//! producer has sent. Nothing is written into the channel: the barriers stand here and are delivered when the reader
//! comes to EndOfPartition.

use crate::channel::event::{Barrier, Position};
use crate::id::{ChannelIndex, CheckpointId};

/// One channel of the task.
#[derive(Clone, Debug, Hash)]
pub(super) struct Channel {
    pub(super) life: Life,
    /// EndOfData was read: only events follow.
    pub(super) ended: bool,
    /// The newest announcement.
    pub(super) announced: Option<(CheckpointId, Position)>,
    /// Barriers to deliver right before EndOfPartition; ascending.
    pub(super) inserted: Vec<Barrier>,
}

/// How far a channel has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Life {
    Open,
    /// EndOfPartition is in the channel; no barrier below `next` may be put before it.
    Ending {
        next: CheckpointId,
        position: Position,
    },
    Closed,
}

impl Channel {
    pub(super) fn new() -> Self {
        Self { life: Life::Open, ended: false, announced: None, inserted: Vec::with_capacity(2) }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.life == Life::Closed
    }

    /// EndOfPartition was read.
    pub(super) fn close(&mut self) {
        self.life = Life::Closed;
        self.announced = None;
    }

    /// Puts the barrier right before EndOfPartition, if that is in the channel and none was sent or put.
    pub(super) fn insert(&mut self, barrier: Barrier) -> bool {
        let n = barrier.checkpoint;
        match self.life {
            Life::Ending { next, position } if next <= n => {
                self.inserted.push(barrier);
                self.life = Life::Ending { next: CheckpointId(n.0 + 1), position };
                true
            }
            Life::Ending { .. } | Life::Open | Life::Closed => false,
        }
    }

    /// Where a barrier of `n` was put that has not been delivered.
    pub(super) fn inserted_at(&self, n: CheckpointId) -> Option<Position> {
        match self.life {
            Life::Ending { position, .. } => {
                self.inserted.iter().any(|barrier| barrier.checkpoint == n).then_some(position)
            }
            Life::Open | Life::Closed => None,
        }
    }

    /// Where a barrier of `n` was announced.
    pub(super) fn announced_at(&self, n: CheckpointId) -> Option<Position> {
        self.announced.filter(|&(announced, _)| announced == n).map(|(_, position)| position)
    }
}

/// The channel at a place of a task's list of channels.
pub(super) fn channel_index(index: usize) -> ChannelIndex {
    ChannelIndex(u32::try_from(index).expect("a task has fewer than 2^32 channels"))
}
