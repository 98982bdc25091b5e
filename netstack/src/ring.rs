//! A single-producer single-consumer ring with a second, short ring beside it for what overtakes.
//!
//! Invariants: slots in `head..tail` hold values, all others don't; the same for the priority side. Only the
//! producer moves the tails, only the consumer moves the heads, and each remembers what it last saw of the other's, so
//! that the common case touches no foreign cache line. The two tails share one line and the two heads another.
//! Positions count from 0 and never wrap. A full ring is an answer, not a wait: nothing here spins.
//!
//! The consumer loads `tail` *before* the priority tail. The producer publishes a priority entry before any data
//! pushed after it, so whoever sees such data sees the entry too, and can serve it first.
//!
//! When the consumer goes it leaves its side to the producer, which drops what is queued and whatever it pushes
//! from then on. Called by `lane` only.
#![expect(unsafe_code, reason = "slots are moved in and out by position, checked by loom")]

use crate::sync::{
    Arc, AtomicBool, AtomicU64, Ordering::*, Site, UnsafeCell, is_model_failing, is_weakened, order,
};
use std::{fmt, mem::MaybeUninit, ops::Range};

/// Makes a ring for at least `capacity` values and `priority_capacity` priority values of a moment.
pub(crate) fn ring<T, P>(
    capacity: usize,
    priority_capacity: usize,
) -> (RingProducer<T, P>, RingConsumer<T, P>) {
    let shared = Arc::new(Shared {
        data: Slots::new(capacity),
        priority: Slots::new(priority_capacity),
        is_consumer_gone: AtomicBool::new(false),
        is_producer_gone: AtomicBool::new(false),
        producer: ProducerLine { tail: AtomicU64::new(0), priority_tail: AtomicU64::new(0) },
        consumer: ConsumerLine { head: AtomicU64::new(0), priority_head: AtomicU64::new(0) },
    });
    let producer = RingProducer {
        shared: Arc::clone(&shared),
        tail: 0,
        head_seen: 0,
        priority_tail: 0,
        priority_head_seen: 0,
    };
    let consumer = RingConsumer {
        shared,
        head: 0,
        tail_seen: 0,
        priority_head: 0,
        priority_tail_seen: 0,
        has_left: false,
    };
    (producer, consumer)
}

struct Shared<T, P> {
    data: Slots<T>,
    priority: Slots<P>,
    /// The two flags change once, so they share a line with what never changes.
    is_consumer_gone: AtomicBool,
    is_producer_gone: AtomicBool,
    producer: ProducerLine,
    consumer: ConsumerLine,
}

/// Written by the producer only. 128 bytes, because processors fetch lines in pairs.
#[repr(align(128))]
struct ProducerLine {
    tail: AtomicU64,
    priority_tail: AtomicU64,
}

/// Written by the consumer only, and by the producer once the consumer is gone.
#[repr(align(128))]
struct ConsumerLine {
    head: AtomicU64,
    priority_head: AtomicU64,
}

impl<T, P> Drop for Shared<T, P> {
    fn drop(&mut self) {
        if is_model_failing() {
            return;
        }
        // Relaxed: both ends are gone, and the last `Arc` has synchronised with both.
        self.data.drop_range(self.consumer.head.load(Relaxed), self.producer.tail.load(Relaxed));
        self.priority.drop_range(
            self.consumer.priority_head.load(Relaxed),
            self.producer.priority_tail.load(Relaxed),
        );
    }
}

/// The writing end.
pub(crate) struct RingProducer<T, P> {
    shared: Arc<Shared<T, P>>,
    /// What the shared tail says.
    tail: u64,
    /// At most the shared head.
    head_seen: u64,
    priority_tail: u64,
    priority_head_seen: u64,
}

impl<T, P> RingProducer<T, P> {
    /// Pushes behind everything, or gives the value back if the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> Result<(), T> {
        if self.is_closed() {
            self.take_over();
            self.tail += 1;
            self.shared.producer.tail.store(self.tail, Relaxed);
            self.take_over_heads();
            return Ok(());
        }
        if self.tail - self.head_seen == self.shared.data.capacity() {
            self.refresh_head();
            if self.tail - self.head_seen == self.shared.data.capacity() {
                return Err(value);
            }
        }
        // SAFETY: `head <= tail < head + capacity` and the tail is ours, so this slot holds no value.
        unsafe { self.shared.data.write(self.tail, value) };
        self.tail += 1;
        // Release pairs with the Acquire in `RingConsumer::refresh_tails`.
        self.shared.producer.tail.store(self.tail, order(Site::TailStore, Release));
        Ok(())
    }

    /// Pushes a value that overtakes everything queued, or gives it back if the priority side is full.
    pub(crate) fn push_priority(&mut self, value: P) -> Result<(), P> {
        if self.is_closed() {
            self.take_over();
            return Ok(());
        }
        if self.priority_tail - self.priority_head_seen == self.shared.priority.capacity() {
            // Acquire pairs with the Release in `pop_priority`: the slot was moved out.
            let acquire = order(Site::PriorityHeadLoad, Acquire);
            self.priority_head_seen = self.shared.consumer.priority_head.load(acquire);
            if self.priority_tail - self.priority_head_seen == self.shared.priority.capacity() {
                return Err(value);
            }
        }
        // SAFETY: the priority side is not full and its tail is ours, so this slot holds no value.
        unsafe { self.shared.priority.write(self.priority_tail, value) };
        self.priority_tail += 1;
        // Release pairs with the Acquire in `RingConsumer::refresh_priority_tail`.
        let release = order(Site::PriorityTailStore, Release);
        self.shared.producer.priority_tail.store(self.priority_tail, release);
        Ok(())
    }

    /// The position of the next value to be pushed.
    #[inline]
    pub(crate) const fn tail(&self) -> u64 {
        self.tail
    }

    /// The position up to which the consumer has taken values, as last seen.
    pub(crate) const fn head_seen(&self) -> u64 {
        self.head_seen
    }

    /// Looks again how far the consumer is.
    pub(crate) fn refresh_head(&mut self) {
        // Acquire pairs with the Release in `RingConsumer::pop`: the slots below were moved out.
        self.head_seen = self.shared.consumer.head.load(order(Site::HeadLoad, Acquire));
    }

    /// True if the consumer is gone.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Acquire pairs with the Release in `RingConsumer::close`: its side is ours from here on.
        self.shared.is_consumer_gone.load(order(Site::ConsumerGoneLoad, Acquire))
    }

    /// Lets the consumer know that nothing more will come.
    pub(crate) fn close(&self) {
        // Release pairs with the Acquire in `RingConsumer::is_closed`: everything pushed is visible.
        self.shared.is_producer_gone.store(true, order(Site::ProducerGoneStore, Release));
    }

    /// Drops everything queued, if the consumer is gone.
    #[cold]
    pub(crate) fn take_over(&mut self) {
        if self.is_closed() {
            let heads = &self.shared.consumer;
            self.shared.data.drop_range(heads.head.load(Relaxed), self.tail);
            self.shared.priority.drop_range(heads.priority_head.load(Relaxed), self.priority_tail);
            self.take_over_heads();
        }
    }

    fn take_over_heads(&mut self) {
        self.head_seen = self.tail;
        self.priority_head_seen = self.priority_tail;
        self.shared.consumer.head.store(self.head_seen, Relaxed);
        self.shared.consumer.priority_head.store(self.priority_head_seen, Relaxed);
    }
}

impl<T, P> Drop for RingProducer<T, P> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T, P> fmt::Debug for RingProducer<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingProducer").field("tail", &self.tail).finish_non_exhaustive()
    }
}

/// The reading end.
pub(crate) struct RingConsumer<T, P> {
    shared: Arc<Shared<T, P>>,
    /// What the shared head says.
    head: u64,
    /// At most the shared tail.
    tail_seen: u64,
    priority_head: u64,
    /// At most the shared priority tail; loaded after `tail_seen` was.
    priority_tail_seen: u64,
    has_left: bool,
}

impl<T, P> RingConsumer<T, P> {
    /// Takes the next value among those seen by the last refresh.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.head == self.tail_seen {
            return None;
        }
        // SAFETY: `head < tail` and the head is ours, so this slot holds a value, which we move out once.
        let value = unsafe { self.shared.data.read(self.head) };
        self.head += 1;
        // Release pairs with the Acquire in `RingProducer::refresh_head`.
        self.shared.consumer.head.store(self.head, order(Site::HeadStore, Release));
        Some(value)
    }

    /// Takes the next priority value among those seen by the last refresh.
    #[inline]
    pub(crate) fn pop_priority(&mut self) -> Option<P> {
        if self.priority_head == self.priority_tail_seen {
            return None;
        }
        // SAFETY: `priority_head < priority_tail` and the head is ours, so this slot holds a value.
        let value = unsafe { self.shared.priority.read(self.priority_head) };
        self.priority_head += 1;
        // Release pairs with the Acquire in `RingProducer::push_priority`.
        let release = order(Site::PriorityHeadStore, Release);
        self.shared.consumer.priority_head.store(self.priority_head, release);
        Some(value)
    }

    /// Looks for new values if none are left of those seen, and for priority values in any case.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        if self.head == self.tail_seen {
            self.refresh_tails();
        } else {
            // `tail_seen` was loaded earlier, so this load comes after it.
            self.refresh_priority_tail();
        }
    }

    /// Looks for new values and priority values.
    #[inline]
    pub(crate) fn refresh_tails(&mut self) {
        if is_weakened(Site::TailBeforePriorityTail) {
            self.refresh_priority_tail();
        }
        // Acquire pairs with the Release in `RingProducer::push`.
        self.tail_seen = self.shared.producer.tail.load(order(Site::TailLoad, Acquire));
        // Second, so that no value is seen without the priority values that were pushed before it.
        if !is_weakened(Site::TailBeforePriorityTail) {
            self.refresh_priority_tail();
        }
    }

    /// Looks for priority values only.
    #[inline]
    pub(crate) fn refresh_priority_tail(&mut self) {
        // Acquire pairs with the Release in `RingProducer::push_priority`.
        let acquire = order(Site::PriorityTailLoad, Acquire);
        self.priority_tail_seen = self.shared.producer.priority_tail.load(acquire);
    }

    /// Lends the values at `head..end` in place, as far as they were pushed.
    pub(crate) fn peek(&mut self, end: u64, mut f: impl FnMut(u64, &T)) {
        if end > self.tail_seen {
            self.refresh_tails();
        }
        for position in self.head..end.min(self.tail_seen) {
            // SAFETY: `head <= position < tail`, so the slot holds a value; only we move it out, and not while we lend it.
            unsafe { self.shared.data.peek(position, |value| f(position, value)) };
        }
    }

    /// Lends the values at these positions in place, to be changed, as far as they were pushed and not taken.
    pub(crate) fn peek_mut(&mut self, positions: Range<u64>, mut f: impl FnMut(u64, &mut T)) {
        if positions.end > self.tail_seen {
            self.refresh_tails();
        }
        let positions = positions.start.max(self.head)..positions.end.min(self.tail_seen);
        for position in positions.clone() {
            fetch_to_write(self.shared.data.cell(position));
        }
        for position in positions {
            // SAFETY: `head <= position < tail`, so the slot holds a value; it is ours, and we don't move it out while we lend it.
            unsafe { self.shared.data.peek_mut(position, |value| f(position, value)) };
        }
    }

    /// The position of the next value to be taken.
    #[inline]
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// The position up to which values have been seen.
    #[inline]
    pub(crate) const fn tail_seen(&self) -> u64 {
        self.tail_seen
    }

    /// True if the producer is gone; what it pushed can still be taken.
    pub(crate) fn is_closed(&self) -> bool {
        // Acquire pairs with the Release in `RingProducer::close`.
        self.shared.is_producer_gone.load(order(Site::ProducerGoneLoad, Acquire))
    }

    /// Drops what is queued and leaves this side to the producer. Only dropping may follow.
    pub(crate) fn close(&mut self) {
        if self.has_left || is_model_failing() {
            return;
        }
        self.has_left = true;
        self.refresh_tails();
        while self.pop_priority().is_some() {}
        while self.pop().is_some() {}
        // Release pairs with the Acquire in `RingProducer::is_closed`.
        self.shared.is_consumer_gone.store(true, order(Site::ConsumerGoneStore, Release));
    }
}

impl<T, P> Drop for RingConsumer<T, P> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T, P> fmt::Debug for RingConsumer<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingConsumer").field("head", &self.head).finish_non_exhaustive()
    }
}

/// Has a place fetched as ours to write, without waiting: what another thread wrote lies in its processor's cache, and a fetch that is only
/// to read would have to be followed by one to write.
#[inline]
fn fetch_to_write<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    {
        let line = std::ptr::from_ref(place);
        // The intrinsic fetches to write on those processors only that the compiler was told to compile for; on one that
        // can't, this does nothing.
        // SAFETY: a prefetch has no effect but on caches, whatever the address.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    let _ = place;
}

/// Places for values, addressed by position; a power of two of them.
struct Slots<T> {
    cells: Box<[UnsafeCell<MaybeUninit<T>>]>,
    mask: u64,
}

// SAFETY: a value is touched by one end at a time, by the positions' protocol, and moves between threads.
unsafe impl<T: Send> Send for Slots<T> {}
// SAFETY: as above; no reference to a value is ever given to both ends.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T> Slots<T> {
    fn new(capacity: usize) -> Self {
        let capacity = capacity.next_power_of_two();
        let cells = (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
        Self { cells, mask: capacity as u64 - 1 }
    }

    #[inline]
    const fn capacity(&self) -> u64 {
        self.mask + 1
    }

    #[inline]
    fn cell(&self, position: u64) -> &UnsafeCell<MaybeUninit<T>> {
        &self.cells[(position & self.mask) as usize]
    }

    /// # Safety
    /// The slot holds no value, and no other thread touches it.
    #[inline]
    unsafe fn write(&self, position: u64, value: T) {
        self.cell(position).with_mut(|slot| {
            // SAFETY: the caller has the slot to itself.
            unsafe { slot.write(MaybeUninit::new(value)) }
        });
    }

    /// # Safety
    /// The slot holds a value, which is moved out and not touched again, and no other thread touches it.
    #[inline]
    unsafe fn read(&self, position: u64) -> T {
        // `with_mut` also where the bytes stay: a moved value must not be looked at, so loom shall object.
        self.cell(position).with_mut(|slot| {
            // SAFETY: the caller has the slot to itself.
            let value = unsafe { slot.read() };
            // SAFETY: the caller says that the slot held a value.
            unsafe { value.assume_init() }
        })
    }

    /// # Safety
    /// The slot holds a value, which nobody moves out meanwhile.
    unsafe fn peek(&self, position: u64, f: impl FnOnce(&T)) {
        self.cell(position).with(|slot| {
            // SAFETY: nobody writes the slot meanwhile.
            let value = unsafe { &*slot };
            // SAFETY: the caller says that the slot holds a value.
            f(unsafe { value.assume_init_ref() });
        });
    }

    /// # Safety
    /// The slot holds a value, and no other thread touches it.
    unsafe fn peek_mut(&self, position: u64, f: impl FnOnce(&mut T)) {
        self.cell(position).with_mut(|slot| {
            // SAFETY: the caller has the slot to itself.
            let value = unsafe { &mut *slot };
            // SAFETY: the caller says that the slot holds a value.
            f(unsafe { value.assume_init_mut() });
        });
    }

    /// Drops the values at `start..end`, which no other end can reach.
    fn drop_range(&self, start: u64, end: u64) {
        for position in start..end {
            // SAFETY: the slots of this range hold values, and the other end is gone.
            drop(unsafe { self.read(position) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::{sync::Arc, thread};

    #[test]
    fn values_keep_their_order_round_and_round() {
        let (mut producer, mut consumer) = ring::<u64, ()>(4, 1);
        for start in 0..10 {
            for value in 0..3 {
                producer.push(start * 3 + value).unwrap();
            }
            consumer.refresh();
            for value in 0..3 {
                assert_eq!(consumer.pop(), Some(start * 3 + value));
            }
            assert_eq!(consumer.pop(), None);
        }
        assert_eq!((producer.tail(), consumer.head()), (30, 30));
    }

    #[test]
    fn a_full_ring_gives_the_value_back_until_one_is_taken() {
        let (mut producer, mut consumer) = ring::<u64, u64>(2, 1);
        assert_eq!(producer.push(1), Ok(()));
        assert_eq!(producer.push(2), Ok(()));
        assert_eq!(producer.push(3), Err(3));
        assert_eq!(producer.push_priority(4), Ok(()));
        assert_eq!(producer.push_priority(5), Err(5));
        consumer.refresh();
        assert_eq!((consumer.pop(), consumer.pop_priority()), (Some(1), Some(4)));
        assert_eq!(producer.push(3), Ok(()));
        assert_eq!(producer.push_priority(5), Ok(()));
    }

    #[test]
    fn peeking_takes_nothing() {
        let (mut producer, mut consumer) = ring::<u64, ()>(4, 1);
        for value in 0..6 {
            if value >= 2 {
                consumer.refresh();
                assert_eq!(consumer.pop(), Some(value - 2));
            }
            producer.push(value).unwrap();
        }
        let mut seen = Vec::new();
        consumer.peek(u64::MAX, |position, value| seen.push((position, *value)));
        assert_eq!(seen, [(4, 4), (5, 5)]);
        consumer.peek(4, |_, _| unreachable!("it is taken already"));
        assert_eq!(consumer.pop(), Some(4));
    }

    #[test]
    fn either_end_may_go_with_values_queued() {
        let value = Arc::new(());
        for consumer_goes_first in [true, false] {
            let (mut producer, mut consumer) = ring::<Arc<()>, Arc<()>>(4, 4);
            for _ in 0..3 {
                producer.push(Arc::clone(&value)).unwrap();
                producer.push_priority(Arc::clone(&value)).unwrap();
            }
            consumer.refresh();
            drop(consumer.pop());
            assert_eq!(Arc::strong_count(&value), 6);
            if consumer_goes_first {
                drop(consumer);
                assert_eq!(Arc::strong_count(&value), 1);
                assert!(producer.is_closed());
                for _ in 0..10 {
                    producer.push(Arc::clone(&value)).unwrap();
                    producer.push_priority(Arc::clone(&value)).unwrap();
                }
                assert_eq!((producer.tail(), Arc::strong_count(&value)), (13, 1));
            } else {
                drop(producer);
                assert!(consumer.is_closed());
                assert!(consumer.pop().is_some());
            }
        }
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn two_threads_hand_over_everything_in_order() {
        const VALUES: u64 = 100_000;
        let (mut producer, mut consumer) = ring::<u64, ()>(8, 1);
        let pushing = thread::spawn(move || {
            for value in 0..VALUES {
                while producer.push(value).is_err() {
                    thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < VALUES {
            consumer.refresh();
            match consumer.pop() {
                Some(value) => {
                    assert_eq!(value, expected);
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        pushing.join().unwrap();
    }
}
