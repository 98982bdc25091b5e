//! How a task carries out what the finish machine says: end of data, finishing, the last checkpoint, leaving.

use super::driver::{StepContext, Task};
use super::finish::{Failure, Input, Output, Step};
use super::inputs::TaskInput;
use super::message::ReportKind;
use super::snapshot;
use crate::barrier;
use crate::channel::event::Barrier;
use crate::channel::options::CheckpointKind;
use crate::clock::EpochMillis;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ChannelIndex, CheckpointId};
use crate::operator::Signal;
use crate::probe;

/// A step of finishing that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunningStep(Step);

impl Task {
    /// Tells the finish machine something and does what it says.
    pub(super) fn end_with(&mut self, input: Input, cx: &mut StepContext<'_>) -> Result<()> {
        if self.has_sources_only
            && let Input::Trigger { barrier } = &input
            && let CheckpointKind::StopWithSavepoint { .. } = barrier.options.kind()
        {
            // The sources end here; the barrier follows their end of data.
            for input in &mut self.inputs {
                if let TaskInput::Source { is_ended, .. } = input {
                    *is_ended = true;
                }
            }
        }
        let mut outputs = Vec::new();
        let attempt = Some(self.options.attempt);
        probe::note(attempt, &input);
        self.ending.handle(cx.now, input, &mut outputs);
        for output in outputs {
            probe::note(attempt, &output);
            self.carry_out_ending(output, cx)?;
        }
        Ok(())
    }

    fn carry_out_ending(&mut self, output: Output, cx: &mut StepContext<'_>) -> Result<()> {
        match output {
            Output::Run(step) => {
                self.running_step = Some(RunningStep(step));
                Ok(())
            }
            // The producer sees in the lane how far it has been read.
            Output::AckEndOfData { .. } => Ok(()),
            Output::BroadcastEndOfData { drain } => {
                self.signal_all(&mut Signal::EndOfData { drain })?;
                self.signal_all(&mut Signal::Flush)?;
                self.report(ReportKind::EndOfData, cx);
                if probe::is_broken(probe::Fault::CommitAtEnd) {
                    self.signal_all(&mut Signal::Complete(CheckpointId(u64::MAX)))?;
                }
                match self.captures.stop.take() {
                    Some(barrier) => self.inject(barrier, cx),
                    None => Ok(()),
                }
            }
            Output::Take { barrier } => self.take_part(barrier, cx),
            Output::DeclineClosing { checkpoint } => {
                let cause = Error::new(ErrorKind::Checkpoint, "the task is leaving");
                self.report(ReportKind::Declined { checkpoint, cause }, cx);
                Ok(())
            }
            Output::NotifyComplete { checkpoint } => {
                self.signal_all(&mut Signal::Complete(checkpoint))
            }
            Output::Abort { checkpoint } => {
                self.snapshot_with(snapshot::Input::Notice { checkpoint }, cx)?;
                self.input(barrier::Input::Abort { checkpoint }, cx)?;
                if self.captures.stop.is_some_and(|stop| stop.checkpoint == checkpoint) {
                    // Its sources have ended for it.
                    return Err(given_up(checkpoint));
                }
                Ok(())
            }
            Output::AwaitsCheckpoint(awaits) => {
                self.report(ReportKind::AwaitsCheckpoint(awaits), cx);
                Ok(())
            }
            Output::Flush => {
                self.signal_all(&mut Signal::Flush)?;
                self.is_flushing = true;
                Ok(())
            }
            Output::AskPermit { last_snapshot } => {
                self.report(ReportKind::FinishRequest { last: last_snapshot }, cx);
                Ok(())
            }
            Output::CloseMailbox | Output::CloseOperators => Ok(()),
            Output::EmitEndOfPartition => {
                self.is_leaving = true;
                self.signal_all(&mut Signal::EndOfPartition)
            }
            Output::Fail { cause } => Err(match cause {
                Failure::Finalize { .. } => {
                    Error::new(ErrorKind::User, "what the operator waited for at its end failed")
                }
                Failure::Savepoint { checkpoint } => given_up(checkpoint),
            }),
        }
    }

    /// Takes part in a checkpoint without, or before, any barrier on a channel.
    fn take_part(&mut self, mut barrier: Barrier, cx: &mut StepContext<'_>) -> Result<()> {
        if self.inputs.iter().any(|input| matches!(input, TaskInput::Source { .. })) {
            self.inject(barrier, cx)?;
        }
        if self.has_sources_only {
            return Ok(());
        }
        // Nobody sent it over an edge, which would have said so.
        if !self.options.may_capture {
            barrier.options = barrier.options.forced_aligned();
        }
        self.input(barrier::Input::Trigger { barrier }, cx)
    }

    /// Gives the sources of the task their barrier: they are cut where they stand. If the job stops with it, they end here, and
    /// the barrier follows the task's end of data.
    pub(super) fn inject(&mut self, barrier: Barrier, cx: &mut StepContext<'_>) -> Result<()> {
        if self.captures.injected.is_some_and(|last| last >= barrier.checkpoint) {
            return Ok(());
        }
        if let CheckpointKind::StopWithSavepoint { drain } = barrier.options.kind()
            && !self.ending.is_ended()
            && !self.has_sources_only
            && self.inputs.iter().any(|input| matches!(input, TaskInput::Source { .. }))
        {
            self.captures.stop = Some(barrier);
            return self.stop_sources(drain, cx);
        }
        self.captures.injected = Some(barrier.checkpoint);
        for index in 0..self.inputs.len() {
            if let TaskInput::Source { .. } = self.inputs[index] {
                let channel = ChannelIndex(index as u32);
                self.input(barrier::Input::Barrier { channel, barrier }, cx)?;
            }
        }
        Ok(())
    }

    /// Ends all sources where they stand, for a job that is stopped without a checkpoint.
    pub(super) fn stop_sources(&mut self, drain: bool, cx: &mut StepContext<'_>) -> Result<()> {
        for index in 0..self.inputs.len() {
            if let TaskInput::Source { head, is_ended: false, .. } = self.inputs[index] {
                self.end_source(index, head, drain, cx)?;
            }
        }
        Ok(())
    }

    /// Goes on with finishing and leaving. `true` if the step is over.
    pub(super) fn advance_ending(&mut self, cx: &mut StepContext<'_>) -> Result<bool> {
        if let Some(RunningStep(step)) = self.running_step.take() {
            match step {
                Step::EmitMaxWatermark => {
                    self.signal_all(&mut Signal::Watermark(EpochMillis::MAX))?;
                }
                Step::Finish { .. } => {
                    let checkpointed = self.options.checkpointed;
                    self.signal_all(&mut Signal::Finish { checkpointed })?;
                }
                Step::QuiesceTimers { .. } => self.signal_all(&mut Signal::QuiesceTimers)?,
                // What fires has come out before this is reached.
                Step::EndInput { .. } | Step::RunMails { .. } => {}
            }
            self.end_with(Input::StepDone, cx)?;
            return Ok(true);
        }
        if !self.ending.is_ended() {
            return Ok(false);
        }
        if self.options.has_outputs && !self.captures.is_end_acknowledged && self.is_end_taken()? {
            self.captures.is_end_acknowledged = true;
            self.end_with(Input::EndOfDataAcked { lane: 0 }, cx)?;
            return Ok(true);
        }
        if self.is_flushing && self.is_sent()? {
            self.is_flushing = false;
            self.end_with(Input::Flushed, cx)?;
            return Ok(true);
        }
        if self.is_leaving && !self.is_done && self.is_sent()? {
            self.is_done = true;
            self.report(ReportKind::Finished, cx);
            return Ok(true);
        }
        Ok(false)
    }

    fn is_end_taken(&mut self) -> Result<bool> {
        let mut taken = true;
        self.signal_all(&mut Signal::EndOfDataTaken(&mut taken))?;
        Ok(taken)
    }

    fn is_sent(&mut self) -> Result<bool> {
        let mut sent = true;
        self.signal_all(&mut Signal::Flushed(&mut sent))?;
        Ok(sent)
    }
}

/// The savepoint that was to end the job will not be.
fn given_up(checkpoint: CheckpointId) -> Error {
    let message = format!("savepoint {checkpoint}, which was to end the job, was given up");
    Error::new(ErrorKind::Checkpoint, message)
}
