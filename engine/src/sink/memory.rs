//! What writers leave in this process for the host program, exactly once: the store behind `collect` and `fold`.
//!
//! A value is kept per subtask and checkpoint when it is prepared, and counts once that checkpoint is complete. A
//! restart throws away what the restored checkpoint does not cover. The store lives as long as the process: a job
//! restored by another process starts with an empty one. Invariant: only the newest attempt of a subtask changes its
//! slot, so an attempt that was left behind can't.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Committable, WriterContext};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Attempt, CheckpointId};

/// A value that a writer hands over at a checkpoint.
pub(super) trait Part: Send + 'static {
    /// Makes `self` and a later part one.
    fn join(&mut self, later: Self);
}

/// The slots of all subtasks, shared by a sink's clones, its writers and the handle.
pub(super) struct Memory<P>(Arc<Mutex<BTreeMap<u32, Slot<P>>>>);

struct Slot<P> {
    owner: Attempt,
    committed: Option<P>,
    prepared: BTreeMap<CheckpointId, P>,
}

const VERSION: u8 = 1;

impl<P> Clone for Memory<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P> fmt::Debug for Memory<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl<P: Part> Memory<P> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(BTreeMap::new())))
    }

    /// A run begins, and its attempts count from 0.
    pub(super) fn begin(&self) {
        self.lock().values_mut().for_each(|slot| slot.owner = Attempt(0));
    }

    /// Commits what the restored checkpoint covers and forgets the rest; the slot is then `context.attempt`'s.
    pub(super) fn open(&self, context: &WriterContext<'_>) -> Result<Place<P>> {
        let (subtask, attempt) = (context.subtask, context.attempt);
        let mut slots = self.lock();
        let own = slots.entry(subtask).or_insert_with(|| Slot {
            owner: attempt,
            committed: None,
            prepared: BTreeMap::new(),
        });
        if own.owner > attempt {
            return Err(superseded(attempt));
        }
        own.owner = attempt;
        // What a larger parallelism left has no subtask of its own any more.
        let orphan = |of: u32| of >= context.parallelism && of % context.parallelism == subtask;
        for (_, slot) in slots.iter_mut().filter(|(of, _)| **of == subtask || orphan(**of)) {
            match context.restored {
                Some(restored) => slot.commit(restored),
                None => slot.committed = None,
            }
            slot.prepared.clear();
        }
        drop(slots);
        Ok(Place { memory: self.clone(), subtask, attempt })
    }

    /// Everything that counts, in the order of the subtasks; the store is empty afterwards.
    pub(super) fn take(&self) -> Vec<P> {
        self.lock().values_mut().filter_map(|slot| slot.committed.take()).collect()
    }

    /// Looks at everything that counts.
    #[cfg(test)]
    pub(super) fn peek<R>(&self, f: impl Fn(&P) -> R) -> Vec<R> {
        self.lock().values().filter_map(|slot| slot.committed.as_ref().map(&f)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Slot<P>>> {
        // Nothing in here runs user code between two changes of a slot, so a poisoned store is a whole one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Part> Slot<P> {
    fn commit(&mut self, checkpoint: CheckpointId) {
        let later = self.prepared.split_off(&CheckpointId(checkpoint.0.saturating_add(1)));
        for (_, part) in std::mem::replace(&mut self.prepared, later) {
            self.add(part);
        }
    }

    fn add(&mut self, part: P) {
        match &mut self.committed {
            Some(committed) => committed.join(part),
            None => self.committed = Some(part),
        }
    }
}

/// One attempt's access to its subtask's slot.
#[derive(Debug)]
pub(super) struct Place<P> {
    memory: Memory<P>,
    subtask: u32,
    attempt: Attempt,
}

impl<P: Part> Place<P> {
    /// Keeps a part that counts once `checkpoint` is complete.
    pub(super) fn prepare(&self, checkpoint: CheckpointId, part: P) -> Result<Vec<Committable>> {
        self.with(|slot| {
            slot.prepared.insert(checkpoint, part);
            // The slot knows the rest; this says that there is something to commit.
            vec![Committable(vec![VERSION])]
        })
    }

    /// Lets everything prepared for `checkpoint` and earlier ones count.
    pub(super) fn commit(&self, checkpoint: CheckpointId) -> Result<()> {
        self.with(|slot| slot.commit(checkpoint))
    }

    /// Lets a part count at once.
    pub(super) fn add(&self, part: P) -> Result<()> {
        self.with(|slot| slot.add(part))
    }

    /// What counts so far.
    pub(super) fn with_committed<R>(&self, f: impl FnOnce(Option<&P>) -> R) -> Result<R> {
        self.with(|slot| f(slot.committed.as_ref()))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Slot<P>) -> R) -> Result<R> {
        match self.memory.lock().get_mut(&self.subtask) {
            Some(slot) if slot.owner == self.attempt => Ok(f(slot)),
            _ => Err(superseded(self.attempt)),
        }
    }
}

fn superseded(attempt: Attempt) -> Error {
    Error::new(ErrorKind::Cancelled, format!("attempt {attempt} was superseded by a later one"))
}
