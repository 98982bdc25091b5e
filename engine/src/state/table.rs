//! A keyed table: open addressing in segments that split one at a time, one aligned entry a key.
//!
//! The top bits of a key's hash choose the segment through a directory, the low half its slot: never the same bits. A
//! segment that is 3/4 full doubles until it has 256 KiB, and then splits by the next bit of the hash: growing never
//! moves more than one segment. A snapshot is handed out at once and written by another thread while this one goes
//! on (see `chunk`). Called by operators, one table a worker.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::grow::Growth;
use super::places::{Added, Directory};
use super::snapshot::TableSnapshot;
use super::value::Value;
use crate::record::codec::Codec;
use crate::record::key::{self, KeyCodec};
use crate::record::key_group::KeyGroups;
use crate::record::{Data, Key};

/// A table's settings.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Slots at the start: many enough that few keys share a line for an operator, few for the pane of a window.
    pub initial_slots: usize,
    /// The job's key groups, by which a snapshot is tagged and filtered.
    pub groups: KeyGroups,
    /// Counts nanoseconds: tells how long copying for snapshots takes. State reads no clock by itself.
    pub clock: fn() -> u64,
}

impl TableOptions {
    /// For an operator's table: 8,192 slots.
    pub fn new(groups: KeyGroups) -> Self {
        Self { initial_slots: 8192, groups, clock: || 0 }
    }

    /// For a small table, of which there are many: 64 slots.
    pub fn small(groups: KeyGroups) -> Self {
        Self { initial_slots: 64, groups, clock: || 0 }
    }
}

/// A key's own copy.
pub(super) type Slot<K> = <<K as Data>::Codec as KeyCodec>::Slot;
/// A key in its codec's terms.
type Raw<'a, K> = <<K as Data>::Codec as Codec>::Ref<'a>;

/// Values by key. `hash` is always the key's own, [`Table::hash`].
pub struct Table<K: Key, V: Value> {
    /// Unlike that of any other table of the process.
    pub(super) id: u64,
    pub(super) directory: Directory<Slot<K>, V>,
    pub(super) growth: Growth<K, V>,
}

impl<K: Key, V: Value> Table<K, V> {
    /// An empty table whose values begin as `init`.
    pub fn new(options: TableOptions, init: V) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let mut growth = Growth::new(options, init);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self { id, directory: growth.directory(0), growth }
    }

    /// A key's hash, as keyed channels carry it.
    #[inline(always)]
    pub fn hash(key: K::Ref<'_>) -> u64 {
        key::hash::<K>(key)
    }

    /// Loads what a look-up of this hash needs. Worth it, some 32 records ahead, if [`Self::bytes`] exceeds half of L2.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.directory.prefetch(hash);
    }

    /// The value of a key, which begins as the table's initial one.
    #[inline(always)]
    pub fn entry(&mut self, hash: u64, key: K::Ref<'_>) -> &mut V {
        self.entry_in::<true>(hash, key)
    }

    /// The same, for a table so large that its lines are prefetched. (Not asking whether there is but one segment
    /// saves 6 % at a million keys; asking saves 20 % at a thousand.)
    #[inline(always)]
    pub fn entry_prefetched(&mut self, hash: u64, key: K::Ref<'_>) -> &mut V {
        self.entry_in::<false>(hash, key)
    }

    #[inline(always)]
    fn entry_in<const SMALL: bool>(&mut self, hash: u64, key: K::Ref<'_>) -> &mut V {
        let raw = K::encode(key);
        let growth = &mut self.growth;
        let value = self.directory.entry::<SMALL>(
            hash,
            |slot, directory| same::<K, V>(slot, raw, hash, directory),
            |directory| Some(add(directory, growth, hash, raw)),
        );
        value.expect("a missing entry was added")
    }

    /// The value of a key, if there is one.
    #[inline(always)]
    pub fn get(&self, hash: u64, key: K::Ref<'_>) -> Option<&V> {
        let raw = K::encode(key);
        self.directory.find(hash, |slot, directory| same::<K, V>(slot, raw, hash, directory))
    }

    /// The value of a key to be changed, if there is one.
    #[inline(always)]
    pub fn get_mut(&mut self, hash: u64, key: K::Ref<'_>) -> Option<&mut V> {
        let raw = K::encode(key);
        self.directory.entry::<true>(
            hash,
            |slot, directory| same::<K, V>(slot, raw, hash, directory),
            |_| None,
        )
    }

    /// Removes a key and returns its value, if there is one.
    pub fn remove(&mut self, hash: u64, key: K::Ref<'_>) -> Option<V> {
        let raw = K::encode(key);
        let same = |slot: &Slot<K>, directory: &_| same::<K, V>(slot, raw, hash, directory);
        let value = self.directory.remove(hash, same)?;
        let key_bytes = if is_short::<K>(raw) { 0 } else { K::Codec::tail_len(raw) };
        let garbage = key_bytes + value.arena_bytes();
        self.growth.note_garbage(&mut self.directory, hash, garbage);
        Some(value)
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.directory.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the table takes, without its directory.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.directory.bytes()
    }

    /// All keys and values, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (K::Ref<'_>, &V)> {
        self.directory.segments().iter().flat_map(|segment| {
            let keys = segment.keys.all();
            self.directory.entries_of(segment).filter_map(move |entry| {
                let (key, value) = entry.get()?;
                Some((K::decode(K::Codec::load(key, keys)), value))
            })
        })
    }

    /// Shows all keys and values to `f`, and forgets them.
    pub fn drain(&mut self, mut f: impl FnMut(K::Ref<'_>, &V)) {
        for (key, value) in self.iter() {
            f(key, value);
        }
        self.clear_keep_memory();
    }

    /// Forgets all keys. Memory is kept, as one table uses it again.
    pub fn clear_keep_memory(&mut self) {
        self.growth.clear(&mut self.directory);
    }

    /// A snapshot of what is in the table, to be written by another thread. Takes no time that depends on the size.
    pub fn snapshot(&mut self) -> TableSnapshot<K, V> {
        TableSnapshot::begin(self)
    }

    /// How many chunks of memory were copied because a snapshot was being written.
    pub fn copied_chunks(&self) -> u64 {
        self.directory.copied()
    }

    /// How many nanoseconds that took, by the options' clock.
    pub fn copy_nanos(&self) -> u64 {
        self.directory.copy_nanos()
    }

    /// How many snapshots were begun.
    pub fn epoch(&self) -> u32 {
        self.directory.epoch()
    }
}

impl<K: Key, V: Value> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("len", &self.len()).field("bytes", &self.bytes()).finish()
    }
}

/// Whether a slot holds this key.
#[inline(always)]
fn same<K: Key, V: Value>(
    slot: &Slot<K>,
    raw: Raw<'_, K>,
    hash: u64,
    directory: &Directory<Slot<K>, V>,
) -> bool {
    if is_short::<K>(raw) {
        K::Codec::same(slot, raw, &[])
    } else {
        K::Codec::same(slot, raw, directory.segment(hash).keys.all())
    }
}

/// Whether a key lies in its slot and is compared without the arena, since its strings have 15 bytes at most.
#[inline(always)]
fn is_short<K: Key>(raw: Raw<'_, K>) -> bool {
    K::Codec::FIXED || K::Codec::tail_len(raw) <= 15
}

#[cold]
#[inline(never)]
fn add<K: Key, V: Value>(
    directory: &mut Directory<Slot<K>, V>,
    growth: &mut Growth<K, V>,
    hash: u64,
    raw: Raw<'_, K>,
) -> Added {
    growth.make_room(directory, hash);
    let key = if K::Codec::FIXED {
        K::Codec::store(raw, &mut Vec::new())
    } else {
        directory.append_key(hash, K::Codec::tail_len(raw), |arena| K::Codec::store(raw, arena))
    };
    directory.insert(hash, key, growth.init)
}
