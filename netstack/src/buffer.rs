//! Filled bytes on their way: one writer, then readers.
//!
//! A [`BufferBuilder`] has one segment to itself and fills it from the front. Sealed, it becomes a [`Buffer`],
//! which is never written again; each clone is one more reference to the same bytes, and the last one to go gives
//! the segment back to the pool it came from. Bytes are written once: from here to a socket, a file or a reader
//! they don't move.
//!
//! Filled by `lane::Producer`; read by tasks, by those who write snapshots and by the network.

use crate::segment::{SealedSegment, Segment, WriteCursor};
use bytes::Bytes;
use std::{fmt, ptr::NonNull};

/// Fills one segment.
#[derive(Debug)]
pub struct BufferBuilder {
    segment: Option<Segment>,
    cursor: WriteCursor,
}

impl BufferBuilder {
    /// A builder without a segment: it has room for nothing.
    pub const fn closed() -> Self {
        Self { segment: None, cursor: WriteCursor::closed() }
    }

    pub(crate) fn open(segment: Segment) -> Self {
        Self { cursor: WriteCursor::open(&segment), segment: Some(segment) }
    }

    /// The place for the next `bytes` bytes, or `None` if they don't fit.
    ///
    /// The [`SPARE`](crate::segment::SPARE) bytes behind them may be written as well; they are overwritten by what comes next. The
    /// first place in a buffer is 128-byte aligned, and all are 8-byte aligned if every `advance` is by a multiple
    /// of 8. Whoever writes through the pointer must have stopped before the buffer is sealed, and must not write
    /// uninitialised bytes (padding).
    #[inline(always)]
    pub fn reserve(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.cursor.reserve(bytes)
    }

    /// Makes the next `bytes` bytes part of the buffer.
    ///
    /// It is safe because all bytes of a segment are initialised from the start: to advance over bytes that were
    /// not written shows old bytes, not uninitialised ones.
    ///
    /// # Panics
    /// If the buffer doesn't have `bytes` bytes left.
    #[inline(always)]
    pub fn advance(&mut self, bytes: usize) {
        self.cursor.advance(bytes);
    }

    /// The bytes left, to be written in place and then counted by [`BufferBuilder::advance`].
    pub fn unfilled_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        match &mut self.segment {
            None => &mut [],
            Some(segment) => &mut segment.as_mut_slice()[len..],
        }
    }

    /// Bytes filled.
    pub fn len(&self) -> usize {
        self.capacity() - self.room()
    }

    /// True if nothing has been filled.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes left.
    #[inline(always)]
    pub const fn room(&self) -> usize {
        self.cursor.room()
    }

    /// Bytes filled and left.
    pub fn capacity(&self) -> usize {
        self.segment.as_ref().map_or(0, Segment::capacity)
    }

    /// True if there is a segment to fill.
    pub fn is_open(&self) -> bool {
        self.segment.is_some()
    }

    /// Seals what was filled and leaves the builder closed; `None` if it was empty.
    pub fn seal(&mut self, number: u64) -> Option<Buffer> {
        let len = self.len();
        self.cursor = WriteCursor::closed();
        let segment = self.segment.take()?;
        (len > 0).then(|| Buffer { segment: segment.seal(len, number) })
    }
}

/// A reference to sealed bytes.
#[derive(Clone)]
pub struct Buffer {
    segment: SealedSegment,
}

impl Buffer {
    /// Another reference to the same bytes, as a clone is one, but made without touching memory that other threads write.
    #[inline]
    pub fn share(&mut self) -> Self {
        Self { segment: self.segment.share() }
    }

    /// The filled bytes, 128-byte aligned.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.segment.as_slice()
    }

    /// The filled bytes and [`SPARE`](crate::segment::SPARE) initialised bytes of no meaning behind them, for codecs that load whole words.
    #[inline]
    pub fn as_padded_slice(&self) -> &[u8] {
        self.segment.as_padded_slice()
    }

    /// Bytes filled, at least 1.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        self.segment.len()
    }

    /// The number it was sealed with; in a lane, its position there.
    #[inline]
    pub fn number(&self) -> u64 {
        self.segment.number()
    }

    /// The filled bytes as `Bytes`, without copying them. The segment goes back when the last of those is dropped.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("number", &self.number()).field("len", &self.len()).finish()
    }
}
