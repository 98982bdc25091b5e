//! The coordinator from request to trigger.
//!
//! The id is durable first; then plan and pending checkpoint are made in one step, so no finish
//! permit can be granted in between. A plan that fails uses up no id.

use super::coordinator::Coordinator;
use super::decider::{Decision, Load};
use super::failure::{FailureOrigin, FailureReason};
use super::message::{Fact, Outcome, Output, Outputs, StopOutcome};
use super::metadata::StateSummary;
use super::options::{Alignment, SnapshotKind};
use super::pending::Pending;
use super::permit;
use super::plan::Plan;
use super::request::{Origin, Request};
use crate::clock::Timestamp;
use crate::probe::{Fault, is_broken};

impl<S: StateSummary> Coordinator<S> {
    /// Queues a request, or fails it.
    pub(super) fn submit(&mut self, now: Timestamp, request: Request, out: &mut Outputs<S>) {
        let refusal = match request.origin {
            Origin::Periodic | Origin::User(_) | Origin::Final | Origin::Stop(_)
                if self.is_closed =>
            {
                Some(FailureReason::CoordinatorShutdown)
            }
            Origin::Periodic if !self.schedule.is_on() => {
                Some(FailureReason::PeriodicSchedulerShutdown)
            }
            // One behind the savepoint would say that the tasks that have left it were through.
            Origin::Periodic | Origin::User(_) | Origin::Final
                if !self.stop.is_idle() && !is_broken(Fault::CheckpointBehindStop) =>
            {
                Some(FailureReason::CoordinatorSuspend)
            }
            Origin::Periodic | Origin::User(_) | Origin::Final | Origin::Stop(_) => None,
        };
        if let Some(reason) = refusal {
            self.fail_request(now, request, reason, out);
        } else if let Some(dropped) = self.decider.submit(request) {
            self.fail_request(now, dropped, FailureReason::TooManyRequests, out);
        }
    }

    /// Starts what may start.
    pub(super) fn poll_queue(&mut self, now: Timestamp, out: &mut Outputs<S>) {
        loop {
            let load = Load {
                pending: self.pending.len(),
                cleaning: self.cleaning.len(),
                is_starting: self.starting.is_some(),
                has_unaligned: self.pending.values().any(|it| may_be_unaligned(it)),
                holds_permit: self.permits.held().next().is_some(),
                last_completion: self.last_completion,
            };
            match self.decider.next(now, load) {
                Decision::Wait => break,
                Decision::Start(request) => self.begin(now, request, out),
                Decision::TooSoon(request, earliest) => {
                    self.schedule.postpone(earliest);
                    self.fail_request(now, request, FailureReason::MinimumTimeBetween, out);
                }
            }
        }
    }

    /// Starts `request`, or waits for an id.
    pub(super) fn begin(&mut self, now: Timestamp, request: Request, out: &mut Outputs<S>) {
        if !self.ids.is_available() {
            self.starting = Some(request);
            out.extend(self.ids.ask().map(|below| Output::ReserveIds { below }));
            return;
        }
        let Ok(plan) = Plan::calculate(&self.topology, &self.tasks, self.config.after_finish)
        else {
            self.fail_request(now, request, FailureReason::NotAllRequiredTasksRunning, out);
            return;
        };
        let id = self.ids.draw();
        out.extend(self.ids.ask().map(|below| Output::ReserveIds { below }));
        let options = self.config.mode.options(request.kind);
        let deadline = now.saturating_add(self.config.timeout);
        let (awaited, finished) = (plan.to_wait.len(), plan.finished.len());
        let fact = Fact::Triggered { checkpoint: id, kind: request.kind, awaited, finished };
        self.pending.insert(id, Pending::new(id, request, options, now, deadline, plan));
        out.push(Output::Fact(fact));
        self.send_triggers(out);
    }

    /// Sends the triggers that nothing holds back.
    pub(super) fn send_triggers(&mut self, out: &mut Outputs<S>) {
        for (checkpoint, task) in permit::take_sendable(&mut self.pending) {
            let Pending { timestamp, options, .. } = self.pending[&checkpoint];
            out.push(Output::Trigger { task, checkpoint, timestamp, options });
        }
    }

    /// Asks for the checkpoint that alone can move the job, unless one that will do is under way.
    pub(super) fn request_final(&mut self, now: Timestamp, out: &mut Outputs<S>) {
        let is_final = |request: &Request| matches!(request.origin, Origin::Final);
        let is_under_way = self.pending.values().any(|it| it.options.kind().is_notified())
            || self.starting.is_some()
            || self.decider.queued().iter().any(is_final);
        if !is_under_way && self.stop.is_idle() && self.last.is_due(&self.topology, &self.tasks) {
            let kind = SnapshotKind::Checkpoint;
            self.submit(now, Request { origin: Origin::Final, kind, at: now }, out);
        }
    }

    /// Ends a request that has no checkpoint.
    pub(super) fn fail_request(
        &mut self,
        now: Timestamp,
        request: Request,
        reason: FailureReason,
        out: &mut Outputs<S>,
    ) {
        let unacknowledged = Vec::new();
        let Request { kind, origin, .. } = request;
        out.push(Output::Fact(Fact::Failed { checkpoint: None, kind, reason, unacknowledged }));
        if self.tolerance.failed(None, kind, reason, FailureOrigin::Coordinator) {
            out.push(Output::FailJob { checkpoint: None, reason, may_restart: true });
        }
        self.request_failed(now, origin, Outcome::Failed { checkpoint: None, reason }, out);
    }

    /// Tells whoever asked that there is no snapshot.
    pub(super) fn request_failed(
        &mut self,
        now: Timestamp,
        origin: Origin,
        outcome: Outcome,
        out: &mut Outputs<S>,
    ) {
        match origin {
            Origin::Periodic => {}
            Origin::Final => self.last.failed(now),
            Origin::User(request) => out.push(Output::Promise { request, outcome }),
            Origin::Stop(request) => {
                self.stop.not_saved();
                if !self.is_closed {
                    self.schedule.start(now);
                }
                let outcome = match outcome {
                    Outcome::Failed { reason, .. } => Outcome::Stop(StopOutcome::Failed { reason }),
                    Outcome::Completed { .. } | Outcome::Stop(_) => outcome,
                };
                out.push(Output::Promise { request, outcome });
            }
        }
    }
}

fn may_be_unaligned<S>(pending: &Pending<S>) -> bool {
    match pending.options.alignment() {
        Alignment::Timeoutable(_) | Alignment::Unaligned => true,
        Alignment::AtLeastOnce | Alignment::Aligned | Alignment::ForcedAligned { .. } => false,
    }
}
