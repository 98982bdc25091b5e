//! CC-04: whatever the order of finishing, triggering and acknowledging, no checkpoint fails since
//! a task finished.
//!
//! A small world of tasks that pass barriers along channels. All messages between one task and the
//! coordinator are in order, everything else happens in any order. Tasks leave as soon as they may.

use std::collections::{BTreeSet, VecDeque};

use super::rig::{AllToAll, Pointwise, Random, State, ack, topology};
use crate::clock::Timestamp;
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::coordinator::Coordinator;
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::{Fact, Input, Outcome, Output};
use crate::control::checkpoint::options::SnapshotKind;
use crate::control::checkpoint::request::RequestId;
use crate::control::checkpoint::tasks::TaskState;
use crate::control::checkpoint::topology::Topology;
use crate::id::{Attempt, AttemptId, CheckpointId, SubtaskId};

#[derive(Clone, Copy, Debug)]
enum Event {
    Barrier(u64),
    EndOfPartition,
}

#[derive(Debug)]
struct Channel {
    producer: usize,
    queue: VecDeque<Event>,
    is_closed: bool,
}

#[derive(Debug)]
struct Task {
    id: AttemptId,
    channels: Vec<Channel>,
    inbox: VecDeque<Output<State>>,
    outbox: VecDeque<Input<State>>,
    aligning: Option<(u64, BTreeSet<usize>)>,
    /// Triggers that wait for the end of all channels.
    triggered: BTreeSet<u64>,
    last: u64,
    is_exhausted: bool,
    has_asked: bool,
    has_left: bool,
}

struct World {
    coordinator: Coordinator<State>,
    tasks: Vec<Task>,
    /// What store and disk will answer, in any order.
    answers: Vec<Input<State>>,
    requests: u64,
    aborted: Vec<(CheckpointId, FailureReason)>,
    completed: usize,
    refused: usize,
}

impl World {
    fn new(topology: &Topology, max_concurrent: usize) -> Self {
        let config = CoordinatorConfig { max_concurrent, ..CoordinatorConfig::default() };
        let coordinator =
            Coordinator::new(config, topology.clone(), CheckpointId(1), Vec::new(), 0);
        let subtasks: Vec<SubtaskId> = topology.subtasks().collect();
        let place = |subtask| subtasks.iter().position(|&it| it == subtask).unwrap();
        let channel = |producer| Channel {
            producer: place(producer),
            queue: VecDeque::new(),
            is_closed: false,
        };
        let task = |&subtask: &SubtaskId| Task {
            id: AttemptId { subtask, attempt: Attempt(0) },
            channels: topology.channels(subtask).map(|(_, producer)| channel(producer)).collect(),
            inbox: VecDeque::new(),
            outbox: VecDeque::new(),
            aligning: None,
            triggered: BTreeSet::new(),
            last: 0,
            is_exhausted: false,
            has_asked: false,
            has_left: false,
        };
        let tasks = subtasks.iter().map(task).collect();
        let (answers, aborted) = (Vec::new(), Vec::new());
        let mut world =
            Self { coordinator, tasks, answers, requests: 0, aborted, completed: 0, refused: 0 };
        for subtask in subtasks {
            let task = AttemptId { subtask, attempt: Attempt(0) };
            world.tell(Input::TaskState { task, state: TaskState::Running });
        }
        world
    }

    fn tell(&mut self, input: Input<State>) {
        let mut out = Vec::new();
        self.coordinator.handle(Timestamp::ZERO, input, &mut out);
        for output in out {
            match &output {
                Output::Trigger { task, .. }
                | Output::NotifyComplete { task, .. }
                | Output::NotifyAborted { task, .. }
                | Output::NotifySubsumed { task, .. }
                | Output::PermitGranted { task }
                | Output::PermitHold { task, .. } => {
                    let to = self.tasks.iter_mut().find(|it| it.id == *task).unwrap();
                    to.inbox.push_back(output);
                }
                Output::ReserveIds { below } => {
                    self.answers.push(Input::IdReserved { below: *below });
                }
                Output::Finalize(metadata) => {
                    self.answers.push(Input::StoreDone { checkpoint: metadata.checkpoint });
                }
                Output::DiscardCheckpoint { checkpoint } => {
                    self.answers.push(Input::Discarded { checkpoint: *checkpoint });
                }
                Output::Promise { outcome: Outcome::Completed { .. }, .. } => self.completed += 1,
                Output::Promise { .. } => {}
                Output::Fact(Fact::Failed { checkpoint: Some(id), reason, .. }) => {
                    self.aborted.push((*id, *reason));
                }
                Output::Fact(Fact::Failed { checkpoint: None, .. }) => self.refused += 1,
                Output::Fact(_) | Output::DiscardState { .. } => {}
                Output::FailJob { .. } => panic!("the job fails"),
            }
        }
    }

    /// One thing happens, if it can.
    fn step(&mut self, random: &mut Random, is_ending: bool) {
        let count = u32::try_from(self.tasks.len()).unwrap();
        let at = random.below(count) as usize;
        match random.below(16) {
            0..4 => {
                if let Some(message) = self.tasks[at].outbox.pop_front() {
                    self.tell(message);
                }
            }
            4..8 => self.read_inbox(at),
            8..11 => self.read_channel(at, random),
            11 if is_ending || random.below(8) == 0 => self.tasks[at].is_exhausted = true,
            12 => self.ask(at),
            13 if !self.answers.is_empty() => {
                let pick = random.below(u32::try_from(self.answers.len()).unwrap());
                let answer = self.answers.swap_remove(pick as usize);
                self.tell(answer);
            }
            14 if !is_ending => {
                let kind = match random.below(3) {
                    0 => SnapshotKind::Savepoint,
                    _ => SnapshotKind::Checkpoint,
                };
                self.requests += 1;
                self.tell(Input::Request { request: RequestId(self.requests), kind });
            }
            _ => {}
        }
    }

    fn read_inbox(&mut self, at: usize) {
        let Some(message) = self.tasks[at].inbox.pop_front() else { return };
        match message {
            Output::Trigger { checkpoint, .. } => {
                assert!(!self.tasks[at].has_left, "triggered after it left");
                self.trigger(at, checkpoint.0);
            }
            Output::PermitHold { pending, .. } => {
                for held in pending.iter().filter(|held| held.is_triggered) {
                    self.trigger(at, held.checkpoint.0);
                }
            }
            Output::PermitGranted { .. } => {
                let is_trigger = |it: &Output<State>| matches!(it, Output::Trigger { .. });
                let task = &mut self.tasks[at];
                assert!(!task.inbox.iter().any(is_trigger), "a trigger behind the grant");
                assert!(task.aligning.is_none() && task.triggered.is_empty(), "it owes a barrier");
                task.has_left = true;
                self.emit(at, Event::EndOfPartition);
            }
            _ => {}
        }
    }

    fn read_channel(&mut self, at: usize, random: &mut Random) {
        let task = &mut self.tasks[at];
        let aligned = task.aligning.as_ref().map(|aligning| &aligning.1);
        let readable: Vec<_> = (0..task.channels.len())
            .filter(|it| !aligned.is_some_and(|aligned| aligned.contains(it)))
            .filter(|&it| !task.channels[it].queue.is_empty())
            .collect();
        if readable.is_empty() {
            return;
        }
        let pick = random.below(u32::try_from(readable.len()).unwrap());
        let channel = readable[pick as usize];
        match task.channels[channel].queue.pop_front().unwrap() {
            Event::EndOfPartition => task.channels[channel].is_closed = true,
            Event::Barrier(id) if id <= task.last => {}
            Event::Barrier(id) => {
                let (current, aligned) = task.aligning.get_or_insert((id, BTreeSet::new()));
                assert_eq!(*current, id, "barriers keep their order");
                aligned.insert(channel);
            }
        }
        self.snapshot_if_ready(at);
    }

    fn trigger(&mut self, at: usize, id: u64) {
        if id > self.tasks[at].last {
            self.tasks[at].triggered.insert(id);
            self.snapshot_if_ready(at);
        }
    }

    fn snapshot_if_ready(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        let is_done = |aligned: &BTreeSet<usize>| {
            (0..task.channels.len()).all(|it| task.channels[it].is_closed || aligned.contains(&it))
        };
        if task.aligning.as_ref().is_some_and(|aligning| is_done(&aligning.1)) {
            let id = task.aligning.take().unwrap().0;
            task.triggered.remove(&id);
            self.snapshot(at, id);
        }
        let task = &self.tasks[at];
        if task.aligning.is_none() && task.channels.iter().all(|channel| channel.is_closed) {
            for id in std::mem::take(&mut self.tasks[at].triggered) {
                self.snapshot(at, id);
            }
        }
    }

    fn snapshot(&mut self, at: usize, id: u64) {
        let task = &mut self.tasks[at];
        assert!(id > task.last && !task.has_left);
        task.last = id;
        let acknowledgement = ack(id, task.id);
        task.outbox.push_back(Input::Ack(acknowledgement));
        self.emit(at, Event::Barrier(id));
    }

    fn emit(&mut self, from: usize, event: Event) {
        let channels = self.tasks.iter_mut().flat_map(|task| &mut task.channels);
        for channel in channels.filter(|channel| channel.producer == from) {
            channel.queue.push_back(event);
        }
    }

    fn ask(&mut self, at: usize) {
        let task = &mut self.tasks[at];
        let has_input = match task.channels.is_empty() {
            true => !task.is_exhausted,
            false => task.channels.iter().any(|channel| !channel.is_closed),
        };
        let owes = task.aligning.is_some() || !task.triggered.is_empty();
        if !has_input && !owes && !task.has_asked {
            task.has_asked = true;
            task.outbox.push_back(Input::FinishRequest { task: task.id });
        }
    }

    fn is_over(&self) -> bool {
        self.tasks.iter().all(|task| task.has_left && task.outbox.is_empty())
            && self.coordinator.pending().next().is_none()
            && self.answers.is_empty()
    }
}

fn random_topology(random: &mut Random) -> Topology {
    let count = 2 + random.below(3);
    let parallelism: Vec<_> = (0..count).map(|_| 1 + random.below(3)).collect();
    let kind = |random: &mut Random| if random.below(2) == 0 { AllToAll } else { Pointwise };
    let edges: Vec<_> = (1..count).map(|to| (random.below(to), to, kind(random))).collect();
    topology(&parallelism, &edges)
}

#[test]
fn cc_04_no_interleaving_of_finishing_and_triggering_fails_a_checkpoint() {
    let (mut completed, mut refused) = (0, 0);
    for seed in 0..10_000 {
        let mut random = Random(seed);
        let topology = random_topology(&mut random);
        let mut world = World::new(&topology, 1 + random.below(3) as usize);
        for _ in 0..150 {
            world.step(&mut random, false);
        }
        let mut steps = 0;
        while !world.is_over() {
            world.step(&mut random, true);
            steps += 1;
            assert!(steps < 100_000, "seed {seed}: the job does not end");
        }
        // An older one may be overtaken in the store, which answers in any order.
        let lost = |&(_, reason): &(_, FailureReason)| reason != FailureReason::Subsumed;
        assert!(!world.aborted.iter().any(lost), "seed {seed}: {:?}", world.aborted);
        completed += world.completed;
        refused += world.refused;
    }
    assert!(completed > 10_000, "{completed} completed");
    assert!(refused > 0, "some came after the last task had left");
}
