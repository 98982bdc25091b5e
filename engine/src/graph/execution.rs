//! The execution graph: vertices with their parallelism, edges, and how to make each subtask. A value, shared by threads.

use std::fmt;
use std::sync::Arc;

use super::stages::Attach;
use crate::error::Result;
use crate::id::{CheckpointId, VertexId};
use crate::operator::{Build, EdgeKind};
use crate::record::key_group::KeyGroups;
use crate::source::Split;

/// A checked job.
#[derive(Clone, Debug)]
pub struct ExecutionGraph {
    /// The vertices, each behind all that feed it; ids count from 0 in this order.
    pub vertices: Vec<VertexPlan>,
    /// The edges.
    pub edges: Vec<EdgePlan>,
    /// The job's key groups.
    pub key_groups: KeyGroups,
}

/// Names a source's splits.
pub type SplitsOf = (String, Arc<dyn Fn(u32) -> Result<Vec<Split>> + Send + Sync>);

/// Checks a part of the job before anything starts.
pub type Check = (String, Arc<dyn Fn() -> Result<()> + Send + Sync>);

/// Takes back what a sink committed after a checkpoint; none if it can't.
pub type Retract = (String, Option<Arc<dyn Fn(CheckpointId) -> Result<()> + Send + Sync>>);

/// One vertex: chains that run in one task.
#[derive(Clone)]
pub struct VertexPlan {
    /// Which.
    pub id: VertexId,
    /// Its operators' names joined.
    pub name: Arc<str>,
    /// Its operators in order, for people.
    pub operators: Vec<String>,
    /// Names that state is filed under.
    pub names: Vec<String>,
    /// How many subtasks.
    pub parallelism: u32,
    /// The sources at its heads.
    pub sources: Vec<SplitsOf>,
    /// What checks its sinks and options.
    pub checks: Vec<Check>,
    /// What takes back what its sinks committed.
    pub retracts: Vec<Retract>,
    /// The edges it reads, one a gate.
    pub reads: Vec<usize>,
    /// The edges it writes.
    pub writes: Vec<usize>,
    /// Whether a checkpoint must cover it at the end.
    pub has_state: bool,
    /// Whether it commits when a checkpoint is complete.
    pub commits: bool,
    /// Whether records come out of it when a checkpoint is complete.
    pub emits_on_commit: bool,
    pub(crate) attach: Vec<Attach>,
}

impl VertexPlan {
    /// Makes the heads of one subtask.
    pub(crate) fn attach(&self, build: &mut Build) -> Result<()> {
        self.attach.iter().try_for_each(|attach| attach(build))
    }
}

impl fmt::Debug for VertexPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VertexPlan")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("parallelism", &self.parallelism)
            .finish_non_exhaustive()
    }
}

/// One edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgePlan {
    /// Its number.
    pub edge: usize,
    /// The producing vertex.
    pub from: VertexId,
    /// The consuming vertex.
    pub to: VertexId,
    /// How records are spread.
    pub kind: EdgeKind,
}

impl ExecutionGraph {
    /// What the graph is made of, as text: equal for equal jobs, whatever their parallelism.
    pub fn fingerprint(&self) -> String {
        let mut text = String::new();
        for vertex in &self.vertices {
            text.push_str(&vertex.operators.join(" > "));
            text.push(';');
        }
        for edge in &self.edges {
            text.push_str(&format!("{}-{}-{};", edge.from, edge.kind, edge.to));
        }
        text
    }
}
