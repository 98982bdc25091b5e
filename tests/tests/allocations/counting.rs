//! An allocator that counts what each thread allocates, and how much of it the thread holds at once.

#![expect(unsafe_code, reason = "an allocator is unsafe by nature; this one only counts")]
#![allow(dead_code, reason = "each of the two suites that use it asks for its own half")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<u64> = const { Cell::new(0) };
    static PEAK: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counted.
pub(super) struct Counting;

/// How often this thread has allocated.
pub(super) fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// The most bytes that this thread has held at once since its peak was forgotten.
pub(super) fn peak() -> u64 {
    PEAK.with(Cell::get)
}

/// From here on the peak is what is held now.
pub(super) fn forget_peak() {
    PEAK.set(HELD.get());
}

fn count(taken: usize, given_back: usize) {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
    hold(taken, given_back);
}

/// What another thread allocated may be given back here.
fn hold(taken: usize, given_back: usize) {
    HELD.with(|held| {
        let now = (held.get() + taken as u64).saturating_sub(given_back as u64);
        held.set(now);
        PEAK.with(|peak| peak.set(peak.get().max(now)));
    });
}

// SAFETY: everything is done by the system's allocator; the counters have no destructor and allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        hold(0, layout.size());
        // SAFETY: as above, and what is given back came from there.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as in `dealloc`.
        unsafe { System.realloc(at, layout, size) }
    }
}
