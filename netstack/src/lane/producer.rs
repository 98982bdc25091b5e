//! The writing end of a lane: records into buffers, buffers and events into the ring.
//!
//! Invariants: entries reach the ring in the order of their positions; a priority entry reaches it when everything
//! before its position has, and before anything at its position; while the backlog holds something, the lane is
//! not ready. After the end nothing is pushed.
//!
//! Called by the producing task, record by record in the innermost loop: that path is inlined, the rest is cold.

use super::{Entry, Priority, Slot};
use crate::{
    buffer::BufferBuilder,
    parker::Waker,
    pool::{Pool, PoolExhausted},
    ring::RingProducer,
};
use std::{collections::VecDeque, fmt, ptr::NonNull};

/// The writing end of a lane.
pub struct Producer<E> {
    builder: BufferBuilder,
    ring: RingProducer<Entry<E>, Priority<E>>,
    pool: Pool,
    consumer: Waker,
    /// What had no room, in order. Not empty only after an overdraft or too many events.
    backlog: VecDeque<Pending<E>>,
    /// The position of the next in-band entry: the ring's tail plus the in-band entries of the backlog.
    end: u64,
    /// Positions of in-band events that the consumer has perhaps not taken yet, ascending.
    events: VecDeque<u64>,
    events_max: usize,
    is_finished: bool,
    buffers: u64,
    bytes: u64,
}

/// What waits in the producer for room.
enum Pending<E> {
    Entry(Entry<E>),
    Priority(Priority<E>),
}

impl<E: Copy + Send> Producer<E> {
    pub(super) fn new(
        ring: RingProducer<Entry<E>, Priority<E>>,
        pool: Pool,
        consumer: Waker,
        events_max: usize,
    ) -> Self {
        Self {
            builder: BufferBuilder::closed(),
            ring,
            pool,
            consumer,
            backlog: VecDeque::new(),
            end: 0,
            events: VecDeque::with_capacity(events_max + 1),
            events_max,
            is_finished: false,
            buffers: 0,
            bytes: 0,
        }
    }

    /// True if a batch of records may start: memory is free and nothing waits for room.
    ///
    /// After `false` the producer's waker is used whenever that may have changed, until this returns `true`.
    #[inline(always)]
    pub fn is_ready(&mut self) -> bool {
        (self.backlog.is_empty() && self.pool.is_available()) || self.make_ready()
    }

    /// The place for the next `bytes` bytes of a record, and [`SPARE`](crate::segment::SPARE) bytes behind.
    ///
    /// Publishes the open buffer if it lacks the room, so that a record never spans buffers. A record larger than
    /// a segment gets a buffer of its own size. Alignment and the writer's duties are those of
    /// [`BufferBuilder::reserve`]. It may go into overdraft; [`Producer::is_ready`] is the back-pressure.
    ///
    /// # Errors
    /// If overdraft would exceed the pool's `emission_bytes_max`.
    ///
    /// # Panics
    /// After the end.
    #[inline(always)]
    pub fn reserve(&mut self, bytes: usize) -> Result<NonNull<u8>, PoolExhausted> {
        match self.builder.reserve(bytes) {
            Some(place) => Ok(place),
            None => self.turn_over(bytes),
        }
    }

    /// Makes the next `bytes` bytes part of the stream. Safe, see [`BufferBuilder::advance`].
    ///
    /// # Panics
    /// If it exceeds what the last [`Producer::reserve`] left room for.
    #[inline(always)]
    pub fn advance(&mut self, bytes: usize) {
        self.builder.advance(bytes);
    }

    /// Bytes the open buffer has left: so many can be written and advanced over at once, after a
    /// [`Producer::reserve`] of that many.
    #[inline(always)]
    pub const fn room(&self) -> usize {
        self.builder.room()
    }

    /// Copies one record into the stream.
    ///
    /// # Errors
    /// As [`Producer::reserve`].
    ///
    /// # Panics
    /// After the end.
    #[inline]
    pub fn write(&mut self, record: &[u8]) -> Result<(), PoolExhausted> {
        self.reserve(record.len())?;
        self.builder.unfilled_mut()[..record.len()].copy_from_slice(record);
        self.advance(record.len());
        Ok(())
    }

    /// Publishes the open buffer, if it has something.
    #[inline]
    pub fn flush(&mut self) {
        if self.builder.is_open() {
            self.seal();
        }
    }

    /// True if there is something to flush.
    #[inline]
    pub fn has_open(&self) -> bool {
        !self.builder.is_empty()
    }

    /// Pushes an event behind everything and returns its position.
    ///
    /// # Panics
    /// After the end.
    pub fn push_event(&mut self, event: E) -> u64 {
        self.flush();
        self.forget_taken_events();
        let position = self.submit(Entry::Slot(Slot::Event(event)));
        self.events.push_back(position);
        position
    }

    /// As [`Producer::push_event`], but does nothing if the lane has enough events or is behind.
    ///
    /// # Panics
    /// After the end.
    pub fn try_push_event(&mut self, event: E) -> Option<u64> {
        (self.backlog.is_empty() && self.free_event_slots() > 0).then(|| self.push_event(event))
    }

    /// Pushes an event that overtakes everything, and returns the position it stands at: the end of all so far.
    ///
    /// # Panics
    /// After the end.
    pub fn push_priority(&mut self, event: E) -> u64 {
        self.flush();
        let position = self.position();
        self.push_priority_at(event, position);
        position
    }

    /// Pushes an event that overtakes and stands for an earlier in-band position.
    ///
    /// # Panics
    /// If the position is not published or queued yet, and after the end.
    pub fn push_priority_at(&mut self, event: E, position: u64) {
        assert!(!self.is_finished, "nothing follows the end of a lane");
        assert!(position <= self.position(), "a cut lies within what was pushed");
        let entry = Priority { event, position };
        self.drain_backlog();
        // It may pass what waits, if everything before its position has been published.
        let may_pass = position <= self.ring.tail() && !self.is_cut_pending(position);
        if may_pass && self.ring.push_priority(entry).is_ok() {
            self.consumer.wake();
        } else {
            self.backlog.push_back(Pending::Priority(entry));
        }
    }

    /// Ends the lane: a priority `notice` with the end's position, then `end` at that position, which is returned.
    ///
    /// # Panics
    /// After the end.
    pub fn finish(&mut self, notice: E, end: E) -> u64 {
        let position = self.push_priority(notice);
        let end_position = self.submit(Entry::End(end));
        assert_eq!(position, end_position, "nothing comes between the notice and the end");
        self.is_finished = true;
        position
    }

    /// The position of the next in-band entry; an open buffer will be at it.
    #[inline]
    pub const fn position(&self) -> u64 {
        self.end
    }

    /// In-band events that may be queued now before droppable ones are refused.
    pub fn free_event_slots(&mut self) -> usize {
        if self.events.len() >= self.events_max {
            self.ring.refresh_head();
            self.forget_taken_events();
        }
        self.events_max.saturating_sub(self.events.len())
    }

    /// The position up to which the consumer has taken entries, as far as it has said so.
    pub fn taken(&mut self) -> u64 {
        self.ring.refresh_head();
        self.ring.head_seen()
    }

    /// True if the consumer is gone. What is pushed is dropped from then on.
    pub fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    /// True if the lane has ended.
    pub const fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// True if no buffer is out: all segments are home and nothing is in overdraft.
    pub fn is_idle(&mut self) -> bool {
        self.pool.idle()
    }

    /// Entries that wait here for room. They are lost if the producer is dropped before [`Producer::is_ready`],
    /// which moves them on, has made this 0.
    pub fn backlog(&self) -> usize {
        self.backlog.len()
    }

    /// Bytes taken beyond the pool's segments and not back yet.
    pub fn overdraft_bytes(&mut self) -> usize {
        self.pool.overdraft_bytes()
    }

    /// Buffers sealed so far.
    pub const fn buffers(&self) -> u64 {
        self.buffers
    }

    /// Bytes in sealed buffers so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    #[cold]
    fn make_ready(&mut self) -> bool {
        self.drain_backlog();
        if !self.backlog.is_empty() {
            self.pool.declare();
            self.drain_backlog();
        }
        if self.ring.is_closed() {
            self.ring.take_over();
        }
        // An open segment without a byte in it is as good as a free one.
        let has_fresh_segment = self.builder.is_open() && self.builder.is_empty();
        self.backlog.is_empty() && (self.pool.is_available() || has_fresh_segment)
    }

    #[cold]
    fn turn_over(&mut self, bytes: usize) -> Result<NonNull<u8>, PoolExhausted> {
        assert!(!self.is_finished, "nothing follows the end of a lane");
        self.flush();
        self.builder = self.pool.take(bytes)?;
        Ok(self.builder.reserve(bytes).expect("a pool gives at least what it is asked for"))
    }

    #[cold]
    fn seal(&mut self) {
        let position = self.position();
        if let Some(buffer) = self.builder.seal(position) {
            self.buffers += 1;
            self.bytes += buffer.len() as u64;
            self.submit(Entry::Slot(Slot::Buffer(buffer)));
        }
    }

    /// Hands an entry to the ring, or to the backlog if there is no room or something waits already.
    fn submit(&mut self, entry: Entry<E>) -> u64 {
        assert!(!self.is_finished, "nothing follows the end of a lane");
        self.drain_backlog();
        let position = self.position();
        let refused = if self.backlog.is_empty() { self.ring.push(entry) } else { Err(entry) };
        match refused {
            Ok(()) => self.consumer.wake(),
            Err(entry) => {
                self.backlog.push_back(Pending::Entry(entry));
            }
        }
        self.end += 1;
        position
    }

    /// Moves what waits into the ring, in order, as far as there is room.
    #[inline]
    fn drain_backlog(&mut self) {
        if !self.backlog.is_empty() {
            self.drain_backlog_now();
        }
    }

    #[cold]
    fn drain_backlog_now(&mut self) {
        let mut has_moved = false;
        while let Some(pending) = self.backlog.pop_front() {
            let refused = match pending {
                Pending::Entry(entry) => self.ring.push(entry).map_err(Pending::Entry),
                Pending::Priority(entry) => {
                    debug_assert!(entry.position <= self.ring.tail(), "entries keep their order");
                    self.ring.push_priority(entry).map_err(Pending::Priority)
                }
            };
            if let Err(pending) = refused {
                self.backlog.push_front(pending);
                break;
            }
            has_moved = true;
        }
        if has_moved {
            self.consumer.wake();
        }
    }

    /// True if a priority entry for this position or an earlier one waits.
    fn is_cut_pending(&self, position: u64) -> bool {
        self.backlog.iter().any(|pending| match pending {
            Pending::Entry(_) => false,
            Pending::Priority(entry) => entry.position <= position,
        })
    }

    fn forget_taken_events(&mut self) {
        if self.events.len() >= self.events_max {
            self.ring.refresh_head();
        }
        while self.events.front().is_some_and(|&position| position < self.ring.head_seen()) {
            self.events.pop_front();
        }
    }
}

impl<E> Drop for Producer<E> {
    fn drop(&mut self) {
        self.ring.close();
        self.consumer.wake();
    }
}

impl<E> fmt::Debug for Producer<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("ring", &self.ring)
            .field("backlog", &self.backlog.len())
            .field("is_finished", &self.is_finished)
            .finish_non_exhaustive()
    }
}
