//! One accumulator per subtask, exactly once.
//!
//! The loop over a batch keeps the accumulator in a local, so the compiler makes one vectorised loop of it and what
//! comes before. At a checkpoint the accumulator is cloned; a restart in this process goes on from the restored
//! checkpoint's clone, a job restored by another process from the initial value.

use std::fmt;
use std::marker::PhantomData;

use super::memory::{Memory, Part, Place};
use super::{Committable, Sink, Writer, WriterContext};
use crate::error::Result;
use crate::id::CheckpointId;
use crate::record::{Data, Feed};

/// A sink that folds records into an accumulator per subtask, and the handle that yields them after the run.
///
/// Name the record type: `fold::<u64, _, _>(0, |sum, n| *sum += n)`.
pub fn fold<T: Data, A, F>(init: A, f: F) -> (Fold<T, A, F>, Folded<A>)
where
    A: Clone + Send + 'static,
    F: for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
{
    let memory = Memory::new();
    (Fold { init, f, memory: memory.clone(), of: PhantomData }, Folded { memory })
}

/// See [`fold`].
pub struct Fold<T, A, F> {
    init: A,
    f: F,
    memory: Memory<Accumulator<A>>,
    of: PhantomData<fn(T)>,
}

impl<T, A: Clone, F: Clone> Clone for Fold<T, A, F> {
    fn clone(&self) -> Self {
        Self {
            init: self.init.clone(),
            f: self.f.clone(),
            memory: self.memory.clone(),
            of: PhantomData,
        }
    }
}

impl<T, A, F> fmt::Debug for Fold<T, A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fold").finish_non_exhaustive()
    }
}

/// What a [`fold`] sink has come to.
pub struct Folded<A> {
    memory: Memory<Accumulator<A>>,
}

impl<A> fmt::Debug for Folded<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folded").finish_non_exhaustive()
    }
}

impl<A: Send + 'static> Folded<A> {
    /// Takes the accumulators, one of each subtask in order. A job whose parallelism was lowered while it ran also yields
    /// those of the subtasks that are no more.
    pub fn take(&self) -> Vec<A> {
        self.memory.take().into_iter().map(|part| part.0).collect()
    }
}

struct Accumulator<A>(A);

impl<A: Send + 'static> Part for Accumulator<A> {
    fn join(&mut self, later: Self) {
        // A later clone covers everything that an earlier one does.
        *self = later;
    }
}

impl<T: Data, A, F> Sink<T> for Fold<T, A, F>
where
    A: Clone + Send + 'static,
    F: for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
{
    type Writer = FoldWriter<A, F>;

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
        let committed = place.with_committed(|part| part.map(|part| part.0.clone()))?;
        let accumulator = Some(committed.unwrap_or_else(|| self.init.clone()));
        Ok(FoldWriter { accumulator, f: self.f.clone(), place })
    }
}

/// Folds one subtask's records of a [`Fold`].
pub struct FoldWriter<A, F> {
    /// Absent only while a batch is folded, and after a panic in it.
    accumulator: Option<A>,
    f: F,
    place: Place<Accumulator<A>>,
}

impl<A, F> fmt::Debug for FoldWriter<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FoldWriter").finish_non_exhaustive()
    }
}

const PRESENT: &str = "a writer whose closure panicked is not used again";

impl<T: Data, A, F> Writer<T> for FoldWriter<A, F>
where
    A: Clone + Send + 'static,
    F: for<'a> FnMut(&mut A, T::Ref<'a>) + 'static,
{
    const COMMITS: bool = true;

    #[inline(always)]
    fn write(&mut self, record: T::Ref<'_>) -> Result<()> {
        (self.f)(self.accumulator.as_mut().expect(PRESENT), record);
        Ok(())
    }

    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, feed: S) -> Result<()> {
        let mut accumulator = self.accumulator.take().expect(PRESENT);
        let f = &mut self.f;
        feed.each(|record| f(&mut accumulator, record));
        self.accumulator = Some(accumulator);
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Vec<Committable>> {
        let accumulator = self.accumulator.as_ref().expect(PRESENT);
        self.place.prepare(checkpoint, Accumulator(accumulator.clone()))
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.place.commit(checkpoint)
    }

    fn finish(&mut self, checkpointed: bool) -> Result<()> {
        if checkpointed {
            return Ok(());
        }
        let accumulator = self.accumulator.as_ref().expect(PRESENT);
        self.place.add(Accumulator(accumulator.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sink::conformance;

    #[test]
    fn folding_conforms_with_the_accumulator_a_list_of_all_records() {
        let records: Vec<String> = (0..30).map(|i| format!("r{i}")).collect();
        conformance(
            || {
                let (sink, folded) =
                    fold::<String, _, _>(Vec::new(), |all: &mut Vec<String>, record| {
                        all.push(record.to_owned())
                    });
                let memory = folded.memory;
                (sink, move || memory.peek(|part| part.0.clone()).concat())
            },
            &records,
        );
    }

    #[test]
    fn a_batch_is_folded_like_its_records() {
        struct Numbers(u64);
        impl Feed<u64> for Numbers {
            fn each<G: for<'x> FnMut(u64)>(self, g: G) {
                (0..self.0).for_each(g);
            }
        }
        let (sink, folded) = fold::<u64, _, _>(0u64, |sum, n| *sum += n);
        let context = WriterContext {
            name: "sum",
            subtask: 0,
            parallelism: 1,
            attempt: crate::id::Attempt(0),
            restored: None,
        };
        let mut writer = sink.open(Vec::new(), context).expect("opens");
        Writer::<u64>::batch(&mut writer, Numbers(101)).expect("folds");
        Writer::<u64>::write(&mut writer, 50).expect("folds");
        assert!(folded.take().is_empty(), "nothing counts before the end");
        Writer::<u64>::finish(&mut writer, false).expect("finishes");
        assert_eq!(folded.take(), [5100]);
    }

    #[test]
    fn a_closure_that_names_its_arguments_needs_no_type_named() {
        let (sink, folded) = fold(0, |length: &mut usize, text: &str| *length += text.len());
        let context = WriterContext {
            name: "length",
            subtask: 0,
            parallelism: 1,
            attempt: crate::id::Attempt(0),
            restored: None,
        };
        let mut writer = Sink::<String>::open(&sink, Vec::new(), context).expect("opens");
        Writer::<String>::write(&mut writer, "four").expect("writes");
        Writer::<String>::finish(&mut writer, false).expect("finishes");
        assert_eq!(folded.take(), [4]);
    }
}
