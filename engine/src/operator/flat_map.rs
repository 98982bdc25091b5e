//! `flat_map`: a closure that emits any number of records.

use std::marker::PhantomData;

use super::op::pass_on;
use super::{Build, Chain, Op, Stage};
use crate::error::Result;
use crate::record::{Data, Feed, Output};

/// The recipe of a `flat_map`.
#[derive(Debug)]
pub struct FlatMap<C, F, U> {
    up: C,
    f: F,
    label: &'static str,
    of: PhantomData<fn() -> U>,
}

impl<C, F, U> FlatMap<C, F, U> {
    pub(crate) fn new(up: C, f: F, label: &'static str) -> Self {
        Self { up, f, label, of: PhantomData }
    }
}

impl<C: Clone, F: Clone, U> Clone for FlatMap<C, F, U> {
    fn clone(&self) -> Self {
        Self::new(self.up.clone(), self.f.clone(), self.label)
    }
}

impl<C: Chain, U: Data, F> Chain for FlatMap<C, F, U>
where
    F: for<'a, 'o, 'p> FnMut(<C::Out as Data>::Ref<'a>, &'p mut Output<'o, U>)
        + Clone
        + Send
        + 'static,
{
    type Out = U;

    fn attach<D: Op<U>>(self, down: D, build: &mut Build) -> Result<()> {
        self.up.attach(FlatMapOp { f: self.f, down, of: PhantomData::<fn() -> U> }, build)
    }

    fn describe(&self, stage: &mut Stage) {
        self.up.describe(stage);
        stage.operators.push(self.label.into());
    }
}

struct FlatMapOp<F, U, D> {
    f: F,
    down: D,
    of: PhantomData<fn() -> U>,
}

struct FlatMapFeed<'f, S, F, I> {
    up: S,
    f: &'f mut F,
    of: PhantomData<fn() -> I>,
}

impl<T: Data, U: Data, F, D: Op<U>> Op<T> for FlatMapOp<F, U, D>
where
    F: for<'a, 'o, 'p> FnMut(T::Ref<'a>, &'p mut Output<'o, U>) + 'static,
{
    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, up: S) {
        self.down.batch(FlatMapFeed { up, f: &mut self.f, of: PhantomData::<fn() -> (T, U)> });
    }

    pass_on!(down);
}

impl<T: Data, U: Data, S: Feed<T>, F> Feed<U> for FlatMapFeed<'_, S, F, (T, U)>
where
    F: for<'a, 'o, 'p> FnMut(T::Ref<'a>, &'p mut Output<'o, U>),
{
    #[inline(always)]
    fn each<G: for<'x> FnMut(U::Ref<'x>)>(self, mut g: G) {
        let f = self.f;
        self.up.each(|record| f(record, &mut Output::new(&mut g)));
    }
}
