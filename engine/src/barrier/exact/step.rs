//! How a checkpoint of the exactly-once machine starts, counts, turns from aligning to capturing, and ends.
//!
//! Each step leaves the machine in a state that the next input may find; `exact` decides which step an input causes.

use super::{Exact, Phase, Run, is_past};
use crate::barrier::channel::channel_index;
use crate::barrier::message::{AbortReason, Output, Outputs};
use crate::barrier::report::AlignmentClock;
use crate::channel::event::{Barrier, Position};
use crate::clock::Timestamp;
use crate::id::{ChannelIndex, CheckpointId};
use crate::probe::{Fault, is_broken};

impl Exact {
    /// Starts the barrier's checkpoint if it is new. Whether the checkpoint runs.
    pub(super) fn admit(&mut self, now: Timestamp, barrier: Barrier, out: &mut Outputs) -> bool {
        let n = barrier.checkpoint;
        if self.is_running(n) {
            return true;
        }
        if self.is_marked(n) {
            // An older one that still runs here is not given up for one that is known to be dead.
            if !self.is_pending() {
                self.abort(now, n, AbortReason::Notice, out);
            }
            return false;
        }
        self.start(now, barrier, out);
        self.is_running(n)
    }

    pub(super) fn start(&mut self, now: Timestamp, barrier: Barrier, out: &mut Outputs) {
        let n = barrier.checkpoint;
        if let Some(run) = self.running() {
            self.leave(run.checkpoint(), out);
            out.push(Output::Abort { checkpoint: run.checkpoint(), reason: AbortReason::Subsumed });
        }
        self.current = Some(n);
        self.later = self.later.filter(|later| later.checkpoint > n);
        self.abort_marks.retain(|&mark| mark > n);
        self.phase = Phase::Aligning(Run { barrier, target: self.open });
        self.clock = Some(AlignmentClock::new(n));
        for index in 0..self.channels.len() {
            self.insert(channel_index(index), barrier);
        }
        // Where EndOfData was read, only events stand between here and the inserted barrier.
        for index in 0..self.channels.len() {
            let channel = &self.channels[index];
            if channel.ended && channel.inserted_at(n).is_some() && self.is_running(n) {
                self.receive(now, channel_index(index), false, out);
            }
        }
    }

    /// Puts a barrier right before EndOfPartition of `channel`, if that is in the channel and none was sent or put.
    pub(super) fn insert(&mut self, channel: ChannelIndex, barrier: Barrier) -> bool {
        let done = self.done;
        let channel = self.channel_mut(channel);
        if channel.inserted.len() > 1 {
            channel.inserted.retain(|older| Some(older.checkpoint) > done);
        }
        channel.insert(barrier)
    }

    /// Counts `channel` for the running checkpoint; `blocks` if data after the barrier may be read next.
    pub(super) fn receive(
        &mut self,
        now: Timestamp,
        channel: ChannelIndex,
        blocks: bool,
        out: &mut Outputs,
    ) {
        let Some(run) = self.running() else { return };
        if !self.aligned.insert(channel) {
            return;
        }
        self.begin_clock(now);
        // The last barrier never makes an aligned checkpoint unaligned.
        let early = usize::from(is_broken(Fault::OneBarrierEarly));
        if self.aligned.count() + early >= run.target {
            self.complete(now, out);
            return;
        }
        if blocks {
            self.blocked.insert(channel);
            out.push(Output::Block { channel });
        }
        if matches!(self.phase, Phase::Aligning(_)) && is_past(&run.barrier, now) {
            self.capture(now, None, out);
        }
    }

    /// Goes from aligning to capturing. `cut` is the overtaking barrier that causes it.
    pub(super) fn capture(
        &mut self,
        now: Timestamp,
        cut: Option<(ChannelIndex, Position)>,
        out: &mut Outputs,
    ) {
        let Phase::Aligning(mut run) = self.phase else { return };
        let n = run.checkpoint();
        run.barrier.options = run.barrier.options.timed_out();
        self.phase = Phase::Capturing(run);
        self.begin_clock(now);
        out.push(Output::CaptureStart { checkpoint: n });
        for (index, state) in self.channels.iter().enumerate() {
            let channel = channel_index(index);
            if self.aligned.contains(channel) {
                continue;
            }
            let known = cut.filter(|&(c, _)| c == channel).map(|(_, position)| position);
            if let Some(position) = known.or_else(|| state.inserted_at(n)) {
                self.aligned.insert(channel);
                out.push(Output::CaptureUntil { channel, position });
            } else if let Some(position) = state.announced_at(n) {
                out.push(Output::CaptureUntil { channel, position });
            } else if !state.is_closed() {
                out.push(Output::CaptureLoaded { channel });
            }
        }
        out.push(Output::Snapshot { barrier: run.barrier });
        if self.aligned.count() == run.target {
            self.complete(now, out);
        }
    }

    /// Every channel has been counted.
    pub(super) fn complete(&mut self, now: Timestamp, out: &mut Outputs) {
        let Some(run) = self.running() else { return };
        let checkpoint = run.checkpoint();
        if let Some(clock) = &mut self.clock {
            clock.end(now);
        }
        if matches!(self.phase, Phase::Capturing(_)) {
            out.push(Output::CaptureStop { checkpoint });
        } else {
            out.push(Output::Snapshot { barrier: run.barrier });
        }
        out.push(Output::Completed { checkpoint });
        self.taken.push(checkpoint);
        self.phase = Phase::Idle;
        self.leave(checkpoint, out);
        self.start_later(now, out);
    }

    pub(super) fn abort(
        &mut self,
        now: Timestamp,
        n: CheckpointId,
        reason: AbortReason,
        out: &mut Outputs,
    ) {
        self.leave(n, out);
        out.push(Output::Abort { checkpoint: n, reason });
        self.start_later(now, out);
    }

    /// Ends the running checkpoint, if one runs, and everything up to `n`.
    pub(super) fn leave(&mut self, n: CheckpointId, out: &mut Outputs) {
        if let Phase::Capturing(run) = self.phase {
            out.push(Output::CaptureAbort { checkpoint: run.checkpoint() });
        }
        self.phase = Phase::Idle;
        self.aligned.clear();
        out.extend(self.blocked.iter().map(|channel| Output::Resume { channel }));
        self.blocked.clear();
        self.current = self.current.max(Some(n));
        self.done = self.done.max(Some(n));
        self.abort_marks.retain(|&mark| mark > n);
    }

    pub(super) fn start_later(&mut self, now: Timestamp, out: &mut Outputs) {
        let later = self.later.take().filter(|later| Some(later.checkpoint) > self.current);
        if let Some(later) = later
            && self.open > 0
        {
            self.start(now, later, out);
        }
    }

    pub(super) fn begin_clock(&mut self, now: Timestamp) {
        if let (Some(run), Some(clock)) = (self.running(), &mut self.clock) {
            clock.begin(now, &run.barrier);
        }
    }
}
