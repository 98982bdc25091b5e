//! A segment: an open-addressed array of entries, cut into chunks for snapshots. Zeroed memory is empty.
//!
//! Invariants. Once it is in a directory, only that directory's worker writes it, and puts aside what a snapshot needs;
//! everybody else reads it by [`Segment::save`]. Taken out of its directory it is never written again. `written` and `saved`
//! hold epochs of the table. Made by `grow`, written by `places`, read by `snapshot`.
#![expect(
    unsafe_code,
    reason = "entries lie in raw zeroed memory that a snapshot's writer reads meanwhile"
)]

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*};

use super::arena::Arena;
use super::chunk::{Aside, Chunk, Spare, prefetch};
use super::pool::{Block, Pool};

/// Bytes that a chunk has at most, unless one entry is larger. (512 B to 1 KiB had a better p99 while a snapshot runs,
/// 4 KiB the better throughput and snapshot time.)
const CHUNK_BYTES: usize = 4096;
/// A line of the cache, at whose multiples segments begin.
const LINE_BYTES: usize = 64;

/// One key with its value. Key and value are there if `tag` isn't 0.
#[repr(C)]
pub(super) struct Entry<S, V> {
    /// The high half of the hash with its lowest bit set; 0 is an empty slot.
    pub(super) tag: u32,
    /// The low half: the ideal slot follows from it.
    low: u32,
    pub(super) key: MaybeUninit<S>,
    pub(super) value: MaybeUninit<V>,
}

impl<S: Copy, V: Copy> Clone for Entry<S, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Copy, V: Copy> Copy for Entry<S, V> {}

impl<S: Copy, V: Copy> Entry<S, V> {
    pub(super) const BYTES: usize = size_of::<Self>();
    /// A chunk has `1 << CHUNK_SHIFT` slots.
    const CHUNK_SHIFT: u32 =
        if Self::BYTES >= CHUNK_BYTES { 0 } else { (CHUNK_BYTES / Self::BYTES).ilog2() };
    pub(super) const CHUNK_SLOTS: usize = 1 << Self::CHUNK_SHIFT;

    /// So many slots fill a cache line: 1 if none do.
    pub(super) const LINE_SLOTS: usize =
        if LINE_BYTES.is_multiple_of(Self::BYTES) { LINE_BYTES / Self::BYTES } else { 1 };

    /// Where a hash is looked for first, among `slots` slots: by multiplication and shift of its low half (the directory uses
    /// the top bits), and then at the beginning of the line, so that all of a line is looked at before the next one
    /// is needed, which nobody has prefetched.
    #[inline(always)]
    pub(super) fn ideal(hash: u64, slots: u32) -> usize {
        let slot = (((hash & 0xFFFF_FFFF) * u64::from(slots)) >> 32) as usize;
        slot & !(Self::LINE_SLOTS - 1)
    }

    /// An empty slot.
    pub(super) const EMPTY: Self =
        Self { tag: 0, low: 0, key: MaybeUninit::uninit(), value: MaybeUninit::uninit() };

    pub(super) fn new(hash: u64, key: S, value: V) -> Self {
        let (key, value) = (MaybeUninit::new(key), MaybeUninit::new(value));
        Self { tag: tag(hash), low: hash as u32, key, value }
    }

    /// Key and value, if the slot holds any.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<(&S, &V)> {
        if self.tag == 0 {
            return None;
        }
        // SAFETY: `tag` isn't 0, so the key was written with it.
        let key = unsafe { self.key.assume_init_ref() };
        // SAFETY: `tag` isn't 0, so the value was written with it.
        Some((key, unsafe { self.value.assume_init_ref() }))
    }

    /// The hash, but for bit 32, which is set.
    #[inline(always)]
    pub(super) fn hash(&self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.low)
    }
}

/// The part of a hash that an entry is recognised by.
#[inline(always)]
pub(super) fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

/// A table's segments, shared with its snapshots.
pub(super) type Segments<S, V> = Arc<Vec<Arc<Segment<S, V>>>>;

/// An array of entries with its chunks, and what a snapshot's writer needs to know of it.
pub(super) struct Segment<S, V> {
    /// The first slot.
    pub(super) at: NonNull<Entry<S, V>>,
    pub(super) slots: u32,
    chunks: Box<[Chunk<Entry<S, V>>]>,
    /// The bytes of long keys; only appended to.
    pub(super) keys: Arena,
    /// The bytes of values of varying size.
    pub(super) values: Arena,
    /// Never used twice in a table: what an incremental checkpoint knows the segment by.
    pub(super) id: u64,
    /// The least hash that belongs here.
    pub(super) first: u64,
    /// How many top bits of the hash choose the segment.
    pub(super) depth: u32,
    /// The last epoch in which it was written, and the one before that in which it was.
    written: [AtomicU32; 2],
    /// No snapshot up to this one needs it.
    saved: AtomicU32,
    /// Owns what `at` points to.
    block: Block,
}

// SAFETY: entries are plain `Copy` data of `Send` types; who may touch them when is the file's protocol.
unsafe impl<S: Send, V: Send> Send for Segment<S, V> {}
// SAFETY: as above; through a shared segment entries are read under a chunk's lock, and written by its directory only.
unsafe impl<S: Send + Sync, V: Send + Sync> Sync for Segment<S, V> {}

impl<S, V> fmt::Debug for Segment<S, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, first, depth, slots, .. } = self;
        write!(f, "Segment {{ id: {id}, first: {first:#x}, depth: {depth}, slots: {slots} }}")
    }
}

/// Where a snapshot's writer has one chunk.
pub(super) struct Room<S, V> {
    copy: Box<Aside<Entry<S, V>>>,
    /// The full slots of the copy, in order, in front; a chunk has less than 2^16.
    full: Box<[u16]>,
}

impl<S: Copy, V: Copy> Room<S, V> {
    /// Room for one chunk.
    pub(super) fn new() -> Self {
        let slots = Entry::<S, V>::CHUNK_SLOTS;
        Self { copy: Aside::new(slots), full: vec![0; slots].into() }
    }
}

impl<S: Copy + Send + Sync + 'static, V: Copy + Send + Sync + 'static> Segment<S, V> {
    /// An empty segment of at least `slots` slots, written in `epoch`.
    pub(super) fn new(pool: &Arc<Pool>, slots: usize, epoch: u32, id: u64) -> Self {
        assert!(align_of::<Entry<S, V>>() <= Block::ALIGN, "a value is aligned to a cache line");
        let slots = slots.next_multiple_of(Entry::<S, V>::CHUNK_SLOTS).max(2);
        let (block, is_dirty) = pool.take(slots * Entry::<S, V>::BYTES);
        let at = NonNull::new(block.at()).expect("memory isn't at address 0");
        if is_dirty {
            // SAFETY: the block is ours and has `bytes` bytes.
            unsafe { at.write_bytes(0, block.bytes()) };
        }
        let chunks =
            (0..slots.div_ceil(Entry::<S, V>::CHUNK_SLOTS)).map(|_| Chunk::new(epoch)).collect();
        Self {
            at: at.cast(),
            slots: u32::try_from(slots).expect("a segment has less than 2^32 slots"),
            chunks,
            keys: Arena::default(),
            values: Arena::default(),
            id,
            first: 0,
            depth: 0,
            written: [AtomicU32::new(epoch), AtomicU32::new(epoch)],
            saved: AtomicU32::new(epoch),
            block,
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.slots as usize
    }

    /// Gives a segment that nobody else knows its arenas' bytes.
    pub(super) fn set_arenas(&mut self, keys: Vec<u8>, values: Vec<u8>) {
        (self.keys, self.values) = (Arena::from_vec(keys), Arena::from_vec(values));
    }

    pub(super) fn bytes(&self) -> usize {
        self.block.bytes() + self.keys.bytes() + self.values.bytes()
    }

    pub(super) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// Adds an entry whose key isn't there, to a segment that nobody else knows.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry<S, V>) {
        let mut slot = Entry::<S, V>::ideal(entry.hash(), self.slots);
        let entries = self.entries_mut();
        while entries[slot].tag != 0 {
            slot = if slot + 1 == entries.len() { 0 } else { slot + 1 };
        }
        entries[slot] = entry;
    }

    /// All slots. For the directory's worker: nobody else may look at live slots without a lock.
    pub(super) fn entries(&self) -> &[Entry<S, V>] {
        // SAFETY: `at` has `slots` slots in zeroed or written memory, which the worker doesn't write while it looks.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.slots()) }
    }

    /// The slots of a segment that nobody else knows.
    fn entries_mut(&mut self) -> &mut [Entry<S, V>] {
        // SAFETY: `at` has `slots` slots in zeroed or written memory, and the segment is ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.slots()) }
    }

    /// Shows each entry of chunk `index` as snapshot `epoch` sees it. `is_oldest`: no older snapshot runs, so the worker
    /// need not keep the chunk for this one any more.
    pub(super) fn save<'r>(
        &self,
        index: usize,
        epoch: u32,
        is_oldest: bool,
        room: &'r mut Room<S, V>,
        spare: &Spare<Entry<S, V>>,
    ) -> impl Iterator<Item = &'r Entry<S, V>> + use<'r, S, V> {
        let (live, n) = self.chunk_slots(index);
        let Room { copy, full } = room;
        // SAFETY: the slots are the chunk's, and the directory puts them aside before it writes.
        unsafe { self.chunks[index].copy_out(live, n, epoch, is_oldest, copy, spare) };
        if index + 1 < self.chunk_count() {
            self.prefetch(index + 1);
        }
        let entry_at = |at: usize| {
            // SAFETY: `n` slots were just copied here, and every slot has a tag; an empty one's key and value aren't read.
            unsafe { copy.items()[at].assume_init_ref() }
        };
        // Counted instead of branched on: which slots are full is as good as random.
        let mut count = 0;
        for at in 0..n {
            full[count] = at as u16;
            count += usize::from(entry_at(at).tag != 0);
        }
        full[..count].iter().map(move |at| entry_at(usize::from(*at)))
    }

    /// Fetches chunk `index` while the one before it is written.
    fn prefetch(&self, index: usize) {
        let (live, n) = self.chunk_slots(index);
        let bytes = n * Entry::<S, V>::BYTES;
        for at in (0..bytes.min(CHUNK_BYTES)).step_by(LINE_BYTES) {
            prefetch(live.as_ptr().cast::<i8>().wrapping_add(at));
        }
    }

    /// Makes sure that the worker may write to a slot while its table's epoch is `epoch`. Returns how long it copied by `clock`,
    /// if it had to.
    ///
    /// # Safety
    /// The caller is the segment's directory.
    pub(super) unsafe fn protect(
        &self,
        slot: usize,
        epoch: u32,
        spare: &Spare<Entry<S, V>>,
        clock: fn() -> u64,
    ) -> Option<u64> {
        let index = slot >> Entry::<S, V>::CHUNK_SHIFT;
        let chunk = &self.chunks[index];
        if chunk.is_saved(epoch) {
            return None;
        }
        let began = clock();
        let (live, n) = self.chunk_slots(index);
        // SAFETY: the slots are the chunk's, and the caller is the only one who writes them.
        let has_copied = unsafe { chunk.put_aside(live, n, epoch, spare) };
        has_copied.then(|| clock() - began)
    }

    /// Empties all slots.
    ///
    /// # Safety
    /// The caller is the segment's directory, and no snapshot needs the segment.
    pub(super) unsafe fn clear(&self) {
        // SAFETY: the segment has that many slots, and zeroed memory is empty.
        unsafe { self.at.write_bytes(0, self.slots()) };
        // SAFETY: the same contract.
        unsafe { self.keys.clear() };
        // SAFETY: the same contract.
        unsafe { self.values.clear() };
    }

    /// Where chunk `index` begins, and how many slots it has.
    fn chunk_slots(&self, index: usize) -> (NonNull<Entry<S, V>>, usize) {
        let first = index << Entry::<S, V>::CHUNK_SHIFT;
        assert!(first < self.slots(), "the chunk is one of the segment's");
        // SAFETY: `first` was just seen to be one of the segment's slots.
        (unsafe { self.at.add(first) }, Entry::<S, V>::CHUNK_SLOTS.min(self.slots() - first))
    }

    /// Whether no snapshot up to `epoch` needs the segment.
    pub(super) fn is_saved(&self, epoch: u32) -> bool {
        // Pairs with `set_saved`: who saved the segment has read all of it.
        self.saved.load(Acquire) >= epoch
    }

    /// Tells the worker that no snapshot up to `epoch` needs the segment.
    pub(super) fn set_saved(&self, epoch: u32) {
        // Pairs with `is_saved`.
        self.saved.fetch_max(epoch, AcqRel);
    }

    /// The last epoch before snapshot `epoch` in which the segment was written; `None` if that is forgotten.
    pub(super) fn last_written(&self, epoch: u32) -> Option<u32> {
        // What was written before the snapshot is seen, since the snapshot was handed over; the rest is `>= epoch`.
        self.written.iter().map(|w| w.load(Relaxed)).find(|&w| w < epoch)
    }

    /// Notes that the worker writes in `epoch`.
    pub(super) fn note_written(&self, epoch: u32) {
        let last = self.written[0].load(Relaxed);
        if last != epoch {
            self.written[1].store(last, Relaxed);
            self.written[0].store(epoch, Relaxed);
        }
    }
}
