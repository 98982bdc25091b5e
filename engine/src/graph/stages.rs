//! The stages of a job while its streams are written down.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use super::stream::Stream;
use crate::error::Result;
use crate::operator::{Build, Chain, End, FromSource, Stage};
use crate::source::Source;

/// Makes one stage's part of a subtask.
pub(crate) type Attach = Arc<dyn Fn(&mut Build) -> Result<()> + Send + Sync>;

/// A chain with its end.
#[derive(Clone)]
pub(crate) struct StageEntry {
    pub(crate) stage: Stage,
    pub(crate) attach: Attach,
}

/// The stages of a job; clones share them.
#[derive(Clone, Default)]
pub struct Graph(Rc<Inner>);

#[derive(Default)]
struct Inner {
    stages: RefCell<Vec<StageEntry>>,
    edges: Cell<usize>,
    side_outputs: Cell<usize>,
}

impl Graph {
    /// A stream of what `source` reads. The name is unique in the job; positions in checkpoints are filed under it.
    pub fn source<S: Source>(&self, name: &str, source: S) -> Stream<S::Out, FromSource<S>> {
        Stream { graph: self.clone(), chain: FromSource { name: name.to_owned(), source } }
    }

    pub(super) fn next_edge(&self) -> usize {
        self.0.edges.replace(self.0.edges.get() + 1)
    }

    pub(super) fn next_side_output(&self) -> usize {
        self.0.side_outputs.replace(self.0.side_outputs.get() + 1)
    }

    /// Adds a chain with its end.
    pub(super) fn stage<C: Chain, E: End<C::Out>>(&self, chain: C, end: E) {
        let mut stage = Stage::default();
        chain.describe(&mut stage);
        end.describe(&mut stage);
        // Closures are `Send` and not `Sync`: attempts take their copies one after the other.
        let recipe = Mutex::new((chain, end));
        let attach: Attach = Arc::new(move |build| {
            let (chain, end) = recipe.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let end = end.make(build)?;
            chain.attach(end, build)
        });
        self.0.stages.borrow_mut().push(StageEntry { stage, attach });
    }

    pub(crate) fn stages(&self) -> Vec<StageEntry> {
        self.0.stages.borrow().clone()
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stages = self.0.stages.borrow();
        f.debug_list().entries(stages.iter().map(|entry| &entry.stage)).finish()
    }
}
