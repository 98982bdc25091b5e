//! The keyed state of one operator: declared by name and type, used under a current key.
//!
//! The registry owns the tables, so that the engine can snapshot and restore them; user code holds handles, which are
//! plain values. An access names the handle and the key, `states.at(hash, key).value(&count).get()`: nothing is borrowed
//! between two accesses, and nothing is checked at run time but the handle's type.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

use super::list::{ListAt, ListState, ListTable};
use super::map::{MapAt, MapState, MapTable};
use super::part::{PartKind, WriteBlocks};
use super::reduce::{Aggregate, AggregatingAt, AggregatingState, ReducingAt, ReducingState};
use super::single::{SingleTable, ValueAt, ValueState};
use super::timers::{TimerAt, TimerDomain, Timers};
use crate::clock::EpochMillis;
use crate::error::{Error, ErrorKind, Result};
use crate::record::codec::Codec;
use crate::record::key_group::{KeyGroupRange, KeyGroups};
use crate::record::{Data, Key};

/// Name and type of a state, as they are kept in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateInfo {
    /// The name, unique in its operator.
    pub name: String,
    /// What kind of state it is, and what its keys and values look like.
    pub shape: String,
}

impl StateInfo {
    /// How the state is filed: timers or other keyed state.
    pub(crate) fn kind(&self) -> PartKind {
        if self.shape.starts_with(TIMERS) { PartKind::Timers } else { PartKind::Keyed }
    }

    /// Name and shape as the name of a part of a snapshot.
    pub(crate) fn part_name(&self) -> String {
        format!("{}: {}", self.name, self.shape)
    }

    /// The state whose [`part_name`](Self::part_name) that is.
    pub(crate) fn of_part(part_name: &str) -> Option<Self> {
        // A name may contain the separator, a shape doesn't.
        let (name, shape) = part_name.rsplit_once(": ")?;
        Some(Self { name: name.to_owned(), shape: shape.to_owned() })
    }
}

/// What the shape of timers begins with.
const TIMERS: &str = "timers ";

/// Takes a state's index, the key groups of a block, and its bytes.
pub type StateOut<'o> = dyn FnMut(usize, KeyGroupRange, &[u8]) -> Result<()> + 'o;

/// One state's table, whatever its type.
pub(super) trait StateTable: Any + Send {
    /// What its snapshot consists of.
    fn snapshot(&mut self) -> Box<dyn WriteBlocks>;
    /// Puts back the entries of a block whose key group is in `range`, and makes room for those of `behind` bytes more.
    fn restore(&mut self, block: &[u8], range: KeyGroupRange, behind: u64) -> Result<()>;
    fn copied_chunks(&self) -> u64;
    fn bytes(&self) -> usize;
}

/// All keyed state of one operator on one subtask, with keys of type `K`.
pub struct KeyedStates<K> {
    groups: KeyGroups,
    infos: Vec<StateInfo>,
    tables: Vec<Box<dyn StateTable>>,
    timers: [usize; 2],
    of: PhantomData<fn() -> K>,
}

impl<K: Key> KeyedStates<K> {
    /// No state but timers.
    pub fn new(groups: KeyGroups) -> Self {
        let (infos, tables) = (Vec::new(), Vec::new());
        let mut states = Self { groups, infos, tables, timers: [0; 2], of: PhantomData };
        for domain in [TimerDomain::Event, TimerDomain::Processing] {
            states.timers[domain as usize] = states
                .add(domain.state_name(), shape_of::<K, ()>("timers"), Timers::<K>::new(groups))
                .expect("the first states have names of their own");
        }
        states
    }

    /// Declares a value for each key.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the operator has another state of that name; so for all kinds of state.
    pub fn value<V: Data>(&mut self, name: &str) -> Result<ValueState<V>> {
        let table = SingleTable::<K, V>::new(self.groups);
        Ok(ValueState::new(self.add(name, shape_of::<K, V>("value"), table)?))
    }

    /// Declares a list for each key.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn list<V: Data>(&mut self, name: &str) -> Result<ListState<V>> {
        let table = ListTable::<K, V>::new(self.groups);
        Ok(ListState::new(self.add(name, shape_of::<K, V>("list"), table)?))
    }

    /// Declares a map for each key.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn map<M: Key, V: Data>(&mut self, name: &str) -> Result<MapState<M, V>> {
        let table = MapTable::<K, M, V>::new(self.groups);
        Ok(MapState::new(self.add(name, shape_of::<K, (M, V)>("map"), table)?))
    }

    /// Declares a value for each key that `reduce` combines with what is added.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn reducing<V: Data, F: FnMut(V, V) -> V>(
        &mut self,
        name: &str,
        reduce: F,
    ) -> Result<ReducingState<V, F>> {
        let table = SingleTable::<K, V>::new(self.groups);
        Ok(ReducingState::new(self.add(name, shape_of::<K, V>("value"), table)?, reduce))
    }

    /// Declares an accumulator for each key.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn aggregating<A: Aggregate>(
        &mut self,
        name: &str,
        aggregate: A,
    ) -> Result<AggregatingState<A>> {
        let table = SingleTable::<K, A::Accumulator>::new(self.groups);
        let index = self.add(name, shape_of::<K, A::Accumulator>("value"), table)?;
        Ok(AggregatingState::new(index, aggregate))
    }

    /// Makes `key`, whose hash is `hash`, the current key.
    #[inline(always)]
    pub fn at<'s>(&'s mut self, hash: u64, key: K::Ref<'s>) -> AtKey<'s, K> {
        AtKey { states: self, hash, key }
    }

    /// The next timer that is due at `now`, removed: its key and time. Ask until there is none; between two, others may work.
    pub fn pop_due(&mut self, domain: TimerDomain, now: EpochMillis) -> Option<(K, EpochMillis)> {
        self.timers_mut(domain).pop_due(now)
    }

    /// When the next timer is due.
    pub fn next_due(&mut self, domain: TimerDomain) -> Option<EpochMillis> {
        self.timers_mut(domain).next_due()
    }

    /// Names and types of all states, in the order of their indices.
    pub fn infos(&self) -> &[StateInfo] {
        &self.infos
    }

    /// A snapshot of all states at this moment, to be written by another thread.
    pub fn snapshot(&mut self) -> KeyedSnapshot {
        let parts = self.tables.iter_mut().map(|table| table.snapshot()).collect();
        KeyedSnapshot { infos: self.infos.clone(), parts }
    }

    /// Puts back a block of the state that `info` names, as far as its key groups are in `range`, and makes room for what the
    /// `behind` bytes of its further blocks may hold.
    ///
    /// # Errors
    /// [`ErrorKind::Checkpoint`], naming the state, if it is not declared, has another type, or the block is broken.
    pub fn restore(
        &mut self,
        info: &StateInfo,
        block: &[u8],
        range: KeyGroupRange,
        behind: u64,
    ) -> Result<()> {
        let fail = |why: String| {
            Error::new(ErrorKind::Checkpoint, format!("state '{}' {why}", info.name))
                .in_field(&info.name)
        };
        let index =
            self.infos.iter().position(|known| known.name == info.name).ok_or_else(|| {
                fail("is in the checkpoint, but the operator doesn't declare it".into())
            })?;
        let declared = &self.infos[index].shape;
        if *declared != info.shape {
            return Err(fail(format!(
                "has another type than in the checkpoint: '{declared}' is declared, '{}' was written",
                info.shape
            )));
        }
        self.tables[index]
            .restore(block, range, behind)
            .map_err(|error| fail(format!("can't be restored: {error}")).caused_by(error))
    }

    /// How many chunks of memory were copied because a snapshot was being written.
    pub fn copied_chunks(&self) -> u64 {
        self.tables.iter().map(|table| table.copied_chunks()).sum()
    }

    /// Bytes of memory of all tables.
    pub fn bytes(&self) -> usize {
        self.tables.iter().map(|table| table.bytes()).sum()
    }

    fn add(&mut self, name: &str, shape: String, table: impl StateTable) -> Result<usize> {
        if self.infos.iter().any(|info| info.name == name) {
            return Err(Error::config(format!("the operator has two states named '{name}'")));
        }
        self.infos.push(StateInfo { name: name.to_owned(), shape });
        self.tables.push(Box::new(table));
        Ok(self.tables.len() - 1)
    }

    #[inline(always)]
    fn table<T: StateTable>(&mut self, index: usize) -> &mut T {
        let table: &mut dyn Any = &mut *self.tables[index];
        table.downcast_mut().expect("a handle is used with the operator that declared it")
    }

    fn timers_mut(&mut self, domain: TimerDomain) -> &mut Timers<K> {
        self.table(self.timers[domain as usize])
    }
}

impl<K> fmt::Debug for KeyedStates<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedStates").field("infos", &self.infos).finish()
    }
}

/// What a state of `kind` looks like in a checkpoint.
fn shape_of<K: Data, V: Data>(kind: &str) -> String {
    let mut shape = format!("{kind} ");
    K::Codec::shape(&mut shape);
    shape.push_str(" -> ");
    V::Codec::shape(&mut shape);
    shape
}

/// The state of the current key.
pub struct AtKey<'s, K: Key> {
    states: &'s mut KeyedStates<K>,
    hash: u64,
    key: K::Ref<'s>,
}

impl<'s, K: Key> AtKey<'s, K> {
    /// The current key.
    #[inline(always)]
    pub fn key(&self) -> K::Ref<'s> {
        self.key
    }

    /// The key's value.
    #[inline(always)]
    pub fn value<V: Data>(&mut self, state: &ValueState<V>) -> ValueAt<'_, K, V> {
        let key = K::shorten(self.key);
        ValueAt::new(self.states.table(state.index()), self.hash, key)
    }

    /// The key's list.
    #[inline(always)]
    pub fn list<V: Data>(&mut self, state: &ListState<V>) -> ListAt<'_, K, V> {
        let key = K::shorten(self.key);
        ListAt::new(self.states.table(state.index()), self.hash, key)
    }

    /// The key's map.
    #[inline(always)]
    pub fn map<M: Key, V: Data>(&mut self, state: &MapState<M, V>) -> MapAt<'_, K, M, V> {
        let key = K::shorten(self.key);
        MapAt::new(self.states.table(state.index()), self.hash, key)
    }

    /// The key's reduced value.
    #[inline(always)]
    pub fn reducing<'a, V: Data, F: FnMut(V, V) -> V>(
        &'a mut self,
        state: &'a mut ReducingState<V, F>,
    ) -> ReducingAt<'a, K, V, F> {
        let key = K::shorten(self.key);
        ReducingAt::new(
            ValueAt::new(self.states.table(state.index()), self.hash, key),
            &mut state.reduce,
        )
    }

    /// The key's accumulator.
    #[inline(always)]
    pub fn aggregating<'a, A: Aggregate>(
        &'a mut self,
        state: &'a mut AggregatingState<A>,
    ) -> AggregatingAt<'a, K, A> {
        let key = K::shorten(self.key);
        AggregatingAt::new(
            ValueAt::new(self.states.table(state.index()), self.hash, key),
            &mut state.aggregate,
        )
    }

    /// The key's timers.
    #[inline(always)]
    pub fn timers(&mut self, domain: TimerDomain) -> TimerAt<'_, K> {
        let key = K::shorten(self.key);
        TimerAt::new(self.states.timers_mut(domain), self.hash, key)
    }
}

impl<K: Key> fmt::Debug for AtKey<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AtKey {{ hash: {:#x} }}", self.hash)
    }
}

/// The keyed state of an operator at one moment.
pub struct KeyedSnapshot {
    infos: Vec<StateInfo>,
    parts: Vec<Box<dyn WriteBlocks>>,
}

impl KeyedSnapshot {
    /// Names and types of the states, in the order of the indices that `write` gives.
    pub fn infos(&self) -> &[StateInfo] {
        &self.infos
    }

    /// The states, each with what writes it.
    pub(crate) fn into_parts(self) -> impl Iterator<Item = (StateInfo, Box<dyn WriteBlocks>)> {
        self.infos.into_iter().zip(self.parts)
    }

    /// Writes all states to `out`, block by block.
    ///
    /// # Errors
    /// The first that `out` returns.
    pub fn write(self, out: &mut StateOut<'_>) -> Result<()> {
        for (index, part) in self.parts.into_iter().enumerate() {
            part.write(&mut |range, bytes| out(index, range, bytes))?;
        }
        Ok(())
    }
}

impl fmt::Debug for KeyedSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedSnapshot").field("infos", &self.infos).finish()
    }
}
