//! Any sink at a fixed rate: a slow consumer for benchmarks and tests of back-pressure.

use super::{Committable, Readiness, Sink, Writer, WriterContext};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::CheckpointId;
use crate::pace::Pace;
use crate::record::{Data, Feed};

/// A sink that takes a number of records a second, in total over its subtasks, and is busy in between.
pub fn paced<S>(sink: S, rows_per_second: u64) -> Paced<S> {
    Paced { sink, rows_per_second }
}

/// See [`paced`].
#[derive(Clone, Debug)]
pub struct Paced<S> {
    sink: S,
    rows_per_second: u64,
}

impl<T: Data, S: Sink<T>> Sink<T> for Paced<S> {
    type Writer = PacedWriter<S::Writer>;
    const RETRACTS: bool = S::RETRACTS;

    fn check(&self) -> Result<()> {
        if self.rows_per_second == 0 {
            return Err(Error::config("the rate of a sink is at least one record a second"));
        }
        self.sink.check()
    }

    fn retract(&self, after: CheckpointId) -> Result<()> {
        self.sink.retract(after)
    }

    fn open(&self, prepared: Vec<Committable>, context: WriterContext<'_>) -> Result<Self::Writer> {
        Ok(PacedWriter {
            writer: self.sink.open(prepared, context)?,
            pace: Pace::new(self.rows_per_second, context.subtask, context.parallelism),
        })
    }
}

/// Writes one subtask's records of a [`Paced`] sink.
#[derive(Debug)]
pub struct PacedWriter<W> {
    writer: W,
    pace: Pace,
}

impl<T: Data, W: Writer<T>> Writer<T> for PacedWriter<W> {
    const MAY_BE_BUSY: bool = true;
    const COMMITS: bool = W::COMMITS;

    fn write(&mut self, record: T::Ref<'_>) -> Result<()> {
        self.pace.took(1);
        self.writer.write(record)
    }

    fn batch<S: Feed<T>>(&mut self, feed: S) -> Result<()> {
        let mut outcome = Ok(());
        feed.each(|record| {
            self.pace.took(1);
            if outcome.is_ok() {
                outcome = self.writer.write(record);
            }
        });
        outcome
    }

    fn ready(&mut self, now: Timestamp) -> Readiness {
        match self.pace.due(now, 1) {
            Ok(_) => self.writer.ready(now),
            Err(until) => Readiness::Busy(until),
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.writer.flush()
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Vec<Committable>> {
        self.writer.prepare(checkpoint)
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.writer.commit(checkpoint)
    }

    fn finish(&mut self, checkpointed: bool) -> Result<()> {
        self.writer.finish(checkpointed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::collect;
    use super::*;
    use crate::testing::sink::conformance;

    #[test]
    fn a_paced_sink_conforms() {
        let records: Vec<u64> = (0..30).collect();
        conformance(
            || {
                let (sink, collected) = collect::<u64>();
                let mut seen = Vec::new();
                (paced(sink, 1000), move || {
                    seen.extend(collected.take());
                    seen.clone()
                })
            },
            &records,
        );
    }

    #[test]
    fn it_is_busy_until_the_next_record_is_due() {
        let context = WriterContext {
            name: "slow",
            subtask: 0,
            parallelism: 1,
            attempt: crate::id::Attempt(0),
            restored: None,
        };
        let sink = paced(super::super::discard(), 100);
        let mut writer = Sink::<u64>::open(&sink, Vec::new(), context).expect("opens");
        let start = Timestamp::from_millis(50);
        assert_eq!(Writer::<u64>::ready(&mut writer, start), Readiness::Ready);
        Writer::<u64>::write(&mut writer, 1).expect("writes");
        let next = Timestamp::from_millis(60);
        assert_eq!(Writer::<u64>::ready(&mut writer, start), Readiness::Busy(next));
        assert_eq!(Writer::<u64>::ready(&mut writer, next), Readiness::Ready);
        assert!(Sink::<u64>::check(&paced(super::super::discard(), 0)).is_err());
    }
}
