//! The reading end of a lane.
//!
//! Invariants: no in-band entry is handed out while a priority entry that was pushed before it is visible and not
//! handed out; after the end there is nothing. One thread takes entries and looks at those overtaken: to let another
//! one read a buffer, clone it.
//!
//! Called by the consuming task's gate, and by the network for a lane whose consumer is remote.

use super::{Entry, Priority, Slot};
use crate::{
    parker::Waiter,
    ring::RingConsumer,
    sync::{Arc, Site, is_weakened},
};
use std::{fmt, ops::Range};

/// What the lane has next.
#[derive(Debug)]
pub enum Next<E> {
    /// An entry that overtakes.
    Priority(Priority<E>),
    /// An in-band entry.
    Slot {
        /// Its position.
        position: u64,
        /// The entry.
        slot: Slot<E>,
    },
    /// The last in-band entry.
    End {
        /// Its position.
        position: u64,
        /// The event that says so.
        event: E,
    },
    /// Nothing at the moment, or nothing any more.
    Empty,
}

/// The reading end of a lane.
pub struct Consumer<E> {
    ring: RingConsumer<Entry<E>, Priority<E>>,
    producer: Arc<Waiter>,
}

impl<E: Copy + Send> Consumer<E> {
    pub(super) const fn new(
        ring: RingConsumer<Entry<E>, Priority<E>>,
        producer: Arc<Waiter>,
    ) -> Self {
        Self { ring, producer }
    }

    /// Takes the next priority entry. Always in order: it touches no in-band entry.
    #[inline]
    pub fn poll_priority(&mut self) -> Option<Priority<E>> {
        self.ring.refresh_priority_tail();
        let entry = self.ring.pop_priority()?;
        // A priority entry may wait in the producer for this very slot.
        self.producer.notify();
        Some(entry)
    }

    /// Looks for new entries if all seen were taken, and takes the next, priority entries before all others.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an empty lane is not at its end")]
    pub fn next(&mut self) -> Next<E> {
        self.ring.refresh();
        self.next_seen()
    }

    /// Takes the next entry of those that were seen when somebody last looked, as [`Consumer::refresh_tail`] does.
    ///
    /// For a consumer that does something with every entry before it may be taken, say refers to it for a checkpoint: what
    /// comes between that and the taking stays in the lane.
    #[inline]
    pub fn next_seen(&mut self) -> Next<E> {
        if is_weakened(Site::TakenWereSeen) {
            self.ring.refresh();
        }
        if let Some(entry) = self.ring.pop_priority() {
            self.producer.notify();
            return Next::Priority(entry);
        }
        let position = self.ring.head();
        match self.ring.pop() {
            // The producer hears of it when the buffer is released.
            Some(Entry::Slot(slot @ Slot::Buffer(_))) => Next::Slot { position, slot },
            Some(Entry::Slot(slot @ Slot::Event(_))) => {
                self.producer.notify();
                Next::Slot { position, slot }
            }
            Some(Entry::End(event)) => Next::End { position, event },
            None => Next::Empty,
        }
    }

    /// Lends the in-band entries at [`Consumer::head`]`..position` in place, oldest first, without taking them.
    ///
    /// For the position of a priority entry these are all it has overtaken. The end is not lent.
    pub fn peek_until(&mut self, position: u64, mut f: impl FnMut(u64, &Slot<E>)) {
        self.ring.peek(position, |position, entry| match entry {
            Entry::Slot(slot) => f(position, slot),
            Entry::End(_) => {}
        });
    }

    /// Hands out references to the in-band entries at these positions, as far as they are published and not taken, oldest first.
    ///
    /// No buffer is touched for it, only the lane. The end is left out.
    pub fn share(&mut self, positions: Range<u64>, mut f: impl FnMut(u64, Slot<E>))
    where
        E: Copy,
    {
        self.ring.peek_mut(positions, |position, entry| match entry {
            Entry::Slot(Slot::Buffer(buffer)) => f(position, Slot::Buffer(buffer.share())),
            Entry::Slot(Slot::Event(event)) => f(position, Slot::Event(*event)),
            Entry::End(_) => {}
        });
    }

    /// The position of the next in-band entry to be taken.
    #[inline]
    pub const fn head(&self) -> u64 {
        self.ring.head()
    }

    /// The position up to which in-band entries have been seen.
    #[inline]
    pub const fn loaded_tail(&self) -> u64 {
        self.ring.tail_seen()
    }

    /// Looks for new entries and returns the position up to which in-band ones are published.
    pub fn refresh_tail(&mut self) -> u64 {
        self.ring.refresh_tails();
        self.ring.tail_seen()
    }

    /// In-band entries that wait, as far as they are published now.
    pub fn backlog(&mut self) -> u64 {
        self.refresh_tail() - self.head()
    }

    /// True if the producer is gone. What it pushed can still be taken; without an end among it, it failed.
    pub fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }
}

impl<E> Drop for Consumer<E> {
    fn drop(&mut self) {
        self.ring.close();
        // Whatever the producer waits for, it must learn that nobody reads any more.
        self.producer.waker().wake();
    }
}

impl<E> fmt::Debug for Consumer<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("ring", &self.ring).finish_non_exhaustive()
    }
}
