//! The parallelism asked for a chain: nothing at run time.

use super::{Build, Chain, Op, Stage};
use crate::error::Result;

/// A chain with its parallelism.
#[derive(Clone, Debug)]
pub struct Parallel<C> {
    pub(crate) up: C,
    pub(crate) parallelism: u32,
}

impl<C: Chain> Chain for Parallel<C> {
    type Out = C::Out;

    fn attach<D: Op<C::Out>>(self, end: D, build: &mut Build) -> Result<()> {
        self.up.attach(end, build)
    }

    fn describe(&self, stage: &mut Stage) {
        self.up.describe(stage);
        stage.parallelism.push(self.parallelism);
    }
}
