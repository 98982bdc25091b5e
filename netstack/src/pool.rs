//! One lane's share of memory. Having no free segment *is* back-pressure.
//!
//! A [`Pool`] belongs to the thread that fills buffers. It allocates its segments when it is made and recycles
//! them for ever; they come back from any thread. A task asks [`Pool::is_available`] before it starts a batch; one
//! that is under way may go into overdraft, which is allocated and freed one by one and bounded by
//! `emission_bytes_max`. While bytes in flight exceed the share no new batch starts, so overdraft is always repaid.
//!
//! Called by `lane::Producer` and by whoever reads from sockets.

use crate::{
    buffer::BufferBuilder,
    parker::{Waiter, Waker},
    segment::{Home, Segment},
    sync::Arc,
};
use std::{error, fmt};

/// How much memory a pool has.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Payload bytes of a segment, rounded up to a multiple of 8.
    pub segment_bytes: usize,
    /// Segments that are recycled, at least 1.
    pub segments: usize,
    /// Bytes of overdraft at which an emission under way fails.
    pub emission_bytes_max: usize,
}

impl Default for PoolOptions {
    /// 16 segments of 32 KiB (half of a core's L2 is the fastest), 256 MiB of overdraft.
    fn default() -> Self {
        Self { segment_bytes: 32 << 10, segments: 16, emission_bytes_max: 256 << 20 }
    }
}

/// An emission needs more memory than it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolExhausted {
    /// The bytes it may have, as configured.
    pub limit: usize,
}

impl fmt::Display for PoolExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one emission needs more than the {} bytes it may have in flight", self.limit)
    }
}

impl error::Error for PoolExhausted {}

/// The segments of one producing thread.
#[derive(Debug)]
pub struct Pool {
    home: Arc<Home>,
    waiter: Arc<Waiter>,
    /// Has room for all segments.
    free: Vec<Segment>,
    segments: usize,
    segment_bytes: usize,
    emission_bytes_max: usize,
    /// Payload bytes of all overdraft segments ever taken; wraps.
    overdraft_taken: usize,
    /// As last read from the home; wraps, never ahead of `overdraft_taken`.
    overdraft_returned: usize,
    has_declared: bool,
}

impl Pool {
    /// Allocates all segments. `owner` wakes the thread that will take them.
    ///
    /// # Panics
    /// If there are no segments, or segments of no bytes.
    pub fn new(options: PoolOptions, owner: Waker) -> Self {
        Self::with_waiter(options, Arc::new(Waiter::new(owner)))
    }

    pub(crate) fn with_waiter(options: PoolOptions, waiter: Arc<Waiter>) -> Self {
        let PoolOptions { segment_bytes, segments, emission_bytes_max } = options;
        assert!(segments > 0 && segment_bytes > 0, "a pool has at least one byte to give");
        let segment_bytes = segment_bytes.next_multiple_of(8);
        let (home, free) = Home::new(segments, segment_bytes, Arc::clone(&waiter));
        Self {
            home,
            waiter,
            free,
            segments,
            segment_bytes,
            emission_bytes_max,
            overdraft_taken: 0,
            overdraft_returned: 0,
            has_declared: false,
        }
    }

    /// True if a segment is free and the bytes in flight are within this pool's share: a batch may start.
    ///
    /// After `false` the owner's waker is used whenever something comes back, until this returns `true`.
    #[inline]
    pub fn is_available(&mut self) -> bool {
        if !self.free.is_empty() && self.overdraft_taken == self.overdraft_returned {
            if self.has_declared {
                self.withdraw();
            }
            return true;
        }
        self.collect_or_declare()
    }

    /// Takes memory for at least `bytes_min` bytes: a free segment, or else overdraft.
    ///
    /// # Errors
    /// If overdraft would exceed `emission_bytes_max`.
    #[cold]
    pub fn take(&mut self, bytes_min: usize) -> Result<BufferBuilder, PoolExhausted> {
        if bytes_min <= self.segment_bytes {
            if self.free.is_empty() {
                self.home.take_returned(&mut self.free);
            }
            if let Some(segment) = self.free.pop() {
                return Ok(BufferBuilder::open(segment));
            }
        }
        self.overdraw(bytes_min.max(self.segment_bytes))
    }

    /// Bytes taken beyond the segments and not back yet.
    pub fn overdraft_bytes(&mut self) -> usize {
        self.overdraft_returned = self.home.overdraft_returned();
        self.overdraft_taken.wrapping_sub(self.overdraft_returned)
    }

    /// True if all segments are home and no overdraft is out.
    pub fn idle(&mut self) -> bool {
        self.home.take_returned(&mut self.free);
        self.free.len() == self.segments && self.overdraft_bytes() == 0
    }

    /// Payload bytes of a segment.
    pub const fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    fn overdraw(&mut self, bytes: usize) -> Result<BufferBuilder, PoolExhausted> {
        let exhausted = PoolExhausted { limit: self.emission_bytes_max };
        let capacity = bytes.checked_next_multiple_of(8).ok_or(exhausted)?;
        let total = self.overdraft_bytes().checked_add(capacity).ok_or(exhausted)?;
        if total > self.emission_bytes_max {
            return Err(exhausted);
        }
        self.overdraft_taken = self.overdraft_taken.wrapping_add(capacity);
        Ok(BufferBuilder::open(Segment::overdraft(capacity, &self.home)))
    }

    #[cold]
    fn collect_or_declare(&mut self) -> bool {
        if !self.collect() && !self.has_declared {
            self.has_declared = true;
            self.waiter.declare();
            self.collect();
        }
        let is_available = self.is_within_share();
        if is_available && self.has_declared {
            self.withdraw();
        }
        is_available
    }

    fn collect(&mut self) -> bool {
        self.home.take_returned(&mut self.free);
        self.overdraft_bytes();
        self.is_within_share()
    }

    fn is_within_share(&self) -> bool {
        let overdraft = self.overdraft_taken.wrapping_sub(self.overdraft_returned);
        // With `n` segments free, `n` segments' worth of bytes may be overdraft.
        !self.free.is_empty() && overdraft < self.free.len() * self.segment_bytes
    }

    fn withdraw(&mut self) {
        self.has_declared = false;
        self.waiter.withdraw();
    }

    /// Asks to be woken whenever something comes back, until [`Pool::is_available`] returns `true`.
    pub(crate) fn declare(&mut self) {
        if !self.has_declared {
            self.has_declared = true;
            self.waiter.declare();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // First, so that the free segments, dropped next, are freed instead of coming home.
        self.home.close();
    }
}
