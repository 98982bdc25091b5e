//! `split`: one closure, two outputs. The stream goes on with the first; the second is a stream of its own.

use std::marker::PhantomData;

use super::boxed::DynOp;
use super::build::Slot;
use super::{Build, Chain, Op, Signal, Stage};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::record::batch::Batch;
use crate::record::{Data, Feed, Output};
use crate::sink::Readiness;

/// The head of a side output's stream: part of the task that fills it.
#[derive(Debug)]
pub struct Inlet<U> {
    id: usize,
    of: PhantomData<fn() -> U>,
}

impl<U> Inlet<U> {
    pub(crate) fn new(id: usize) -> Self {
        Self { id, of: PhantomData }
    }
}

impl<U> Clone for Inlet<U> {
    fn clone(&self) -> Self {
        Self::new(self.id)
    }
}

impl<U: Data> Chain for Inlet<U> {
    type Out = U;

    fn attach<D: Op<U>>(self, end: D, build: &mut Build) -> Result<()> {
        let end: Box<dyn DynOp<U>> = Box::new(end);
        *build.slot::<U>(self.id).borrow_mut() = Some(end);
        Ok(())
    }

    fn describe(&self, stage: &mut Stage) {
        stage.inlets.push(self.id);
        stage.operators.push("side output".into());
    }
}

/// The recipe of a `split`.
#[derive(Debug)]
pub struct Split<C, F, U, S> {
    up: C,
    f: F,
    id: usize,
    of: PhantomData<fn() -> (U, S)>,
}

impl<C, F, U, S> Split<C, F, U, S> {
    pub(crate) fn new(up: C, f: F, id: usize) -> Self {
        Self { up, f, id, of: PhantomData }
    }
}

impl<C: Clone, F: Clone, U, S> Clone for Split<C, F, U, S> {
    fn clone(&self) -> Self {
        Self::new(self.up.clone(), self.f.clone(), self.id)
    }
}

impl<C: Chain, U: Data, S: Data, F> Chain for Split<C, F, U, S>
where
    F: for<'a, 'o, 'p> FnMut(
            <C::Out as Data>::Ref<'a>,
            &'p mut Output<'o, U>,
            &'p mut Output<'o, S>,
        ) + Clone
        + Send
        + 'static,
{
    type Out = U;

    fn attach<D: Op<U>>(self, down: D, build: &mut Build) -> Result<()> {
        let side = SideOutput { end: build.slot::<S>(self.id), batch: Batch::new() };
        self.up.attach(SplitOp { f: self.f, down, side, of: PhantomData::<fn() -> U> }, build)
    }

    fn describe(&self, stage: &mut Stage) {
        self.up.describe(stage);
        stage.splits.push(self.id);
        stage.operators.push("split".into());
    }
}

/// The producer's side of a side output: collects what a batch emits there.
pub(crate) struct SideOutput<S: Data> {
    end: Slot<S>,
    batch: Batch<S>,
}

impl<S: Data> SideOutput<S> {
    pub(crate) fn new(end: Slot<S>) -> Self {
        Self { end, batch: Batch::new() }
    }

    pub(crate) fn push(&mut self, record: S::Ref<'_>) {
        self.batch.push(record);
    }

    /// Hands the collected records to the stream behind.
    pub(crate) fn deliver(&mut self) {
        if !self.batch.is_empty() {
            if let Some(end) = &mut *self.end.borrow_mut() {
                end.batch(&self.batch);
            }
            self.batch.clear();
        }
    }

    pub(crate) fn ready(&self, now: Timestamp) -> Readiness {
        self.end.borrow_mut().as_mut().map_or(Readiness::Ready, |end| end.ready(now))
    }

    pub(crate) fn batch_max(&self) -> usize {
        self.end.borrow().as_ref().map_or(usize::MAX, |end| end.batch_max())
    }

    pub(crate) fn signal(&self, signal: &mut Signal<'_>) -> Result<()> {
        self.end.borrow_mut().as_mut().map_or(Ok(()), |end| end.signal(signal))
    }
}

/// Busy if either is, and until the later moment.
pub(crate) fn both(a: Readiness, b: Readiness) -> Readiness {
    match (a, b) {
        (Readiness::Ready, other) | (other, Readiness::Ready) => other,
        (Readiness::Busy(a), Readiness::Busy(b)) => Readiness::Busy(a.max(b)),
    }
}

struct SplitOp<F, U, S: Data, D> {
    f: F,
    down: D,
    side: SideOutput<S>,
    of: PhantomData<fn() -> U>,
}

struct SplitFeed<'f, P, F, S: Data, I> {
    up: P,
    f: &'f mut F,
    side: &'f mut SideOutput<S>,
    of: PhantomData<fn() -> I>,
}

impl<T: Data, U: Data, S: Data, F, D: Op<U>> Op<T> for SplitOp<F, U, S, D>
where
    F: for<'a, 'o, 'p> FnMut(T::Ref<'a>, &'p mut Output<'o, U>, &'p mut Output<'o, S>) + 'static,
{
    #[inline(always)]
    fn batch<P: Feed<T>>(&mut self, up: P) {
        let Self { f, down, side, .. } = self;
        down.batch(SplitFeed { up, f, side, of: PhantomData::<fn() -> (T, U)> });
        side.deliver();
    }

    fn ready(&mut self, now: Timestamp) -> Readiness {
        both(self.down.ready(now), self.side.ready(now))
    }

    fn batch_max(&self) -> usize {
        self.down.batch_max().min(self.side.batch_max())
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        self.down.signal(signal)?;
        self.side.signal(signal)
    }
}

impl<T: Data, U: Data, S: Data, P: Feed<T>, F> Feed<U> for SplitFeed<'_, P, F, S, (T, U)>
where
    F: for<'a, 'o, 'p> FnMut(T::Ref<'a>, &'p mut Output<'o, U>, &'p mut Output<'o, S>),
{
    #[inline(always)]
    fn each<G: for<'x> FnMut(U::Ref<'x>)>(self, mut g: G) {
        let (f, side) = (self.f, self.side);
        self.up.each(|record| {
            f(record, &mut Output::new(&mut g), &mut Output::new(&mut |s| side.push(s)));
        });
    }
}
