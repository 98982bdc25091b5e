//! The job master: slots, failures, restarts, evacuation and blocklist of one job, as one machine.
//!
//! A failed execution goes one way: blocklist, restart strategy, failover set, cancel, wait, slots, deploy. The
//! blocklist comes before slots are chosen, so that already the first retry avoids the machine. Driven by the control
//! thread; the checkpoint coordinator is beside it and told what to do by outputs.

mod context;
mod failover;
mod message;
mod slots;

#[cfg(test)]
mod regressions;
#[cfg(test)]
mod scenarios;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::blocklist::cause::Cause;
use super::blocklist::job_master::JobMasterBlocklistHandler;
use super::blocklist::strategy::ProgressEvent;
use super::evacuation::{Evacuation, EvacuationConfig, EvacuationInput};
use super::execution::{ExecutionState, Executions, TaskReport};
use super::heartbeat::{HeartbeatConfig, HeartbeatOutput, Heartbeats, LossReason};
use super::identity::{JobId, LeaderId, ResourceId, TaskManagerLocation};
use super::moment::Moment;
use super::region::Regions;
use super::restart::{RestartConfig, RestartStrategy};
use super::slots::pool::SlotPool;
use super::slots::profile::ResourceProfile;
use super::slots::sharing::SlotSharing;
use crate::clock::Timestamp;
use crate::id::SubtaskId;
use crate::probe::{Fault, is_broken};

pub(crate) use failover::NON_RECOVERABLE;
pub use message::{JobMasterInput, JobMasterOutput, JobMasterPeer, ToResourceManager};

/// What a job master needs to know.
#[derive(Debug)]
pub struct JobMasterConfig {
    /// The job.
    pub job: JobId,
    /// Its own term.
    pub term: LeaderId,
    /// What each slot must provide.
    pub profile: ResourceProfile,
    /// After how long an unneeded slot is given back.
    pub slot_idle_timeout: Duration,
    /// After how long without the slots it needs the job fails.
    pub slot_request_timeout: Duration,
    /// How failed tasks restart.
    pub restart: RestartConfig,
    /// How tasks leave blocklisted task managers.
    pub evacuation: EvacuationConfig,
    /// How patient heartbeats are.
    pub heartbeat: HeartbeatConfig,
    /// Seed of the restart delays' jitter.
    pub jitter_seed: u64,
}

/// The decisions about one job.
#[derive(Debug)]
pub struct JobMaster {
    config: JobMasterConfig,
    blocklist: JobMasterBlocklistHandler,
    pool: SlotPool,
    sharing: SlotSharing,
    executions: Executions,
    regions: Regions,
    restart: RestartStrategy,
    evacuation: Evacuation,
    heartbeats: Heartbeats<JobMasterPeer>,
    task_managers: BTreeMap<ResourceId, TaskManagerLocation>,
    resource_manager: Option<LeaderId>,
    extra_slots: u32,
    /// Until when waiting tasks must not be deployed.
    backoff_until: Timestamp,
    waiting_since: Option<Timestamp>,
    finished_in_checkpoint: BTreeSet<SubtaskId>,
    dice: u64,
    is_over: bool,
}

impl JobMaster {
    /// A job master of these subtasks, which wait for slots from the first event on.
    pub fn new(
        config: JobMasterConfig,
        blocklist: JobMasterBlocklistHandler,
        subtasks: impl IntoIterator<Item = SubtaskId>,
        regions: Regions,
    ) -> Self {
        Self {
            blocklist,
            pool: SlotPool::new(config.slot_idle_timeout),
            sharing: SlotSharing::default(),
            executions: Executions::new(subtasks),
            regions,
            restart: RestartStrategy::new(config.restart.clone()),
            evacuation: Evacuation::new(config.evacuation),
            heartbeats: Heartbeats::new(config.heartbeat),
            task_managers: BTreeMap::new(),
            resource_manager: None,
            extra_slots: 0,
            backoff_until: Timestamp::ZERO,
            waiting_since: None,
            finished_in_checkpoint: BTreeSet::new(),
            dice: config.jitter_seed,
            is_over: false,
            config,
        }
    }

    /// Takes one thing that happened; what is to be done is added to `out`, in the order in which to do it.
    pub fn handle(&mut self, now: Moment, input: JobMasterInput, out: &mut Vec<JobMasterOutput>) {
        if self.is_over {
            return;
        }
        match input {
            JobMasterInput::ResourceManagerFound(session) => {
                self.resource_manager = Some(session);
                self.heartbeats.watch(now.mono, JobMasterPeer::ResourceManager);
                // The blocklist goes first, so that the resource manager knows it when it sees requirements.
                self.on_blocklist(now, out, |blocklist, actions| {
                    blocklist.connect_to_resource_manager(now, session, actions);
                });
                self.declare(out);
            }
            JobMasterInput::ResourceManagerLost => self.lose_resource_manager(),
            JobMasterInput::Blocklist(message) => {
                self.heartbeats.alive(now.mono, &JobMasterPeer::ResourceManager);
                self.on_blocklist(now, out, |blocklist, actions| {
                    blocklist.handle_message(now, message, actions);
                });
            }
            JobMasterInput::TaskManagerRegistered(location) => {
                // Who registers again has given up what it did under its former registration.
                let again = Cause::new("TaskManagerLost", "it registered again");
                if !is_broken(Fault::RegistrationKeeps) {
                    self.lose_task_manager(now, &location.resource_id, &again, out);
                }
                self.pool.register_task_manager(&location);
                self.blocklist.register_task_manager(&location);
                let id = location.resource_id.clone();
                self.heartbeats.watch(now.mono, JobMasterPeer::TaskManager(id.clone()));
                self.task_managers.insert(id, location);
            }
            JobMasterInput::TaskManagerLost { id, cause } => {
                self.lose_task_manager(now, &id, &cause, out);
            }
            JobMasterInput::SlotsOffered { task_manager, offers } => {
                self.take_offers(now, &task_manager, &offers, out);
            }
            JobMasterInput::SlotFailed { task_manager, slot, cause } => {
                let mut pool_out = Vec::new();
                let is_empty =
                    self.pool.fail_allocation(&task_manager, slot, &cause, &mut pool_out);
                self.apply_pool(now, pool_out, out);
                if is_empty {
                    out.push(JobMasterOutput::NoSlotsLeft(task_manager));
                }
            }
            JobMasterInput::Task { attempt, report } => self.task(now, attempt, report, out),
            JobMasterInput::CheckpointCompleted { finished } => {
                self.finished_in_checkpoint = finished;
                let locations = self.task_managers.values().cloned().collect();
                let progress = ProgressEvent { now, job: self.config.job, locations };
                self.blocklist.notify_success(&progress);
                self.evacuate(now, EvacuationInput::CheckpointCompleted, out);
            }
            JobMasterInput::CheckpointFailed => {
                self.evacuate(now, EvacuationInput::CheckpointFailed, out);
            }
            JobMasterInput::Heartbeat(peer) => self.heartbeats.alive(now.mono, &peer),
            JobMasterInput::Undeliverable(peer) => {
                let mut beats = Vec::new();
                self.heartbeats.undeliverable(&peer, &mut beats);
                self.apply_heartbeats(now, beats, out);
            }
            JobMasterInput::Tick => self.tick(now, out),
        }
        self.note_replacements(now, out);
        self.assign(now, out);
        self.pool.check(&self.blocklist);
    }

    /// When a [`JobMasterInput::Tick`] is due.
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.is_over {
            return None;
        }
        // While something has yet to stop, the end of the wait alone starts nothing.
        let is_next =
            !self.executions.waiting().is_empty() && self.executions.canceling().is_empty();
        let backoff = Some(self.backoff_until).filter(|until| *until > Timestamp::ZERO && is_next);
        let request = self.waiting_since.map(|since| since + self.config.slot_request_timeout);
        let all = [
            self.blocklist.deadline(),
            self.pool.deadline(),
            self.evacuation.deadline(),
            self.heartbeats.deadline(),
            backoff,
            request,
        ];
        all.into_iter().flatten().min()
    }

    /// The blocklist as this job sees it.
    pub fn blocklist(&self) -> &JobMasterBlocklistHandler {
        &self.blocklist
    }

    /// The slots this job holds.
    pub fn pool(&self) -> &SlotPool {
        &self.pool
    }

    /// The job's subtasks.
    pub fn executions(&self) -> &Executions {
        &self.executions
    }

    /// Whether the job has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    fn tick(&mut self, now: Moment, out: &mut Vec<JobMasterOutput>) {
        self.on_blocklist(now, out, |blocklist, actions| blocklist.tick(now, actions));
        self.evacuate(now, EvacuationInput::Tick, out);
        let mut pool_out = Vec::new();
        self.pool.release_idle_slots(now.mono, &mut pool_out);
        self.apply_pool(now, pool_out, out);
        let mut beats = Vec::new();
        self.heartbeats.tick(now.mono, &mut beats);
        self.apply_heartbeats(now, beats, out);
        let since = self.waiting_since.map(|since| since + self.config.slot_request_timeout);
        if since.is_some_and(|due| due <= now.mono) {
            self.fail_job(self.no_resources(), out);
        }
    }

    fn task(
        &mut self,
        now: Moment,
        id: crate::id::AttemptId,
        report: TaskReport,
        out: &mut Vec<JobMasterOutput>,
    ) {
        let Some(execution) = self.executions.current(id) else { return };
        let was_canceling = match execution.state {
            ExecutionState::Running(_) => false,
            ExecutionState::Canceling(_) => true,
            ExecutionState::Waiting | ExecutionState::Finished | ExecutionState::Ended => return,
        };
        match report {
            TaskReport::Failed { cause, chain, peer } if !was_canceling => {
                self.fail(now, id, cause, chain, peer, out);
            }
            // What ends while it is being cancelled has ended, whatever it says.
            TaskReport::Failed { .. } | TaskReport::Canceled => {
                self.vacate(now, id.subtask, ExecutionState::Waiting, None, out);
            }
            TaskReport::Finished if was_canceling => {
                self.vacate(now, id.subtask, ExecutionState::Waiting, None, out);
            }
            TaskReport::Finished => {
                self.vacate(now, id.subtask, ExecutionState::Finished, None, out);
                self.evacuate(now, EvacuationInput::Left(id), out);
                self.finish_if_done(out);
            }
        }
    }

    fn lose_resource_manager(&mut self) {
        // Held slots stay; the next resource manager is told what is needed.
        self.resource_manager = None;
        self.blocklist.disconnect_resource_manager();
        self.heartbeats.unwatch(&JobMasterPeer::ResourceManager);
    }

    fn apply_heartbeats(
        &mut self,
        now: Moment,
        beats: Vec<HeartbeatOutput<JobMasterPeer>>,
        out: &mut Vec<JobMasterOutput>,
    ) {
        for beat in beats {
            match beat {
                HeartbeatOutput::Request(peer) => out.push(JobMasterOutput::RequestHeartbeat(peer)),
                HeartbeatOutput::Lost(JobMasterPeer::ResourceManager, _) => {
                    self.lose_resource_manager();
                    out.push(JobMasterOutput::FindResourceManager);
                }
                HeartbeatOutput::Lost(JobMasterPeer::TaskManager(id), reason) => {
                    let message = match reason {
                        LossReason::Timeout => "no heartbeat in time",
                        LossReason::Unreachable => "messages can't be delivered",
                    };
                    let cause = Cause::new("TaskManagerLost", &format!("{id}: {message}"));
                    self.lose_task_manager(now, &id, &cause, out);
                }
            }
        }
    }

    fn finish_if_done(&mut self, out: &mut Vec<JobMasterOutput>) {
        if self.executions.are_finished() {
            self.is_over = true;
            out.push(JobMasterOutput::JobFinished);
        }
    }

    fn fail_job(&mut self, cause: Cause, out: &mut Vec<JobMasterOutput>) {
        self.is_over = true;
        out.push(JobMasterOutput::JobFailed(cause));
    }
}
