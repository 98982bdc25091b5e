//! Records into a `Vec` of the host program, exactly once.
//!
//! For tests and small results: everything is held in memory. Each record counts once the checkpoint that covers it is
//! complete, or at the end of a job without checkpoints.

use std::fmt;

use super::memory::{Memory, Part, Place};
use super::{Committable, Sink, Writer, WriterContext};
use crate::error::Result;
use crate::id::CheckpointId;
use crate::record::Data;

/// A sink that keeps all records, and the handle that yields them after the run.
pub fn collect<T: Data>() -> (Collect<T>, Collected<T>) {
    let memory = Memory::new();
    (Collect { memory: memory.clone() }, Collected { memory })
}

/// See [`collect`].
pub struct Collect<T> {
    memory: Memory<Vec<T>>,
}

impl<T> Clone for Collect<T> {
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone() }
    }
}

impl<T> fmt::Debug for Collect<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collect").finish_non_exhaustive()
    }
}

/// What a [`collect`] sink has kept.
pub struct Collected<T> {
    memory: Memory<Vec<T>>,
}

impl<T> fmt::Debug for Collected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collected").finish_non_exhaustive()
    }
}

impl<T: Data> Collected<T> {
    /// Takes the records that count: of each subtask in order, subtask by subtask. Records of a restored job are those
    /// of this process.
    pub fn take(&self) -> Vec<T> {
        self.memory.take().into_iter().flatten().collect()
    }
}

impl<T: Send + 'static> Part for Vec<T> {
    fn join(&mut self, later: Self) {
        self.extend(later);
    }
}

impl<T: Data> Sink<T> for Collect<T> {
    type Writer = CollectWriter<T>;

    const RETRACTS: bool = true;

    fn check(&self) -> Result<()> {
        self.memory.begin();
        Ok(())
    }

    /// What is kept is of this run alone.
    fn retract(&self, _after: CheckpointId) -> Result<()> {
        Ok(())
    }

    fn open(
        &self,
        _prepared: Vec<Committable>,
        context: WriterContext<'_>,
    ) -> Result<Self::Writer> {
        let place = self.memory.open(&context)?;
        Ok(CollectWriter { records: Vec::new(), place })
    }
}

/// Writes one subtask's records of a [`Collect`].
pub struct CollectWriter<T> {
    /// Not yet prepared.
    records: Vec<T>,
    place: Place<Vec<T>>,
}

impl<T> fmt::Debug for CollectWriter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectWriter").finish_non_exhaustive()
    }
}

impl<T: Data> Writer<T> for CollectWriter<T> {
    const COMMITS: bool = true;

    #[inline(always)]
    fn write(&mut self, record: T::Ref<'_>) -> Result<()> {
        self.records.push(T::own(record));
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Vec<Committable>> {
        self.place.prepare(checkpoint, std::mem::take(&mut self.records))
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.place.commit(checkpoint)
    }

    fn finish(&mut self, checkpointed: bool) -> Result<()> {
        if checkpointed {
            return Ok(());
        }
        self.place.add(std::mem::take(&mut self.records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sink::conformance;

    #[test]
    fn collecting_conforms() {
        let records: Vec<u64> = (0..30).collect();
        conformance(
            || {
                let (sink, collected) = collect::<u64>();
                let mut seen = Vec::new();
                (sink, move || {
                    seen.extend(collected.take());
                    seen.clone()
                })
            },
            &records,
        );
    }

    #[test]
    fn records_are_taken_in_the_order_of_subtasks_and_of_writing() {
        let (sink, collected) = collect::<String>();
        let mut writers: Vec<_> = (0..2)
            .map(|subtask| {
                let context = WriterContext {
                    name: "kept",
                    subtask,
                    parallelism: 2,
                    attempt: crate::id::Attempt(0),
                    restored: None,
                };
                sink.open(Vec::new(), context).expect("opens")
            })
            .collect();
        writers[1].write("c").expect("writes");
        writers[0].write("a").expect("writes");
        writers[0].write("b").expect("writes");
        assert!(collected.take().is_empty());
        for writer in &mut writers {
            writer.finish(false).expect("finishes");
        }
        assert_eq!(collected.take(), ["a", "b", "c"]);
    }
}
