//! Carries out what the machines of the cluster order: deploying, cancelling, checkpoints for a move, the end.

use std::collections::{BTreeMap, BTreeSet};

use super::failing::Then;
use super::savepoint::Promise;
use super::{Control, Phase};
use crate::control::blocklist::cause::Cause;
use crate::control::checkpoint::message::{Input, Restored};
use crate::control::checkpoint::metadata::Contributions;
use crate::control::checkpoint::options::SnapshotKind;
use crate::control::execution::TaskReport;
use crate::id::{AttemptId, SubtaskId};
use crate::runtime::cluster::{ClusterFact, Order, Spot};
use crate::runtime::status::JobState;
use crate::runtime::worker::Command;

/// Attempts with their places.
type Wanted = BTreeMap<AttemptId, Spot>;

impl Control {
    /// Lets the cluster's machines talk until nothing is left to say.
    pub(super) fn pump(&mut self) {
        loop {
            let orders = self.cluster.deliver();
            let is_quiet = orders.is_empty();
            for order in orders {
                self.obey(order);
            }
            if is_quiet && !self.deploy_wanted() {
                return;
            }
        }
    }

    fn obey(&mut self, order: Order) {
        if let Order::End(workers) = order {
            // Also of a job that is about to end: nobody waits for them then.
            for worker in workers {
                self.ending.insert(worker);
                self.cluster.crew().post(worker, Command::Shutdown);
            }
            return;
        }
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        match order {
            Order::End(_) => {}
            Order::AbortCheckpoints(failing) => self.fail_over(failing),
            Order::TriggerCheckpoint if self.options.checkpointed => {
                let request = self.promised(Promise::Move);
                self.decide(Input::Request { request, kind: SnapshotKind::Checkpoint });
            }
            Order::TriggerCheckpoint => {
                let reason = "the job takes no checkpoints, so its subtasks can't move".to_owned();
                self.cluster.note(ClusterFact::EvacuationStuck { attempts: Vec::new(), reason });
            }
            Order::Cancel(attempt) => self.cancel(attempt),
            Order::Deploy(spots) => self.wanted.get_or_insert_default().extend(spots),
            Order::Finished => self.finish(),
            Order::Failed(cause) => self.give_up(&cause),
        }
    }

    /// Tasks are going to be restarted: the coordinator gives up what they take part in.
    fn fail_over(&mut self, failing: BTreeSet<SubtaskId>) {
        let is_new = !failing.is_subset(&self.failing);
        self.failing.extend(&failing);
        self.decide(Input::Failover { tasks: failing.into_iter().collect() });
        self.shared.update(|board| {
            board.state = JobState::Restarting;
            board.restarts += u32::from(is_new);
        });
    }

    fn cancel(&mut self, attempt: AttemptId) {
        if let Some(task) = self.tasks.get(&attempt.subtask)
            && task.attempt == attempt
            && !self.stopping.contains_key(&attempt)
            && self.cluster.crew().is_live(task.worker)
        {
            self.stopping.insert(attempt, task.worker);
            self.cluster.note(ClusterFact::Cancelled { attempt });
            self.cluster.crew().post(task.worker, Command::Cancel(attempt));
        } else if !self.stopping.contains_key(&attempt) {
            // It never was on a worker, or is with one that is gone.
            if let Some(wanted) = &mut self.wanted {
                wanted.remove(&attempt);
            }
            self.cluster.report(attempt, TaskReport::Canceled);
        }
    }

    /// Deploys what the job master ordered, once nothing of earlier attempts is left and the newest checkpoint is known. Whether
    /// there was anything to do.
    fn deploy_wanted(&mut self) -> bool {
        let is_early = !self.stopping.is_empty()
            || !self.ending.is_empty()
            // A checkpoint whose manifest is being written may be the one to restore.
            || self.coordinator.is_storing();
        if is_early || !matches!(self.phase, Phase::Running) {
            return false;
        }
        let Some(wanted) = self.wanted.take().filter(|wanted| !wanted.is_empty()) else {
            if !self.failing.is_empty() && self.cluster.is_placed() {
                self.nothing_left();
            }
            return false;
        };
        let (closed, wanted) = self.sorted(wanted);
        if !closed.is_empty() {
            self.send_back(closed);
            self.wanted = Some(wanted);
            return true;
        }
        let latest = self.coordinator.retained().latest();
        let latest = latest.max(self.origin.as_ref().map(|(id, _)| *id));
        let restore = self.first.take().unwrap_or(latest);
        // Other regions may have failed too and wait, or be left out: then nobody else tells the coordinator.
        let part = self.cluster.region_of(wanted.keys().map(|id| id.subtask));
        self.failing.retain(|subtask| !part.contains(subtask));
        if let Err(error) = self.deploy(restore, &wanted) {
            let text = error.to_string();
            self.shared.update(|board| board.last_failure = Some(text));
            self.decide(Input::Cancel);
            self.cancel_all(Then::Fail(error));
        }
        true
    }

    /// All that failed had finished in the latest checkpoint: nothing of it is deployed.
    fn nothing_left(&mut self) {
        let left_out = std::mem::take(&mut self.failing).into_iter().collect();
        self.decide(Input::Restored(Restored {
            checkpoint: self.coordinator.retained().latest(),
            tasks: Vec::new(),
            left_out,
            contributions: Contributions::new(),
        }));
        self.note_running();
    }

    /// Those whose task manager was blocklisted or lost since its slots were chosen, and the others.
    fn sorted(&self, wanted: Wanted) -> (Wanted, Wanted) {
        wanted.into_iter().partition(|(_, spot)| self.cluster.is_closed(&spot.task_manager))
    }

    /// What is blocklisted gets no task: these are placed again, with their regions.
    fn send_back(&mut self, closed: Wanted) {
        for (attempt, spot) in closed {
            let cause = Cause::induced("TaskManagerBlocklisted", spot.task_manager.as_str());
            let report = TaskReport::Failed { cause, chain: Vec::new(), peer: None };
            self.cluster.report(attempt, report);
        }
    }
}
