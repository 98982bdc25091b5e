//! Values that are combined with what is added: reduced with their own kind, or aggregated in an accumulator.

use std::fmt;
use std::marker::PhantomData;

use super::single::ValueAt;
use crate::record::{AsData, Data, Key};

/// A handle to a declared reducing state, with what combines two values.
pub struct ReducingState<V, F> {
    index: usize,
    pub(super) reduce: F,
    of: PhantomData<fn() -> V>,
}

impl<V, F> ReducingState<V, F> {
    pub(super) fn new(index: usize, reduce: F) -> Self {
        Self { index, reduce, of: PhantomData }
    }

    #[inline(always)]
    pub(super) fn index(&self) -> usize {
        self.index
    }
}

impl<V, F> fmt::Debug for ReducingState<V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReducingState {{ index: {} }}", self.index)
    }
}

/// The reduced value of the current key.
pub struct ReducingAt<'s, K: Key, V: Data, F> {
    value: ValueAt<'s, K, V>,
    reduce: &'s mut F,
}

impl<'s, K: Key, V: Data, F: FnMut(V, V) -> V> ReducingAt<'s, K, V, F> {
    pub(super) fn new(value: ValueAt<'s, K, V>, reduce: &'s mut F) -> Self {
        Self { value, reduce }
    }

    /// The value, if anything was added.
    pub fn get(&self) -> Option<V::Ref<'_>> {
        self.value.get()
    }

    /// Combines the value with another; the first is taken as it is.
    pub fn add(&mut self, other: impl AsData<Data = V>) {
        let next = match self.value.get() {
            Some(value) => (self.reduce)(V::own(value), V::own(other.view())),
            None => V::own(other.view()),
        };
        self.value.set(next);
    }

    /// Forgets the value.
    pub fn clear(&mut self) {
        self.value.clear();
    }
}

/// How values are aggregated: an accumulator, what adding does to it, and what it says.
pub trait Aggregate {
    /// What is added.
    type Input: Data;
    /// What is kept for each key.
    type Accumulator: Data;
    /// What it comes to.
    type Output;

    /// The accumulator of nothing.
    fn create(&self) -> Self::Accumulator;
    /// The accumulator with one more value.
    fn add(
        &mut self,
        accumulator: Self::Accumulator,
        value: <Self::Input as Data>::Ref<'_>,
    ) -> Self::Accumulator;
    /// What an accumulator comes to.
    fn result(&self, accumulator: <Self::Accumulator as Data>::Ref<'_>) -> Self::Output;
}

/// A handle to a declared aggregating state.
pub struct AggregatingState<A> {
    index: usize,
    pub(super) aggregate: A,
}

impl<A> AggregatingState<A> {
    pub(super) fn new(index: usize, aggregate: A) -> Self {
        Self { index, aggregate }
    }

    #[inline(always)]
    pub(super) fn index(&self) -> usize {
        self.index
    }
}

impl<A> fmt::Debug for AggregatingState<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AggregatingState {{ index: {} }}", self.index)
    }
}

/// The accumulator of the current key.
pub struct AggregatingAt<'s, K: Key, A: Aggregate> {
    value: ValueAt<'s, K, A::Accumulator>,
    aggregate: &'s mut A,
}

impl<'s, K: Key, A: Aggregate> AggregatingAt<'s, K, A> {
    pub(super) fn new(value: ValueAt<'s, K, A::Accumulator>, aggregate: &'s mut A) -> Self {
        Self { value, aggregate }
    }

    /// What was added comes to; `None` if nothing was.
    pub fn get(&self) -> Option<A::Output> {
        self.value.get().map(|accumulator| self.aggregate.result(accumulator))
    }

    /// Adds a value.
    pub fn add(&mut self, value: impl AsData<Data = A::Input>) {
        let accumulator =
            self.value.get().map_or_else(|| self.aggregate.create(), A::Accumulator::own);
        let next = self.aggregate.add(accumulator, value.view());
        self.value.set(next);
    }

    /// Forgets what was added.
    pub fn clear(&mut self) {
        self.value.clear();
    }
}

impl<K: Key, V: Data, F> fmt::Debug for ReducingAt<'_, K, V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReducingAt").finish_non_exhaustive()
    }
}

impl<K: Key, A: Aggregate> fmt::Debug for AggregatingAt<'_, K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AggregatingAt").finish_non_exhaustive()
    }
}
