//! The alignment machine of one task, over all its gates and chained sources.
//!
//! Two ways of counting behind one front: exactly once, where each checkpoint is aligned, unaligned or aligned with a
//! timeout as its own options say, and the at-least-once tracker, which never blocks.

use crate::barrier::exact::Exact;
use crate::barrier::message::{Input, Outputs};
use crate::barrier::report::AlignmentReport;
use crate::barrier::tracker::Tracker;
use crate::channel::event::Barrier;
use crate::clock::Timestamp;
use crate::id::{ChannelIndex, CheckpointId};

/// What a restore may show of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guarantee {
    /// Its effect once.
    ExactlyOnce,
    /// Its effect once or more often.
    AtLeastOnce,
}

/// What a machine must know of its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Channels of all gates plus chained sources.
    pub channels: usize,
    /// How barriers are counted.
    pub guarantee: Guarantee,
    /// Whether checkpoints go on after tasks have finished; if not, an ended channel fails them.
    pub after_finish: bool,
    /// The checkpoint the job was restored from: nothing up to it starts again.
    pub restored: Option<CheckpointId>,
}

impl Config {
    /// Exactly once over `channels` channels, from the beginning.
    pub const fn exactly_once(channels: usize) -> Self {
        Self { channels, guarantee: Guarantee::ExactlyOnce, after_finish: true, restored: None }
    }

    /// At least once over `channels` channels, from the beginning.
    pub const fn at_least_once(channels: usize) -> Self {
        Self { channels, guarantee: Guarantee::AtLeastOnce, after_finish: true, restored: None }
    }
}

/// Decides when a task blocks a channel, captures it, and takes its snapshot.
#[derive(Clone, Debug, Hash)]
pub struct Machine(Counting);

#[derive(Clone, Debug, Hash)]
enum Counting {
    Exact(Exact),
    Tracker(Tracker),
}

impl Machine {
    /// A machine for a task of which nothing has been read.
    pub fn new(config: Config) -> Self {
        Self(match config.guarantee {
            Guarantee::ExactlyOnce => Counting::Exact(Exact::new(config)),
            Guarantee::AtLeastOnce => Counting::Tracker(Tracker::new(config)),
        })
    }

    /// Takes one input and appends to `out` what the task is to do, in order.
    ///
    /// # Panics
    /// If a channel is out of range, or an invariant of the machine is broken.
    pub fn handle(&mut self, now: Timestamp, input: Input, out: &mut Outputs) {
        match &mut self.0 {
            Counting::Exact(exact) => exact.handle(now, input, out),
            Counting::Tracker(tracker) => tracker.handle(now, input, out),
        }
    }

    /// When [`Input::Tick`] is due: the running checkpoint's alignment timeout.
    pub fn deadline(&self) -> Option<Timestamp> {
        match &self.0 {
            Counting::Exact(exact) => exact.deadline(),
            Counting::Tracker(_) => None,
        }
    }

    /// The highest checkpoint that is running or has run here.
    pub fn latest(&self) -> Option<CheckpointId> {
        match &self.0 {
            Counting::Exact(exact) => exact.latest(),
            Counting::Tracker(tracker) => tracker.latest(),
        }
    }

    /// Whether barriers of some checkpoint are still awaited.
    pub fn is_pending(&self) -> bool {
        match &self.0 {
            Counting::Exact(exact) => exact.is_pending(),
            Counting::Tracker(tracker) => tracker.is_pending(),
        }
    }

    /// Whether a first barrier has come and the last one has not.
    pub fn is_aligning(&self) -> bool {
        match &self.0 {
            Counting::Exact(exact) => exact.is_aligning(),
            Counting::Tracker(tracker) => tracker.is_pending(),
        }
    }

    /// How many channels have not ended.
    pub fn open_channels(&self) -> usize {
        match &self.0 {
            Counting::Exact(exact) => exact.open_channels(),
            Counting::Tracker(tracker) => tracker.open_channels(),
        }
    }

    /// Barriers that will be delivered on `channel` right before EndOfPartition, obsolete ones included.
    pub fn inserted(&self, channel: ChannelIndex) -> &[Barrier] {
        match &self.0 {
            Counting::Exact(exact) => exact.inserted(channel),
            Counting::Tracker(tracker) => tracker.inserted(channel),
        }
    }

    /// Channels that `checkpoint` still awaits a barrier of; in exactly-once counting only.
    pub fn awaited(&self, checkpoint: CheckpointId) -> Vec<ChannelIndex> {
        match &self.0 {
            Counting::Exact(exact) => exact.awaited(checkpoint),
            Counting::Tracker(_) => Vec::new(),
        }
    }

    /// The figures of the checkpoint that started last, complete after its [`Completed`](super::Output::Completed) and
    /// the [`Input::Captured`] that belong to it.
    pub fn report(&self) -> Option<AlignmentReport> {
        match &self.0 {
            Counting::Exact(exact) => exact.report(),
            Counting::Tracker(tracker) => tracker.report(),
        }
    }
}
