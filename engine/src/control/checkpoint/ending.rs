//! The coordinator from the last acknowledgement, or the first failure, to the end of a checkpoint.
//!
//! Metadata is removed before the state it names. A checkpoint given up while the store writes it
//! keeps its state until the store has answered.

use super::coordinator::{Coordinator, Ending, discard_states};
use super::failure::{FailureOrigin, FailureReason};
use super::message::{Ack, Fact, Outcome, Output, Outputs};
use super::metadata::StateSummary;
use super::options::SnapshotKind;
use super::pending::Pending;
use super::request::Origin;
use super::tasks::TaskState;
use crate::clock::Timestamp;
use crate::id::{AttemptId, CheckpointId};

impl<S: StateSummary> Coordinator<S> {
    /// The store has made `id` durable.
    pub(super) fn stored(&mut self, now: Timestamp, id: CheckpointId, out: &mut Outputs<S>) {
        if let Some(states) = self.abandoned.remove(&id) {
            self.discard_checkpoint(id, out);
            discard_states(id, states, out);
            return;
        }
        let Some(storing) = self.storing.remove(&id) else { return };
        let Some(pending) = self.pending.remove(&id) else { return };
        let kind = pending.options.kind();
        self.remember(id, Ending::Completed);
        self.last_completion = Some(now);
        self.tolerance.succeeded(id);
        let took = now.since(pending.timestamp);
        out.push(Output::Fact(Fact::Completed { checkpoint: id, kind, took }));
        discard_states(id, storing.dropped, out);
        if kind.is_notified() {
            self.contributions = storing.contributions;
            self.latest = Some(id);
            let released = pending.acks.values().filter(|ack| ack.operators_finished);
            self.last.completed(id, released.map(|ack| ack.task.subtask));
            self.subsume(now, id, kind.is_savepoint(), out);
            let told = self.alive(&pending.plan.to_wait, kind);
            out.extend(told.map(|task| Output::NotifyComplete { task, checkpoint: id }));
        }
        match pending.request.origin {
            Origin::Periodic | Origin::Final => {}
            Origin::User(request) => {
                let outcome = Outcome::Completed { checkpoint: id };
                out.push(Output::Promise { request, outcome });
            }
            Origin::Stop(_) => self.stop.saved(id),
        }
    }

    /// The store could not make `id` durable.
    pub(super) fn not_stored(
        &mut self,
        now: Timestamp,
        id: CheckpointId,
        is_outcome_known: bool,
        out: &mut Outputs<S>,
    ) {
        if self.storing.contains_key(&id) {
            let reason = FailureReason::FinalizeFailed;
            self.abort(now, id, reason, FailureOrigin::Coordinator, out);
        }
        if let Some(states) = self.abandoned.remove(&id)
            && is_outcome_known
        {
            self.discard_checkpoint(id, out);
            discard_states(id, states, out);
        }
    }

    /// Ends a pending checkpoint without success.
    pub(super) fn abort(
        &mut self,
        now: Timestamp,
        id: CheckpointId,
        reason: FailureReason,
        origin: FailureOrigin,
        out: &mut Outputs<S>,
    ) {
        let Some(pending) = self.pending.remove(&id) else { return };
        let kind = pending.options.kind();
        let ending =
            if reason == FailureReason::Expired { Ending::Expired } else { Ending::Aborted };
        self.remember(id, ending);
        out.push(Output::Fact(Fact::Failed {
            checkpoint: Some(id),
            kind,
            reason,
            unacknowledged: pending.unacknowledged(),
        }));
        for task in self.alive(&pending.plan.to_wait, kind).collect::<Vec<_>>() {
            out.push(Output::NotifyAborted { task, checkpoint: id, latest: self.latest });
        }
        let Pending { acks, coordinator_states, request, .. } = pending;
        let states = acks.into_values().flat_map(Ack::into_states);
        let states: Vec<_> = states.chain(coordinator_states.into_values()).collect();
        if self.storing.remove(&id).is_some() {
            self.abandoned.insert(id, states);
        } else {
            self.discard_checkpoint(id, out);
            discard_states(id, states, out);
        }
        if self.tolerance.failed(Some(id), kind, reason, origin) {
            out.push(Output::FailJob { checkpoint: Some(id), reason, may_restart: true });
        }
        let outcome = Outcome::Failed { checkpoint: Some(id), reason };
        self.request_failed(now, request.origin, outcome, out);
    }

    /// Ends everything queued, and everything pending that is not with the store.
    pub(super) fn abort_all(
        &mut self,
        now: Timestamp,
        reason: FailureReason,
        out: &mut Outputs<S>,
    ) {
        for request in self.starting.take().into_iter().chain(self.decider.drain()) {
            self.fail_request(now, request, reason, out);
        }
        let collecting = self.pending.values().filter(|pending| pending.is_collecting());
        for id in collecting.map(|pending| pending.id).collect::<Vec<_>>() {
            self.abort(now, id, reason, FailureOrigin::Coordinator, out);
        }
    }

    /// Removes a checkpoint from the store.
    pub(super) fn discard_checkpoint(&mut self, id: CheckpointId, out: &mut Outputs<S>) {
        self.cleaning.insert(id);
        out.push(Output::DiscardCheckpoint { checkpoint: id });
    }

    /// Drops what the completion of `id` makes superfluous.
    fn subsume(
        &mut self,
        now: Timestamp,
        id: CheckpointId,
        is_savepoint: bool,
        out: &mut Outputs<S>,
    ) {
        let older =
            self.pending.values().filter(|it| it.id < id && !it.options.kind().is_savepoint());
        for older in older.map(|pending| pending.id).collect::<Vec<_>>() {
            let reason = FailureReason::Subsumed;
            self.abort(now, older, reason, FailureOrigin::Coordinator, out);
        }
        for oldest in self.retained.add(id, is_savepoint) {
            self.discard_checkpoint(oldest, out);
            let running = self.tasks.iter().filter(|(_, task)| task.is_running());
            let attempts = running.filter_map(|(subtask, task)| {
                task.attempt.map(|attempt| AttemptId { subtask, attempt })
            });
            out.extend(attempts.map(|task| Output::NotifySubsumed { task, checkpoint: oldest }));
        }
    }

    /// Those of `tasks` that are current and have not finished. A task with a permit may still wait for the end of a savepoint
    /// that stops the job.
    fn alive(&self, tasks: &[AttemptId], kind: SnapshotKind) -> impl Iterator<Item = AttemptId> {
        let is_stop = matches!(kind, SnapshotKind::StopSavepoint { .. });
        tasks.iter().copied().filter(move |&id| {
            let task = self.tasks.get(id.subtask);
            let is_there =
                if is_stop { task.state != TaskState::Finished } else { !task.is_finished() };
            self.tasks.is_current(id) && is_there
        })
    }

    fn remember(&mut self, id: CheckpointId, ending: Ending) {
        if self.ended.len() == super::coordinator::ENDED_COUNT_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((id, ending));
    }
}
