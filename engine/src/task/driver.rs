//! The task itself: what one step does, and how the machines' answers are carried out.
//!
//! A step serves priority entries and timers, goes on with what fires, then reads one buffer or one event or polls a
//! source, in batches; between two batches it looks whether mail or a priority entry has come. A task whose output is full reads no
//! data, but serves everything else, and a barrier needs no output buffer.

use std::sync::Arc;
use std::time::Duration;

use super::inputs::{GateTime, TaskInput};
use super::lifecycle::Phase;
use super::message::{Mail, Report, ReportKind};
use super::pace::Pace;
use crate::barrier::{self, Input, Machine, Output};
use crate::channel::event::{Barrier, Event, Position};
use crate::channel::input::Read;
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{AttemptId, ChannelIndex, CheckpointId};
use crate::metrics::TaskMetrics;
use crate::operator::{Head, Signal};
use crate::sink::Readiness;
use crate::source::Poll;
use crate::state::part::Snapshot;

/// What a task is made with.
#[derive(Debug)]
pub struct TaskOptions {
    /// Which attempt.
    pub attempt: AttemptId,
    /// The vertex's name, for errors.
    pub name: Arc<str>,
    /// Whether the job takes checkpoints: then the end waits for a last one where something depends on it.
    pub checkpointed: bool,
    /// Whether the task has state or commits: then it waits for a last checkpoint.
    pub has_state: bool,
    /// Whether a producer stays until its consumers have taken its end of data.
    pub drain_hold: bool,
    /// The restored checkpoint.
    pub restored: Option<CheckpointId>,
    /// How often generators of watermarks are asked.
    pub watermark_interval: Duration,
    /// How often sources send latency markers; zero for never.
    pub latency_interval: Duration,
    /// The counters.
    pub metrics: Arc<TaskMetrics>,
}

/// What a step gets from the worker.
pub struct StepContext<'a> {
    /// The moment the step began.
    pub now: Timestamp,
    /// Reads the clock.
    pub clock: &'a dyn Fn() -> Timestamp,
    /// Whether mail has come since the step began.
    pub has_mail: &'a dyn Fn() -> bool,
    /// Takes reports.
    pub reports: &'a mut Vec<Report>,
}

impl std::fmt::Debug for StepContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepContext").field("now", &self.now).finish_non_exhaustive()
    }
}

/// What a step achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was done; there may be more.
    Busy,
    /// Nothing to do before that moment, unless woken.
    Idle(Timestamp),
    /// The task has left.
    Done,
}

/// One attempt of one subtask.
#[derive(Debug)]
pub struct Task {
    options: TaskOptions,
    heads: Vec<Head>,
    gate_times: Vec<GateTime>,
    /// Heads whose input has ended.
    ended_heads: Vec<bool>,
    inputs: Vec<TaskInput>,
    next_input: usize,
    paces: Vec<Pace>,
    machine: Machine,
    outputs: Vec<Output>,
    phase: Phase,
    awaits_reported: bool,
    last_snapshot: Option<CheckpointId>,
    last_completed: Option<CheckpointId>,
    is_flushed: bool,
    next_watermark: Timestamp,
    next_latency: Timestamp,
    stop: Option<bool>,
}

impl Task {
    /// The task of heads and inputs. Inputs are in the order of the alignment machine's channels.
    pub fn new(options: TaskOptions, heads: Vec<Head>, inputs: Vec<TaskInput>) -> Self {
        let machine = Machine::new(barrier::Config {
            restored: options.restored,
            ..barrier::Config::exactly_once(inputs.len())
        });
        let mut heads = heads;
        let paces = heads.iter_mut().map(|head| Pace::new(head.driven().batch_max())).collect();
        Self {
            last_completed: options.restored,
            options,
            gate_times: vec![GateTime::default(); heads.len()],
            ended_heads: vec![false; heads.len()],
            heads,
            inputs,
            next_input: 0,
            paces,
            machine,
            outputs: Vec::new(),
            phase: Phase::Running,
            awaits_reported: false,
            last_snapshot: None,
            is_flushed: true,
            next_watermark: Timestamp::ZERO,
            next_latency: Timestamp::ZERO,
            stop: None,
        }
    }

    /// Which attempt.
    pub fn attempt(&self) -> AttemptId {
        self.options.attempt
    }

    /// The counters.
    pub fn metrics(&self) -> &Arc<TaskMetrics> {
        &self.options.metrics
    }

    /// Names the operator in an error that has none.
    pub fn blame(&self, error: Error) -> Error {
        error.in_operator(&*self.options.name).in_subtask(self.options.attempt.subtask.index)
    }

    /// Takes mail.
    ///
    /// # Errors
    /// The task fails.
    pub fn mail(&mut self, mail: Mail, cx: &mut StepContext<'_>) -> Result<()> {
        match mail {
            Mail::Trigger(barrier) => self.trigger(barrier, cx),
            Mail::Complete(checkpoint) => self.complete(checkpoint),
            Mail::Aborted { checkpoint, latest } => {
                if let Some(latest) = latest {
                    self.complete(latest)?;
                }
                self.input(Input::Abort { checkpoint }, cx)?;
                self.signal_all(&mut Signal::Aborted(checkpoint, false))
            }
            Mail::PermitGranted => {
                if self.phase == Phase::Asking {
                    self.phase = Phase::Leaving;
                    self.signal_all(&mut Signal::EndOfPartition)?;
                }
                Ok(())
            }
            Mail::PermitHeld(pending) => {
                // Those triggers were addressed to this task; it acts as if they had arrived.
                for barrier in pending {
                    self.trigger(barrier, cx)?;
                }
                if self.phase == Phase::Asking {
                    self.phase = Phase::Waiting { final_from: None, is_covered: true };
                }
                Ok(())
            }
            Mail::Stop { drain } => {
                self.stop = Some(drain);
                Ok(())
            }
        }
    }

    /// Does a piece of work of about 20 µs or one buffer.
    ///
    /// # Errors
    /// The task fails.
    pub fn step(&mut self, cx: &mut StepContext<'_>) -> Result<Progress> {
        let mut busy = self.serve_priorities(cx)?;
        if self.machine.deadline().is_some_and(|deadline| deadline <= cx.now) {
            self.input(Input::Tick, cx)?;
        }
        self.serve_periodic(cx)?;
        if self.proceed(cx)? {
            return Ok(Progress::Busy);
        }
        match self.phase {
            Phase::Running => {}
            Phase::Finishing { .. } | Phase::Waiting { .. } | Phase::Asking | Phase::Leaving => {
                if self.advance(cx)? {
                    return Ok(Progress::Busy);
                }
            }
            Phase::Done => return Ok(Progress::Done),
        }
        let mut wake = self.deadline();
        if self.read_one(cx, &mut wake)? {
            self.is_flushed = false;
            busy = true;
        } else if !self.is_flushed {
            self.is_flushed = true;
            self.signal_all(&mut Signal::EmitWatermark)?;
            self.signal_all(&mut Signal::Flush)?;
        }
        Ok(if busy { Progress::Busy } else { Progress::Idle(wake) })
    }

    /// The next moment that something is due.
    fn deadline(&self) -> Timestamp {
        let mut at = self.machine.deadline().unwrap_or(Timestamp::MAX);
        for head in &self.heads {
            if let Head::Gate { input, .. } = head {
                at = at.min(input.deadline().unwrap_or(Timestamp::MAX));
            }
        }
        if self.phase == Phase::Running && self.has_source() && self.next_latency != Timestamp::ZERO
        {
            at = at.min(self.next_latency);
        }
        at
    }

    fn has_source(&self) -> bool {
        self.inputs.iter().any(|input| matches!(input, TaskInput::Source { is_ended: false, .. }))
    }

    /// Serves the priority side of every channel.
    fn serve_priorities(&mut self, cx: &mut StepContext<'_>) -> Result<bool> {
        let mut served = false;
        for index in 0..self.inputs.len() {
            while let TaskInput::Channel { channel, .. } = &mut self.inputs[index]
                && let Some(entry) = channel.poll_priority()
            {
                self.priority(index, entry.event, entry.position, cx)?;
                served = true;
            }
        }
        Ok(served)
    }

    fn priority(
        &mut self,
        index: usize,
        event: Event,
        position: u64,
        cx: &mut StepContext<'_>,
    ) -> Result<()> {
        let channel = ChannelIndex(index as u32);
        let position = Position(position);
        let input = match event {
            Event::Barrier(barrier) => Input::PriorityBarrier { channel, barrier, position },
            Event::Announcement { barrier, position } => {
                Input::Announcement { channel, barrier, position }
            }
            Event::FinishNotice { next } => Input::FinishNotice { channel, next, position },
            Event::Cancel { .. }
            | Event::Watermark(_)
            | Event::Idle
            | Event::Active
            | Event::EndOfData { .. }
            | Event::EndOfPartition
            | Event::LatencyMarker { .. } => {
                return Err(Error::new(ErrorKind::Internal, format!("{event:?} never overtakes")));
            }
        };
        self.input(input, cx)
    }

    /// Asks generators of watermarks and sends latency markers when it is time.
    fn serve_periodic(&mut self, cx: &mut StepContext<'_>) -> Result<()> {
        if self.phase != Phase::Running {
            return Ok(());
        }
        if cx.now >= self.next_watermark {
            self.next_watermark = cx.now + self.options.watermark_interval;
            if !self.has_pending(cx)? {
                self.signal_all(&mut Signal::EmitWatermark)?;
            }
        }
        if cx.now >= self.next_latency && !self.options.latency_interval.is_zero() {
            self.next_latency = cx.now + self.options.latency_interval;
            let source = self.options.attempt.subtask;
            for head in &mut self.heads {
                if let Head::Source(head) = head {
                    head.signal(&mut Signal::LatencyMarker {
                        emitted_at: cx.now,
                        source,
                        now: cx.now,
                    })?;
                }
            }
        }
        Ok(())
    }

    fn has_pending(&mut self, cx: &StepContext<'_>) -> Result<bool> {
        let mut pending = false;
        for head in &mut self.heads {
            if let Head::Gate { input, .. } = head
                && input.ready(cx.now) == Readiness::Ready
            {
                pending |= input.proceed(cx.now)?;
            }
        }
        Ok(pending)
    }

    /// Goes on with windows and timers that fire. `true` while nothing else of the task's data may be touched.
    fn proceed(&mut self, cx: &mut StepContext<'_>) -> Result<bool> {
        self.has_pending(cx)
    }

    /// Reads from the inputs in turn: one buffer, one event or some batches of a source.
    fn read_one(&mut self, cx: &mut StepContext<'_>, wake: &mut Timestamp) -> Result<bool> {
        for turn in 0..self.inputs.len() {
            let index = (self.next_input + turn) % self.inputs.len();
            if self.read_input(index, cx, wake)? {
                self.next_input = (index + 1) % self.inputs.len();
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read_input(
        &mut self,
        index: usize,
        cx: &mut StepContext<'_>,
        wake: &mut Timestamp,
    ) -> Result<bool> {
        let head = self.inputs[index].head();
        match &mut self.inputs[index] {
            TaskInput::Source { is_blocked, is_ended, busy_until, .. } => {
                if *is_blocked || *is_ended {
                    return Ok(false);
                }
                if *busy_until > cx.now && self.stop.is_none() {
                    *wake = (*wake).min(*busy_until);
                    return Ok(false);
                }
                self.poll_source(index, head, cx, wake)
            }
            TaskInput::Channel { channel, .. } => {
                if channel.is_blocked || channel.is_ended {
                    return Ok(false);
                }
                // Asked before anything is taken: a full output leaves the buffer in its channel.
                match self.heads[head].driven().ready(cx.now) {
                    Readiness::Ready => {}
                    Readiness::Busy(until) => {
                        *wake = (*wake).min(until);
                        return Ok(false);
                    }
                }
                match channel.read() {
                    Read::Empty | Read::Broken => Ok(false),
                    Read::Buffer => self.take_buffer(index, head, cx).map(|()| true),
                    Read::Event(event, _) => self.event(index, head, event, cx).map(|()| true),
                    Read::Priority(entry) => {
                        self.priority(index, entry.event, entry.position, cx).map(|()| true)
                    }
                    Read::End => self.end_of_partition(index, cx).map(|()| true),
                }
            }
        }
    }

    /// Whether the step is to end between two batches.
    fn is_interrupted(&mut self, cx: &mut StepContext<'_>) -> Result<bool> {
        Ok((cx.has_mail)() || self.serve_priorities(cx)?)
    }

    fn take_buffer(&mut self, index: usize, head: usize, cx: &mut StepContext<'_>) -> Result<()> {
        let (mut records, mut batches, started) = (0, 0, (cx.clock)());
        let mut bytes = 0;
        loop {
            let TaskInput::Channel { channel, .. } = &mut self.inputs[index] else { break };
            // A priority entry served between two batches may have blocked the channel.
            if channel.is_blocked {
                break;
            }
            let Some(reading) = channel.reading() else { break };
            let Head::Gate { input, .. } = &mut self.heads[head] else { break };
            let place = ChannelIndex(index as u32);
            let limit = self.paces[head].batch();
            let taken = input.take(place, &reading.buffer, reading.offset, limit);
            bytes += taken.next - reading.offset;
            reading.offset = taken.next;
            records += taken.records;
            batches += 1;
            if reading.offset >= reading.buffer.len() {
                channel.release();
                break;
            }
            let ready = input.ready(cx.now);
            if ready != Readiness::Ready {
                break;
            }
            if !self.paces[head].is_quick() {
                self.paces[head].took((cx.clock)().since(started), batches);
            }
            if self.is_interrupted(cx)? {
                break;
            }
        }
        let elapsed = (cx.clock)().since(started);
        self.paces[head].took(elapsed, batches);
        self.options.metrics.took_records(records as u64);
        self.options.metrics.took_buffer(bytes as u64);
        self.options.metrics.was_busy(elapsed);
        if self.machine.is_aligning() {
            self.input(Input::Processed { bytes: bytes as u64 }, cx)?;
        }
        Ok(())
    }

    fn poll_source(
        &mut self,
        index: usize,
        head: usize,
        cx: &mut StepContext<'_>,
        wake: &mut Timestamp,
    ) -> Result<bool> {
        if let Some(drain) = self.stop {
            self.end_source(index, head, drain, cx)?;
            return Ok(true);
        }
        let (mut total, mut batches, started) = (0, 0, (cx.clock)());
        let mut progress = false;
        while batches < SOURCE_BATCHES {
            let Head::Source(source) = &mut self.heads[head] else { break };
            match source.ready(cx.now) {
                Readiness::Ready => {}
                Readiness::Busy(until) => {
                    *wake = (*wake).min(until);
                    break;
                }
            }
            let (poll, records) = source.poll(self.paces[head].batch(), cx.now)?;
            total += records;
            batches += 1;
            progress |= records > 0;
            match poll {
                Poll::Ready => progress = true,
                Poll::Busy(until) => {
                    if let TaskInput::Source { busy_until, .. } = &mut self.inputs[index] {
                        *busy_until = until;
                    }
                    *wake = (*wake).min(until);
                    break;
                }
                Poll::End => {
                    self.end_source(index, head, true, cx)?;
                    progress = true;
                    break;
                }
            }
            if !self.paces[head].is_quick() {
                self.paces[head].took((cx.clock)().since(started), batches);
                if (cx.clock)().since(started) > STEP_TIME {
                    break;
                }
            }
            if self.is_interrupted(cx)? {
                break;
            }
        }
        if batches > 0 {
            let elapsed = (cx.clock)().since(started);
            self.paces[head].took(elapsed, batches);
            self.options.metrics.took_records(total as u64);
            self.options.metrics.was_busy(elapsed);
        }
        Ok(progress)
    }

    /// An event that stands in band.
    fn event(
        &mut self,
        index: usize,
        head: usize,
        event: Event,
        cx: &mut StepContext<'_>,
    ) -> Result<()> {
        let place = ChannelIndex(index as u32);
        let TaskInput::Channel { channel, .. } = &mut self.inputs[index] else {
            return Err(Error::new(ErrorKind::Internal, "a source has no events"));
        };
        match event {
            Event::Barrier(barrier) => self.input(Input::Barrier { channel: place, barrier }, cx),
            Event::Cancel { checkpoint } => {
                self.input(Input::Cancel { channel: place, checkpoint }, cx)
            }
            Event::Watermark(watermark) => {
                channel.watermark = channel.watermark.max(watermark);
                channel.is_idle = false;
                self.gate_time(head)
            }
            Event::Idle => {
                channel.is_idle = true;
                self.gate_time(head)
            }
            Event::Active => {
                channel.is_idle = false;
                self.gate_time(head)
            }
            Event::EndOfData { drain } => {
                channel.is_data_ended = true;
                self.input(Input::EndOfData { channel: place }, cx)?;
                self.end_of_input(head, drain, cx)
            }
            Event::LatencyMarker { emitted_at, source } => {
                let now = (cx.clock)();
                self.heads[head].driven().signal(&mut Signal::LatencyMarker {
                    emitted_at,
                    source,
                    now,
                })
            }
            Event::Announcement { .. } | Event::FinishNotice { .. } | Event::EndOfPartition => {
                Err(Error::new(ErrorKind::Internal, format!("{event:?} never stands in band")))
            }
        }
    }

    /// A channel's watermark or status has changed: tells the gate's head what that makes.
    fn gate_time(&mut self, head: usize) -> Result<()> {
        let least = GateTime::least(&self.inputs, head);
        let time = &mut self.gate_times[head];
        if least.is_none() != time.is_idle {
            time.is_idle = least.is_none();
            self.heads[head].driven().signal(&mut Signal::Idle(least.is_none()))?;
        }
        let time = &mut self.gate_times[head];
        if let Some(least) = least
            && least > time.watermark
        {
            time.watermark = least;
            self.heads[head].driven().signal(&mut Signal::Watermark(least))?;
        }
        Ok(())
    }

    fn end_source(
        &mut self,
        index: usize,
        head: usize,
        drain: bool,
        cx: &mut StepContext<'_>,
    ) -> Result<()> {
        if let TaskInput::Source { is_ended, .. } = &mut self.inputs[index] {
            *is_ended = true;
        }
        self.input(Input::EndOfPartition { channel: ChannelIndex(index as u32) }, cx)?;
        if drain {
            // FLIP-147, finishing sources: MAX fires every event-time timer along the pipeline.
            self.heads[head].driven().signal(&mut Signal::Watermark(EpochMillis::MAX))?;
        }
        self.end_of_input(head, drain, cx)
    }

    /// An input has no more records; when all have none, the task begins to finish.
    fn end_of_input(&mut self, head: usize, drain: bool, _: &mut StepContext<'_>) -> Result<()> {
        let all_ended = |inputs: &[TaskInput], of: &dyn Fn(usize) -> bool| {
            inputs.iter().filter(|input| of(input.head())).all(TaskInput::is_data_ended)
        };
        if all_ended(&self.inputs, &|h| h == head) {
            self.ended_heads[head] = true;
        }
        if all_ended(&self.inputs, &|_| true) {
            self.phase = Phase::Finishing { drain };
        }
        Ok(())
    }

    fn end_of_partition(&mut self, index: usize, cx: &mut StepContext<'_>) -> Result<()> {
        if let TaskInput::Channel { channel, .. } = &mut self.inputs[index] {
            channel.is_ended = true;
        }
        self.input(Input::EndOfPartition { channel: ChannelIndex(index as u32) }, cx)
    }

    /// Goes on with finishing and leaving. `true` if the step is over.
    fn advance(&mut self, cx: &mut StepContext<'_>) -> Result<bool> {
        match self.phase {
            Phase::Running | Phase::Done => Ok(false),
            Phase::Finishing { drain } => {
                if drain {
                    let checkpointed = self.options.checkpointed;
                    self.signal_all(&mut Signal::Finish { checkpointed })?;
                }
                self.signal_all(&mut Signal::EndOfData { drain })?;
                self.signal_all(&mut Signal::Flush)?;
                let is_covered = !(self.options.checkpointed && self.options.has_state);
                self.phase = Phase::Waiting { final_from: None, is_covered };
                self.report(ReportKind::EndOfData, cx);
                if !is_covered {
                    self.awaits_reported = true;
                    self.report(ReportKind::AwaitsCheckpoint(true), cx);
                }
                Ok(true)
            }
            Phase::Waiting { is_covered, .. } => {
                let all_ended = self.inputs.iter().all(TaskInput::is_ended);
                let held =
                    self.options.drain_hold && self.options.checkpointed && !self.outputs_taken();
                if is_covered
                    && all_ended
                    && !held
                    && !self.machine.is_pending()
                    && self.outputs_flushed()
                {
                    if self.awaits_reported {
                        self.awaits_reported = false;
                        self.report(ReportKind::AwaitsCheckpoint(false), cx);
                    }
                    self.phase = Phase::Asking;
                    let last = self.last_snapshot;
                    self.report(ReportKind::FinishRequest { last }, cx);
                    return Ok(true);
                }
                Ok(false)
            }
            Phase::Asking => Ok(false),
            Phase::Leaving => {
                if self.outputs_flushed() {
                    self.phase = Phase::Done;
                    self.report(ReportKind::Finished, cx);
                    return Ok(true);
                }
                Ok(false)
            }
        }
    }

    fn outputs_taken(&mut self) -> bool {
        let mut taken = true;
        let query = &mut Signal::EndOfDataTaken(&mut taken);
        let _ = Self::signal_heads(&mut self.heads, query);
        taken
    }

    fn outputs_flushed(&mut self) -> bool {
        let mut flushed = true;
        let query = &mut Signal::Flushed(&mut flushed);
        let _ = Self::signal_heads(&mut self.heads, query);
        flushed
    }

    fn trigger(&mut self, barrier: Barrier, cx: &mut StepContext<'_>) -> Result<()> {
        if self.last_snapshot.is_some_and(|last| last >= barrier.checkpoint) {
            return Ok(());
        }
        let mut sources = false;
        for index in 0..self.inputs.len() {
            if matches!(self.inputs[index], TaskInput::Source { is_ended: false, .. }) {
                sources = true;
                let channel = ChannelIndex(index as u32);
                self.input(Input::Barrier { channel, barrier }, cx)?;
            }
        }
        if sources { Ok(()) } else { self.input(Input::Trigger { barrier }, cx) }
    }

    fn complete(&mut self, checkpoint: CheckpointId) -> Result<()> {
        if self.last_completed.is_some_and(|last| last >= checkpoint) {
            return Ok(());
        }
        self.last_completed = Some(checkpoint);
        self.phase.completed(checkpoint);
        self.signal_all(&mut Signal::Complete(checkpoint))
    }

    /// Tells the alignment machine something and does what it says.
    fn input(&mut self, input: Input, cx: &mut StepContext<'_>) -> Result<()> {
        let mut outputs = std::mem::take(&mut self.outputs);
        self.machine.handle(cx.now, input, &mut outputs);
        for output in outputs.drain(..) {
            self.carry_out(output, cx)?;
        }
        self.outputs = outputs;
        Ok(())
    }

    fn carry_out(&mut self, output: Output, cx: &mut StepContext<'_>) -> Result<()> {
        match output {
            Output::Block { channel } => {
                self.inputs[channel.0 as usize].set_blocked(true);
                Ok(())
            }
            Output::Resume { channel } => {
                self.inputs[channel.0 as usize].set_blocked(false);
                Ok(())
            }
            Output::Snapshot { barrier } => self.snapshot(barrier, cx),
            Output::Completed { .. } => Ok(()),
            Output::Abort { checkpoint, reason } => {
                self.signal_all(&mut Signal::Aborted(checkpoint, true))?;
                if reason != barrier::AbortReason::Notice {
                    let cause = Error::new(ErrorKind::Checkpoint, format!("given up: {reason:?}"));
                    self.report(ReportKind::Declined { checkpoint, cause }, cx);
                }
                Ok(())
            }
            Output::Decline { checkpoint } => {
                let cause = Error::new(ErrorKind::Checkpoint, "a newer checkpoint has started");
                self.report(ReportKind::Declined { checkpoint, cause }, cx);
                Ok(())
            }
            Output::CaptureStart { checkpoint }
            | Output::CaptureStop { checkpoint }
            | Output::CaptureAbort { checkpoint } => Err(Self::unsupported(checkpoint)),
            Output::CaptureUntil { .. } | Output::CaptureLoaded { .. } => {
                Err(Self::unsupported(CheckpointId(0)))
            }
        }
    }

    fn unsupported(checkpoint: CheckpointId) -> Error {
        let message = format!("checkpoint {checkpoint}: unaligned checkpoints are not supported");
        Error::new(ErrorKind::Unsupported, message)
    }

    /// Takes the task's snapshot here: barrier first, then the state, head to tail.
    fn snapshot(&mut self, barrier: Barrier, cx: &mut StepContext<'_>) -> Result<()> {
        let checkpoint = barrier.checkpoint;
        // What is firing is not part of any state: it comes out before the barrier.
        for head in &mut self.heads {
            if let Head::Gate { input, .. } = head {
                while input.proceed(cx.now)? {}
            }
        }
        self.signal_all(&mut Signal::Barrier(barrier))?;
        let started = (cx.clock)();
        let mut snapshot = Snapshot::new(checkpoint);
        let outcome = self.signal_all(&mut Signal::Snapshot(&mut snapshot));
        self.options.metrics.snapshot_step((cx.clock)().since(started));
        self.last_snapshot = Some(checkpoint);
        self.phase.snapshot_taken(checkpoint);
        let kind = match outcome {
            Ok(()) => ReportKind::Snapshot {
                checkpoint,
                parts: snapshot.into_parts(),
                operators_finished: self.phase.is_data_ended(),
                alignment: self.machine.report(),
            },
            Err(cause) => ReportKind::Declined { checkpoint, cause: self.blame(cause) },
        };
        self.report(kind, cx);
        Ok(())
    }

    fn signal_all(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        Self::signal_heads(&mut self.heads, signal)
    }

    fn signal_heads(heads: &mut [Head], signal: &mut Signal<'_>) -> Result<()> {
        heads.iter_mut().try_for_each(|head| head.driven().signal(signal))
    }

    fn report(&self, kind: ReportKind, cx: &mut StepContext<'_>) {
        cx.reports.push(Report { attempt: self.options.attempt, kind });
    }
}

/// How many batches of a source make a step at the most.
const SOURCE_BATCHES: u32 = 16;
/// How long a step of a source with slow batches may take.
const STEP_TIME: Duration = Duration::from_micros(20);
