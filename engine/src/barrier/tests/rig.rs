//! One task's machine over toy channels: it carries the outputs out as a task does and keeps what the machine decided.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::barrier::capture::Capture;
use crate::barrier::{AbortReason, Config, Input, Machine, Output, Outputs};
use crate::channel::event::{Barrier, Position};
use crate::channel::options::CheckpointOptions;
use crate::clock::Timestamp;
use crate::id::{ChannelIndex, CheckpointId};

/// What stands in a toy channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Data,
    Barrier(Barrier),
    Cancel(u64),
    EndOfData,
    EndOfPartition,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    items: VecDeque<Item>,
    priority: VecDeque<Input>,
    pub(super) read: u64,
    pub(super) pushed: u64,
    pub(super) blocked: bool,
    /// EndOfData was read.
    pub(super) ended: bool,
    last_barrier: u64,
    capture: Option<Capture>,
}

#[derive(Debug)]
pub(super) struct Rig {
    pub(super) machine: Machine,
    pub(super) lanes: Vec<Lane>,
    pub(super) now: Timestamp,
    pub(super) options: CheckpointOptions,
    /// Whether what is pushed is read at once where that is possible.
    pub(super) reads: bool,
    pub(super) snapshots: Vec<Barrier>,
    /// Per checkpoint, how many buffers of each channel are in the operators' state.
    pub(super) states: BTreeMap<u64, Vec<u64>>,
    /// Per checkpoint and channel, the numbers of the captured buffers.
    pub(super) captured: BTreeMap<u64, Vec<Vec<u64>>>,
    pub(super) completed: Vec<u64>,
    pub(super) aborts: Vec<(u64, AbortReason)>,
    pub(super) declined: Vec<u64>,
    pub(super) resumes: Vec<u32>,
    pub(super) blocks: Vec<u32>,
    /// All outputs of the last input and of those it caused.
    pub(super) outputs: Outputs,
    /// What was read of each channel, in order; data as its number. Nothing is kept if `logs` is off.
    pub(super) log: Vec<(u32, String)>,
    pub(super) logs: bool,
    capturing: Option<u64>,
}

impl Rig {
    pub(super) fn new(config: Config) -> Self {
        let options = match config.guarantee {
            crate::barrier::Guarantee::ExactlyOnce => CheckpointOptions::aligned(),
            crate::barrier::Guarantee::AtLeastOnce => CheckpointOptions::at_least_once(),
        };
        Self {
            lanes: (0..config.channels).map(|_| Lane::default()).collect(),
            machine: Machine::new(config),
            now: Timestamp::from_millis(1_000),
            options,
            reads: true,
            snapshots: Vec::new(),
            states: BTreeMap::new(),
            captured: BTreeMap::new(),
            completed: Vec::new(),
            aborts: Vec::new(),
            declined: Vec::new(),
            resumes: Vec::new(),
            blocks: Vec::new(),
            outputs: Vec::new(),
            log: Vec::new(),
            logs: true,
            capturing: None,
        }
    }

    pub(super) fn exact(channels: usize) -> Self {
        Self::new(Config::exactly_once(channels))
    }

    /// Channels that are only read when told; `options` for all barriers.
    pub(super) fn held(channels: usize, options: CheckpointOptions) -> Self {
        let mut rig = Self::exact(channels);
        rig.reads = false;
        rig.options = options;
        rig
    }

    /// Runs a scenario written as tokens:
    /// `B0` a buffer, `b1,0` barrier in band, `u1,0` overtaking barrier, `a1,0` announcement, `x1,0` cancel, `D0` end of
    /// data, `E0` end of partition without a notice, `Eq0` with one, `T1` trigger, `A1` abort notice, `r0` read one
    /// item, `p` read all, `+5` five milliseconds pass, `~5` pass while timers are not served.
    pub(super) fn run(&mut self, script: &str) -> &mut Self {
        for token in script.split_whitespace() {
            self.token(token);
            if self.reads {
                self.read_all();
            }
        }
        self
    }

    fn token(&mut self, token: &str) {
        let split = token.find(|c: char| c.is_ascii_digit()).unwrap_or(token.len());
        let (verb, rest) = token.split_at(split);
        let mut numbers = rest.split(',').filter_map(|n| n.parse::<u64>().ok());
        let first = numbers.next().unwrap_or(0);
        let channel = numbers.next().unwrap_or(first) as usize;
        let barrier = self.barrier(first);
        match verb {
            "B" => self.data(channel),
            "b" => self.in_band(channel, barrier),
            "u" => {
                self.overtake(channel, Barrier { options: barrier.options.timed_out(), ..barrier })
            }
            "a" => self.announce(channel, barrier),
            "x" => self.cancel(channel, first),
            "D" => self.lanes[channel].items.push_back(Item::EndOfData),
            "E" => self.lanes[channel].items.push_back(Item::EndOfPartition),
            "Eq" => self.end(channel),
            "T" => self.feed(Input::Trigger { barrier }),
            "A" => self.feed(Input::Abort { checkpoint: CheckpointId(first) }),
            "r" => {
                self.serve();
                self.read(channel);
            }
            "p" => self.read_all(),
            "+" => self.pass(first),
            "~" => self.now = self.now + Duration::from_millis(first),
            other => panic!("unknown token {other}"),
        }
        self.serve();
    }

    /// Barrier `n`, triggered when the scenario began.
    pub(super) fn barrier(&self, n: u64) -> Barrier {
        Barrier {
            checkpoint: CheckpointId(n),
            timestamp: Timestamp::from_millis(1_000),
            options: self.options,
        }
    }

    pub(super) fn data(&mut self, channel: usize) {
        let lane = &mut self.lanes[channel];
        lane.items.push_back(Item::Data);
        lane.pushed += 1;
    }

    pub(super) fn in_band(&mut self, channel: usize, barrier: Barrier) {
        let lane = &mut self.lanes[channel];
        lane.last_barrier = lane.last_barrier.max(barrier.checkpoint.0);
        lane.items.push_back(Item::Barrier(barrier));
    }

    pub(super) fn overtake(&mut self, channel: usize, barrier: Barrier) {
        let lane = &mut self.lanes[channel];
        lane.last_barrier = lane.last_barrier.max(barrier.checkpoint.0);
        let position = Position(lane.pushed);
        let channel = index(channel);
        lane.priority.push_back(Input::PriorityBarrier { channel, barrier, position });
    }

    pub(super) fn announce(&mut self, channel: usize, barrier: Barrier) {
        let position = Position(self.lanes[channel].pushed);
        self.announce_at(channel, barrier, position);
    }

    pub(super) fn announce_at(&mut self, channel: usize, barrier: Barrier, position: Position) {
        let announcement = Input::Announcement { channel: index(channel), barrier, position };
        self.lanes[channel].priority.push_back(announcement);
    }

    pub(super) fn cancel(&mut self, channel: usize, n: u64) {
        let lane = &mut self.lanes[channel];
        lane.last_barrier = lane.last_barrier.max(n);
        lane.items.push_back(Item::Cancel(n));
    }

    pub(super) fn end_of_data(&mut self, channel: usize) {
        self.lanes[channel].items.push_back(Item::EndOfData);
    }

    /// The finish notice, then EndOfPartition.
    pub(super) fn end(&mut self, channel: usize) {
        let lane = &mut self.lanes[channel];
        let next = CheckpointId(lane.last_barrier + 1);
        let position = Position(lane.pushed);
        let channel = index(channel);
        lane.priority.push_back(Input::FinishNotice { channel, next, position });
        lane.items.push_back(Item::EndOfPartition);
    }

    /// Time passes and timers are served.
    pub(super) fn pass(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
        if self.machine.deadline().is_some_and(|at| at <= self.now) {
            self.feed(Input::Tick);
        }
    }

    /// Serves all priority entries, then lets the captures follow the tail.
    pub(super) fn serve(&mut self) {
        for channel in 0..self.lanes.len() {
            while let Some(input) = self.lanes[channel].priority.pop_front() {
                self.feed(input);
            }
        }
        self.grow();
    }

    pub(super) fn read_all(&mut self) {
        self.serve();
        while let Some(channel) = (0..self.lanes.len()).find(|&c| self.can_read(c)) {
            self.read(channel);
        }
    }

    pub(super) fn can_read(&self, channel: usize) -> bool {
        let lane = &self.lanes[channel];
        !lane.blocked && !lane.items.is_empty()
    }

    /// Reads one item, if the channel isn't blocked.
    pub(super) fn read(&mut self, channel: usize) {
        if !self.can_read(channel) {
            return;
        }
        let item = self.lanes[channel].items.pop_front().expect("there is one");
        let index = index(channel);
        match item {
            Item::Data => {
                let number = self.lanes[channel].read;
                self.lanes[channel].read += 1;
                self.note(index, "D", number);
                self.feed(Input::Processed { bytes: 1 });
            }
            Item::Barrier(barrier) => {
                self.note(index, "b", barrier.checkpoint.0);
                self.feed(Input::Barrier { channel: index, barrier });
            }
            Item::Cancel(n) => {
                self.feed(Input::Cancel { channel: index, checkpoint: CheckpointId(n) });
            }
            Item::EndOfData => {
                self.lanes[channel].ended = true;
                self.feed(Input::EndOfData { channel: index });
            }
            Item::EndOfPartition => {
                let inserted = self.machine.inserted(index).to_vec();
                for barrier in inserted {
                    self.note(index, "b", barrier.checkpoint.0);
                }
                if self.logs {
                    self.log.push((index.0, "EOP".to_owned()));
                }
                self.feed(Input::EndOfPartition { channel: index });
            }
        }
        self.grow();
    }

    fn note(&mut self, channel: ChannelIndex, what: &str, number: u64) {
        if self.logs {
            self.log.push((channel.0, format!("{what}{number}")));
        }
    }

    /// Serves one priority entry of `channel`, if there is one.
    pub(super) fn serve_one(&mut self, channel: usize) {
        if let Some(input) = self.lanes[channel].priority.pop_front() {
            self.feed(input);
        }
    }

    pub(super) fn has_priority(&self, channel: usize) -> bool {
        !self.lanes[channel].priority.is_empty()
    }

    pub(super) fn feed(&mut self, input: Input) {
        self.outputs.clear();
        self.apply(input);
        while let Some(reached) = self.next_reached() {
            self.apply(reached);
        }
    }

    fn apply(&mut self, input: Input) {
        let mut out = Outputs::new();
        self.machine.handle(self.now, input, &mut out);
        for &output in &out {
            self.execute(output);
        }
        self.outputs.extend(out);
    }

    fn execute(&mut self, output: Output) {
        match output {
            Output::Block { channel } => {
                self.lanes[channel.0 as usize].blocked = true;
                self.blocks.push(channel.0);
            }
            Output::Resume { channel } => {
                self.lanes[channel.0 as usize].blocked = false;
                self.resumes.push(channel.0);
            }
            Output::CaptureStart { checkpoint } => {
                assert_eq!(self.capturing, None, "two captures at a time");
                self.capturing = Some(checkpoint.0);
                self.captured.insert(checkpoint.0, vec![Vec::new(); self.lanes.len()]);
            }
            Output::CaptureUntil { channel, position } => {
                let lane = &mut self.lanes[channel.0 as usize];
                lane.capture.get_or_insert(Capture::new(Position(lane.read))).until(position);
            }
            Output::CaptureLoaded { channel } => {
                let lane = &mut self.lanes[channel.0 as usize];
                lane.capture = Some(Capture::new(Position(lane.read)));
            }
            Output::CaptureStop { checkpoint } => {
                for channel in 0..self.lanes.len() {
                    if self.lanes[channel].capture.as_ref().is_some_and(Capture::has_end) {
                        self.grow_one(channel);
                    }
                }
                assert_eq!(self.capturing.take(), Some(checkpoint.0));
                self.drop_captures();
            }
            Output::CaptureAbort { checkpoint } => {
                assert_eq!(self.capturing.take(), Some(checkpoint.0));
                self.captured.remove(&checkpoint.0);
                self.drop_captures();
            }
            Output::Snapshot { barrier } => {
                let n = barrier.checkpoint.0;
                assert!(self.snapshots.last().is_none_or(|last| last.checkpoint.0 < n), "ids rise");
                self.snapshots.push(barrier);
                self.states.insert(n, self.lanes.iter().map(|lane| lane.read).collect());
            }
            Output::Completed { checkpoint } => self.completed.push(checkpoint.0),
            Output::Abort { checkpoint, reason } => self.aborts.push((checkpoint.0, reason)),
            Output::Decline { checkpoint } => self.declined.push(checkpoint.0),
        }
    }

    fn drop_captures(&mut self) {
        for lane in &mut self.lanes {
            lane.capture = None;
        }
    }

    fn grow(&mut self) {
        for channel in 0..self.lanes.len() {
            self.grow_one(channel);
        }
        while let Some(reached) = self.next_reached() {
            self.apply(reached);
        }
    }

    fn grow_one(&mut self, channel: usize) {
        let lane = &mut self.lanes[channel];
        let (Some(n), Some(capture)) = (self.capturing, &mut lane.capture) else { return };
        let range = capture.extend(Position(lane.pushed));
        let bytes = range.end - range.start;
        self.captured.get_mut(&n).expect("it was opened")[channel].extend(range);
        if bytes > 0 {
            self.apply(Input::Captured { checkpoint: CheckpointId(n), bytes });
        }
    }

    fn next_reached(&mut self) -> Option<Input> {
        let n = self.capturing?;
        let channel = (0..self.lanes.len())
            .find(|&c| self.lanes[c].capture.as_ref().is_some_and(Capture::has_reached))?;
        // A capture that has its end grows no further.
        self.lanes[channel].capture = None;
        Some(Input::CaptureReached { channel: index(channel), checkpoint: CheckpointId(n) })
    }

    pub(super) fn triggered(&self) -> Vec<u64> {
        self.snapshots.iter().map(|barrier| barrier.checkpoint.0).collect()
    }

    pub(super) fn aborted(&self) -> Vec<u64> {
        self.aborts.iter().map(|&(n, _)| n).collect()
    }

    pub(super) fn blocked(&self) -> Vec<usize> {
        (0..self.lanes.len()).filter(|&c| self.lanes[c].blocked).collect()
    }

    /// How many buffers of each channel were captured for `n`.
    pub(super) fn counts(&self, n: u64) -> Vec<usize> {
        let none = vec![Vec::new(); self.lanes.len()];
        self.captured.get(&n).unwrap_or(&none).iter().map(Vec::len).collect()
    }

    /// What was read of `channel`, in order.
    pub(super) fn delivered(&self, channel: u32) -> String {
        let of_channel = self.log.iter().filter(|(c, _)| *c == channel);
        of_channel.map(|(_, what)| what.as_str()).collect::<Vec<_>>().join(" ")
    }
}

pub(super) fn index(channel: usize) -> ChannelIndex {
    ChannelIndex(channel as u32)
}

/// Aligned with a timeout of `millis`.
pub(super) fn timeout(millis: u64) -> CheckpointOptions {
    CheckpointOptions::aligned_with_timeout(Duration::from_millis(millis))
}
