//! Ref-counted memory of fixed size: what every record between two tasks is written into.
//!
//! A segment is a header, `capacity` payload bytes and `SPARE` bytes behind them:
//! ```text
//! | header, 128 bytes | payload: capacity bytes, 128-byte aligned | SPARE | to the next multiple of 128 |
//! ```
//! All bytes are initialised from the start: slabs are mapped or allocated zeroed, and nobody can write anything
//! uninitialised without breaking the contract of the raw cursor. A `Segment` is the only handle to its memory
//! and may write; `Segment::seal` turns it into `SealedSegment`s, which only read. The last one to go gives the
//! segment back to its `Home` from whatever thread it is on: it pushes it onto an intrusive stack, and the owner
//! takes the whole stack with one swap, so that no element is compared after it was popped (no ABA). Each segment
//! carries one share of its home, so the slab outlives every handle.
//!
//! Called by `pool`, which owns a home, and by `buffer`, which wraps the two handles.
#![expect(unsafe_code, reason = "manual memory layout and reference counting, checked by loom")]

use crate::{
    parker::Waiter,
    sync::{Arc, AtomicPtr, AtomicUsize, Ordering::*, Site, UnsafeCell, acquire_release, order},
};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    fmt,
    mem::ManuallyDrop,
    ptr::{self, NonNull},
    slice,
};

/// Initialised bytes behind every payload: a codec may read and write this far past the end of a record.
pub const SPARE: usize = 16;

const ALIGN: usize = 128;
const HEADER_BYTES: usize = size_of::<Header>();
/// The weight of the first handle: it can be halved sixteen times.
const WHOLE: u32 = 1 << 16;
/// The end of a stack whose owner is gone. Not an address of a header, which are multiples of [`ALIGN`].
const CLOSED: *mut Header = ptr::without_provenance_mut(1);

#[repr(C, align(128))]
struct Header {
    /// The weights of all sealed handles, added up; meaningless while a [`Segment`] is.
    refs: AtomicUsize,
    /// The next one in the stack of returned segments.
    next: AtomicPtr<Self>,
    /// Written by the single [`Segment`], read by any number of [`SealedSegment`]s.
    number: UnsafeCell<u64>,
    /// This segment's share of its home; moved out when the segment ends.
    home: ManuallyDrop<Arc<Home>>,
    /// Payload bytes.
    capacity: usize,
    /// Allocated by itself and freed by the last handle, instead of going back.
    is_overdraft: bool,
}

/// Where segments go back to: the part of a pool that lives as long as any of its segments.
pub(crate) struct Home {
    /// Top of the stack of returned segments, or [`CLOSED`].
    returned: AtomicPtr<Header>,
    /// Payload bytes of all overdraft segments ever freed; wraps.
    overdraft_returned: AtomicUsize,
    waiter: Arc<Waiter>,
    /// Held only to be freed last.
    _slab: Slab,
}

impl Home {
    /// Makes a home with `count` segments of `capacity` bytes, all of them free.
    pub(crate) fn new(
        count: usize,
        capacity: usize,
        waiter: Arc<Waiter>,
    ) -> (Arc<Self>, Vec<Segment>) {
        assert!(count > 0, "a home has segments");
        let stride = segment_layout(capacity).expect("a segment fits into memory").size();
        let slab = Slab::new(stride.checked_mul(count).expect("a pool fits into memory"));
        let start = slab.start();
        let home = Arc::new(Self {
            returned: AtomicPtr::new(ptr::null_mut()),
            overdraft_returned: AtomicUsize::new(0),
            waiter,
            _slab: slab,
        });
        let segments = (0..count)
            .map(|index| {
                // SAFETY: `index < count`, so the result stays inside the slab of `count` strides.
                let memory = unsafe { start.add(index * stride) };
                // SAFETY: this stride of the fresh slab is aligned, zeroed, and used by nobody else.
                unsafe { Segment::init(memory, capacity, Arc::clone(&home), false) }
            })
            .collect();
        (home, segments)
    }

    /// Moves all segments that came back into `free`.
    pub(crate) fn take_returned(&self, free: &mut Vec<Segment>) {
        if !self.returned.load(Relaxed).is_null() {
            // Acquire pairs with the Release in `push_returned`: the last readers are done.
            let top = self.returned.swap(ptr::null_mut(), order(Site::ReturnedTake, Acquire));
            // SAFETY: the swap made us the only one to know this stack.
            unsafe { unstack(top, |segment| free.push(segment)) };
        }
    }

    /// Ends recycling: what came back is freed, and so is what comes back from then on. The owner's last call.
    pub(crate) fn close(&self) {
        // Acquire pairs with the Release in `push_returned`.
        let top = self.returned.swap(CLOSED, order(Site::ReturnedClose, Acquire));
        assert!(top != CLOSED, "an owner leaves once");
        // SAFETY: the swap made us the only one to know this stack.
        unsafe { unstack(top, drop) };
    }

    /// Payload bytes of all overdraft segments freed so far; wraps.
    pub(crate) fn overdraft_returned(&self) -> usize {
        self.overdraft_returned.load(Relaxed)
    }

    /// True if the segment was pushed; false if the owner is gone.
    ///
    /// The loop is lock-free: an attempt fails only because another thread's succeeded.
    ///
    /// # Safety
    /// `header` is a segment of this home without any handle.
    unsafe fn push_returned(&self, header: NonNull<Header>) -> bool {
        let mut top = self.returned.load(Relaxed);
        while top != CLOSED {
            // SAFETY: without any handle the header is ours until the exchange succeeds.
            let next = unsafe { &(*header.as_ptr()).next };
            next.store(top, Relaxed);
            // Release pairs with the Acquire in `take_returned`.
            let release = order(Site::ReturnedPush, Release);
            match self.returned.compare_exchange_weak(top, header.as_ptr(), release, Relaxed) {
                Ok(_) => return true,
                Err(changed) => top = changed,
            }
        }
        false
    }
}

/// Hands each segment of a stack to `f`.
///
/// # Safety
/// `top` is a stack of returned segments, known to the caller only.
unsafe fn unstack(mut top: *mut Header, mut f: impl FnMut(Segment)) {
    while let Some(header) = NonNull::new(top) {
        // SAFETY: a stacked segment is alive: it holds a share of its home.
        top = unsafe { (*header.as_ptr()).next.load(Relaxed) };
        f(Segment { header });
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").finish_non_exhaustive()
    }
}

// SAFETY: the pointers in it lead to headers, whose fields are shared through atomics or handed over.
unsafe impl Send for Home {}
// SAFETY: as above; the slab itself is not touched through `Home`.
unsafe impl Sync for Home {}

/// The only handle to a segment's memory. Dropping it gives the segment back.
pub(crate) struct Segment {
    header: NonNull<Header>,
}

// SAFETY: it is the only handle; its memory is touched by whoever owns it, and given back by any thread.
unsafe impl Send for Segment {}
// SAFETY: a shared `Segment` gives away nothing but addresses.
unsafe impl Sync for Segment {}

impl Segment {
    /// Allocates a segment that is freed, not recycled; `None` if there is no memory for it, or none has that much.
    pub(crate) fn overdraft(capacity: usize, home: &Arc<Home>) -> Option<Self> {
        u32::try_from(capacity).ok()?;
        let layout = segment_layout(capacity)?;
        // SAFETY: the layout holds at least a header, so its size is not zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: the fresh allocation has the layout of one segment, zeroed, and is used by nobody else.
        Some(unsafe { Self::init(memory, capacity, Arc::clone(home), true) })
    }

    /// # Safety
    /// `memory` has the layout of `segment_layout(capacity)`, is zeroed, and the caller's.
    unsafe fn init(
        memory: NonNull<u8>,
        capacity: usize,
        home: Arc<Home>,
        is_overdraft: bool,
    ) -> Self {
        let header = memory.cast::<Header>();
        let value = Header {
            refs: AtomicUsize::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            number: UnsafeCell::new(0),
            home: ManuallyDrop::new(home),
            capacity,
            is_overdraft,
        };
        // SAFETY: the caller gave memory for a header, aligned and its own.
        unsafe { header.write(value) };
        Self { header }
    }

    /// The first payload byte, 128-byte aligned; `capacity` + [`SPARE`] bytes from it on may be written.
    pub(crate) fn start(&self) -> NonNull<u8> {
        payload(self.header)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.header().capacity
    }

    /// All payload bytes.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `capacity` bytes are initialised, and `&mut self` is the only handle to them.
        unsafe { slice::from_raw_parts_mut(self.start().as_ptr(), self.capacity()) }
    }

    /// Ends writing: the first `len` bytes are what readers see.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    pub(crate) fn seal(self, len: usize, number: u64) -> SealedSegment {
        assert!(len <= self.capacity(), "a seal lies inside the segment");
        let header = ManuallyDrop::new(self).header;
        // SAFETY: the handle taken by value keeps the header alive.
        let fields = unsafe { header.as_ref() };
        fields.number.with_mut(|own| {
            // SAFETY: there is no other handle yet, so nobody reads.
            unsafe { own.write(number) }
        });
        fields.refs.store(WHOLE as usize, Relaxed);
        let len = u32::try_from(len).expect("a segment has less than 4 GiB");
        SealedSegment { header, len, weight: WHOLE }
    }

    fn header(&self) -> &Header {
        // SAFETY: a handle keeps its header alive, and nothing writes to it but through its cells.
        unsafe { self.header.as_ref() }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: this was the only handle.
        unsafe { give_back(self.header) }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("capacity", &self.capacity()).finish()
    }
}

/// One of the handles that read a sealed segment. Dropping the last one gives the segment back.
///
/// Handles have weights, whose sum is in the header. A handle can be parted into two without a look at the header, which lies in another
/// processor's cache as a rule (bench `overtake`).
pub(crate) struct SealedSegment {
    header: NonNull<Header>,
    /// Filled payload bytes, at most the capacity.
    len: u32,
    /// At least 1.
    weight: u32,
}

// SAFETY: sealed memory is only read, and the reference count is atomic.
unsafe impl Send for SealedSegment {}
// SAFETY: as above.
unsafe impl Sync for SealedSegment {}

impl SealedSegment {
    /// Another handle, to which this one gives half of its weight.
    #[inline]
    pub(crate) fn share(&mut self) -> Self {
        let half = self.weight / 2;
        if half == 0 {
            return self.clone();
        }
        self.weight -= half;
        Self { header: self.header, len: self.len, weight: half }
    }

    /// The filled bytes.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `len <= capacity` initialised bytes, which nobody writes while a sealed handle exists.
        unsafe { slice::from_raw_parts(payload(self.header).as_ptr(), self.len()) }
    }

    /// The filled bytes and the [`SPARE`] bytes behind them.
    #[inline]
    pub(crate) fn as_padded_slice(&self) -> &[u8] {
        let bytes = self.len() + SPARE;
        // SAFETY: `len <= capacity` and SPARE bytes follow the capacity; all are initialised and not written.
        unsafe { slice::from_raw_parts(payload(self.header).as_ptr(), bytes) }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.header().number.with(|number| {
            // SAFETY: it was written before the first sealed handle was made and is not written again before the last is gone.
            unsafe { number.read() }
        })
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: a handle keeps its header alive, and nothing writes to it but through its cells.
        unsafe { self.header.as_ref() }
    }
}

impl Clone for SealedSegment {
    fn clone(&self) -> Self {
        // Relaxed: the handle we clone from keeps the sum above zero. It can't overflow: so many handles don't fit into memory.
        self.header().refs.fetch_add(1, Relaxed);
        Self { header: self.header, len: self.len, weight: 1 }
    }
}

impl Drop for SealedSegment {
    #[inline]
    fn drop(&mut self) {
        // Release: our reads come before the reuse; Acquire: so do those of the handles that went before.
        let decrement = acquire_release(Site::RefsAcquire, Site::RefsRelease);
        let weight = self.weight as usize;
        if self.header().refs.fetch_sub(weight, decrement) == weight {
            // SAFETY: this was the last handle.
            unsafe { give_back(self.header) }
        }
    }
}

/// Ends the last handle: back to the home, or to the allocator.
///
/// # Safety
/// No handle to the segment exists.
unsafe fn give_back(header: NonNull<Header>) {
    // SAFETY: a segment without handle stays alive until it is pushed or freed below.
    let fields = unsafe { header.as_ref() };
    // Our own share: once the segment is pushed or freed, its share may be gone.
    let waiter = Arc::clone(&fields.home.waiter);
    if fields.is_overdraft {
        let capacity = fields.capacity;
        let layout = segment_layout(capacity).expect("it was allocated with this layout");
        // SAFETY: the share is read out once: the header is freed right below.
        let home = unsafe { ptr::read(&raw const fields.home) };
        // SAFETY: an overdraft segment was allocated with this layout, and its last handle is gone.
        unsafe { dealloc(header.cast().as_ptr(), layout) };
        home.overdraft_returned.fetch_add(capacity, Relaxed);
        drop(ManuallyDrop::into_inner(home));
    } else {
        let home: *const Home = &raw const **fields.home;
        // SAFETY: the segment's share keeps the home alive at least until the segment is in the stack.
        let home = unsafe { &*home };
        // SAFETY: no handle exists.
        let is_pushed = unsafe { home.push_returned(header) };
        if !is_pushed {
            // SAFETY: the owner is gone and we didn't push, so the header is ours and its share is read out once.
            let share = unsafe { ptr::read(&raw const fields.home) };
            drop(ManuallyDrop::into_inner(share));
        }
    }
    waiter.notify();
}

/// Where a writer stands in an open segment; dangling and without room if there is none.
///
/// It does arithmetic on an address and never touches memory, so a stale one is harmless by itself.
#[derive(Debug)]
pub(crate) struct WriteCursor {
    next: NonNull<u8>,
    /// Bytes left plus one; 0 if no segment is open. One comparison tells both.
    room: usize,
}

// SAFETY: it is an address; whoever writes there vouches for it.
unsafe impl Send for WriteCursor {}

impl WriteCursor {
    pub(crate) const fn closed() -> Self {
        Self { next: NonNull::dangling(), room: 0 }
    }

    pub(crate) fn open(segment: &Segment) -> Self {
        Self { next: segment.start(), room: segment.capacity() + 1 }
    }

    /// The place for `bytes` bytes, if an open segment has them left.
    #[inline(always)]
    pub(crate) fn reserve(&self, bytes: usize) -> Option<NonNull<u8>> {
        (bytes < self.room).then_some(self.next)
    }

    /// # Panics
    /// If an open segment doesn't have `bytes` bytes left.
    #[inline(always)]
    pub(crate) fn advance(&mut self, bytes: usize) {
        assert!(bytes < self.room, "a writer advances within what it reserved");
        self.room -= bytes;
        // SAFETY: at most the end of a live segment's payload is reached, which is not null.
        self.next = unsafe { NonNull::new_unchecked(self.next.as_ptr().wrapping_add(bytes)) };
    }

    /// Bytes left.
    #[inline(always)]
    pub(crate) const fn room(&self) -> usize {
        self.room.saturating_sub(1)
    }
}

fn payload(header: NonNull<Header>) -> NonNull<u8> {
    // SAFETY: the payload follows the header in the same allocation.
    unsafe { header.cast::<u8>().add(HEADER_BYTES) }
}

/// Size and alignment of one segment, if memory can hold it; the size is a multiple of the alignment.
fn segment_layout(capacity: usize) -> Option<Layout> {
    let bytes = capacity.checked_add(HEADER_BYTES + SPARE)?;
    Layout::from_size_align(bytes, ALIGN).ok().map(|layout| layout.pad_to_align())
}

/// From so many bytes on a mapping is worth its system calls.
#[cfg(not(any(loom, miri)))]
const MAPPED_BYTES_MIN: usize = 64 << 10;

/// The memory of all segments of a home: an anonymous mapping where there is one and it is worth it, else from the heap.
enum Slab {
    #[cfg(not(any(loom, miri)))]
    Mapped(memmap2::MmapMut),
    Heap {
        start: NonNull<u8>,
        layout: Layout,
    },
}

impl Slab {
    fn new(bytes: usize) -> Self {
        #[cfg(not(any(loom, miri)))]
        if bytes >= MAPPED_BYTES_MIN
            && let Some(mapping) = map(bytes)
        {
            return Self::Mapped(mapping);
        }
        let layout = Layout::from_size_align(bytes, ALIGN).expect("a pool fits into memory");
        // SAFETY: a pool has at least one segment, so the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self::Heap { start, layout }
    }

    fn start(&self) -> NonNull<u8> {
        match self {
            #[cfg(not(any(loom, miri)))]
            Self::Mapped(mapping) => {
                NonNull::new(mapping.as_ptr().cast_mut()).expect("a mapping has an address")
            }
            Self::Heap { start, .. } => *start,
        }
    }
}

/// Maps zeroed memory and touches it, so that no page fault comes while a job runs.
#[cfg(not(any(loom, miri)))]
fn map(bytes: usize) -> Option<memmap2::MmapMut> {
    /// No page is smaller on the machines we run on.
    const PAGE_BYTES: usize = 4096;
    let mut mapping = memmap2::MmapMut::map_anon(bytes).ok()?;
    // Huge pages are a wish: it is in order that the kernel refuses.
    #[cfg(target_os = "linux")]
    let _ = mapping.advise(memmap2::Advice::HugePage);
    for page in mapping.chunks_mut(PAGE_BYTES) {
        page[0] = 0;
    }
    Some(mapping)
}

impl Drop for Slab {
    fn drop(&mut self) {
        match self {
            #[cfg(not(any(loom, miri)))]
            Self::Mapped(_) => {}
            // SAFETY: it was allocated with this layout, and every segment's share of the home is gone.
            Self::Heap { start, layout } => unsafe { dealloc(start.as_ptr(), *layout) },
        }
    }
}
