//! What the control thread of the small job does: carries out what the coordinator says, as `engine/src/runtime` does
//! it, and keeps the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate::barrier;
use tidegate::channel::event::{Barrier, Position};
use tidegate::channel::options::CheckpointOptions as BarrierOptions;
use tidegate::clock::Timestamp;
use tidegate::control::checkpoint::config::CoordinatorConfig;
use tidegate::control::checkpoint::coordinator::Coordinator;
use tidegate::control::checkpoint::failure::FailureReason;
use tidegate::control::checkpoint::legality;
use tidegate::control::checkpoint::message::{
    Ack, Fact, Input, Outcome, Output, Restored, StopOutcome,
};
use tidegate::control::checkpoint::metadata::{Contributions, Metadata};
use tidegate::control::checkpoint::options::{CheckpointOptions, SnapshotKind};
use tidegate::control::checkpoint::request::RequestId;
use tidegate::control::checkpoint::restore::Restoration;
use tidegate::control::checkpoint::tasks::TaskState;
use tidegate::id::{Attempt, AttemptId, ChannelIndex, CheckpointId, SubtaskId};
use tidegate::task::finish;

use super::node::{Channel, Item, List, Mail, Node, Report};
use super::world::{Io, Plan, World};

impl World {
    /// The job of `plan`, all of whose tasks run for the first time.
    pub(crate) fn new(plan: &Plan) -> Self {
        let topology = plan.topology(&plan.parallelism());
        let coordinator = coordinator(plan, &topology, CheckpointId(1), Vec::new());
        let mut world = Self {
            now: Timestamp::ZERO,
            budget: plan.budget,
            topology: Arc::new(topology),
            coordinator: Arc::new(coordinator),
            nodes: Vec::new(),
            io: Vec::new(),
            store: BTreeMap::new(),
            reserved_below: CheckpointId(1),
            attempts: 0,
            committed: BTreeMap::new(),
            expected: BTreeMap::new(),
            completed: BTreeSet::new(),
            is_down: false,
            has_crashed: false,
            has_io_failed: false,
            has_expired: false,
            is_stopping: false,
            stopped: None,
            finished: BTreeSet::new(),
            is_over: false,
            completions: 0,
            broken: None,
        };
        world.deploy(plan);
        world
    }

    /// The control thread takes a task's next report.
    pub(crate) fn take_report(&mut self, at: usize) {
        let Some(report) = self.node(at).reports.pop_front() else { return };
        let task = self.node(at).id;
        match report {
            Report::Snapshot(ack) => self.io.push(Io::Store(ack)),
            Report::Control(told) => self.decide(told.input(task)),
            Report::Finished => {
                self.decide(Input::TaskState { task, state: TaskState::Finished });
                self.finished.insert(task.subtask);
                let deployed = self.nodes.iter().flatten().count();
                self.is_over = self.finished.len() == deployed;
            }
            Report::Failed => {
                self.has_crashed = true;
                self.decide(Input::TaskState { task, state: TaskState::Failed });
                let tasks = self.nodes.iter().flatten().map(|node| node.id.subtask).collect();
                self.decide(Input::Failover { tasks });
                // The workers cancel everything.
                self.nodes.iter_mut().for_each(|node| *node = None);
                self.is_down = true;
            }
        }
    }

    /// The I/O thread has done, or could not do, what stands at `which`.
    pub(crate) fn answer(&mut self, which: usize, is_well: bool) {
        self.has_io_failed |= !is_well;
        match self.io.remove(which) {
            Io::Store(ack) if is_well => self.acknowledge(*ack),
            Io::Store(ack) => {
                let (checkpoint, task) = (ack.checkpoint, ack.task);
                let reason = FailureReason::Async;
                self.decide(Input::Decline { checkpoint, task, reason, waiting: Vec::new() });
            }
            Io::Finalize(metadata) if is_well => {
                let checkpoint = metadata.checkpoint;
                self.store.insert(checkpoint, metadata);
                self.decide(Input::StoreDone { checkpoint });
            }
            Io::Finalize(metadata) => {
                let checkpoint = metadata.checkpoint;
                self.decide(Input::StoreFailed { checkpoint, is_outcome_known: true });
            }
        }
    }

    /// All tasks are deployed again, from the newest checkpoint.
    pub(crate) fn restart(&mut self, plan: &Plan) {
        self.is_down = false;
        self.deploy(plan);
    }

    /// The process is gone. What it was writing is on the disk or not; what is there is all that the next one knows.
    pub(crate) fn lose_everything(&mut self, plan: &Plan, is_written: bool) {
        for io in std::mem::take(&mut self.io) {
            if let Io::Finalize(metadata) = io
                && is_written
            {
                self.store.insert(metadata.checkpoint, metadata);
            }
        }
        self.has_crashed = true;
        let parallelism = plan.rescaled.clone().unwrap_or_else(|| plan.parallelism());
        self.topology = Arc::new(plan.topology(&parallelism));
        let found = self.store.keys().copied().collect();
        let new = coordinator(plan, &self.topology, self.reserved_below, found);
        self.coordinator = Arc::new(new);
        self.expected.clear();
        self.is_down = false;
        self.is_stopping = false;
        self.deploy(plan);
    }

    /// A user wants a checkpoint.
    pub(crate) fn request(&mut self) {
        let request = RequestId(u64::from(self.budget.requests));
        self.decide(Input::Request { request, kind: SnapshotKind::Checkpoint });
    }

    /// A user stops the job.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        self.decide(Input::Stop { request: RequestId(100), is_drain: false });
    }

    /// Nothing else can happen until the coordinator looks at the clock.
    pub(crate) fn pass_time(&mut self) {
        if let Some(at) = self.coordinator.deadline() {
            self.now = at;
            self.decide(Input::Tick);
        }
    }

    fn acknowledge(&mut self, ack: Ack<List>) {
        if let Some(expected) = self.expected.get_mut(&ack.checkpoint)
            && self.nodes.iter().flatten().any(|node| node.id == ack.task)
        {
            expected.remove(&ack.task.subtask);
            let at = self.place(ack.task.subtask);
            self.node(at).acknowledged.insert(ack.checkpoint);
        }
        self.decide(Input::Ack(ack));
    }

    /// Feeds the coordinator and carries out what it says.
    pub(crate) fn decide(&mut self, input: Input<List>) {
        let mut out = Vec::new();
        let now = self.now;
        Arc::make_mut(&mut self.coordinator).handle(now, input, &mut out);
        for output in out {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output<List>) {
        match output {
            Output::Trigger { task, checkpoint, timestamp, options } => {
                let options = barrier_options(options);
                self.mail(
                    task,
                    checkpoint,
                    Mail::Trigger(Barrier { checkpoint, timestamp, options }),
                );
            }
            Output::NotifyComplete { task, checkpoint } => {
                if let Some(at) = self.current(task) {
                    self.node(at).told.insert(checkpoint);
                }
                self.mail(task, checkpoint, Mail::Complete(checkpoint));
            }
            Output::NotifyAborted { task, checkpoint, latest } => {
                self.mail(task, checkpoint, Mail::Aborted { checkpoint, latest });
            }
            Output::PermitGranted { task } => self.mail(task, CheckpointId(0), Mail::Granted),
            Output::PermitHold { task, pending } => {
                let triggered = pending.iter().filter(|held| held.is_triggered);
                let barriers = triggered.map(|held| Barrier {
                    checkpoint: held.checkpoint,
                    timestamp: held.timestamp,
                    options: barrier_options(held.options),
                });
                self.mail(task, CheckpointId(0), Mail::Held(barriers.collect()));
            }
            Output::ReserveIds { below } => {
                self.reserved_below = below;
                self.decide(Input::IdReserved { below });
            }
            Output::Finalize(metadata) => {
                let missing = self.expected.get(&metadata.checkpoint).cloned().unwrap_or_default();
                let checkpoint = metadata.checkpoint;
                self.check(missing.is_empty(), || format!("{checkpoint} ends without {missing:?}"));
                self.io.push(Io::Finalize(Arc::new(metadata)));
            }
            Output::DiscardCheckpoint { checkpoint } => {
                self.store.remove(&checkpoint);
                self.decide(Input::Discarded { checkpoint });
            }
            Output::NotifySubsumed { .. } | Output::DiscardState { .. } => {}
            Output::FailJob { reason, .. } => {
                self.complain(|| format!("the job fails: {reason:?}"));
            }
            Output::Promise { outcome: Outcome::Stop(outcome), .. } => self.stop_ended(outcome),
            Output::Promise {
                outcome: Outcome::Completed { .. } | Outcome::Failed { .. }, ..
            } => {}
            Output::Fact(fact) => self.learn(fact),
        }
    }

    fn stop_ended(&mut self, outcome: StopOutcome) {
        match outcome {
            StopOutcome::Stopped { savepoint } => self.stopped = Some(savepoint),
            StopOutcome::SideEffectsPending { .. } | StopOutcome::Failed { .. } => {
                self.is_stopping = false;
            }
        }
    }

    fn learn(&mut self, fact: Fact) {
        match fact {
            Fact::Triggered { checkpoint, .. } => {
                // Whoever has not been given its permit takes part.
                let tasks = self.coordinator.tasks().clone();
                let running = self.nodes.iter().flatten().map(|node| node.id.subtask);
                let expected = running.filter(|&it| !tasks.get(it).is_finished()).collect();
                self.expected.insert(checkpoint, expected);
            }
            Fact::Completed { checkpoint, kind, .. } => {
                self.expected.remove(&checkpoint);
                self.completed.insert(checkpoint);
                self.completions += 1;
                if kind.is_stop() {
                    self.stopped = Some(checkpoint);
                }
            }
            Fact::Failed { checkpoint: Some(checkpoint), reason, .. } => {
                self.expected.remove(&checkpoint);
                let is_excused = match reason {
                    FailureReason::Async | FailureReason::FinalizeFailed => self.has_io_failed,
                    FailureReason::TaskFailure | FailureReason::FailoverRegion => self.has_crashed,
                    FailureReason::Expired => self.has_expired,
                    FailureReason::CoordinatorSuspend => self.is_stopping,
                    FailureReason::Subsumed => true,
                    _ => false,
                };
                self.check(is_excused, || format!("{checkpoint} fails: {reason:?}"));
            }
            Fact::Failed { checkpoint: None, .. }
            | Fact::Acknowledged { .. }
            | Fact::LateAck { .. } => {}
        }
    }

    /// The place of a task's current attempt.
    fn current(&self, task: AttemptId) -> Option<usize> {
        self.nodes.iter().position(|node| node.as_ref().is_some_and(|node| node.id == task))
    }

    /// A task is told something about `checkpoint`. Of what completed before that it has been told, or is told with this: a
    /// completion covers earlier ones, and an abort brings the latest.
    fn mail(&mut self, task: AttemptId, checkpoint: CheckpointId, mail: Mail) {
        let Some(at) = self.current(task) else { return };
        let completed = self.completed.clone();
        let covers = match mail {
            Mail::Complete(checkpoint) => Some(checkpoint),
            Mail::Aborted { latest, .. } => latest,
            Mail::Trigger(_) | Mail::Granted | Mail::Held(_) => None,
        };
        let node = self.node(at);
        let untold: Vec<_> = completed
            .range(..checkpoint)
            .copied()
            .filter(|id| node.acknowledged.contains(id) && !node.told.contains(id))
            .filter(|&id| Some(id) > covers)
            .collect();
        let has_left = node.has_left;
        let is_trigger = matches!(mail, Mail::Trigger(_));
        node.mail.push_back(mail);
        self.check(untold.is_empty(), || {
            format!("{task} hears of {checkpoint} before {untold:?} is complete for it")
        });
        self.check(!(has_left && is_trigger), || format!("{task} is triggered after it left"));
    }

    /// Deploys all tasks that the newest checkpoint does not record as finished.
    fn deploy(&mut self, plan: &Plan) {
        let restore = self.coordinator.retained().latest();
        let metadata = restore.map(|id| {
            let found = self.store.get(&id).cloned();
            found.unwrap_or_else(|| panic!("{id} is retained but not in the store"))
        });
        let restoration = metadata.as_ref().map(|metadata| self.restoration(metadata));
        let attempt = Attempt(self.attempts);
        self.attempts += 1;
        self.finished.clear();
        self.completed.clear();
        let subtasks: Vec<SubtaskId> = self.topology.subtasks().collect();
        let is_left_out = |subtask: SubtaskId| {
            restoration.as_ref().is_some_and(|it| it.left_out.contains(&subtask))
        };
        self.nodes = subtasks
            .iter()
            .map(|&subtask| {
                let task = restoration.as_ref().map(|it| (it.checkpoint, it.tasks.get(&subtask)));
                let task = match task {
                    Some((_, None)) => return None,
                    Some((id, Some(task))) => Some((id, task)),
                    None => None,
                };
                let id = AttemptId { subtask, attempt };
                let (channels, role) = (self.topology.channels(subtask), plan.role(subtask));
                let has_outputs = self.topology.edges().iter().any(|it| it.from == subtask.vertex);
                let mut node =
                    Node::new(id, role, channels.count(), has_outputs, plan.has_drain_hold, task);
                let channels = self.topology.channels(subtask);
                node.channels = channels.map(|_| Channel::new(restore)).collect();
                Some(Arc::new(node))
            })
            .collect();
        let deployed = self.nodes.iter().flatten().map(|node| node.id).collect::<Vec<_>>();
        self.decide(Input::Restored(Restored {
            checkpoint: restore,
            tasks: deployed.clone(),
            left_out: subtasks.iter().copied().filter(|&it| is_left_out(it)).collect(),
            contributions: restoration
                .as_ref()
                .map_or_else(Contributions::new, |it| it.contributions.clone()),
        }));
        for task in &deployed {
            self.decide(Input::TaskState { task: *task, state: TaskState::Running });
        }
        for (at, &subtask) in subtasks.iter().enumerate() {
            if !is_left_out(subtask) {
                self.begin(at, plan, restoration.as_ref());
            }
        }
        self.is_over = deployed.is_empty();
    }

    fn restoration(&self, metadata: &Metadata<List>) -> Restoration<List> {
        legality::check(&self.topology, metadata).expect("the graph is the same");
        Restoration::new(&self.topology, metadata).expect("nothing is in flight")
    }

    /// A task begins: channels that are born ended are announced, state comes back.
    fn begin(&mut self, at: usize, plan: &Plan, restoration: Option<&Restoration<List>>) {
        let subtask = self.node(at).id.subtask;
        match restoration {
            Some(restoration) => {
                let task = &restoration.tasks[&subtask];
                for &channel in &task.born_ended {
                    let next = CheckpointId(restoration.checkpoint.0 + 1);
                    self.end_at_birth(at, channel, next);
                }
                self.restore_elements(at, Node::restored_elements(task));
            }
            None if self.topology.inputs(subtask.vertex).next().is_none() => {
                let sources = self.topology.vertex(subtask.vertex).map_or(1, |it| it.parallelism);
                let mine = (0..plan.splits.len() as u32).filter(|it| it % sources == subtask.index);
                self.node(at).splits = mine.map(|split| (split as u8, 0)).collect();
            }
            None => {}
        }
        self.finish(at, finish::Input::Start);
    }

    fn end_at_birth(&mut self, at: usize, channel: ChannelIndex, next: CheckpointId) {
        let position = Position(0);
        self.align(at, barrier::Input::FinishNotice { channel, next, position });
        let items = &mut self.node(at).channels[channel.0 as usize].items;
        items.extend([Item::EndOfData { drain: true }, Item::EndOfPartition]);
    }
}

fn coordinator(
    plan: &Plan,
    topology: &tidegate::control::checkpoint::topology::Topology,
    first: CheckpointId,
    found: Vec<CheckpointId>,
) -> Coordinator<List> {
    let config = CoordinatorConfig {
        max_concurrent: plan.max_concurrent,
        num_retained: 1,
        ..CoordinatorConfig::default()
    };
    Coordinator::new(config, topology.clone(), first, found, 0)
}

fn barrier_options(options: CheckpointOptions) -> BarrierOptions {
    match options.kind() {
        SnapshotKind::Checkpoint => BarrierOptions::aligned(),
        SnapshotKind::Savepoint => BarrierOptions::savepoint(),
        SnapshotKind::StopSavepoint { is_drain } => BarrierOptions::stop_with_savepoint(is_drain),
    }
}
