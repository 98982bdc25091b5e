//! `map`, whose result is owned, and `map_ref`, whose result borrows from the record.

use std::marker::PhantomData;

use super::op::pass_on;
use super::{Build, Chain, Op, Stage};
use crate::error::Result;
use crate::record::{AsData, Data, Feed};

/// The recipe of a `map`.
#[derive(Debug)]
pub struct Map<C, F, R> {
    up: C,
    f: F,
    of: PhantomData<fn() -> R>,
}

impl<C, F, R> Map<C, F, R> {
    pub(crate) fn new(up: C, f: F) -> Self {
        Self { up, f, of: PhantomData }
    }
}

impl<C: Clone, F: Clone, R> Clone for Map<C, F, R> {
    fn clone(&self) -> Self {
        Self::new(self.up.clone(), self.f.clone())
    }
}

impl<C: Chain, R: AsData + 'static, F> Chain for Map<C, F, R>
where
    F: for<'a> FnMut(<C::Out as Data>::Ref<'a>) -> R + Clone + Send + 'static,
{
    type Out = R::Data;

    fn attach<D: Op<R::Data>>(self, down: D, build: &mut Build) -> Result<()> {
        self.up.attach(MapOp { f: self.f, down, of: PhantomData::<fn() -> R> }, build)
    }

    fn describe(&self, stage: &mut Stage) {
        self.up.describe(stage);
        stage.operators.push("map".into());
    }
}

struct MapOp<F, R, D> {
    f: F,
    down: D,
    of: PhantomData<fn() -> R>,
}

struct MapFeed<'f, S, F, I> {
    up: S,
    f: &'f mut F,
    of: PhantomData<fn() -> I>,
}

impl<T: Data, R: AsData + 'static, F, D: Op<R::Data>> Op<T> for MapOp<F, R, D>
where
    F: for<'a> FnMut(T::Ref<'a>) -> R + 'static,
{
    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, up: S) {
        self.down.batch(MapFeed { up, f: &mut self.f, of: PhantomData::<fn() -> (T, R)> });
    }

    pass_on!(down);
}

impl<T: Data, R: AsData, S: Feed<T>, F> Feed<R::Data> for MapFeed<'_, S, F, (T, R)>
where
    F: for<'a> FnMut(T::Ref<'a>) -> R,
{
    #[inline(always)]
    fn each<G: for<'x> FnMut(<R::Data as Data>::Ref<'x>)>(self, mut g: G) {
        let f = self.f;
        self.up.each(|record| g(f(record).view()));
    }
}

/// The recipe of a `map_ref`.
#[derive(Debug)]
pub struct MapRef<C, F, U> {
    up: C,
    f: F,
    of: PhantomData<fn() -> U>,
}

impl<C, F, U> MapRef<C, F, U> {
    pub(crate) fn new(up: C, f: F) -> Self {
        Self { up, f, of: PhantomData }
    }
}

impl<C: Clone, F: Clone, U> Clone for MapRef<C, F, U> {
    fn clone(&self) -> Self {
        Self::new(self.up.clone(), self.f.clone())
    }
}

impl<C: Chain, U: Data, F> Chain for MapRef<C, F, U>
where
    F: for<'a> FnMut(&'a <C::Out as Data>::Ref<'a>) -> U::Ref<'a> + Clone + Send + 'static,
{
    type Out = U;

    fn attach<D: Op<U>>(self, down: D, build: &mut Build) -> Result<()> {
        self.up.attach(MapRefOp { f: self.f, down, of: PhantomData::<fn() -> U> }, build)
    }

    fn describe(&self, stage: &mut Stage) {
        self.up.describe(stage);
        stage.operators.push("map_ref".into());
    }
}

struct MapRefOp<F, U, D> {
    f: F,
    down: D,
    of: PhantomData<fn() -> U>,
}

struct MapRefFeed<'f, S, F, I> {
    up: S,
    f: &'f mut F,
    of: PhantomData<fn() -> I>,
}

impl<T: Data, U: Data, F, D: Op<U>> Op<T> for MapRefOp<F, U, D>
where
    F: for<'a> FnMut(&'a T::Ref<'a>) -> U::Ref<'a> + 'static,
{
    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, up: S) {
        self.down.batch(MapRefFeed { up, f: &mut self.f, of: PhantomData::<fn() -> (T, U)> });
    }

    pass_on!(down);
}

impl<T: Data, U: Data, S: Feed<T>, F> Feed<U> for MapRefFeed<'_, S, F, (T, U)>
where
    F: for<'a> FnMut(&'a T::Ref<'a>) -> U::Ref<'a>,
{
    #[inline(always)]
    fn each<G: for<'x> FnMut(U::Ref<'x>)>(self, mut g: G) {
        let f = self.f;
        self.up.each(|record| g(f(&T::shorten(record))));
    }
}
