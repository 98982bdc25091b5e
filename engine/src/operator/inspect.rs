//! `inspect`: shows each record to a closure and passes it on.

use std::marker::PhantomData;

use super::op::pass_on;
use super::{Build, Chain, Op, Stage};
use crate::error::Result;
use crate::record::{Data, Feed};

/// The recipe of an `inspect`.
#[derive(Clone, Debug)]
pub struct Inspect<C, F> {
    pub(crate) up: C,
    pub(crate) f: F,
}

impl<C: Chain, F> Chain for Inspect<C, F>
where
    F: for<'a> FnMut(<C::Out as Data>::Ref<'a>) + Clone + Send + 'static,
{
    type Out = C::Out;

    fn attach<D: Op<C::Out>>(self, down: D, build: &mut Build) -> Result<()> {
        self.up.attach(InspectOp { f: self.f, down }, build)
    }

    fn describe(&self, stage: &mut Stage) {
        self.up.describe(stage);
        stage.operators.push("inspect".into());
    }
}

struct InspectOp<F, D> {
    f: F,
    down: D,
}

struct InspectFeed<'f, S, F, T> {
    up: S,
    f: &'f mut F,
    of: PhantomData<fn() -> T>,
}

impl<T: Data, F, D: Op<T>> Op<T> for InspectOp<F, D>
where
    F: for<'a> FnMut(T::Ref<'a>) + 'static,
{
    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, up: S) {
        self.down.batch(InspectFeed { up, f: &mut self.f, of: PhantomData::<fn() -> T> });
    }

    pass_on!(down);
}

impl<T: Data, S: Feed<T>, F> Feed<T> for InspectFeed<'_, S, F, T>
where
    F: for<'a> FnMut(T::Ref<'a>),
{
    #[inline(always)]
    fn each<G: for<'x> FnMut(T::Ref<'x>)>(self, mut g: G) {
        let f = self.f;
        self.up.each(|record| {
            f(record);
            g(record);
        });
    }
}
