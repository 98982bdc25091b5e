//! What the job master knows of each subtask: which attempt it is at, and where that runs.

use std::collections::{BTreeMap, BTreeSet};

use super::blocklist::cause::Cause;
use super::identity::{AllocationId, ResourceId};
use crate::id::{Attempt, AttemptId, SubtaskId};
use crate::probe::{Fault, is_broken};

/// Where an attempt is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutionState {
    /// It needs a slot.
    Waiting,
    /// It runs in a slot.
    Running(Place),
    /// It was told to stop, and has not answered yet.
    Canceling(Place),
    /// It has done all its work.
    Finished,
    /// It ended otherwise, and will not run again.
    Ended,
}

/// A slot on a task manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The slot.
    pub slot: AllocationId,
    /// Whose slot it is.
    pub task_manager: ResourceId,
}

/// One subtask's current attempt.
#[derive(Clone, Debug)]
pub struct Execution {
    /// Which try it is.
    pub attempt: Attempt,
    /// Where it is in its life.
    pub state: ExecutionState,
    /// The slot of the attempt before.
    pub previous: Option<AllocationId>,
    /// Whether the attempt before failed in its slot.
    pub avoid_previous: bool,
}

/// What a task manager reports of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskReport {
    /// It has done all its work.
    Finished,
    /// It stopped as told.
    Canceled,
    /// It failed.
    Failed {
        /// With what.
        cause: Cause,
        /// What caused that, outermost first.
        chain: Vec<Cause>,
        /// The other side, if it happened between two task managers.
        peer: Option<ResourceId>,
    },
}

/// All subtasks of a job.
#[derive(Clone, Debug)]
pub struct Executions(BTreeMap<SubtaskId, Execution>);

impl Executions {
    /// All of `subtasks`, waiting for their first attempt.
    pub fn new(subtasks: impl IntoIterator<Item = SubtaskId>) -> Self {
        let first = Execution {
            attempt: Attempt(0),
            state: ExecutionState::Waiting,
            previous: None,
            avoid_previous: false,
        };
        Self(subtasks.into_iter().map(|subtask| (subtask, first.clone())).collect())
    }

    /// A subtask's current attempt.
    pub fn get(&self, subtask: SubtaskId) -> Option<&Execution> {
        self.0.get(&subtask)
    }

    /// A subtask's current attempt, to be changed.
    pub(crate) fn get_mut(&mut self, subtask: SubtaskId) -> Option<&mut Execution> {
        self.0.get_mut(&subtask)
    }

    /// The execution if `id` is its current attempt; messages of others change nothing.
    pub fn current(&self, id: AttemptId) -> Option<&Execution> {
        self.0.get(&id.subtask).filter(|execution| {
            execution.attempt == id.attempt || is_broken(Fault::OldAttemptBelieved)
        })
    }

    /// Whether a subtask's current attempt runs, and was not told to stop.
    pub fn is_running(&self, subtask: SubtaskId) -> bool {
        let state = self.0.get(&subtask).map(|execution| &execution.state);
        matches!(state, Some(ExecutionState::Running(_)))
    }

    /// The identity of a subtask's current attempt.
    pub fn id(&self, subtask: SubtaskId) -> AttemptId {
        let attempt = self.0.get(&subtask).map_or(Attempt(0), |execution| execution.attempt);
        AttemptId { subtask, attempt }
    }

    /// Attempts that occupy a slot of these task managers, and the slot.
    pub fn on(&self, task_managers: &BTreeSet<ResourceId>) -> BTreeMap<AttemptId, AllocationId> {
        let there = self.0.iter().filter_map(|(subtask, execution)| match &execution.state {
            ExecutionState::Running(place) | ExecutionState::Canceling(place) => {
                let id = AttemptId { subtask: *subtask, attempt: execution.attempt };
                task_managers.contains(&place.task_manager).then_some((id, place.slot))
            }
            ExecutionState::Waiting | ExecutionState::Finished | ExecutionState::Ended => None,
        });
        there.collect()
    }

    /// Subtasks that need a slot.
    pub fn waiting(&self) -> BTreeSet<SubtaskId> {
        self.all(|state| *state == ExecutionState::Waiting)
    }

    /// Subtasks that were told to stop and have not answered.
    pub fn canceling(&self) -> BTreeSet<SubtaskId> {
        self.all(|state| matches!(state, ExecutionState::Canceling(_)))
    }

    /// Whether every subtask has done all its work.
    pub fn are_finished(&self) -> bool {
        self.0.values().all(|execution| execution.state == ExecutionState::Finished)
    }

    /// All subtasks.
    pub fn iter(&self) -> impl Iterator<Item = (SubtaskId, &Execution)> {
        self.0.iter().map(|(subtask, execution)| (*subtask, execution))
    }

    fn all(&self, which: impl Fn(&ExecutionState) -> bool) -> BTreeSet<SubtaskId> {
        self.0.iter().filter(|(_, e)| which(&e.state)).map(|(subtask, _)| *subtask).collect()
    }
}
