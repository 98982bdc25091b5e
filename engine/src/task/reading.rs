//! How a task reads its inputs: fairly, in batches, one buffer or one event a step.

use std::time::Duration;

use super::driver::{StepContext, Task};
use super::finish;
use super::inputs::{GateTime, TaskInput};
use crate::barrier::Input;
use crate::channel::event::Event;
use crate::channel::input::Read;
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::ChannelIndex;
use crate::operator::{Head, Signal};
use crate::probe::{Fault, is_broken};
use crate::sink::Readiness;
use crate::source::Poll;

/// How many batches of a source make a step at the most.
const SOURCE_BATCHES: u32 = 16;
/// How long a step of a source with slow batches may take.
const STEP_TIME: Duration = Duration::from_micros(20);
/// How long a step may copy state for a snapshot before it ends: behind a trigger every record may be the first of its chunk.
const COPY_TIME: Duration = Duration::from_micros(200);

/// What came of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// Something was read.
    Progress,
    /// There is nothing to read.
    Empty,
    /// There may be something, but an output has no room: what is buffered for the others may as well fill up.
    Blocked,
}

impl Task {
    /// Reads from the inputs in turn: one buffer, one event or some batches of a source.
    pub(super) fn read_one(
        &mut self,
        cx: &mut StepContext<'_>,
        wake: &mut Timestamp,
    ) -> Result<ReadOutcome> {
        let mut outcome = ReadOutcome::Empty;
        if self.recovering.is_some() {
            self.recovering = self.inputs.iter().filter_map(TaskInput::next_recovered).max();
        }
        for turn in 0..self.inputs.len() {
            let index = (self.next_input + turn) % self.inputs.len();
            match self.read_input(index, cx, wake)? {
                ReadOutcome::Progress => {
                    self.next_input = (index + 1) % self.inputs.len();
                    return Ok(ReadOutcome::Progress);
                }
                ReadOutcome::Blocked => outcome = ReadOutcome::Blocked,
                ReadOutcome::Empty => {}
            }
        }
        Ok(outcome)
    }

    fn read_input(
        &mut self,
        index: usize,
        cx: &mut StepContext<'_>,
        wake: &mut Timestamp,
    ) -> Result<ReadOutcome> {
        let head = self.inputs[index].head();
        match &mut self.inputs[index] {
            TaskInput::Source { is_blocked, is_ended, busy_until, .. } => {
                if *is_blocked || *is_ended {
                    return Ok(ReadOutcome::Empty);
                }
                if *busy_until > cx.now {
                    *wake = (*wake).min(*busy_until);
                    return Ok(ReadOutcome::Empty);
                }
                self.poll_source(index, head, cx, wake)
            }
            TaskInput::Channel { channel, .. } => {
                let waits = self.recovering.is_some()
                    && channel.next_recovered() < self.recovering
                    && !is_broken(Fault::LanesBeforeRecovered);
                if channel.is_blocked || channel.is_ended || waits {
                    return Ok(ReadOutcome::Empty);
                }
                // Asked before anything is taken: a full output leaves the buffer in its channel.
                match self.heads[head].driven().ready(cx.now) {
                    Readiness::Ready => {}
                    Readiness::Busy(until) => {
                        *wake = (*wake).min(until);
                        return Ok(ReadOutcome::Blocked);
                    }
                }
                let progress = ReadOutcome::Progress;
                match channel.read() {
                    Read::Empty | Read::Broken => Ok(ReadOutcome::Empty),
                    Read::Buffer => self.take_buffer(index, head, cx).map(|()| progress),
                    Read::Event(event) => self.event(index, head, event, cx).map(|()| progress),
                    Read::Priority(entry) => {
                        self.priority(index, entry.event, entry.position, cx)?;
                        // Captures grow before anything else is read.
                        self.serve_priorities(cx)?;
                        self.extend_captures(cx).map(|()| progress)
                    }
                    Read::End => self.end_of_partition(index, cx).map(|()| progress),
                }
            }
        }
    }

    /// Whether the step is to end between two batches.
    fn is_interrupted(&mut self, cx: &mut StepContext<'_>) -> Result<bool> {
        if (cx.has_mail)() {
            return Ok(true);
        }
        let served = self.serve_priorities(cx)?;
        if served {
            self.extend_captures(cx)?;
        }
        Ok(served)
    }

    fn take_buffer(&mut self, index: usize, head: usize, cx: &mut StepContext<'_>) -> Result<()> {
        let (mut records, mut batches, started) = (0, 0, (cx.clock)());
        let mut bytes = 0;
        let copying = self.copy_nanos(head);
        while let TaskInput::Channel { channel, .. } = &mut self.inputs[index] {
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
                self.captures.release(index, &reading.buffer);
                channel.release();
                break;
            }
            if input.ready(cx.now) != Readiness::Ready {
                break;
            }
            if Duration::from_nanos(input.copy_nanos().saturating_sub(copying)) > COPY_TIME {
                break;
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
        let elapsed = (cx.clock)().since(started);
        self.paces[head].took(elapsed, batches);
        self.options.metrics.took_records(records as u64);
        self.options.metrics.took_buffer(bytes as u64);
        self.options.metrics.was_busy(elapsed);
        let copied = self.copy_nanos(head).saturating_sub(copying);
        if copied > 0 {
            self.options.metrics.snapshot_step(Duration::from_nanos(copied));
        }
        if self.barriers.is_aligning() {
            self.input(Input::Processed { bytes: bytes as u64 }, cx)?;
        }
        Ok(())
    }

    /// How long a head has copied state because a snapshot was being written.
    fn copy_nanos(&self, head: usize) -> u64 {
        match &self.heads[head] {
            Head::Source(_) => 0,
            Head::Gate { input, .. } => input.copy_nanos(),
        }
    }

    fn poll_source(
        &mut self,
        index: usize,
        head: usize,
        cx: &mut StepContext<'_>,
        wake: &mut Timestamp,
    ) -> Result<ReadOutcome> {
        let (mut total, mut batches, started) = (0, 0, (cx.clock)());
        let (mut progress, mut blocked) = (false, false);
        while batches < SOURCE_BATCHES {
            let Head::Source(source) = &mut self.heads[head] else { break };
            match source.ready(cx.now) {
                Readiness::Ready => {}
                Readiness::Busy(until) => {
                    *wake = (*wake).min(until);
                    blocked = true;
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
            self.has_emitted |= total > 0;
            self.options.metrics.took_records(total as u64);
            self.options.metrics.was_busy(elapsed);
        }
        Ok(match (progress, blocked) {
            (true, _) => ReadOutcome::Progress,
            (false, true) => ReadOutcome::Blocked,
            (false, false) => ReadOutcome::Empty,
        })
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
            Event::Barrier(barrier) => {
                self.input(Input::Barrier { channel: place, barrier }, cx)?;
                self.inject(barrier, cx)
            }
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
                self.end_with(finish::Input::EndOfData { channel: place, drain }, cx)
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
    pub(super) fn gate_time(&mut self, head: usize) -> Result<()> {
        let combined = GateTime::of(&self.inputs, head);
        let told = &mut self.gate_times[head];
        let becomes_idle = combined.is_idle && !told.is_idle;
        if told.is_idle && !combined.is_idle {
            told.is_idle = false;
            self.heads[head].driven().signal(&mut Signal::Idle(false))?;
        }
        if combined.watermark > told.watermark {
            told.watermark = combined.watermark;
            self.heads[head].driven().signal(&mut Signal::Watermark(combined.watermark))?;
        }
        if becomes_idle {
            // Behind all that the watermark fires.
            told.is_due = self.heads[head].is_firing();
            if !told.is_due {
                told.is_idle = true;
                self.heads[head].driven().signal(&mut Signal::Idle(true))?;
            }
        }
        Ok(())
    }

    /// Tells heads what had to wait until all that fired was out.
    pub(super) fn settle_gate_times(&mut self) -> Result<()> {
        for head in 0..self.heads.len() {
            if self.gate_times[head].is_due && !self.heads[head].is_firing() {
                self.gate_times[head].is_due = false;
                self.gate_time(head)?;
            }
        }
        Ok(())
    }

    /// A source has no more records. Its place among the alignment machine's channels stays open: it gets its barriers by
    /// triggers until the task leaves.
    pub(super) fn end_source(
        &mut self,
        index: usize,
        head: usize,
        drain: bool,
        cx: &mut StepContext<'_>,
    ) -> Result<()> {
        if let TaskInput::Source { is_ended, .. } = &mut self.inputs[index] {
            *is_ended = true;
        }
        if drain {
            // FLIP-147, finishing sources: MAX fires every event-time timer along the pipeline.
            self.heads[head].driven().signal(&mut Signal::Watermark(EpochMillis::MAX))?;
        }
        if !self.has_sources_only {
            let channel = ChannelIndex(index as u32);
            self.end_with(finish::Input::EndOfData { channel, drain }, cx)?;
            return self.end_with(finish::Input::EndOfPartition { channel }, cx);
        }
        if self.inputs.iter().all(TaskInput::is_ended) {
            return self.end_with(finish::Input::SourceEnded, cx);
        }
        Ok(())
    }

    fn end_of_partition(&mut self, index: usize, cx: &mut StepContext<'_>) -> Result<()> {
        if let TaskInput::Channel { channel, .. } = &mut self.inputs[index] {
            channel.is_ended = true;
        }
        let channel = ChannelIndex(index as u32);
        self.input(Input::EndOfPartition { channel }, cx)?;
        self.end_with(finish::Input::EndOfPartition { channel }, cx)
    }
}
