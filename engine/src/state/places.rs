//! A table's directory: from the top bits of a hash to the segment, and the search in it.
//!
//! Extendible hashing: `2^bits` places, each pointing into a segment; a segment that splits takes its places along, or
//! doubles their number.
//!
//! Invariants. A [`Directory`] is the only one who writes to the segments it holds, through `&mut self`. Each place points
//! into a segment that the directory holds. A place's epoch is the table's only if no running snapshot needs its
//! segment; else every slot is protected before it is written. Called by `table`, `grow`, `snapshot`.
#![expect(unsafe_code, reason = "one unchecked look-up and one raw probe a record")]

use std::ptr::NonNull;
use std::sync::Arc;

use super::chunk::{Spare, prefetch};
use super::running::{Running, RunningGuard};
use super::segment::{Entry, Segment, Segments, tag};

/// No epoch is that high.
const EPOCH_END: u32 = u32::MAX;

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
    /// The only segment, if there is one and all its chunks may be written in `solo.epoch`; else that is no epoch. A
    /// small table's look-up is then as short as without a directory.
    solo: Place<S, V>,
    /// The segment of each place.
    owners: Vec<u32>,
    /// How many entries each segment has.
    used: Vec<u32>,
    /// Bytes of each segment's arenas that no entry names.
    garbage: Vec<usize>,
    /// Shared with snapshots; copied when it changes while one has it.
    segments: Segments<S, V>,
    running: Running,
    spare: Spare<Entry<S, V>>,
    /// How many chunks were put aside so far.
    copied: u64,
    /// How long that took, by `clock`.
    copy_nanos: u64,
    clock: fn() -> u64,
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
    pub(super) fn new(segment: Segment<S, V>, epoch: u32, clock: fn() -> u64) -> Self {
        let place = Place { at: segment.at, slots: segment.slots, epoch };
        let bytes = segment.bytes();
        Self {
            places: vec![place.clone(), place.clone()],
            solo: place,
            shift: 63,
            epoch,
            owners: vec![0; 2],
            used: vec![0],
            garbage: vec![0],
            segments: Arc::new(vec![Arc::new(segment)]),
            running: Running::default(),
            spare: Spare::default(),
            copied: 0,
            copy_nanos: 0,
            clock,
            len: 0,
            bytes,
        }
    }

    /// Loads the line where the search for a hash begins, for an entry a few records later.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        let place = self.place(hash);
        // SAFETY: the ideal slot is one of the segment's.
        let at = unsafe { place.at.as_ptr().add(Entry::<S, V>::ideal(hash, place.slots)) };
        prefetch(at.cast());
        if Entry::<S, V>::BYTES > 64 {
            prefetch(at.cast::<i8>().wrapping_add(64));
        }
    }

    /// The value of a key.
    #[inline(always)]
    pub(super) fn find(&self, hash: u64, same: impl Fn(&S, &Self) -> bool) -> Option<&V> {
        let (at, found) = self.probe(self.place(hash), hash, &same);
        if !found {
            return None;
        }
        // SAFETY: `probe` found an entry here, and nobody writes while we are borrowed.
        let entry = unsafe { &*at };
        // SAFETY: an entry has a value.
        Some(unsafe { entry.value.assume_init_ref() })
    }

    /// The value of a key, to be changed. If there is none, `add` adds it with `insert`. `SMALL`: it is worth
    /// asking first whether there is but one segment.
    #[inline(always)]
    pub(super) fn entry<const SMALL: bool>(
        &mut self,
        hash: u64,
        same: impl Fn(&S, &Self) -> bool,
        add: impl FnOnce(&mut Self) -> Option<Added>,
    ) -> Option<&mut V> {
        if SMALL && self.solo.epoch == self.epoch {
            let (at, found) = self.probe(&self.solo, hash, &same);
            if found {
                // SAFETY: the slot holds an entry, and no snapshot needs the only segment.
                let entry = unsafe { &mut *at };
                // SAFETY: an entry has a value.
                return Some(unsafe { entry.value.assume_init_mut() });
            }
        }
        let place = self.place(hash);
        let near = if SMALL { None } else { self.probe_line(place, hash, &same) };
        let (mut at, found) = match near {
            Some(at) => (at, true),
            None => self.probe(place, hash, &same),
        };
        if !found {
            let added = add(self)?;
            let place = self.place(hash);
            // SAFETY: `insert` has just written this slot of the hash's segment.
            at = unsafe { place.at.as_ptr().add(added.0) };
        } else if self.place(hash).epoch != self.epoch {
            self.protect(hash, at);
        }
        // SAFETY: the slot holds an entry, and its chunk is protected: only we look at it while `self` is borrowed.
        let entry = unsafe { &mut *at };
        // SAFETY: an entry has a value.
        Some(unsafe { entry.value.assume_init_mut() })
    }

    /// Whether the segment of a hash has no room for one more.
    pub(super) fn is_full(&self, hash: u64) -> bool {
        let owner = self.owner(hash);
        u64::from(self.used[owner]) * 4 >= self.segments[owner].slots() as u64 * 3
    }

    /// Adds an entry whose key isn't there, to a segment that isn't full.
    pub(super) fn insert(&mut self, hash: u64, key: S, value: V) -> Added {
        assert!(!self.is_full(hash), "the table makes room first");
        let (at, found) = self.probe(self.place(hash), hash, &|_: &S, _: &Self| false);
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
        let (at, found) = self.probe(self.place(hash), hash, &same);
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
            let ideal = Entry::<S, V>::ideal(candidate.hash(), slots as u32);
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
        self.write(hash, gap, Entry::EMPTY);
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

    pub(super) fn segments(&self) -> &Segments<S, V> {
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

    /// Fills bytes that are reserved for a value, but that no entry has named yet.
    pub(super) fn fill_value(&mut self, hash: u64, from: usize, bytes: &[u8]) {
        // SAFETY: the directory is the only writer of its segments, and nobody reads bytes that no entry has named.
        unsafe { self.segment(hash).values.overwrite(from, bytes) };
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
        self.find_solo();
    }

    /// Sets `solo` after a place or the number of segments has changed.
    fn find_solo(&mut self) {
        let is_only = self.segments.len() == 1;
        let saved = self.places.iter().find(|place| is_only && place.epoch == self.epoch);
        match saved {
            Some(place) => self.solo = place.clone(),
            None => self.solo.epoch = EPOCH_END,
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
            // SAFETY: the segment is one of ours, and no snapshot runs.
            unsafe { segment.clear() };
            self.bytes += segment.bytes();
            (self.used[owner], self.garbage[owner]) = (0, 0);
        }
        self.len = 0;
    }

    /// Begins a snapshot of what is there: everything written from here on belongs to the next epoch.
    pub(super) fn begin_snapshot(&mut self) -> (u32, RunningGuard, Running, Spare<Entry<S, V>>) {
        self.epoch += 1;
        assert!(self.epoch < EPOCH_END, "a table has less than 2^32 snapshots in its life");
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

    /// How long copying took.
    pub(super) fn copy_nanos(&self) -> u64 {
        self.copy_nanos
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
    fn probe(
        &self,
        place: &Place<S, V>,
        hash: u64,
        same: &impl Fn(&S, &Self) -> bool,
    ) -> (*mut Entry<S, V>, bool) {
        let (start, tag) = (place.at.as_ptr(), tag(hash));
        let mut slot = Entry::<S, V>::ideal(hash, place.slots);
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

    /// The slot of a key that lies in the line where its search begins, if lines have two. In which of them it is, is
    /// as good as random: computed instead of branched on. (1.2–1.3 times as fast with a million keys; not worth it where most
    /// lines hold one.)
    #[inline(always)]
    fn probe_line(
        &self,
        place: &Place<S, V>,
        hash: u64,
        same: &impl Fn(&S, &Self) -> bool,
    ) -> Option<*mut Entry<S, V>> {
        if Entry::<S, V>::LINE_SLOTS != 2 {
            return None;
        }
        // SAFETY: a segment has whole lines, and the directory holds it.
        let line = unsafe { place.at.as_ptr().add(Entry::<S, V>::ideal(hash, place.slots)) };
        let tag = tag(hash);
        // SAFETY: slots are zeroed or written, and only we write them.
        let is_second = unsafe { (*line).tag } != tag;
        // SAFETY: the line has two slots.
        let at = unsafe { line.add(usize::from(is_second)) };
        // SAFETY: as for the first slot.
        let entry = unsafe { &*at };
        // SAFETY: the entry's tag isn't 0, so its key was written.
        let is_here = entry.tag == tag && same(unsafe { entry.key.assume_init_ref() }, self);
        is_here.then_some(at)
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

    /// Makes sure that a slot may be written: its chunk is put aside if a running snapshot may need it.
    #[cold]
    #[inline(never)]
    fn protect(&mut self, hash: u64, at: *const Entry<S, V>) {
        let slot = self.slot_of(hash, at);
        let any = self.running.any();
        let segment = &self.segments[self.owner(hash)];
        segment.note_written(self.epoch);
        if !any || segment.is_saved(self.epoch) {
            self.places[(hash >> self.shift) as usize].epoch = self.epoch;
            self.find_solo();
            return;
        }
        // SAFETY: the segment is one of ours.
        let nanos = unsafe { segment.protect(slot, self.epoch, &self.spare, self.clock) };
        self.copied += u64::from(nanos.is_some());
        self.copy_nanos += nanos.unwrap_or(0);
    }
}

/// The slot that `Directory::insert` has filled.
pub(super) struct Added(usize);
