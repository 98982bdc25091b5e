//! Copy-on-write by chunk: what a running snapshot still needs is put aside before it is overwritten.
//!
//! A table's epoch counts its snapshots. A chunk's lock word holds an epoch too: the last snapshot that needs nothing
//! more of the chunk's live memory. The worker writes to a chunk only if the chunk's epoch is the table's, else it
//! first puts a copy aside ([`Chunk::put_aside`]). The thread that writes snapshot `k` takes that copy, or the live
//! memory under the lock, and may then raise the chunk's epoch to `k` ([`Chunk::copy_out`]). Either waits at most while the
//! other copies one chunk.
//!
//! Invariants. `aside` is touched by the holder of the lock only; its newest copy comes first. A copy serves the snapshots
//! after the epoch that the chunk had, up to the table's. Called by `segment` (snapshots) and `places` (the worker).
#![expect(
    unsafe_code,
    reason = "a chunk's memory is read by a snapshot's writer while its worker goes on"
)]

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use crossbeam::queue::SegQueue;
#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering::*};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering::*};

/// A part of a segment, with what was put aside of it.
pub(super) struct Chunk<T> {
    lock: ChunkLock,
    aside: UnsafeCell<Option<Box<Aside<T>>>>,
    /// Stands for the live memory, whose use loom can't see.
    #[cfg(loom)]
    live: UnsafeCell<()>,
}

// SAFETY: `aside` is touched under the lock only.
unsafe impl<T: Send> Sync for Chunk<T> {}

/// A chunk's content put aside: what snapshots `after + 1` to `upto` see.
pub(super) struct Aside<T> {
    after: u32,
    upto: u32,
    next: Option<Box<Self>>,
    items: Box<[MaybeUninit<T>]>,
}

/// Copies that nobody needs any more, to be used again.
pub(super) type Spare<T> = Arc<SegQueue<Box<Aside<T>>>>;

/// So many are kept at most: 64 MiB, what a checkpoint of a table of that size may need.
const SPARE_COUNT_MAX: usize = 16_384;

impl<T: Copy> Chunk<T> {
    /// A chunk that snapshot `epoch` and those before it don't need.
    pub(super) fn new(epoch: u32) -> Self {
        Self {
            lock: ChunkLock(AtomicU32::new(epoch)),
            aside: UnsafeCell::new(None),
            #[cfg(loom)]
            live: UnsafeCell::new(()),
        }
    }

    /// Whether the worker may write to the chunk while its table's epoch is `epoch`.
    pub(super) fn is_saved(&self, epoch: u32) -> bool {
        self.lock.is_saved(epoch)
    }

    /// Makes the chunk one that the worker may write to. Returns whether it had to copy.
    ///
    /// # Safety
    /// `live` points to the chunk's `n` items, which only the caller writes.
    pub(super) unsafe fn put_aside(
        &self,
        live: NonNull<T>,
        n: usize,
        epoch: u32,
        spare: &Spare<T>,
    ) -> bool {
        let since = self.lock.lock();
        let is_needed = since != epoch;
        if is_needed {
            let mut copy = spare.pop().unwrap_or_else(|| Aside::new(n));
            // SAFETY: the caller says that `n` items are there, and nobody else writes them.
            unsafe { copy.fill(live, n) };
            self.aside.with_mut(|aside| {
                // SAFETY: we hold the chunk's lock.
                let aside = unsafe { &mut *aside };
                (copy.after, copy.upto, copy.next) = (since, epoch, aside.take());
                *aside = Some(copy);
            });
        }
        self.lock.unlock(epoch);
        is_needed
    }

    /// Copies the chunk as snapshot `epoch` sees it. `is_oldest`: no older snapshot runs, so the worker need not keep the
    /// chunk for this one any more.
    ///
    /// # Safety
    /// `live` points to the chunk's `n` items, and who writes them puts them aside first.
    pub(super) unsafe fn copy_out(
        &self,
        live: NonNull<T>,
        n: usize,
        epoch: u32,
        is_oldest: bool,
        room: &mut Aside<T>,
        spare: &Spare<T>,
    ) {
        let since = self.lock.lock();
        let unneeded = self.aside.with_mut(|aside| {
            // SAFETY: we hold the chunk's lock.
            let aside = unsafe { &mut *aside };
            let mut link = &*aside;
            while link.as_ref().is_some_and(|copy| epoch <= copy.after || copy.upto < epoch) {
                link = &link.as_ref().expect("it was just seen").next;
            }
            if let Some(copy) = link {
                room.items[..n].copy_from_slice(&copy.items[..n]);
            } else {
                #[cfg(loom)]
                self.live.with(|_| ());
                // SAFETY: the lock keeps the worker from writing the items that the caller says are there.
                unsafe { room.fill(live, n) };
            }
            // The newest comes first, so what is behind one that nobody needs isn't needed either.
            let mut link = aside;
            while link.as_ref().is_some_and(|copy| copy.upto > epoch) {
                link = &mut link.as_mut().expect("it was just seen").next;
            }
            if is_oldest { link.take() } else { None }
        });
        self.lock.unlock(if is_oldest { since.max(epoch) } else { since });
        if let Some(mut copy) = unneeded
            && spare.len() < SPARE_COUNT_MAX
        {
            copy.next = None;
            spare.push(copy);
        }
    }
}

impl<T: Copy> Aside<T> {
    /// Room for `n` items.
    pub(super) fn new(n: usize) -> Box<Self> {
        Box::new(Self {
            after: 0,
            upto: 0,
            next: None,
            items: vec![MaybeUninit::uninit(); n].into(),
        })
    }

    /// The items that were copied here.
    pub(super) fn items(&self) -> &[MaybeUninit<T>] {
        &self.items
    }

    /// # Safety
    /// `from` points to `n` items.
    unsafe fn fill(&mut self, from: NonNull<T>, n: usize) {
        let to = NonNull::from(&mut self.items[..n]).cast();
        // SAFETY: the caller says that `n` items are there; `to` was just seen to have room for them.
        unsafe { from.copy_to_nonoverlapping(to, n) };
    }
}

/// A chunk's lock word: the epoch, or that somebody copies the chunk right now.
struct ChunkLock(AtomicU32);

const LOCKED: u32 = u32::MAX;

impl ChunkLock {
    /// Whether the chunk may be written in `epoch`.
    #[inline(always)]
    fn is_saved(&self, epoch: u32) -> bool {
        // Pairs with `unlock`: what its caller has read of the chunk was read before we write.
        self.0.load(Acquire) == epoch
    }

    /// Waits until nobody copies the chunk, at most for one copy, and returns its epoch.
    fn lock(&self) -> u32 {
        let mut spins = 0u32;
        loop {
            let seen = self.0.load(Relaxed);
            // Acquire pairs with `unlock`: we see the copy that its caller put aside.
            if seen != LOCKED && self.0.compare_exchange(seen, LOCKED, Acquire, Relaxed).is_ok() {
                return seen;
            }
            spins += 1;
            wait(spins);
        }
    }

    fn unlock(&self, epoch: u32) {
        // Pairs with `is_saved` and `lock`.
        self.0.store(epoch, Release);
    }
}

/// Spins as long as copying a chunk takes; then the holder is not running, and needs our core.
fn wait(spins: u32) {
    #[cfg(loom)]
    {
        let _ = spins;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if spins < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Fetches the line at `at`, whatever is there.
#[inline(always)]
pub(super) fn prefetch(at: *const i8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, whatever the address is.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// The standard cell with loom's interface.
#[cfg(not(loom))]
struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// A chunk of two numbers, with its worker's side of the protocol.
    struct Live {
        chunk: Chunk<u64>,
        memory: std::cell::UnsafeCell<[u64; 2]>,
        spare: Spare<u64>,
    }
    // SAFETY: the protocol that is tested here keeps two threads apart; loom's cell in the chunk checks that it does.
    unsafe impl Sync for Live {}
    // SAFETY: plain numbers.
    unsafe impl Send for Live {}

    impl Live {
        fn new() -> Arc<Self> {
            let memory = std::cell::UnsafeCell::new([1, 1]);
            Arc::new(Self { chunk: Chunk::new(0), memory, spare: Spare::default() })
        }

        fn at(&self) -> NonNull<u64> {
            NonNull::new(self.memory.get().cast()).expect("memory isn't at address 0")
        }

        fn write(&self, epoch: u32, value: u64) {
            if !self.chunk.is_saved(epoch) {
                // SAFETY: `memory` has two numbers that only this thread writes.
                unsafe { self.chunk.put_aside(self.at(), 2, epoch, &self.spare) };
            }
            self.chunk.live.with_mut(|_| {
                // SAFETY: the chunk may be written.
                unsafe { self.memory.get().write([value; 2]) };
            });
        }

        fn read(&self, epoch: u32, is_oldest: bool) -> [u64; 2] {
            let mut room = Aside::new(2);
            // SAFETY: `memory` has two numbers, and `write` puts them aside.
            unsafe {
                self.chunk.copy_out(self.at(), 2, epoch, is_oldest, &mut room, &self.spare);
            }
            // SAFETY: both were just copied.
            [0, 1].map(|index| unsafe { room.items[index].assume_init() })
        }
    }

    #[test]
    fn loom_a_snapshot_sees_the_chunk_as_it_was_at_its_trigger() {
        loom::model(|| {
            let live = Live::new();
            let writer = live.clone();
            let snapshot = thread::spawn(move || writer.read(1, true));
            live.write(1, 2);
            live.write(1, 3);
            assert_eq!(snapshot.join().expect("the other thread does not panic"), [1, 1]);
        });
    }

    #[test]
    fn loom_two_snapshots_at_once_each_see_their_own_moment() {
        for younger_first in [false, true] {
            loom::model(move || {
                let live = Live::new();
                live.write(1, 2);
                let writer = live.clone();
                let snapshots = thread::spawn(move || {
                    if younger_first {
                        let younger = writer.read(2, false);
                        (writer.read(1, true), younger)
                    } else {
                        (writer.read(1, true), writer.read(2, true))
                    }
                });
                live.write(2, 3);
                assert_eq!(
                    snapshots.join().expect("the other thread does not panic"),
                    ([1, 1], [2, 2])
                );
            });
        }
    }
}
