//! Random interleavings of producers, network, reader, timers and coordinator, each checked against the exact cut.
//!
//! A producer works through a script of data and barriers; a remote one sends over a wire on which announcements go
//! ahead and overtaking barriers are cut by the sender. The oracle: for every checkpoint that completes, what is in the
//! operators' state, what the receiver captured and what the sender captured are together exactly the buffers pushed
//! before the barrier, or all if the producer had finished. Every checkpoint nobody gave up completes.
//! A failure prints its seed; `run(seed, ..)` repeats it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::rig::{Item, Rig};
use crate::barrier::{Config, Input};
use crate::channel::event::{Barrier, Position};
use crate::channel::options::CheckpointOptions;
use crate::clock::Timestamp;
use crate::id::CheckpointId;

const CHECKPOINTS: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Aligned,
    Unaligned,
    Timeout,
    AtLeastOnce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Data,
    Barrier(u64),
    EndOfData,
    EndOfPartition,
}

/// splitmix64
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

struct Producer {
    script: VecDeque<Step>,
    /// What was sent and is not in the consumer's process; empty for a local channel.
    wire: VecDeque<Item>,
    remote: bool,
    sent: u64,
    /// Per checkpoint, how many buffers are before it.
    cuts: BTreeMap<u64, u64>,
    /// Per checkpoint, the buffers the sender captured.
    captured: BTreeMap<u64, Vec<u64>>,
    lived: u64,
}

impl Producer {
    fn new(rng: &mut Rng) -> Self {
        let lived = rng.below(CHECKPOINTS + 1);
        let mut producer = Self {
            script: VecDeque::new(),
            wire: VecDeque::new(),
            remote: rng.one_in(2),
            sent: 0,
            cuts: BTreeMap::new(),
            captured: BTreeMap::new(),
            lived,
        };
        let last_with_data = rng.below(lived + 1);
        let mut total = 0;
        for n in 1..=lived + 1 {
            if n <= last_with_data + 1 {
                let data = rng.below(4);
                total += data;
                producer.script.extend((0..data).map(|_| Step::Data));
            }
            if n == last_with_data + 1 {
                producer.script.push_back(Step::EndOfData);
            }
            if n <= lived {
                producer.cuts.insert(n, total);
                producer.script.push_back(Step::Barrier(n));
            }
        }
        for n in lived + 1..=CHECKPOINTS {
            producer.cuts.insert(n, total);
        }
        producer.script.push_back(Step::EndOfPartition);
        producer
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pending,
    Completed,
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Produce(usize),
    Deliver(usize),
    Promote(usize),
    Serve(usize),
    Read(usize),
    Grow,
    Pass,
    Begin,
    Trigger,
    GiveUp,
    Notice(u64),
}

struct Simulation {
    rng: Rng,
    rig: Rig,
    mode: Mode,
    drain_hold: bool,
    gives_up: bool,
    producers: Vec<Producer>,
    /// The barrier of each checkpoint begun, from 1.
    begun: Vec<Barrier>,
    fates: Vec<Fate>,
    triggered: u64,
    notices: Vec<u64>,
}

impl Simulation {
    fn new(seed: u64, channels: usize, mode: Mode, drain_hold: bool, gives_up: bool) -> Self {
        let mut rng = Rng(seed);
        let config = if mode == Mode::AtLeastOnce {
            Config::at_least_once(channels)
        } else {
            Config::exactly_once(channels)
        };
        let producers = (0..channels).map(|_| Producer::new(&mut rng)).collect();
        let mut rig = Rig::new(config);
        rig.reads = false;
        rig.logs = false;
        Self {
            rng,
            rig,
            mode,
            drain_hold,
            gives_up,
            producers,
            begun: Vec::new(),
            fates: Vec::new(),
            triggered: 0,
            notices: Vec::new(),
        }
    }

    fn run(&mut self) {
        let mut actions = Vec::new();
        let mut steps = 0;
        loop {
            actions.clear();
            self.possible(&mut actions);
            if actions.is_empty() {
                break;
            }
            let action = actions[self.rng.below(actions.len() as u64) as usize];
            self.perform(action);
            self.observe();
            steps += 1;
            assert!(steps < 20_000, "it does not end");
        }
        self.judge();
    }

    fn possible(&self, actions: &mut Vec<Action>) {
        for (c, producer) in self.producers.iter().enumerate() {
            let ready = match producer.script.front() {
                Some(Step::Data | Step::EndOfData) => true,
                Some(Step::Barrier(n)) => *n <= self.begun.len() as u64,
                Some(Step::EndOfPartition) => {
                    let held = self.drain_hold && !self.rig.lanes[c].ended;
                    producer.wire.is_empty() && !held
                }
                None => false,
            };
            if ready {
                actions.push(Action::Produce(c));
            }
            if !producer.wire.is_empty() {
                actions.push(Action::Deliver(c));
            }
            if self.mode == Mode::Timeout && producer.wire.iter().any(may_promote) {
                actions.push(Action::Promote(c));
            }
            if self.rig.has_priority(c) {
                actions.push(Action::Serve(c));
            }
            if self.rig.can_read(c) {
                actions.push(Action::Read(c));
            }
        }
        if let Some(&n) = self.notices.first() {
            actions.push(Action::Notice(n));
        }
        let n = self.begun.len() as u64;
        if self.fates.last() != Some(&Fate::Pending) {
            if n < CHECKPOINTS {
                actions.push(Action::Begin);
            }
            return;
        }
        if self.triggered < n && self.producers.iter().all(|p| p.lived < n) {
            actions.push(Action::Trigger);
        }
        if !actions.is_empty() {
            actions.push(Action::Grow);
        }
        if self.mode == Mode::Timeout && self.rig.machine.deadline().is_some() {
            actions.push(Action::Pass);
        }
        if self.gives_up && !actions.is_empty() {
            actions.push(Action::GiveUp);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Produce(c) => self.produce(c),
            Action::Deliver(c) => {
                let item = self.producers[c].wire.pop_front().expect("something is on the wire");
                self.arrive(c, item);
            }
            Action::Promote(c) => self.promote(c),
            Action::Serve(c) => self.rig.serve_one(c),
            Action::Read(c) => {
                self.rig.serve();
                self.rig.read(c);
            }
            Action::Grow => self.rig.serve(),
            Action::Pass => {
                let millis = self.rng.below(8);
                if self.rng.one_in(2) {
                    self.rig.pass(millis);
                } else {
                    self.rig.now = self.rig.now + Duration::from_millis(millis);
                }
            }
            Action::Begin => self.begin(),
            Action::Trigger => {
                self.triggered = self.begun.len() as u64;
                let barrier = *self.begun.last().expect("it was begun");
                self.rig.feed(Input::Trigger { barrier });
            }
            Action::GiveUp => {
                let n = self.begun.len() as u64;
                if self.rng.one_in(8) {
                    *self.fates.last_mut().expect("one is pending") = Fate::GivenUp;
                    if self.rng.one_in(2) {
                        self.notices.push(n);
                    }
                }
            }
            Action::Notice(n) => {
                self.notices.remove(0);
                self.rig.feed(Input::Abort { checkpoint: CheckpointId(n) });
            }
        }
    }

    fn begin(&mut self) {
        let options = if self.mode != Mode::AtLeastOnce && self.rng.one_in(5) {
            CheckpointOptions::savepoint()
        } else {
            match self.mode {
                Mode::Aligned => CheckpointOptions::aligned(),
                Mode::Unaligned => CheckpointOptions::unaligned(),
                Mode::Timeout => super::rig::timeout(10),
                Mode::AtLeastOnce => CheckpointOptions::at_least_once(),
            }
        };
        let checkpoint = CheckpointId(self.begun.len() as u64 + 1);
        self.begun.push(Barrier { checkpoint, timestamp: self.rig.now, options });
        self.fates.push(Fate::Pending);
    }

    fn produce(&mut self, c: usize) {
        let step = self.producers[c].script.pop_front().expect("the script goes on");
        match step {
            Step::Data => {
                self.producers[c].sent += 1;
                self.send(c, Item::Data);
            }
            Step::EndOfData => self.send(c, Item::EndOfData),
            Step::EndOfPartition => self.rig.end(c),
            Step::Barrier(n) => {
                let barrier = self.begun[n as usize - 1];
                if self.fates[n as usize - 1] == Fate::GivenUp && self.rng.one_in(2) {
                    self.send(c, Item::Cancel(n));
                    return;
                }
                let timed_out = barrier.options.timeout().is_some() && self.rng.one_in(4);
                if barrier.options.is_unaligned() || timed_out {
                    self.overtake(c, barrier);
                    return;
                }
                if barrier.options.timeout().is_some() {
                    let position = Position(self.producers[c].sent);
                    self.rig.announce_at(c, barrier, position);
                }
                self.send(c, Item::Barrier(barrier));
            }
        }
    }

    fn send(&mut self, c: usize, item: Item) {
        if self.producers[c].remote {
            self.producers[c].wire.push_back(item);
        } else {
            self.arrive(c, item);
        }
    }

    fn arrive(&mut self, c: usize, item: Item) {
        match item {
            Item::Data => self.rig.data(c),
            Item::Barrier(barrier) => self.rig.in_band(c, barrier),
            Item::Cancel(n) => self.rig.cancel(c, n),
            Item::EndOfData => self.rig.end_of_data(c),
            Item::EndOfPartition => unreachable!("it is put together with its notice"),
        }
    }

    /// The sender captures what it has not handed over, the receiver what it has received.
    fn overtake(&mut self, c: usize, barrier: Barrier) {
        let n = barrier.checkpoint.0;
        let producer = &mut self.producers[c];
        let handed_over = self.rig.lanes[c].pushed;
        producer.captured.insert(n, (handed_over..producer.cuts[&n]).collect());
        let barrier = Barrier { options: barrier.options.timed_out(), ..barrier };
        self.rig.overtake(c, barrier);
    }

    /// The sender's timeout: a barrier that waits in the wire goes ahead.
    fn promote(&mut self, c: usize) {
        let wire = &mut self.producers[c].wire;
        let at = wire.iter().rposition(may_promote).expect("one waits");
        let Some(Item::Barrier(barrier)) = wire.remove(at) else { unreachable!("it is a barrier") };
        self.overtake(c, barrier);
    }

    fn observe(&mut self) {
        for (n, fate) in (1..).zip(&mut self.fates) {
            if *fate == Fate::Pending {
                if self.rig.completed.contains(&n) {
                    *fate = Fate::Completed;
                } else if self.rig.aborts.iter().any(|&(aborted, _)| aborted == n)
                    || self.rig.declined.contains(&n)
                {
                    *fate = Fate::GivenUp;
                }
            }
        }
    }

    fn judge(&self) {
        assert_eq!(self.fates.len() as u64, CHECKPOINTS, "not all were begun");
        assert!(!self.fates.contains(&Fate::Pending), "one never completed: {:?}", self.fates);
        if !self.gives_up {
            assert!(self.fates.iter().all(|fate| *fate == Fate::Completed), "{:?}", self.fates);
        }
        assert_eq!(self.rig.machine.open_channels(), 0);
        assert!(self.rig.blocked().is_empty());
        for &n in &self.rig.completed {
            for (c, producer) in self.producers.iter().enumerate() {
                let cut = producer.cuts[&n];
                let state = self.rig.states[&n][c];
                if self.mode == Mode::AtLeastOnce {
                    assert!(state >= cut, "checkpoint {n} lost records of channel {c}");
                    continue;
                }
                let mut got: Vec<u64> = (0..state).collect();
                got.extend(self.rig.captured.get(&n).map_or(&[][..], |of| &of[c]));
                got.extend(producer.captured.get(&n).map_or(&[][..], |of| of));
                let expected: Vec<u64> = (0..cut).collect();
                assert_eq!(got, expected, "checkpoint {n}, channel {c}");
            }
        }
    }

    fn buffers_captured(&self) -> usize {
        self.rig.captured.values().flatten().map(Vec::len).sum()
    }
}

fn may_promote(item: &Item) -> bool {
    matches!(item, Item::Barrier(barrier) if barrier.options.timeout().is_some())
}

/// Runs one interleaving; returns how many buffers were captured.
fn run(seed: u64, channels: usize, mode: Mode, drain_hold: bool, gives_up: bool) -> usize {
    let attempt = std::panic::catch_unwind(|| {
        let mut simulation = Simulation::new(seed, channels, mode, drain_hold, gives_up);
        assert!(simulation.rig.now > Timestamp::ZERO);
        simulation.run();
        simulation.buffers_captured()
    });
    attempt.unwrap_or_else(|cause| {
        eprintln!("run({seed}, {channels}, Mode::{mode:?}, {drain_hold}, {gives_up})");
        std::panic::resume_unwind(cause)
    })
}

const MODES: [Mode; 4] = [Mode::Aligned, Mode::Unaligned, Mode::Timeout, Mode::AtLeastOnce];

fn explore(gives_up: bool) {
    let mut captured = BTreeMap::new();
    for seed in 0..40_000 {
        let mode = MODES[seed as usize % 4];
        let drain_hold = seed / 4 % 2 == 0;
        let channels = 1 + seed as usize / 8 % 4;
        *captured.entry(seed % 4).or_insert(0) += run(seed, channels, mode, drain_hold, gives_up);
    }
    assert_eq!((captured[&0], captured[&3]), (0, 0), "aligned checkpoints capture nothing");
    assert!(captured[&1] > 1_000 && captured[&2] > 1_000, "too little was captured: {captured:?}");
}

#[test]
fn every_interleaving_cuts_exactly_and_completes_every_checkpoint() {
    explore(false);
}

#[test]
fn every_interleaving_with_cancellations_and_subsumption_cuts_exactly() {
    explore(true);
}

#[test]
fn al_15_a_hundred_channels_contribute_exactly_what_was_before_their_barriers() {
    for seed in 0..20 {
        run(seed, 100, Mode::Aligned, seed % 2 == 0, seed % 3 == 0);
        run(seed, 100, Mode::Timeout, seed % 2 == 0, seed % 3 == 0);
    }
}
