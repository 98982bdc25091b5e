//! How a table makes room: a segment doubles, splits, or is rebuilt without its garbage.
//!
//! One segment is moved at a time, into new memory, so a snapshot that is being written keeps the old one.

use std::marker::PhantomData;
use std::sync::Arc;

use super::places::Directory;
use super::pool::{Pool, SEGMENT_BYTES};
use super::segment::{Entry, Segment};
use super::table::{Slot, TableOptions};
use super::value::Value;
use crate::record::Key;
use crate::record::codec::Codec;
use crate::record::key::KeyCodec;
use crate::record::key_group::KeyGroupRange;

/// A segment whose arenas have that many bytes splits, so that moving it stays short.
const ARENA_BYTES_MAX: usize = 1 << 20;
/// Bits of the hash that a directory may use; 32 are in the entry's tag but for the last.
const DEPTH_MAX: u32 = 28;
/// The directory has at most that many places for each segment, and some more: keys whose hashes agree in many
/// bits make their segment larger instead.
const PLACES_PER_SEGMENT: usize = 16;

/// What a table's growth needs to know.
pub(super) struct Growth<K, V> {
    pool: Arc<Pool>,
    pub(super) options: TableOptions,
    /// What a key's value is at first.
    pub(super) init: V,
    next_id: u64,
    of: PhantomData<fn() -> K>,
}

type Dir<K, V> = Directory<Slot<K>, V>;
type Seg<K, V> = Segment<Slot<K>, V>;

impl<K: Key, V: Value> Growth<K, V> {
    pub(super) fn new(options: TableOptions, init: V) -> Self {
        Self { pool: Pool::new(), options, init, next_id: 0, of: PhantomData }
    }

    /// An empty directory.
    pub(super) fn directory(&mut self, epoch: u32) -> Dir<K, V> {
        let slots = self.options.initial_slots.clamp(8, Self::slots_max());
        Directory::new(self.segment(slots, epoch), epoch, self.options.clock)
    }

    /// Slots of a full-size segment.
    fn slots_max() -> usize {
        let chunk = Entry::<Slot<K>, V>::CHUNK_SLOTS;
        (SEGMENT_BYTES / Entry::<Slot<K>, V>::BYTES / chunk * chunk).max(8)
    }

    fn segment(&mut self, slots: usize, epoch: u32) -> Seg<K, V> {
        self.next_id += 1;
        Segment::new(&self.pool, slots, epoch, self.next_id)
    }

    /// Makes sure that the hash's segment has room for one more entry.
    pub(super) fn make_room(&mut self, directory: &mut Dir<K, V>, hash: u64) {
        while directory.is_full(hash) || self.is_long(directory, hash) {
            let segment = directory.segment(hash).clone();
            let slots = segment.slots();
            let can_split = Self::can_split(directory, &segment);
            if self.is_long(directory, hash) {
                if !can_split || directory.used(hash) <= 1 {
                    if !directory.is_full(hash) {
                        return;
                    }
                    self.rebuild(directory, hash, slots * 2);
                } else {
                    self.split(directory, hash);
                }
            } else if slots < Self::slots_max() {
                self.rebuild(directory, hash, (slots * 2).min(Self::slots_max()));
            } else if can_split {
                self.split(directory, hash);
            } else {
                self.rebuild(directory, hash, slots * 2);
            }
        }
    }

    /// Whether the arenas of the hash's segment are too long to be moved in a moment.
    fn is_long(&self, directory: &Dir<K, V>, hash: u64) -> bool {
        if !V::VARIES && K::Codec::FIXED {
            return false;
        }
        let segment = directory.segment(hash);
        segment.keys.len() + segment.values.len() > ARENA_BYTES_MAX
    }

    fn can_split(directory: &Dir<K, V>, segment: &Seg<K, V>) -> bool {
        let places = directory.place_count();
        let is_deep = 1usize << segment.depth >= places;
        segment.depth < DEPTH_MAX
            && (!is_deep || places <= PLACES_PER_SEGMENT * directory.segments().len() + 1024)
    }

    /// Moves the hash's segment to one of `slots` slots, without garbage.
    fn rebuild(&mut self, directory: &mut Dir<K, V>, hash: u64, slots: usize) {
        let segment = directory.segment(hash).clone();
        let mut next = self.segment(slots, directory.epoch());
        let used = self.copy(directory, &segment, &mut [&mut next], |_| 0)[0];
        directory.replace(hash, vec![(next, used)]);
    }

    /// Moves the hash's segment to two, by the next bit of the hashes.
    fn split(&mut self, directory: &mut Dir<K, V>, hash: u64) {
        let segment = directory.segment(hash).clone();
        let half = |hash: u64| (hash >> (63 - segment.depth) & 1) as usize;
        let mut counts = [0usize; 2];
        for entry in directory.entries_of(&segment) {
            counts[half(entry.hash())] += 1;
        }
        // Half full, so that it is some time until it splits again; an empty half stays small.
        let slots = |n: usize| {
            let wanted = (n * 2).next_power_of_two().max(8);
            if wanted * 2 > Self::slots_max() { Self::slots_max().max(n * 2) } else { wanted }
        };
        let mut low = self.segment(slots(counts[0]), directory.epoch());
        let mut high = self.segment(slots(counts[1]), directory.epoch());
        let used = self.copy(directory, &segment, &mut [&mut low, &mut high], half);
        directory.replace(hash, vec![(low, used[0]), (high, used[1])]);
    }

    /// Copies a segment's entries to `next[choose(hash)]`, and says how many each got.
    fn copy(
        &self,
        directory: &Dir<K, V>,
        from: &Seg<K, V>,
        next: &mut [&mut Seg<K, V>],
        choose: impl Fn(u64) -> usize,
    ) -> [u32; 2] {
        let keys = from.keys.all();
        let mut used = [0; 2];
        let mut arenas = [const { (Vec::new(), Vec::new()) }; 2];
        for entry in directory.entries_of(from) {
            let which = choose(entry.hash());
            used[which] += 1;
            let (key, value) = entry.get().expect("the segment shows entries only");
            let (key_arena, value_arena) = &mut arenas[which];
            let key = if K::Codec::FIXED {
                *key
            } else {
                K::Codec::store(K::Codec::load(key, keys), key_arena)
            };
            let value = if V::VARIES && !value.is_gone() {
                V::store(value.wire(|at, n| from.values.part(at, n)), value_arena)
            } else {
                *value
            };
            next[which].push(Entry::new(entry.hash(), key, value));
        }
        for (segment, (keys, values)) in next.iter_mut().zip(arenas) {
            segment.set_arenas(keys, values);
        }
        used
    }

    /// Counts bytes of the hash's segment that no entry names any more; rebuilds it if they are the most part.
    pub(super) fn note_garbage(&mut self, directory: &mut Dir<K, V>, hash: u64, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let garbage = directory.add_garbage(hash, bytes);
        let segment = directory.segment(hash);
        let all = segment.keys.len() + segment.values.len();
        if garbage * 2 > all && all > 4096 {
            let slots = segment.slots();
            self.rebuild(directory, hash, slots);
        }
    }

    /// Empties the table: small memory is used again, a large one begins anew.
    pub(super) fn clear(&mut self, directory: &mut Dir<K, V>) {
        directory.clear(|epoch, slots| self.segment(slots, epoch));
    }

    /// Splits ahead for `entries` more entries in the key groups `range`, so that filling the table moves nothing.
    pub(super) fn reserve(
        &mut self,
        directory: &mut Dir<K, V>,
        entries: usize,
        range: KeyGroupRange,
    ) {
        let groups = self.options.groups.count();
        let share = groups as usize / (range.end.saturating_sub(range.first).max(1)) as usize;
        let total = entries.saturating_mul(share.max(1));
        let per_segment = Self::slots_max() * 5 / 8;
        let depth = total.div_ceil(per_segment).next_power_of_two().trailing_zeros();
        let depth = depth.min(DEPTH_MAX / 2);
        let shift = 64 - groups.trailing_zeros();
        let (first, last) = (u64::from(range.first), u64::from(range.end.max(1) - 1));
        let last = last << shift | ((1 << shift) - 1);
        let mut hash = first << shift;
        loop {
            while directory.segment(hash).depth < depth {
                self.split(directory, hash);
            }
            let segment = directory.segment(hash);
            let step = 1u64.checked_shl(64 - segment.depth).unwrap_or(0);
            let expected = (total >> segment.depth) + directory.used(hash);
            let slots = (expected * 8 / 5).min(Self::slots_max());
            if segment.slots() < slots {
                self.rebuild(directory, hash, slots);
            }
            match (hash / step.max(1) * step).checked_add(step) {
                Some(next) if step > 0 && next <= last => hash = next,
                _ => return,
            }
        }
    }
}
