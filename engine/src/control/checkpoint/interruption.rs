//! The coordinator when the job's course is broken: failover, restore, stop and end.
//!
//! Whatever is pending when tasks restart is given up before they are restored, so that nothing of
//! the old attempts can complete. What the store is already writing is left to it: a restart either
//! waits for its answer or gives it up.

use super::coordinator::Coordinator;
use super::failure::{FailureOrigin, FailureReason};
use super::message::{Outcome, Output, Outputs, Restored, StopOutcome};
use super::metadata::StateSummary;
use super::options::SnapshotKind;
use super::pending::Pending;
use super::request::{Origin, Request, RequestId};
use crate::clock::Timestamp;
use crate::id::SubtaskId;

impl<S: StateSummary> Coordinator<S> {
    pub(super) fn fail_over(&mut self, now: Timestamp, tasks: &[SubtaskId], out: &mut Outputs<S>) {
        self.schedule.stop();
        let collecting = |pending: &&Pending<S>| pending.is_collecting();
        let ids: Vec<_> = self.pending.values().filter(collecting).map(|it| it.id).collect();
        for id in ids {
            self.abort(now, id, FailureReason::FailoverRegion, FailureOrigin::Coordinator, out);
        }
        for &task in tasks {
            self.permits.withdraw(task);
            self.last.withdraw(task);
            self.tasks.give_up(task);
        }
    }

    pub(super) fn restored(&mut self, now: Timestamp, restored: Restored<S>, out: &mut Outputs<S>) {
        // What the store is still writing is newer than what the tasks were restored from: they
        // never prepared it.
        for id in self.pending.keys().copied().collect::<Vec<_>>() {
            self.abort(now, id, FailureReason::FailoverRegion, FailureOrigin::Coordinator, out);
        }
        for &task in &restored.tasks {
            self.tasks.redeploy(task);
            self.permits.withdraw(task.subtask);
            self.last.withdraw(task.subtask);
            self.contributions.remove(&task.subtask);
        }
        for &task in &restored.left_out {
            self.tasks.leave_out(task);
            self.contributions.remove(&task);
        }
        self.contributions.extend(restored.contributions);
        self.latest = restored.checkpoint;
        self.retained.begin_restore(restored.checkpoint);
        if restored.tasks.is_empty() {
            // Nobody is going to report that it runs.
            self.note_running(now, out);
        }
    }

    pub(super) fn stop_job(
        &mut self,
        now: Timestamp,
        by: RequestId,
        is_drain: bool,
        out: &mut Outputs<S>,
    ) {
        let has_blocking_output = self.topology.edges().iter().any(|edge| {
            let vertex = edge.from;
            edge.is_blocking
                && self.tasks.iter().any(|(id, task)| id.vertex == vertex && !task.is_finished())
        });
        let refusal = if self.is_closed {
            Some(FailureReason::CoordinatorShutdown)
        } else if has_blocking_output {
            Some(FailureReason::BlockingOutputExists)
        } else if !self.stop.begin(by) {
            Some(FailureReason::TooManyRequests)
        } else {
            None
        };
        if let Some(reason) = refusal {
            let outcome = Outcome::Stop(StopOutcome::Failed { reason });
            out.push(Output::Promise { request: by, outcome });
            return;
        }
        self.schedule.stop();
        self.abort_all(now, FailureReason::CoordinatorSuspend, out);
        let kind = SnapshotKind::StopSavepoint { is_drain };
        self.submit(now, Request { origin: Origin::Stop(by), kind, at: now }, out);
    }

    pub(super) fn close(&mut self, now: Timestamp, out: &mut Outputs<S>) {
        self.is_closed = true;
        self.schedule.stop();
        if let Some((request, outcome)) = self.stop.cancel() {
            out.push(Output::Promise { request, outcome: Outcome::Stop(outcome) });
        }
        self.abort_all(now, FailureReason::CoordinatorShutdown, out);
        for id in self.storing.keys().copied().collect::<Vec<_>>() {
            let reason = FailureReason::CoordinatorShutdown;
            self.abort(now, id, reason, FailureOrigin::Coordinator, out);
        }
    }
}
