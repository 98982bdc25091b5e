//! Where a chain's type is forgotten: one copy of each record and one `dyn` call a batch.

use std::fmt;

use super::{Build, Chain, Op, Signal, Stage};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::record::batch::Batch;
use crate::record::{Data, Feed};
use crate::sink::Readiness;

/// An operator behind one `dyn` call a batch.
pub(crate) trait DynOp<T: Data> {
    fn batch(&mut self, batch: &Batch<T>);
    fn ready(&mut self, now: Timestamp) -> Readiness;
    fn batch_max(&self) -> usize;
    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()>;
}

impl<T: Data, D: Op<T>> DynOp<T> for D {
    fn batch(&mut self, batch: &Batch<T>) {
        Op::batch(self, BatchFeed(batch));
    }
    fn ready(&mut self, now: Timestamp) -> Readiness {
        Op::ready(self, now)
    }
    fn batch_max(&self) -> usize {
        Op::batch_max(self)
    }
    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        Op::signal(self, signal)
    }
}

/// A copied batch as a feed.
pub(super) struct BatchFeed<'b, T>(pub(super) &'b Batch<T>);

impl<T: Data> Feed<T> for BatchFeed<'_, T> {
    #[inline(always)]
    fn each<G: for<'x> FnMut(T::Ref<'x>)>(self, g: G) {
        self.0.each(g);
    }
}

/// The end of a chain whose rest is behind `dyn`.
struct Erased<T: Data> {
    down: Box<dyn DynOp<T>>,
    batch: Batch<T>,
}

impl<T: Data> Op<T> for Erased<T> {
    fn batch<S: Feed<T>>(&mut self, feed: S) {
        self.batch.clear();
        let batch = &mut self.batch;
        feed.each(|record| batch.push(record));
        self.down.batch(&self.batch);
    }
    fn ready(&mut self, now: Timestamp) -> Readiness {
        self.down.ready(now)
    }
    fn batch_max(&self) -> usize {
        self.down.batch_max()
    }
    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        self.down.signal(signal)
    }
}

trait DynChain<T: Data>: Send {
    fn attach(self: Box<Self>, end: Box<dyn DynOp<T>>, build: &mut Build) -> Result<()>;
    fn describe(&self, stage: &mut Stage);
    fn duplicate(&self) -> Box<dyn DynChain<T>>;
}

impl<C: Chain> DynChain<C::Out> for C {
    fn attach(self: Box<Self>, down: Box<dyn DynOp<C::Out>>, build: &mut Build) -> Result<()> {
        Chain::attach(*self, Erased { down, batch: Batch::new() }, build)
    }
    fn describe(&self, stage: &mut Stage) {
        Chain::describe(self, stage);
    }
    fn duplicate(&self) -> Box<dyn DynChain<C::Out>> {
        Box::new(self.clone())
    }
}

/// A chain whose type has been forgotten.
pub struct Boxed<T>(Box<dyn DynChain<T>>);

impl<T: Data> Boxed<T> {
    pub(crate) fn new(chain: impl Chain<Out = T>) -> Self {
        Self(Box::new(chain))
    }
}

impl<T: Data> Clone for Boxed<T> {
    fn clone(&self) -> Self {
        Self(self.0.duplicate())
    }
}

impl<T> fmt::Debug for Boxed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Boxed").finish_non_exhaustive()
    }
}

impl<T: Data> Chain for Boxed<T> {
    type Out = T;

    fn attach<D: Op<T>>(self, end: D, build: &mut Build) -> Result<()> {
        self.0.attach(Box::new(end), build)
    }

    fn describe(&self, stage: &mut Stage) {
        self.0.describe(stage);
    }
}
