//! Drives a source without an engine, and checks that it reads everything exactly once.

use std::fmt;

use super::{Dice, multiset};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::record::{Data, Output};
use crate::source::{Poll, Reader, ReaderContext, Source, Split};

/// How many stop positions of a longer input are tried.
const STOPS_MAX: usize = 64;
/// A reader that emits nothing this many times in a row, without being busy, is taken to spin.
const IDLE_POLLS_MAX: u32 = 100_000;

/// The readers of one run of a source, polled in turn on a clock that jumps to when they are no longer busy.
pub struct Drive<S: Source> {
    readers: Vec<Option<S::Reader>>,
    now: Timestamp,
}

impl<S: Source> fmt::Debug for Drive<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<S: Source> Drive<S> {
    /// A first run with `parallelism` subtasks.
    ///
    /// # Errors
    /// The source can't name its splits or open a reader.
    pub fn new(source: &S, parallelism: u32) -> Result<Self> {
        Self::restored(source, parallelism, source.splits(parallelism)?)
    }

    /// A run that goes on from a snapshot's splits.
    ///
    /// # Errors
    /// A split can't be opened.
    pub fn restored(source: &S, parallelism: u32, splits: Vec<Split>) -> Result<Self> {
        let mut shares = vec![Vec::new(); parallelism as usize];
        for (i, split) in splits.into_iter().enumerate() {
            shares[i % parallelism as usize].push(split);
        }
        let readers = shares
            .into_iter()
            .zip(0..)
            .map(|(share, subtask)| {
                let context = ReaderContext { name: "source", subtask, parallelism };
                source.open(share, context).map(Some)
            })
            .collect::<Result<_>>()?;
        Ok(Self { readers, now: Timestamp::ZERO })
    }

    /// Polls subtask `index` once, adding what it emits to `into`.
    ///
    /// # Errors
    /// What the reader answers.
    ///
    /// # Panics
    /// The reader emits more than `limit` records.
    pub fn poll(&mut self, index: usize, limit: usize, into: &mut Vec<S::Out>) -> Result<Poll> {
        let Some(reader) = &mut self.readers[index] else {
            return Ok(Poll::End);
        };
        let before = into.len();
        let mut to = |record: <S::Out as Data>::Ref<'_>| into.push(S::Out::own(record));
        let answer = reader.poll(limit, self.now, &mut Output::new(&mut to))?;
        assert!(into.len() - before <= limit, "a reader emits at most `limit` records");
        match answer {
            Poll::End => self.readers[index] = None,
            Poll::Busy(until) => {
                assert!(until > self.now, "a reader is busy until a later moment");
            }
            Poll::Ready => {}
        }
        Ok(answer)
    }

    /// Reads at least `n` records, or all; each poll has `limit`.
    ///
    /// # Errors
    /// What a reader answers.
    ///
    /// # Panics
    /// A reader spins, or none can go on without a wake-up.
    pub fn try_read(&mut self, n: usize, limit: usize) -> Result<Vec<S::Out>> {
        let (mut read, mut idle) = (Vec::new(), 0);
        while read.len() < n && self.readers.iter().any(Option::is_some) {
            let before = read.len();
            let (mut ready, mut until) = (false, Timestamp::MAX);
            for index in 0..self.readers.len() {
                if read.len() >= n {
                    break;
                }
                if self.readers[index].is_none() {
                    continue;
                }
                match self.poll(index, limit.min(n - read.len()), &mut read)? {
                    Poll::Busy(moment) => until = until.min(moment),
                    Poll::Ready | Poll::End => ready = true,
                }
            }
            idle = if read.len() == before && ready { idle + 1 } else { 0 };
            assert!(idle < IDLE_POLLS_MAX, "a reader says that it is ready and emits nothing");
            if !ready {
                assert!(until < Timestamp::MAX, "all readers wait for a wake-up");
                self.now = until;
            }
        }
        Ok(read)
    }

    /// Reads `n` records, or all if there are fewer; each poll has `limit`.
    ///
    /// # Panics
    /// As [`Drive::try_read`], and if a reader answers an error.
    pub fn read_at_most(&mut self, n: usize, limit: usize) -> Vec<S::Out> {
        self.try_read(n, limit).unwrap_or_else(|error| panic!("a reader failed: {error}"))
    }

    /// Reads everything.
    ///
    /// # Panics
    /// As [`Drive::read_at_most`].
    pub fn read_all(&mut self, limit: usize) -> Vec<S::Out> {
        self.read_at_most(usize::MAX, limit)
    }

    /// Reads everything, one subtask after the other.
    ///
    /// # Panics
    /// A reader answers an error.
    pub fn read_shares(&mut self) -> Vec<Vec<S::Out>> {
        (0..self.readers.len())
            .map(|index| {
                let mut share = Vec::new();
                while self.readers[index].is_some() {
                    let answer = self.poll(index, 256, &mut share);
                    match answer.unwrap_or_else(|error| panic!("a reader failed: {error}")) {
                        Poll::Busy(until) => self.now = until,
                        Poll::Ready | Poll::End => {}
                    }
                }
                share
            })
            .collect()
    }

    /// The splits of all readers that have not ended.
    pub fn snapshot(&mut self) -> Vec<Split> {
        self.readers.iter_mut().flatten().flat_map(Reader::snapshot).collect()
    }

    /// What the readers' clock shows.
    pub fn now(&self) -> Timestamp {
        self.now
    }
}

/// Checks that a finite source emits exactly `expected`, in any order: read through at several parallelisms and limits,
/// and stopped at every position (of a long input at many), snapshotted, and opened again at another parallelism.
///
/// # Panics
/// It does not; the message says where.
pub fn conformance<S: Source>(make: impl Fn() -> S, expected: &[S::Out])
where
    S::Out: fmt::Debug,
{
    let source = make();
    let opened = |parallelism| {
        Drive::new(&source, parallelism).unwrap_or_else(|error| panic!("can't open: {error}"))
    };
    for parallelism in [1, 2, 3, 7] {
        for limit in [1, 3, 256] {
            let read = opened(parallelism).read_all(limit);
            assert_same(&read, expected, &format!("{parallelism} subtasks, limit {limit}"));
        }
    }
    let none = Drive::restored(&source, 2, Vec::new());
    let read =
        none.unwrap_or_else(|error| panic!("can't open without splits: {error}")).read_all(1);
    assert!(read.is_empty(), "a reader without splits ends at once, and emitted {read:?}");

    let mut dice = Dice::new(expected.len() as u64);
    let stops: Vec<usize> = if expected.len() <= STOPS_MAX {
        (0..=expected.len()).collect()
    } else {
        (0..STOPS_MAX).map(|_| dice.below(expected.len() + 1)).collect()
    };
    for stop in stops {
        let (before, after) = (1 + dice.below(4) as u32, 1 + dice.below(4) as u32);
        let (limit, again) = (1 + dice.below(5), dice.below(expected.len() - stop + 1));
        let case = format!("stopped after {stop}, then {again} more, {before} -> {after} subtasks");
        let mut first = opened(before);
        let mut read = first.read_at_most(stop, limit);
        let splits = first.snapshot();
        assert_eq!(splits, first.snapshot(), "a snapshot changes nothing ({case})");
        let mut undisturbed = read.clone();
        undisturbed.extend(first.read_all(limit));
        assert_same(&undisturbed, expected, &format!("{case}: without a restart"));

        let restored = |parallelism, splits| {
            Drive::restored(&source, parallelism, splits)
                .unwrap_or_else(|error| panic!("can't open a snapshot ({case}): {error}"))
        };
        let mut second = restored(after, splits);
        read.extend(second.read_at_most(again, limit));
        let mut third = restored(before, second.snapshot());
        read.extend(third.read_all(256));
        assert_same(&read, expected, &case);
        assert!(third.snapshot().is_empty(), "nothing is left at the end ({case})");
    }
}

/// Asserts that two lists hold the same records, however ordered.
fn assert_same<T: Data + fmt::Debug>(read: &[T], expected: &[T], case: &str) {
    if multiset(read) != multiset(expected) {
        panic!("{case}: expected {expected:?} in any order, but read {read:?}");
    }
}
