//! What a keyed stream does with typed state: `process`, and folds whose accumulators are of any size.

use super::keyed_stream::KeyedStream;
use super::stream::Stream;
use crate::error::{BoxError, Result};
use crate::operator::{Chain, Context, Each, KeyFn, OnError, Process, Processing, States};
use crate::record::{AsData, Data, Output};
use crate::state::ValueState;

impl<T: Data, C: Chain<Out = T>, F: KeyFn<T>> KeyedStream<T, C, F> {
    /// User code with keyed state and timers: see [`Process`]. `open` declares the states and makes the user's `Process` with their
    /// handles; it is called for each subtask, and once to check the job. An error of the user code fails the task.
    pub fn process<P, O>(
        self,
        name: &str,
        open: O,
    ) -> Stream<P::Out, impl Chain<Out = P::Out> + use<T, C, F, P, O>>
    where
        P: Process<F::Key, T>,
        O: for<'s, 'p> Fn(&'p mut States<'s, F::Key>) -> Result<P> + Clone + Send + Sync + 'static,
    {
        self.process_or(name, OnError::Fail, open)
    }

    /// As [`process`](KeyedStream::process); `policy` says what becomes of a record or timer whose call returns an error. What the
    /// call has emitted goes on, and what it has done to the state stays.
    pub fn process_or<P, O>(
        self,
        name: &str,
        policy: OnError,
        open: O,
    ) -> Stream<P::Out, impl Chain<Out = P::Out> + use<T, C, F, P, O>>
    where
        P: Process<F::Key, T>,
        O: for<'s, 'p> Fn(&'p mut States<'s, F::Key>) -> Result<P> + Clone + Send + Sync + 'static,
    {
        self.keyed(Processing::new(name, "process", policy, open.clone()).checked(open))
    }

    /// As [`process`](KeyedStream::process) with a closure, for code without timers: `declare` returns the handles of its states, and
    /// `f` gets them with each record.
    ///
    /// ```
    /// use tidegate::{Job, sink, source};
    ///
    /// let job = Job::new("distinct");
    /// let (distinct, found) = sink::collect();
    /// job.source("numbers", source::generate(100, |i| i * i % 10))
    ///     .key_by(|n| n)
    ///     .process_each(
    ///         "first",
    ///         |states| states.value::<bool>("seen"),
    ///         |seen, n, cx, out| {
    ///             if cx.value(seen).get().is_none() {
    ///                 cx.value(seen).set(true);
    ///                 out.emit(n);
    ///             }
    ///             Ok(())
    ///         },
    ///     )
    ///     .sink("found", distinct);
    /// job.run()?;
    /// let mut found = found.take();
    /// found.sort();
    /// assert_eq!(found, [0, 1, 4, 5, 6, 9]);
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn process_each<H, U, D, G>(
        self,
        name: &str,
        declare: D,
        f: G,
    ) -> Stream<U, impl Chain<Out = U> + use<T, C, F, H, U, D, G>>
    where
        H: 'static,
        U: Data,
        D: for<'s, 'p> Fn(&'p mut States<'s, F::Key>) -> Result<H> + Clone + Send + Sync + 'static,
        G: for<'h, 'a, 'c, 'o, 'p, 'q> FnMut(
                &'h mut H,
                T::Ref<'a>,
                &'p mut Context<'c, F::Key>,
                &'q mut Output<'o, U>,
            ) -> Result<(), BoxError>
            + Clone
            + Send
            + 'static,
    {
        self.each(name, "process", declare, f)
    }

    fn each<H, U, D, G>(
        self,
        name: &str,
        label: &'static str,
        declare: D,
        f: G,
    ) -> Stream<U, impl Chain<Out = U> + use<T, C, F, H, U, D, G>>
    where
        H: 'static,
        U: Data,
        D: for<'s, 'p> Fn(&'p mut States<'s, F::Key>) -> Result<H> + Clone + Send + Sync + 'static,
        G: for<'h, 'a, 'c, 'o, 'p, 'q> FnMut(
                &'h mut H,
                T::Ref<'a>,
                &'p mut Context<'c, F::Key>,
                &'q mut Output<'o, U>,
            ) -> Result<(), BoxError>
            + Clone
            + Send
            + 'static,
    {
        let check = declare.clone();
        let open = move |states: &mut States<'_, F::Key>| {
            declare(states).map(|handles| Each::<H, G, U>::new(handles, f.clone()))
        };
        self.keyed(Processing::new(name, label, OnError::Fail, open).checked(check))
    }

    /// As [`reduce`](KeyedStream::reduce) for records of any size: strings, lists, derived types that hold such. The value is written
    /// anew with each record, so what grows without bound is better kept in a list state: see [`process`](KeyedStream::process).
    ///
    /// ```
    /// use tidegate::{Job, sink, source};
    ///
    /// let job = Job::new("greatest");
    /// let (greatest, found) = sink::collect();
    /// job.source("lines", source::text_str("pear\nplum\nkiwi"))
    ///     .key_by(|line| line.len() as u64)
    ///     .reduce_owned("greatest", |a, b| a.max(b))
    ///     .sink("found", greatest);
    /// job.run()?;
    /// assert_eq!(found.take().last(), Some(&(4, "plum".to_owned())));
    /// # Ok::<(), tidegate::Error>(())
    /// ```
    pub fn reduce_owned<G>(
        self,
        name: &str,
        mut combine: G,
    ) -> Stream<(F::Key, T), impl Chain<Out = (F::Key, T)> + use<T, C, F, G>>
    where
        G: FnMut(T, T) -> T + Clone + Send + 'static,
    {
        let add = move |value: Option<T>, record: T::Ref<'_>| match value {
            Some(value) => combine(value, T::own(record)),
            None => T::own(record),
        };
        self.owned(name, "reduce", add, emit::<F::Key, T>)
    }

    /// As [`fold`](KeyedStream::fold) with an accumulator of any size, written anew with each record.
    pub fn fold_owned<A, G>(
        self,
        name: &str,
        init: A,
        add: G,
    ) -> Stream<(F::Key, A), impl Chain<Out = (F::Key, A)> + use<T, C, F, A, G>>
    where
        A: Data,
        G: for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
    {
        self.owned(name, "fold", adding::<T, A>(init, add), emit::<F::Key, A>)
    }

    /// As [`aggregate`](KeyedStream::aggregate) with an accumulator of any size, written anew with each record.
    pub fn aggregate_owned<A, R, G, H>(
        self,
        name: &str,
        init: A,
        add: G,
        finish: H,
    ) -> Stream<(F::Key, R::Data), impl Chain<Out = (F::Key, R::Data)> + use<T, C, F, A, R, G, H>>
    where
        A: Data,
        R: AsData + 'static,
        G: for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
        H: Fn(&A) -> R + Clone + Send + 'static,
    {
        self.owned(
            name,
            "aggregate",
            adding::<T, A>(init, add),
            move |accumulator: &A,
                  key: <F::Key as Data>::Ref<'_>,
                  out: &mut Output<'_, (F::Key, R::Data)>| {
                out.emit_ref((F::Key::shorten(key), finish(accumulator).view()));
            },
        )
    }

    /// A fold whose accumulator is a value state; `emit` emits what it makes of key and accumulator.
    fn owned<A, U, G, H>(
        self,
        name: &str,
        label: &'static str,
        mut add: G,
        emit: H,
    ) -> Stream<U, impl Chain<Out = U> + use<T, C, F, A, U, G, H>>
    where
        A: Data,
        U: Data,
        G: for<'a> FnMut(Option<A>, T::Ref<'a>) -> A + Clone + Send + 'static,
        H: for<'a, 'k, 'p, 'o> Fn(&'a A, <F::Key as Data>::Ref<'k>, &'p mut Output<'o, U>)
            + Clone
            + Send
            + 'static,
    {
        self.each(
            name,
            label,
            |states: &mut States<'_, F::Key>| states.value::<A>("accumulator"),
            move |state: &mut ValueState<A>,
                  record: T::Ref<'_>,
                  cx: &mut Context<'_, F::Key>,
                  out: &mut Output<'_, U>| {
                let accumulator = add(cx.value(state).get().map(A::own), record);
                cx.value(state).set(accumulator.view());
                emit(&accumulator, cx.key(), out);
                Ok(())
            },
        )
    }
}

/// Emits key and accumulator.
fn emit<K: Data, A: Data>(accumulator: &A, key: K::Ref<'_>, out: &mut Output<'_, (K, A)>) {
    out.emit_ref((K::shorten(key), accumulator.view()));
}

/// Adds to `init` first.
fn adding<T: Data, A: Data>(
    init: A,
    mut add: impl for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
) -> impl for<'a> FnMut(Option<A>, T::Ref<'a>) -> A + Clone + Send + 'static {
    move |accumulator: Option<A>, record: T::Ref<'_>| {
        let mut accumulator = accumulator.unwrap_or_else(|| init.clone());
        add(&mut accumulator, record);
        accumulator
    }
}
