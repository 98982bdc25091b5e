//! A task of the two machines: outputs are carried out at once, unless a test holds them back.

use crate::barrier;
use crate::channel::event::Barrier;
use crate::channel::options::CheckpointOptions;
use crate::clock::Timestamp;
use crate::id::{ChannelIndex, CheckpointId};
use crate::task::finish::{Config, Input, Machine, Output, Outputs, Step};

#[derive(Debug)]
pub(super) struct Rig {
    pub(super) finish: Machine,
    pub(super) align: barrier::Machine,
    /// Everything the finish machine answered.
    pub(super) log: Outputs,
    /// What stands in each lane: `b2` a barrier, `c2` what the commit of 2 emits, `D` or `S` EndOfData, `EOP`.
    pub(super) lanes: String,
    pub(super) acks: Vec<u64>,
    /// Of each snapshot, whether the operators had finished.
    pub(super) flags: Vec<bool>,
    pub(super) resumed: usize,
    /// Checkpoints whose asynchronous part ends only by `over`.
    pub(super) slow: Vec<u64>,
    pub(super) holds_step: Option<Step>,
    pub(super) holds_flush: bool,
    emits: bool,
    now: Timestamp,
}

impl Rig {
    pub(super) fn new(config: Config) -> Self {
        let channels = config.inputs.iter().sum();
        Self {
            align: barrier::Machine::new(barrier::Config {
                restored: config.restored,
                ..barrier::Config::exactly_once(channels)
            }),
            emits: config.emits_on_commit,
            finish: Machine::new(config),
            log: Vec::new(),
            lanes: String::new(),
            acks: Vec::new(),
            flags: Vec::new(),
            resumed: 0,
            slow: Vec::new(),
            holds_step: None,
            holds_flush: false,
            now: Timestamp::from_millis(1_000),
        }
    }

    /// A task whose inputs have all ended and closed; its lanes have acknowledged nothing.
    pub(super) fn ended(channels: usize, lanes: usize) -> Self {
        let mut rig = Self::new(Config::new(channels, lanes));
        if channels == 0 {
            rig.feed(Input::SourceEnded);
        }
        for channel in 0..channels {
            rig.end_of_data(channel, true);
        }
        for channel in 0..channels {
            rig.end_of_partition(channel);
        }
        rig
    }

    pub(super) fn feed(&mut self, input: Input) {
        let mut out = Outputs::new();
        self.finish.handle(self.now, input, &mut out);
        self.log.extend(&out);
        for output in out {
            self.execute(output);
        }
    }

    fn execute(&mut self, output: Output) {
        match output {
            Output::Run(step) => {
                if self.holds_step != Some(step) {
                    self.feed(Input::StepDone);
                }
            }
            Output::BroadcastEndOfData { drain } => self.send(if drain { "D" } else { "S" }),
            Output::Take { barrier } => self.align(barrier::Input::Trigger { barrier }),
            Output::Flush => {
                if !self.holds_flush {
                    self.feed(Input::Flushed);
                }
            }
            Output::EmitEndOfPartition => self.send("EOP"),
            Output::NotifyComplete { checkpoint } => {
                if self.emits {
                    self.send(&format!("c{checkpoint}"));
                }
            }
            Output::AckEndOfData { .. }
            | Output::DeclineClosing { .. }
            | Output::Abort { .. }
            | Output::AwaitsCheckpoint(_)
            | Output::AskPermit { .. }
            | Output::CloseMailbox
            | Output::CloseOperators
            | Output::Fail { .. } => {}
        }
    }

    fn align(&mut self, input: barrier::Input) {
        let mut out = barrier::Outputs::new();
        self.align.handle(self.now, input, &mut out);
        for output in out {
            match output {
                barrier::Output::Snapshot { barrier } => self.snapshot(barrier),
                barrier::Output::Resume { .. } => self.resumed += 1,
                barrier::Output::Abort { .. } | barrier::Output::Decline { .. } => {
                    panic!("unexpected {output:?}")
                }
                barrier::Output::Block { .. }
                | barrier::Output::CaptureStart { .. }
                | barrier::Output::CaptureUntil { .. }
                | barrier::Output::CaptureLoaded { .. }
                | barrier::Output::CaptureStop { .. }
                | barrier::Output::CaptureAbort { .. }
                | barrier::Output::Completed { .. } => {}
            }
        }
    }

    fn snapshot(&mut self, barrier: Barrier) {
        self.flags.push(self.finish.operators_finished());
        self.send(&format!("b{}", barrier.checkpoint));
        self.feed(Input::SnapshotTaken { barrier });
        if !self.slow.contains(&barrier.checkpoint.0) {
            self.over(barrier.checkpoint.0);
        }
    }

    pub(super) fn over(&mut self, n: u64) {
        self.acks.push(n);
        self.feed(Input::SnapshotOver { checkpoint: CheckpointId(n) });
    }

    pub(super) fn barrier(&mut self, channel: usize, barrier: Barrier) {
        let channel = index(channel);
        self.align(if barrier.options.is_unaligned() {
            let position = crate::channel::event::Position(0);
            barrier::Input::PriorityBarrier { channel, barrier, position }
        } else {
            barrier::Input::Barrier { channel, barrier }
        });
    }

    pub(super) fn trigger(&mut self, barrier: Barrier) {
        self.feed(Input::Trigger { barrier });
    }

    pub(super) fn complete(&mut self, n: u64) {
        self.feed(Input::Complete { checkpoint: CheckpointId(n) });
    }

    pub(super) fn end_of_data(&mut self, channel: usize, drain: bool) {
        self.align(barrier::Input::EndOfData { channel: index(channel) });
        self.feed(Input::EndOfData { channel: index(channel), drain });
    }

    pub(super) fn end_of_partition(&mut self, channel: usize) {
        self.align(barrier::Input::EndOfPartition { channel: index(channel) });
        self.feed(Input::EndOfPartition { channel: index(channel) });
    }

    fn send(&mut self, what: &str) {
        if !self.lanes.is_empty() {
            self.lanes.push(' ');
        }
        self.lanes.push_str(what);
    }

    pub(super) fn has(&self, wanted: impl Fn(&Output) -> bool) -> bool {
        self.log.iter().any(wanted)
    }

    pub(super) fn asks(&self) -> usize {
        self.log.iter().filter(|o| matches!(o, Output::AskPermit { .. })).count()
    }

    pub(super) fn asked(&self) -> bool {
        self.asks() > 0
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        let step = |o: &Output| if let Output::Run(step) = o { Some(*step) } else { None };
        self.log.iter().filter_map(step).collect()
    }
}

fn index(channel: usize) -> ChannelIndex {
    ChannelIndex(channel as u32)
}

/// An aligned barrier.
pub(super) fn barrier(n: u64) -> Barrier {
    Barrier {
        checkpoint: CheckpointId(n),
        timestamp: Timestamp::from_millis(1_000),
        options: CheckpointOptions::aligned(),
    }
}
