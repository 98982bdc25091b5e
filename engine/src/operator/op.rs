//! What an operator is at run time, and what reaches it besides records.

use crate::channel::event::Barrier;
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{Error, Result};
use crate::id::{CheckpointId, SubtaskId};
use crate::record::{Data, Feed};
use crate::sink::Readiness;
use crate::state::part::Snapshot;

/// An operator with all that follows it in its chain.
///
/// Not for implementing: users give closures, sources and sinks.
pub trait Op<T: Data>: 'static {
    /// Takes a batch.
    fn batch<S: Feed<T>>(&mut self, feed: S);

    /// Whether a batch may come: every output has a free buffer and no sink is busy.
    fn ready(&mut self, now: Timestamp) -> Readiness;

    /// The most records a batch may have: 1 if an end may answer `Busy`.
    fn batch_max(&self) -> usize;

    /// Takes a signal and passes it on.
    ///
    /// # Errors
    /// The task fails; for [`Signal::Snapshot`] the checkpoint is declined instead.
    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()>;
}

/// What goes down a chain besides records, in the order of the records around it.
#[derive(Debug)]
pub enum Signal<'a> {
    /// No record that follows is older, except late ones.
    Watermark(EpochMillis),
    /// Generators of watermarks say what they know.
    EmitWatermark {
        /// The time here.
        now: Timestamp,
        /// When they are to be asked again though no record has come; each may only put it earlier.
        again: &'a mut Timestamp,
    },
    /// The stream's watermark doesn't count (`true`) or counts again (`false`).
    Idle(bool),
    /// Nothing more comes for the moment: send what is buffered.
    Flush,
    /// Send the barrier on, ahead of any copying of state.
    Barrier(Barrier),
    /// Hand out the state as it is here.
    Snapshot(&'a mut Snapshot),
    /// The checkpoint is complete: commit.
    Complete(CheckpointId),
    /// The checkpoint was given up; `true`: tell those behind the outputs.
    Aborted(CheckpointId, bool),
    /// The input has ended: processing-time timers that wait never fire.
    QuiesceTimers,
    /// The input has ended for good; what an operator holds back comes out.
    Finish {
        /// Whether a completed checkpoint will follow, which sinks wait for.
        checkpointed: bool,
    },
    /// No more records on the outputs.
    EndOfData {
        /// Whether for good.
        drain: bool,
    },
    /// The outputs' last entry.
    EndOfPartition,
    /// Measures the way from a source to the sinks.
    LatencyMarker {
        /// When the source sent it.
        emitted_at: Timestamp,
        /// Which source.
        source: SubtaskId,
        /// The time here.
        now: Timestamp,
    },
    /// Asks whether all consumers have taken the end of data; an output that sees they have not makes it `false`.
    EndOfDataTaken(&'a mut bool),
    /// Asks whether nothing waits for room in the outputs; an output in which something does makes it `false`.
    Flushed(&'a mut bool),
}

/// Fails the task from within a batch, where no error can be returned.
///
/// Unwinds to the task's border without a panic message; the rest of the batch is lost, as after any failure of a task.
#[cold]
pub fn fail(error: Error) -> ! {
    std::panic::resume_unwind(Box::new(error))
}

/// The parts of [`Op`] that a stateless operator leaves to what follows.
macro_rules! pass_on {
    ($down:ident) => {
        #[inline]
        fn ready(&mut self, now: $crate::clock::Timestamp) -> $crate::sink::Readiness {
            self.$down.ready(now)
        }
        #[inline]
        fn batch_max(&self) -> usize {
            self.$down.batch_max()
        }
        #[inline]
        fn signal(
            &mut self,
            signal: &mut $crate::operator::Signal<'_>,
        ) -> $crate::error::Result<()> {
            self.$down.signal(signal)
        }
    };
}
pub(crate) use pass_on;
