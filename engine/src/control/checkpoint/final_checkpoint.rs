//! The checkpoint without which the job can't go on.
//!
//! Due when every running task either awaits a completed checkpoint or can only wait for one that
//! does, directly or through others: for its end of data or, behind its own, for its leaving;
//! finished tasks count as awaiting. A task all of whose producers have sent their end of data still
//! has something to do and is waited for: so a cascade of k commit stages takes k+1 checkpoints. A failed one is retried with
//! back-off.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::tasks::Tasks;
use super::topology::{EdgeKind, Topology};
use crate::clock::Timestamp;
use crate::id::{CheckpointId, SubtaskId};

const BACK_OFF_MIN: Duration = Duration::from_millis(10);
const BACK_OFF_MAX: Duration = Duration::from_secs(10);

/// Who awaits a checkpoint, and when one may be started for them.
#[derive(Clone, Debug, Hash)]
pub struct FinalCheckpoint {
    /// With the first checkpoint that will do, if the task knows it.
    awaiting: BTreeMap<SubtaskId, Option<CheckpointId>>,
    back_off: Duration,
    /// Not before this moment, since the last one failed.
    retry_at: Option<Timestamp>,
}

impl Default for FinalCheckpoint {
    fn default() -> Self {
        Self { awaiting: BTreeMap::new(), back_off: BACK_OFF_MIN, retry_at: None }
    }
}

impl FinalCheckpoint {
    /// `task` can't go on without a completed checkpoint: `since` or a later one, if it knows.
    /// Ignored if that has completed, as its notice is on the way to the task.
    pub fn awaits(
        &mut self,
        task: SubtaskId,
        since: Option<CheckpointId>,
        latest: Option<CheckpointId>,
    ) {
        if since.is_none() || since > latest {
            self.awaiting.insert(task, since);
        }
    }

    /// The task can go on, has finished, or restarts.
    pub fn withdraw(&mut self, task: SubtaskId) {
        self.awaiting.remove(&task);
    }

    /// Some task awaits a checkpoint.
    pub fn is_awaited(&self) -> bool {
        !self.awaiting.is_empty()
    }

    /// One completed; it releases the tasks whose operators had finished in it.
    pub fn completed(&mut self, id: CheckpointId, released: impl Iterator<Item = SubtaskId>) {
        for task in released {
            self.awaiting.remove(&task);
        }
        self.awaiting.retain(|_, since| since.is_none_or(|since| since > id));
        self.back_off = BACK_OFF_MIN;
        self.retry_at = None;
    }

    /// One that was started for the waiting tasks failed.
    pub fn failed(&mut self, now: Timestamp) {
        self.retry_at = Some(now.saturating_add(self.back_off));
        self.back_off = (self.back_off * 2).min(BACK_OFF_MAX);
    }

    /// When the next try is allowed, if the last one failed.
    pub fn retry_at(&self) -> Option<Timestamp> {
        self.retry_at.filter(|_| self.is_awaited())
    }

    /// Allows the next try if its time has come.
    pub fn pass(&mut self, now: Timestamp) {
        self.retry_at = self.retry_at.filter(|&at| at > now);
    }

    /// Nothing but a checkpoint can move the job, and a try is allowed.
    pub fn is_due(&self, topology: &Topology, tasks: &Tasks) -> bool {
        self.is_awaited() && self.retry_at.is_none() && self.is_stuck(topology, tasks)
    }

    fn is_stuck(&self, topology: &Topology, tasks: &Tasks) -> bool {
        // Tasks that have not sent their end of data; kept per vertex, in index order.
        let mut open: BTreeSet<SubtaskId> = BTreeSet::new();
        let mut unfinished: BTreeSet<SubtaskId> = BTreeSet::new();
        for vertex in topology.in_order() {
            for subtask in vertex.subtasks() {
                let task = tasks.get(subtask);
                if task.is_finished() {
                    continue;
                }
                let is_fed_by = |tasks: &BTreeSet<SubtaskId>| {
                    topology.inputs(vertex.id).any(|edge| match edge.kind {
                        EdgeKind::AllToAll => {
                            let first = SubtaskId { vertex: edge.from, index: 0 };
                            tasks.range(first..).next().is_some_and(|it| it.vertex == edge.from)
                        }
                        EdgeKind::Pointwise => topology
                            .producers(subtask, edge)
                            .any(|producer| tasks.contains(&producer)),
                    })
                };
                // Behind its end of data a task leaves when its producers have left.
                let is_held_up =
                    if task.is_at_end_of_data { is_fed_by(&unfinished) } else { is_fed_by(&open) };
                if !task.is_running() || !(self.awaiting.contains_key(&subtask) || is_held_up) {
                    return false;
                }
                unfinished.insert(subtask);
                if !task.is_at_end_of_data {
                    open.insert(subtask);
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_from_10_ms_to_10_s_and_starts_again_after_success() {
        let mut last = FinalCheckpoint::default();
        last.awaits(SubtaskId::new(0, 0), None, None);
        let mut waits = Vec::new();
        for _ in 0..12 {
            last.failed(Timestamp::ZERO);
            waits.push(last.retry_at().map(|at| at.since(Timestamp::ZERO).as_millis()));
        }
        let expected = [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10_000, 10_000].map(Some);
        assert_eq!(waits, expected);
        last.completed(CheckpointId(1), std::iter::empty());
        last.failed(Timestamp::ZERO);
        assert_eq!(last.retry_at(), Some(Timestamp::from_millis(10)));
    }
}
