//! The control thread's part of one job: feeds the checkpoint coordinator, deploys, deals with failures, ends.
//!
//! It decides nothing about checkpoints itself: what happens goes into [`Coordinator::handle`], and what comes out is carried
//! out. Never waits for a worker: cancelling is asked for and answered by an event.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::Sender;
use tidegate_netstack::lane::{self, LaneOptions};
use tidegate_netstack::pool::PoolOptions;

use failed::FailedCheckpoint;
use savepoint::Promise;
pub use savepoint::SavepointStop;

use super::clock::Clock;
use super::cluster::Cluster;
use super::deployment::{Deployment, Input as ChannelInput};
use super::in_flight::InFlight;
use super::parts::RuntimeOptions;
use super::request::Request;
use super::restarts::Restarts;
use super::restore::{self, Handle};
use super::snapshot_io::{IoRequest, SavepointTarget, StoredTask, wall_of};
use super::starting::{self, Begin};
use super::status::{CHECKPOINTS_MAX, CheckpointStats, JobState, Shared};
use super::worker::{Command, Mailbox};
use crate::barrier::Guarantee;
use crate::channel::event::Barrier;
use crate::channel::options::CheckpointOptions as BarrierOptions;
use crate::channel::partition::PartitionOptions;
use crate::clock::{EpochMillis, Timestamp};
use crate::control::checkpoint::coordinator::Coordinator;
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::{Ack, AckMetrics, Fact, Input, Output, Restored};
use crate::control::checkpoint::options::{
    Alignment, CheckpointMode, CheckpointOptions, SnapshotKind,
};
use crate::control::checkpoint::request::RequestId;
use crate::control::checkpoint::restore::{Restoration, TaskRestore};
use crate::control::checkpoint::tasks::TaskState;
use crate::control::checkpoint::topology::{self, Topology};
use crate::control::checkpoint::{legality, metadata::Contributions};
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{EdgePlan, ExecutionGraph, VertexPlan};
use crate::id::{Attempt, AttemptId, CheckpointId, SubtaskId, VertexId, WorkerIndex};
use crate::metrics::TaskMetrics;
use crate::operator::EdgeKind;
use crate::probe::{self, Fault, is_broken};
use crate::source::Split;
use crate::state::manifest::{ChannelMeta, SnapshotKind as StoredKind};
use crate::state::part::RestoredState;
use crate::state::snapshots::{End, Snapshots};
use crate::task::{Mail, Report, ReportKind};

mod failed;
mod savepoint;

/// What reaches the control thread.
#[derive(Debug)]
pub(super) enum ControlEvent {
    /// A task reports.
    Report(Report),
    /// A task's snapshot is stored.
    Stored(Box<StoredTask>),
    /// A task's snapshot could not be stored.
    NotStored { attempt: AttemptId, checkpoint: CheckpointId, cause: Error },
    /// A manifest is written, or not: then with whether it is known not to be in place.
    Finalized { checkpoint: CheckpointId, result: std::result::Result<EpochMillis, (Error, bool)> },
    /// A checkpoint is removed.
    Discarded { checkpoint: CheckpointId, result: Result<()> },
    /// Ids are durable.
    Reserved { below: CheckpointId, result: Result<()> },
    /// A worker has dropped its tasks.
    Cancelled { worker: WorkerIndex, number: u64 },
    /// The host asks for something.
    Request(Request),
}

/// What the job is about.
#[derive(Debug)]
enum Phase {
    Running,
    /// Waits until workers have dropped their tasks.
    Cancelling {
        number: u64,
        awaiting: BTreeSet<WorkerIndex>,
        then: Then,
    },
    /// Waits before it deploys again.
    Delayed {
        until: Timestamp,
    },
    Over,
}

#[derive(Debug)]
enum Then {
    Restart { at: Timestamp },
    Fail(Error),
    Cancelled,
}

/// One deployed task.
#[derive(Debug)]
struct Deployed {
    attempt: AttemptId,
    worker: usize,
    is_finished: bool,
}

/// The control part of one job.
pub(super) struct Control {
    clock: Clock,
    job: String,
    graph: Arc<ExecutionGraph>,
    vertices: Vec<Arc<VertexPlan>>,
    topology: Topology,
    options: Arc<RuntimeOptions>,
    workers: Vec<Mailbox>,
    cluster: Cluster,
    io: Sender<IoRequest>,
    snapshots: Snapshots,
    coordinator: Coordinator<Handle>,
    outputs: Vec<Output<Handle>>,
    shared: Arc<Shared>,
    splits: BTreeMap<String, Vec<Split>>,
    attempt: u32,
    tasks: BTreeMap<SubtaskId, Deployed>,
    restarts: Restarts,
    phase: Phase,
    cancellations: u64,
    promises: BTreeMap<RequestId, Promise>,
    /// Savepoints that were asked for and are not triggered.
    wanted: BTreeMap<RequestId, SavepointTarget>,
    /// Savepoints under way, or complete and not told.
    savepoints: BTreeMap<CheckpointId, SavepointTarget>,
    /// The savepoint the job began from.
    origin: Option<(CheckpointId, PathBuf)>,
    /// The stop savepoint that has failed.
    failed_stop: Option<CheckpointId>,
    /// The job was stopped with a savepoint; whether it was drained.
    stopped: Option<bool>,
    last_failed: Option<FailedCheckpoint>,
    next_request: u64,
    triggered: BTreeMap<CheckpointId, (Timestamp, Duration, u64)>,
    failure_causes: BTreeMap<CheckpointId, String>,
    outcome: Option<Result<()>>,
    is_stopping: bool,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("job", &self.job).finish_non_exhaustive()
    }
}

/// What the control part is made with.
pub(super) struct ControlParts {
    pub(super) clock: Clock,
    pub(super) job: String,
    pub(super) graph: Arc<ExecutionGraph>,
    pub(super) options: Arc<RuntimeOptions>,
    pub(super) workers: Vec<Mailbox>,
    pub(super) io: Sender<IoRequest>,
    pub(super) snapshots: Snapshots,
    pub(super) shared: Arc<Shared>,
    pub(super) splits: BTreeMap<String, Vec<Split>>,
    pub(super) random: u64,
}

/// The execution graph in the coordinator's terms.
pub(super) fn topology(graph: &ExecutionGraph) -> Result<Topology> {
    let vertices = graph
        .vertices
        .iter()
        .map(|plan| {
            let operator = |name: &String| topology::Operator {
                user_id: Some(name.clone()),
                generated_id: name.clone(),
                has_state: plan.has_state,
                has_commit_hook: plan.commits,
            };
            let mut operators: Vec<_> = plan.names.iter().map(operator).collect();
            if operators.is_empty() {
                operators.push(topology::Operator {
                    generated_id: format!("stateless {}", plan.id),
                    ..topology::Operator::default()
                });
            }
            topology::Vertex {
                id: plan.id,
                parallelism: plan.parallelism,
                max_parallelism: graph.key_groups.count().max(plan.parallelism),
                operators,
            }
        })
        .collect();
    let edges = graph
        .edges
        .iter()
        .map(|edge| topology::Edge {
            from: edge.from,
            to: edge.to,
            kind: topology::EdgeKind::AllToAll,
            is_blocking: false,
        })
        .collect();
    Topology::new(vertices, edges)
        .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))
}

impl Control {
    /// The control part of a job that is about to be deployed from checkpoint `restore`.
    pub(super) fn new(parts: ControlParts) -> Result<Self> {
        let ControlParts { clock, job, graph, options, workers, io, snapshots, shared, .. } = parts;
        let topology = topology(&graph)?;
        let found = snapshots.completed();
        let first = snapshots.next_id();
        let coordinator = Coordinator::new(
            options.coordinator.clone(),
            topology.clone(),
            first,
            found,
            parts.random,
        );
        let vertices = graph.vertices.iter().cloned().map(Arc::new).collect();
        Ok(Self {
            clock,
            job,
            vertices,
            graph,
            topology,
            restarts: Restarts::new(options.restart_strategy.clone()),
            cluster: Cluster::new(clock, &options.cluster)?,
            options,
            workers,
            io,
            snapshots,
            coordinator,
            outputs: Vec::new(),
            shared,
            splits: parts.splits,
            attempt: 0,
            tasks: BTreeMap::new(),
            phase: Phase::Running,
            cancellations: 0,
            promises: BTreeMap::new(),
            wanted: BTreeMap::new(),
            savepoints: BTreeMap::new(),
            origin: None,
            failed_stop: None,
            stopped: None,
            last_failed: None,
            next_request: 0,
            triggered: BTreeMap::new(),
            failure_causes: BTreeMap::new(),
            outcome: None,
            is_stopping: false,
        })
    }

    /// Deploys the job for the first time.
    pub(super) fn begin(&mut self, begin: Begin) {
        let snapshot = begin.snapshot();
        if let Begin::Savepoint(id, folder) = begin {
            self.origin = Some((id, folder));
        }
        self.start(snapshot);
    }

    fn start(&mut self, restore: Option<CheckpointId>) {
        if let Err(error) = self.deploy(restore) {
            self.end(Err(error), JobState::Failed);
        }
    }

    /// When `tick` wants to be called again.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Running => self.coordinator.deadline(),
            Phase::Delayed { until } => Some(until),
            Phase::Cancelling { .. } | Phase::Over => None,
        }
    }

    /// The job's outcome, once it has one.
    pub(super) fn take_outcome(&mut self) -> Option<Result<()>> {
        self.outcome.take()
    }

    /// Time has passed.
    pub(super) fn tick(&mut self) {
        let now = self.clock.now();
        match self.phase {
            Phase::Running => {
                if self.coordinator.deadline().is_some_and(|at| at <= now) {
                    self.decide(Input::Tick);
                }
            }
            Phase::Delayed { until } if until <= now => {
                // A checkpoint whose manifest is being written may be the one to restore.
                if !self.coordinator.is_storing() {
                    let latest = self.coordinator.retained().latest();
                    self.start(latest.max(self.origin.as_ref().map(|(id, _)| *id)));
                }
            }
            Phase::Delayed { .. } | Phase::Cancelling { .. } | Phase::Over => {}
        }
    }

    /// Something has happened.
    pub(super) fn handle(&mut self, event: ControlEvent) {
        match event {
            ControlEvent::Report(report) => self.report(report),
            ControlEvent::Stored(stored) => self.stored(*stored),
            ControlEvent::NotStored { attempt, checkpoint, .. }
                if is_broken(Fault::FailedStateCounts) =>
            {
                self.decide(Input::Ack(Ack::empty(checkpoint, attempt)));
            }
            ControlEvent::NotStored { attempt, checkpoint, cause } => {
                self.failure_causes.insert(checkpoint, cause.to_string());
                self.decline(attempt, checkpoint, FailureReason::Async);
            }
            ControlEvent::Finalized { checkpoint, result } => match result {
                Ok(_) => self.decide(Input::StoreDone { checkpoint }),
                Err(_) if is_broken(Fault::FailedManifestCounts) => {
                    self.decide(Input::StoreDone { checkpoint });
                }
                Err((error, is_outcome_known)) => {
                    self.failure_causes.insert(checkpoint, error.to_string());
                    self.decide(Input::StoreFailed { checkpoint, is_outcome_known });
                }
            },
            ControlEvent::Discarded { checkpoint, result } => {
                if let Err(error) = result {
                    self.shared
                        .update(|board| board.last_checkpoint_failure = Some(error.to_string()));
                }
                self.decide(Input::Discarded { checkpoint });
            }
            ControlEvent::Reserved { below, result } => match result {
                Ok(()) => self.decide(Input::IdReserved { below }),
                Err(error) => {
                    self.shared
                        .update(|board| board.last_checkpoint_failure = Some(error.to_string()));
                    self.decide(Input::ReserveFailed);
                }
            },
            ControlEvent::Cancelled { worker, number } => self.cancelled(worker, number),
            ControlEvent::Request(request) => self.request(request),
        }
        self.tick();
    }

    fn request(&mut self, request: Request) {
        match request {
            Request::Checkpoint(promise) => {
                if let Some(refusal) = self.refusal() {
                    let _ = promise.send(Err(refusal));
                    return;
                }
                let request = self.promised(Promise::Checkpoint(promise));
                self.decide(Input::Request { request, kind: SnapshotKind::Checkpoint });
            }
            Request::Savepoint(dir, promise) => self.savepoint(dir, promise),
            Request::StopWithSavepoint(dir, is_drain, promise) => {
                self.stop_with_savepoint(dir, is_drain, promise);
            }
            Request::Stop => {
                self.is_stopping = true;
                if !matches!(self.phase, Phase::Running) {
                    // Asked for again when the job runs.
                } else if self.options.checkpointed {
                    let request = RequestId(self.next_request);
                    self.next_request += 1;
                    self.decide(Input::Stop { request, is_drain: false });
                } else {
                    for (subtask, task) in &self.tasks {
                        if !self.vertices[subtask.vertex.0 as usize].sources.is_empty() {
                            let mail = Mail::Stop { drain: true };
                            self.workers[task.worker].post(Command::Mail(task.attempt, mail));
                        }
                    }
                }
            }
            Request::Cancel => match self.phase {
                Phase::Over => {}
                Phase::Running | Phase::Cancelling { .. } | Phase::Delayed { .. } => {
                    self.decide(Input::Cancel);
                    self.cancel_all(Then::Cancelled);
                }
            },
            #[cfg(feature = "rest")]
            Request::Blocklist(call, promise) => {
                let _ = promise.send(self.cluster.call(&call));
            }
            Request::TaskManagers(promise) => {
                let _ = promise.send(self.cluster.status());
            }
            Request::BlocklistCounters(promise) => {
                let _ = promise.send(self.cluster.figures());
            }
        }
    }

    fn report(&mut self, report: Report) {
        let Report { attempt, kind } = report;
        let Some(task) = self.tasks.get_mut(&attempt.subtask) else { return };
        if task.attempt != attempt || !matches!(self.phase, Phase::Running) {
            return;
        }
        match kind {
            ReportKind::Running => {
                self.decide(Input::TaskState { task: attempt, state: TaskState::Running });
                let all_run = self
                    .tasks
                    .values()
                    .all(|task| self.coordinator.tasks().get(task.attempt.subtask).is_running());
                if all_run {
                    self.shared.update(|board| board.state = JobState::Running);
                    if self.is_stopping {
                        self.request(Request::Stop);
                    }
                }
            }
            ReportKind::Snapshot { .. } => {}
            ReportKind::Declined { checkpoint, cause } => {
                self.failure_causes.insert(checkpoint, cause.to_string());
                self.decline(attempt, checkpoint, FailureReason::Declined);
            }
            ReportKind::Waiting { checkpoint, barriers } => {
                if let Some(failed) = &mut self.last_failed {
                    failed.waited(attempt, checkpoint, &barriers, &self.graph);
                    let text = failed.to_string();
                    self.shared.update(|board| board.last_checkpoint_failure = Some(text));
                }
            }
            ReportKind::EndOfData => self.decide(Input::EndOfDataReached { task: attempt }),
            ReportKind::AwaitsCheckpoint(true) => {
                self.decide(Input::AwaitsCheckpoint { task: attempt, since: None });
            }
            ReportKind::AwaitsCheckpoint(false) => {
                self.decide(Input::AwaitWithdrawn { task: attempt });
            }
            ReportKind::FinishRequest { .. } => {
                self.decide(Input::FinishRequest { task: attempt });
            }
            ReportKind::Finished => {
                task.is_finished = true;
                self.decide(Input::TaskState { task: attempt, state: TaskState::Finished });
                if self.tasks.values().all(|task| task.is_finished) {
                    self.finish();
                }
            }
            ReportKind::Failed(error) => self.failed(attempt, error),
        }
    }

    /// All tasks have finished.
    fn finish(&mut self) {
        if self.is_stopping || self.stopped == Some(false) {
            return self.end(Ok(()), JobState::Cancelled);
        }
        let marked =
            if self.options.checkpointed { self.snapshots.mark(Some(&End::Ended)) } else { Ok(()) };
        self.end(marked, JobState::Finished);
    }

    fn stored(&mut self, stored: StoredTask) {
        let StoredTask {
            attempt,
            checkpoint,
            operators,
            channels,
            persisted_bytes,
            operators_finished,
            ended_inputs,
            alignment,
            bytes,
        } = stored;
        if let Some((_, longest, total)) = self.triggered.get_mut(&checkpoint) {
            *longest = alignment.max(*longest);
            *total += bytes + persisted_bytes;
        }
        let vertex = &self.vertices[attempt.subtask.vertex.0 as usize];
        let mut by_name = operators;
        let operators: Vec<_> = vertex
            .names
            .iter()
            .map(|name| by_name.remove(name.as_str()).map(Handle::of_parts))
            .collect();
        let holds_uncommitted = operators.iter().flatten().any(|handle| {
            handle.parts.iter().any(|part| {
                part.kind == crate::state::manifest::StateKind::Committables
                    && !is_empty_list(&part.data)
            })
        });
        let pinned_inputs = self.pinned_inputs(attempt.subtask.vertex, &channels);
        self.decide(Input::Ack(Ack {
            channels: (!channels.is_empty()).then(|| Handle::of_channels(channels)),
            pinned_inputs,
            ended_inputs,
            operators_finished,
            holds_uncommitted,
            operators,
            metrics: AckMetrics { alignment, persisted_bytes, ..AckMetrics::default() },
            ..Ack::empty(checkpoint, attempt)
        }));
    }

    /// Gates on which bytes were captured that no other subtask could take.
    fn pinned_inputs(&self, vertex: VertexId, channels: &[ChannelMeta]) -> Vec<u32> {
        let gates = self.graph.edges.iter().filter(|edge| edge.to == vertex);
        let is_pinned = |edge: &EdgePlan| {
            edge.kind != EdgeKind::Keyed
                && channels
                    .iter()
                    .any(|channel| channel.gate == edge.edge as u32 && channel.count > 0)
        };
        (0..).zip(gates).filter(|(_, edge)| is_pinned(edge)).map(|(gate, _)| gate).collect()
    }

    fn decline(&mut self, task: AttemptId, checkpoint: CheckpointId, reason: FailureReason) {
        self.decide(Input::Decline { checkpoint, task, reason, waiting: Vec::new() });
    }

    /// Feeds the coordinator and carries out what it says.
    fn decide(&mut self, input: Input<Handle>) {
        let mut outputs = std::mem::take(&mut self.outputs);
        self.coordinator.handle(self.clock.now(), input, &mut outputs);
        for output in outputs.drain(..) {
            self.carry_out(output);
        }
        self.outputs = outputs;
    }

    fn carry_out(&mut self, output: Output<Handle>) {
        match output {
            Output::Trigger { task, checkpoint, timestamp, options } => {
                let options = barrier_options(options);
                self.mail(task, Mail::Trigger(Barrier { checkpoint, timestamp, options }));
            }
            Output::NotifyComplete { .. } if is_broken(Fault::CompletionNotTold) => {}
            Output::NotifyComplete { task, checkpoint } => {
                self.mail(task, Mail::Complete(checkpoint));
            }
            Output::NotifyAborted { task, checkpoint, latest } => {
                self.mail(task, Mail::Aborted { checkpoint, latest });
            }
            Output::NotifySubsumed { .. } | Output::DiscardState { .. } => {}
            Output::PermitGranted { task } => self.mail(task, Mail::PermitGranted),
            Output::PermitHold { task, pending } => {
                let barriers = pending
                    .iter()
                    .filter(|held| held.is_triggered)
                    .map(|held| Barrier {
                        checkpoint: held.checkpoint,
                        timestamp: held.timestamp,
                        options: barrier_options(held.options),
                    })
                    .collect();
                self.mail(task, Mail::PermitHeld(barriers));
            }
            Output::ReserveIds { below } => self.ask_io(IoRequest::Reserve(below)),
            Output::Finalize(metadata) => {
                let at = self
                    .triggered
                    .get(&metadata.checkpoint)
                    .map_or_else(Clock::wall, |(at, ..)| wall_of(self.clock, *at));
                let mut meta =
                    restore::manifest(&self.job, &self.graph, &self.topology, &metadata, at);
                if !self.savepoints.contains_key(&metadata.checkpoint) {
                    // A stop without a folder for the savepoint leaves it among the checkpoints.
                    meta.kind = StoredKind::Checkpoint;
                }
                self.ask_io(IoRequest::Finalize(Box::new(meta)));
            }
            Output::DiscardCheckpoint { checkpoint } => {
                self.ask_io(IoRequest::Discard(checkpoint));
            }
            Output::FailJob { checkpoint, reason, .. } => {
                let which = checkpoint.map_or_else(String::new, |id| format!(" {id}"));
                let message = format!("checkpoint{which} failed: {reason}");
                self.fail(Error::new(ErrorKind::Checkpoint, message));
            }
            Output::Promise { request, outcome } => self.promise(request, outcome),
            Output::Fact(fact) => self.fact(fact),
        }
    }

    fn fact(&mut self, fact: Fact) {
        probe::note(None, &fact);
        match fact {
            Fact::Triggered { checkpoint, .. } => {
                let now = self.clock.now();
                self.triggered.insert(checkpoint, (now, Duration::ZERO, 0));
                self.triggered_snapshot(checkpoint);
                let triggered_at = wall_of(self.clock, now);
                self.shared.update(|board| {
                    board.checkpoint_under_way = Some((checkpoint, triggered_at));
                });
            }
            Fact::Completed { checkpoint, took, kind } => {
                let (at, alignment, bytes) = self.triggered.remove(&checkpoint).unwrap_or_default();
                self.triggered = self.triggered.split_off(&checkpoint);
                self.failure_causes.retain(|id, _| *id > checkpoint);
                let stats = CheckpointStats {
                    id: checkpoint,
                    triggered_at: wall_of(self.clock, at),
                    duration: took,
                    alignment,
                    bytes,
                };
                self.shared.update(|board| {
                    board.checkpoint_under_way.take_if(|(id, _)| *id <= checkpoint);
                    if !kind.is_notified() {
                        return;
                    }
                    board.checkpoints_completed += 1;
                    if board.checkpoints.len() == CHECKPOINTS_MAX {
                        board.checkpoints.remove(0);
                    }
                    board.checkpoints.push(stats);
                });
            }
            Fact::Failed { checkpoint, reason, unacknowledged, kind } => {
                let cause = checkpoint.and_then(|id| self.failure_causes.get(&id).cloned());
                let mut text = reason.to_string();
                if let Some(cause) = cause {
                    text = format!("{text}: {cause}");
                }
                if let Some(id) = checkpoint {
                    self.savepoints.remove(&id);
                    self.failed_stop = kind.is_stop().then_some(id);
                    let who = unacknowledged.iter().map(|entry| entry.task);
                    let failed = FailedCheckpoint::new(id, text, who, &self.graph);
                    text = failed.to_string();
                    self.last_failed = Some(failed);
                }
                self.shared.update(|board| {
                    board.checkpoint_under_way.take_if(|(id, _)| Some(*id) == checkpoint);
                    board.checkpoints_failed += 1;
                    board.last_checkpoint_failure = Some(text);
                });
            }
            Fact::Acknowledged { .. } | Fact::LateAck { .. } => {}
        }
    }

    fn mail(&self, attempt: AttemptId, mail: Mail) {
        if let Some(task) = self.tasks.get(&attempt.subtask) {
            self.workers[task.worker].post(Command::Mail(attempt, mail));
        }
    }

    fn ask_io(&self, request: IoRequest) {
        let _ = self.io.send(request);
    }

    /// A task has failed: restart the job, or fail it.
    fn failed(&mut self, attempt: AttemptId, error: Error) {
        self.decide(Input::TaskState { task: attempt, state: TaskState::Failed });
        self.fail(error);
    }

    fn fail(&mut self, error: Error) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let now = self.clock.now();
        let text = error.to_string();
        self.shared.update(|board| board.last_failure = Some(text));
        let may_restart = self.options.checkpointed && is_worth_a_restart(&error);
        match may_restart.then(|| self.restarts.failed(now)).flatten() {
            Some(delay) => {
                let tasks = self.tasks.keys().copied().collect();
                self.decide(Input::Failover { tasks });
                self.shared.update(|board| {
                    board.state = JobState::Restarting;
                    board.restarts += 1;
                });
                self.cancel_all(Then::Restart { at: now + delay });
            }
            None => {
                self.decide(Input::Cancel);
                self.cancel_all(Then::Fail(error));
            }
        }
    }

    fn cancel_all(&mut self, then: Then) {
        self.cancellations += 1;
        let number = self.cancellations;
        for worker in &self.workers {
            worker.post(Command::CancelAll(number));
        }
        let awaiting = (0..self.workers.len() as u32).map(WorkerIndex).collect();
        self.phase = Phase::Cancelling { number, awaiting, then };
    }

    fn cancelled(&mut self, worker: WorkerIndex, number: u64) {
        let Phase::Cancelling { number: awaited, awaiting, .. } = &mut self.phase else { return };
        if *awaited != number {
            return;
        }
        awaiting.remove(&worker);
        if !awaiting.is_empty() {
            return;
        }
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Cancelling { then: Then::Restart { at }, .. } => {
                self.phase = Phase::Delayed { until: at };
            }
            Phase::Cancelling { then: Then::Fail(error), .. } => {
                self.end(Err(error), JobState::Failed);
            }
            Phase::Cancelling { then: Then::Cancelled, .. } => {
                if !self.options.retain_on_cancel {
                    // Behind whatever is being written.
                    self.ask_io(IoRequest::RemoveAll);
                }
                let error = Error::new(ErrorKind::Cancelled, "the job was cancelled");
                self.end(Err(error), JobState::Cancelled);
            }
            Phase::Running | Phase::Delayed { .. } | Phase::Over => {}
        }
    }

    fn end(&mut self, outcome: Result<()>, state: JobState) {
        self.phase = Phase::Over;
        self.outcome.get_or_insert(outcome);
        self.promises.clear();
        self.shared.update(|board| board.state = state);
    }

    /// Makes all channels and hands the tasks to the workers, restoring `restore`.
    fn deploy(&mut self, restore: Option<CheckpointId>) -> Result<()> {
        self.phase = Phase::Running;
        self.attempt += 1;
        let mut restoration = None;
        if let Some(checkpoint) = restore {
            let reader = Arc::new(match &self.origin {
                Some((id, folder)) if *id == checkpoint => starting::open_savepoint(folder)?,
                Some(_) | None => self.snapshots.open(checkpoint)?,
            });
            restore::check_operators(&self.topology, reader.meta())?;
            let metadata = restore::metadata(reader.meta());
            legality::check(&self.topology, &metadata)
                .map_err(|error| Error::new(ErrorKind::Checkpoint, error.to_string()))?;
            restoration = Some((Restoration::new(&self.topology, &metadata)?, reader));
        }
        let left_out = |subtask: &SubtaskId| {
            restoration.as_ref().is_some_and(|(r, _)| r.left_out.contains(subtask))
        };
        let subtasks: Vec<SubtaskId> =
            self.topology.subtasks().filter(|subtask| !left_out(subtask)).collect();
        let attempt = Attempt(self.attempt - 1);
        let mut metrics = BTreeMap::new();
        let mut deployments: BTreeMap<SubtaskId, Deployment> = BTreeMap::new();
        for &subtask in &subtasks {
            let restored = match &restoration {
                Some((restoration, reader)) => {
                    let names = &self.vertices[subtask.vertex.0 as usize].names;
                    let task: &TaskRestore<Handle> = &restoration.tasks[&subtask];
                    restore::restored_state(restoration.checkpoint, names, task, reader)?
                }
                None => RestoredState::default(),
            };
            let counters = Arc::new(TaskMetrics::default());
            metrics.insert(subtask, counters.clone());
            let mut deployment = self.deployment(subtask, attempt, restored, counters);
            if let Some((restoration, reader)) = &restoration {
                let task = &restoration.tasks[&subtask];
                deployment.operators_finished = task.operators_finished;
                deployment.ended_inputs = task.ended_inputs.clone();
                deployment.in_flight = InFlight::of(&task.in_flight, reader);
            }
            deployments.insert(subtask, deployment);
        }
        self.connect(&mut deployments);
        self.tasks = subtasks
            .iter()
            .map(|&subtask| {
                let attempt = AttemptId { subtask, attempt };
                (subtask, Deployed { attempt, worker: self.worker_of(subtask), is_finished: false })
            })
            .collect();
        let (left_out, contributions) = match &restoration {
            Some((r, _)) => (r.left_out.iter().copied().collect(), r.contributions.clone()),
            None => (Vec::new(), Contributions::new()),
        };
        let attempts: Vec<_> = self.tasks.values().map(|task| task.attempt).collect();
        let (tasks, absent) = (attempts.len(), Vec::len(&left_out));
        probe::note(None, &probe::Deployed { restored: restore, tasks, left_out: absent });
        self.decide(Input::Restored(Restored {
            checkpoint: restore,
            tasks: attempts,
            left_out,
            contributions,
        }));
        let vertices = &self.vertices;
        self.shared.update(|board| {
            board.tasks = metrics
                .into_iter()
                .map(|(id, counters)| (id, vertices[id.vertex.0 as usize].name.clone(), counters))
                .collect();
        });
        for (subtask, deployment) in deployments {
            self.workers[self.worker_of(subtask)].post(Command::Deploy(Box::new(deployment)));
        }
        if self.tasks.is_empty() {
            self.finish();
        }
        Ok(())
    }

    fn worker_of(&self, subtask: SubtaskId) -> usize {
        subtask.index as usize % self.workers.len()
    }

    fn deployment(
        &self,
        subtask: SubtaskId,
        attempt: Attempt,
        restored: RestoredState,
        metrics: Arc<TaskMetrics>,
    ) -> Deployment {
        let vertex = self.vertices[subtask.vertex.0 as usize].clone();
        let share = |name: &String| -> (String, Vec<Split>) {
            let all = self.splits.get(name).map_or(&[][..], Vec::as_slice);
            let step = vertex.parallelism as usize;
            let own = all.iter().skip(subtask.index as usize).step_by(step).cloned().collect();
            (name.clone(), own)
        };
        let splits = vertex.sources.iter().map(|(name, _)| share(name)).collect();
        Deployment {
            attempt: AttemptId { subtask, attempt },
            vertex,
            key_groups: self.graph.key_groups,
            outputs: BTreeMap::new(),
            inputs: BTreeMap::new(),
            restored: Arc::new(restored),
            in_flight: InFlight::default(),
            operators_finished: false,
            ended_inputs: Vec::new(),
            guarantee: match self.options.coordinator.mode {
                CheckpointMode::AtLeastOnce => Guarantee::AtLeastOnce,
                CheckpointMode::ExactlyOnce | CheckpointMode::ExactlyOnceUnaligned { .. } => {
                    Guarantee::ExactlyOnce
                }
            },
            splits,
            checkpointed: self.options.checkpointed,
            drain_hold: self.options.drain_hold,
            buffer_timeout: self.options.buffer_timeout,
            latency_interval: self.options.latency_interval,
            metrics,
        }
    }

    /// Makes the channels between deployed tasks; a channel from a task that is left out is born ended.
    fn connect(&self, deployments: &mut BTreeMap<SubtaskId, Deployment>) {
        let parallelism = |id: VertexId| self.vertices[id.0 as usize].parallelism;
        for edge in &self.graph.edges {
            let (producers, consumers) = (parallelism(edge.from), parallelism(edge.to));
            let options = self.partition_options(edge.to);
            for from in 0..producers {
                let producer = SubtaskId { vertex: edge.from, index: from };
                let mut lanes = Vec::new();
                for to in 0..consumers {
                    let consumer = SubtaskId { vertex: edge.to, index: to };
                    let input = if deployments.contains_key(&producer) {
                        let lane = self.lane_options(consumers, producer, consumer);
                        let (tx, rx) = lane::channel(lane);
                        lanes.push(tx);
                        ChannelInput { producer: from, consumer: Some(rx) }
                    } else {
                        ChannelInput { producer: from, consumer: None }
                    };
                    if let Some(deployment) = deployments.get_mut(&consumer) {
                        deployment.inputs.entry(edge.edge).or_default().push(input);
                    }
                }
                if let Some(deployment) = deployments.get_mut(&producer) {
                    deployment.outputs.insert(edge.edge, (lanes, options));
                }
            }
        }
    }

    /// Those of an edge to that vertex. What is in flight towards a task is captured on all its inputs or on none: if one of them
    /// can't be dealt out again by key, none is overtaken.
    fn partition_options(&self, to: VertexId) -> PartitionOptions {
        let mut inputs = self.graph.edges.iter().filter(|edge| edge.to == to);
        let are_keyed = inputs.all(|edge| edge.kind == EdgeKind::Keyed);
        PartitionOptions {
            supports_unaligned: are_keyed || self.options.unaligned_any_edge,
            record_bytes_max: self.options.record_bytes_max,
            segment_bytes: self.options.segment_bytes,
        }
    }

    fn lane_options(&self, fan_out: u32, producer: SubtaskId, consumer: SubtaskId) -> LaneOptions {
        /// Buffers of all lanes of one output together: what stays in a core's cache, and the memory of wide jobs, is bounded.
        const OUTPUT_SEGMENTS: u32 = 64;
        let share = (OUTPUT_SEGMENTS / fan_out).clamp(2, self.options.buffers_per_channel.max(2));
        LaneOptions {
            pool: PoolOptions {
                segment_bytes: self.options.segment_bytes,
                segments: share as usize,
                emission_bytes_max: self.options.emission_bytes_max,
            },
            events_max: 64,
            priority_max: 2 * self.options.coordinator.max_concurrent + 4,
            producer: self.workers[self.worker_of(producer)].waker(),
            consumer: self.workers[self.worker_of(consumer)].waker(),
        }
    }
}

/// Whether the same would not just happen again.
fn is_worth_a_restart(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::User | ErrorKind::Io | ErrorKind::Record | ErrorKind::Internal => true,
        ErrorKind::Config
        | ErrorKind::Checkpoint
        | ErrorKind::Cancelled
        | ErrorKind::Stuck
        | ErrorKind::Unsupported => false,
    }
}

fn is_empty_list(data: &crate::state::manifest::StateData) -> bool {
    match data {
        crate::state::manifest::StateData::Inline(bytes) => bytes.get(..4) == Some(&[0; 4]),
        crate::state::manifest::StateData::Blocks(_) => false,
    }
}

/// The coordinator's options in the barriers' terms.
fn barrier_options(options: CheckpointOptions) -> BarrierOptions {
    match (options.kind(), options.alignment()) {
        (SnapshotKind::Savepoint, _) => BarrierOptions::savepoint(),
        (SnapshotKind::StopSavepoint { is_drain }, _) => {
            BarrierOptions::stop_with_savepoint(is_drain)
        }
        (SnapshotKind::Checkpoint, Alignment::AtLeastOnce) => BarrierOptions::at_least_once(),
        (SnapshotKind::Checkpoint, Alignment::Aligned) => BarrierOptions::aligned(),
        (SnapshotKind::Checkpoint, Alignment::Timeoutable(timeout)) => {
            BarrierOptions::aligned_with_timeout(timeout)
        }
        (SnapshotKind::Checkpoint, Alignment::Unaligned) => BarrierOptions::unaligned(),
        (SnapshotKind::Checkpoint, Alignment::ForcedAligned { .. }) => {
            BarrierOptions::unaligned().forced_aligned()
        }
    }
}
