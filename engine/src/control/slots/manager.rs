//! Gives slots of registered task managers to jobs that need them, and asks the driver for more (FLIP-224, SlotManager).
//!
//! Nothing on a blocklisted task manager counts as available: neither its free slots nor grants that are not
//! confirmed. Slots a job already uses there do count. Called by `control::resource_manager`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::profile::{ResourceCounter, ResourceProfile};
use super::task_slots::SlotStatus;
use crate::clock::Timestamp;
use crate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use crate::control::driver::{DriverCommand, WorkerSpec};
use crate::control::identity::{AllocationId, JobId, LeaderId, ResourceId};
use crate::probe::{Fault, is_broken};

/// The most ended task managers that are remembered.
const RELEASED_MAX: usize = 10_000;

/// What the slot manager needs to know.
#[derive(Clone, Debug)]
pub struct SlotManagerConfig {
    /// What a task manager that the driver starts looks like.
    pub worker: WorkerSpec,
    /// Whether the driver can start any.
    pub can_request: bool,
    /// After how long an unused task manager is ended.
    pub idle_timeout: Duration,
    /// The most slots the cluster may have.
    pub slots_max: Option<u32>,
    /// Whether slots on blocklisted task managers may be replaced beyond `slots_max`.
    pub blocked_exceed_limit: bool,
    /// Term of the resource manager; makes grants unique.
    pub term: LeaderId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grant {
    Free,
    /// Asked for, not confirmed.
    Pending(JobId, AllocationId),
    Held(JobId, AllocationId),
}

#[derive(Debug)]
struct Registered {
    profile: ResourceProfile,
    slots: Vec<Grant>,
    idle_since: Option<Timestamp>,
    /// Whether its network has sent everything.
    is_quiet: bool,
}

/// What the slot manager wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotManagerOutput {
    /// Ask a task manager to offer a slot to a job.
    RequestSlot {
        /// Whose slot.
        task_manager: ResourceId,
        /// Which.
        index: u32,
        /// For which job.
        job: JobId,
        /// The grant.
        allocation: AllocationId,
    },
    /// Ask the driver.
    Driver(DriverCommand),
    /// A job can't have what it needs.
    NotEnoughSlots {
        /// The job.
        job: JobId,
        /// How many it lacks.
        missing: u32,
        /// Blocklisted task managers with free slots: what would help.
        blocklisted: Vec<ResourceId>,
    },
}

/// The numbers of the cluster. Totals include blocklisted task managers, free slots do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceOverview {
    /// Registered task managers.
    pub task_managers: u32,
    /// All their slots.
    pub slots: u32,
    /// Free slots that may be used.
    pub free_slots: u32,
    /// Blocklisted task managers.
    pub blocked_task_managers: u32,
    /// Free slots on those.
    pub blocked_free_slots: u32,
}

/// The slots of the cluster.
#[derive(Debug)]
pub struct SlotManager {
    config: SlotManagerConfig,
    task_managers: BTreeMap<ResourceId, Registered>,
    /// Ended task managers, oldest first; they must not come back.
    released: VecDeque<ResourceId>,
    requirements: BTreeMap<JobId, ResourceCounter>,
    pending_workers: u32,
    last_allocation: u64,
}

impl SlotManager {
    /// No task managers, no needs.
    pub fn new(config: SlotManagerConfig) -> Self {
        Self {
            last_allocation: config.term.0 << 32,
            config,
            task_managers: BTreeMap::new(),
            released: VecDeque::new(),
            requirements: BTreeMap::new(),
            pending_workers: 0,
        }
    }

    /// A task manager registered with its slots. Whether it may stay: one that was ended must not come back.
    pub fn register_task_manager(
        &mut self,
        now: Timestamp,
        id: &ResourceId,
        profile: ResourceProfile,
        report: &[SlotStatus],
    ) -> bool {
        if self.released.contains(id) {
            return false;
        }
        let is_new = !self.task_managers.contains_key(id);
        let slots = report.iter().map(grant_of).collect();
        let registered = Registered { profile, slots, idle_since: Some(now), is_quiet: true };
        self.task_managers.insert(id.clone(), registered);
        if is_new && self.config.can_request {
            self.pending_workers = self.pending_workers.saturating_sub(1);
        }
        self.note_idle(now, id);
        true
    }

    /// A task manager is gone.
    pub fn deregister_task_manager(&mut self, id: &ResourceId) {
        self.task_managers.remove(id);
    }

    /// A job says what it needs in all.
    pub fn declare_requirements(&mut self, job: JobId, needs: ResourceCounter) {
        if needs.is_empty() {
            self.requirements.remove(&job);
        } else {
            self.requirements.insert(job, needs);
        }
    }

    /// A task manager took, or could not take, a grant.
    pub fn slot_request_answered(
        &mut self,
        now: Timestamp,
        id: &ResourceId,
        allocation: AllocationId,
        is_granted: bool,
    ) {
        if let Some(slot) = self.find(id, allocation)
            && let Grant::Pending(job, _) = *slot
        {
            *slot = if is_granted { Grant::Held(job, allocation) } else { Grant::Free };
        }
        self.note_idle(now, id);
    }

    /// A task manager's slot is free again.
    pub fn slot_freed(&mut self, now: Timestamp, id: &ResourceId, allocation: AllocationId) {
        if let Some(slot) = self.find(id, allocation) {
            *slot = Grant::Free;
        }
        self.note_idle(now, id);
    }

    /// A heartbeat's report; grants under way are not overwritten by a report older than they are.
    pub fn slot_report(
        &mut self,
        now: Timestamp,
        id: &ResourceId,
        report: &[SlotStatus],
        is_quiet: bool,
    ) {
        let Some(registered) = self.task_managers.get_mut(id) else { return };
        registered.is_quiet = is_quiet;
        for status in report {
            let Some(slot) = registered.slots.get_mut(status.index as usize) else { continue };
            let is_under_way = matches!(slot, Grant::Pending(..)) && status.holder.is_none();
            if !is_under_way {
                *slot = grant_of(status);
            }
        }
        self.note_idle(now, id);
    }

    /// A requested worker will not come.
    pub fn worker_request_failed(&mut self) {
        self.pending_workers = self.pending_workers.saturating_sub(1);
    }

    /// Gives out what is available and asks for what is missing.
    pub fn check_resource_requirements(
        &mut self,
        checker: &dyn BlocklistedTaskManagerChecker,
        out: &mut Vec<SlotManagerOutput>,
    ) {
        let mut missing = 0;
        let needs: Vec<_> = self.requirements.iter().map(|(j, n)| (*j, n.clone())).collect();
        for (job, needs) in needs {
            let mut lacking = 0;
            for (profile, count) in needs.iter() {
                let mut open = count.saturating_sub(self.counted(job, &profile, checker));
                while open > 0 && self.grant_one(job, &profile, checker, out) {
                    open -= 1;
                }
                lacking += open;
            }
            missing += lacking;
            if lacking > 0 {
                let blocklisted = self.blocked_with_free(checker);
                out.push(SlotManagerOutput::NotEnoughSlots { job, missing: lacking, blocklisted });
            }
        }
        self.adjust_workers(missing, checker, out);
    }

    /// Ends task managers that nobody uses: blocklisted ones at once, others after the idle timeout.
    pub fn release_idle(
        &mut self,
        now: Timestamp,
        checker: &dyn BlocklistedTaskManagerChecker,
        out: &mut Vec<SlotManagerOutput>,
    ) {
        if !self.config.can_request {
            return;
        }
        let idle: Vec<_> = self
            .task_managers
            .iter()
            .filter(|(id, registered)| {
                let since = registered.idle_since.filter(|_| registered.is_quiet);
                since.is_some_and(|since| {
                    checker.is_blocklisted_task_manager(id)
                        || since + self.config.idle_timeout <= now
                })
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in idle {
            self.task_managers.remove(&id);
            self.released.push_back(id.clone());
            if self.released.len() > RELEASED_MAX {
                self.released.pop_front();
            }
            out.push(SlotManagerOutput::Driver(DriverCommand::ReleaseWorker(id)));
        }
    }

    /// When [`SlotManager::release_idle`] is due for task managers that are not blocklisted.
    pub fn deadline(&self) -> Option<Timestamp> {
        let quiet = self.task_managers.values().filter(|registered| registered.is_quiet);
        let idle = quiet.filter_map(|registered| registered.idle_since);
        idle.map(|since| since + self.config.idle_timeout).min().filter(|_| self.config.can_request)
    }

    /// The numbers of the cluster.
    pub fn overview(&self, checker: &dyn BlocklistedTaskManagerChecker) -> ResourceOverview {
        let mut overview = ResourceOverview::default();
        for (id, registered) in &self.task_managers {
            let free = registered.free() as u32;
            overview.task_managers += 1;
            overview.slots += registered.slots.len() as u32;
            if checker.is_blocklisted_task_manager(id) {
                overview.blocked_task_managers += 1;
                overview.blocked_free_slots += free;
            } else {
                overview.free_slots += free;
            }
        }
        overview
    }

    /// Workers asked for that did not register yet.
    pub fn pending_workers(&self) -> u32 {
        self.pending_workers
    }

    /// Whether a task manager is registered.
    pub fn is_registered(&self, id: &ResourceId) -> bool {
        self.task_managers.contains_key(id)
    }

    /// How many slots of `profile` a job has or is promised.
    fn counted(
        &self,
        job: JobId,
        profile: &ResourceProfile,
        checker: &dyn BlocklistedTaskManagerChecker,
    ) -> u32 {
        let mut count = 0;
        for (id, registered) in &self.task_managers {
            if !registered.profile.serves(profile) {
                continue;
            }
            let is_blocklisted = checker.is_blocklisted_task_manager(id);
            let counts = |slot: &&Grant| match **slot {
                Grant::Free => false,
                Grant::Pending(owner, _) => owner == job && !is_blocklisted,
                Grant::Held(owner, _) => owner == job,
            };
            count += registered.slots.iter().filter(counts).count() as u32;
        }
        count
    }

    /// Grants a free slot on the task manager that has the most of them.
    fn grant_one(
        &mut self,
        job: JobId,
        profile: &ResourceProfile,
        checker: &dyn BlocklistedTaskManagerChecker,
        out: &mut Vec<SlotManagerOutput>,
    ) -> bool {
        let usable = self.task_managers.iter_mut().filter(|(id, registered)| {
            registered.profile.serves(profile)
                && registered.free() > 0
                && (!checker.is_blocklisted_task_manager(id) || is_broken(Fault::BlockedGranted))
        });
        let Some((id, registered)) =
            usable.max_by(|a, b| a.1.free().cmp(&b.1.free()).then_with(|| b.0.cmp(a.0)))
        else {
            return false;
        };
        let free = |slot: &Grant| *slot == Grant::Free;
        let index = registered.slots.iter().position(free).expect("it has a free slot");
        self.last_allocation += 1;
        let allocation = AllocationId(self.last_allocation);
        registered.slots[index] = Grant::Pending(job, allocation);
        registered.idle_since = None;
        out.push(SlotManagerOutput::RequestSlot {
            task_manager: id.clone(),
            index: index as u32,
            job,
            allocation,
        });
        true
    }

    fn adjust_workers(
        &mut self,
        missing: u32,
        checker: &dyn BlocklistedTaskManagerChecker,
        out: &mut Vec<SlotManagerOutput>,
    ) {
        if !self.config.can_request {
            return;
        }
        let per_worker = self.config.worker.slots.max(1);
        let mut wanted = missing.div_ceil(per_worker);
        if let Some(max) = self.config.slots_max {
            let overview = self.overview(checker);
            let mut used = overview.slots;
            if self.config.blocked_exceed_limit {
                let is_blocked = |id: &ResourceId| checker.is_blocklisted_task_manager(id);
                let blocked = self.task_managers.iter().filter(|(id, _)| is_blocked(id));
                used -= blocked.map(|(_, r)| r.slots.len() as u32).sum::<u32>();
            }
            wanted = wanted.min(max.saturating_sub(used) / per_worker);
        }
        let worker = &self.config.worker;
        for _ in self.pending_workers..wanted {
            out.push(SlotManagerOutput::Driver(DriverCommand::RequestWorker(worker.clone())));
        }
        for _ in wanted..self.pending_workers {
            out.push(SlotManagerOutput::Driver(DriverCommand::CancelRequest(worker.clone())));
        }
        self.pending_workers = wanted;
    }

    fn blocked_with_free(&self, checker: &dyn BlocklistedTaskManagerChecker) -> Vec<ResourceId> {
        let blocked = self.task_managers.iter().filter(|(id, registered)| {
            registered.free() > 0 && checker.is_blocklisted_task_manager(id)
        });
        blocked.map(|(id, _)| id.clone()).collect()
    }

    fn find(&mut self, id: &ResourceId, allocation: AllocationId) -> Option<&mut Grant> {
        let slots = self.task_managers.get_mut(id)?.slots.iter_mut();
        slots.into_iter().find(|slot| match **slot {
            Grant::Free => false,
            Grant::Pending(_, held) | Grant::Held(_, held) => held == allocation,
        })
    }

    fn note_idle(&mut self, now: Timestamp, id: &ResourceId) {
        let Some(registered) = self.task_managers.get_mut(id) else { return };
        registered.idle_since = if registered.free() == registered.slots.len() {
            Some(registered.idle_since.unwrap_or(now))
        } else {
            None
        };
    }
}

impl Registered {
    fn free(&self) -> usize {
        self.slots.iter().filter(|slot| **slot == Grant::Free).count()
    }
}

fn grant_of(status: &SlotStatus) -> Grant {
    status.holder.map_or(Grant::Free, |(job, allocation)| Grant::Held(job, allocation))
}
