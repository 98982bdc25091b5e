//! A table's memory: entries in segments, reached through a directory, copied on write by chunk while a snapshot runs.
//!
//! A segment is an open-addressed array of entries; zeroed memory is empty. It is cut into chunks of about 4 KiB, each
//! with a lock word that holds an epoch: the last snapshot that needs nothing more of the chunk's live bytes. A table's
//! epoch counts its snapshots. The worker writes to a chunk only if the chunk's epoch is the table's, else it first
//! copies it aside ([`Directory::protect`]); the thread that writes snapshot `k` takes that copy, or the live bytes under
//! the lock, and may then raise the chunk's epoch to `k` ([`Segment::save`]).
//!
//! Invariants. A [`Directory`] is the only one who writes to the segments it holds, through `&mut self`; everybody else
//! only reads, chunk by chunk under the lock. A segment taken out of its directory is never written again. Each place of
//! the directory points into a segment that the directory holds. `Place::epoch` is the table's only if no running
//! snapshot needs the segment. Called by `table`, `segment`, `snapshot`.
#![expect(
    unsafe_code,
    reason = "entries lie in raw zeroed memory that a snapshot's writer reads meanwhile"
)]

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering::*};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering::*};

use crossbeam::queue::SegQueue;

use super::arena::Arena;
use super::pool::{Block, Pool};
use super::running::{Running, RunningGuard};

/// Bytes that a chunk has at most, unless one entry is larger. (512 B to 1 KiB had a better p99 while a snapshot runs,
/// 4 KiB the better throughput and snapshot time.)
const CHUNK_BYTES: usize = 4096;

/// One key with its value. Key and value are there if `tag` isn't 0.
#[repr(C)]
pub(super) struct Entry<S, V> {
    /// The high half of the hash with its lowest bit set; 0 is an empty slot.
    tag: u32,
    /// The low half: the ideal slot follows from it.
    low: u32,
    key: MaybeUninit<S>,
    value: MaybeUninit<V>,
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
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}

/// The ideal slot of a hash among `slots`: its low half by multiplication and shift; the directory uses the top bits.
#[inline(always)]
fn ideal(hash: u64, slots: u32) -> usize {
    ((hash & 0xFFFF_FFFF) * u64::from(slots) >> 32) as usize
}

/// A chunk's lock word: the epoch, or that somebody copies the chunk right now.
pub(super) struct ChunkLock(AtomicU32);

const LOCKED: u32 = u32::MAX;

impl ChunkLock {
    fn new(epoch: u32) -> Self {
        Self(AtomicU32::new(epoch))
    }

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

/// A chunk's content put aside: what snapshots `after + 1` to `upto` see.
pub(super) struct Aside<S, V> {
    after: u32,
    upto: u32,
    next: Option<Box<Self>>,
    entries: Box<[MaybeUninit<Entry<S, V>>]>,
}

/// Room for chunks put aside, to be used again.
pub(super) type Spare<S, V> = Arc<SegQueue<Box<Aside<S, V>>>>;

/// So much is kept at most: 4,096 chunks of 4 KiB.
const SPARE_COUNT_MAX: usize = 4096;

impl<S: Copy, V: Copy> Aside<S, V> {
    pub(super) fn new() -> Box<Self> {
        let entries = vec![MaybeUninit::uninit(); Entry::<S, V>::CHUNK_SLOTS].into();
        Box::new(Self { after: 0, upto: 0, next: None, entries })
    }

    /// The first `n` slots, after `Segment::save` has said that there are so many.
    fn slots(&self, n: usize) -> impl Iterator<Item = &Entry<S, V>> {
        self.entries[..n].iter().map(|entry| {
            // SAFETY: `save` copied `n` slots here, and every slot has a tag; an empty one's key and value aren't read.
            unsafe { entry.assume_init_ref() }
        })
    }
}

struct Chunk<S, V> {
    lock: ChunkLock,
    /// Touched by the holder of the lock only.
    aside: UnsafeCell<Option<Box<Aside<S, V>>>>,
}

/// An array of entries with its chunks, and what a snapshot's writer needs to know of it.
pub(super) struct Segment<S, V> {
    at: NonNull<Entry<S, V>>,
    slots: u32,
    chunks: Box<[Chunk<S, V>]>,
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
        let chunks = (0..slots.div_ceil(Entry::<S, V>::CHUNK_SLOTS))
            .map(|_| Chunk { lock: ChunkLock::new(epoch), aside: UnsafeCell::new(None) })
            .collect();
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
        let mut slot = ideal(entry.hash(), self.slots);
        let entries = self.entries_mut();
        while entries[slot].tag != 0 {
            slot = if slot + 1 == entries.len() { 0 } else { slot + 1 };
        }
        entries[slot] = entry;
    }

    /// All slots. For the directory's worker: nobody else may look at live slots without a lock.
    fn entries(&self) -> &[Entry<S, V>] {
        // SAFETY: `at` has `slots` slots in zeroed or written memory, which the worker doesn't write while it looks.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.slots()) }
    }

    /// The slots of a segment that nobody else knows.
    fn entries_mut(&mut self) -> &mut [Entry<S, V>] {
        // SAFETY: `at` has `slots` slots in zeroed or written memory, and the segment is ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.slots()) }
    }

    /// Shows each entry of chunk `index` as snapshot `epoch` sees it. `oldest`: no older snapshot runs, so the worker need
    /// not keep the chunk for this one any more.
    pub(super) fn save<'r>(
        &self,
        index: usize,
        epoch: u32,
        oldest: bool,
        room: &'r mut Aside<S, V>,
        spare: &Spare<S, V>,
    ) -> impl Iterator<Item = &'r Entry<S, V>> + use<'r, S, V> {
        let chunk = &self.chunks[index];
        let first = index << Entry::<S, V>::CHUNK_SHIFT;
        let n = self.chunk_slots(index);
        let since = chunk.lock.lock();
        // SAFETY: we hold the chunk's lock.
        let aside = unsafe { &mut *chunk.aside.get() };
        let mut found = false;
        let mut link = &mut *aside;
        while let Some(copy) = link {
            if copy.after < epoch && epoch <= copy.upto {
                // Whoever else needs this copy is younger and is told from it again.
                room.entries[..n].copy_from_slice(&copy.entries[..n]);
                found = true;
                break;
            }
            link = &mut copy.next;
        }
        if !found {
            // SAFETY: the chunk's slots lie in the segment, and the lock keeps the directory from writing them.
            let live = unsafe { self.at.add(first) };
            let to = NonNull::from(&mut room.entries[0]).cast();
            // SAFETY: as above; `room` has room for a chunk and is ours.
            unsafe { live.copy_to_nonoverlapping(to, n) };
        }
        let mut done = None;
        if oldest {
            // The newest comes first, so what is behind one that nobody needs isn't needed either.
            let mut link = &mut *aside;
            while link.as_ref().is_some_and(|copy| copy.upto > epoch) {
                link = &mut link.as_mut().expect("it was just seen").next;
            }
            done = link.take();
        }
        chunk.lock.unlock(if oldest { since.max(epoch) } else { since });
        if let Some(copy) = done
            && spare.len() < SPARE_COUNT_MAX
        {
            spare.push(copy);
        }
        room.slots(n).filter(|entry| entry.tag != 0)
    }

    fn chunk_slots(&self, index: usize) -> usize {
        let first = index << Entry::<S, V>::CHUNK_SHIFT;
        Entry::<S, V>::CHUNK_SLOTS.min(self.slots() - first)
    }

    /// Tells the worker that no snapshot up to `epoch` needs the segment.
    pub(super) fn set_saved(&self, epoch: u32) {
        // Pairs with `Directory::protect`.
        self.saved.fetch_max(epoch, AcqRel);
    }

    /// The last epoch before snapshot `epoch` in which the segment was written; `None` if that is forgotten.
    pub(super) fn last_written(&self, epoch: u32) -> Option<u32> {
        // What was written before the snapshot is seen, since the snapshot was handed over; the rest is `>= epoch`.
        self.written.iter().map(|w| w.load(Relaxed)).find(|&w| w < epoch)
    }

    fn note_written(&self, epoch: u32) {
        let last = self.written[0].load(Relaxed);
        if last != epoch {
            self.written[1].store(last, Relaxed);
            self.written[0].store(epoch, Relaxed);
        }
    }
}

/// Where the hashes of one directory slot go: all a look-up needs to know of the segment, in 16 bytes.
struct Place<S, V> {
    at: NonNull<Entry<S, V>>,
    slots: u32,
    /// If it is the table's epoch, all chunks may be written.
    epoch: u32,
}

impl<S, V> Clone for Place<S, V> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

/// Which segment each hash is in. One worker's.
pub(super) struct Directory<S, V> {
    /// `2^(64 - shift)` of them.
    places: Vec<Place<S, V>>,
    shift: u32,
    epoch: u32,
    /// The segment of each place.
    owners: Vec<u32>,
    /// How many entries each segment has.
    used: Vec<u32>,
    /// Bytes of each segment's arenas that no entry names.
    garbage: Vec<usize>,
    /// Shared with snapshots; copied when it changes while one has it.
    segments: Arc<Vec<Arc<Segment<S, V>>>>,
    running: Running,
    spare: Spare<S, V>,
    /// How many chunks were put aside so far.
    copied: u64,
    /// How many entries there are.
    len: usize,
    /// Bytes of memory of the segments.
    bytes: usize,
}

// SAFETY: the places point into the segments, which are `Send`.
unsafe impl<S: Send + Sync, V: Send + Sync> Send for Directory<S, V> {}
// SAFETY: through a shared directory entries are only read.
unsafe impl<S: Send + Sync, V: Send + Sync> Sync for Directory<S, V> {}

impl<S: Copy + Send + Sync + 'static, V: Copy + Send + Sync + 'static> Directory<S, V> {
    /// A directory of one segment.
    pub(super) fn new(segment: Segment<S, V>, epoch: u32) -> Self {
        let place = Place { at: segment.at, slots: segment.slots, epoch };
        let bytes = segment.bytes();
        Self {
            places: vec![place.clone(), place],
            shift: 63,
            epoch,
            owners: vec![0; 2],
            used: vec![0],
            garbage: vec![0],
            segments: Arc::new(vec![Arc::new(segment)]),
            running: Running::default(),
            spare: Spare::default(),
            copied: 0,
            len: 0,
            bytes,
        }
    }

    /// Loads the line where the search for a hash begins, for an entry a few records later.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        let place = self.place(hash);
        // SAFETY: the ideal slot is one of the segment's.
        let at = unsafe { place.at.as_ptr().add(ideal(hash, place.slots)) };
        prefetch(at.cast());
        if Entry::<S, V>::BYTES > 64 {
            prefetch(at.cast::<i8>().wrapping_add(64));
        }
    }

    /// The value of a key.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, same: impl Fn(&S, &Self) -> bool) -> Option<&V> {
        let (at, found) = self.probe(hash, same);
        if !found {
            return None;
        }
        // SAFETY: `probe` found an entry here, and nobody writes while we are borrowed.
        Some(unsafe { (*at).value.assume_init_ref() })
    }

    /// The value of a key, to be changed. If there is none, `add` adds it with `insert`.
    #[inline(always)]
    pub(super) fn entry(
        &mut self,
        hash: u64,
        same: impl Fn(&S, &Self) -> bool,
        add: impl FnOnce(&mut Self) -> Option<Added>,
    ) -> Option<&mut V> {
        let (mut at, found) = self.probe(hash, same);
        if !found {
            let added = add(self)?;
            let place = self.place(hash);
            // SAFETY: `insert` has just written this slot of the hash's segment.
            at = unsafe { place.at.as_ptr().add(added.0) };
        } else if self.place(hash).epoch != self.epoch {
            self.protect(hash, at);
        }
        // SAFETY: the slot holds an entry, and its chunk is protected: only we look at it while `self` is borrowed.
        Some(unsafe { (*at).value.assume_init_mut() })
    }

    /// Whether the segment of a hash has no room for one more.
    pub(super) fn is_full(&self, hash: u64) -> bool {
        let owner = self.owner(hash);
        u64::from(self.used[owner]) * 4 >= self.segments[owner].slots() as u64 * 3
    }

    /// Adds an entry whose key isn't there, to a segment that isn't full.
    pub(super) fn insert(&mut self, hash: u64, key: S, value: V) -> Added {
        assert!(!self.is_full(hash), "the table makes room first");
        let (at, found) = self.probe(hash, |_, _| false);
        assert!(!found, "nothing is the same as nothing");
        if self.place(hash).epoch != self.epoch {
            self.protect(hash, at);
        }
        // SAFETY: the slot is empty, and its chunk is protected.
        unsafe { at.write(Entry::new(hash, key, value)) };
        let owner = self.owner(hash);
        self.used[owner] += 1;
        self.len += 1;
        Added(self.slot_of(hash, at))
    }

    /// Takes an entry out, and moves those behind it up.
    pub(super) fn remove(&mut self, hash: u64, same: impl Fn(&S, &Self) -> bool) -> Option<V> {
        let (at, found) = self.probe(hash, same);
        if !found {
            return None;
        }
        let mut gap = self.slot_of(hash, at);
        let owner = self.owner(hash);
        let slots = self.segments[owner].slots();
        let entry = self.segments[owner].entries()[gap];
        self.used[owner] -= 1;
        self.len -= 1;
        let mut next = gap;
        loop {
            next = if next + 1 == slots { 0 } else { next + 1 };
            let candidate = self.segments[owner].entries()[next];
            if candidate.tag == 0 {
                break;
            }
            let ideal = ideal(candidate.hash(), slots as u32);
            // It may move to the gap unless its ideal slot lies behind the gap, on the way from there to here.
            let is_between = if gap <= next {
                gap < ideal && ideal <= next
            } else {
                gap < ideal || ideal <= next
            };
            if !is_between {
                self.write(hash, gap, candidate);
                gap = next;
            }
        }
        let empty =
            Entry { tag: 0, low: 0, key: MaybeUninit::uninit(), value: MaybeUninit::uninit() };
        self.write(hash, gap, empty);
        entry.get().map(|(_, value)| *value)
    }

    /// The segment of a hash.
    pub(super) fn segment(&self, hash: u64) -> &Arc<Segment<S, V>> {
        &self.segments[self.owner(hash)]
    }

    /// How many entries the segment of a hash has.
    pub(super) fn used(&self, hash: u64) -> usize {
        self.used[self.owner(hash)] as usize
    }

    pub(super) fn segments(&self) -> &Arc<Vec<Arc<Segment<S, V>>>> {
        &self.segments
    }

    /// All entries of a segment of this directory.
    pub(super) fn entries_of<'a>(
        &'a self,
        segment: &'a Segment<S, V>,
    ) -> impl Iterator<Item = &'a Entry<S, V>> {
        segment.entries().iter().filter(|entry| entry.tag != 0)
    }

    /// Lets `f` append at most `room` bytes to the keys of the hash's segment.
    pub(super) fn append_key<R>(
        &mut self,
        hash: u64,
        room: usize,
        f: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        let forget = !self.running.any();
        self.bytes += room;
        // SAFETY: the directory is the only writer of its segments, and is borrowed for writing.
        unsafe { self.segment(hash).keys.append(room, forget, f) }
    }

    /// Lets `f` append at most `room` bytes to the values of the hash's segment.
    pub(super) fn append_value<R>(
        &mut self,
        hash: u64,
        room: usize,
        f: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        let forget = !self.running.any();
        self.bytes += room;
        // SAFETY: the directory is the only writer of its segments, and is borrowed for writing.
        unsafe { self.segment(hash).values.append(room, forget, f) }
    }

    /// Overwrites a value's bytes in the hash's segment, unless a snapshot may still read them.
    pub(super) fn overwrite_value(&mut self, hash: u64, from: usize, bytes: &[u8]) -> bool {
        if self.place(hash).epoch != self.epoch {
            return false;
        }
        // SAFETY: the directory is the only writer of its segments, and no snapshot needs this one.
        unsafe { self.segment(hash).values.overwrite(from, bytes) };
        true
    }

    /// Puts `next` in the place of the hash's segment: one of the same depth, or two of the next. With each comes how
    /// many entries it has.
    pub(super) fn replace(&mut self, hash: u64, next: Vec<(Segment<S, V>, u32)>) {
        let owner = self.owner(hash);
        let old = &self.segments[owner];
        let (depth, first) = (old.depth, old.first);
        self.bytes -= old.bytes();
        self.len -= self.used[owner] as usize;
        if next.len() == 2 && depth == 64 - self.shift {
            self.places = self.places.iter().flat_map(|p| [p.clone(), p.clone()]).collect();
            self.owners = self.owners.iter().flat_map(|&o| [o, o]).collect();
            self.shift -= 1;
        }
        let depth = depth + u32::from(next.len() == 2);
        let segments = Arc::make_mut(&mut self.segments);
        for (half, (mut segment, used)) in next.into_iter().enumerate() {
            segment.depth = depth;
            segment.first =
                if half == 0 { first } else { first | 1u64.checked_shl(64 - depth).unwrap_or(0) };
            let begin = (segment.first >> self.shift) as usize;
            let count = 1usize << (64 - self.shift - depth);
            let index = if half == 0 { owner } else { segments.len() };
            self.bytes += segment.bytes();
            self.len += used as usize;
            self.places[begin..begin + count].fill(Place {
                at: segment.at,
                slots: segment.slots,
                epoch: self.epoch,
            });
            self.owners[begin..begin + count].fill(index as u32);
            if half == 0 {
                self.used[owner] = used;
                self.garbage[owner] = 0;
                segments[owner] = Arc::new(segment);
            } else {
                self.used.push(used);
                self.garbage.push(0);
                segments.push(Arc::new(segment));
            }
        }
    }

    /// Counts bytes of the arenas of the hash's segment as garbage, and says how many are.
    pub(super) fn add_garbage(&mut self, hash: u64, bytes: usize) -> usize {
        let owner = self.owner(hash);
        self.garbage[owner] += bytes;
        self.garbage[owner]
    }

    /// Forgets all entries. Segments that a snapshot may need give way to those that `fresh(epoch, slots)` makes.
    pub(super) fn clear(&mut self, mut fresh: impl FnMut(u32, usize) -> Segment<S, V>) {
        let any = self.running.any();
        for owner in 0..self.segments.len() {
            if self.used[owner] == 0 && self.garbage[owner] == 0 {
                continue;
            }
            let segment = &self.segments[owner];
            if any {
                let next = fresh(self.epoch, segment.slots());
                self.replace(segment.first, vec![(next, 0)]);
                continue;
            }
            segment.note_written(self.epoch);
            self.bytes -= segment.bytes();
            // SAFETY: the segment has that many slots, no snapshot runs, and the directory alone writes it.
            unsafe { segment.at.write_bytes(0, segment.slots()) };
            // SAFETY: as above.
            unsafe { segment.keys.clear() };
            // SAFETY: as above.
            unsafe { segment.values.clear() };
            self.bytes += segment.bytes();
            (self.used[owner], self.garbage[owner]) = (0, 0);
        }
        self.len = 0;
    }

    /// Begins a snapshot of what is there: everything written from here on belongs to the next epoch.
    pub(super) fn begin_snapshot(&mut self) -> (u32, RunningGuard, Running, Spare<S, V>) {
        self.epoch += 1;
        assert!(self.epoch < LOCKED, "a table has less than 2^32 snapshots in its life");
        let (guard, older) = self.running.start();
        (self.epoch, guard, older, self.spare.clone())
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many chunks the worker has put aside so far.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }

    /// How many places there are.
    pub(super) fn place_count(&self) -> usize {
        self.places.len()
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> &Place<S, V> {
        // SAFETY: there are `2^(64 - shift)` places, and shift is at most 63.
        unsafe { self.places.get_unchecked((hash >> self.shift) as usize) }
    }

    fn owner(&self, hash: u64) -> usize {
        self.owners[(hash >> self.shift) as usize] as usize
    }

    /// The slot of a key, and true; or the empty slot where it would be, and false.
    #[inline(always)]
    fn probe(&self, hash: u64, same: impl Fn(&S, &Self) -> bool) -> (*mut Entry<S, V>, bool) {
        let place = self.place(hash);
        let (start, tag) = (place.at.as_ptr(), tag(hash));
        let mut slot = ideal(hash, place.slots);
        loop {
            // SAFETY: the slot is one of the segment's, which the directory holds.
            let at = unsafe { start.add(slot) };
            // SAFETY: slots are zeroed or written, and only we write them.
            let entry = unsafe { &*at };
            // SAFETY: the entry's tag isn't 0, so its key was written.
            if entry.tag == tag && same(unsafe { entry.key.assume_init_ref() }, self) {
                return (at, true);
            }
            if entry.tag == 0 {
                return (at, false);
            }
            slot = if slot + 1 == place.slots as usize { 0 } else { slot + 1 };
        }
    }

    fn slot_of(&self, hash: u64, at: *const Entry<S, V>) -> usize {
        (at.addr() - self.place(hash).at.addr().get()) / Entry::<S, V>::BYTES
    }

    /// Writes a slot of the hash's segment.
    fn write(&mut self, hash: u64, slot: usize, entry: Entry<S, V>) {
        let place = self.place(hash);
        assert!(slot < place.slots as usize, "the slot is one of the segment's");
        // SAFETY: the slot was just checked to be in the segment.
        let at = unsafe { place.at.as_ptr().add(slot) };
        if place.epoch != self.epoch {
            self.protect(hash, at);
        }
        // SAFETY: the slot is in our segment, and its chunk is protected.
        unsafe { at.write(entry) };
    }

    /// Makes sure that the chunk of a slot may be written: puts it aside if a running snapshot may need it.
    #[cold]
    #[inline(never)]
    fn protect(&mut self, hash: u64, at: *const Entry<S, V>) {
        let slot = self.slot_of(hash, at);
        let any = self.running.any();
        let segment = &self.segments[self.owner(hash)];
        segment.note_written(self.epoch);
        // Acquire pairs with `set_saved`: who saved the segment has read all of it.
        if !any || segment.saved.load(Acquire) >= self.epoch {
            self.places[(hash >> self.shift) as usize].epoch = self.epoch;
            return;
        }
        let index = slot >> Entry::<S, V>::CHUNK_SHIFT;
        let chunk = &segment.chunks[index];
        if chunk.lock.is_saved(self.epoch) {
            return;
        }
        let since = chunk.lock.lock();
        if since != self.epoch {
            let mut copy = self.spare.pop().unwrap_or_else(Aside::new);
            let (first, n) = (index << Entry::<S, V>::CHUNK_SHIFT, segment.chunk_slots(index));
            // SAFETY: the chunk's slots lie in the segment.
            let live = unsafe { segment.at.add(first) };
            let to = NonNull::from(&mut copy.entries[0]).cast();
            // SAFETY: as above; `copy` has room for a chunk and is ours.
            unsafe { live.copy_to_nonoverlapping(to, n) };
            // SAFETY: we hold the chunk's lock.
            let aside = unsafe { &mut *chunk.aside.get() };
            (copy.after, copy.upto, copy.next) = (since, self.epoch, aside.take());
            *aside = Some(copy);
            self.copied += 1;
        }
        chunk.lock.unlock(self.epoch);
    }
}

/// The slot that `Directory::insert` has filled.
pub(super) struct Added(usize);

#[inline(always)]
fn prefetch(at: *const i8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, whatever the address is.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}
