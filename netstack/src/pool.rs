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
    /// If there are no segments, or segments of no bytes or of 4 GiB or more.
    pub fn new(options: PoolOptions, owner: Waker) -> Self {
        Self::with_waiter(options, Arc::new(Waiter::new(owner)))
    }

    pub(crate) fn with_waiter(options: PoolOptions, waiter: Arc<Waiter>) -> Self {
        let PoolOptions { segment_bytes, segments, emission_bytes_max } = options;
        assert!(segments > 0 && segment_bytes > 0, "a pool has at least one byte to give");
        assert!(segment_bytes < u32::MAX as usize, "a segment has less than 4 GiB");
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
    /// If overdraft would exceed `emission_bytes_max`, or there is no memory for it.
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
        let segment = Segment::overdraft(capacity, &self.home).ok_or(exhausted)?;
        self.overdraft_taken = self.overdraft_taken.wrapping_add(capacity);
        Ok(BufferBuilder::open(segment))
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::segment::SPARE;

    fn small(segments: usize) -> Pool {
        let options = PoolOptions { segment_bytes: 64, segments, emission_bytes_max: 256 };
        Pool::new(options, Waker::noop())
    }

    fn fill(mut builder: BufferBuilder, bytes: &[u8]) -> Buffer {
        builder.unfilled_mut()[..bytes.len()].copy_from_slice(bytes);
        builder.advance(bytes.len());
        builder.seal(0).expect("it isn't empty")
    }

    #[test]
    fn the_same_segment_comes_back() {
        let mut pool = small(1);
        let first = fill(pool.take(8).unwrap(), b"first");
        let address = first.as_slice().as_ptr();
        assert!(!pool.is_available());
        std::thread::spawn(move || drop(first)).join().unwrap();
        assert!(pool.is_available());
        let second = fill(pool.take(8).unwrap(), b"second");
        assert_eq!(second.as_slice(), b"second");
        assert_eq!(second.as_slice().as_ptr(), address);
    }

    #[test]
    fn a_segment_comes_back_with_its_last_reference() {
        let mut pool = small(1);
        let first = fill(pool.take(8).unwrap(), b"x");
        let second = first.clone();
        drop(first);
        assert!(!pool.is_available());
        assert_eq!(second.as_slice(), b"x");
        drop(second);
        assert!(pool.idle());
    }

    #[test]
    fn a_buffer_is_shared_more_often_than_its_weight_can_be_halved() {
        let mut pool = small(1);
        let mut first = fill(pool.take(8).unwrap(), b"x");
        let mut shared: Vec<Buffer> = (0..40).map(|_| first.share()).collect();
        shared.push(first.clone());
        let mut last = shared.pop().unwrap();
        shared.push(last.share());
        drop(first);
        for buffer in shared {
            assert!(!pool.is_available());
            assert_eq!((buffer.as_slice(), buffer.number()), (&b"x"[..], 0));
        }
        assert!(!pool.is_available());
        drop(last);
        assert!(pool.idle());
    }

    #[test]
    fn buffers_are_aligned_and_have_spare_bytes_behind_them() {
        let mut pool = small(3);
        for _ in 0..4 {
            let builder = pool.take(64).unwrap();
            assert_eq!(builder.reserve(64).unwrap().as_ptr().addr() % 128, 0);
            assert!(builder.reserve(65).is_none());
            let buffer = fill(builder, &[7; 64]);
            assert_eq!(buffer.as_slice().len(), 64);
            assert_eq!(buffer.as_padded_slice().len(), 64 + SPARE);
            assert_eq!(&buffer.as_padded_slice()[64..], [0; SPARE]);
        }
    }

    #[test]
    fn overdraft_has_a_limit_and_is_repaid_before_the_next_batch() {
        let mut pool = small(2);
        let mut taken: Vec<_> = (0..2 + 4).map(|_| pool.take(1).unwrap()).collect();
        assert_eq!(pool.overdraft_bytes(), 256);
        assert_eq!(pool.take(1).unwrap_err(), PoolExhausted { limit: 256 });
        taken.remove(0);
        assert!(!pool.is_available(), "one segment is free, but four are owed");
        taken.truncate(4);
        assert_eq!(pool.overdraft_bytes(), 3 * 64);
        taken.truncate(1);
        assert!(pool.is_available());
        taken.clear();
        assert!(pool.idle());
    }

    #[test]
    fn what_is_larger_than_a_segment_gets_its_own_size() {
        let mut pool = small(2);
        let builder = pool.take(200).unwrap();
        assert_eq!(builder.capacity(), 200);
        assert!(!pool.is_available(), "more is in flight than the share of 128 bytes");
        assert!(pool.take(usize::MAX).is_err());
        let unbounded =
            PoolOptions { segment_bytes: 8, segments: 1, emission_bytes_max: usize::MAX };
        assert!(Pool::new(unbounded, Waker::noop()).take(isize::MAX as usize - 8).is_err());
        drop(builder);
        assert!(pool.is_available() && pool.idle());
    }

    #[test]
    fn a_builder_advances_only_over_what_it_has() {
        let mut builder = small(1).take(1).unwrap();
        builder.advance(64);
        assert_eq!((builder.room(), builder.len()), (0, 64));
        assert!(std::thread::spawn(move || builder.advance(1)).join().is_err());
        let mut closed = BufferBuilder::closed();
        assert!(closed.reserve(0).is_none());
        assert!(closed.seal(0).is_none());
        assert!(std::thread::spawn(move || closed.advance(0)).join().is_err());
    }

    #[test]
    fn bytes_outlive_the_pool_without_being_copied() {
        let mut pool = small(1);
        let home = Arc::downgrade(&pool.home);
        let buffer = fill(pool.take(8).unwrap(), b"bytes");
        let address = buffer.as_slice().as_ptr();
        let bytes = buffer.into_bytes();
        drop(pool);
        let tail = bytes.slice(1..);
        drop(bytes);
        assert_eq!(&tail[..], b"ytes");
        assert_eq!(tail.as_ptr().addr(), address.addr() + 1);
        assert!(home.upgrade().is_some());
        drop(tail);
        assert!(home.upgrade().is_none(), "the memory is freed with the last reference");
    }

    #[test]
    fn the_owner_is_woken_only_if_it_waits() {
        let (parker, waker) = crate::parker::parker();
        let options = PoolOptions { segment_bytes: 64, segments: 1, emission_bytes_max: 0 };
        let mut pool = Pool::new(options, waker);
        let waiter = Arc::clone(&pool.waiter);
        let buffer = fill(pool.take(8).unwrap(), b"x");
        assert!(!waiter.is_declared());
        assert!(!pool.is_available());
        assert!(waiter.is_declared());
        let releasing = std::thread::spawn(move || drop(buffer));
        while !pool.is_available() {
            parker.park(None, || pool.is_available());
        }
        assert!(!waiter.is_declared());
        releasing.join().unwrap();
    }
}
