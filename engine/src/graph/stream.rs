//! Streams: what users write jobs with.

use std::fmt;

use super::keyed_stream::KeyedStream;
use super::stages::Graph;
use crate::error::{BoxError, Error, ErrorKind};
use crate::operator::{
    AfterCommit, BorrowedKey, Boxed, Broadcast, Chain, Exchange, Filter, FlatMap, Inlet, Inspect,
    IntoSink, KeyFn, Map, MapRef, OnError, OwnedKey, Parallel, Rebalance, Split, Union, fail,
};
use crate::record::{AsData, Data, Key, Output};
use crate::sink::Sink;
use crate::time::{AssignWatermarks, Watermarks};

/// A stream of `T`, as far as it has been written down.
///
/// Operators up to the next exchange (`key_by`, `rebalance`, `broadcast`) form one chain, compiled into one function. Two streams of
/// one record type have different chain types, so `.boxed()` both to put them into a `Vec` or the arms of an `if`. A stream is used
/// once: to read it twice, [`split`](Stream::split) it. Closures are cloned for each subtask: what they capture is counted and
/// changed per subtask, and is no state: it is not in checkpoints.
#[must_use = "a stream does nothing until it ends in a sink"]
pub struct Stream<T: Data, C: Chain<Out = T>> {
    pub(super) graph: Graph,
    pub(super) chain: C,
}

/// A stream whose chain's type has been forgotten.
pub type BoxStream<T> = Stream<T, Boxed<T>>;

impl<T: Data, C: Chain<Out = T>> fmt::Debug for Stream<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl<T: Data, C: Chain<Out = T>> Stream<T, C> {
    fn then<N: Chain>(self, f: impl FnOnce(C) -> N) -> Stream<N::Out, N> {
        Stream { graph: self.graph, chain: f(self.chain) }
    }

    /// Each record becomes what `f` returns: owned, its record type inferred.
    ///
    /// A result that borrows from the record is for [`map_ref`](Stream::map_ref), or emit it with
    /// [`flat_map`](Stream::flat_map).
    pub fn map<R: AsData + 'static, F>(self, f: F) -> Stream<R::Data, Map<C, F, R>>
    where
        F: for<'a> FnMut(T::Ref<'a>) -> R + Clone + Send + 'static,
    {
        self.then(|up| Map::new(up, f))
    }

    /// Each record becomes what `f` borrows from it; its type is named: `map_ref::<String>(|line| line.trim())`.
    pub fn map_ref<U: Data>(
        self,
        f: impl for<'a> FnMut(&'a T::Ref<'a>) -> U::Ref<'a> + Clone + Send + 'static,
    ) -> Stream<U, impl Chain<Out = U>> {
        self.then(|up| MapRef::new(up, f))
    }

    /// Lets through the records for which `f` is true.
    pub fn filter<F>(self, f: F) -> Stream<T, Filter<C, F>>
    where
        F: for<'a> FnMut(T::Ref<'a>) -> bool + Clone + Send + 'static,
    {
        self.then(|up| Filter { up, f })
    }

    /// Each record becomes what `f` emits: none, one or many.
    ///
    /// An integer literal is an `i32` to the compiler: write `out.emit((word, 1u64))`.
    pub fn flat_map<U: Data, F>(self, f: F) -> Stream<U, FlatMap<C, F, U>>
    where
        F: for<'a, 'o, 'p> FnMut(T::Ref<'a>, &'p mut Output<'o, U>) + Clone + Send + 'static,
    {
        self.then(|up| FlatMap::new(up, f, "flat_map"))
    }

    /// Shows each record to `f` and passes it on.
    pub fn inspect<F>(self, f: F) -> Stream<T, Inspect<C, F>>
    where
        F: for<'a> FnMut(T::Ref<'a>) + Clone + Send + 'static,
    {
        self.then(|up| Inspect { up, f })
    }

    /// As [`map`](Stream::map), but `f` may fail (`?` works in it): an error fails the task.
    pub fn try_map<R: AsData + 'static, F>(
        self,
        f: F,
    ) -> Stream<R::Data, impl Chain<Out = R::Data> + use<R, F, T, C>>
    where
        F: for<'a> FnMut(T::Ref<'a>) -> Result<R, BoxError> + Clone + Send + 'static,
    {
        self.try_map_or(OnError::Fail, f)
    }

    /// As [`map`](Stream::map), but `f` may fail: `policy` says what becomes of the record then.
    pub fn try_map_or<R: AsData + 'static, F>(
        self,
        policy: OnError,
        mut f: F,
    ) -> Stream<R::Data, impl Chain<Out = R::Data> + use<R, F, T, C>>
    where
        F: for<'a> FnMut(T::Ref<'a>) -> Result<R, BoxError> + Clone + Send + 'static,
    {
        let emit = move |record: T::Ref<'_>, out: &mut Output<'_, R::Data>| match f(record) {
            Ok(result) => out.emit(result),
            Err(error) => failed(&policy, "try_map", error),
        };
        self.then(|up| FlatMap::new(up, emit, "try_map"))
    }

    /// As [`map`](Stream::map), but `f` may fail: such records go to the second stream, each with its error's text.
    pub fn try_map_split<R: AsData + 'static, F>(
        self,
        mut f: F,
    ) -> (
        Stream<R::Data, impl Chain<Out = R::Data> + use<R, F, T, C>>,
        Stream<(T, String), Inlet<(T, String)>>,
    )
    where
        F: for<'a> FnMut(T::Ref<'a>) -> Result<R, BoxError> + Clone + Send + 'static,
    {
        self.split(
            move |record: T::Ref<'_>,
                  good: &mut Output<'_, R::Data>,
                  bad: &mut Output<'_, (T, String)>| match f(record) {
                Ok(result) => good.emit(result),
                Err(error) => aside::<T>(record, error, bad),
            },
        )
    }

    /// As [`filter`](Stream::filter), but `f` may fail: an error fails the task.
    pub fn try_filter<F>(self, f: F) -> Stream<T, impl Chain<Out = T> + use<F, T, C>>
    where
        F: for<'a> FnMut(T::Ref<'a>) -> Result<bool, BoxError> + Clone + Send + 'static,
    {
        self.try_filter_or(OnError::Fail, f)
    }

    /// As [`filter`](Stream::filter), but `f` may fail: `policy` says what becomes of the record then.
    pub fn try_filter_or<F>(
        self,
        policy: OnError,
        mut f: F,
    ) -> Stream<T, impl Chain<Out = T> + use<F, T, C>>
    where
        F: for<'a> FnMut(T::Ref<'a>) -> Result<bool, BoxError> + Clone + Send + 'static,
    {
        let emit = move |record: T::Ref<'_>, out: &mut Output<'_, T>| match f(record) {
            Ok(true) => out.emit_ref(record),
            Ok(false) => {}
            Err(error) => failed(&policy, "try_filter", error),
        };
        self.then(|up| FlatMap::new(up, emit, "try_filter"))
    }

    /// As [`filter`](Stream::filter), but `f` may fail: such records go to the second stream, each with its error's text.
    pub fn try_filter_split<F>(
        self,
        mut f: F,
    ) -> (Stream<T, impl Chain<Out = T> + use<F, T, C>>, Stream<(T, String), Inlet<(T, String)>>)
    where
        F: for<'a> FnMut(T::Ref<'a>) -> Result<bool, BoxError> + Clone + Send + 'static,
    {
        self.split(
            move |record: T::Ref<'_>,
                  good: &mut Output<'_, T>,
                  bad: &mut Output<'_, (T, String)>| match f(record) {
                Ok(true) => good.emit_ref(record),
                Ok(false) => {}
                Err(error) => aside::<T>(record, error, bad),
            },
        )
    }

    /// As [`flat_map`](Stream::flat_map), but `f` may fail: an error fails the task.
    pub fn try_flat_map<U: Data, F>(self, f: F) -> Stream<U, impl Chain<Out = U> + use<U, F, T, C>>
    where
        F: for<'a, 'o, 'p> FnMut(T::Ref<'a>, &'p mut Output<'o, U>) -> Result<(), BoxError>
            + Clone
            + Send
            + 'static,
    {
        self.try_flat_map_or(OnError::Fail, f)
    }

    /// As [`flat_map`](Stream::flat_map), but `f` may fail: such records go to the second stream, each with its error's text. What
    /// `f` has emitted before goes on.
    pub fn try_flat_map_split<U: Data, F>(
        self,
        mut f: F,
    ) -> (Stream<U, impl Chain<Out = U> + use<U, F, T, C>>, Stream<(T, String), Inlet<(T, String)>>)
    where
        F: for<'a, 'o, 'p> FnMut(T::Ref<'a>, &'p mut Output<'o, U>) -> Result<(), BoxError>
            + Clone
            + Send
            + 'static,
    {
        self.split(
            move |record: T::Ref<'_>,
                  good: &mut Output<'_, U>,
                  bad: &mut Output<'_, (T, String)>| {
                if let Err(error) = f(record, good) {
                    aside::<T>(record, error, bad);
                }
            },
        )
    }

    /// As [`flat_map`](Stream::flat_map), but `f` may fail: `policy` says what becomes of the record then. What it has emitted
    /// before goes on.
    pub fn try_flat_map_or<U: Data, F>(
        self,
        policy: OnError,
        mut f: F,
    ) -> Stream<U, impl Chain<Out = U> + use<U, F, T, C>>
    where
        F: for<'a, 'o, 'p> FnMut(T::Ref<'a>, &'p mut Output<'o, U>) -> Result<(), BoxError>
            + Clone
            + Send
            + 'static,
    {
        let emit = move |record: T::Ref<'_>, out: &mut Output<'_, U>| {
            if let Err(error) = f(record, out) {
                failed(&policy, "try_flat_map", error);
            }
        };
        self.then(|up| FlatMap::new(up, emit, "try_flat_map"))
    }

    /// One closure, two outputs: this stream goes on with the first, the second is a stream of its own (a side output).
    pub fn split<U: Data, S: Data, F>(
        self,
        f: F,
    ) -> (Stream<U, Split<C, F, U, S>>, Stream<S, Inlet<S>>)
    where
        F: for<'a, 'o, 'p> FnMut(T::Ref<'a>, &'p mut Output<'o, U>, &'p mut Output<'o, S>)
            + Clone
            + Send
            + 'static,
    {
        let id = self.graph.next_side_output();
        let side = Stream { graph: self.graph.clone(), chain: Inlet::new(id) };
        (self.then(|up| Split::new(up, f, id)), side)
    }

    /// The records of both, in no particular order.
    pub fn union<B: Chain<Out = T>>(self, other: Stream<T, B>) -> Stream<T, Union<C, B>> {
        self.then(|up| Union(up, other.chain))
    }

    /// Forgets the chain's type, for one copy of each record and one `dyn` call a batch.
    pub fn boxed(self) -> BoxStream<T> {
        self.then(Boxed::new)
    }

    /// Makes watermarks of the records' event times: milliseconds since 1970, as `time` finds them.
    pub fn watermarks<E>(self, watermarks: Watermarks, time: E) -> Stream<T, AssignWatermarks<C, E>>
    where
        E: for<'a> Fn(T::Ref<'a>) -> i64 + Clone + Send + 'static,
    {
        self.then(|up| AssignWatermarks { up, time, watermarks })
    }

    /// Holds each record back until the checkpoint that covers it is complete: for what must not be seen before, such as messages
    /// that something was committed. The name is unique in the job; what is held is filed under it in checkpoints.
    ///
    /// A commit emits all that its checkpoint covers at once, however many records that are (up to `emission.max-bytes`); the
    /// watermark waits with them. A sink, or another `after_commit`, needs an exchange between: what goes on with a job's last
    /// checkpoint is committed with one more. For the same reason the job can't be stopped with a savepoint that drains it, and one
    /// that doesn't may be given up after `checkpoint.timeout` if some sources have ended before. Without
    /// checkpoints records go on at the end.
    ///
    /// ```
    /// use tidegate::{Job, sink, source};
    ///
    /// let mut job = Job::new("announced");
    /// job.config_mut().checkpoint.interval = Some(std::time::Duration::from_secs(3600));
    /// let (announced, found) = sink::collect();
    /// job.source("numbers", source::range(0..10))
    ///     .after_commit("written")
    ///     .rebalance()
    ///     .sink("announced", announced);
    /// job.run()?;
    /// assert_eq!(found.take().len(), 10);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn after_commit(self, name: &str) -> Stream<T, AfterCommit<C>> {
        self.then(|up| AfterCommit { up, name: name.to_owned() })
    }

    /// How many subtasks this chain runs in; by default the job's parallelism.
    pub fn with_parallelism(self, parallelism: u32) -> Stream<T, Parallel<C>> {
        self.then(|up| Parallel { up, parallelism })
    }

    /// Spreads the records evenly over the subtasks of what follows.
    pub fn rebalance(self) -> Stream<T, Exchange<T>> {
        let edge = self.graph.next_edge();
        self.graph.stage(self.chain, Rebalance { edge });
        Stream { graph: self.graph, chain: Exchange::new(edge) }
    }

    /// Sends each record to every subtask of what follows.
    pub fn broadcast(self) -> Stream<T, Exchange<T>> {
        let edge = self.graph.next_edge();
        self.graph.stage(self.chain, Broadcast { edge });
        Stream { graph: self.graph, chain: Exchange::new(edge) }
    }

    /// By an owned key, whose type is inferred: a number, a tuple, a `String` made for it.
    pub fn key_by<R, F>(self, f: F) -> KeyedStream<T, C, OwnedKey<F, R>>
    where
        R: AsData<Data: Key> + 'static,
        F: for<'a> Fn(T::Ref<'a>) -> R + Clone + Send + 'static,
    {
        KeyedStream { stream: self, key: OwnedKey::new(f) }
    }

    /// By a key borrowed from the record; its type is named: `key_by_ref::<String>(|word| *word)`.
    pub fn key_by_ref<K: Key>(
        self,
        f: impl for<'a> Fn(&'a T::Ref<'a>) -> K::Ref<'a> + Clone + Send + 'static,
    ) -> KeyedStream<T, C, impl KeyFn<T, Key = K>> {
        KeyedStream { stream: self, key: BorrowedKey::<_, K>::new(f) }
    }

    /// Ends the stream in a sink. The name is unique in the job; what is prepared is filed under it in checkpoints.
    pub fn sink<K: Sink<T>>(self, name: &str, sink: K) {
        self.graph.stage(self.chain, IntoSink { name: name.to_owned(), sink });
    }
}

/// Sends a failed record to a side output, with what its error says.
#[cold]
fn aside<T: Data>(record: T::Ref<'_>, error: BoxError, bad: &mut Output<'_, (T, String)>) {
    let error = error.to_string();
    bad.emit_ref((T::shorten(record), error.as_str()));
}

/// Does with a failed record what the policy says.
#[cold]
fn failed(policy: &OnError, what: &str, error: BoxError) {
    match policy {
        OnError::Fail => {
            let message = format!("{what}: {error}");
            fail(Error::new(ErrorKind::User, message).caused_by(error))
        }
        OnError::SkipAndCount(counter) => counter.add(1),
    }
}
