//! Counting barriers at least once: several checkpoints may be under way, no channel ever blocks.
//!
//! The highest checkpoint whose barriers are complete is taken, older ones are dropped without a word. One that the
//! coordinator gives up is told when no older one is followed any more: those downstream would take no older one behind its
//! cancellation. At most [`PENDING_MAX`] are followed; older ones are dropped.

use std::collections::VecDeque;

use crate::barrier::channel::{Channel, Life, channel_index};
use crate::barrier::channel_set::ChannelSet;
use crate::barrier::machine::Config;
use crate::barrier::message::{AbortReason, Input, Output, Outputs};
use crate::barrier::report::{AlignmentClock, AlignmentReport};
use crate::barrier::taken::Taken;
use crate::channel::event::Barrier;
use crate::channel::options::CheckpointOptions;
use crate::clock::Timestamp;
use crate::id::{ChannelIndex, CheckpointId};

/// How many checkpoints are followed at a time.
const PENDING_MAX: usize = 50;

/// The at-least-once half of the machine.
#[derive(Clone, Debug, Hash)]
pub(super) struct Tracker {
    channels: Vec<Channel>,
    open: usize,
    after_finish: bool,
    /// Ascending.
    pending: VecDeque<Entry>,
    /// The highest checkpoint ever followed, taken or aborted.
    latest: Option<CheckpointId>,
    /// The highest checkpoint taken: none up to it is taken again.
    taken: Option<CheckpointId>,
    recent: Taken,
    report: Option<AlignmentReport>,
}

#[derive(Clone, Debug, Hash)]
struct Entry {
    barrier: Barrier,
    seen: ChannelSet,
    target: usize,
    /// It is given up and stays only to swallow the barriers that follow.
    aborted: bool,
    /// That it is given up has been told.
    told: bool,
    clock: AlignmentClock,
}

impl Tracker {
    pub(super) fn new(config: Config) -> Self {
        Self {
            channels: vec![Channel::new(); config.channels],
            open: config.channels,
            after_finish: config.after_finish,
            pending: VecDeque::with_capacity(PENDING_MAX),
            latest: config.restored,
            taken: config.restored,
            recent: Taken::new(),
            report: None,
        }
    }

    pub(super) fn handle(&mut self, now: Timestamp, input: Input, out: &mut Outputs) {
        match input {
            // Nothing overtakes in this mode; such a barrier counts as any other.
            Input::Barrier { channel, barrier }
            | Input::PriorityBarrier { channel, barrier, position: _ } => {
                self.barrier(now, channel, barrier, out);
            }
            Input::Cancel { channel, checkpoint } => self.cancel(now, channel, checkpoint, out),
            Input::FinishNotice { channel, next, position } => {
                self.finish_notice(channel, Life::Ending { next, position });
            }
            Input::EndOfData { channel } => self.channels[channel.0 as usize].ended = true,
            Input::EndOfPartition { channel } => self.end_of_partition(now, channel, out),
            Input::Trigger { barrier } => self.trigger(now, barrier, out),
            Input::Abort { checkpoint } => self.abort_notice(checkpoint),
            Input::Processed { bytes } => {
                for entry in &mut self.pending {
                    entry.clock.processed(bytes);
                }
            }
            Input::Close => self.pending.clear(),
            Input::Announcement { .. }
            | Input::CaptureReached { .. }
            | Input::Captured { .. }
            | Input::Tick => {}
        }
        self.tell_aborted(out);
        self.check();
    }

    pub(super) fn latest(&self) -> Option<CheckpointId> {
        self.latest
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending.iter().any(|entry| !entry.aborted)
    }

    pub(super) fn open_channels(&self) -> usize {
        self.open
    }

    pub(super) fn inserted(&self, channel: ChannelIndex) -> &[Barrier] {
        &self.channels[channel.0 as usize].inserted
    }

    pub(super) fn report(&self) -> Option<AlignmentReport> {
        self.report
    }

    fn barrier(
        &mut self,
        now: Timestamp,
        channel: ChannelIndex,
        barrier: Barrier,
        out: &mut Outputs,
    ) {
        let n = barrier.checkpoint;
        if Some(n) > self.latest {
            self.follow(now, barrier);
        }
        self.count(now, n, channel, out);
    }

    fn cancel(
        &mut self,
        now: Timestamp,
        channel: ChannelIndex,
        n: CheckpointId,
        out: &mut Outputs,
    ) {
        if Some(n) <= self.taken {
            return;
        }
        for entry in self.pending.iter().take_while(|entry| entry.barrier.checkpoint < n) {
            if !entry.aborted {
                out.push(abort_of(entry.barrier.checkpoint, AbortReason::CancellationBarrier));
            }
        }
        self.pending.retain(|entry| entry.barrier.checkpoint >= n);
        if let Some(entry) = self.entry_mut(n) {
            if !entry.aborted {
                entry.aborted = true;
                entry.told = true;
                out.push(abort_of(n, AbortReason::CancellationBarrier));
            }
            self.count(now, n, channel, out);
        } else if Some(n) > self.latest {
            out.push(abort_of(n, AbortReason::CancellationBarrier));
            self.latest = Some(n);
            if self.open > 1 {
                let barrier = Barrier {
                    checkpoint: n,
                    timestamp: now,
                    options: CheckpointOptions::at_least_once(),
                };
                self.follow(now, barrier);
                if let Some(entry) = self.entry_mut(n) {
                    entry.aborted = true;
                    entry.told = true;
                }
                self.count(now, n, channel, out);
            }
        }
    }

    fn finish_notice(&mut self, channel: ChannelIndex, ending: Life) {
        let state = &mut self.channels[channel.0 as usize];
        if !self.after_finish || state.is_closed() {
            return;
        }
        state.life = ending;
        for entry in &self.pending {
            if !entry.aborted && !entry.seen.contains(channel) {
                state.insert(entry.barrier);
            }
        }
    }

    fn end_of_partition(&mut self, now: Timestamp, channel: ChannelIndex, out: &mut Outputs) {
        let state = &mut self.channels[channel.0 as usize];
        if state.is_closed() {
            return;
        }
        state.close();
        let inserted = std::mem::take(&mut state.inserted);
        for barrier in inserted {
            self.count(now, barrier.checkpoint, channel, out);
        }
        self.open -= 1;
        if !self.after_finish {
            for entry in self.pending.drain(..).filter(|entry| !entry.aborted) {
                out.push(abort_of(entry.barrier.checkpoint, AbortReason::InputEndOfStream));
            }
            return;
        }
        // The highest complete one is taken; that drops the lower ones.
        for index in (0..self.pending.len()).rev() {
            let entry = &mut self.pending[index];
            entry.seen.insert(channel);
            entry.clock.begin(now, &entry.barrier);
            if entry.seen.count() == entry.target {
                self.finish(now, index, out);
                break;
            }
        }
    }

    fn trigger(&mut self, now: Timestamp, barrier: Barrier, out: &mut Outputs) {
        let n = barrier.checkpoint;
        if self.recent.contains(n) {
            return;
        }
        let follows = self.pending.iter().any(|e| e.barrier.checkpoint == n && !e.aborted);
        if Some(n) <= self.taken || (Some(n) <= self.latest && !follows) {
            out.push(Output::Decline { checkpoint: n });
            return;
        }
        if !follows {
            self.follow(now, barrier);
        }
        if self.open == 0 {
            let index = self.pending.len() - 1;
            let entry = &mut self.pending[index];
            entry.clock.begin(now, &barrier);
            self.finish(now, index, out);
            return;
        }
        for index in 0..self.channels.len() {
            let channel = &self.channels[index];
            if channel.ended && !channel.is_closed() {
                self.count(now, n, channel_index(index), out);
            }
        }
    }

    fn abort_notice(&mut self, n: CheckpointId) {
        if let Some(entry) = self.entry_mut(n) {
            entry.aborted = true;
        }
    }

    /// Tells what the coordinator gave up, as far as nothing older is followed.
    fn tell_aborted(&mut self, out: &mut Outputs) {
        for entry in self.pending.iter_mut().take_while(|entry| entry.aborted) {
            if !entry.told {
                entry.told = true;
                out.push(abort_of(entry.barrier.checkpoint, AbortReason::Notice));
            }
        }
    }

    /// Begins to follow a checkpoint that is newer than all others.
    fn follow(&mut self, now: Timestamp, barrier: Barrier) {
        let n = barrier.checkpoint;
        self.latest = Some(n);
        if self.pending.len() == PENDING_MAX {
            self.pending.pop_front();
        }
        self.pending.push_back(Entry {
            barrier,
            seen: ChannelSet::new(self.channels.len()),
            target: self.open,
            aborted: false,
            told: false,
            clock: AlignmentClock::new(n),
        });
        for index in 0..self.channels.len() {
            let state = &mut self.channels[index];
            if state.insert(barrier) && state.ended {
                let entry = self.pending.back_mut().expect("it was pushed above");
                entry.seen.insert(channel_index(index));
                entry.clock.begin(now, &barrier);
            }
        }
    }

    fn count(&mut self, now: Timestamp, n: CheckpointId, channel: ChannelIndex, out: &mut Outputs) {
        let Some(index) = self.pending.iter().position(|e| e.barrier.checkpoint == n) else {
            return;
        };
        let entry = &mut self.pending[index];
        entry.seen.insert(channel);
        entry.clock.begin(now, &entry.barrier);
        if entry.seen.count() == entry.target {
            self.finish(now, index, out);
        }
    }

    /// Takes the entry out with all older ones, and the snapshot unless it is given up.
    fn finish(&mut self, now: Timestamp, index: usize, out: &mut Outputs) {
        let mut drained = self.pending.drain(..=index);
        let mut entry = drained.next_back().expect("the range has at least one entry");
        drop(drained);
        if entry.aborted {
            return;
        }
        let checkpoint = entry.barrier.checkpoint;
        entry.clock.end(now);
        self.report = Some(entry.clock.report());
        self.taken = Some(checkpoint);
        self.recent.push(checkpoint);
        out.push(Output::Snapshot { barrier: entry.barrier });
        out.push(Output::Completed { checkpoint });
    }

    fn entry_mut(&mut self, n: CheckpointId) -> Option<&mut Entry> {
        self.pending.iter_mut().find(|entry| entry.barrier.checkpoint == n)
    }

    fn check(&self) {
        assert!(self.taken <= self.latest, "a checkpoint was taken that was never seen");
        assert!(self.pending.len() <= PENDING_MAX);
        assert!(self.pending.iter().all(|entry| entry.seen.count() < entry.target));
    }
}

fn abort_of(checkpoint: CheckpointId, reason: AbortReason) -> Output {
    Output::Abort { checkpoint, reason }
}
