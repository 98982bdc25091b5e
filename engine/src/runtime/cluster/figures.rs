//! What a cluster tells about itself: its task managers, the figures of the blocklist, and what was counted on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Cluster;
use super::event_log::{ClusterEvent, ClusterFact, EventLog};
use crate::clock::EpochMillis;
use crate::control::blocklist::item::ItemKey;
use crate::control::execution::ExecutionState;
use crate::control::identity::ResourceId;
use crate::control::job_master::{JobMaster, JobMasterOutput};
use crate::control::moment::Moment;
use crate::id::SubtaskId;
use crate::metrics::{LatencyHistogram, LatencySnapshot};
use crate::runtime::request::{BlocklistFigures, TaskManagerStatus};

/// What was counted of the job master's decisions.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) offers_rejected: u64,
    free_slots_released: u64,
    slots_evacuated: u64,
    tasks_evacuated: u64,
    /// From the order to blocklist to each slot given back because of it.
    released_after: LatencyHistogram,
}

impl Tally {
    /// Counts and writes down what a job master decided at once.
    pub(super) fn note(
        &mut self,
        now: Moment,
        master: &JobMaster,
        out: &[JobMasterOutput],
        log: &mut EventLog,
    ) {
        let mut left: BTreeSet<&ResourceId> = BTreeSet::new();
        let mut moved = Vec::new();
        for output in out {
            match output {
                JobMasterOutput::FreeSlot { task_manager, cause, .. } => {
                    match cause.class() {
                        "ResourceEvacuated" => {
                            self.slots_evacuated += 1;
                            left.insert(task_manager);
                        }
                        "TaskManagerBlocklisted" => self.free_slots_released += 1,
                        _ => continue,
                    }
                    if let Some(ordered_at) = ordered_at(master, task_manager) {
                        let millis = u64::try_from(now.wall.0 - ordered_at.0).unwrap_or(0);
                        self.released_after.record(Duration::from_millis(millis));
                    }
                }
                JobMasterOutput::Cancel { attempt, task_manager }
                    if left.contains(task_manager) =>
                {
                    moved.push(*attempt);
                }
                JobMasterOutput::TriggerCheckpoint => log.note(now, ClusterFact::EvacuationBegun),
                JobMasterOutput::EvacuationStuck(victims) => {
                    let attempts = victims.iter().copied().collect();
                    let reason = "no slots elsewhere".to_owned();
                    log.note(now, ClusterFact::EvacuationStuck { attempts, reason });
                }
                JobMasterOutput::BlocklistingRefused { key, message } => {
                    let (key, message) = (key.clone(), message.clone());
                    log.note(now, ClusterFact::ItemRefused { key, message });
                }
                JobMasterOutput::ToResourceManager(_)
                | JobMasterOutput::FindResourceManager
                | JobMasterOutput::RequestHeartbeat(_)
                | JobMasterOutput::AnswerOffer { .. }
                | JobMasterOutput::NoSlotsLeft(_)
                | JobMasterOutput::AbortCheckpoints(_)
                | JobMasterOutput::Cancel { .. }
                | JobMasterOutput::Restore(_)
                | JobMasterOutput::Deploy { .. }
                | JobMasterOutput::JobFinished
                | JobMasterOutput::JobFailed(_) => {}
            }
        }
        if !moved.is_empty() {
            self.tasks_evacuated += moved.len() as u64;
            log.note(now, ClusterFact::Evacuated { attempts: moved });
        }
    }
}

/// When the first of the items was made that blocklist a task manager, as far as the job master knows.
fn ordered_at(master: &JobMaster, task_manager: &ResourceId) -> Option<EpochMillis> {
    let node = master.pool().task_managers().get(task_manager).cloned().map(ItemKey::Node);
    let keys = node.into_iter().chain([ItemKey::TaskManager(task_manager.clone())]);
    keys.filter_map(|key| Some(master.blocklist().item(&key)?.timestamp)).min()
}

impl Cluster {
    /// Answers a request under `/blocklist`. What follows from it is done with the next letters.
    #[cfg(feature = "rest")]
    pub(in crate::runtime) fn call(
        &mut self,
        call: &crate::runtime::request::BlocklistCall,
    ) -> crate::control::blocklist::rest::RestResponse {
        let (now, mut out) = (super::moment(self.clock), Vec::new());
        let response = crate::control::blocklist::rest::handle(
            now,
            &call.as_rest(),
            self.max_timeout,
            Some(&mut self.resource_manager),
            &mut out,
        );
        self.obey_resource_manager(now, out);
        response
    }

    /// All task managers, by resource id.
    pub(in crate::runtime) fn status(&self) -> Vec<TaskManagerStatus> {
        let mut running: BTreeMap<&ResourceId, Vec<SubtaskId>> = BTreeMap::new();
        for (subtask, execution) in self.job_master.executions().iter() {
            match &execution.state {
                ExecutionState::Running(place) | ExecutionState::Canceling(place) => {
                    running.entry(&place.task_manager).or_default().push(subtask);
                }
                ExecutionState::Waiting | ExecutionState::Finished | ExecutionState::Ended => {}
            }
        }
        let blocklist = self.resource_manager.blocklist();
        let mut all = Vec::new();
        for (id, task_manager) in &self.task_managers {
            let node = &task_manager.location.node_id;
            let own = blocklist.item(&ItemKey::TaskManager(id.clone()));
            let nodes = blocklist.item(&ItemKey::Node(node.clone()));
            let report = task_manager.slots.report();
            all.push(TaskManagerStatus {
                resource_id: id.to_string(),
                node_id: node.to_string(),
                node_pool: task_manager.location.pool.to_string(),
                slots: report.len() as u32,
                free_slots: report.iter().filter(|slot| slot.holder.is_none()).count() as u32,
                blocklisted: own.into_iter().chain(nodes).map(|item| item.action).max(),
                subtasks: running.remove(id).unwrap_or_default(),
            });
        }
        all
    }

    /// The figures of the blocklist.
    pub(in crate::runtime) fn figures(&mut self) -> BlocklistFigures {
        let snapshot = self.resource_manager.blocklist_mut().snapshot();
        let blocklist = self.resource_manager.blocklist();
        let counters = blocklist.counters();
        let of_job = self.job_master.blocklist();
        let tally = &self.tally;
        let mut released_after = LatencySnapshot::default();
        tally.released_after.add_to(&mut released_after);
        BlocklistFigures {
            released_after,
            is_enabled: blocklist.is_enabled(),
            blocklisted_nodes: snapshot.blocklisted_node_count() as u64,
            blocklisted_task_managers: snapshot.blocklisted_task_manager_count() as u64,
            items_added: counters.added.clone(),
            items_updated: counters.updated.clone(),
            items_expired: counters.expired,
            items_removed: counters.removed,
            offers_rejected: tally.offers_rejected,
            free_slots_released: tally.free_slots_released,
            slots_evacuated: tally.slots_evacuated,
            tasks_evacuated: tally.tasks_evacuated,
            strategy_errors: of_job.strategies().errors(),
            refused_by_cap: counters.refused_by_cap + of_job.counters().refused_by_cap,
            sync_resends: blocklist.resends(),
        }
    }

    /// What happened after event number `after`, oldest first.
    pub(in crate::runtime) fn events(&self, after: u64) -> Vec<ClusterEvent> {
        self.log.since(after)
    }
}
