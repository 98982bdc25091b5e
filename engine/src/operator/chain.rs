//! Recipes: a chain up to some operator, and the end that closes it.

use std::sync::Arc;

use super::Build;
use super::op::Op;
use crate::error::Result;
use crate::id::CheckpointId;
use crate::record::Data;
use crate::source::Split;

/// A recipe of a chain up to here. Each attempt of each subtask makes its own operators of it.
///
/// Not for implementing: [`Stream`](crate::graph::Stream)'s methods make chains. Functions that take or return streams name it:
/// `fn clean(lines: Stream<String, impl Chain<Out = String>>) -> Stream<String, impl Chain<Out = String>>`.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a chain of operators")]
pub trait Chain: Clone + Send + 'static {
    /// The record type that comes out.
    type Out: Data;

    /// Makes the operators, puts `end` behind them and the whole into the task being built.
    #[doc(hidden)]
    fn attach<D: Op<Self::Out>>(self, end: D, build: &mut Build) -> Result<()>;

    /// Tells what it consists of, from the source down.
    #[doc(hidden)]
    fn describe(&self, stage: &mut Stage);
}

/// A recipe of a chain's end: a sink, or the producer's side of an exchange.
pub trait End<T: Data>: Clone + Send + 'static {
    /// The end at run time.
    type Op: Op<T>;

    /// Makes the end.
    #[doc(hidden)]
    fn make(self, build: &mut Build) -> Result<Self::Op>;

    /// Tells what it is.
    #[doc(hidden)]
    fn describe(&self, stage: &mut Stage);
}

/// How records are spread over the subtasks behind an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// By the key's hash.
    Keyed,
    /// In turn.
    Rebalance,
    /// Each record to all.
    Broadcast,
}

impl std::fmt::Display for EdgeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keyed => "key_by",
            Self::Rebalance => "rebalance",
            Self::Broadcast => "broadcast",
        })
    }
}

/// Names a source's splits, given its parallelism.
pub(crate) type NameSplits = Arc<dyn Fn(u32) -> Result<Vec<Split>> + Send + Sync>;
/// Checks a sink's output.
pub(crate) type CheckSink = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Takes back what a sink committed after a checkpoint.
pub(crate) type RetractSink = Arc<dyn Fn(CheckpointId) -> Result<()> + Send + Sync>;

/// What a stage consists of: one chain with its end, as the job's builder learns it.
#[derive(Clone, Default)]
pub struct Stage {
    /// What names the sources' splits.
    pub(crate) splits_of: Vec<(String, NameSplits)>,
    /// What checks the sinks.
    pub(crate) checks: Vec<(String, CheckSink)>,
    /// What takes back what the sinks committed; none for one that can't.
    pub(crate) retracts: Vec<(String, Option<RetractSink>)>,
    /// What to call its parts, in order: `source 'lines'`, `map`, ….
    pub operators: Vec<String>,
    /// Names of sources, stateful operators and sinks: unique in the job, and what state is filed under.
    pub names: Vec<String>,
    /// The edges it reads.
    pub reads: Vec<usize>,
    /// The edges it writes.
    pub writes: Vec<(usize, EdgeKind)>,
    /// The side outputs that begin it.
    pub inlets: Vec<usize>,
    /// The side outputs it fills.
    pub splits: Vec<usize>,
    /// Parallelism asked for, with what asked.
    pub parallelism: Vec<u32>,
    /// Whether it holds state that a checkpoint must cover at the end.
    pub has_state: bool,
    /// Whether it commits when a checkpoint is complete.
    pub commits: bool,
    /// How many operators in a row emit when a checkpoint is complete.
    pub emits_on_commit: usize,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("operators", &self.operators).finish_non_exhaustive()
    }
}
