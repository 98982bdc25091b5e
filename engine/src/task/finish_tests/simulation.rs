//! Random interleavings of a small job that ends: tasks of the two machines, channels, mailboxes, and a coordinator that
//! plans, grants and holds as the protocol says.
//!
//! Checked in every run: no trigger finds a task gone; every checkpoint that nobody gave up completes; each lane carries
//! EndOfData once, then EndOfPartition once and last; nothing is emitted after EndOfData; a task leaves only after a
//! completed checkpoint that it took with its operators finished; the job ends.

use std::collections::{BTreeSet, VecDeque};

use crate::barrier;
use crate::channel::event::{Barrier, Position};
use crate::id::{ChannelIndex, CheckpointId};
use crate::task::finish::{Config, Input, Machine, Output, Outputs};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Record,
    Barrier(Barrier),
    Cancel(CheckpointId),
    EndOfData,
    EndOfPartition,
}

#[derive(Debug, Default)]
struct Channel {
    items: VecDeque<Item>,
    notice: Option<barrier::Input>,
    blocked: bool,
    last_barrier: u64,
    from: (usize, usize),
}

#[derive(Debug)]
struct Node {
    finish: Machine,
    align: barrier::Machine,
    emits: bool,
    needs_final: bool,
    inputs: Vec<Channel>,
    /// Consumer and its channel, per lane.
    lanes: Vec<(usize, usize)>,
    mail: VecDeque<Input>,
    /// What the task still has to say to its machine.
    steps: usize,
    flushes: usize,
    snapshots: Vec<CheckpointId>,
    ended: bool,
    left: bool,
    awaits: bool,
    /// Checkpoints taken with the operators finished.
    covering: BTreeSet<CheckpointId>,
    notified: BTreeSet<CheckpointId>,
}

#[derive(Debug)]
struct Pending {
    barrier: Barrier,
    waits_for: BTreeSet<usize>,
    to_commit: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Mail(usize),
    Notice(usize, usize),
    Read(usize, usize),
    Step(usize),
    Flushed(usize),
    SnapshotOver(usize),
    SourceEnds(usize),
    Request,
    Dispatch(usize),
    Trigger,
    GiveUp,
}

struct Job {
    random: u64,
    nodes: Vec<Node>,
    sources: usize,
    running_sources: BTreeSet<usize>,
    finished: BTreeSet<usize>,
    pending: Option<Pending>,
    /// Triggers held back: they reach the mailbox in any order with other messages.
    triggers: Vec<(usize, Barrier)>,
    requests: VecDeque<usize>,
    begun: u64,
    whims: u64,
    given_up: u64,
    completed: u64,
}

impl Job {
    fn new(seed: u64, drain_hold: bool) -> Self {
        let mut job = Self {
            random: seed,
            nodes: Vec::new(),
            sources: 0,
            running_sources: BTreeSet::new(),
            finished: BTreeSet::new(),
            pending: None,
            triggers: Vec::new(),
            requests: VecDeque::new(),
            begun: 0,
            whims: seed % 4,
            given_up: 0,
            completed: 0,
        };
        let layers = 2 + job.below(3);
        let mut above: Vec<usize> = Vec::new();
        let sizes: Vec<usize> = (0..layers).map(|_| 1 + job.below(3)).collect();
        for (layer, &size) in sizes.iter().enumerate() {
            let first = job.nodes.len();
            let consumers = sizes.get(layer + 1).copied().unwrap_or(0);
            for _ in 0..size {
                let emits = layer > 0 && consumers > 0 && job.below(3) == 0;
                let needs_final = emits || job.below(3) > 0;
                let config = Config {
                    drain_hold,
                    emits_on_commit: emits,
                    needs_final_checkpoint: needs_final,
                    ..Config::new(above.len(), consumers)
                };
                let mut node = Node::new(config, above.len(), emits, needs_final);
                for (channel, &producer) in above.iter().enumerate() {
                    let lane = job.nodes[producer].lanes.len();
                    node.inputs[channel].from = (producer, lane);
                    let consumer = job.nodes.len();
                    job.nodes[producer].lanes.push((consumer, channel));
                }
                job.nodes.push(node);
            }
            above = (first..job.nodes.len()).collect();
        }
        job.sources = sizes[0];
        job.running_sources = (0..job.sources).collect();
        job
    }

    fn below(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13 | 1;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % n
    }

    fn run(&mut self) {
        let mut actions = Vec::new();
        for _ in 0..50_000 {
            actions.clear();
            self.possible(&mut actions);
            if actions.is_empty() {
                if self.nodes.iter().all(|node| node.left) {
                    self.judge();
                    return;
                }
                let awaits = self.nodes.iter().any(|node| node.awaits && !node.left);
                assert!(awaits && self.pending.is_none(), "stuck: {:#?}", self.nodes);
                actions.push(Action::Trigger);
            }
            let action = actions[self.below(actions.len())];
            self.perform(action);
        }
        panic!("the job does not end");
    }

    fn possible(&self, actions: &mut Vec<Action>) {
        for (at, node) in self.nodes.iter().enumerate() {
            if !node.mail.is_empty() {
                actions.push(Action::Mail(at));
            }
            if node.steps > 0 {
                actions.push(Action::Step(at));
            }
            if node.flushes > 0 {
                actions.push(Action::Flushed(at));
            }
            if !node.snapshots.is_empty() {
                actions.push(Action::SnapshotOver(at));
            }
            for (channel, input) in node.inputs.iter().enumerate() {
                if input.notice.is_some() {
                    actions.push(Action::Notice(at, channel));
                } else if !input.blocked && !input.items.is_empty() {
                    actions.push(Action::Read(at, channel));
                }
            }
        }
        actions.extend(self.running_sources.iter().map(|&at| Action::SourceEnds(at)));
        if !self.requests.is_empty() {
            actions.push(Action::Request);
        }
        actions.extend((0..self.triggers.len()).map(Action::Dispatch));
        if self.whims > 0 && self.finished.len() < self.nodes.len() {
            actions.push(if self.pending.is_none() { Action::Trigger } else { Action::GiveUp });
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Mail(at) => {
                let mail = self.nodes[at].mail.pop_front().expect("there is mail");
                self.feed(at, mail);
            }
            Action::Notice(at, channel) => {
                let notice = self.nodes[at].inputs[channel].notice.take().expect("there is one");
                self.align(at, notice);
            }
            Action::Read(at, channel) => self.read(at, channel),
            Action::Step(at) => {
                self.nodes[at].steps -= 1;
                self.feed(at, Input::StepDone);
            }
            Action::Flushed(at) => {
                self.nodes[at].flushes = 0;
                self.feed(at, Input::Flushed);
            }
            Action::SnapshotOver(at) => {
                let checkpoint = self.nodes[at].snapshots.remove(0);
                self.acknowledge(at, checkpoint);
                self.feed(at, Input::SnapshotOver { checkpoint });
            }
            Action::SourceEnds(at) => {
                self.running_sources.remove(&at);
                self.push(at, Item::Record);
                self.feed(at, Input::SourceEnded);
            }
            Action::Request => {
                let at = self.requests.pop_front().expect("there is one");
                let waits = self.pending.as_ref().filter(|pending| pending.waits_for.contains(&at));
                let answer = match waits {
                    Some(pending) => Input::Hold { pending: vec![pending.barrier] },
                    None if self.finished.insert(at) => Input::Granted,
                    None => return,
                };
                self.nodes[at].mail.push_back(answer);
            }
            Action::Dispatch(which) => {
                let (at, barrier) = self.triggers.swap_remove(which);
                let pending = self.pending.as_ref().filter(|p| p.barrier == barrier);
                if pending.is_some_and(|pending| pending.waits_for.contains(&at)) {
                    self.nodes[at].mail.push_back(Input::Trigger { barrier });
                }
            }
            Action::Trigger => self.trigger(),
            Action::GiveUp => {
                self.whims -= 1;
                self.give_up();
            }
        }
    }

    /// Plan and pending checkpoint in one step.
    fn trigger(&mut self) {
        self.whims = self.whims.saturating_sub(1);
        self.begun += 1;
        let barrier = super::barrier(self.begun);
        let running: Vec<usize> =
            (0..self.nodes.len()).filter(|at| !self.finished.contains(at)).collect();
        for &at in &running {
            if self.nodes[at].inputs.iter().all(|input| self.finished.contains(&input.from.0)) {
                self.triggers.push((at, barrier));
            }
        }
        let waits_for = running.iter().copied().collect();
        self.pending = Some(Pending { barrier, waits_for, to_commit: running });
    }

    fn acknowledge(&mut self, at: usize, checkpoint: CheckpointId) {
        let Some(pending) = &mut self.pending else { return };
        if pending.barrier.checkpoint != checkpoint {
            return;
        }
        pending.waits_for.remove(&at);
        if pending.waits_for.is_empty() {
            self.completed += 1;
            for at in self.pending.take().expect("it is pending").to_commit {
                self.nodes[at].mail.push_back(Input::Complete { checkpoint });
            }
        }
    }

    fn give_up(&mut self) {
        self.given_up += 1;
        let pending = self.pending.take().expect("one is pending");
        let checkpoint = pending.barrier.checkpoint;
        for at in pending.to_commit {
            self.nodes[at].mail.push_back(Input::Aborted { checkpoint, latest: None });
        }
    }

    fn read(&mut self, at: usize, channel: usize) {
        let item = self.nodes[at].inputs[channel].items.pop_front().expect("there is one");
        let index = ChannelIndex(channel as u32);
        match item {
            Item::Record => {
                assert!(!self.nodes[at].finish.operators_finished(), "a record after the end");
            }
            Item::Barrier(barrier) => {
                self.align(at, barrier::Input::Barrier { channel: index, barrier });
            }
            Item::Cancel(checkpoint) => {
                self.align(at, barrier::Input::Cancel { channel: index, checkpoint });
            }
            Item::EndOfData => {
                self.align(at, barrier::Input::EndOfData { channel: index });
                self.feed(at, Input::EndOfData { channel: index, drain: true });
            }
            Item::EndOfPartition => {
                self.align(at, barrier::Input::EndOfPartition { channel: index });
                self.feed(at, Input::EndOfPartition { channel: index });
            }
        }
    }

    fn feed(&mut self, at: usize, input: Input) {
        let mut out = Outputs::new();
        self.nodes[at].finish.handle(super::barrier(0).timestamp, input, &mut out);
        for output in out {
            self.execute(at, output);
        }
    }

    fn execute(&mut self, at: usize, output: Output) {
        match output {
            Output::Run(_) => self.nodes[at].steps += 1,
            Output::AckEndOfData { channel } => {
                let (producer, lane) = self.nodes[at].inputs[channel.0 as usize].from;
                self.nodes[producer].mail.push_back(Input::EndOfDataAcked { lane });
            }
            Output::BroadcastEndOfData { drain: _ } => {
                assert!(!std::mem::replace(&mut self.nodes[at].ended, true), "data ends once");
                self.push(at, Item::EndOfData);
            }
            Output::Take { barrier } => self.align(at, barrier::Input::Trigger { barrier }),
            Output::DeclineClosing { checkpoint } => panic!("{checkpoint} came too late for {at}"),
            Output::NotifyComplete { checkpoint } => {
                self.nodes[at].notified.insert(checkpoint);
                if self.nodes[at].emits && !self.nodes[at].ended {
                    self.push(at, Item::Record);
                }
            }
            Output::Abort { checkpoint } => {
                self.align(at, barrier::Input::Abort { checkpoint });
            }
            Output::AwaitsCheckpoint(awaits) => self.nodes[at].awaits = awaits,
            Output::Flush => self.nodes[at].flushes += 1,
            Output::AskPermit { .. } => self.requests.push_back(at),
            Output::CloseMailbox => {
                let triggers = |mail: &Input| matches!(mail, Input::Trigger { .. });
                assert!(!self.nodes[at].mail.iter().any(triggers), "a trigger would be lost");
            }
            Output::EmitEndOfPartition => {
                assert!(self.finished.contains(&at), "an end without a permit");
                let node = &self.nodes[at];
                assert!(node.ended && node.snapshots.is_empty());
                assert!(
                    !node.needs_final || node.covering.intersection(&node.notified).count() > 0
                );
                self.push(at, Item::EndOfPartition);
            }
            Output::CloseOperators => self.nodes[at].left = true,
            Output::Fail { cause } => panic!("{cause:?}"),
        }
    }

    fn align(&mut self, at: usize, input: barrier::Input) {
        let mut out = barrier::Outputs::new();
        self.nodes[at].align.handle(super::barrier(0).timestamp, input, &mut out);
        for output in out {
            match output {
                barrier::Output::Block { channel } => {
                    self.nodes[at].inputs[channel.0 as usize].blocked = true;
                }
                barrier::Output::Resume { channel } => {
                    self.nodes[at].inputs[channel.0 as usize].blocked = false;
                }
                barrier::Output::Snapshot { barrier } => {
                    let node = &mut self.nodes[at];
                    node.snapshots.push(barrier.checkpoint);
                    if node.finish.operators_finished() {
                        node.covering.insert(barrier.checkpoint);
                    }
                    self.push(at, Item::Barrier(barrier));
                    self.feed(at, Input::SnapshotTaken { barrier });
                }
                barrier::Output::Abort { checkpoint, reason } => {
                    self.push(at, Item::Cancel(checkpoint));
                    let current = self.pending.as_ref().map(|p| p.barrier.checkpoint);
                    assert_ne!(current, Some(checkpoint), "a live checkpoint ended by {reason:?}");
                }
                barrier::Output::Decline { checkpoint } => {
                    let current = self.pending.as_ref().map(|p| p.barrier.checkpoint);
                    assert_ne!(current, Some(checkpoint), "a live checkpoint was declined");
                }
                barrier::Output::Completed { .. } => {}
                barrier::Output::CaptureStart { .. }
                | barrier::Output::CaptureUntil { .. }
                | barrier::Output::CaptureLoaded { .. }
                | barrier::Output::CaptureStop { .. }
                | barrier::Output::CaptureAbort { .. } => panic!("nothing is captured here"),
            }
        }
    }

    fn push(&mut self, at: usize, item: Item) {
        for lane in 0..self.nodes[at].lanes.len() {
            let (consumer, channel) = self.nodes[at].lanes[lane];
            assert!(!self.nodes[at].left, "something after the end");
            assert!(item != Item::Record || !self.nodes[at].ended, "a record after EndOfData");
            let input = &mut self.nodes[consumer].inputs[channel];
            match item {
                Item::Barrier(Barrier { checkpoint, .. }) | Item::Cancel(checkpoint) => {
                    input.last_barrier = input.last_barrier.max(checkpoint.0);
                }
                Item::EndOfPartition => {
                    input.notice = Some(barrier::Input::FinishNotice {
                        channel: ChannelIndex(channel as u32),
                        next: CheckpointId(input.last_barrier + 1),
                        position: Position(0),
                    });
                }
                Item::Record | Item::EndOfData => {}
            }
            input.items.push_back(item);
        }
    }

    fn judge(&self) {
        assert!(self.pending.is_none());
        assert_eq!(self.completed + self.given_up, self.begun);
    }
}

impl Node {
    fn new(config: Config, channels: usize, emits: bool, needs_final: bool) -> Self {
        Self {
            finish: Machine::new(config),
            align: barrier::Machine::new(barrier::Config::exactly_once(channels)),
            emits,
            needs_final,
            inputs: (0..channels).map(|_| Channel::default()).collect(),
            lanes: Vec::new(),
            mail: VecDeque::new(),
            steps: 0,
            flushes: 0,
            snapshots: Vec::new(),
            ended: false,
            left: false,
            awaits: false,
            covering: BTreeSet::new(),
            notified: BTreeSet::new(),
        }
    }
}

#[test]
fn no_checkpoint_is_lost_because_a_task_finishes() {
    let mut completed = 0;
    for seed in 1..=20_000 {
        let drain_hold = seed % 2 == 0;
        let attempt = std::panic::catch_unwind(|| {
            let mut job = Job::new(seed, drain_hold);
            job.run();
            job.completed
        });
        completed += attempt.unwrap_or_else(|cause| {
            eprintln!("Job::new({seed}, {drain_hold})");
            std::panic::resume_unwind(cause)
        });
    }
    assert!(completed > 20_000, "only {completed} checkpoints completed");
}
