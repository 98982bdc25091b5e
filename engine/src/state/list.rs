//! A list of values for each key; adding one is cheap.

use std::fmt;
use std::marker::PhantomData;

use super::keyed::StateTable;
use super::part::WriteBlocks;
use super::table::{Table, TableOptions};
use super::value::Blob;
use crate::error::Result;
use crate::record::codec::{BadFrame, Frames, append, check_frame};
use crate::record::key_group::{KeyGroupRange, KeyGroups};
use crate::record::{AsData, Data, Key};

/// A handle to a declared list state.
#[derive(Debug)]
pub struct ListState<V> {
    index: usize,
    of: PhantomData<fn() -> V>,
}

impl<V> Clone for ListState<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for ListState<V> {}

impl<V> ListState<V> {
    pub(super) fn new(index: usize) -> Self {
        Self { index, of: PhantomData }
    }

    #[inline(always)]
    pub(super) fn index(self) -> usize {
        self.index
    }
}

/// Lists as frames one after the other.
pub(super) struct ListTable<K: Key, V> {
    table: Table<K, Blob>,
    /// Where frames are made.
    scratch: Vec<u8>,
    of: PhantomData<fn() -> V>,
}

impl<K: Key, V: Data> ListTable<K, V> {
    pub(super) fn new(groups: KeyGroups) -> Self {
        const { assert!(size_of::<V>() > 0, "a list of nothing has no length") };
        let table = Table::new(TableOptions::new(groups), Blob::default());
        Self { table, scratch: Vec::new(), of: PhantomData }
    }
}

impl<K: Key, V: Data> StateTable for ListTable<K, V> {
    fn snapshot(&mut self) -> Box<dyn WriteBlocks> {
        Box::new(self.table.snapshot())
    }

    fn restore(&mut self, block: &[u8], range: KeyGroupRange, behind: u64) -> Result<()> {
        let check = |mut bytes: &[u8]| {
            while !bytes.is_empty() {
                let n = check_frame::<V>(bytes)?;
                bytes = if n == 0 { return Err(BadFrame::Short) } else { &bytes[n..] };
            }
            Ok(())
        };
        self.table
            .restore_with(block, range, behind, Table::<K, Blob>::hash, check, |_, _, _| {})
            .map(drop)
    }

    fn copied_chunks(&self) -> u64 {
        self.table.copied_chunks()
    }

    fn bytes(&self) -> usize {
        self.table.bytes()
    }
}

/// The list of the current key.
pub struct ListAt<'s, K: Key, V> {
    state: &'s mut ListTable<K, V>,
    hash: u64,
    key: K::Ref<'s>,
}

impl<'s, K: Key, V: Data> ListAt<'s, K, V> {
    #[inline(always)]
    pub(super) fn new(state: &'s mut ListTable<K, V>, hash: u64, key: K::Ref<'s>) -> Self {
        Self { state, hash, key }
    }

    /// The values in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = V::Ref<'_>> {
        let bytes = self.state.table.bytes_of(self.hash, self.key).unwrap_or(&[]);
        let mut frames = Frames::<V>::new(bytes, 0);
        std::iter::from_fn(move || frames.next_frame().map(|frame| frame.read()))
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.state.table.bytes_of(self.hash, self.key).is_none_or(<[u8]>::is_empty)
    }

    /// Adds a value at the end.
    pub fn add(&mut self, value: impl AsData<Data = V>) {
        self.state.scratch.clear();
        append::<V>(&mut self.state.scratch, value.view());
        self.state.table.append_bytes(self.hash, self.key, &self.state.scratch);
    }

    /// Puts these values in place of all that were there.
    pub fn set<R: AsData<Data = V>>(&mut self, values: impl IntoIterator<Item = R>) {
        self.state.scratch.clear();
        for value in values {
            append::<V>(&mut self.state.scratch, value.view());
        }
        self.state.table.set_bytes(self.hash, self.key, &self.state.scratch);
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.state.table.remove(self.hash, self.key);
    }
}

impl<K: Key, V> fmt::Debug for ListAt<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListAt").finish_non_exhaustive()
    }
}
