//! The control thread's part of one job: feeds the checkpoint coordinator, deploys, deals with failures, ends.
//!
//! It decides nothing about checkpoints itself: what happens goes into [`Coordinator::handle`], and what comes out is carried
//! out. Never waits for a worker: cancelling is asked for and answered by an event.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use deploying::Deployed;
use failed::FailedCheckpoint;
use failing::Then;
use savepoint::Promise;
pub use savepoint::SavepointStop;

use super::clock::Clock;
use super::cluster::{Cluster, ClusterParts, Spot};
use super::crew::Crew;
use super::parts::RuntimeOptions;
use super::request::Request;
use super::restore::{self, Handle};
use super::snapshot_io::{IoRequest, SavepointTarget, StoredTask, wall_of};
use super::starting::Begin;
use super::status::{JobState, Shared};
use super::worker::Command;
use crate::channel::event::Barrier;
use crate::channel::options::CheckpointOptions as BarrierOptions;
use crate::clock::{EpochMillis, Timestamp};
use crate::control::checkpoint::coordinator::Coordinator;
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::{Ack, Input, Output};
use crate::control::checkpoint::options::{Alignment, CheckpointOptions, SnapshotKind};
use crate::control::checkpoint::request::RequestId;
use crate::control::checkpoint::restore::left_out;
use crate::control::checkpoint::tasks::TaskState;
use crate::control::checkpoint::topology::{self, Topology};
use crate::control::execution::TaskReport;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{ExecutionGraph, VertexPlan};
use crate::id::{AttemptId, CheckpointId, SubtaskId, WorkerIndex};
use crate::probe::{Fault, is_broken};
use crate::source::Split;
use crate::state::manifest::SnapshotKind as StoredKind;
use crate::state::snapshots::{End, Snapshots};
use crate::task::{Mail, Report, ReportKind};

mod deploying;
mod facts;
mod failed;
mod failing;
mod orders;
mod requests;
mod savepoint;
mod stored;

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
    /// A worker has no task of this attempt, or no longer.
    Canceled { attempt: AttemptId },
    /// A worker has dropped its tasks and ends.
    WorkerEnded { worker: WorkerIndex },
    /// The host asks for something.
    Request(Request),
}

/// What the job is about.
#[derive(Debug)]
enum Phase {
    /// The job master decides what runs.
    Running,
    /// Waits until workers have dropped their tasks.
    Cancelling {
        number: u64,
        awaiting: BTreeSet<WorkerIndex>,
        then: Then,
    },
    Over,
}

/// The control part of one job.
pub(super) struct Control {
    clock: Clock,
    job: String,
    graph: Arc<ExecutionGraph>,
    vertices: Vec<Arc<VertexPlan>>,
    topology: Topology,
    options: Arc<RuntimeOptions>,
    cluster: Cluster,
    io: Sender<IoRequest>,
    snapshots: Snapshots,
    coordinator: Coordinator<Handle>,
    outputs: Vec<Output<Handle>>,
    shared: Arc<Shared>,
    splits: BTreeMap<String, Vec<Split>>,
    /// What was deployed last of each subtask.
    tasks: BTreeMap<SubtaskId, Deployed>,
    /// What the job begins from, until it is deployed for the first time.
    first: Option<Option<CheckpointId>>,
    /// What the job master wants deployed.
    wanted: Option<BTreeMap<AttemptId, Spot>>,
    /// Tasks that workers were told to drop, and have not yet; where.
    stopping: BTreeMap<AttemptId, usize>,
    /// Workers of task managers that are gone, until they have ended.
    ending: BTreeSet<usize>,
    /// Tasks that the coordinator knows to be restarting.
    failing: BTreeSet<SubtaskId>,
    /// Tasks that a restart from a checkpoint being written would leave out.
    left_out: BTreeMap<CheckpointId, BTreeSet<SubtaskId>>,
    last_error: Option<Error>,
    phase: Phase,
    cancellations: u64,
    promises: BTreeMap<RequestId, Promise>,
    /// Savepoints that were asked for and are not triggered.
    targets: BTreeMap<RequestId, SavepointTarget>,
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
    pub(super) crew: Crew,
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
                has_commit_hook: plan.commits || plan.emits_on_commit,
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
        let ControlParts { clock, job, graph, options, crew, io, snapshots, shared, .. } = parts;
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
        let cluster = Cluster::new(ClusterParts {
            clock,
            options: &options.cluster,
            restart: &options.restart_strategy,
            is_checkpointed: options.checkpointed,
            graph: &graph,
            crew,
            seed: parts.random,
        })?;
        let vertices = graph.vertices.iter().cloned().map(Arc::new).collect();
        Ok(Self {
            clock,
            job,
            vertices,
            graph,
            topology,
            cluster,
            options,
            io,
            snapshots,
            coordinator,
            outputs: Vec::new(),
            shared,
            splits: parts.splits,
            tasks: BTreeMap::new(),
            first: None,
            wanted: None,
            stopping: BTreeMap::new(),
            ending: BTreeSet::new(),
            failing: BTreeSet::new(),
            left_out: BTreeMap::new(),
            last_error: None,
            phase: Phase::Running,
            cancellations: 0,
            promises: BTreeMap::new(),
            targets: BTreeMap::new(),
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
        self.first = Some(begin.snapshot());
        if let Begin::Savepoint(id, folder) = begin {
            self.origin = Some((id, folder));
        }
        self.pump();
    }

    /// When `tick` wants to be called again.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Running => {
                [self.coordinator.deadline(), self.cluster.deadline()].into_iter().flatten().min()
            }
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
        if matches!(self.phase, Phase::Running) {
            if self.coordinator.deadline().is_some_and(|at| at <= now) {
                self.decide(Input::Tick);
            }
            if self.cluster.deadline().is_some_and(|at| at <= now) {
                self.cluster.tick();
            }
        }
        self.pump();
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
            ControlEvent::Cancelled { worker, number } => self.cancelled(worker, Some(number)),
            ControlEvent::Canceled { attempt } => self.canceled(attempt),
            ControlEvent::WorkerEnded { worker } => self.worker_ended(worker),
            ControlEvent::Request(request) => self.request(request),
        }
        self.tick();
    }

    fn report(&mut self, report: Report) {
        let Report { attempt, kind } = report;
        let is_current = self.tasks.get(&attempt.subtask).is_some_and(|it| it.attempt == attempt);
        // What a task says that was told to stop changes nothing: it is going to be restarted.
        let is_heard = is_current && !self.stopping.contains_key(&attempt);
        if !is_heard || !matches!(self.phase, Phase::Running) {
            return;
        }
        match kind {
            ReportKind::Running => {
                self.decide(Input::TaskState { task: attempt, state: TaskState::Running });
                self.note_running();
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
                self.decide(Input::TaskState { task: attempt, state: TaskState::Finished });
                self.cluster.report(attempt, TaskReport::Finished);
            }
            ReportKind::Failed(error) => self.failed(attempt, error),
        }
    }

    /// Whether no task is being restarted or placed.
    fn is_deployed(&self) -> bool {
        matches!(self.phase, Phase::Running)
            && self.wanted.is_none()
            && self.stopping.is_empty()
            && self.cluster.is_placed()
    }

    /// Tells so if all tasks run now.
    fn note_running(&mut self) {
        let tasks = self.coordinator.tasks();
        let all_run = tasks.iter().all(|(_, task)| task.is_running() || task.is_finished());
        if all_run && self.is_deployed() {
            self.shared.update(|board| board.state = JobState::Running);
            if self.is_stopping {
                self.request(Request::Stop);
            }
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
                if self.coordinator.tasks().iter().any(|(_, task)| task.is_finished()) {
                    let finished = left_out(&self.topology, &metadata);
                    self.left_out.insert(metadata.checkpoint, finished);
                }
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

    fn mail(&self, attempt: AttemptId, mail: Mail) {
        if let Some(task) = self.tasks.get(&attempt.subtask) {
            self.cluster.crew().post(task.worker, Command::Mail(attempt, mail));
        }
    }

    fn ask_io(&self, request: IoRequest) {
        let _ = self.io.send(request);
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
