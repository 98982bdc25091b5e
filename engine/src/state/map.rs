//! A map for each key.
//!
//! An entry lies in a table of its own, by key and map key, and in the key's own key group; a second table lists each
//! key's map keys in the order in which they came. An entry that is removed stays as a gap until the gaps of its key are
//! the most part, so that no map key is listed twice. The list is not written to snapshots: restoring entries makes it.

use std::fmt;
use std::marker::PhantomData;

use super::keyed::StateTable;
use super::nested::nested_hash;
use super::part::WriteBlocks;
use super::table::{Table, TableOptions};
use super::value::Blob;
use crate::error::Result;
use crate::record::codec::{Frames, append, check_frame, read_frame};
use crate::record::key::hash;
use crate::record::key_group::{KeyGroupRange, KeyGroups};
use crate::record::{AsData, Data, Key};

/// A handle to a declared map state.
#[derive(Debug)]
pub struct MapState<M, V> {
    index: usize,
    of: PhantomData<fn() -> (M, V)>,
}

impl<M, V> Clone for MapState<M, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M, V> Copy for MapState<M, V> {}

impl<M, V> MapState<M, V> {
    pub(super) fn new(index: usize) -> Self {
        Self { index, of: PhantomData }
    }

    #[inline(always)]
    pub(super) fn index(self) -> usize {
        self.index
    }
}

/// How many map keys a key has: in its list, and of those with a value.
type Counts = (u32, u32);

/// Gaps that a list may have in any case.
const GAPS_MIN: u32 = 8;

/// What a list holds: a map key with its hash.
type Listed<M> = (u64, M);

pub(super) struct MapTable<K: Key, M: Key, V> {
    entries: Table<(K, M), Blob>,
    lists: Table<K, Blob>,
    counts: Table<K, Counts>,
    /// Where frames are made.
    scratch: Vec<u8>,
    of: PhantomData<fn() -> V>,
}

impl<K: Key, M: Key, V: Data> MapTable<K, M, V> {
    pub(super) fn new(groups: KeyGroups) -> Self {
        let options = TableOptions::new(groups);
        Self {
            entries: Table::new(options, Blob::GONE),
            lists: Table::new(options, Blob::default()),
            counts: Table::new(options, (0, 0)),
            scratch: Vec::new(),
            of: PhantomData,
        }
    }

    /// Sets an entry's bytes from `scratch`, which was made for it.
    fn insert<'a>(&mut self, outer: u64, key: K::Ref<'a>, map_key: M::Ref<'a>) {
        let inner = hash::<M>(map_key);
        let nested = nested_hash(outer, inner);
        let before = self.entries.get(nested, (key, map_key)).copied();
        self.entries.set_bytes(nested, (key, map_key), &self.scratch);
        if before.is_some_and(|blob| blob != Blob::GONE) {
            return;
        }
        let counts = self.counts.entry(outer, key);
        counts.1 += 1;
        if before.is_none() {
            counts.0 += 1;
            self.scratch.clear();
            append::<Listed<M>>(&mut self.scratch, (inner, map_key));
            self.lists.append_bytes(outer, key, &self.scratch);
        }
    }

    fn remove<'a>(&mut self, outer: u64, key: K::Ref<'a>, map_key: M::Ref<'a>) {
        let nested = nested_hash(outer, hash::<M>(map_key));
        if self.entries.bytes_of(nested, (key, map_key)).is_none() {
            return;
        }
        self.entries.set_gone(nested, (key, map_key));
        let counts = self.counts.entry(outer, key);
        counts.1 -= 1;
        let (listed, live) = *counts;
        if listed - live > live.max(GAPS_MIN) || live == 0 {
            self.close_gaps(outer, key);
        }
    }

    /// Forgets the gaps of a key: removed entries and their places in the list.
    fn close_gaps(&mut self, outer: u64, key: K::Ref<'_>) {
        let Self { entries, lists, counts, scratch, .. } = self;
        scratch.clear();
        let mut frames = Frames::<Listed<M>>::new(lists.bytes_of(outer, key).unwrap_or(&[]), 0);
        while let Some(frame) = frames.next_frame() {
            let (inner, map_key) = frame.read();
            let nested = nested_hash(outer, inner);
            if entries.bytes_of(nested, (K::shorten(key), map_key)).is_some() {
                append::<Listed<M>>(scratch, (inner, map_key));
            } else {
                entries.remove(nested, (K::shorten(key), map_key));
            }
        }
        if scratch.is_empty() {
            lists.remove(outer, key);
            counts.remove(outer, key);
        } else {
            lists.set_bytes(outer, key, scratch);
            let counts = counts.entry(outer, key);
            counts.0 = counts.1;
        }
    }

    fn clear(&mut self, outer: u64, key: K::Ref<'_>) {
        let Self { entries, lists, counts, .. } = self;
        let mut frames = Frames::<Listed<M>>::new(lists.bytes_of(outer, key).unwrap_or(&[]), 0);
        while let Some(frame) = frames.next_frame() {
            let (inner, map_key) = frame.read();
            entries.remove(nested_hash(outer, inner), (K::shorten(key), map_key));
        }
        lists.remove(outer, key);
        counts.remove(outer, key);
    }
}

impl<K: Key, M: Key, V: Data> StateTable for MapTable<K, M, V> {
    fn snapshot(&mut self) -> Box<dyn WriteBlocks> {
        Box::new(self.entries.snapshot())
    }

    fn restore(&mut self, block: &[u8], range: KeyGroupRange, behind: u64) -> Result<()> {
        let nested = |(key, map_key): (K::Ref<'_>, M::Ref<'_>)| {
            nested_hash(hash::<K>(key), hash::<M>(map_key))
        };
        let check = |bytes: &[u8]| check_frame::<V>(bytes).map(drop);
        let Self { entries, lists, counts, scratch, .. } = self;
        let list = |_, (key, map_key): (K::Ref<'_>, M::Ref<'_>), is_new: bool| {
            if !is_new {
                return;
            }
            let outer = hash::<K>(key);
            scratch.clear();
            append::<Listed<M>>(scratch, (hash::<M>(map_key), map_key));
            lists.append_bytes(outer, key, scratch);
            let counts = counts.entry(outer, key);
            *counts = (counts.0 + 1, counts.1 + 1);
        };
        entries.restore_with(block, range, behind, nested, check, list).map(drop)
    }

    fn copied_chunks(&self) -> u64 {
        self.entries.copied_chunks()
    }

    fn bytes(&self) -> usize {
        self.entries.bytes() + self.lists.bytes() + self.counts.bytes()
    }
}

/// The map of the current key.
pub struct MapAt<'s, K: Key, M: Key, V> {
    state: &'s mut MapTable<K, M, V>,
    hash: u64,
    key: K::Ref<'s>,
}

impl<'s, K: Key, M: Key, V: Data> MapAt<'s, K, M, V> {
    #[inline(always)]
    pub(super) fn new(state: &'s mut MapTable<K, M, V>, hash: u64, key: K::Ref<'s>) -> Self {
        Self { state, hash, key }
    }

    /// The value of a map key, read in place.
    pub fn get<'a>(&'a self, map_key: M::Ref<'a>) -> Option<V::Ref<'a>> {
        let nested = nested_hash(self.hash, hash::<M>(map_key));
        let key = (K::shorten(self.key), map_key);
        self.state.entries.bytes_of(nested, key).map(read_frame::<V>)
    }

    /// Whether a map key has a value.
    pub fn contains(&self, map_key: M::Ref<'_>) -> bool {
        let nested = nested_hash(self.hash, hash::<M>(map_key));
        let key = (K::shorten(self.key), M::shorten(map_key));
        self.state.entries.bytes_of(nested, key).is_some()
    }

    /// Sets the value of a map key.
    pub fn insert(&mut self, map_key: M::Ref<'_>, value: impl AsData<Data = V>) {
        self.state.scratch.clear();
        append::<V>(&mut self.state.scratch, value.view());
        self.state.insert(self.hash, K::shorten(self.key), M::shorten(map_key));
    }

    /// Removes a map key.
    pub fn remove(&mut self, map_key: M::Ref<'_>) {
        self.state.remove(self.hash, K::shorten(self.key), M::shorten(map_key));
    }

    /// Removes all map keys.
    pub fn clear(&mut self) {
        self.state.clear(self.hash, self.key);
    }

    /// How many map keys there are.
    pub fn len(&self) -> usize {
        self.state.counts.get(self.hash, self.key).map_or(0, |counts| counts.1 as usize)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All map keys and their values, in an order that may change when the job is restored.
    pub fn iter(&self) -> impl Iterator<Item = (M::Ref<'_>, V::Ref<'_>)> {
        let bytes = self.state.lists.bytes_of(self.hash, self.key).unwrap_or(&[]);
        let mut frames = Frames::<Listed<M>>::new(bytes, 0);
        std::iter::from_fn(move || {
            loop {
                let (inner, map_key) = frames.next_frame()?.read();
                let nested = nested_hash(self.hash, inner);
                let key = (K::shorten(self.key), map_key);
                if let Some(value) = self.state.entries.bytes_of(nested, key) {
                    return Some((map_key, read_frame::<V>(value)));
                }
            }
        })
    }
}

impl<K: Key, M: Key, V> fmt::Debug for MapAt<'_, K, M, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapAt").finish_non_exhaustive()
    }
}
