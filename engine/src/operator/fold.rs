//! Running aggregations: each record updates its key's accumulator and what that makes comes out.

use std::marker::PhantomData;
use std::rc::Rc;

use super::keyed::{KeyedLogic, Logic};
use super::{Build, Op, Signal, Stage};
use crate::error::Result;
use crate::record::{AsData, Data, Key};
use crate::state::part::PartKind;
use crate::state::{Table, TableOptions, Value};

/// Above this a table's lines are fetched ahead: half of a typical L2.
const LARGE_BYTES: usize = 1 << 20;

/// The recipe of a running aggregation.
#[derive(Debug)]
pub struct Fold<A, G, H, R> {
    name: String,
    label: &'static str,
    init: A,
    add: G,
    finish: H,
    of: PhantomData<fn() -> R>,
}

impl<A, G, H, R> Fold<A, G, H, R> {
    pub(crate) fn new(name: &str, label: &'static str, init: A, add: G, finish: H) -> Self {
        Self { name: name.to_owned(), label, init, add, finish, of: PhantomData }
    }
}

impl<A: Clone, G: Clone, H: Clone, R> Clone for Fold<A, G, H, R> {
    fn clone(&self) -> Self {
        Self::new(&self.name, self.label, self.init.clone(), self.add.clone(), self.finish.clone())
    }
}

impl<K, T, A, G, H, R> KeyedLogic<K, T> for Fold<A, G, H, R>
where
    K: Key,
    T: Data,
    A: Value,
    G: for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
    H: Fn(&A) -> R + Clone + Send + 'static,
    R: AsData + 'static,
{
    type Out = (K, R::Data);
    type Logic = Folded<K, A, G, H, R>;

    fn make(self, build: &mut Build) -> Result<Self::Logic> {
        let mut table = Table::new(
            TableOptions { clock: build.nanos, ..TableOptions::new(build.key_groups) },
            self.init,
        );
        restore_table(&mut table, &self.name, STATE, build)?;
        Ok(Folded {
            name: self.name.into(),
            table,
            add: self.add,
            finish: self.finish,
            of: PhantomData,
        })
    }

    fn describe(&self, stage: &mut Stage) {
        stage.names.push(self.name.clone());
        stage.operators.push(format!("{} '{}'", self.label, self.name));
        stage.has_state = true;
    }
}

/// The name of the accumulators' state.
const STATE: &str = "accumulators";

/// Fills a table with what the restored checkpoint holds under `operator` and `state`.
pub(crate) fn restore_table<K: Key, V: Value>(
    table: &mut Table<K, V>,
    operator: &str,
    state: &str,
    build: &Build,
) -> Result<()> {
    let range = build.key_range();
    for part in build.restored_parts(operator) {
        if part.kind == PartKind::Keyed && part.name == state {
            let mut restore =
                |block: &[u8], behind| table.restore_first(block, range, behind).map(drop);
            part.each_block(range, &mut restore).map_err(|error| error.in_operator(operator))?;
        }
    }
    Ok(())
}

/// The operator.
#[derive(Debug)]
pub struct Folded<K: Key, A: Value, G, H, R> {
    name: Rc<str>,
    table: Table<K, A>,
    add: G,
    finish: H,
    of: PhantomData<fn() -> R>,
}

impl<K, T, A, G, H, R> Logic<K, T> for Folded<K, A, G, H, R>
where
    K: Key,
    T: Data,
    A: Value,
    G: for<'a> FnMut(&mut A, T::Ref<'a>) + 'static,
    H: Fn(&A) -> R + 'static,
    R: AsData + 'static,
{
    type Out = (K, R::Data);

    #[inline(always)]
    fn is_large(&self) -> bool {
        self.table.bytes() > LARGE_BYTES
    }

    #[inline(always)]
    fn prefetch(&self, hash: u64) {
        self.table.prefetch(hash);
    }

    #[inline(always)]
    fn apply<O: for<'x> FnMut(<Self::Out as Data>::Ref<'x>)>(
        &mut self,
        hash: u64,
        key: K::Ref<'_>,
        record: T::Ref<'_>,
        g: &mut O,
    ) {
        let accumulator = self.table.entry(hash, key);
        (self.add)(accumulator, record);
        g((K::shorten(key), (self.finish)(accumulator).view()));
    }

    #[inline(always)]
    fn apply_prefetched<O: for<'x> FnMut(<Self::Out as Data>::Ref<'x>)>(
        &mut self,
        hash: u64,
        key: K::Ref<'_>,
        record: T::Ref<'_>,
        g: &mut O,
    ) {
        let accumulator = self.table.entry_prefetched(hash, key);
        (self.add)(accumulator, record);
        g((K::shorten(key), (self.finish)(accumulator).view()));
    }

    fn copy_nanos(&self) -> u64 {
        self.table.copy_nanos()
    }

    fn signal<D: Op<Self::Out>>(&mut self, signal: &mut Signal<'_>, down: &mut D) -> Result<()> {
        if let Signal::Snapshot(snapshot) = signal {
            let blocks = Box::new(self.table.snapshot());
            snapshot.blocks(&self.name, PartKind::Keyed, STATE, blocks);
        }
        down.signal(signal)
    }
}
