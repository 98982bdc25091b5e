//! Counting barriers exactly once: at most one checkpoint runs at a time.
//!
//! A checkpoint starts with its first barrier, announcement or trigger. It is *aligning* while channels block behind
//! their barriers; an overtaking barrier or the timeout makes it *capturing*: the snapshot is taken at once and the
//! channels' data up to their barriers is captured. The last barrier of an aligning one takes the snapshot.
//!
//! Invariants: `done <= current`; blocked channels have been counted; a running checkpoint misses at least one channel;
//! nothing up to `done` starts again; a barrier is inserted at most once a channel and checkpoint, and none that its
//! producer has sent.

mod step;

use crate::barrier::channel::{Channel, Life, channel_index};
use crate::barrier::channel_set::ChannelSet;
use crate::barrier::machine::Config;
use crate::barrier::message::{AbortReason, Input, Output, Outputs};
use crate::barrier::report::{AlignmentClock, AlignmentReport};
use crate::barrier::taken::Taken;
use crate::channel::event::{Barrier, Position};
use crate::clock::Timestamp;
use crate::id::{ChannelIndex, CheckpointId};
use crate::probe::{Fault, is_broken};

/// Notices of aborted checkpoints that are kept until their barriers come.
const ABORT_MARKS_MAX: usize = 16;

/// The exactly-once half of the machine.
#[derive(Clone, Debug, Hash)]
pub(super) struct Exact {
    channels: Vec<Channel>,
    open: usize,
    after_finish: bool,
    /// The highest checkpoint seen.
    current: Option<CheckpointId>,
    /// The highest checkpoint completed or aborted.
    done: Option<CheckpointId>,
    phase: Phase,
    /// Channels that have delivered the running checkpoint's barrier, or what counts as it.
    aligned: ChannelSet,
    blocked: ChannelSet,
    /// A newer checkpoint announced while one without a timeout aligns; it starts when that one is through.
    later: Option<Barrier>,
    /// Newer checkpoints the coordinator gave up before any barrier came; ascending in age.
    abort_marks: Vec<CheckpointId>,
    taken: Taken,
    clock: Option<AlignmentClock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    Aligning(Run),
    Capturing(Run),
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run {
    barrier: Barrier,
    /// How many channels it awaits: those open when it started.
    target: usize,
}

impl Exact {
    pub(super) fn new(config: Config) -> Self {
        Self {
            channels: vec![Channel::new(); config.channels],
            open: config.channels,
            after_finish: config.after_finish,
            current: config.restored,
            done: config.restored,
            phase: Phase::Idle,
            aligned: ChannelSet::new(config.channels),
            blocked: ChannelSet::new(config.channels),
            later: None,
            abort_marks: Vec::with_capacity(ABORT_MARKS_MAX),
            taken: Taken::new(),
            clock: None,
        }
    }

    pub(super) fn handle(&mut self, now: Timestamp, input: Input, out: &mut Outputs) {
        if self.phase == Phase::Closed {
            return;
        }
        match input {
            Input::Barrier { channel, barrier } => self.barrier(now, channel, barrier, out),
            Input::PriorityBarrier { channel, barrier, position } => {
                self.priority_barrier(now, channel, barrier, position, out);
            }
            Input::Announcement { channel, barrier, position } => {
                self.announcement(now, channel, barrier, position, out);
            }
            Input::Cancel { channel: _, checkpoint } => {
                if Some(checkpoint) > self.current || self.is_running(checkpoint) {
                    self.abort(now, checkpoint, AbortReason::CancellationBarrier, out);
                }
            }
            Input::FinishNotice { channel, next, position } => {
                self.finish_notice(now, channel, next, position, out);
            }
            Input::EndOfData { channel } => self.channel_mut(channel).ended = true,
            Input::EndOfPartition { channel } => self.end_of_partition(now, channel, out),
            Input::Trigger { barrier } => self.trigger(now, barrier, out),
            Input::CaptureReached { channel, checkpoint } => {
                if matches!(self.phase, Phase::Capturing(_)) && self.is_running(checkpoint) {
                    self.receive(now, channel, false, out);
                }
            }
            Input::Tick => self.tick(now, out),
            Input::Abort { checkpoint } => self.abort_notice(now, checkpoint, out),
            Input::Processed { bytes } => {
                if let Some(clock) = &mut self.clock {
                    clock.processed(bytes);
                }
            }
            Input::Captured { checkpoint, bytes } => {
                if let Some(clock) = &mut self.clock {
                    clock.captured(checkpoint, bytes);
                }
            }
            Input::Close => {
                self.phase = Phase::Closed;
                self.blocked.clear();
            }
        }
        self.check();
    }

    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let run = match self.phase {
            Phase::Aligning(run) => deadline(&run.barrier),
            Phase::Idle | Phase::Capturing(_) | Phase::Closed => None,
        };
        let later = self.later.as_ref().and_then(deadline);
        [run, later].into_iter().flatten().min()
    }

    pub(super) fn latest(&self) -> Option<CheckpointId> {
        self.current
    }

    pub(super) fn is_pending(&self) -> bool {
        self.running().is_some()
    }

    pub(super) fn is_aligning(&self) -> bool {
        self.is_pending() && self.clock.as_ref().is_some_and(AlignmentClock::is_running)
    }

    pub(super) fn open_channels(&self) -> usize {
        self.open
    }

    pub(super) fn inserted(&self, channel: ChannelIndex) -> &[Barrier] {
        &self.channels[channel.0 as usize].inserted
    }

    pub(super) fn awaited(&self, checkpoint: CheckpointId) -> Vec<ChannelIndex> {
        let is_running = self.is_running(checkpoint);
        if !is_running && Some(checkpoint) <= self.current {
            return Vec::new();
        }
        let has_come = |channel| is_running && self.aligned.contains(channel);
        (0..self.channels.len())
            .filter(|&index| !self.channels[index].is_closed())
            .map(channel_index)
            .filter(|&channel| !has_come(channel))
            .collect()
    }

    pub(super) fn report(&self) -> Option<AlignmentReport> {
        self.clock.as_ref().map(AlignmentClock::report)
    }

    fn barrier(
        &mut self,
        now: Timestamp,
        channel: ChannelIndex,
        barrier: Barrier,
        out: &mut Outputs,
    ) {
        if self.is_obsolete(barrier.checkpoint) {
            out.push(Output::Resume { channel });
        } else if self.admit(now, barrier, out) {
            self.receive(now, channel, true, out);
        }
    }

    fn priority_barrier(
        &mut self,
        now: Timestamp,
        channel: ChannelIndex,
        barrier: Barrier,
        position: Position,
        out: &mut Outputs,
    ) {
        if self.is_obsolete(barrier.checkpoint) || !self.admit(now, barrier, out) {
            return;
        }
        match self.phase {
            Phase::Aligning(_) => self.capture(now, Some((channel, position)), out),
            Phase::Capturing(_) => {
                if !self.aligned.contains(channel) {
                    out.push(Output::CaptureUntil { channel, position });
                    self.receive(now, channel, false, out);
                }
            }
            Phase::Idle | Phase::Closed => {}
        }
    }

    fn announcement(
        &mut self,
        now: Timestamp,
        channel: ChannelIndex,
        barrier: Barrier,
        position: Position,
        out: &mut Outputs,
    ) {
        let n = barrier.checkpoint;
        if barrier.options.timeout().is_none() || self.is_obsolete(n) {
            return;
        }
        self.channel_mut(channel).announced = Some((n, position));
        // A savepoint under way is not given up for a checkpoint of which only the announcement has come.
        if let Phase::Aligning(run) = self.phase
            && run.checkpoint() < n
            && run.barrier.options.timeout().is_none()
            && !is_past(&barrier, now)
        {
            if self.later.is_none_or(|later| later.checkpoint < n) && !self.is_marked(n) {
                self.later = Some(barrier);
            }
            return;
        }
        if !self.admit(now, barrier, out) {
            return;
        }
        match self.phase {
            Phase::Aligning(run) => {
                if is_past(&run.barrier, now) {
                    self.capture(now, None, out);
                }
            }
            Phase::Capturing(_) => {
                if !self.aligned.contains(channel) {
                    out.push(Output::CaptureUntil { channel, position });
                }
            }
            Phase::Idle | Phase::Closed => {}
        }
    }

    fn finish_notice(
        &mut self,
        now: Timestamp,
        channel: ChannelIndex,
        next: CheckpointId,
        position: Position,
        out: &mut Outputs,
    ) {
        if !self.after_finish || self.channel_mut(channel).is_closed() {
            return;
        }
        self.channel_mut(channel).life = Life::Ending { next, position };
        let Some(run) = self.running() else { return };
        if self.aligned.contains(channel) || !self.insert(channel, run.barrier) {
            return;
        }
        match self.phase {
            Phase::Aligning(_) => {
                if self.channel_mut(channel).ended {
                    self.receive(now, channel, false, out);
                } else if is_past(&run.barrier, now) {
                    self.capture(now, None, out);
                }
            }
            Phase::Capturing(_) => {
                out.push(Output::CaptureUntil { channel, position });
                self.receive(now, channel, false, out);
            }
            Phase::Idle | Phase::Closed => {}
        }
    }

    fn end_of_partition(&mut self, now: Timestamp, channel: ChannelIndex, out: &mut Outputs) {
        if self.channel_mut(channel).is_closed() {
            return;
        }
        if is_broken(Fault::EndNotCounted) {
            self.channel_mut(channel).close();
            self.open -= 1;
            return;
        }
        // Completing one checkpoint may start the next, whose barrier then also stands before EndOfPartition.
        while !self.channel_mut(channel).inserted.is_empty() {
            let barrier = self.channel_mut(channel).inserted.remove(0);
            if self.is_running(barrier.checkpoint) {
                self.receive(now, channel, false, out);
            }
        }
        let ending = self.channel_mut(channel);
        ending.close();
        self.open -= 1;
        self.blocked.remove(channel);
        let Some(run) = self.running() else { return };
        if self.after_finish {
            self.receive(now, channel, false, out);
        } else {
            self.abort(now, run.checkpoint(), AbortReason::InputEndOfStream, out);
        }
    }

    fn trigger(&mut self, now: Timestamp, barrier: Barrier, out: &mut Outputs) {
        let n = barrier.checkpoint;
        if self.taken.contains(n) {
            return;
        }
        if self.is_obsolete(n) || self.is_marked(n) {
            out.push(Output::Decline { checkpoint: n });
            return;
        }
        if !self.admit(now, barrier, out) {
            return;
        }
        if self.open == 0 {
            self.begin_clock(now);
            self.complete(now, out);
            return;
        }
        // All predecessors have finished: where EndOfData was read, nothing of them is left to come.
        for index in 0..self.channels.len() {
            let channel = &self.channels[index];
            if channel.ended && !channel.is_closed() && self.is_running(n) {
                self.receive(now, channel_index(index), false, out);
            }
        }
        if let Phase::Aligning(run) = self.phase
            && self.is_running(n)
            && (run.barrier.options.is_unaligned() || is_past(&run.barrier, now))
        {
            self.capture(now, None, out);
        }
    }

    fn tick(&mut self, now: Timestamp, out: &mut Outputs) {
        if let Some(later) = self.later
            && deadline(&later).is_some_and(|at| at <= now)
        {
            self.start(now, later, out);
        }
        if let Phase::Aligning(run) = self.phase
            && deadline(&run.barrier).is_some_and(|at| at <= now)
        {
            self.capture(now, None, out);
        }
    }

    fn abort_notice(&mut self, now: Timestamp, checkpoint: CheckpointId, out: &mut Outputs) {
        if self.is_running(checkpoint) {
            self.abort(now, checkpoint, AbortReason::Notice, out);
        } else if Some(checkpoint) > self.current && !self.is_marked(checkpoint) {
            self.later = self.later.filter(|later| later.checkpoint != checkpoint);
            if self.abort_marks.len() == ABORT_MARKS_MAX {
                self.abort_marks.remove(0);
            }
            self.abort_marks.push(checkpoint);
        }
    }

    fn running(&self) -> Option<Run> {
        match self.phase {
            Phase::Aligning(run) | Phase::Capturing(run) => Some(run),
            Phase::Idle | Phase::Closed => None,
        }
    }

    fn is_running(&self, n: CheckpointId) -> bool {
        self.running().is_some_and(|run| run.checkpoint() == n)
    }

    fn is_obsolete(&self, n: CheckpointId) -> bool {
        if is_broken(Fault::StaleBarrierAccepted) {
            return false;
        }
        Some(n) < self.current || (Some(n) == self.current && !self.is_pending())
    }

    fn is_marked(&self, n: CheckpointId) -> bool {
        self.abort_marks.contains(&n)
    }

    fn channel_mut(&mut self, channel: ChannelIndex) -> &mut Channel {
        &mut self.channels[channel.0 as usize]
    }

    fn check(&self) {
        assert!(self.done <= self.current, "a checkpoint is over that was never seen");
        match self.phase {
            Phase::Aligning(run) | Phase::Capturing(run) => {
                assert!(Some(run.checkpoint()) == self.current && self.done < self.current);
                assert!(self.aligned.count() < run.target, "all barriers are here");
                assert!(self.blocked.iter().all(|channel| self.aligned.contains(channel)));
            }
            Phase::Idle | Phase::Closed => assert!(self.blocked.is_empty(), "blocked for nothing"),
        }
    }
}

impl Run {
    fn checkpoint(&self) -> CheckpointId {
        self.barrier.checkpoint
    }
}

pub(super) fn deadline(barrier: &Barrier) -> Option<Timestamp> {
    let at = barrier.timestamp.saturating_add(barrier.options.timeout()?);
    (at < Timestamp::MAX).then_some(at)
}

pub(super) fn is_past(barrier: &Barrier, now: Timestamp) -> bool {
    deadline(barrier).is_some_and(|at| now > at)
}
