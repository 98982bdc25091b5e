//! Where records go: the traits, and the sinks that ship.
//!
//! A [`Sink`] describes an output and can be cloned; each attempt of each subtask opens a [`Writer`]. Exactly-once
//! output is in two phases: at a checkpoint's barrier the writer *prepares* what it has (nothing of it is visible), and
//! when the checkpoint is complete it *commits*. What was prepared is part of the checkpoint, so after a crash between the
//! two it is committed on restore: commits must be idempotent.

mod channel;
mod collect;
mod each;
mod files;
mod fold;
mod memory;
mod paced;
mod stdout;

pub use channel::{Channel, ChannelWriter, Receiver, channel};
pub use collect::{Collect, CollectWriter, Collected, collect};
pub use each::{Discard, EachWriter, ForEach, discard, for_each};
pub use files::{Displayed, ExactlyOnceFiles, FilesWriter, Formatted, Line, exactly_once_files};
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use files::{part_name, prepared_again, prepared_sample};
pub use fold::{Fold, FoldWriter, Folded, fold};
pub use paced::{Paced, PacedWriter, paced};
pub use stdout::{Stdout, StdoutWriter, stdout};

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Attempt, CheckpointId};
use crate::record::{Data, Feed};

/// Which writer is opened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WriterContext<'a> {
    /// The sink's name in the job.
    pub name: &'a str,
    /// Which subtask of the sink, from 0.
    pub subtask: u32,
    /// How many subtasks the sink has.
    pub parallelism: u32,
    /// Which attempt: in the names of what is not yet committed, so that a zombie of an earlier attempt can't touch it.
    pub attempt: Attempt,
    /// The checkpoint that was restored, if the job goes on from one.
    pub restored: Option<CheckpointId>,
}

/// What a writer prepared for one checkpoint, in the sink's own bytes: enough to commit it again after a crash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Committable(pub Vec<u8>);

/// Whether a writer takes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A batch may come.
    Ready,
    /// Not before that moment; [`Timestamp::MAX`] if only a wake-up can tell.
    Busy(Timestamp),
}

/// An output.
///
/// A sink in two phases, checked by the suite that ours pass too. What it writes to takes a batch under a key, and taking one
/// again changes nothing, so that commits are idempotent:
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Arc, Mutex, PoisonError};
///
/// use tidegate::id::CheckpointId;
/// use tidegate::sink::{Committable, Sink, Writer, WriterContext};
/// use tidegate::{Result, testing};
///
/// /// Batches of numbers by checkpoint and subtask.
/// #[derive(Clone, Default)]
/// struct Database(Arc<Mutex<BTreeMap<(u64, u64), Vec<u64>>>>);
///
/// impl Database {
///     /// A batch is its checkpoint, its subtask, and the numbers.
///     fn put(&self, batch: &Committable) {
///         let words: Vec<u64> =
///             batch.0.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
///         let mut batches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         batches.insert((words[0], words[1]), words[2..].to_vec());
///     }
/// }
///
/// struct DatabaseWriter {
///     database: Database,
///     subtask: u64,
///     numbers: Vec<u64>,
///     /// Not known to be committed; each checkpoint carries all of them.
///     prepared: Vec<Committable>,
/// }
///
/// impl DatabaseWriter {
///     fn close_batch(&mut self, checkpoint: u64) {
///         if !self.numbers.is_empty() {
///             let words = [checkpoint, self.subtask].into_iter().chain(self.numbers.drain(..));
///             self.prepared.push(Committable(words.flat_map(u64::to_le_bytes).collect()));
///         }
///     }
/// }
///
/// impl Sink<u64> for Database {
///     type Writer = DatabaseWriter;
///
///     fn open(&self, prepared: Vec<Committable>, context: WriterContext<'_>) -> Result<DatabaseWriter> {
///         // The checkpoint that is restored is complete: what was prepared for it is committed, maybe again.
///         prepared.iter().for_each(|batch| self.put(batch));
///         let (database, subtask) = (self.clone(), context.subtask.into());
///         Ok(DatabaseWriter { database, subtask, numbers: Vec::new(), prepared: Vec::new() })
///     }
/// }
///
/// impl Writer<u64> for DatabaseWriter {
///     const COMMITS: bool = true;
///
///     fn write(&mut self, number: u64) -> Result<()> {
///         self.numbers.push(number);
///         Ok(())
///     }
///
///     fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Vec<Committable>> {
///         self.close_batch(checkpoint.0);
///         Ok(self.prepared.clone())
///     }
///
///     fn commit(&mut self, _checkpoint: CheckpointId) -> Result<()> {
///         self.prepared.drain(..).for_each(|batch| self.database.put(&batch));
///         Ok(())
///     }
///
///     fn finish(&mut self, checkpointed: bool) -> Result<()> {
///         if !checkpointed {
///             self.close_batch(u64::MAX);
///             self.prepared.drain(..).for_each(|batch| self.database.put(&batch));
///         }
///         Ok(())
///     }
/// }
///
/// let fresh = || {
///     let database = Database::default();
///     let reader = database.clone();
///     (database, move || reader.0.lock().unwrap().values().flatten().copied().collect())
/// };
/// testing::sink::conformance(fresh, &[3, 1, 4, 1, 5, 9, 2, 6]);
/// ```
pub trait Sink<T: Data>: Clone + Send + 'static {
    /// What one subtask writes with.
    type Writer: Writer<T>;
    /// Whether [`Sink::retract`] can take back what was committed. A job does not go back to an earlier checkpoint with a sink
    /// that commits and can't.
    const RETRACTS: bool = false;

    /// Checks the output before any task starts.
    ///
    /// # Errors
    /// The output can't be used. The job does not start.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The job goes back to checkpoint `after`, by its user's wish: takes back what later ones committed. Called before any task
    /// starts, and again if that was interrupted.
    ///
    /// # Errors
    /// `Unsupported`, unless the sink [`RETRACTS`](Sink::RETRACTS); else that something could not be taken back. The job does
    /// not start.
    fn retract(&self, _after: CheckpointId) -> Result<()> {
        let message = "the sink can't take back what later checkpoints committed";
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// Opens a writer. `prepared` is what the restored checkpoint holds for this subtask: it is complete, so all of it
    /// is committed (again) before this returns. What other attempts left uncommitted is removed.
    ///
    /// # Errors
    /// The output can't be opened, or a commit failed. The task fails.
    fn open(&self, prepared: Vec<Committable>, context: WriterContext<'_>) -> Result<Self::Writer>;
}

/// Writes one subtask's records.
pub trait Writer<T: Data>: 'static {
    /// Whether [`Writer::ready`] may answer `Busy`: such a writer is given batches of one record.
    const MAY_BE_BUSY: bool = false;
    /// Whether [`Writer::prepare`] may leave something to commit: then the end of a job waits for a last checkpoint.
    const COMMITS: bool = false;

    /// Writes a record.
    ///
    /// # Errors
    /// The task fails and restarts from the last checkpoint.
    fn write(&mut self, record: T::Ref<'_>) -> Result<()>;

    /// Writes a batch; by default record by record, up to the first error.
    ///
    /// # Errors
    /// As [`Writer::write`].
    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, feed: S) -> Result<()> {
        let mut outcome = Ok(());
        feed.each(|record| {
            if outcome.is_ok() {
                outcome = self.write(record);
            }
        });
        outcome
    }

    /// Whether records may come. A writer never sleeps: it says until when it is busy.
    fn ready(&mut self, _now: Timestamp) -> Readiness {
        Readiness::Ready
    }

    /// Called when there is no more input for the moment.
    ///
    /// # Errors
    /// As [`Writer::write`].
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// A checkpoint's barrier: everything written so far is made durable but not visible.
    ///
    /// # Errors
    /// The checkpoint is declined with the cause; the job goes on.
    fn prepare(&mut self, _checkpoint: CheckpointId) -> Result<Vec<Committable>> {
        Ok(Vec::new())
    }

    /// A checkpoint is complete: everything prepared for it and earlier ones becomes visible.
    ///
    /// # Errors
    /// The task fails; the commit is done on restore.
    fn commit(&mut self, _checkpoint: CheckpointId) -> Result<()> {
        Ok(())
    }

    /// The input has ended. Without checkpoints everything becomes visible here; with them it waits for the last one.
    ///
    /// # Errors
    /// As [`Writer::write`].
    fn finish(&mut self, _checkpointed: bool) -> Result<()> {
        Ok(())
    }
}
