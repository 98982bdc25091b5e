//! The checkpoint coordinator: one machine for plan, trigger, acknowledgement, completion, abort
//! and finish permit.
//!
//! Invariants, checked on leaving [`Coordinator::handle`]: every awaited task is the current
//! attempt of a running task, so nobody waits for a task that has finished; a checkpoint is with
//! the store iff all have acknowledged; nobody is on hold for nothing; the next deadline lies
//! ahead. Called by the control thread only. The rest of the machine is in `starting` (from request
//! to trigger), `ending` (completion and abort) and `interruption` (failover, restore, stop).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use super::config::CoordinatorConfig;
use super::decider::RequestDecider;
use super::failure::{FailureOrigin, FailureReason, Tolerance};
use super::final_checkpoint::FinalCheckpoint;
use super::finalize::Finalized;
use super::ids::Ids;
use super::message::{Ack, Fact, Input, Outcome, Output, Outputs, StopOutcome, WaitingChannel};
use super::metadata::{Contributions, StateSummary};
use super::options::SnapshotKind;
use super::pending::{AckResult, Pending, Phase};
use super::permit::{Permit, Permits};
use super::request::{Origin, Request};
use super::retained::Retained;
use super::schedule::Schedule;
use super::stop::Stop;
use super::tasks::{TaskState, Tasks};
use super::topology::Topology;
use crate::clock::Timestamp;
use crate::id::{AttemptId, CheckpointId};

/// How many ended checkpoints are remembered to judge late acknowledgements.
pub(super) const ENDED_COUNT_MAX: usize = 16;

/// How a checkpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    Completed,
    Expired,
    Aborted,
}

/// What becomes of a fully acknowledged checkpoint once the store has answered.
#[derive(Clone, Debug, Hash)]
pub(super) struct Storing<S> {
    pub(super) contributions: Contributions<S>,
    pub(super) dropped: Vec<S>,
}

/// Decides about all checkpoints of one job. `S` is the handle of one operator's state in one
/// subtask.
#[derive(Clone, Debug)]
pub struct Coordinator<S> {
    pub(super) config: CoordinatorConfig,
    pub(super) topology: Topology,
    pub(super) tasks: Tasks,
    pub(super) decider: RequestDecider,
    /// Chosen, but no id was available.
    pub(super) starting: Option<Request>,
    pub(super) pending: BTreeMap<CheckpointId, Pending<S>>,
    pub(super) storing: BTreeMap<CheckpointId, Storing<S>>,
    /// Given up while the store was writing them: their state, to be discarded when the store
    /// answers.
    pub(super) abandoned: BTreeMap<CheckpointId, Vec<S>>,
    pub(super) cleaning: BTreeSet<CheckpointId>,
    pub(super) ended: VecDeque<(CheckpointId, Ending)>,
    pub(super) ids: Ids,
    pub(super) schedule: Schedule,
    pub(super) tolerance: Tolerance,
    pub(super) permits: Permits,
    pub(super) last: FinalCheckpoint,
    pub(super) stop: Stop,
    pub(super) retained: Retained,
    pub(super) contributions: Contributions<S>,
    pub(super) last_completion: Option<Timestamp>,
    /// The latest one whose completion tasks have been told of, or that they were restored from.
    pub(super) latest: Option<CheckpointId>,
    pub(super) is_closed: bool,
}

impl<S: StateSummary> Coordinator<S> {
    /// A coordinator for a job that has not been deployed.
    ///
    /// `first` is the first id that may be new, `found` the completed checkpoints in the store, and
    /// `random` decides when the first periodic checkpoint is taken.
    ///
    /// # Panics
    /// If `config` contradicts itself; see [`CoordinatorConfig::check`].
    pub fn new(
        config: CoordinatorConfig,
        topology: Topology,
        first: CheckpointId,
        found: Vec<CheckpointId>,
        random: u64,
    ) -> Self {
        if let Err(error) = config.check() {
            panic!("{error}");
        }
        assert!(found.iter().all(|&id| id < first), "ids are never used twice");
        Self {
            tasks: Tasks::new(&topology),
            decider: RequestDecider::new(config.max_concurrent, config.min_pause, config.queue_max),
            starting: None,
            pending: BTreeMap::new(),
            storing: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            cleaning: BTreeSet::new(),
            ended: VecDeque::new(),
            ids: Ids::new(first),
            schedule: Schedule::new(config.interval, config.min_pause, random),
            tolerance: Tolerance::new(config.tolerable_failed),
            permits: Permits::default(),
            last: FinalCheckpoint::default(),
            stop: Stop::default(),
            retained: Retained::new(config.num_retained, found),
            contributions: Contributions::new(),
            last_completion: None,
            latest: None,
            is_closed: false,
            config,
            topology,
        }
    }

    /// Takes in what happened and adds to `out` what is to be done, in order.
    pub fn handle(&mut self, now: Timestamp, input: Input<S>, out: &mut Outputs<S>) {
        self.fire_timers(now, out);
        match input {
            Input::Request { request, kind: SnapshotKind::StopSavepoint { is_drain } }
            | Input::Stop { request, is_drain } => self.stop_job(now, request, is_drain, out),
            Input::Request {
                request,
                kind: kind @ (SnapshotKind::Checkpoint | SnapshotKind::Savepoint),
            } => self.submit(now, Request { origin: Origin::User(request), kind, at: now }, out),
            Input::TaskState { task, state } => self.task_state(now, task, state, out),
            Input::Ack(ack) => self.acknowledge(ack, out),
            Input::Decline { checkpoint, task, reason, waiting } => {
                self.note_waiting(checkpoint, task, waiting);
                let is_collecting =
                    self.pending.get(&checkpoint).is_some_and(Pending::is_collecting);
                if is_collecting && self.tasks.is_current(task) {
                    self.abort(now, checkpoint, reason, FailureOrigin::Task, out);
                }
            }
            Input::Progress { checkpoint, task, waiting } => {
                self.note_waiting(checkpoint, task, waiting);
            }
            Input::FinishRequest { task } => self.finish_request(task, out),
            Input::AwaitsCheckpoint { task, since } => {
                if self.tasks.is_current(task) && !self.tasks.get(task.subtask).is_finished() {
                    self.last.awaits(task.subtask, since, self.latest);
                }
            }
            Input::AwaitWithdrawn { task } => {
                if self.tasks.is_current(task) {
                    self.last.withdraw(task.subtask);
                }
            }
            Input::EndOfDataReached { task } => {
                if let Some(task) = self.tasks.current_mut(task) {
                    task.is_at_end_of_data = true;
                }
            }
            Input::CoordinatorState { checkpoint, operator, state } => {
                match self.pending.get_mut(&checkpoint).filter(|pending| pending.is_collecting()) {
                    Some(pending) => {
                        pending.coordinator_states.insert(operator, state);
                    }
                    None => out.push(Output::DiscardState { checkpoint, state }),
                }
            }
            Input::StoreDone { checkpoint } => self.stored(now, checkpoint, out),
            Input::StoreFailed { checkpoint, is_outcome_known } => {
                self.not_stored(now, checkpoint, is_outcome_known, out);
            }
            Input::IdReserved { below } => {
                self.ids.reserved(below);
                if let Some(request) = self.starting.take() {
                    self.begin(now, request, out);
                }
            }
            Input::ReserveFailed => {
                self.ids.not_reserved();
                if let Some(request) = self.starting.take() {
                    self.fail_request(now, request, FailureReason::IoWhileTriggering, out);
                }
            }
            Input::Discarded { checkpoint } => {
                self.cleaning.remove(&checkpoint);
            }
            Input::Failover { tasks } => self.fail_over(now, &tasks, out),
            Input::Restored(restored) => self.restored(now, restored, out),
            Input::Cancel | Input::Shutdown => self.close(now, out),
            Input::Tick => {}
        }
        self.settle(now, out);
        if cfg!(debug_assertions) {
            self.check(now);
        }
    }

    /// When `handle` wants to be called again at the latest.
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.is_closed {
            return None;
        }
        let expiry = self.pending.values().filter_map(Pending::deadline).min();
        [expiry, self.schedule.next(), self.last.retry_at()].into_iter().flatten().min()
    }

    /// (acknowledged or finished before, all) tasks of a pending checkpoint.
    pub fn progress(&self, checkpoint: CheckpointId) -> Option<(usize, usize)> {
        self.pending.get(&checkpoint).map(Pending::progress)
    }

    /// The pending checkpoints, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &Pending<S>> {
        self.pending.values()
    }

    /// What is known of the tasks.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// The completed checkpoints that are kept. While [`is_storing`](Self::is_storing) one may be
    /// about to join.
    pub fn retained(&self) -> &Retained {
        &self.retained
    }

    /// The store is writing metadata. A restart waits for its answer, so that it uses the newest
    /// checkpoint; if it does not wait, the newer checkpoint is given up.
    pub fn is_storing(&self) -> bool {
        !self.storing.is_empty()
    }

    /// Periodic checkpoints are being taken.
    pub fn is_schedule_on(&self) -> bool {
        self.schedule.is_on()
    }

    fn fire_timers(&mut self, now: Timestamp, out: &mut Outputs<S>) {
        let is_over = |pending: &&Pending<S>| pending.deadline().is_some_and(|at| at <= now);
        let expired: Vec<_> = self.pending.values().filter(is_over).map(|it| it.id).collect();
        for id in expired {
            self.abort(now, id, FailureReason::Expired, FailureOrigin::Coordinator, out);
        }
        self.last.pass(now);
        let waits = self.decider.has_periodic() || self.starting.is_some_and(Request::is_periodic);
        if self.schedule.is_due(now) && !waits {
            let kind = SnapshotKind::Checkpoint;
            self.submit(now, Request { origin: Origin::Periodic, kind, at: now }, out);
        }
    }

    fn task_state(
        &mut self,
        now: Timestamp,
        id: AttemptId,
        state: TaskState,
        out: &mut Outputs<S>,
    ) {
        let was_current = self.tasks.is_current(id);
        if !self.tasks.report(id, state) {
            return;
        }
        let lost = match state {
            TaskState::Running if was_current => None,
            TaskState::Finished => Some(FailureReason::DeclinedTaskClosing),
            TaskState::Created
            | TaskState::Scheduled
            | TaskState::Deploying
            | TaskState::Initializing
            | TaskState::Running
            | TaskState::Canceling
            | TaskState::Canceled
            | TaskState::Failed => Some(FailureReason::TaskFailure),
        };
        if let Some(reason) = lost {
            self.permits.withdraw(id.subtask);
            self.last.withdraw(id.subtask);
            let awaiting = |pending: &&Pending<S>| pending.awaits(id.subtask);
            let ids: Vec<_> = self.pending.values().filter(awaiting).map(|it| it.id).collect();
            for checkpoint in ids {
                self.abort(now, checkpoint, reason, FailureOrigin::Coordinator, out);
            }
        }
        if state == TaskState::Running {
            self.note_running(now, out);
        }
    }

    /// Goes on with periodic checkpoints, and lets go of what was kept for a restart, if all tasks run.
    pub(super) fn note_running(&mut self, now: Timestamp, out: &mut Outputs<S>) {
        let all_run = || self.tasks.iter().all(|(_, task)| task.is_running() || task.is_finished());
        if all_run() {
            if self.stop.is_idle() && !self.schedule.is_on() && !self.is_closed {
                self.schedule.start(now);
            }
            for checkpoint in self.retained.end_restore() {
                self.discard_checkpoint(checkpoint, out);
            }
        }
    }

    fn acknowledge(&mut self, ack: Ack<S>, out: &mut Outputs<S>) {
        let (id, task, metrics) = (ack.checkpoint, ack.task, ack.metrics);
        let Some(pending) = self.pending.get_mut(&id) else {
            let ending = self.ended.iter().find(|ended| ended.0 == id).map(|ended| ended.1);
            match ending {
                Some(Ending::Completed) => return,
                Some(Ending::Expired | Ending::Aborted) | None => {}
            }
            let was_pending = ending == Some(Ending::Expired);
            out.push(Output::Fact(Fact::LateAck { checkpoint: id, task, was_pending, metrics }));
            discard_states(id, ack.into_states(), out);
            return;
        };
        match pending.acknowledge(ack) {
            (AckResult::Accepted, _) => {
                out.push(Output::Fact(Fact::Acknowledged { checkpoint: id, task, metrics }));
            }
            (AckResult::Unknown, Some(ack)) => discard_states(id, ack.into_states(), out),
            (AckResult::Duplicate | AckResult::Unknown, _) => {}
        }
        if pending.is_fully_acknowledged() && pending.is_collecting() {
            pending.phase = Phase::Finalizing;
            let Finalized { metadata, contributions, dropped } =
                Finalized::new(&self.topology, pending, &self.contributions);
            self.storing.insert(id, Storing { contributions, dropped });
            out.push(Output::Finalize(metadata));
        }
    }

    fn note_waiting(
        &mut self,
        checkpoint: CheckpointId,
        task: AttemptId,
        waiting: Vec<WaitingChannel>,
    ) {
        if self.tasks.is_current(task)
            && let Some(pending) = self.pending.get_mut(&checkpoint)
        {
            pending.note_waiting(task, waiting);
        }
    }

    fn finish_request(&mut self, task: AttemptId, out: &mut Outputs<S>) {
        // Of a task that is being cancelled the request is void: its restart is on the way.
        if !self.tasks.is_current(task) || self.tasks.get(task.subtask).state != TaskState::Running
        {
            return;
        }
        match Permit::decide(task, &self.pending) {
            Permit::Granted => self.grant(task, out),
            Permit::Hold(pending) => {
                self.permits.hold(task);
                out.push(Output::PermitHold { task, pending });
            }
        }
    }

    fn grant(&mut self, id: AttemptId, out: &mut Outputs<S>) {
        if let Some(task) = self.tasks.current_mut(id) {
            task.has_permit = true;
            self.last.withdraw(id.subtask);
            out.push(Output::PermitGranted { task: id });
        }
    }

    /// Does what has become possible.
    fn settle(&mut self, now: Timestamp, out: &mut Outputs<S>) {
        if self.is_closed {
            return;
        }
        self.send_triggers(out);
        for task in self.permits.grantable(&self.pending) {
            self.grant(task, out);
        }
        if let Some((request, outcome)) = self.stop.conclude(&self.tasks) {
            out.push(Output::Promise { request, outcome: Outcome::Stop(outcome) });
            if let StopOutcome::SideEffectsPending { savepoint } = outcome {
                let checkpoint = Some(savepoint);
                let reason = FailureReason::TaskFailure;
                out.push(Output::FailJob { checkpoint, reason, may_restart: false });
            }
        }
        self.request_final(now, out);
        self.poll_queue(now, out);
    }

    fn check(&self, now: Timestamp) {
        assert!(self.deadline().is_none_or(|at| at > now), "a deadline has passed unserved");
        for pending in self.pending.values() {
            for id in pending.awaited() {
                let task = self.tasks.get(id.subtask);
                assert!(self.tasks.is_current(id), "{} waits for the old attempt {id}", pending.id);
                assert!(task.is_running(), "{} waits for {id}, which does not run", pending.id);
            }
            assert_eq!(
                pending.is_fully_acknowledged(),
                self.storing.contains_key(&pending.id),
                "{} is with the store iff all have acknowledged",
                pending.id
            );
            assert!(
                pending.held_triggers.iter().all(|task| pending.awaits(task.subtask)),
                "a held trigger of {} is for a task that acknowledged",
                pending.id
            );
        }
        for held in self.permits.held() {
            assert!(!self.tasks.get(held.subtask).is_finished(), "{held} asks after its grant");
            assert!(
                self.pending.values().any(|pending| pending.awaits(held.subtask)) || self.is_closed,
                "{held} is on hold for nothing"
            );
        }
    }
}

/// What decides what it does next; two coordinators of one job are meant, so neither options nor graph.
impl<S: Hash> Hash for Coordinator<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            config: _,
            topology: _,
            tasks,
            decider,
            starting,
            pending,
            storing,
            abandoned,
            cleaning,
            ended,
            ids,
            schedule,
            tolerance,
            permits,
            last,
            stop,
            retained,
            contributions,
            last_completion,
            latest,
            is_closed,
        } = self;
        (tasks, decider, starting, pending, storing, abandoned, cleaning, ended).hash(state);
        (ids, schedule, tolerance, permits, last, stop, retained).hash(state);
        (contributions, last_completion, latest, is_closed).hash(state);
    }
}

/// Adds the discarding of `states` of checkpoint `id`.
pub(super) fn discard_states<S>(
    id: CheckpointId,
    states: impl IntoIterator<Item = S>,
    out: &mut Outputs<S>,
) {
    out.extend(states.into_iter().map(|state| Output::DiscardState { checkpoint: id, state }));
}
