//! What the coordinator knows of every task: its current attempt, its state, and what it said about
//! its end.
//!
//! Invariant: a task counts as finished from the moment its finish permit is granted, or when it
//! was left out of a restore; a failure or a new attempt takes that back. Only *finished* counts as
//! finished: failed and cancelled tasks make a plan impossible.

use std::collections::BTreeMap;

use super::topology::Topology;
use crate::id::{Attempt, AttemptId, SubtaskId};

/// Where an attempt is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TaskState {
    /// Known, nothing asked for.
    #[default]
    Created,
    /// Waits for a slot.
    Scheduled,
    /// Being sent to its worker.
    Deploying,
    /// On its worker, restoring.
    Initializing,
    /// Reads and writes records.
    Running,
    /// Ended well, or left out of a restore since it had ended well.
    Finished,
    /// Told to stop.
    Canceling,
    /// Stopped before its end.
    Canceled,
    /// Ended by an error.
    Failed,
}

/// One task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Task {
    /// The current attempt, if the task was ever deployed.
    pub attempt: Option<Attempt>,
    /// What its worker reported last.
    pub state: TaskState,
    /// Its finish permit was granted.
    pub has_permit: bool,
    /// It has sent its end of data.
    pub is_at_end_of_data: bool,
}

impl Task {
    /// Counts as finished in plans: it has the permit, or has left.
    pub fn is_finished(&self) -> bool {
        self.has_permit || self.state == TaskState::Finished
    }

    /// Takes part in checkpoints.
    pub fn is_running(&self) -> bool {
        self.state == TaskState::Running && !self.has_permit
    }
}

/// All tasks of one job.
#[derive(Clone, Debug, Hash)]
pub struct Tasks(BTreeMap<SubtaskId, Task>);

impl Tasks {
    /// Every subtask of `topology`, not yet deployed.
    pub fn new(topology: &Topology) -> Self {
        Self(topology.subtasks().map(|subtask| (subtask, Task::default())).collect())
    }

    /// Task `subtask`.
    ///
    /// # Panics
    /// If the graph has no such subtask.
    pub fn get(&self, subtask: SubtaskId) -> &Task {
        &self.0[&subtask]
    }

    /// All tasks in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (SubtaskId, &Task)> {
        self.0.iter().map(|(&subtask, task)| (subtask, task))
    }

    /// The message comes from the current attempt of a task of this job.
    pub fn is_current(&self, id: AttemptId) -> bool {
        self.0.get(&id.subtask).is_some_and(|task| task.attempt == Some(id.attempt))
    }

    /// The task of a current attempt, to be changed.
    pub fn current_mut(&mut self, id: AttemptId) -> Option<&mut Task> {
        self.0.get_mut(&id.subtask).filter(|task| task.attempt == Some(id.attempt))
    }

    /// Takes note of a state a worker reported; a first report brings the attempt. False if it is
    /// stale.
    pub fn report(&mut self, id: AttemptId, state: TaskState) -> bool {
        let Some(task) = self.0.get_mut(&id.subtask) else { return false };
        match task.attempt {
            Some(current) if id.attempt < current => return false,
            Some(current) if id.attempt == current => {}
            Some(_) | None => *task = Task { attempt: Some(id.attempt), ..Task::default() },
        }
        task.state = state;
        if matches!(state, TaskState::Failed | TaskState::Canceling | TaskState::Canceled) {
            task.has_permit = false;
        }
        true
    }

    /// A new attempt takes the place of whatever was there.
    pub fn redeploy(&mut self, id: AttemptId) {
        if let Some(task) = self.0.get_mut(&id.subtask) {
            let attempt = Some(id.attempt);
            *task = Task { attempt, state: TaskState::Deploying, ..Task::default() };
        }
    }

    /// The task is going to be restarted: whatever it had reached is void.
    pub fn give_up(&mut self, subtask: SubtaskId) {
        if let Some(task) = self.0.get_mut(&subtask) {
            *task = Task { attempt: task.attempt, state: TaskState::Canceling, ..Task::default() };
        }
    }

    /// The task is not deployed: the checkpoint being restored records it as finished.
    pub fn leave_out(&mut self, subtask: SubtaskId) {
        if let Some(task) = self.0.get_mut(&subtask) {
            task.state = TaskState::Finished;
            task.has_permit = false;
            task.is_at_end_of_data = true;
        }
    }
}
