//! What user code of a `process` gets to see: its states' declaration, the current key's state, and timers.

use std::fmt;

use crate::clock::EpochMillis;
use crate::error::Result;
use crate::record::{Data, Key};
use crate::state::{
    Aggregate, AggregatingAt, AggregatingState, AtKey, KeyedStates, ListAt, ListState, MapAt,
    MapState, ReducingAt, ReducingState, TimerDomain, ValueAt, ValueState,
};

/// Where an operator declares its states, each by a name that is unique in it and by its type.
///
/// Names and types are part of the operator's checkpoints: a restore refuses a state that has another type there, and one
/// that is there but not declared. A new one begins empty.
pub struct States<'s, K> {
    states: &'s mut KeyedStates<K>,
}

impl<'s, K: Key> States<'s, K> {
    pub(super) fn new(states: &'s mut KeyedStates<K>) -> Self {
        Self { states }
    }

    /// A value for each key.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) if there is another state of that name; so for all kinds of state.
    pub fn value<V: Data>(&mut self, name: &str) -> Result<ValueState<V>> {
        self.states.value(name)
    }

    /// A list for each key.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn list<V: Data>(&mut self, name: &str) -> Result<ListState<V>> {
        self.states.list(name)
    }

    /// A map for each key.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn map<M: Key, V: Data>(&mut self, name: &str) -> Result<MapState<M, V>> {
        self.states.map(name)
    }

    /// A value for each key that `reduce` combines with what is added.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn reducing<V: Data, F: FnMut(V, V) -> V>(
        &mut self,
        name: &str,
        reduce: F,
    ) -> Result<ReducingState<V, F>> {
        self.states.reducing(name, reduce)
    }

    /// An accumulator for each key.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn aggregating<A: Aggregate>(
        &mut self,
        name: &str,
        aggregate: A,
    ) -> Result<AggregatingState<A>> {
        self.states.aggregating(name, aggregate)
    }
}

impl<K> fmt::Debug for States<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.states.fmt(f)
    }
}

/// A timer that fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// Which clock it waited for.
    pub domain: TimerDomain,
    /// The moment it was set for.
    pub time: EpochMillis,
}

/// The current key, its state and timers, and the clocks.
///
/// Each access names the state by its handle, `cx.value(&self.count).get()`, and borrows the context only as long as what it
/// returns is used.
pub struct Context<'c, K: Key> {
    pub(super) at: AtKey<'c, K>,
    pub(super) watermark: EpochMillis,
    pub(super) processing_time: EpochMillis,
}

impl<'c, K: Key> Context<'c, K> {
    /// The key of the record or timer.
    #[inline(always)]
    pub fn key(&self) -> K::Ref<'c> {
        self.at.key()
    }

    /// The key's value.
    #[inline(always)]
    pub fn value<V: Data>(&mut self, state: &ValueState<V>) -> ValueAt<'_, K, V> {
        self.at.value(state)
    }

    /// The key's list.
    #[inline(always)]
    pub fn list<V: Data>(&mut self, state: &ListState<V>) -> ListAt<'_, K, V> {
        self.at.list(state)
    }

    /// The key's map.
    #[inline(always)]
    pub fn map<M: Key, V: Data>(&mut self, state: &MapState<M, V>) -> MapAt<'_, K, M, V> {
        self.at.map(state)
    }

    /// The key's reduced value.
    #[inline(always)]
    pub fn reducing<'a, V: Data, F: FnMut(V, V) -> V>(
        &'a mut self,
        state: &'a mut ReducingState<V, F>,
    ) -> ReducingAt<'a, K, V, F> {
        self.at.reducing(state)
    }

    /// The key's accumulator.
    #[inline(always)]
    pub fn aggregating<'a, A: Aggregate>(
        &'a mut self,
        state: &'a mut AggregatingState<A>,
    ) -> AggregatingAt<'a, K, A> {
        self.at.aggregating(state)
    }

    /// How far event time has come: no record that follows is older, except late ones. [`EpochMillis::MIN`] until something
    /// is known, [`EpochMillis::MAX`] at the end of a finite input.
    pub fn watermark(&self) -> EpochMillis {
        self.watermark
    }

    /// The wall clock: when the batch of the record or timer began. It moves with the job's monotonic clock, so it never goes
    /// back while the job runs.
    pub fn processing_time(&self) -> EpochMillis {
        self.processing_time
    }

    /// Sets a timer of the key that fires when the watermark reaches `time`; one that lies behind it fires with the next
    /// watermark. However often a timer is set, it fires once.
    pub fn set_event_timer(&mut self, time: EpochMillis) {
        self.at.timers(TimerDomain::Event).set(time);
    }

    /// Removes the key's event-time timer for `time`, if it is set.
    pub fn remove_event_timer(&mut self, time: EpochMillis) {
        self.at.timers(TimerDomain::Event).remove(time);
    }

    /// Sets a timer of the key that fires when the wall clock shows `time`, soon if it is past. However often a timer is set,
    /// it fires once. After a restart those that are overdue fire at once; after the end of the input none fires.
    pub fn set_processing_timer(&mut self, time: EpochMillis) {
        self.at.timers(TimerDomain::Processing).set(time);
    }

    /// Removes the key's processing-time timer for `time`, if it is set.
    pub fn remove_processing_timer(&mut self, time: EpochMillis) {
        self.at.timers(TimerDomain::Processing).remove(time);
    }
}

impl<K: Key> fmt::Debug for Context<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("watermark", &self.watermark)
            .field("processing_time", &self.processing_time)
            .finish_non_exhaustive()
    }
}
