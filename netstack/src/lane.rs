//! The one queue between two tasks: a ring of buffers and events, and a priority side that overtakes it.
//!
//! Every in-band entry has a position, counted from 0. A priority entry names a position too, its *logical cut*:
//! it stands between the entries below and those from there on, wherever the consumer happens to be. The rules:
//!
//! - A priority entry reaches the consumer before any in-band entry at or behind its position.
//! - When it does, everything before its position has been published: the consumer has taken it or can
//!   [peek](Consumer::peek_until) at it. Nothing of the queue is moved or marked; [references](Consumer::share) to the buffers outlive it.
//! - The end is the last in-band entry, and a priority notice with its position comes before it, so that the
//!   consumer can put something right before the end by itself. The ring keeps one producer.
//! - Pushing never fails and never waits. The ring holds the lane's segments, as many overdraft buffers and the
//!   events; what is beyond waits in the producer, in order, and meanwhile the lane is not ready.
//!
//! `Producer` and `Consumer` each belong to one thread for life. This file makes lanes; `E` is the user's event.

mod consumer;
mod producer;

#[cfg(all(test, not(loom)))]
mod tests;

pub use consumer::{Consumer, Next};
pub use producer::Producer;

use crate::{
    buffer::Buffer,
    parker::{Waiter, Waker},
    pool::{Pool, PoolOptions},
    ring::ring,
    sync::Arc,
};

/// How large a lane is and whom it wakes.
#[derive(Clone, Debug)]
pub struct LaneOptions {
    /// The producer's share of memory. Its segments are the lane's credit.
    pub pool: PoolOptions,
    /// In-band events that may be queued before droppable ones are refused.
    pub events_max: usize,
    /// Priority entries that may be queued before further ones have to wait in the producer.
    pub priority_max: usize,
    /// Wakes the producing thread when it waits for memory.
    pub producer: Waker,
    /// Wakes the consuming thread when something is published.
    pub consumer: Waker,
}

impl Default for LaneOptions {
    /// The pool's default, 64 events, 8 priority entries, and nobody woken.
    fn default() -> Self {
        Self {
            pool: PoolOptions::default(),
            events_max: 64,
            priority_max: 8,
            producer: Waker::noop(),
            consumer: Waker::noop(),
        }
    }
}

/// Makes a lane. All its memory is allocated here.
///
/// # Panics
/// If the pool has no segments, or segments of no bytes.
pub fn channel<E: Copy + Send>(options: LaneOptions) -> (Producer<E>, Consumer<E>) {
    let LaneOptions { pool, events_max, priority_max, producer, consumer } = options;
    // Each segment can be queued once, an emission may overdraw as much again, and the end comes last.
    let capacity = 2 * pool.segments + events_max + 1;
    let (ring_producer, ring_consumer) = ring(capacity, priority_max + 1);
    let waiter = Arc::new(Waiter::new(producer));
    let pool = Pool::with_waiter(pool, Arc::clone(&waiter));
    let producer = Producer::new(ring_producer, pool, consumer, events_max);
    (producer, Consumer::new(ring_consumer, waiter))
}

/// An in-band entry.
#[derive(Clone, Debug)]
pub enum Slot<E> {
    /// Records.
    Buffer(Buffer),
    /// An event between records.
    Event(E),
}

/// An entry that overtakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority<E> {
    /// What it is.
    pub event: E,
    /// Where it belongs: before the in-band entry at this position, behind all below.
    pub position: u64,
}

/// What the ring carries.
enum Entry<E> {
    Slot(Slot<E>),
    End(E),
}
