//! From the end of a task's data to its last event: which step comes next, and what it still waits for.
//!
//! `Running -> Finishing -> (HoldingEndOfData) -> Ended -> Leaving -> Left`. In every phase but the last the task takes
//! part in checkpoints. Invariants: EndOfData goes out once and before EndOfPartition; `end_input` runs once an input and
//! `finish` once an operator; EndOfPartition goes out only with the coordinator's permit, asked while the mailbox is
//! open and nothing of the task is unsent or unacknowledged (FLIP-147, do not cancel pending checkpoint on finish).
//!
//! A source chained into the task is one more input with one channel. [`Input::SnapshotOver`] is said for every snapshot
//! that `task::snapshot` acknowledges, declines or drops.
//!
//! The task carries outputs out in order. A [`Step`] may take several rounds, in which mailbox and priority entries are
//! served; [`Input::StepDone`] asks for the next. Called by `task` only.

mod message;
mod state;

use std::collections::VecDeque;

use crate::channel::event::Barrier;
use crate::channel::options::CheckpointKind;
use crate::clock::Timestamp;
use crate::id::CheckpointId;
use crate::probe::{Fault, is_broken};

pub use message::{Failure, Input, Output, Outputs, Step};
use state::{Awaited, Inputs};

/// What the machine must know of its task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Channels of each input (gate), in the order of the task's channels; empty for a source.
    pub inputs: Vec<usize>,
    /// Operators of the chain, head first.
    pub operators: usize,
    /// Lanes that acknowledge EndOfData; blocking ones are left out.
    pub lanes: usize,
    /// Whether checkpoints are taken and go on after tasks have finished.
    pub checkpointing: bool,
    /// Whether a producer stays until its consumers have read EndOfData.
    pub drain_hold: bool,
    /// Whether the task has state or a commit hook, so that a checkpoint must cover its end.
    pub needs_final_checkpoint: bool,
    /// Whether records come out of commit hooks: EndOfData waits for those of the final checkpoint.
    pub emits_on_commit: bool,
    /// The checkpoint the task was restored from.
    pub restored: Option<CheckpointId>,
    /// Inputs whose `end_input` ran before the checkpoint restored from.
    pub ended_inputs: Vec<usize>,
    /// Whether all operators had finished in the checkpoint restored from: only watermark and EndOfData are sent again.
    pub operators_finished: bool,
}

impl Config {
    /// A task with state, one input of `channels` channels (a source if 0), one operator and `lanes` lanes.
    pub fn new(channels: usize, lanes: usize) -> Self {
        Self {
            inputs: if channels == 0 { Vec::new() } else { vec![channels] },
            operators: 1,
            lanes,
            checkpointing: true,
            drain_hold: true,
            needs_final_checkpoint: true,
            emits_on_commit: false,
            restored: None,
            ended_inputs: Vec::new(),
            operators_finished: false,
        }
    }
}

/// Decides how a task comes to its end.
#[derive(Clone, Debug, Hash)]
pub struct Machine {
    config: Config,
    phase: Phase,
    inputs: Inputs,
    /// Steps to come after the one that runs.
    steps: VecDeque<Step>,
    step_runs: bool,
    /// How the task's data ended; `None` while it has not.
    drain: Option<bool>,
    operators_finished: bool,
    awaited: Awaited,
    /// The savepoint that ends the job, taken by a source after EndOfData.
    stop: Option<Barrier>,
    delivered: Option<CheckpointId>,
    awaits_reported: bool,
    granted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Running,
    Finishing,
    HoldingEndOfData,
    Ended,
    Leaving(Leave),
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Leave {
    /// Until all sent is received.
    Flushing,
    /// Until the asynchronous parts of snapshots are over.
    Waiting,
    Asked,
    /// The coordinator waits for this task's part in a checkpoint.
    Held,
}

impl Machine {
    /// The machine of a task that is about to read or emit its first record.
    pub fn new(config: Config) -> Self {
        Self {
            phase: Phase::Running,
            inputs: Inputs::new(&config.inputs, &config.ended_inputs),
            steps: VecDeque::with_capacity(5 * config.operators + 2),
            step_runs: false,
            drain: None,
            operators_finished: config.operators_finished,
            awaited: Awaited::new(config.lanes),
            stop: None,
            delivered: config.restored,
            awaits_reported: false,
            granted: false,
            config,
        }
    }

    /// Takes one input and appends to `out` what the task is to do, in order.
    ///
    /// # Panics
    /// If the task breaks the protocol: data ends twice, a permit comes that was not asked for.
    pub fn handle(&mut self, _now: Timestamp, input: Input, out: &mut Outputs) {
        if self.phase == Phase::Left {
            if let Input::Trigger { barrier } = input {
                out.push(Output::DeclineClosing { checkpoint: barrier.checkpoint });
            }
            return;
        }
        match input {
            Input::Start => self.start(out),
            Input::SourceEnded => self.source_ended(true, out),
            Input::Trigger { barrier } => self.trigger(barrier, out),
            Input::EndOfData { channel, drain } => {
                if self.config.checkpointing && self.config.drain_hold {
                    out.push(Output::AckEndOfData { channel });
                }
                if let Some(input) = self.inputs.end_of_data(channel, drain) {
                    self.input_ended(input, out);
                }
            }
            Input::EndOfPartition { channel } => self.inputs.close(channel),
            Input::StepDone => self.step_done(out),
            Input::EndOfDataAcked { lane } => self.awaited.acked(lane),
            Input::SnapshotTaken { barrier } => self.snapshot_taken(barrier, out),
            Input::SnapshotOver { checkpoint } => self.awaited.snapshot_over(checkpoint),
            Input::Complete { checkpoint } => self.complete(checkpoint, out),
            Input::Aborted { checkpoint, latest } => {
                if let Some(latest) = latest {
                    self.complete(latest, out);
                }
                out.push(Output::Abort { checkpoint });
                let is_stop = self.stop.is_some_and(|stop| stop.checkpoint == checkpoint);
                if is_stop || self.awaited.savepoint == Some(checkpoint) {
                    // The job was to end with it; what ended here can't go on.
                    self.phase = Phase::Left;
                    out.push(Output::Fail { cause: Failure::Savepoint { checkpoint } });
                    return;
                }
                self.awaited.held.retain(|&held| held != checkpoint);
            }
            Input::FinalizePending { operator } => self.awaited.finalizing.push(operator),
            Input::Finalized { operator } => {
                self.awaited.finalizing.retain(|&waiting| waiting != operator);
            }
            Input::FinalizeFailed { operator } => {
                self.phase = Phase::Left;
                out.push(Output::Fail { cause: Failure::Finalize { operator } });
                return;
            }
            Input::Flushed => {
                if self.phase == Phase::Leaving(Leave::Flushing) {
                    self.phase = Phase::Leaving(Leave::Waiting);
                }
            }
            Input::Granted => {
                // A savepoint that ends the job may have come between: then the task leaves when that is complete.
                let has_asked =
                    matches!(self.phase, Phase::Leaving(_)) || self.awaited.savepoint.is_some();
                assert!(has_asked, "a permit nobody asked for");
                self.granted = true;
            }
            Input::Hold { pending } => self.hold(&pending, out),
            Input::Cancel => {
                self.phase = Phase::Left;
                out.push(Output::CloseMailbox);
                out.push(Output::CloseOperators);
                return;
            }
        }
        self.advance(out);
        self.report(out);
        self.check();
    }

    /// Whether every operator has finished: part of each snapshot.
    pub fn operators_finished(&self) -> bool {
        self.operators_finished
    }

    /// Inputs whose `end_input` has run: part of each snapshot.
    pub fn ended_inputs(&self) -> Vec<usize> {
        self.inputs.ended()
    }

    /// Whether EndOfData has gone out.
    pub fn is_ended(&self) -> bool {
        match self.phase {
            Phase::Running | Phase::Finishing | Phase::HoldingEndOfData => false,
            Phase::Ended | Phase::Leaving(_) | Phase::Left => true,
        }
    }

    /// Whether the task is gone: nothing but declining is left to do.
    pub fn has_left(&self) -> bool {
        self.phase == Phase::Left
    }

    fn start(&mut self, out: &mut Outputs) {
        if self.config.operators_finished {
            self.drain = Some(true);
            self.begin([Step::EmitMaxWatermark], out);
        }
    }

    fn source_ended(&mut self, drain: bool, out: &mut Outputs) {
        if self.phase == Phase::Running {
            assert!(self.config.inputs.is_empty(), "only a source ends by itself");
            self.end_data(drain, out);
        }
    }

    fn trigger(&mut self, barrier: Barrier, out: &mut Outputs) {
        let is_source = self.config.inputs.is_empty();
        match barrier.options.kind() {
            CheckpointKind::StopWithSavepoint { drain } if is_source && !self.is_ended() => {
                self.stop_source(barrier, drain, out);
            }
            CheckpointKind::StopWithSavepoint { .. }
            | CheckpointKind::Savepoint
            | CheckpointKind::Checkpoint => out.push(Output::Take { barrier }),
        }
    }

    /// The barrier of this savepoint follows EndOfData on every lane.
    fn stop_source(&mut self, barrier: Barrier, drain: bool, out: &mut Outputs) {
        if self.stop.is_some() {
            out.push(Output::DeclineClosing { checkpoint: barrier.checkpoint });
            return;
        }
        self.stop = Some(barrier);
        self.source_ended(drain, out);
        if self.phase == Phase::HoldingEndOfData {
            self.take_stop(out);
        }
    }

    fn input_ended(&mut self, input: usize, out: &mut Outputs) {
        if self.config.operators_finished {
            return;
        }
        if self.inputs.is_drained(input) && self.inputs.begin_end_input(input) {
            self.begin([Step::EndInput { operator: 0, input }], out);
        }
        if self.inputs.all_ended() {
            self.end_data(self.inputs.all_drained(), out);
        }
    }

    /// The task's data has ended: all operators from head to tail.
    fn end_data(&mut self, drain: bool, out: &mut Outputs) {
        assert!(self.drain.is_none(), "data ends once");
        self.drain = Some(drain);
        let mut steps = Vec::with_capacity(5 * self.config.operators + 1);
        if drain && self.config.inputs.is_empty() {
            steps.push(Step::EmitMaxWatermark);
        }
        for operator in 0..self.config.operators {
            if drain && operator > 0 {
                steps.push(Step::EndInput { operator, input: 0 });
            }
            steps.push(Step::QuiesceTimers { operator });
            if drain {
                // All mails, also those that had given way to others.
                steps.push(Step::RunMails { operator });
                steps.push(Step::Finish { operator });
                steps.push(Step::RunMails { operator });
            }
        }
        self.begin(steps, out);
    }

    fn begin(&mut self, steps: impl IntoIterator<Item = Step>, out: &mut Outputs) {
        self.steps.extend(steps);
        if self.drain.is_some() && self.phase == Phase::Running {
            self.phase = Phase::Finishing;
        }
        self.next_step(out);
    }

    fn step_done(&mut self, out: &mut Outputs) {
        assert!(self.step_runs, "no step runs");
        self.step_runs = false;
        self.next_step(out);
    }

    fn next_step(&mut self, out: &mut Outputs) {
        if self.step_runs {
            return;
        }
        if let Some(step) = self.steps.pop_front() {
            self.step_runs = true;
            out.push(Output::Run(step));
        } else if self.phase == Phase::Finishing {
            self.operators_finished |= self.drain == Some(true);
            // A savepoint that stops the job may be complete by then: no other checkpoint will come.
            if self.holds_end_of_data() && !self.awaited.final_done {
                self.phase = Phase::HoldingEndOfData;
                self.take_stop(out);
            } else {
                self.send_end_of_data(out);
            }
        }
    }

    fn holds_end_of_data(&self) -> bool {
        // What was finished before a restore has emitted with the completion notice of the restore.
        let emits = self.config.emits_on_commit
            && !self.config.operators_finished
            && !is_broken(Fault::EndNotHeld);
        self.config.checkpointing && emits && self.drain == Some(true)
    }

    fn send_end_of_data(&mut self, out: &mut Outputs) {
        self.phase = Phase::Ended;
        out.push(Output::BroadcastEndOfData { drain: self.drain == Some(true) });
        self.take_stop(out);
    }

    fn take_stop(&mut self, out: &mut Outputs) {
        if let Some(barrier) = self.stop.take() {
            out.push(Output::Take { barrier });
        }
    }

    fn snapshot_taken(&mut self, barrier: Barrier, out: &mut Outputs) {
        // One that says that all operators have finished is the last that is needed, also if they had before a restore and the
        // end of data is still to be sent again: so the coordinator counts it.
        let ended = self.is_ended() || self.operators_finished;
        self.awaited.snapshot_taken(barrier, ended);
        if let Phase::Leaving(_) = self.phase {
            if barrier.options.kind().is_synchronous() {
                // It leaves only with that savepoint's completion.
                self.phase = Phase::Ended;
            } else {
                // The barrier it sent must be received before the task asks again.
                self.flush(out);
            }
        }
    }

    fn complete(&mut self, checkpoint: CheckpointId, out: &mut Outputs) {
        if Some(checkpoint) <= self.delivered {
            return;
        }
        self.delivered = Some(checkpoint);
        self.awaited.completed(checkpoint);
        out.push(Output::NotifyComplete { checkpoint });
        if self.phase == Phase::HoldingEndOfData && self.awaited.final_done {
            self.send_end_of_data(out);
        }
    }

    fn hold(&mut self, pending: &[Barrier], out: &mut Outputs) {
        if self.phase != Phase::Leaving(Leave::Asked) {
            // The answer is older than what the mailbox brought; the request is made again.
            return;
        }
        self.phase = Phase::Leaving(Leave::Held);
        self.awaited.held.clear();
        for &barrier in pending {
            self.awaited.held.push(barrier.checkpoint);
            if Some(barrier.checkpoint) > self.awaited.last_snapshot {
                out.push(Output::Take { barrier });
            }
        }
    }

    /// Goes on as far as nothing is awaited.
    fn advance(&mut self, out: &mut Outputs) {
        if self.phase == Phase::Ended && self.inputs.all_closed() && self.nothing_awaited() {
            self.flush(out);
        }
        if !self.awaited.snapshots.is_empty() {
            return;
        }
        let may_ask = match self.phase {
            Phase::Leaving(Leave::Waiting) => true,
            Phase::Leaving(Leave::Held) => self.granted || self.awaited.held.is_empty(),
            Phase::Leaving(Leave::Asked) => self.granted,
            Phase::Running
            | Phase::Finishing
            | Phase::HoldingEndOfData
            | Phase::Ended
            | Phase::Leaving(Leave::Flushing)
            | Phase::Left => false,
        };
        if !may_ask {
            return;
        }
        if self.granted || !self.config.checkpointing {
            self.phase = Phase::Left;
            out.extend([Output::CloseMailbox, Output::EmitEndOfPartition, Output::CloseOperators]);
        } else {
            self.phase = Phase::Leaving(Leave::Asked);
            out.push(Output::AskPermit { last_snapshot: self.awaited.last_snapshot });
        }
    }

    fn flush(&mut self, out: &mut Outputs) {
        self.phase = Phase::Leaving(Leave::Flushing);
        out.push(Output::Flush);
    }

    fn nothing_awaited(&self) -> bool {
        let acked =
            !self.config.checkpointing || !self.config.drain_hold || self.awaited.all_acked();
        acked && self.awaited.finalizing.is_empty() && !self.awaits_final()
    }

    /// Whether a checkpoint has to complete before the task may leave.
    fn awaits_final(&self) -> bool {
        let wanted = self.config.needs_final_checkpoint || self.awaited.savepoint.is_some();
        self.config.checkpointing && wanted && !self.awaited.final_done
    }

    /// Tells the coordinator when nothing but a completed checkpoint lets the task go on, and when that is over.
    fn report(&mut self, out: &mut Outputs) {
        let acked = !self.config.drain_hold || self.awaited.all_acked();
        let awaits = match self.phase {
            Phase::HoldingEndOfData => self.awaited.finalizing.is_empty(),
            Phase::Ended => acked && self.awaited.finalizing.is_empty() && self.awaits_final(),
            Phase::Running | Phase::Finishing | Phase::Leaving(_) | Phase::Left => false,
        } && self.drain == Some(true)
            && self.awaited.savepoint.is_none();
        if awaits != self.awaits_reported {
            self.awaits_reported = awaits;
            out.push(Output::AwaitsCheckpoint(awaits));
        }
    }

    fn check(&self) {
        match self.phase {
            Phase::Running => assert!(self.drain.is_none()),
            Phase::Finishing | Phase::HoldingEndOfData | Phase::Ended => {
                assert!(self.drain.is_some(), "ending without an end of data");
            }
            Phase::Leaving(_) => assert!(self.steps.is_empty() && !self.step_runs),
            Phase::Left => assert!(self.granted || !self.config.checkpointing),
        }
    }
}
