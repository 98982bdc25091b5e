//! One checkpoint between its plan and its completion.
//!
//! Invariants: a task is either still awaited or has an acknowledgement, never both; `Finalizing`
//! means that nobody is awaited and that the store decides. Owned by the coordinator.

use std::collections::BTreeMap;

use super::message::{Ack, HeldCheckpoint, Unacknowledged, WaitingChannel};
use super::options::CheckpointOptions;
use super::plan::Plan;
use super::request::Request;
use crate::clock::Timestamp;
use crate::id::{Attempt, AttemptId, CheckpointId, SubtaskId};

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Acknowledgements are coming in.
    Collecting {
        /// When it expires.
        deadline: Timestamp,
    },
    /// The store writes the metadata.
    Finalizing,
}

/// What became of an acknowledgement.
#[derive(Debug, PartialEq, Eq)]
pub enum AckResult {
    /// Counted.
    Accepted,
    /// The task had acknowledged before.
    Duplicate,
    /// Nobody waits for this attempt.
    Unknown,
}

/// A pending checkpoint.
#[derive(Clone, Debug, Hash)]
pub struct Pending<S> {
    /// Which.
    pub id: CheckpointId,
    /// The request it serves.
    pub request: Request,
    /// What trigger and barriers carry.
    pub options: CheckpointOptions,
    /// When it was triggered.
    pub timestamp: Timestamp,
    /// Whom it concerns.
    pub plan: Plan,
    /// How far it is.
    pub phase: Phase,
    /// Tasks whose trigger is held back, since an older one still waits for them.
    pub held_triggers: Vec<AttemptId>,
    /// Acknowledgements by task.
    pub acks: BTreeMap<SubtaskId, Ack<S>>,
    /// State of operators' halves on the control thread, by operator id.
    pub coordinator_states: BTreeMap<String, S>,
    awaited: BTreeMap<SubtaskId, Attempt>,
    waiting: BTreeMap<SubtaskId, Vec<WaitingChannel>>,
}

impl<S> Pending<S> {
    /// A checkpoint of `plan`, none of whose triggers has been sent.
    pub fn new(
        id: CheckpointId,
        request: Request,
        options: CheckpointOptions,
        timestamp: Timestamp,
        deadline: Timestamp,
        plan: Plan,
    ) -> Self {
        Self {
            id,
            request,
            options,
            timestamp,
            phase: Phase::Collecting { deadline },
            held_triggers: plan.to_trigger.clone(),
            acks: BTreeMap::new(),
            coordinator_states: BTreeMap::new(),
            awaited: plan.to_wait.iter().map(|task| (task.subtask, task.attempt)).collect(),
            waiting: BTreeMap::new(),
            plan,
        }
    }

    /// Takes an acknowledgement; returns it if it doesn't count.
    pub fn acknowledge(&mut self, ack: Ack<S>) -> (AckResult, Option<Ack<S>>) {
        let AttemptId { subtask, attempt } = ack.task;
        if self.awaited.get(&subtask) == Some(&attempt) {
            self.awaited.remove(&subtask);
            self.waiting.remove(&subtask);
            self.held_triggers.retain(|held| held.subtask != subtask);
            self.acks.insert(subtask, ack);
            return (AckResult::Accepted, None);
        }
        let is_repeat = self.acks.get(&subtask).is_some_and(|known| known.task == ack.task);
        (if is_repeat { AckResult::Duplicate } else { AckResult::Unknown }, Some(ack))
    }

    /// Remembers what an awaited task waits for.
    pub fn note_waiting(&mut self, task: AttemptId, waiting: Vec<WaitingChannel>) {
        if self.awaits(task.subtask) {
            self.waiting.insert(task.subtask, waiting);
        }
    }

    /// `task` has not acknowledged.
    pub fn awaits(&self, task: SubtaskId) -> bool {
        self.awaited.contains_key(&task)
    }

    /// The tasks that have not acknowledged.
    pub fn awaited(&self) -> impl Iterator<Item = AttemptId> {
        self.awaited.iter().map(|(&subtask, &attempt)| AttemptId { subtask, attempt })
    }

    /// All tasks have acknowledged.
    pub fn is_fully_acknowledged(&self) -> bool {
        self.awaited.is_empty()
    }

    /// (acknowledged or finished before, all) tasks.
    pub fn progress(&self) -> (usize, usize) {
        let finished = self.plan.finished.len();
        (finished + self.acks.len(), finished + self.plan.to_wait.len())
    }

    /// The store has not been asked yet.
    pub fn is_collecting(&self) -> bool {
        matches!(self.phase, Phase::Collecting { .. })
    }

    /// When it expires; never once the store decides.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Collecting { deadline } => Some(deadline),
            Phase::Finalizing => None,
        }
    }

    /// Who has not acknowledged, and what is known of why.
    pub fn unacknowledged(&self) -> Vec<Unacknowledged> {
        let waiting = |task: SubtaskId| self.waiting.get(&task).cloned().unwrap_or_default();
        self.awaited().map(|task| Unacknowledged { task, waiting: waiting(task.subtask) }).collect()
    }

    /// What a task that wants to leave is told of it.
    pub fn held_for(&self, task: AttemptId) -> HeldCheckpoint {
        HeldCheckpoint {
            checkpoint: self.id,
            options: self.options,
            timestamp: self.timestamp,
            is_triggered: self.plan.to_trigger.contains(&task)
                && !self.held_triggers.contains(&task),
        }
    }
}
