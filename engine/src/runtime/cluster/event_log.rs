//! What happened to subtasks, task managers and blocklisted items: a bounded list of facts in the order of the decisions.
//!
//! Written on the control thread only, so an entry's number tells whether something was blocklisted when a subtask was deployed.
//! The oldest entries go when the list is full; numbers are never used again.

use std::collections::VecDeque;

use crate::clock::EpochMillis;
use crate::control::blocklist::item::{BlocklistAction, BlocklistedItem, ItemKey};
use crate::control::identity::{NodeId, ResourceId};
use crate::control::moment::Moment;
use crate::id::AttemptId;

/// How many facts are kept.
pub const EVENTS_MAX: usize = 10_000;

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterEvent {
    /// Its number, from 1; each one's is larger than that of what happened before.
    pub number: u64,
    /// When it was written down.
    pub at: EpochMillis,
    /// What happened.
    pub fact: ClusterFact,
}

/// What can happen in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterFact {
    /// A task manager joined.
    TaskManagerStarted {
        /// Which.
        task_manager: ResourceId,
        /// On which machine.
        node: NodeId,
    },
    /// A task manager is gone.
    TaskManagerEnded {
        /// Which.
        task_manager: ResourceId,
    },
    /// A subtask was sent to a task manager.
    Deployed {
        /// Which attempt.
        attempt: AttemptId,
        /// Where to.
        task_manager: ResourceId,
        /// On which machine that is.
        node: NodeId,
    },
    /// A subtask was told to stop.
    Cancelled {
        /// Which attempt.
        attempt: AttemptId,
    },
    /// Something was blocklisted.
    ItemAdded {
        /// What.
        key: ItemKey,
        /// How.
        action: BlocklistAction,
    },
    /// An item's action, end or cause changed.
    ItemUpdated {
        /// Of what.
        key: ItemKey,
        /// Its action now.
        action: BlocklistAction,
    },
    /// An item was removed by order.
    ItemRemoved {
        /// Of what.
        key: ItemKey,
    },
    /// An item's end came.
    ItemExpired {
        /// Of what.
        key: ItemKey,
    },
    /// A strategy's item was refused.
    ItemRefused {
        /// Of what.
        key: ItemKey,
        /// Why.
        message: String,
    },
    /// Subtasks are to leave blocklisted task managers: slots elsewhere and a checkpoint were asked for.
    EvacuationBegun,
    /// Subtasks gave up their slots on blocklisted task managers, and start elsewhere.
    Evacuated {
        /// Those that were there.
        attempts: Vec<AttemptId>,
    },
    /// Subtasks stay on blocklisted task managers.
    EvacuationStuck {
        /// Which, if that is known.
        attempts: Vec<AttemptId>,
        /// Why.
        reason: String,
    },
    /// The job lacks slots.
    NotEnoughSlots {
        /// How many.
        missing: u32,
    },
}

/// The list.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    events: VecDeque<ClusterEvent>,
    last: u64,
    /// Items that had ended by the last look.
    expired: u64,
}

impl EventLog {
    /// Writes a fact down, unless it is the one written down last.
    pub(super) fn note_change(&mut self, now: Moment, fact: ClusterFact) {
        if self.events.back().is_none_or(|last| last.fact != fact) {
            self.note(now, fact);
        }
    }

    /// Writes a fact down.
    pub(super) fn note(&mut self, now: Moment, fact: ClusterFact) {
        self.last += 1;
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(ClusterEvent { number: self.last, at: now.wall, fact });
    }

    /// Writes down how items have changed, each with what it was before, if they have. Of all items `expired` have ended by now.
    pub(super) fn note_items(
        &mut self,
        now: Moment,
        changes: &[(Option<BlocklistedItem>, Option<BlocklistedItem>)],
        expired: u64,
    ) {
        // An item ends on the monotonic clock, which the wall clock may be a little behind.
        let ends_by = EpochMillis(now.wall.0.saturating_add(1000));
        let mut ended = expired - self.expired;
        self.expired = expired;
        for (before, after) in changes {
            let Some(item) = after else { continue };
            let (key, action) = (item.key.clone(), item.action);
            match before {
                None => self.note(now, ClusterFact::ItemAdded { key, action }),
                Some(known) if known != item => {
                    self.note(now, ClusterFact::ItemUpdated { key, action });
                }
                Some(_) => {}
            }
        }
        for (before, after) in changes {
            let (Some(item), None) = (before, after) else { continue };
            let key = item.key.clone();
            let has_ended = ended > 0 && item.end() <= ends_by;
            ended -= u64::from(has_ended);
            let fact = match has_ended {
                true => ClusterFact::ItemExpired { key },
                false => ClusterFact::ItemRemoved { key },
            };
            self.note(now, fact);
        }
    }

    /// The entries whose numbers are larger than `after`, oldest first.
    pub(super) fn since(&self, after: u64) -> Vec<ClusterEvent> {
        self.events.iter().filter(|event| event.number > after).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_facts_go_and_numbers_go_on() {
        let mut log = EventLog::default();
        for _ in 0..EVENTS_MAX + 5 {
            log.note(Moment::at_millis(7), ClusterFact::EvacuationBegun);
        }
        let all = log.since(0);
        assert_eq!((all.len(), all[0].number), (EVENTS_MAX, 6));
        let tail = log.since(EVENTS_MAX as u64 + 3);
        assert_eq!(tail.iter().map(|event| event.number).collect::<Vec<_>>(), [10_004, 10_005]);
    }
}
