//! What a checkpoint has captured of one channel: references to buffers in flight, and the events among them.

use tidegate_netstack::buffer::Buffer;

use super::event::Event;
use crate::clock::EpochMillis;

/// How many restores an entry in flight has been through. Of two entries in one task's channels the one with more of them was sent
/// before the other, by whatever producers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Restores(pub u32);

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
    /// A copy of such records: of a buffer that was read to its end before the capture was complete.
    Copied(Box<[u8]>),
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
    /// The entries in order; those with more restores come first.
    pub slots: Vec<(Restores, CapturedSlot)>,
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

    /// The task has read `buffer` to its end: copies what was captured of it, so that its memory goes back to the producer. With
    /// it kept, a producer whose barrier is awaited might never come to that barrier for want of memory. `from` is where to
    /// look, the answer where to look next.
    pub(crate) fn release(&mut self, buffer: &Buffer, from: usize) -> usize {
        let at = self.slots.iter().skip(from).position(|(_, slot)| match slot {
            CapturedSlot::Buffer { buffer: captured, .. } => {
                captured.as_slice().as_ptr() == buffer.as_slice().as_ptr()
            }
            CapturedSlot::Copied(_) | CapturedSlot::Event(_) => false,
        });
        let Some(at) = at.map(|at| at + from) else { return from };
        let slot = &mut self.slots[at].1;
        if let CapturedSlot::Buffer { buffer, offset } = slot {
            *slot = CapturedSlot::Copied(buffer.as_slice()[*offset..].into());
        }
        at + 1
    }
}
