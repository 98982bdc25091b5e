//! The whole small job: tasks, coordinator, store, and everything that is under way between them.
//!
//! Mail to one task is in order, and so are its reports; between tasks, and between reports and the answers of the I/O
//! thread, any order is possible. What goes wrong is noted in [`World::broken`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tidegate::clock::Timestamp;
use tidegate::control::checkpoint::coordinator::Coordinator;
use tidegate::control::checkpoint::message::Ack;
use tidegate::control::checkpoint::metadata::Metadata;
use tidegate::control::checkpoint::topology::{Edge, EdgeKind, Topology, Vertex};
use tidegate::id::{CheckpointId, SubtaskId};
use tidegate::probe::Fault;

use super::node::{List, Node, Record, Role, Transaction};

/// What the job looks like, and what may happen to it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What each vertex does, and with how many tasks; each feeds the next.
    pub(crate) vertices: Vec<(Role, u32)>,
    /// Parallelism after a restart, if it changes.
    pub(crate) rescaled: Option<Vec<u32>>,
    /// Whether tasks feed one task each.
    pub(crate) edges: EdgeKind,
    /// Records of each source split.
    pub(crate) splits: Vec<u8>,
    /// Whether each step of finishing takes a round of its own, in which mail is served.
    pub(crate) has_slow_steps: bool,
    /// Whether a producer stays until its consumers have read its end of data.
    pub(crate) has_drain_hold: bool,
    pub(crate) max_concurrent: usize,
    pub(crate) budget: Budget,
    /// The rule that the machines break.
    pub(crate) fault: Option<Fault>,
}

/// How often something may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// A user wants a checkpoint.
    pub(crate) requests: u8,
    /// A task fails.
    pub(crate) crashes: u8,
    /// The process is gone, coordinator and all.
    pub(crate) losses: u8,
    /// The I/O thread can't write.
    pub(crate) io_faults: u8,
    /// A user stops the job with a savepoint.
    pub(crate) stops: u8,
    /// A checkpoint takes too long.
    pub(crate) expiries: u8,
}

/// What the I/O thread has been asked for.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Io {
    /// Store what a task took, then acknowledge.
    Store(Box<Ack<List>>),
    /// Write the manifest.
    Finalize(Arc<Metadata<List>>),
}

/// One moment of the job.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) budget: Budget,
    pub(crate) topology: Arc<Topology>,
    pub(crate) coordinator: Arc<Coordinator<List>>,
    /// By subtask, in order of vertices; none: not deployed.
    pub(crate) nodes: Vec<Option<Arc<Node>>>,
    pub(crate) io: Vec<Io>,
    /// Complete checkpoints on disk, and the first id that no coordinator has reserved.
    pub(crate) store: BTreeMap<CheckpointId, Arc<Metadata<List>>>,
    pub(crate) reserved_below: CheckpointId,
    pub(crate) attempts: u32,
    pub(crate) committed: BTreeMap<Transaction, Vec<Record>>,
    /// Whom pending checkpoints wait for, and who has acknowledged, by what was seen from outside.
    pub(crate) expected: BTreeMap<CheckpointId, BTreeSet<SubtaskId>>,
    pub(crate) completed: BTreeSet<CheckpointId>,
    /// A task has failed; everything is cancelled and about to restart.
    pub(crate) is_down: bool,
    pub(crate) has_crashed: bool,
    pub(crate) has_io_failed: bool,
    pub(crate) has_expired: bool,
    pub(crate) is_stopping: bool,
    /// The job was stopped: the savepoint with which it can go on.
    pub(crate) stopped: Option<CheckpointId>,
    pub(crate) finished: BTreeSet<SubtaskId>,
    pub(crate) is_over: bool,
    /// Checkpoints that completed, ever.
    pub(crate) completions: u8,
    pub(crate) broken: Option<String>,
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now, budget, coordinator, nodes, io, store, reserved_below, .. } = self;
        (now, budget, coordinator, nodes, io, store, reserved_below).hash(state);
        let Self { attempts, committed, expected, completed, is_down, is_stopping, .. } = self;
        (attempts, committed, expected, completed, is_down, is_stopping).hash(state);
        let Self { stopped, finished, is_over, broken, .. } = self;
        (stopped, finished, is_over, broken).hash(state);
    }
}

/// What a reader of a counterexample wants to know.
impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { broken, committed, store, completed, .. } = self;
        let (stored, committed) = (store.keys(), committed.values());
        write!(f, "{broken:?}, stored {stored:?}, told of {completed:?}, committed {committed:?}")
    }
}

/// Told apart by their digests, as the checker does.
impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        let digest = |world: &Self| {
            let mut hasher = DefaultHasher::new();
            world.hash(&mut hasher);
            hasher.finish()
        };
        digest(self) == digest(other)
    }
}

impl World {
    /// Notes what went wrong; the first is kept.
    pub(crate) fn complain(&mut self, what: impl FnOnce() -> String) {
        self.broken.get_or_insert_with(what);
    }

    pub(crate) fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.complain(what);
        }
    }

    /// The task at `at`, to be changed.
    pub(crate) fn node(&mut self, at: usize) -> &mut Node {
        Arc::make_mut(self.nodes[at].as_mut().expect("the task is deployed"))
    }

    /// The place of `subtask` among the nodes.
    pub(crate) fn place(&self, subtask: SubtaskId) -> usize {
        self.topology.subtasks().position(|it| it == subtask).expect("the job has that task")
    }

    /// All records that have been committed, with how often.
    pub(crate) fn committed_records(&self) -> BTreeMap<Record, usize> {
        let mut all = BTreeMap::new();
        for record in self.committed.values().flatten() {
            *all.entry(*record).or_default() += 1;
        }
        all
    }
}

impl Plan {
    pub(crate) fn topology(&self, parallelism: &[u32]) -> Topology {
        let vertex = |(id, &count): (u32, &u32)| {
            let mut vertex = Vertex::new(id, count);
            let role = self.vertices[id as usize].0;
            vertex.operators[0].has_commit_hook =
                matches!(role, Role::EmitsOnCommit | Role::Commits);
            vertex
        };
        let vertices = (0..).zip(parallelism).map(vertex).collect();
        let edges = (1..parallelism.len() as u32).map(|to| Edge::new(to - 1, to, self.edges));
        Topology::new(vertices, edges.collect()).expect("the graph is a line")
    }

    pub(crate) fn parallelism(&self) -> Vec<u32> {
        self.vertices.iter().map(|&(_, count)| count).collect()
    }

    pub(crate) fn role(&self, subtask: SubtaskId) -> Role {
        self.vertices[subtask.vertex.0 as usize].0
    }

    /// All records, once each.
    pub(crate) fn all_records(&self) -> BTreeMap<Record, usize> {
        let of_split = |(split, &count): (usize, &u8)| {
            (0..count).map(move |number| (Record { split: split as u8, number }, 1))
        };
        self.splits.iter().enumerate().flat_map(of_split).collect()
    }
}
