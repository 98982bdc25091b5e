//! What happens to executions that fail, are lost, or must move.

use std::collections::BTreeSet;
use std::time::Duration;

use super::JobMaster;
use super::message::{JobMasterOutput, JobMasterPeer};
use crate::control::blocklist::cause::Cause;
use crate::control::blocklist::item::ItemKey;
use crate::control::blocklist::strategy::FailureEvent;
use crate::control::evacuation::{EvacuationInput, EvacuationOutput};
use crate::control::execution::{ExecutionState, Place};
use crate::control::identity::{ResourceId, TaskManagerLocation};
use crate::control::moment::Moment;
use crate::control::restart::RestartDecision;
use crate::id::{AttemptId, SubtaskId};

/// Label of failures after which a restart is of no use.
pub(crate) const NON_RECOVERABLE: &str = "tidegate.non-recoverable";

impl JobMaster {
    /// An execution failed by itself: blocklist, restart strategy, failover, in this order.
    pub(super) fn fail(
        &mut self,
        now: Moment,
        id: AttemptId,
        cause: Cause,
        chain: Vec<Cause>,
        peer: Option<ResourceId>,
        out: &mut Vec<JobMasterOutput>,
    ) {
        let place = self.place(id.subtask);
        let here = place.as_ref().map(|place| &place.task_manager);
        let locations: Vec<TaskManagerLocation> = here
            .into_iter()
            .chain(&peer)
            .filter_map(|tm| self.task_managers.get(tm).cloned())
            .collect();
        let was_suspect = locations.iter().any(|l| self.is_suspect(l));
        let event = FailureEvent {
            now,
            job: self.config.job,
            attempt: Some(id),
            locations,
            cause: cause.clone(),
            chain,
            cluster: self.blocklist.cluster(),
        };
        let refused = self.on_blocklist(now, out, |blocklist, actions| {
            blocklist.notify_exception(&event, actions)
        });
        out.extend(refused.into_iter().map(|refusal| JobMasterOutput::BlocklistingRefused {
            message: refusal.to_string(),
            key: refusal.key,
        }));

        let is_induced = event.causes().any(Cause::is_induced);
        let decision = if event.causes().any(|c| c.labels().contains_key(NON_RECOVERABLE)) {
            RestartDecision::Fail
        } else if is_induced || was_suspect {
            // The machine is the suspect, not the job: such failures cost no attempt.
            RestartDecision::After(Duration::ZERO)
        } else {
            let region = self.regions.region_of(id.subtask).unwrap_or(0);
            let jitter = self.jitter();
            self.restart.decide(now.mono, region, jitter)
        };
        match decision {
            RestartDecision::Fail => self.fail_job(cause, out),
            RestartDecision::After(wait) => {
                self.backoff_until = self.backoff_until.max(now.mono + wait);
                self.vacate(now, id.subtask, ExecutionState::Waiting, Some(&cause), out);
                self.fail_over(&BTreeSet::from([id.subtask]), out);
                self.evacuate(now, EvacuationInput::Failed(id), out);
            }
        }
    }

    /// Restarts everybody who depends on these, from the latest completed checkpoint.
    pub(super) fn fail_over(
        &mut self,
        failed: &BTreeSet<SubtaskId>,
        out: &mut Vec<JobMasterOutput>,
    ) {
        let restart = self.regions.tasks_to_restart(failed.iter().copied(), |_| false);
        if !restart.is_empty() {
            out.push(JobMasterOutput::AbortCheckpoints(restart.clone()));
        }
        for subtask in restart {
            let id = self.executions.id(subtask);
            let Some(execution) = self.executions.get_mut(subtask) else { continue };
            match &execution.state {
                ExecutionState::Running(place) => {
                    let place = place.clone();
                    let task_manager = place.task_manager.clone();
                    execution.state = ExecutionState::Canceling(place);
                    out.push(JobMasterOutput::Cancel { attempt: id, task_manager });
                }
                // A task that finished after the checkpoint runs again, or its output would be lost.
                ExecutionState::Finished if !self.finished_in_checkpoint.contains(&subtask) => {
                    execution.attempt.0 += 1;
                    execution.state = ExecutionState::Waiting;
                }
                ExecutionState::Finished
                | ExecutionState::Waiting
                | ExecutionState::Canceling(_)
                | ExecutionState::Ended => {}
            }
        }
    }

    /// Executions lost their slots: they have ended, and their regions restart.
    pub(super) fn lose(
        &mut self,
        now: Moment,
        lost: &BTreeSet<SubtaskId>,
        out: &mut Vec<JobMasterOutput>,
    ) {
        for subtask in lost {
            let id = self.executions.id(*subtask);
            if let Some(Place { task_manager, .. }) = self.place(*subtask) {
                out.push(JobMasterOutput::Cancel { attempt: id, task_manager });
                self.vacate(now, *subtask, ExecutionState::Waiting, None, out);
            }
        }
        self.fail_over(lost, out);
    }

    /// A task manager is gone, and all on it.
    pub(super) fn lose_task_manager(
        &mut self,
        now: Moment,
        id: &ResourceId,
        cause: &Cause,
        out: &mut Vec<JobMasterOutput>,
    ) {
        let Some(location) = self.task_managers.remove(id) else { return };
        self.heartbeats.unwatch(&JobMasterPeer::TaskManager(id.clone()));
        let lost = self.executions.on(&BTreeSet::from([id.clone()]));
        // What was told to stop has no failure of its own.
        let mut lost = lost.into_keys();
        let first = lost.find(|lost| self.executions.is_running(lost.subtask));
        self.task_managers.insert(id.clone(), location);
        if let Some(first) = first {
            self.fail(now, first, cause.clone(), Vec::new(), None, out);
        }
        self.task_managers.remove(id);
        let mut pool_out = Vec::new();
        self.pool.deregister_task_manager(id, cause, &mut pool_out);
        self.blocklist.deregister_task_manager(id);
        self.apply_pool(now, pool_out, out);
    }

    /// Tells the evacuation what happened, and does what it wants.
    pub(super) fn evacuate(
        &mut self,
        now: Moment,
        input: EvacuationInput,
        out: &mut Vec<JobMasterOutput>,
    ) {
        let mut wanted = Vec::new();
        self.evacuation.handle(now.mono, input, &mut wanted);
        for output in wanted {
            match output {
                EvacuationOutput::ExtraSlots(count) => {
                    self.extra_slots = count;
                    self.update_requirements(out);
                }
                EvacuationOutput::TriggerCheckpoint => out.push(JobMasterOutput::TriggerCheckpoint),
                EvacuationOutput::Alarm { victims } => {
                    out.push(JobMasterOutput::EvacuationStuck(victims));
                }
                EvacuationOutput::Move { victims, items } => {
                    self.move_away(now, &victims, &items, out);
                }
            }
        }
    }

    /// Gives up all slots of the victims' task managers and restarts them elsewhere, in one failover.
    fn move_away(
        &mut self,
        now: Moment,
        victims: &BTreeSet<AttemptId>,
        items: &BTreeSet<ItemKey>,
        out: &mut Vec<JobMasterOutput>,
    ) {
        let names: Vec<String> = items.iter().map(ToString::to_string).collect();
        let cause = Cause::induced("ResourceEvacuated", &names.join(", "));
        let leave: BTreeSet<ResourceId> = victims
            .iter()
            .filter(|id| self.executions.current(**id).is_some())
            .filter_map(|id| self.place(id.subtask))
            .map(|place| place.task_manager)
            .collect();
        let mut pool_out = Vec::new();
        for id in &leave {
            self.pool.release_slots_on_task_manager(id, &cause, &mut pool_out);
        }
        self.apply_pool(now, pool_out, out);
    }

    /// Where a subtask occupies a slot.
    pub(super) fn place(&self, subtask: SubtaskId) -> Option<Place> {
        match &self.executions.get(subtask)?.state {
            ExecutionState::Running(place) | ExecutionState::Canceling(place) => {
                Some(place.clone())
            }
            ExecutionState::Waiting | ExecutionState::Finished | ExecutionState::Ended => None,
        }
    }

    fn is_suspect(&self, location: &TaskManagerLocation) -> bool {
        let node = ItemKey::Node(location.node_id.clone());
        let process = ItemKey::TaskManager(location.resource_id.clone());
        self.blocklist.item(&node).is_some() || self.blocklist.item(&process).is_some()
    }

    /// A number from -1 to 1, from the seed.
    fn jitter(&mut self) -> f64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.dice >> 33) as f64 / f64::from(1u32 << 30)) - 1.0
    }
}
