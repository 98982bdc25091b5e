//! Decides which request may start and when: queue, concurrency, minimum pause.
//!
//! Invariants: the queue is sorted (savepoints, then requests of users, then the interval's; by
//! time within each) and never longer than its limit; at most one periodic request waits, so empty
//! barriers can't pile up.

use std::time::Duration;

use super::request::Request;
use crate::clock::Timestamp;

/// What the decision depends on besides the queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Checkpoints between trigger and completion.
    pub pending: usize,
    /// Checkpoints being discarded.
    pub cleaning: usize,
    /// A request has been chosen and waits for its id.
    pub is_starting: bool,
    /// One of the pending ones is, or may become, unaligned.
    pub has_unaligned: bool,
    /// A task is kept from finishing by one of the pending ones.
    pub holds_permit: bool,
    /// When a checkpoint completed last.
    pub last_completion: Option<Timestamp>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Wait,
    /// Start this one.
    Start(Request),
    /// Drop this periodic one and try again at this time.
    TooSoon(Request, Timestamp),
}

/// The queue of requests.
#[derive(Clone, Debug, Hash)]
pub struct RequestDecider {
    max_concurrent: usize,
    min_pause: Duration,
    queue_max: usize,
    queue: Vec<Request>,
}

impl RequestDecider {
    /// An empty queue of at most `queue_max` requests.
    pub fn new(max_concurrent: usize, min_pause: Duration, queue_max: usize) -> Self {
        Self { max_concurrent, min_pause, queue_max, queue: Vec::new() }
    }

    /// Queues `request`. If the queue overflows, the one that had to go: it fails for too many
    /// requests.
    pub fn submit(&mut self, request: Request) -> Option<Request> {
        let mut dropped = None;
        if self.queue.len() >= self.queue_max {
            match self.queue.pop() {
                Some(last) if last.is_periodic() || (request.is_forced() && !last.is_forced()) => {
                    dropped = Some(last);
                }
                Some(last) => {
                    self.queue.push(last);
                    return Some(request);
                }
                None => return Some(request),
            }
        }
        let place = self.queue.partition_point(|queued| queued.rank() <= request.rank());
        self.queue.insert(place, request);
        dropped
    }

    /// Takes the next request off the queue, if it may start or has to be dropped.
    pub fn next(&mut self, now: Timestamp, load: Load) -> Decision {
        let Some(&head) = self.queue.first() else { return Decision::Wait };
        if load.is_starting || load.cleaning > self.max_concurrent {
            return Decision::Wait;
        }
        if load.pending >= self.max_concurrent && (!head.is_forced() || load.has_unaligned) {
            return Decision::Wait;
        }
        // Else a task that is slow to acknowledge would owe some checkpoint for ever.
        if load.holds_permit && head.is_periodic() {
            return Decision::Wait;
        }
        self.queue.remove(0);
        match load.last_completion.map(|last| last.saturating_add(self.min_pause)) {
            Some(earliest) if head.is_periodic() && earliest > now => {
                Decision::TooSoon(head, earliest)
            }
            Some(_) | None => Decision::Start(head),
        }
    }

    /// A periodic request waits.
    pub fn has_periodic(&self) -> bool {
        self.queue.last().is_some_and(|last| last.is_periodic())
    }

    /// Requests that wait, first to start first.
    pub fn queued(&self) -> &[Request] {
        &self.queue
    }

    /// Empties the queue.
    pub fn drain(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.queue)
    }
}
