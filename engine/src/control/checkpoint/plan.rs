//! The plan of one checkpoint: whom to trigger, whom to wait for, who had finished.
//!
//! FLIP-147: a task is triggered directly iff every task that feeds it has finished; all others get
//! barriers. Invariants: no triggered task has a running producer, and every running task is
//! reachable from a triggered one along running tasks. Computed from one view of all task states,
//! in one pass over tasks and pointwise wires.

use std::collections::BTreeSet;

use super::tasks::{TaskState, Tasks};
use super::topology::{EdgeKind, Topology, Vertex};
use crate::id::{AttemptId, SubtaskId, VertexId};

/// Whom a checkpoint concerns. Tasks to commit are the tasks to wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Get a trigger message: sources, and tasks whose producers have all finished.
    pub to_trigger: Vec<AttemptId>,
    /// Must acknowledge, and are told of completion or abort: every running task.
    pub to_wait: Vec<AttemptId>,
    /// Had finished when the plan was made.
    pub finished: BTreeSet<SubtaskId>,
    /// Vertices all of whose tasks had finished.
    pub fully_finished: BTreeSet<VertexId>,
}

/// A task that is neither running nor finished stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRunning {
    /// Which; none if all tasks have finished and nobody is left to acknowledge.
    pub task: Option<(SubtaskId, TaskState)>,
}

impl Plan {
    /// The plan for the tasks as they are.
    ///
    /// # Errors
    /// If a task is neither running nor finished, has finished although `after_finish` is off, or
    /// none runs.
    pub fn calculate(
        topology: &Topology,
        tasks: &Tasks,
        after_finish: bool,
    ) -> Result<Self, NotRunning> {
        let obstacle = tasks.iter().find(|(_, task)| {
            if task.is_finished() {
                !after_finish
            } else {
                !task.is_running() || task.attempt.is_none()
            }
        });
        if let Some((subtask, task)) = obstacle {
            return Err(NotRunning { task: Some((subtask, task.state)) });
        }
        let mut plan = Self::default();
        for vertex in topology.in_order() {
            let waited_before = plan.to_wait.len();
            for subtask in vertex.subtasks() {
                let task = tasks.get(subtask);
                match task.attempt.filter(|_| task.is_running()) {
                    Some(attempt) => plan.to_wait.push(AttemptId { subtask, attempt }),
                    None => {
                        plan.finished.insert(subtask);
                    }
                }
            }
            if plan.to_wait.len() == waited_before {
                plan.fully_finished.insert(vertex.id);
            } else if plan.may_trigger_some(topology, vertex) {
                plan.trigger_some(topology, vertex, waited_before);
            }
        }
        if plan.to_wait.is_empty() { Err(NotRunning { task: None }) } else { Ok(plan) }
    }

    /// False if one look at the producing vertices shows that each task has a running producer.
    fn may_trigger_some(&self, topology: &Topology, vertex: &Vertex) -> bool {
        topology.inputs(vertex.id).all(|edge| match edge.kind {
            EdgeKind::AllToAll => self.fully_finished.contains(&edge.from),
            EdgeKind::Pointwise => self.has_finished_task(edge.from),
        })
    }

    fn has_finished_task(&self, vertex: VertexId) -> bool {
        let first = SubtaskId { vertex, index: 0 };
        self.finished.range(first..).next().is_some_and(|subtask| subtask.vertex == vertex)
    }

    fn trigger_some(&mut self, topology: &Topology, vertex: &Vertex, running_from: usize) {
        for place in running_from..self.to_wait.len() {
            let task = self.to_wait[place];
            let fed_by_none = topology.inputs(vertex.id).all(|edge| match edge.kind {
                EdgeKind::AllToAll => true,
                EdgeKind::Pointwise => topology
                    .producers(task.subtask, edge)
                    .all(|producer| self.finished.contains(&producer)),
            });
            if fed_by_none {
                self.to_trigger.push(task);
            }
        }
    }
}
