//! Any source at a fixed rate.

use super::{Poll, Reader, ReaderContext, Source, Split};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::pace::Pace;
use crate::record::{Data, Output};

/// A source that is held to a number of records a second: see [`Source::rate`].
#[derive(Clone, Debug)]
pub struct Rate<S> {
    source: S,
    rows_per_second: u64,
}

impl<S> Rate<S> {
    pub(super) fn new(source: S, rows_per_second: u64) -> Self {
        Self { source, rows_per_second }
    }
}

impl<S: Source> Source for Rate<S> {
    type Out = S::Out;
    type Reader = RateReader<S::Reader>;

    fn splits(&self, parallelism: u32) -> Result<Vec<Split>> {
        if self.rows_per_second == 0 {
            return Err(Error::config("the rate of a source is at least one record a second"));
        }
        self.source.splits(parallelism)
    }

    fn open(&self, splits: Vec<Split>, context: ReaderContext<'_>) -> Result<Self::Reader> {
        Ok(RateReader {
            reader: self.source.open(splits, context)?,
            pace: Pace::new(self.rows_per_second, context.subtask, context.parallelism),
        })
    }
}

/// Reads one subtask's share of a [`Rate`].
#[derive(Debug)]
pub struct RateReader<R> {
    reader: R,
    pace: Pace,
}

impl<R: Reader> Reader for RateReader<R> {
    type Out = R::Out;

    fn poll(&mut self, limit: usize, now: Timestamp, out: &mut Output<'_, R::Out>) -> Result<Poll> {
        let limit = match self.pace.due(now, limit) {
            Ok(due) => due,
            Err(until) => return Ok(Poll::Busy(until)),
        };
        let mut emitted = 0;
        let mut counted = |record: <R::Out as Data>::Ref<'_>| {
            emitted += 1;
            out.emit_ref(record);
        };
        let answer = self.reader.poll(limit, now, &mut Output::new(&mut counted))?;
        self.pace.took(emitted);
        Ok(match (answer, self.pace.due(now, 1)) {
            (Poll::Ready, Err(until)) => Poll::Busy(until),
            (answer, _) => answer,
        })
    }

    fn snapshot(&mut self) -> Vec<Split> {
        self.reader.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::super::range;
    use super::*;
    use crate::testing::source::{Drive, conformance};

    #[test]
    fn a_paced_source_conforms_and_takes_its_time() {
        conformance(|| range(0..30).rate(1000), &(0..30).collect::<Vec<_>>());
        let mut drive = Drive::new(&range(0..1000).rate(1000), 2).expect("opens");
        assert_eq!(drive.read_all(256).len(), 1000);
        assert_eq!(drive.now(), Timestamp::from_millis(999));
    }

    #[test]
    fn a_rate_of_zero_is_refused() {
        let error = range(0..1).rate(0).splits(1).expect_err("is refused");
        assert_eq!(error.kind(), crate::error::ErrorKind::Config);
    }
}
