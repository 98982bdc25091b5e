//! How a task carries out what the alignment machine and the snapshot machine say: blocking, capturing, snapshots.

use std::collections::BTreeMap;

use tidegate_netstack::buffer::Buffer;

use super::driver::{StepContext, Task};
use super::inputs::TaskInput;
use super::message::{AwaitedBarrier, ReportKind};
use super::snapshot::{self, Part};
use super::{finish, snapshot::Output as SnapshotOutput};
use crate::barrier::capture::Capture;
use crate::barrier::{Input, Output};
use crate::channel::capture::CapturedChannel;
use crate::channel::event::{Barrier, Position};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ChannelIndex, CheckpointId};
use crate::operator::{Head, Signal};
use crate::probe::{self, Fault, is_broken};
use crate::state::part::{Part as StatePart, Snapshot};

/// What is being captured, and snapshots whose parts are not all there.
#[derive(Debug, Default)]
pub(super) struct Captures {
    /// The checkpoint that captures channels, if one does: one at a time.
    running: Option<Running>,
    /// What was captured for checkpoints that are not acknowledged.
    captured: BTreeMap<CheckpointId, Vec<CapturedChannel>>,
    /// The operators' parts of checkpoints that are not acknowledged.
    parts: BTreeMap<CheckpointId, Taken>,
    /// The last checkpoint whose barrier the task's own sources got.
    pub(super) injected: Option<CheckpointId>,
    /// The savepoint that ends the job, for which the task's own sources have ended; they get it behind the end of data.
    pub(super) stop: Option<Barrier>,
    /// Whether the consumers are known to have taken the end of data.
    pub(super) is_end_acknowledged: bool,
}

#[derive(Debug)]
struct Running {
    checkpoint: CheckpointId,
    /// By input; none for sources.
    channels: Vec<Option<Capturing>>,
}

/// One channel's capture.
#[derive(Debug)]
struct Capturing {
    capture: Capture,
    captured: CapturedChannel,
    /// Whether anything of the channel is to be captured: not if its barrier had been read when the captures began.
    is_growing: bool,
    is_reached: bool,
    /// Which of what was captured may be released next.
    next_release: usize,
}

/// The operators' side of a snapshot.
#[derive(Debug)]
struct Taken {
    parts: Vec<StatePart>,
    operators_finished: bool,
    ended_inputs: Vec<u32>,
    /// The channels' watermarks at their read positions, where nothing is captured.
    channels: Vec<CapturedChannel>,
}

impl Captures {
    /// A buffer of input `index` was read to its end.
    pub(super) fn release(&mut self, index: usize, buffer: &Buffer) {
        let Some(running) = &mut self.running else { return };
        if is_broken(Fault::BuffersKept) {
            return;
        }
        if let Some(Some(Capturing { captured, next_release, .. })) =
            running.channels.get_mut(index)
        {
            *next_release = captured.release(buffer, *next_release);
        }
    }
}

impl Task {
    /// Tells the alignment machine something and does what it says.
    pub(super) fn input(&mut self, input: Input, cx: &mut StepContext<'_>) -> Result<()> {
        let mut outputs = std::mem::take(&mut self.barrier_outputs);
        let attempt = Some(self.options.attempt);
        probe::note(attempt, &input);
        self.barriers.handle(cx.now, input, &mut outputs);
        for output in outputs.drain(..) {
            probe::note(attempt, &output);
            self.carry_out(output, cx)?;
        }
        self.barrier_outputs = outputs;
        Ok(())
    }

    fn carry_out(&mut self, output: Output, cx: &mut StepContext<'_>) -> Result<()> {
        match output {
            Output::Block { channel } => {
                self.inputs[channel.0 as usize].set_blocked(!is_broken(Fault::NotBlocked));
                Ok(())
            }
            Output::Resume { channel } => {
                self.inputs[channel.0 as usize].set_blocked(false);
                Ok(())
            }
            Output::CaptureStart { checkpoint } => {
                self.start_captures(checkpoint);
                Ok(())
            }
            Output::CaptureUntil { channel, position } => {
                if let Some(capturing) = self.capturing(channel) {
                    let short = u64::from(is_broken(Fault::CutOneShort) && position.0 > 0);
                    capturing.is_growing = true;
                    capturing.capture.until(Position(position.0 - short));
                }
                Ok(())
            }
            Output::CaptureLoaded { channel } => {
                if let Some(capturing) = self.capturing(channel) {
                    capturing.is_growing = true;
                }
                Ok(())
            }
            Output::CaptureStop { checkpoint } => self.stop_captures(checkpoint, cx),
            Output::CaptureAbort { checkpoint } => {
                self.captures.running = None;
                self.captures.captured.remove(&checkpoint);
                Ok(())
            }
            Output::Snapshot { barrier } => {
                let checkpoint = barrier.checkpoint;
                self.snapshot_with(snapshot::Input::Take { barrier }, cx)?;
                self.end_with(finish::Input::SnapshotTaken { barrier }, cx)?;
                // An operator may have failed it at once.
                if !is_broken(Fault::SnapshotOverForgotten)
                    && self.snapshots.running().all(|running| running != checkpoint)
                {
                    self.end_with(finish::Input::SnapshotOver { checkpoint }, cx)?;
                }
                Ok(())
            }
            Output::Completed { checkpoint } => {
                let part = Part::Inputs;
                self.snapshot_with(snapshot::Input::Done { checkpoint, part }, cx)
            }
            Output::Abort { checkpoint, reason } => {
                self.snapshot_with(snapshot::Input::LocalAbort { checkpoint, reason }, cx)
            }
            Output::Decline { checkpoint } => {
                let cause = Error::new(ErrorKind::Checkpoint, "a newer checkpoint has started");
                self.report(ReportKind::Declined { checkpoint, cause }, cx);
                Ok(())
            }
        }
    }

    fn capturing(&mut self, channel: ChannelIndex) -> Option<&mut Capturing> {
        self.captures.running.as_mut()?.channels.get_mut(channel.0 as usize)?.as_mut()
    }

    fn start_captures(&mut self, checkpoint: CheckpointId) {
        let channels = self
            .inputs
            .iter_mut()
            .map(|input| match input {
                TaskInput::Source { .. } => None,
                TaskInput::Channel { channel, .. } => Some(Capturing {
                    capture: Capture::new(channel.read_position()),
                    captured: channel.begin_capture(),
                    is_growing: is_broken(Fault::AlignedCaptured),
                    is_reached: false,
                    next_release: 0,
                }),
            })
            .collect();
        self.captures.running = Some(Running { checkpoint, channels });
    }

    /// Lets the captures grow to what is loaded. Called when the priority side has been served and before anything is read.
    pub(super) fn extend_captures(&mut self, cx: &mut StepContext<'_>) -> Result<()> {
        if self.captures.running.is_none() {
            return Ok(());
        }
        let started = (cx.clock)();
        let mut has_grown = false;
        for index in 0..self.inputs.len() {
            has_grown |= self.extend_capture(index, cx)?;
        }
        if has_grown {
            self.options.metrics.snapshot_step((cx.clock)().since(started));
        }
        Ok(())
    }

    /// Whether anything was captured.
    fn extend_capture(&mut self, index: usize, cx: &mut StepContext<'_>) -> Result<bool> {
        let Some(running) = &mut self.captures.running else { return Ok(false) };
        let checkpoint = running.checkpoint;
        let TaskInput::Channel { channel, .. } = &mut self.inputs[index] else { return Ok(false) };
        let Some(Capturing { capture, captured, is_growing: true, is_reached, .. }) =
            &mut running.channels[index]
        else {
            return Ok(false);
        };
        let before = captured.bytes;
        // A barrier that is forced aligned stands in band, unannounced: nothing behind it is captured.
        let loaded = channel.loaded();
        if is_broken(Fault::CaptureNotExtended) && captured.bytes > 0 && !capture.has_end() {
            return Ok(false);
        }
        if !capture.has_end()
            && let Some(position) =
                channel.barrier_in_band(capture.captured_to().0, loaded.0, checkpoint)
        {
            capture.until(position);
        }
        let range = capture.extend(loaded);
        if !range.is_empty() {
            channel.capture(range.start, range.end, captured);
        }
        let bytes = captured.bytes - before;
        let has_reached = capture.has_reached() && !*is_reached;
        *is_reached |= has_reached;
        if bytes > 0 {
            self.input(Input::Captured { checkpoint, bytes }, cx)?;
        }
        if has_reached {
            let channel = ChannelIndex(index as u32);
            self.input(Input::CaptureReached { channel, checkpoint }, cx)?;
        }
        Ok(bytes > 0)
    }

    fn stop_captures(&mut self, checkpoint: CheckpointId, cx: &mut StepContext<'_>) -> Result<()> {
        // A channel whose end is known has all of it published; the others were read up to their barriers.
        for index in 0..self.inputs.len() {
            let has_end = self
                .capturing(ChannelIndex(index as u32))
                .is_some_and(|capturing| capturing.capture.has_end());
            if has_end {
                if let TaskInput::Channel { channel, .. } = &mut self.inputs[index] {
                    channel.load();
                }
                self.extend_capture(index, cx)?;
            }
        }
        // If an operator has failed the snapshot, nobody is left to hand the captured over: kept, its memory would be missing to the
        // producers for ever.
        let is_wanted = self.snapshots.running().any(|running| running == checkpoint);
        if let Some(running) = self.captures.running.take()
            && is_wanted
        {
            let channels = running.channels.into_iter().flatten().map(|it| it.captured);
            self.captures.captured.insert(checkpoint, channels.collect());
        }
        Ok(())
    }

    /// Tells which barriers of a checkpoint that was given up have not come.
    pub(super) fn report_awaited(&mut self, checkpoint: CheckpointId, cx: &mut StepContext<'_>) {
        let mut barriers = Vec::new();
        for channel in self.barriers.awaited(checkpoint) {
            if let TaskInput::Channel { channel, .. } = &mut self.inputs[channel.0 as usize] {
                let bytes = channel.bytes_before(checkpoint);
                let (edge, producer) = (channel.edge, channel.producer);
                barriers.push(AwaitedBarrier { edge, producer, bytes });
            }
        }
        if !barriers.is_empty() {
            self.report(ReportKind::Waiting { checkpoint, barriers }, cx);
        }
    }

    /// Tells the snapshot machine something and does what it says.
    pub(super) fn snapshot_with(
        &mut self,
        input: snapshot::Input,
        cx: &mut StepContext<'_>,
    ) -> Result<()> {
        let mut outputs = Vec::new();
        self.snapshots.handle(cx.now, input, &mut outputs);
        for output in outputs {
            self.carry_out_snapshot(output, cx)?;
        }
        Ok(())
    }

    fn carry_out_snapshot(
        &mut self,
        output: SnapshotOutput,
        cx: &mut StepContext<'_>,
    ) -> Result<()> {
        match output {
            // What is firing is not part of any state: it comes out before the barrier.
            SnapshotOutput::Prepare { .. } => {
                for head in &mut self.heads {
                    if let Head::Gate { input, .. } = head {
                        while input.is_firing() {
                            input.proceed(cx.now)?;
                        }
                    }
                }
                Ok(())
            }
            SnapshotOutput::Broadcast { barrier } => self.signal_all(&mut Signal::Barrier(barrier)),
            SnapshotOutput::Snapshot { checkpoint } => self.snapshot(checkpoint, cx),
            SnapshotOutput::BroadcastCancel { checkpoint } => {
                self.signal_all(&mut Signal::Aborted(checkpoint, true))
            }
            SnapshotOutput::NotifyAborted { checkpoint } => {
                self.signal_all(&mut Signal::Aborted(checkpoint, false))
            }
            SnapshotOutput::Drop { checkpoint } => {
                self.captures.parts.remove(&checkpoint);
                self.captures.captured.remove(&checkpoint);
                self.end_with(finish::Input::SnapshotOver { checkpoint }, cx)
            }
            SnapshotOutput::Acknowledge { checkpoint } => self.acknowledge(checkpoint, cx),
            SnapshotOutput::Decline { checkpoint, reason } => {
                if let Some(reason) = reason {
                    let cause = Error::new(ErrorKind::Checkpoint, format!("given up: {reason:?}"));
                    self.report(ReportKind::Declined { checkpoint, cause }, cx);
                }
                self.end_with(finish::Input::SnapshotOver { checkpoint }, cx)
            }
        }
    }

    /// Lets the operators hand out their state.
    fn snapshot(&mut self, checkpoint: CheckpointId, cx: &mut StepContext<'_>) -> Result<()> {
        let started = (cx.clock)();
        let mut snapshot = Snapshot::new(checkpoint);
        let outcome = self.signal_all(&mut Signal::Snapshot(&mut snapshot));
        self.options.metrics.snapshot_step((cx.clock)().since(started));
        match outcome {
            Ok(()) => {
                let channels = self
                    .inputs
                    .iter()
                    .filter_map(|input| match input {
                        TaskInput::Source { .. } => None,
                        TaskInput::Channel { channel, .. } => {
                            let mut read = CapturedChannel::new(channel.edge, channel.producer);
                            read.watermark = channel.watermark;
                            read.is_idle = channel.is_idle;
                            Some(read)
                        }
                    })
                    .collect();
                let taken = Taken {
                    parts: snapshot.into_parts(),
                    operators_finished: self.ending.operators_finished(),
                    ended_inputs: self.ending.ended_inputs().iter().map(|i| *i as u32).collect(),
                    channels,
                };
                self.captures.parts.insert(checkpoint, taken);
                // The parts write themselves from here on, whatever becomes of the task.
                for part in [Part::Operators, Part::Outputs] {
                    self.snapshot_with(snapshot::Input::Done { checkpoint, part }, cx)?;
                }
                Ok(())
            }
            Err(cause) => {
                let cause = self.blame(cause);
                self.report(ReportKind::Declined { checkpoint, cause }, cx);
                self.snapshot_with(snapshot::Input::Failed { checkpoint }, cx)
            }
        }
    }

    /// All parts are there: hands them over.
    fn acknowledge(&mut self, checkpoint: CheckpointId, cx: &mut StepContext<'_>) -> Result<()> {
        if let Some(taken) = self.captures.parts.remove(&checkpoint) {
            let channels = self.captures.captured.remove(&checkpoint).unwrap_or(taken.channels);
            let kind = ReportKind::Snapshot {
                checkpoint,
                parts: taken.parts,
                channels,
                operators_finished: taken.operators_finished,
                ended_inputs: taken.ended_inputs,
                alignment: self.barriers.report().filter(|r| r.checkpoint == checkpoint),
            };
            self.report(kind, cx);
            for input in &mut self.inputs {
                if let TaskInput::Channel { channel, .. } = input {
                    channel.make_room();
                }
            }
        }
        self.end_with(finish::Input::SnapshotOver { checkpoint }, cx)
    }
}
