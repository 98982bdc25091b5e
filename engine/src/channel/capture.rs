//! What a checkpoint has captured of one channel: references to buffers in flight, and the events among them.

use tidegate_netstack::buffer::Buffer;

use super::event::Event;
use crate::clock::EpochMillis;

/// One captured entry.
#[derive(Clone, Debug)]
pub enum CapturedSlot {
    /// A buffer from the first unread record on.
    Buffer {
        /// The buffer.
        buffer: Buffer,
        /// Where its first unread record begins.
        offset: usize,
    },
    /// A watermark or a change of status.
    Event(Event),
}

/// What was in flight on one channel.
#[derive(Clone, Debug)]
pub struct CapturedChannel {
    /// The edge.
    pub edge: usize,
    /// The producing subtask's index.
    pub producer: u32,
    /// The watermark at the read position.
    pub watermark: EpochMillis,
    /// Whether the channel was idle there.
    pub is_idle: bool,
    /// Bytes of records.
    pub bytes: u64,
    /// The entries in order.
    pub slots: Vec<CapturedSlot>,
}

impl CapturedChannel {
    /// Nothing of channel `producer` of edge `edge`.
    pub(crate) fn new(edge: usize, producer: u32) -> Self {
        Self {
            edge,
            producer,
            watermark: EpochMillis::MIN,
            is_idle: false,
            bytes: 0,
            slots: Vec::new(),
        }
    }
}
