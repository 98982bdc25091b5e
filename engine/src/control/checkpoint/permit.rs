//! The finish permit, and the order of triggers to one task.
//!
//! FLIP-147 (options for a task's finished status): a task reports before it emits end of partition
//! and is told which pending checkpoints it still owes. Granting and planning happen in one
//! machine, so a plan made before the grant holds the task, and one made after it triggers the
//! task's successors instead. Invariant: no request is kept that could be granted.

use std::collections::{BTreeMap, BTreeSet};

use super::message::HeldCheckpoint;
use super::pending::Pending;
use crate::id::{AttemptId, CheckpointId, SubtaskId};
use crate::probe::{self, Fault, is_broken};

/// The answer to a finish request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permit {
    /// The task counts as finished from this moment.
    Granted,
    /// These still wait for it, oldest first.
    Hold(Vec<HeldCheckpoint>),
}

impl Permit {
    /// The answer for `task`, given everything pending.
    pub fn decide<S>(task: AttemptId, pending: &BTreeMap<CheckpointId, Pending<S>>) -> Self {
        let held: Vec<_> = pending
            .values()
            .filter(|pending| pending.awaits(task.subtask))
            .map(|pending| pending.held_for(task))
            .collect();
        if held.is_empty() || is_broken(Fault::PermitTooEarly) {
            Self::Granted
        } else {
            Self::Hold(held)
        }
    }
}

/// Requests that are on hold.
#[derive(Clone, Debug, Default, Hash)]
pub struct Permits(BTreeSet<AttemptId>);

impl Permits {
    /// Keeps a request until nothing pending waits for the task.
    pub fn hold(&mut self, task: AttemptId) {
        self.0.insert(task);
    }

    /// Forgets the request of a task that restarts or fails.
    pub fn withdraw(&mut self, task: SubtaskId) {
        self.0.retain(|held| held.subtask != task);
    }

    /// Takes out the requests that can be granted.
    pub fn grantable<S>(
        &mut self,
        pending: &BTreeMap<CheckpointId, Pending<S>>,
    ) -> BTreeSet<AttemptId> {
        let is_free =
            |task: &AttemptId| !pending.values().any(|pending| pending.awaits(task.subtask));
        let (free, held) = self.0.iter().copied().partition(is_free);
        self.0 = held;
        free
    }

    /// The requests on hold.
    pub fn held(&self) -> impl Iterator<Item = AttemptId> {
        self.0.iter().copied()
    }
}

/// Takes out the triggers that may be sent: those to tasks for which no older pending checkpoint
/// waits. A trigger that came earlier could overtake an older barrier that is unread in one of the
/// task's channels.
pub fn take_sendable<S>(
    pending: &mut BTreeMap<CheckpointId, Pending<S>>,
) -> Vec<(CheckpointId, AttemptId)> {
    if pending.values().all(|pending| pending.held_triggers.is_empty()) {
        return Vec::new();
    }
    let mut owing = BTreeSet::new();
    let mut sendable = Vec::new();
    for (&id, pending) in pending {
        pending.held_triggers.retain(|task| {
            let may_send = !owing.contains(&task.subtask);
            if may_send {
                sendable.push((id, *task));
            }
            !may_send
        });
        if !pending.held_triggers.is_empty() {
            probe::note(None, &probe::TriggerHeld { checkpoint: id });
        }
        owing.extend(pending.awaited().map(|task| task.subtask));
    }
    sendable
}
