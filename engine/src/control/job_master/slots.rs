//! How subtasks get and give up slots.

use std::collections::{BTreeMap, BTreeSet};

use super::JobMaster;
use super::message::{JobMasterOutput, ToResourceManager};
use crate::clock::Timestamp;
use crate::control::blocklist::cause::Cause;
use crate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use crate::control::evacuation::EvacuationInput;
use crate::control::execution::{ExecutionState, Place};
use crate::control::identity::{AllocationId, ResourceId};
use crate::control::moment::Moment;
use crate::control::slots::choice::{Wishes, choose_slot};
use crate::control::slots::pool::{SlotOffer, SlotPoolOutput, SlotUse};
use crate::control::slots::profile::ResourceCounter;
use crate::id::SubtaskId;
use crate::probe::{Fault, is_broken};

impl JobMaster {
    /// Takes the offered slots that are needed.
    pub(super) fn take_offers(
        &mut self,
        now: Moment,
        task_manager: &ResourceId,
        offers: &[SlotOffer],
        out: &mut Vec<JobMasterOutput>,
    ) {
        self.update_requirements(out);
        let mut pool_out = Vec::new();
        let accepted =
            self.pool.offer_slots(now.mono, task_manager, offers, &self.blocklist, &mut pool_out);
        out.push(JobMasterOutput::AnswerOffer {
            task_manager: task_manager.clone(),
            offered: offers.iter().map(|offer| offer.allocation).collect(),
            accepted,
        });
        self.apply_pool(now, pool_out, out);
    }

    /// Takes a subtask out of its slot; the slot is freed with its last subtask.
    pub(super) fn vacate(
        &mut self,
        now: Moment,
        subtask: SubtaskId,
        next: ExecutionState,
        failure: Option<&Cause>,
        out: &mut Vec<JobMasterOutput>,
    ) {
        let place = self.place(subtask);
        if let Some(execution) = self.executions.get_mut(subtask) {
            if next == ExecutionState::Waiting {
                execution.attempt.0 += 1;
            }
            execution.state = next;
            execution.previous = place.map(|place| place.slot);
            execution.avoid_previous = failure.is_some();
        }
        if let Some(slot) = self.sharing.release(subtask) {
            let mut pool_out = Vec::new();
            self.pool.free_reserved_slot(now.mono, slot, None, &self.blocklist, &mut pool_out);
            self.apply_pool(now, pool_out, out);
        }
    }

    /// Does what the pool wants.
    pub(super) fn apply_pool(
        &mut self,
        now: Moment,
        pool_out: Vec<SlotPoolOutput>,
        out: &mut Vec<JobMasterOutput>,
    ) {
        let mut lost = BTreeSet::new();
        for output in pool_out {
            match output {
                SlotPoolOutput::DeclareRequirements(needs) => {
                    if self.resource_manager.is_some() {
                        let message = ToResourceManager::DeclareRequirements(needs);
                        out.push(JobMasterOutput::ToResourceManager(message));
                    }
                }
                SlotPoolOutput::NewSlots(_) => {}
                SlotPoolOutput::PayloadFailed { allocation, .. } => {
                    lost.extend(self.sharing.lose(allocation));
                }
                SlotPoolOutput::FreeSlot { task_manager, allocation, cause } => {
                    out.push(JobMasterOutput::FreeSlot { task_manager, slot: allocation, cause });
                }
            }
        }
        if !lost.is_empty() {
            self.lose(now, &lost, out);
        }
    }

    /// Declares what the job needs, to a resource manager just found.
    pub(super) fn declare(&mut self, out: &mut Vec<JobMasterOutput>) {
        let before = out.len();
        self.update_requirements(out);
        if out.len() == before {
            let needs = self.pool.requirements().clone();
            let message = ToResourceManager::DeclareRequirements(needs);
            out.push(JobMasterOutput::ToResourceManager(message));
        }
    }

    /// One slot for each index that waits or runs, more where one index runs in two slots, and what the evacuation
    /// wants beyond.
    pub(super) fn update_requirements(&mut self, out: &mut Vec<JobMasterOutput>) {
        let used = self.pool.slots().filter(|slot| slot.state == SlotUse::Reserved).count() as u32;
        let mut open = BTreeSet::new();
        for subtask in self.executions.waiting() {
            if self.shared_slot(subtask).is_none() {
                open.insert(subtask.index);
            }
        }
        let count = used + open.len() as u32 + self.extra_slots;
        let mut pool_out = Vec::new();
        self.pool.set_requirements(ResourceCounter::of(self.config.profile, count), &mut pool_out);
        self.apply_pool(Moment::default(), pool_out, out);
    }

    /// Deploys what waits, once everything that was told to stop has stopped, the wait is over and slots are there.
    pub(super) fn assign(&mut self, now: Moment, out: &mut Vec<JobMasterOutput>) {
        if self.is_over {
            return;
        }
        self.update_requirements(out);
        let waiting = self.executions.waiting();
        if waiting.is_empty() {
            self.waiting_since = None;
        }
        let is_blocked = !self.executions.canceling().is_empty() || now.mono < self.backoff_until;
        if waiting.is_empty() || is_blocked {
            return;
        }
        self.backoff_until = Timestamp::ZERO;
        let waiting = self.leave_out_finished(waiting, out);
        if waiting.is_empty() {
            return;
        }
        self.waiting_since.get_or_insert(now.mono);
        let Some(slots) = self.choose(&waiting) else { return };
        let ids = waiting.iter().map(|subtask| self.executions.id(*subtask)).collect();
        out.push(JobMasterOutput::Restore(ids));
        for (subtask, slot) in slots {
            let held = self.pool.slot(slot).expect("it was just chosen");
            let task_manager = held.task_manager.clone();
            if held.state != SlotUse::Reserved {
                let profile = self.config.profile;
                self.pool.reserve_free_slot(slot, profile).expect("it was chosen among the free");
            }
            self.sharing.assign(subtask, slot);
            let attempt = self.executions.id(subtask);
            let execution = self.executions.get_mut(subtask).expect("it waits");
            execution.state =
                ExecutionState::Running(Place { slot, task_manager: task_manager.clone() });
            out.push(JobMasterOutput::Deploy { attempt, task_manager, slot });
        }
        self.waiting_since = None;
    }

    /// Takes out what has finished in the checkpoint that everybody restarts from: one that completed after the failure,
    /// or before the report of the end arrived. Returns who is left.
    fn leave_out_finished(
        &mut self,
        mut waiting: BTreeSet<SubtaskId>,
        out: &mut Vec<JobMasterOutput>,
    ) -> BTreeSet<SubtaskId> {
        if is_broken(Fault::FinishedRunsAgain) {
            return waiting;
        }
        let before = waiting.len();
        waiting.retain(|subtask| !self.finished_in_checkpoint.contains(subtask));
        if waiting.len() == before {
            return waiting;
        }
        for subtask in &self.finished_in_checkpoint {
            if let Some(execution) = self.executions.get_mut(*subtask)
                && execution.state == ExecutionState::Waiting
            {
                execution.state = ExecutionState::Finished;
            }
        }
        self.update_requirements(out);
        if waiting.is_empty() {
            self.waiting_since = None;
            out.push(JobMasterOutput::Restore(BTreeSet::new()));
            self.finish_if_done(out);
        }
        waiting
    }

    /// Why the job does not get its slots, naming what is blocklisted.
    pub(super) fn no_resources(&self) -> Cause {
        let blocked: Vec<String> =
            self.blocklist.get_all_items().iter().map(|item| item.key.to_string()).collect();
        let missing = self.executions.waiting().len();
        let mut message = format!("{missing} subtasks found no slot in time");
        if !blocked.is_empty() {
            message += &format!("; blocklisted: {}", blocked.join(", "));
        }
        Cause::new("NoResourceAvailable", &message)
    }

    /// Tells the evacuation who has left by another way, and how many slots are held beyond need.
    pub(super) fn note_replacements(&mut self, now: Moment, out: &mut Vec<JobMasterOutput>) {
        for victim in self.evacuation.victims() {
            if is_broken(Fault::VictimsKept) {
                break;
            }
            let stays = self.executions.current(victim).is_some();
            if !stays || self.place(victim.subtask).is_none() {
                self.evacuate(now, EvacuationInput::Left(victim), out);
            }
        }
        let free = self.pool.free_slots().count() as u32;
        let waiting: BTreeSet<u32> =
            self.executions.waiting().into_iter().map(|subtask| subtask.index).collect();
        let spare = free.saturating_sub(waiting.len() as u32);
        self.evacuate(now, EvacuationInput::Replacements(spare), out);
    }

    /// A slot for each waiting subtask, or none if not all can have one.
    fn choose(&self, waiting: &BTreeSet<SubtaskId>) -> Option<Vec<(SubtaskId, AllocationId)>> {
        let mut of_index: BTreeMap<u32, AllocationId> = BTreeMap::new();
        let mut chosen = Vec::new();
        for subtask in waiting {
            let slot = of_index.get(&subtask.index).copied().or_else(|| self.shared_slot(*subtask));
            let slot = match slot {
                Some(slot) => slot,
                None => {
                    let taken: BTreeSet<_> = of_index.values().copied().collect();
                    let free = self.pool.slots().filter(|slot| !taken.contains(&slot.allocation));
                    choose_slot(free, &self.wishes(*subtask))?
                }
            };
            of_index.insert(subtask.index, slot);
            chosen.push((*subtask, slot));
        }
        Some(chosen)
    }

    fn wishes(&self, subtask: SubtaskId) -> Wishes {
        let mut wishes = Wishes::default();
        if let Some(execution) = self.executions.get(subtask) {
            if execution.avoid_previous {
                wishes.avoid_slots.extend(execution.previous);
            } else {
                wishes.previous = execution.previous;
            }
        }
        wishes
    }

    /// The slot in which another subtask of the same index runs, if its task manager may be used.
    fn shared_slot(&self, subtask: SubtaskId) -> Option<AllocationId> {
        self.executions.iter().find_map(|(other, execution)| match &execution.state {
            ExecutionState::Running(place)
                if other.index == subtask.index
                    && other.vertex != subtask.vertex
                    && !self.blocklist.is_blocklisted_task_manager(&place.task_manager) =>
            {
                Some(place.slot)
            }
            ExecutionState::Running(_)
            | ExecutionState::Canceling(_)
            | ExecutionState::Waiting
            | ExecutionState::Finished
            | ExecutionState::Ended => None,
        })
    }
}
