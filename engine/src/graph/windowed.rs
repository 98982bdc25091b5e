//! A keyed stream cut into windows, waiting for what to do with each.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::keyed_stream::KeyedStream;
use super::stream::Stream;
use crate::operator::{Chain, Inlet, KeyFn, Keyed};
use crate::record::{AsData, Data};
use crate::state::Value;
use crate::time::{Window, WindowAggregate, Windows};

/// A keyed stream in windows.
#[must_use = "a stream does nothing until it ends in a sink"]
pub struct Windowed<T: Data, C: Chain<Out = T>, F, E> {
    stream: KeyedStream<T, C, F>,
    windows: Windows,
    lateness: Duration,
    time: E,
}

impl<T: Data, C: Chain<Out = T>, F, E> fmt::Debug for Windowed<T, C, F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Windowed").field("windows", &self.windows).finish_non_exhaustive()
    }
}

impl<T, C, F, E> Windowed<T, C, F, E>
where
    T: Data,
    C: Chain<Out = T>,
    F: KeyFn<T>,
    E: for<'a> Fn(T::Ref<'a>) -> i64 + Clone + Send + 'static,
{
    pub(super) fn new(stream: KeyedStream<T, C, F>, windows: Windows, time: E) -> Self {
        Self { stream, windows, lateness: Duration::ZERO, time }
    }

    /// Windows stay that much longer after they have fired: a record that comes meanwhile updates its key's result, which is
    /// emitted again.
    pub fn allowed_lateness(mut self, lateness: Duration) -> Self {
        self.lateness = lateness;
        self
    }

    fn logic<A, R, G, H>(
        &self,
        name: &str,
        late: Option<usize>,
        init: A,
        add: G,
        finish: H,
    ) -> WindowAggregate<E, A, G, H, R> {
        WindowAggregate {
            name: name.to_owned(),
            windows: self.windows,
            lateness: i64::try_from(self.lateness.as_millis()).unwrap_or(i64::MAX),
            late,
            time: self.time.clone(),
            init,
            add,
            finish,
            of: PhantomData,
        }
    }

    /// Folds each key's records of a window; (key, window, what `finish` makes of the accumulator) comes out when the watermark has
    /// passed the window. Records that come too late are dropped and counted.
    pub fn aggregate<A, R, G, H>(
        self,
        name: &str,
        init: A,
        add: G,
        finish: H,
    ) -> Stream<(F::Key, Window, R::Data), Keyed<T, F, WindowAggregate<E, A, G, H, R>>>
    where
        A: Value,
        R: AsData + 'static,
        G: for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
        H: Fn(&A) -> R + Clone + Send + 'static,
    {
        let logic = self.logic(name, None, init, add, finish);
        self.stream.keyed(logic)
    }

    /// As [`aggregate`](Windowed::aggregate), but records that come too late go to the second stream.
    pub fn aggregate_with_late<A, R, G, H>(
        self,
        name: &str,
        init: A,
        add: G,
        finish: H,
    ) -> (
        Stream<(F::Key, Window, R::Data), Keyed<T, F, WindowAggregate<E, A, G, H, R>>>,
        Stream<T, Inlet<T>>,
    )
    where
        A: Value,
        R: AsData + 'static,
        G: for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
        H: Fn(&A) -> R + Clone + Send + 'static,
    {
        let graph = self.stream.stream.graph.clone();
        let id = graph.next_side_output();
        let logic = self.logic(name, Some(id), init, add, finish);
        (self.stream.keyed(logic), Stream { graph, chain: Inlet::new(id) })
    }

    /// Folds each key's records of a window into an accumulator, which comes out as it is.
    pub fn fold<A, G>(
        self,
        name: &str,
        init: A,
        add: G,
    ) -> Stream<(F::Key, Window, A), Keyed<T, F, WindowAggregate<E, A, G, fn(&A) -> A, A>>>
    where
        A: Data + Copy + Sync,
        G: for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
    {
        let same: fn(&A) -> A = |accumulator| *accumulator;
        self.aggregate(name, init, add, same)
    }

    /// Counts each key's records of a window.
    pub fn count(
        self,
        name: &str,
    ) -> Stream<(F::Key, Window, u64), impl Chain<Out = (F::Key, Window, u64)> + use<T, C, F, E>>
    {
        self.fold(name, 0u64, |n: &mut u64, _: T::Ref<'_>| *n += 1)
    }
}
