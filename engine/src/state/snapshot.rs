//! A table's content at one moment, written by another thread while the worker goes on.
//!
//! ```text
//! block = (key frame, value frame)*          of the key groups it is tagged with, at most 1 MiB unless one entry is longer
//! ```
//! Frames are those of `record::codec`, so a block says nothing of the memory it came from. Segments are written in the
//! order of hashes, which is the order of key groups.

use std::fmt;

use tidegate_netstack::segment::SPARE;

use super::chunk::Spare;
use super::part::{TableMoment, WriteBlocks};
use super::running::{Running, RunningGuard};
use super::scratch::Scratch;
use super::segment::{Entry, Room, Segment, Segments};
use super::table::{Slot, Table};
use super::value::Value;
use crate::error::Result;
use crate::record::codec::{frame_len, put};
use crate::record::key::KeyCodec;
use crate::record::key_group::{KeyGroupRange, KeyGroups};
use crate::record::{Data, Key};

/// Bytes of a block at most, unless one entry is longer.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// What was in a table at [`Table::snapshot`].
pub struct TableSnapshot<K: Key, V: Value> {
    table: u64,
    segments: Segments<Slot<K>, V>,
    epoch: u32,
    older: Running,
    groups: KeyGroups,
    len: usize,
    spare: Spare<Entry<Slot<K>, V>>,
    /// Dropped last, so that the worker keeps what is still read.
    _guard: RunningGuard,
}

/// A part of a table that is written as a whole: between two snapshots it has changed or it hasn't.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Names the part for the life of the table.
    pub id: u64,
    /// The key groups whose entries it may hold.
    pub range: KeyGroupRange,
    /// Whether it was written since the snapshot that it was asked about.
    pub has_changed: bool,
}

impl<K: Key, V: Value> TableSnapshot<K, V> {
    pub(super) fn begin(table: &mut Table<K, V>) -> Self {
        let directory = &mut table.directory;
        let len = directory.len();
        let (epoch, guard, older, spare) = directory.begin_snapshot();
        let (segments, groups) = (directory.segments().clone(), table.growth.options.groups);
        Self { table: table.id, segments, epoch, older, groups, len, spare, _guard: guard }
    }

    /// Names its table in this process; another table never has the same.
    pub fn table(&self) -> u64 {
        self.table
    }

    /// Which snapshot of its table it is, counted from 1.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// How many entries it has at most.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The parts in the order of their key groups, and whether each was written since snapshot `epoch` of this table.
    pub fn changed_since(&self, epoch: u32) -> Vec<Part> {
        self.in_order().map(|segment| self.part(segment, epoch)).collect()
    }

    /// Writes all entries to `out`, block by block, each with the key groups it covers.
    ///
    /// # Errors
    /// The first that `out` returns.
    pub fn write(self, out: &mut dyn FnMut(KeyGroupRange, &[u8]) -> Result<()>) -> Result<()> {
        let mut block = BlockWriter::new(self.groups);
        for segment in self.in_order() {
            self.write_segment(segment, &mut block, out)?;
        }
        block.flush(out)
    }

    /// Writes the parts that were written since snapshot `epoch`, each in blocks of its own, whose key groups are the range that
    /// comes with them. What [`changed_since`](Self::changed_since) has called unchanged may be among them, since the worker goes
    /// on meanwhile; a part without entries has no block.
    ///
    /// # Errors
    /// The first that `out` returns.
    pub fn write_since(
        self,
        epoch: u32,
        out: &mut dyn FnMut(Part, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut block = BlockWriter::new(self.groups);
        for segment in self.in_order() {
            let part = self.part(segment, epoch);
            if part.has_changed {
                let mut out =
                    |range: KeyGroupRange, bytes: &[u8]| out(Part { range, ..part }, bytes);
                self.write_segment(segment, &mut block, &mut out)?;
                block.flush(&mut out)?;
            } else {
                self.let_go(segment);
            }
        }
        Ok(())
    }

    fn in_order(&self) -> impl Iterator<Item = &Segment<Slot<K>, V>> {
        let mut order: Vec<_> = self.segments.iter().map(|segment| &**segment).collect();
        order.sort_unstable_by_key(|segment| segment.first);
        order.into_iter()
    }

    fn part(&self, segment: &Segment<Slot<K>, V>, since: u32) -> Part {
        let shift = 64 - self.groups.count().trailing_zeros();
        let last = segment.first | u64::MAX.checked_shr(segment.depth).unwrap_or(0);
        let range = KeyGroupRange {
            first: (segment.first >> shift) as u32,
            end: (last >> shift) as u32 + 1,
        };
        let has_changed = segment.last_written(self.epoch).is_none_or(|written| written >= since);
        Part { id: segment.id, range, has_changed }
    }

    fn write_segment(
        &self,
        segment: &Segment<Slot<K>, V>,
        block: &mut BlockWriter,
        out: &mut dyn FnMut(KeyGroupRange, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut room = Room::new();
        for index in 0..segment.chunk_count() {
            let is_oldest = self.older.all_done();
            let entries = segment.save(index, self.epoch, is_oldest, &mut room, &self.spare);
            // After the chunk was read: its entries name bytes that are in the arena by then.
            let keys = segment.keys.all();
            for entry in entries {
                let Some((key, value)) = entry.get().filter(|(_, value)| !value.is_gone()) else {
                    continue;
                };
                let key = K::decode(K::Codec::load(key, keys));
                let value = value.wire(|from, n| segment.values.part(from, n));
                block.add::<K, V::Wire>(entry.hash(), key, value, out)?;
            }
        }
        self.let_go(segment);
        Ok(())
    }

    /// Lets the worker write a segment that no snapshot up to this one needs any more.
    fn let_go(&self, segment: &Segment<Slot<K>, V>) {
        if self.older.all_done() {
            segment.set_saved(self.epoch);
        }
    }
}

impl<K: Key, V: Value> fmt::Debug for TableSnapshot<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableSnapshot").field("epoch", &self.epoch).field("len", &self.len).finish()
    }
}

/// Collects entries to blocks.
struct BlockWriter {
    /// Zeros behind `at`; grows to a block's most bytes, so that a small table costs no more than it has.
    bytes: Scratch,
    at: usize,
    range: KeyGroupRange,
    groups: KeyGroups,
}

/// Room for a block's first entries.
const FIRST_BYTES: usize = 8 << 10;

const NO_GROUPS: KeyGroupRange = KeyGroupRange { first: u32::MAX, end: 0 };

impl BlockWriter {
    fn new(groups: KeyGroups) -> Self {
        let mut bytes = Scratch::with_capacity(BLOCK_BYTES_MAX + SPARE);
        bytes.resize(FIRST_BYTES + SPARE, 0);
        Self { bytes, at: 0, range: NO_GROUPS, groups }
    }

    #[inline(always)]
    fn add<K: Data, W: Data>(
        &mut self,
        hash: u64,
        key: K::Ref<'_>,
        value: W::Ref<'_>,
        out: &mut dyn FnMut(KeyGroupRange, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let n = frame_len::<K>(key) + frame_len::<W>(value);
        if self.bytes.len() < self.at + n + SPARE {
            self.make_room(n, out)?;
        }
        let key_bytes = put::<K>(&mut self.bytes, self.at, key).expect("there is room for both");
        let value_at = self.at + key_bytes;
        self.at = value_at + put::<W>(&mut self.bytes, value_at, value).expect("there is room");
        let group = self.groups.of(hash).0;
        self.range.first = self.range.first.min(group);
        self.range.end = self.range.end.max(group + 1);
        Ok(())
    }

    #[cold]
    fn make_room(
        &mut self,
        bytes: usize,
        out: &mut dyn FnMut(KeyGroupRange, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.at + bytes > BLOCK_BYTES_MAX {
            self.flush(out)?;
        }
        let wanted = self.at + bytes;
        if self.bytes.len() < wanted + SPARE {
            let doubled = (2 * self.bytes.len()).min(BLOCK_BYTES_MAX);
            self.bytes.resize(wanted.max(doubled) + SPARE, 0);
        }
        Ok(())
    }

    #[cold]
    fn flush(&mut self, out: &mut dyn FnMut(KeyGroupRange, &[u8]) -> Result<()>) -> Result<()> {
        if self.at > 0 {
            out(self.range, &self.bytes[..self.at])?;
            // Frames don't write their padding, so it has to be zero again.
            self.bytes[..self.at].fill(0);
            self.bytes.truncate(BLOCK_BYTES_MAX + SPARE);
        }
        (self.at, self.range) = (0, NO_GROUPS);
        Ok(())
    }
}

impl<K: Key, V: Value> WriteBlocks for TableSnapshot<K, V> {
    fn write(
        self: Box<Self>,
        out: &mut dyn FnMut(KeyGroupRange, &[u8]) -> Result<()>,
    ) -> Result<()> {
        (*self).write(out)
    }

    fn moment(&self) -> Option<TableMoment> {
        Some(TableMoment { table: self.table(), epoch: self.epoch() })
    }

    fn parts_since(&self, epoch: u32) -> Vec<Part> {
        self.changed_since(epoch)
    }

    fn write_since(
        self: Box<Self>,
        epoch: u32,
        out: &mut dyn FnMut(Part, &[u8]) -> Result<()>,
    ) -> Result<()> {
        (*self).write_since(epoch, out)
    }
}
