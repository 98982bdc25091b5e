//! A stream with a key: what comes behind `key_by`.

use std::fmt;
use std::ops::AddAssign;

use super::stream::Stream;
use super::windowed::Windowed;
use crate::operator::{Chain, Fold, KeyFn, Keyed, KeyedLogic, PartitionByKey};
use crate::record::{AsData, Data};
use crate::state::Value;
use crate::time::Windows;

/// A stream whose records have a key: records of one key come to one subtask, in the order their producer sent them.
#[must_use = "a stream does nothing until it ends in a sink"]
pub struct KeyedStream<T: Data, C: Chain<Out = T>, F> {
    pub(super) stream: Stream<T, C>,
    pub(super) key: F,
}

impl<T: Data, C: Chain<Out = T>, F> fmt::Debug for KeyedStream<T, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedStream").finish_non_exhaustive()
    }
}

/// How an accumulator is shown without change.
fn same<A: Copy>(accumulator: &A) -> A {
    *accumulator
}

impl<T: Data, C: Chain<Out = T>, F: KeyFn<T>> KeyedStream<T, C, F> {
    /// How many records each key had so far; each record emits (key, count).
    pub fn count(
        self,
        name: &str,
    ) -> Stream<(F::Key, u64), impl Chain<Out = (F::Key, u64)> + use<T, C, F>> {
        self.keyed(Fold::new(
            name,
            "count",
            0u64,
            |n: &mut u64, _: T::Ref<'_>| *n += 1,
            same::<u64>,
        ))
    }

    /// The running sum of what `f` returns; each record emits (key, sum).
    pub fn sum<N, G>(
        self,
        name: &str,
        mut f: G,
    ) -> Stream<(F::Key, N), impl Chain<Out = (F::Key, N)> + use<T, C, F, N, G>>
    where
        N: Data + Copy + Sync + Default + AddAssign,
        G: for<'a> FnMut(T::Ref<'a>) -> N + Clone + Send + 'static,
    {
        let add = move |sum: &mut N, record: T::Ref<'_>| *sum += f(record);
        self.keyed(Fold::new(name, "sum", N::default(), add, same::<N>))
    }

    /// A running fold: each record updates its key's accumulator and emits (key, accumulator).
    pub fn fold<A, G>(
        self,
        name: &str,
        init: A,
        add: G,
    ) -> Stream<(F::Key, A), impl Chain<Out = (F::Key, A)> + use<T, C, F, A, G>>
    where
        A: Data + Copy + Sync,
        G: for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
    {
        self.keyed(Fold::new(name, "fold", init, add, same::<A>))
    }

    /// A running reduction of fixed-size records: the first record of a key is its value, each further one is combined with it.
    pub fn reduce<G>(
        self,
        name: &str,
        mut combine: G,
    ) -> Stream<(F::Key, T), impl Chain<Out = (F::Key, T)> + use<T, C, F, G>>
    where
        T: Copy + Sync,
        G: FnMut(T, T) -> T + Clone + Send + 'static,
    {
        let add = move |value: &mut Option<T>, record: T::Ref<'_>| {
            let record = T::own(record);
            *value = Some(match *value {
                Some(value) => combine(value, record),
                None => record,
            });
        };
        let finish = |value: &Option<T>| value.expect("a key's first record gives it a value");
        self.keyed(Fold::new(name, "reduce", None, add, finish))
    }

    /// A running fold that emits what `finish` makes of the accumulator.
    pub fn aggregate<A, R, G, H>(
        self,
        name: &str,
        init: A,
        add: G,
        finish: H,
    ) -> Stream<(F::Key, R::Data), impl Chain<Out = (F::Key, R::Data)> + use<T, C, F, A, R, G, H>>
    where
        A: Value,
        R: AsData + 'static,
        G: for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
        H: Fn(&A) -> R + Clone + Send + 'static,
    {
        self.keyed(Fold::new(name, "aggregate", init, add, finish))
    }

    /// Event-time windows: `time` is a record's event time in milliseconds since 1970. Watermarks come from
    /// [`Stream::watermarks`].
    pub fn window<E>(self, windows: Windows, time: E) -> Windowed<T, C, F, E>
    where
        E: for<'a> Fn(T::Ref<'a>) -> i64 + Clone + Send + 'static,
    {
        Windowed::new(self, windows, time)
    }

    /// Sends the records to the subtasks that own their keys, and begins a chain with a keyed operator there.
    pub(crate) fn keyed<L: KeyedLogic<F::Key, T>>(
        self,
        logic: L,
    ) -> Stream<L::Out, Keyed<T, F, L>> {
        let graph = self.stream.graph;
        let edge = graph.next_edge();
        graph.stage(self.stream.chain, PartitionByKey { edge, key: self.key.clone() });
        Stream { graph, chain: Keyed::new(edge, self.key, logic) }
    }
}
