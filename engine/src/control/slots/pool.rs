//! The slots a job master holds, matched against what its job needs (FLIP-224, SlotPool).
//!
//! Invariant: whenever the control thread is idle, no slot here is both free and on a blocklisted task manager.
//! Requirements are declared as absolute numbers and not lowered by a block: the job still needs its slots, so the
//! resource manager finds others. Called by `control::job_master`; `check` after every event.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::profile::{ResourceCounter, ResourceProfile};
use crate::clock::Timestamp;
use crate::control::blocklist::cause::Cause;
use crate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use crate::control::identity::{AllocationId, NodeId, ResourceId, TaskManagerLocation};
use crate::probe::{Fault, is_broken};

/// A slot that a task manager offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotOffer {
    /// The grant under which it is offered.
    pub allocation: AllocationId,
    /// Which slot of the task manager.
    pub index: u32,
    /// What it provides.
    pub profile: ResourceProfile,
}

/// Whether tasks are assigned to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotUse {
    /// None are, since then.
    Free {
        /// Since when.
        since: Timestamp,
    },
    /// Some are.
    Reserved,
}

/// A slot the job holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalSlot {
    /// The grant.
    pub allocation: AllocationId,
    /// Whose slot it is.
    pub task_manager: ResourceId,
    /// Which slot of the task manager.
    pub index: u32,
    /// What it provides.
    pub profile: ResourceProfile,
    /// The requirement it is counted for; `None` if it was taken without one.
    pub matched: Option<ResourceProfile>,
    /// Whether tasks are assigned to it.
    pub state: SlotUse,
}

/// What the pool wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotPoolOutput {
    /// Tell the resource manager what the job needs in all.
    DeclareRequirements(ResourceCounter),
    /// These slots became free for use.
    NewSlots(Vec<AllocationId>),
    /// The tasks in a slot lost it.
    PayloadFailed {
        /// The slot.
        allocation: AllocationId,
        /// Why.
        cause: Cause,
    },
    /// Tell a task manager that the job doesn't want a slot any more.
    FreeSlot {
        /// Whose slot it is.
        task_manager: ResourceId,
        /// The grant.
        allocation: AllocationId,
        /// Why.
        cause: Cause,
    },
}

/// A slot can't be reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// The pool holds no slot of that grant.
    Unknown,
    /// Tasks are assigned to it already.
    NotFree,
    /// It does not provide what is needed.
    TooSmall,
}

/// All slots of one job.
#[derive(Debug)]
pub struct SlotPool {
    idle_timeout: Duration,
    task_managers: BTreeMap<ResourceId, NodeId>,
    slots: BTreeMap<AllocationId, PhysicalSlot>,
    total: ResourceCounter,
    fulfilled: ResourceCounter,
}

impl SlotPool {
    /// An empty pool that gives back slots beyond need after `idle_timeout`.
    pub fn new(idle_timeout: Duration) -> Self {
        Self {
            idle_timeout,
            task_managers: BTreeMap::new(),
            slots: BTreeMap::new(),
            total: ResourceCounter::default(),
            fulfilled: ResourceCounter::default(),
        }
    }

    /// Says what the job needs in all, and declares it.
    pub fn set_requirements(&mut self, total: ResourceCounter, out: &mut Vec<SlotPoolOutput>) {
        if total != self.total {
            self.total = total;
            self.declare_requirements(out);
        }
    }

    /// Declares what the job needs; also on each connection to a resource manager.
    pub fn declare_requirements(&self, out: &mut Vec<SlotPoolOutput>) {
        out.push(SlotPoolOutput::DeclareRequirements(self.total.clone()));
    }

    /// A task manager may offer slots from now on.
    pub fn register_task_manager(&mut self, location: &TaskManagerLocation) {
        self.task_managers.insert(location.resource_id.clone(), location.node_id.clone());
    }

    /// A task manager is gone: all its slots are lost. The requirements they fulfilled are returned.
    pub fn deregister_task_manager(
        &mut self,
        id: &ResourceId,
        cause: &Cause,
        out: &mut Vec<SlotPoolOutput>,
    ) -> ResourceCounter {
        let returned = self.release_slots_on_task_manager(id, cause, out);
        self.task_managers.remove(id);
        returned
    }

    /// Takes of the offered slots those that are needed; returns them. Others the task manager frees itself.
    ///
    /// A blocklisted task manager's new slots are refused (FLIP-224, SlotPool, 2), but not those the pool already
    /// holds: a repeated offer must not fail a running task (FLINK-28640).
    pub fn offer_slots(
        &mut self,
        now: Timestamp,
        task_manager: &ResourceId,
        offers: &[SlotOffer],
        checker: &dyn BlocklistedTaskManagerChecker,
        out: &mut Vec<SlotPoolOutput>,
    ) -> Vec<AllocationId> {
        self.take(now, task_manager, offers, checker, out, Self::matching)
    }

    /// Takes all slots offered, needed or not, under the same rules for blocklisted task managers.
    pub fn register_slots(
        &mut self,
        now: Timestamp,
        task_manager: &ResourceId,
        offers: &[SlotOffer],
        checker: &dyn BlocklistedTaskManagerChecker,
        out: &mut Vec<SlotPoolOutput>,
    ) -> Vec<AllocationId> {
        let any = |pool: &Self, profile: &ResourceProfile| Some(pool.matching(profile).flatten());
        self.take(now, task_manager, offers, checker, out, any)
    }

    /// Assigns tasks to a free slot.
    ///
    /// # Errors
    /// If there is no such slot, or it is in use or too small.
    pub fn reserve_free_slot(
        &mut self,
        allocation: AllocationId,
        profile: ResourceProfile,
    ) -> Result<&PhysicalSlot, ReserveError> {
        let slot = self.slots.get_mut(&allocation).ok_or(ReserveError::Unknown)?;
        if slot.state == SlotUse::Reserved {
            return Err(ReserveError::NotFree);
        }
        if !slot.profile.serves(&profile) {
            return Err(ReserveError::TooSmall);
        }
        if slot.matched != Some(profile) {
            if let Some(old) = slot.matched {
                self.fulfilled.subtract(old, 1);
            }
            self.fulfilled.add(profile, 1);
            slot.matched = Some(profile);
        }
        slot.state = SlotUse::Reserved;
        Ok(slot)
    }

    /// No task is assigned to a slot any more. On a blocklisted task manager it is given back instead of becoming
    /// free (FLIP-224, SlotPool, 4). The requirement it fulfilled is returned.
    pub fn free_reserved_slot(
        &mut self,
        now: Timestamp,
        allocation: AllocationId,
        cause: Option<&Cause>,
        checker: &dyn BlocklistedTaskManagerChecker,
        out: &mut Vec<SlotPoolOutput>,
    ) -> ResourceCounter {
        let Some(slot) = self.slots.get_mut(&allocation) else { return ResourceCounter::default() };
        if slot.state != SlotUse::Reserved {
            return ResourceCounter::default();
        }
        if checker.is_blocklisted_task_manager(&slot.task_manager) {
            let blocked = Cause::induced("TaskManagerBlocklisted", slot.task_manager.as_str());
            if let Some(cause) = cause {
                out.push(SlotPoolOutput::PayloadFailed { allocation, cause: cause.clone() });
            }
            return self.give_back(allocation, &blocked, out);
        }
        slot.state = SlotUse::Free { since: now };
        let matched = slot.matched;
        if let Some(cause) = cause {
            out.push(SlotPoolOutput::PayloadFailed { allocation, cause: cause.clone() });
        }
        out.push(SlotPoolOutput::NewSlots(vec![allocation]));
        counter(matched)
    }

    /// Gives back all slots of a task manager, in use or not (FLIP-224, SlotPoolService).
    pub fn release_slots_on_task_manager(
        &mut self,
        id: &ResourceId,
        cause: &Cause,
        out: &mut Vec<SlotPoolOutput>,
    ) -> ResourceCounter {
        self.release_where(cause, out, |slot| slot.task_manager == *id)
    }

    /// Gives back the free slots of a task manager (FLIP-224, SlotPoolService).
    pub fn release_free_slots_on_task_manager(
        &mut self,
        id: &ResourceId,
        cause: &Cause,
        out: &mut Vec<SlotPoolOutput>,
    ) -> ResourceCounter {
        let free =
            |slot: &PhysicalSlot| slot.task_manager == *id && slot.state != SlotUse::Reserved;
        self.release_where(cause, out, free)
    }

    /// Gives back free slots beyond need that nobody used for the idle timeout.
    pub fn release_idle_slots(&mut self, now: Timestamp, out: &mut Vec<SlotPoolOutput>) {
        let cause = Cause::induced("SlotIdle", "beyond what the job needs");
        for allocation in self.excess() {
            if self.idle_at(allocation).is_some_and(|at| at <= now) {
                self.release(allocation, &cause, out);
            }
        }
    }

    /// When [`SlotPool::release_idle_slots`] is due.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.excess().into_iter().filter_map(|allocation| self.idle_at(allocation)).min()
    }

    /// A task manager lost a slot. Whether it has none left.
    pub fn fail_allocation(
        &mut self,
        task_manager: &ResourceId,
        allocation: AllocationId,
        cause: &Cause,
        out: &mut Vec<SlotPoolOutput>,
    ) -> bool {
        if self.slots.get(&allocation).is_some_and(|slot| slot.task_manager == *task_manager) {
            self.forget(allocation, cause, out);
        }
        !self.slots.values().any(|slot| slot.task_manager == *task_manager)
    }

    /// The slot of a grant.
    pub fn slot(&self, allocation: AllocationId) -> Option<&PhysicalSlot> {
        self.slots.get(&allocation)
    }

    /// All slots.
    pub fn slots(&self) -> impl Iterator<Item = &PhysicalSlot> {
        self.slots.values()
    }

    /// Slots without tasks.
    pub fn free_slots(&self) -> impl Iterator<Item = &PhysicalSlot> {
        self.slots.values().filter(|slot| slot.state != SlotUse::Reserved)
    }

    /// What the job needs in all.
    pub fn requirements(&self) -> &ResourceCounter {
        &self.total
    }

    /// Registered task managers and their nodes.
    pub fn task_managers(&self) -> &BTreeMap<ResourceId, NodeId> {
        &self.task_managers
    }

    /// Registered task managers on a node.
    pub fn task_managers_on(&self, node: &NodeId) -> Vec<ResourceId> {
        let on = self.task_managers.iter().filter(|(_, at)| *at == node);
        on.map(|(id, _)| id.clone()).collect()
    }

    /// Asserts the pool's invariants.
    ///
    /// # Panics
    /// If one doesn't hold; that is a mistake in the control plane.
    pub fn check(&self, checker: &dyn BlocklistedTaskManagerChecker) {
        let mut matched = ResourceCounter::default();
        for slot in self.slots.values() {
            let id = &slot.task_manager;
            assert!(self.task_managers.contains_key(id), "a slot of {id}, which is not registered");
            let is_free = slot.state != SlotUse::Reserved;
            let both = is_free && checker.is_blocklisted_task_manager(id);
            assert!(!both, "slot {} is both free and blocklisted", slot.allocation);
            matched.add_all(&counter(slot.matched));
        }
        assert_eq!(matched, self.fulfilled, "fulfilled is the sum of what is matched");
    }

    fn take(
        &mut self,
        now: Timestamp,
        task_manager: &ResourceId,
        offers: &[SlotOffer],
        checker: &dyn BlocklistedTaskManagerChecker,
        out: &mut Vec<SlotPoolOutput>,
        matching: impl Fn(&Self, &ResourceProfile) -> Option<Option<ResourceProfile>>,
    ) -> Vec<AllocationId> {
        let (mut accepted, mut new) = (Vec::new(), Vec::new());
        if !self.task_managers.contains_key(task_manager) {
            return accepted;
        }
        let is_blocklisted = checker.is_blocklisted_task_manager(task_manager);
        for offer in offers {
            if let Some(held) = self.slots.get(&offer.allocation) {
                let is_refused = is_blocklisted && is_broken(Fault::HeldSlotRefused);
                if held.task_manager == *task_manager && !is_refused {
                    accepted.push(offer.allocation);
                }
                continue;
            }
            if is_blocklisted && !is_broken(Fault::BlockedOfferTaken) {
                continue;
            }
            let Some(matched) = matching(self, &offer.profile) else { continue };
            self.fulfilled.add_all(&counter(matched));
            let slot = PhysicalSlot {
                allocation: offer.allocation,
                task_manager: task_manager.clone(),
                index: offer.index,
                profile: offer.profile,
                matched,
                state: SlotUse::Free { since: now },
            };
            self.slots.insert(offer.allocation, slot);
            accepted.push(offer.allocation);
            new.push(offer.allocation);
        }
        if !new.is_empty() {
            out.push(SlotPoolOutput::NewSlots(new));
        }
        accepted
    }

    /// The unfulfilled requirement that a slot of `profile` serves.
    fn matching(&self, profile: &ResourceProfile) -> Option<Option<ResourceProfile>> {
        let mut open = self
            .total
            .iter()
            .filter(|(need, count)| profile.serves(need) && self.fulfilled.count(need) < *count);
        open.next().map(|(need, _)| Some(need))
    }

    fn release_where(
        &mut self,
        cause: &Cause,
        out: &mut Vec<SlotPoolOutput>,
        which: impl Fn(&PhysicalSlot) -> bool,
    ) -> ResourceCounter {
        let hit = self.slots.values().filter(|slot| which(slot));
        let allocations: Vec<_> = hit.map(|slot| slot.allocation).collect();
        let mut returned = ResourceCounter::default();
        for allocation in allocations {
            returned.add_all(&self.release(allocation, cause, out));
        }
        returned
    }

    /// Removes a slot and gives it back; the tasks in it fail.
    fn release(
        &mut self,
        allocation: AllocationId,
        cause: &Cause,
        out: &mut Vec<SlotPoolOutput>,
    ) -> ResourceCounter {
        if self.slots.get(&allocation).is_some_and(|slot| slot.state == SlotUse::Reserved) {
            out.push(SlotPoolOutput::PayloadFailed { allocation, cause: cause.clone() });
        }
        self.give_back(allocation, cause, out)
    }

    /// Removes a slot that the task manager lost itself.
    fn forget(&mut self, allocation: AllocationId, cause: &Cause, out: &mut Vec<SlotPoolOutput>) {
        let before = out.len();
        self.release(allocation, cause, out);
        let told = |output: &SlotPoolOutput| matches!(output, SlotPoolOutput::FreeSlot { .. });
        if let Some(at) = out[before..].iter().position(told) {
            out.remove(before + at);
        }
    }

    /// A free slot's requirement was already returned when it became free, so that it is not returned twice
    /// (FLINK-24005).
    fn give_back(
        &mut self,
        allocation: AllocationId,
        cause: &Cause,
        out: &mut Vec<SlotPoolOutput>,
    ) -> ResourceCounter {
        let Some(slot) = self.slots.remove(&allocation) else { return ResourceCounter::default() };
        let matched = counter(slot.matched);
        for (profile, count) in matched.iter() {
            self.fulfilled.subtract(profile, count);
        }
        out.push(SlotPoolOutput::FreeSlot {
            task_manager: slot.task_manager,
            allocation,
            cause: cause.clone(),
        });
        match slot.state {
            SlotUse::Reserved => matched,
            SlotUse::Free { .. } => ResourceCounter::default(),
        }
    }

    /// Free slots that the job can do without, longest idle first.
    fn excess(&self) -> BTreeSet<AllocationId> {
        let mut over: BTreeMap<Option<ResourceProfile>, u32> = BTreeMap::new();
        for (profile, count) in self.fulfilled.iter() {
            over.insert(Some(profile), count.saturating_sub(self.total.count(&profile)));
        }
        let mut free: Vec<_> = self.free_slots().collect();
        free.sort_by_key(|slot| match slot.state {
            SlotUse::Free { since } => since,
            SlotUse::Reserved => Timestamp::MAX,
        });
        let mut excess = BTreeSet::new();
        for slot in free {
            let left = match slot.matched {
                None => true,
                Some(_) => over.get_mut(&slot.matched).is_some_and(|left| {
                    let some = *left > 0;
                    *left = left.saturating_sub(1);
                    some
                }),
            };
            if left {
                excess.insert(slot.allocation);
            }
        }
        excess
    }

    fn idle_at(&self, allocation: AllocationId) -> Option<Timestamp> {
        match self.slots.get(&allocation)?.state {
            SlotUse::Free { since } => Some(since + self.idle_timeout),
            SlotUse::Reserved => None,
        }
    }
}

fn counter(matched: Option<ResourceProfile>) -> ResourceCounter {
    matched.map_or_else(ResourceCounter::default, |profile| ResourceCounter::of(profile, 1))
}
