//! The slots of one task manager, as it keeps them itself: granted by the resource manager, offered to job masters.
//!
//! A slot whose job master doesn't answer within the slot timeout is freed. Each heartbeat of a job master names the
//! slots it thinks it has; what it doesn't name is freed. Called by the task manager's side of the runtime.

use std::collections::BTreeSet;
use std::time::Duration;

use super::pool::SlotOffer;
use super::profile::ResourceProfile;
use crate::clock::Timestamp;
use crate::control::identity::{AllocationId, JobId};

/// Who has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskSlotState {
    /// Nobody.
    Free,
    /// Granted to a job, which has not accepted it yet.
    Offered {
        /// The job.
        job: JobId,
        /// The grant.
        allocation: AllocationId,
        /// When it is freed if nobody accepts.
        until: Timestamp,
    },
    /// A job uses it.
    Active {
        /// The job.
        job: JobId,
        /// The grant.
        allocation: AllocationId,
    },
}

/// One slot in a report to the resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotStatus {
    /// Which slot.
    pub index: u32,
    /// Who has it.
    pub holder: Option<(JobId, AllocationId)>,
}

/// What the task manager must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskSlotsOutput {
    /// Offer these slots to a job master.
    Offer(JobId, Vec<SlotOffer>),
    /// Tell a job master that a slot it accepted is not its own any more.
    Gone(JobId, AllocationId),
    /// Tell the resource manager that a slot is free again.
    Freed {
        /// Which slot.
        index: u32,
        /// The grant that ended.
        allocation: AllocationId,
    },
}

/// All slots of one task manager.
#[derive(Debug)]
pub struct TaskSlots {
    timeout: Duration,
    profile: ResourceProfile,
    slots: Vec<TaskSlotState>,
}

impl TaskSlots {
    /// `count` free slots; an offer nobody accepts ends after `timeout`.
    pub fn new(count: u32, profile: ResourceProfile, timeout: Duration) -> Self {
        Self { timeout, profile, slots: vec![TaskSlotState::Free; count as usize] }
    }

    /// The resource manager grants a slot to a job. Whether the slot could be taken; asking twice is the same.
    pub fn grant(
        &mut self,
        now: Timestamp,
        index: u32,
        job: JobId,
        allocation: AllocationId,
        out: &mut Vec<TaskSlotsOutput>,
    ) -> bool {
        let until = now + self.timeout;
        let Some(slot) = self.slots.get_mut(index as usize) else { return false };
        match slot {
            TaskSlotState::Free => *slot = TaskSlotState::Offered { job, allocation, until },
            TaskSlotState::Offered { allocation: held, .. }
            | TaskSlotState::Active { allocation: held, .. } => return *held == allocation,
        }
        out.push(TaskSlotsOutput::Offer(job, self.offers(job)));
        true
    }

    /// A job master answered an offer: what it did not accept is freed. It may have accepted what was freed since the offer,
    /// even by itself: then it is told, or it would send tasks to a slot that nobody keeps for it.
    pub fn answered(
        &mut self,
        job: JobId,
        offered: &[AllocationId],
        accepted: &[AllocationId],
        out: &mut Vec<TaskSlotsOutput>,
    ) {
        for allocation in offered {
            let is_accepted = accepted.contains(allocation);
            let Some(index) = self.find(*allocation) else {
                if is_accepted {
                    out.push(TaskSlotsOutput::Gone(job, *allocation));
                }
                continue;
            };
            if is_accepted {
                self.slots[index] = TaskSlotState::Active { job, allocation: *allocation };
            } else {
                self.free(*allocation, out);
            }
        }
    }

    /// Frees a slot. Nothing happens if it has another grant.
    pub fn free(&mut self, allocation: AllocationId, out: &mut Vec<TaskSlotsOutput>) {
        if let Some(index) = self.find(allocation) {
            self.slots[index] = TaskSlotState::Free;
            out.push(TaskSlotsOutput::Freed { index: index as u32, allocation });
        }
    }

    /// A job master's heartbeat names the slots it has: others in its use are freed.
    pub fn reconcile(
        &mut self,
        job: JobId,
        held: &BTreeSet<AllocationId>,
        out: &mut Vec<TaskSlotsOutput>,
    ) {
        let mut unknown = Vec::new();
        for slot in &self.slots {
            match slot {
                TaskSlotState::Active { job: owner, allocation }
                    if *owner == job && !held.contains(allocation) =>
                {
                    unknown.push(*allocation);
                }
                TaskSlotState::Active { .. }
                | TaskSlotState::Offered { .. }
                | TaskSlotState::Free => {}
            }
        }
        for allocation in unknown {
            self.free(allocation, out);
        }
    }

    /// A job master is lost: its slots are offered again to its successor, and freed if nobody comes.
    pub fn job_master_lost(&mut self, now: Timestamp, job: JobId) {
        let until = now + self.timeout;
        for slot in &mut self.slots {
            match *slot {
                TaskSlotState::Active { job: owner, allocation } if owner == job => {
                    *slot = TaskSlotState::Offered { job, allocation, until };
                }
                TaskSlotState::Active { .. }
                | TaskSlotState::Offered { .. }
                | TaskSlotState::Free => {}
            }
        }
    }

    /// A job master connected: every slot of its job is offered, accepted before or not.
    pub fn job_master_connected(&self, job: JobId, out: &mut Vec<TaskSlotsOutput>) {
        let offers = self.offers(job);
        if !offers.is_empty() {
            out.push(TaskSlotsOutput::Offer(job, offers));
        }
    }

    /// Frees what nobody accepted in time.
    pub fn tick(&mut self, now: Timestamp, out: &mut Vec<TaskSlotsOutput>) {
        for allocation in
            self.offered().filter(|(_, until)| *until <= now).map(|(a, _)| a).collect::<Vec<_>>()
        {
            self.free(allocation, out);
        }
    }

    /// When [`TaskSlots::tick`] is due.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.offered().map(|(_, until)| until).min()
    }

    /// What the resource manager is told.
    pub fn report(&self) -> Vec<SlotStatus> {
        let holder = |slot: &TaskSlotState| match *slot {
            TaskSlotState::Free => None,
            TaskSlotState::Offered { job, allocation, .. }
            | TaskSlotState::Active { job, allocation } => Some((job, allocation)),
        };
        let status = |(index, slot)| SlotStatus { index: index as u32, holder: holder(slot) };
        self.slots.iter().enumerate().map(status).collect()
    }

    /// Whether no job has a slot here. One with buffers on the network is not idle, whatever this says.
    pub fn is_idle(&self) -> bool {
        self.slots.iter().all(|slot| *slot == TaskSlotState::Free)
    }

    fn offers(&self, job: JobId) -> Vec<SlotOffer> {
        let mine = self.report().into_iter().filter_map(|status| {
            let (owner, allocation) = status.holder?;
            (owner == job).then_some(SlotOffer {
                allocation,
                index: status.index,
                profile: self.profile,
            })
        });
        mine.collect()
    }

    fn offered(&self) -> impl Iterator<Item = (AllocationId, Timestamp)> + '_ {
        self.slots.iter().filter_map(|slot| match slot {
            TaskSlotState::Offered { allocation, until, .. } => Some((*allocation, *until)),
            TaskSlotState::Free | TaskSlotState::Active { .. } => None,
        })
    }

    fn find(&self, allocation: AllocationId) -> Option<usize> {
        self.report().iter().position(|s| s.holder.is_some_and(|(_, held)| held == allocation))
    }
}
