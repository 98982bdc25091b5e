//! What is checked of a job master at every step: where attempts start and stay.

use std::collections::BTreeSet;

use tidegate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use tidegate::control::blocklist::item::{BlocklistAction, ItemKey};
use tidegate::control::identity::{AllocationId, ResourceId};
use tidegate::id::{AttemptId, SubtaskId};

use super::super::message::{Message, Wiring};
use super::super::net::Net;
use super::super::reach::Race;
use super::{Believed, Job};

impl Job {
    /// No new slot of a blocked task manager is taken, and none that is held is refused (FLINK-28640).
    pub(super) fn check_answer(
        &self,
        net: &mut Net,
        task_manager: &ResourceId,
        offered: &[AllocationId],
        accepted: &[AllocationId],
        held: &[(AllocationId, ResourceId)],
    ) {
        let is_blocked = self.master.blocklist().is_blocklisted_task_manager(task_manager);
        for slot in offered {
            let was_held = held.iter().any(|(held, _)| held == slot);
            let is_taken = accepted.contains(slot);
            if was_held && !is_taken {
                net.violate(|| format!("{slot} is held and refused"));
            }
            if !is_blocked {
                continue;
            }
            net.meet(if was_held { Race::DuplicateOfferBlocked } else { Race::BlockDuringOffer });
            if is_taken && !was_held {
                net.violate(|| format!("{slot} of {task_manager} is taken, which is blocked"));
            }
        }
    }

    /// Whether an item demands that everybody leaves this task manager.
    pub fn is_to_leave(&self, id: &ResourceId) -> bool {
        let evacuates = |key: ItemKey| {
            let item = self.master.blocklist().item(&key);
            item.is_some_and(|item| item.action == BlocklistAction::MarkAndEvacuate)
        };
        let node = self.master.pool().task_managers().get(id).cloned();
        evacuates(ItemKey::TaskManager(id.clone()))
            || node.is_some_and(|node| evacuates(ItemKey::Node(node)))
    }

    pub(super) fn note_moved(&self, net: &mut Net, since: u64) {
        let grace = self.plan.evacuation.grace.as_millis() as u64;
        net.meet(match net.now - since {
            _ if grace == 0 => Race::MovedWithoutGrace,
            waited if waited < grace => Race::MovedGracefully,
            _ => Race::MovedWhenGraceOver,
        });
    }

    /// Who is to leave, and since when; nobody stays beyond the grace where there is room.
    pub(super) fn note_covered(&mut self, net: &mut Net) {
        if self.outcome.is_some() || self.believed.is_empty() {
            return;
        }
        let mut slots = BTreeSet::new();
        let mut oldest = u64::MAX;
        let mut believed = std::mem::take(&mut self.believed);
        for believed in believed.values_mut() {
            // Few are blocked, so this is asked first.
            let id = &believed.task_manager;
            let is_blocked = self.master.blocklist().is_blocklisted_task_manager(id);
            if is_blocked && self.is_to_leave(id) {
                let since = *believed.covered_since.get_or_insert(net.now);
                oldest = oldest.min(since);
                slots.insert(believed.slot);
            } else if believed.covered_since.take().is_some() {
                net.meet(Race::ItemEndsDuringGrace);
            } else if is_blocked {
                net.meet(Race::MarkedWhileRunning);
            }
        }
        self.believed = believed;
        if slots.is_empty() {
            return;
        }
        let grace = self.plan.evacuation.grace.as_millis() as u64;
        let free = self.master.pool().free_slots().count();
        let executions = self.master.executions();
        let is_still = executions.waiting().is_empty() && executions.canceling().is_empty();
        let is_late = net.now > oldest + grace;
        if is_late && is_still && free >= slots.len() {
            net.violate(|| {
                format!("job {} stays on {slots:?} since {oldest} with {free} free", self.index)
            });
        }
    }

    pub(super) fn deploy(
        &mut self,
        net: &mut Net,
        attempt: AttemptId,
        task_manager: ResourceId,
        slot: AllocationId,
    ) {
        if self.master.blocklist().is_blocklisted_task_manager(&task_manager) {
            net.violate(|| format!("{attempt:?} starts on {task_manager}, which is blocked"));
        }
        let rival = self.believed.keys().find(|other| other.subtask == attempt.subtask);
        if let Some(rival) = rival {
            net.violate(|| format!("{attempt:?} starts while {rival:?} is believed to run"));
        }
        let before = self.deployed.get(&attempt.subtask);
        if before.is_some_and(|(before, _)| before.attempt >= attempt.attempt) {
            net.violate(|| format!("{attempt:?} starts after {before:?}"));
        }
        let believed = Believed { task_manager: task_manager.clone(), slot, covered_since: None };
        self.believed.insert(attempt, believed);
        self.deployed.insert(attempt.subtask, (attempt, task_manager.clone()));
        let finished = self.restoration.as_ref().map(|r| &r.left_out);
        let inputs: Vec<_> =
            self.topology.channels(attempt.subtask).map(|(_, from)| from).collect();
        let has_ended = |input: &SubtaskId| finished.is_some_and(|f| f.contains(input));
        let outputs = self
            .topology
            .subtasks()
            .filter(|&to| self.topology.channels(to).any(|(_, from)| from == attempt.subtask));
        let is_source = attempt.subtask.vertex.0 == 0;
        let wiring = Wiring {
            ended: inputs.iter().copied().filter(has_ended).collect(),
            outputs: outputs.collect(),
            ends_at: self.plan.ends_at[attempt.subtask.index as usize].filter(|_| is_source),
            needs_final: self.plan.needs_final,
            inputs,
        };
        self.send(net, &task_manager, Message::Deploy(attempt, slot, Box::new(wiring)));
    }
}
