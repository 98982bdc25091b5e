//! The task itself: what one step does.
//!
//! A step loads each channel's tail and serves its priority side, serves timers, extends captures, goes on with what fires and
//! with ending, then reads one buffer or one event or polls a source, in batches; between two batches it looks whether mail or a
//! priority entry has come. A task whose output is full reads no data, but serves everything else, and a barrier needs no output
//! buffer. What the machines answer is carried out by `checkpointing` and `ending`; inputs are read by `reading`.

use std::sync::Arc;
use std::time::Duration;

use super::checkpointing::Captures;
use super::ending::RunningStep;
use super::inputs::{GateTime, TaskInput};
use super::message::{Mail, Report, ReportKind};
use super::pace::Pace;
use super::reading::ReadOutcome;
use super::{finish, snapshot};
use crate::barrier::{self, Guarantee, Input};
use crate::channel::capture::Restores;
use crate::channel::event::{Event, Position};
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{AttemptId, ChannelIndex, CheckpointId};
use crate::metrics::TaskMetrics;
use crate::operator::{Head, Signal};
use crate::sink::Readiness;

/// What a task is made with.
#[derive(Clone, Debug)]
pub struct TaskOptions {
    /// Which attempt.
    pub attempt: AttemptId,
    /// The vertex's name, for errors.
    pub name: Arc<str>,
    /// Whether the job takes checkpoints: then the end waits for a last one where something depends on it.
    pub checkpointed: bool,
    /// What a restore may show of a record.
    pub guarantee: Guarantee,
    /// Whether the task has state or commits: then it waits for a last checkpoint.
    pub has_state: bool,
    /// Whether records come out of it when a checkpoint is complete: then its end of data waits for the last one.
    pub emits_on_commit: bool,
    /// Whether it has outputs to other tasks.
    pub has_outputs: bool,
    /// Whether what is in flight on its inputs may be captured; if not, it aligns whatever triggers it.
    pub may_capture: bool,
    /// Whether a producer stays until its consumers have taken its end of data.
    pub drain_hold: bool,
    /// The restored checkpoint.
    pub restored: Option<CheckpointId>,
    /// Whether all operators had finished in the restored checkpoint.
    pub operators_finished: bool,
    /// Inputs whose end the operators had been told before.
    pub ended_inputs: Vec<u32>,
    /// How often generators of watermarks are asked.
    pub watermark_interval: Duration,
    /// After this time a buffer is sent although it is not full.
    pub buffer_timeout: Duration,
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

/// How often a task at its end looks whether its consumers have read that.
const CONSUMERS_POLL: Duration = Duration::from_millis(1);

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
    pub(super) options: TaskOptions,
    pub(super) heads: Vec<Head>,
    pub(super) gate_times: Vec<GateTime>,
    pub(super) inputs: Vec<TaskInput>,
    pub(super) next_input: usize,
    pub(super) paces: Vec<Pace>,
    pub(super) barriers: barrier::Machine,
    pub(super) barrier_outputs: Vec<barrier::Output>,
    pub(super) ending: finish::Machine,
    pub(super) running_step: Option<RunningStep>,
    pub(super) snapshots: snapshot::Machine,
    pub(super) captures: Captures,
    pub(super) is_flushed: bool,
    /// The producer's side of the outputs is being emptied before the task asks its permit, or leaves.
    pub(super) is_flushing: bool,
    pub(super) is_leaving: bool,
    pub(super) is_done: bool,
    pub(super) has_sources_only: bool,
    /// The most restores that a recovered entry left in some channel has been through; none if none is left. Such entries are older
    /// than those with fewer and than all that the lanes bring, also in other channels: after a change of parallelism a key's next
    /// records may come from another producer.
    pub(super) recovering: Option<Restores>,
    next_watermark: Timestamp,
    /// When generators of watermarks want to be asked though nothing has come.
    ask_again: Timestamp,
    /// Whether they were asked since something last came out.
    is_asked: bool,
    next_flush: Timestamp,
    next_latency: Timestamp,
    /// Whether sources have emitted records since the last latency marker; without any there is no latency to tell.
    pub(super) has_emitted: bool,
    /// What the last step found, and when.
    standing: Standing,
    stands_since: Option<Timestamp>,
}

/// What becomes of the time until a task's next step.
#[derive(Clone, Copy, Debug)]
enum Standing {
    /// It has more to do; other tasks may have their turn first.
    Busy,
    /// It has nothing to do.
    Idle,
    /// There is no room for what would come out.
    BackPressured,
}

impl Task {
    /// The task of heads and inputs. Sources come first among the inputs; then the gates' channels, gate by gate. Their places are
    /// the channel indices of the machines.
    pub fn new(options: TaskOptions, heads: Vec<Head>, inputs: Vec<TaskInput>) -> Self {
        let barriers = barrier::Machine::new(barrier::Config {
            channels: inputs.len(),
            guarantee: options.guarantee,
            after_finish: true,
            restored: options.restored,
        });
        let has_sources_only = inputs.iter().all(|input| matches!(input, TaskInput::Source { .. }));
        let ending = finish::Machine::new(finish::Config {
            inputs: if has_sources_only { Vec::new() } else { gate_sizes(&inputs) },
            operators: 1,
            lanes: usize::from(options.has_outputs),
            checkpointing: options.checkpointed,
            drain_hold: options.drain_hold,
            needs_final_checkpoint: options.has_state,
            emits_on_commit: options.emits_on_commit,
            restored: options.restored,
            ended_inputs: options.ended_inputs.iter().map(|input| *input as usize).collect(),
            operators_finished: options.operators_finished,
        });
        let recovering = inputs.iter().filter_map(TaskInput::next_recovered).max();
        let mut heads = heads;
        let paces = heads.iter_mut().map(|head| Pace::new(head.driven().batch_max())).collect();
        Self {
            snapshots: snapshot::Machine::new(options.restored),
            captures: Captures::default(),
            gate_times: vec![GateTime::default(); heads.len()],
            options,
            heads,
            inputs,
            next_input: 0,
            paces,
            barriers,
            barrier_outputs: Vec::new(),
            ending,
            running_step: None,
            is_flushed: true,
            is_flushing: false,
            is_leaving: false,
            is_done: false,
            has_sources_only,
            recovering,
            next_watermark: Timestamp::ZERO,
            ask_again: Timestamp::MAX,
            is_asked: true,
            next_flush: Timestamp::ZERO,
            next_latency: Timestamp::ZERO,
            has_emitted: false,
            standing: Standing::Busy,
            stands_since: None,
        }
    }

    /// Begins: channels that are born ended are announced, restored watermarks take effect.
    ///
    /// # Errors
    /// The task fails.
    pub fn start(&mut self, cx: &mut StepContext<'_>) -> Result<()> {
        // A marker closes the open buffers, which may be the only ones: not already behind the first batch.
        self.next_latency = cx.now + self.options.latency_interval;
        for index in 0..self.inputs.len() {
            if let TaskInput::Channel { channel, .. } = &self.inputs[index]
                && channel.is_born_ended()
            {
                let channel = ChannelIndex(index as u32);
                let position = Position(0);
                let next =
                    self.options.restored.map_or(CheckpointId(0), |id| CheckpointId(id.0 + 1));
                self.input(Input::FinishNotice { channel, next, position }, cx)?;
            }
        }
        for head in 0..self.heads.len() {
            if let Head::Gate { .. } = self.heads[head] {
                self.gate_time(head)?;
            }
        }
        self.end_with(finish::Input::Start, cx)
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
            Mail::Trigger(barrier) => self.end_with(finish::Input::Trigger { barrier }, cx),
            Mail::Complete(checkpoint) => self.end_with(finish::Input::Complete { checkpoint }, cx),
            Mail::Aborted { checkpoint, latest } => {
                self.report_awaited(checkpoint, cx);
                self.end_with(finish::Input::Aborted { checkpoint, latest }, cx)
            }
            Mail::PermitGranted => self.end_with(finish::Input::Granted, cx),
            Mail::PermitHeld(pending) => self.end_with(finish::Input::Hold { pending }, cx),
            Mail::Stop { drain } => self.stop_sources(drain, cx),
        }
    }

    /// Does a piece of work of about 20 µs or one buffer.
    ///
    /// # Errors
    /// The task fails.
    pub fn step(&mut self, cx: &mut StepContext<'_>) -> Result<Progress> {
        let waited = self.stands_since.map_or(Duration::ZERO, |since| cx.now.since(since));
        match self.standing {
            Standing::Busy => {}
            Standing::Idle => self.options.metrics.was_idle(waited),
            Standing::BackPressured => self.options.metrics.was_back_pressured(waited),
        }
        self.stands_since = Some(cx.now);
        self.standing = Standing::Idle;
        let progress = self.work(cx)?;
        if let (Progress::Busy, Standing::Idle) = (progress, self.standing) {
            self.standing = Standing::Busy;
        }
        Ok(progress)
    }

    fn work(&mut self, cx: &mut StepContext<'_>) -> Result<Progress> {
        let mut busy = self.serve_priorities(cx)?;
        if self.barriers.deadline().is_some_and(|deadline| deadline <= cx.now) {
            self.input(Input::Tick, cx)?;
            busy = true;
        }
        self.extend_captures(cx)?;
        self.serve_periodic(cx)?;
        let firing = self.proceed(cx)?;
        let mut wake = self.deadline().min(firing.wake);
        if self.waits_for_consumers() {
            // A consumer that reads events wakes nobody.
            wake = wake.min(cx.now + CONSUMERS_POLL);
        }
        if firing.has_progress {
            self.is_flushed = false;
            self.is_asked = false;
            return Ok(Progress::Busy);
        }
        if firing.is_blocked {
            self.standing = Standing::BackPressured;
            self.flush_once()?;
            return Ok(if busy { Progress::Busy } else { Progress::Idle(wake) });
        }
        self.settle_gate_times()?;
        if self.advance_ending(cx)? {
            return Ok(Progress::Busy);
        }
        if self.is_done {
            return Ok(Progress::Done);
        }
        match self.read_one(cx, &mut wake)? {
            ReadOutcome::Progress => {
                self.is_flushed = false;
                self.is_asked = false;
                busy = true;
            }
            // `buffer.timeout` sends what waits too long.
            ReadOutcome::Blocked => {
                self.standing = Standing::BackPressured;
                wake = wake.min(self.next_flush);
            }
            ReadOutcome::Empty => {
                if !self.is_asked && !self.is_firing() {
                    self.ask_watermarks(cx.now)?;
                }
                wake = wake.min(self.ask_again);
                if !self.is_firing() {
                    self.flush_once()?;
                }
            }
        }
        Ok(if busy || self.is_firing() { Progress::Busy } else { Progress::Idle(wake) })
    }

    /// Sends what is buffered, if anything has come out since it was sent.
    fn flush_once(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_flushed, true) {
            return Ok(());
        }
        self.signal_all(&mut Signal::Flush)
    }

    /// The next moment that something other than a timer of an operator is due.
    fn deadline(&self) -> Timestamp {
        let mut at = self.barriers.deadline().unwrap_or(Timestamp::MAX);
        if self.has_emitted && !self.options.latency_interval.is_zero() {
            at = at.min(self.next_latency);
        }
        at
    }

    /// Whether it goes on when consumers have read what was sent.
    fn waits_for_consumers(&self) -> bool {
        let waits_for_end = self.options.has_outputs && !self.captures.is_end_acknowledged;
        self.ending.is_ended() && (waits_for_end || self.is_flushing || self.is_leaving)
    }

    /// Serves the priority side of every channel, each after its tail has been loaded.
    pub(super) fn serve_priorities(&mut self, cx: &mut StepContext<'_>) -> Result<bool> {
        let mut served = false;
        for index in 0..self.inputs.len() {
            if let TaskInput::Channel { channel, .. } = &mut self.inputs[index] {
                channel.load();
            }
            while let TaskInput::Channel { channel, .. } = &mut self.inputs[index]
                && let Some(entry) = channel.poll_priority()
            {
                self.priority(index, entry.event, entry.position, cx)?;
                served = true;
            }
        }
        Ok(served)
    }

    pub(super) fn priority(
        &mut self,
        index: usize,
        event: Event,
        position: u64,
        cx: &mut StepContext<'_>,
    ) -> Result<()> {
        let channel = ChannelIndex(index as u32);
        let position = Position(position);
        match event {
            Event::Barrier(barrier) => {
                self.input(Input::PriorityBarrier { channel, barrier, position }, cx)?;
                self.inject(barrier, cx)
            }
            Event::Announcement { barrier, position } => {
                self.input(Input::Announcement { channel, barrier, position }, cx)
            }
            Event::FinishNotice { next } => {
                self.input(Input::FinishNotice { channel, next, position }, cx)
            }
            Event::Cancel { .. }
            | Event::Watermark(_)
            | Event::Idle
            | Event::Active
            | Event::EndOfData { .. }
            | Event::EndOfPartition
            | Event::LatencyMarker { .. } => {
                Err(Error::new(ErrorKind::Internal, format!("{event:?} never overtakes")))
            }
        }
    }

    /// Asks generators of watermarks and sends latency markers when it is time.
    fn serve_periodic(&mut self, cx: &StepContext<'_>) -> Result<()> {
        if self.ending.is_ended() || self.running_step.is_some() {
            self.next_watermark = cx.now;
            self.ask_again = Timestamp::MAX;
            return Ok(());
        }
        if cx.now >= self.next_watermark.min(self.ask_again) && !self.is_firing() {
            self.next_watermark = cx.now + self.options.watermark_interval;
            self.ask_watermarks(cx.now)?;
        }
        if cx.now >= self.next_flush {
            self.next_flush = cx.now + self.options.buffer_timeout;
            self.options.metrics.queue(self.inputs.iter().map(TaskInput::queued).sum());
            let lowest = self.gate_times.iter().map(|time| time.watermark).min();
            self.options.metrics.watermark(lowest.unwrap_or(EpochMillis::MIN));
            if !self.is_firing() {
                self.flush_once()?;
            }
        }
        let is_measured = self.has_emitted && !self.options.latency_interval.is_zero();
        if is_measured && cx.now >= self.next_latency {
            self.next_latency = cx.now + self.options.latency_interval;
            self.has_emitted = false;
            let source = self.options.attempt.subtask;
            for head in &mut self.heads {
                if let Head::Source(head) = head {
                    head.signal(&mut Signal::LatencyMarker {
                        emitted_at: cx.now,
                        source,
                        now: cx.now,
                    })?;
                    self.is_flushed = false;
                }
            }
        }
        Ok(())
    }

    /// Asks generators of watermarks, and when they want to be asked again.
    fn ask_watermarks(&mut self, now: Timestamp) -> Result<()> {
        self.is_asked = true;
        self.is_flushed = false;
        let mut again = Timestamp::MAX;
        self.signal_all(&mut Signal::EmitWatermark { now, again: &mut again })?;
        self.ask_again = again;
        Ok(())
    }

    fn is_firing(&self) -> bool {
        self.heads.iter().any(Head::is_firing)
    }

    /// Goes on with windows and timers that fire, as far as the outputs have room.
    fn proceed(&mut self, cx: &StepContext<'_>) -> Result<Firing> {
        let mut firing = Firing { has_progress: false, is_blocked: false, wake: Timestamp::MAX };
        for head in &mut self.heads {
            let Head::Gate { input, .. } = head else { continue };
            let until = match input.ready(cx.now) {
                Readiness::Ready => {
                    firing.has_progress |= input.proceed(cx.now)?;
                    input.deadline().unwrap_or(Timestamp::MAX)
                }
                Readiness::Busy(until) => {
                    firing.is_blocked |= input.is_firing();
                    until
                }
            };
            firing.wake = firing.wake.min(until);
        }
        Ok(firing)
    }

    pub(super) fn signal_all(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        self.heads.iter_mut().try_for_each(|head| head.driven().signal(signal))
    }

    pub(super) fn report(&self, kind: ReportKind, cx: &mut StepContext<'_>) {
        cx.reports.push(Report { attempt: self.options.attempt, kind });
    }
}

/// What came of going on with windows and timers.
struct Firing {
    /// Something came out; there may be more.
    has_progress: bool,
    /// What must come out before anything else waits for room in an output.
    is_blocked: bool,
    /// When the next timer is due, or a busy sink wants to be asked again.
    wake: Timestamp,
}

/// How many channels each input has: a source one, a gate as many as it has producers.
fn gate_sizes(inputs: &[TaskInput]) -> Vec<usize> {
    let mut sizes: Vec<usize> = Vec::new();
    let mut last = None;
    for input in inputs {
        match sizes.last_mut() {
            Some(size) if last == Some(input.head()) => *size += 1,
            Some(_) | None => sizes.push(1),
        }
        last = Some(input.head());
    }
    sizes
}
