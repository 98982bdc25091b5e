//! The suites find sources and sinks that break a rule.

use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::CheckpointId;
use crate::record::Output;
use crate::sink::{Collect, CollectWriter, Committable, Sink, Writer, WriterContext, collect};
use crate::source::{Poll, Reader, ReaderContext, Source, Split, range};

/// Which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    LosesASplit,
    StaysBeforeTheLastRecord,
    EmitsMoreThanTheLimit,
    CommitsAtThePrepare,
    ForgetsToCommitAtTheEnd,
    CommitsTwice,
}

/// The numbers below ten.
#[derive(Clone, Debug)]
struct Numbers(Fault);

struct NumbersReader<R> {
    fault: Fault,
    reader: R,
    before: Vec<Split>,
}

impl Source for Numbers {
    type Out = u64;
    type Reader = NumbersReader<Box<dyn Reading>>;

    fn splits(&self, parallelism: u32) -> Result<Vec<Split>> {
        range(0..10).splits(parallelism)
    }

    fn open(&self, splits: Vec<Split>, context: ReaderContext<'_>) -> Result<Self::Reader> {
        let reader = Box::new(range(0..10).open(splits, context)?);
        Ok(NumbersReader { fault: self.0, reader, before: Vec::new() })
    }
}

/// A reader of numbers, whatever its type.
trait Reading {
    fn poll(&mut self, limit: usize, out: &mut Output<'_, u64>) -> Result<Poll>;
    fn snapshot(&mut self) -> Vec<Split>;
}

impl<R: Reader<Out = u64>> Reading for R {
    fn poll(&mut self, limit: usize, out: &mut Output<'_, u64>) -> Result<Poll> {
        Reader::poll(self, limit, Timestamp::ZERO, out)
    }
    fn snapshot(&mut self) -> Vec<Split> {
        Reader::snapshot(self)
    }
}

impl Reader for NumbersReader<Box<dyn Reading>> {
    type Out = u64;

    fn poll(&mut self, limit: usize, _: Timestamp, out: &mut Output<'_, u64>) -> Result<Poll> {
        self.before = self.reader.snapshot();
        let more = usize::from(self.fault == Fault::EmitsMoreThanTheLimit);
        self.reader.poll(limit + more, out)
    }

    fn snapshot(&mut self) -> Vec<Split> {
        let skipped = usize::from(self.fault == Fault::LosesASplit);
        if self.fault == Fault::StaysBeforeTheLastRecord && !self.before.is_empty() {
            return self.before.clone();
        }
        self.reader.snapshot().into_iter().skip(skipped).collect()
    }
}

fn check_source(fault: Fault) {
    super::source::conformance(|| Numbers(fault), &(0..10).collect::<Vec<_>>());
}

#[test]
fn a_source_that_keeps_the_rules_passes() {
    check_source(Fault::None);
}

#[test]
#[should_panic(expected = "expected [0, 1")]
fn a_source_that_loses_a_split_is_found() {
    check_source(Fault::LosesASplit);
}

#[test]
#[should_panic(expected = "expected [0, 1")]
fn a_source_that_stays_before_the_last_record_is_found() {
    check_source(Fault::StaysBeforeTheLastRecord);
}

#[test]
#[should_panic(expected = "at most `limit` records")]
fn a_source_that_emits_more_than_the_limit_is_found() {
    check_source(Fault::EmitsMoreThanTheLimit);
}

#[derive(Clone, Debug)]
struct Faulty(Fault, Collect<u64>);

struct FaultyWriter(Fault, CollectWriter<u64>);

impl Sink<u64> for Faulty {
    type Writer = FaultyWriter;

    fn check(&self) -> Result<()> {
        self.1.check()
    }

    fn open(&self, prepared: Vec<Committable>, context: WriterContext<'_>) -> Result<FaultyWriter> {
        Ok(FaultyWriter(self.0, self.1.open(prepared, context)?))
    }
}

impl Writer<u64> for FaultyWriter {
    const COMMITS: bool = true;

    fn write(&mut self, record: u64) -> Result<()> {
        self.1.write(record)
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Vec<Committable>> {
        let prepared = self.1.prepare(checkpoint)?;
        if self.0 == Fault::CommitsAtThePrepare {
            self.1.commit(checkpoint)?;
        }
        Ok(prepared)
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<()> {
        self.1.commit(checkpoint)
    }

    fn finish(&mut self, checkpointed: bool) -> Result<()> {
        if self.0 == Fault::ForgetsToCommitAtTheEnd && !checkpointed {
            return Ok(());
        }
        self.1.finish(checkpointed)
    }
}

fn check_sink(fault: Fault) {
    let make = || {
        let (sink, collected) = collect::<u64>();
        let mut seen = Vec::new();
        (Faulty(fault, sink), move || {
            let taken = collected.take();
            seen.extend(&taken);
            if fault == Fault::CommitsTwice {
                seen.extend(&taken);
            }
            seen.clone()
        })
    };
    super::sink::conformance(make, &(0..20).collect::<Vec<_>>());
}

#[test]
fn a_sink_that_keeps_the_rules_passes() {
    check_sink(Fault::None);
}

#[test]
#[should_panic(expected = "only what the last complete checkpoint covers")]
fn a_sink_that_commits_too_early_is_found() {
    check_sink(Fault::CommitsAtThePrepare);
}

#[test]
#[should_panic(expected = "without checkpoints")]
fn a_sink_that_forgets_to_commit_at_the_end_is_found() {
    check_sink(Fault::ForgetsToCommitAtTheEnd);
}

#[test]
#[should_panic(expected = "visible is")]
fn a_sink_that_commits_twice_is_found() {
    check_sink(Fault::CommitsTwice);
}
