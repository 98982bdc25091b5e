//! One value for each key.

use std::fmt;
use std::marker::PhantomData;

use super::keyed::StateTable;
use super::part::WriteBlocks;
use super::table::{Table, TableOptions};
use super::value::Blob;
use crate::error::Result;
use crate::record::codec::{append, check_frame, read_frame};
use crate::record::key_group::{KeyGroupRange, KeyGroups};
use crate::record::{AsData, Data, Key};

/// A handle to a declared value state.
#[derive(Debug)]
pub struct ValueState<V> {
    index: usize,
    of: PhantomData<fn() -> V>,
}

impl<V> Clone for ValueState<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for ValueState<V> {}

impl<V> ValueState<V> {
    pub(super) fn new(index: usize) -> Self {
        Self { index, of: PhantomData }
    }

    #[inline(always)]
    pub(super) fn index(self) -> usize {
        self.index
    }
}

/// Values as frames.
pub(super) struct SingleTable<K: Key, V> {
    table: Table<K, Blob>,
    /// Where a frame is made.
    scratch: Vec<u8>,
    of: PhantomData<fn() -> V>,
}

impl<K: Key, V: Data> SingleTable<K, V> {
    pub(super) fn new(groups: KeyGroups) -> Self {
        let table = Table::new(TableOptions::new(groups), Blob::default());
        Self { table, scratch: Vec::new(), of: PhantomData }
    }
}

impl<K: Key, V: Data> StateTable for SingleTable<K, V> {
    fn snapshot(&mut self) -> Box<dyn WriteBlocks> {
        Box::new(self.table.snapshot())
    }

    fn restore(&mut self, block: &[u8], range: KeyGroupRange, behind: u64) -> Result<()> {
        let check = |bytes: &[u8]| check_frame::<V>(bytes).map(drop);
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

/// The value of the current key.
pub struct ValueAt<'s, K: Key, V> {
    state: &'s mut SingleTable<K, V>,
    hash: u64,
    key: K::Ref<'s>,
}

impl<'s, K: Key, V: Data> ValueAt<'s, K, V> {
    #[inline(always)]
    pub(super) fn new(state: &'s mut SingleTable<K, V>, hash: u64, key: K::Ref<'s>) -> Self {
        Self { state, hash, key }
    }

    /// The value, read in place.
    pub fn get(&self) -> Option<V::Ref<'_>> {
        self.state.table.bytes_of(self.hash, self.key).map(read_frame::<V>)
    }

    /// Sets the value.
    pub fn set(&mut self, value: impl AsData<Data = V>) {
        self.state.scratch.clear();
        append::<V>(&mut self.state.scratch, value.view());
        self.state.table.set_bytes(self.hash, self.key, &self.state.scratch);
    }

    /// Sets the value to what `f` makes of it.
    pub fn update<R: AsData<Data = V>>(&mut self, f: impl FnOnce(Option<V::Ref<'_>>) -> R) {
        let next = f(self.get());
        self.set(next);
    }

    /// Removes the value.
    pub fn clear(&mut self) {
        self.state.table.remove(self.hash, self.key);
    }
}

impl<K: Key, V> fmt::Debug for ValueAt<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueAt").finish_non_exhaustive()
    }
}
