//! The clock of the throughput workloads: from the first event that a source emits to the last one that a sink has taken
//! in. What is before (making threads) and behind (the last checkpoint) doesn't count, as with the programs compared with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::clock::Timestamp;
use tidegate::id::CheckpointId;
use tidegate::record::{Data, Feed, Output};
use tidegate::sink::{Committable, Readiness, Sink, Writer, WriterContext};
use tidegate::source::{Poll, Reader, ReaderContext, Source, Split};
use tidegate::{Error, Result};

use crate::usage::cpu;

/// The span of one run.
#[derive(Clone, Debug)]
pub struct Span(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    made: Instant,
    first_nanos: AtomicU64,
    last_nanos: AtomicU64,
    first_cpu: AtomicU64,
    last_cpu: AtomicU64,
}

impl Default for Span {
    fn default() -> Self {
        Self(Arc::new(Inner {
            made: Instant::now(),
            first_nanos: AtomicU64::new(u64::MAX),
            last_nanos: AtomicU64::new(0),
            first_cpu: AtomicU64::new(u64::MAX),
            last_cpu: AtomicU64::new(0),
        }))
    }
}

impl Span {
    /// Nanoseconds since the span was made.
    pub fn now(&self) -> u64 {
        nanos(self.0.made.elapsed())
    }

    fn begin(&self) {
        self.0.first_nanos.fetch_min(self.now(), Ordering::Relaxed);
        self.0.first_cpu.fetch_min(nanos(cpu()), Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.last_nanos.fetch_max(self.now(), Ordering::Relaxed);
        self.0.last_cpu.fetch_max(nanos(cpu()), Ordering::Relaxed);
    }

    /// How long it was.
    pub fn seconds(&self) -> f64 {
        seconds(&self.0.first_nanos, &self.0.last_nanos)
    }

    /// The CPU time of the whole process in it.
    pub fn cpu_seconds(&self) -> f64 {
        seconds(&self.0.first_cpu, &self.0.last_cpu)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn seconds(first: &AtomicU64, last: &AtomicU64) -> f64 {
    let (first, last) = (first.load(Ordering::Relaxed), last.load(Ordering::Relaxed));
    last.saturating_sub(first) as f64 / 1e9
}

/// A source or sink that tells the span when it begins or has ended.
#[derive(Clone, Debug)]
pub struct Clocked<I> {
    inner: I,
    span: Span,
}

impl<I> Clocked<I> {
    /// The same, clocked.
    pub fn new(inner: I, span: &Span) -> Self {
        Self { inner, span: span.clone() }
    }
}

impl<S: Source> Source for Clocked<S> {
    type Out = S::Out;
    type Reader = ClockedReader<S::Reader>;

    fn splits(&self, parallelism: u32) -> Result<Vec<Split>> {
        self.inner.splits(parallelism)
    }

    fn open(&self, splits: Vec<Split>, context: ReaderContext<'_>) -> Result<Self::Reader> {
        let reader = self.inner.open(splits, context)?;
        Ok(ClockedReader { reader, begins: Some(self.span.clone()) })
    }
}

/// Reads a clocked source.
#[derive(Debug)]
pub struct ClockedReader<R> {
    reader: R,
    /// To be told at the first poll.
    begins: Option<Span>,
}

impl<R: Reader> Reader for ClockedReader<R> {
    type Out = R::Out;

    #[inline(always)]
    fn poll(&mut self, limit: usize, now: Timestamp, out: &mut Output<'_, R::Out>) -> Result<Poll> {
        if let Some(span) = self.begins.take() {
            span.begin();
        }
        self.reader.poll(limit, now, out)
    }

    fn snapshot(&mut self) -> Vec<Split> {
        self.reader.snapshot()
    }
}

impl<T: Data, K: Sink<T>> Sink<T> for Clocked<K> {
    type Writer = ClockedWriter<K::Writer>;

    fn check(&self) -> Result<()> {
        self.inner.check()
    }

    fn open(&self, prepared: Vec<Committable>, context: WriterContext<'_>) -> Result<Self::Writer> {
        Ok(ClockedWriter { writer: self.inner.open(prepared, context)?, span: self.span.clone() })
    }
}

/// Writes a clocked sink.
#[derive(Debug)]
pub struct ClockedWriter<W> {
    writer: W,
    span: Span,
}

impl<T: Data, W: Writer<T>> Writer<T> for ClockedWriter<W> {
    const MAY_BE_BUSY: bool = W::MAY_BE_BUSY;
    const COMMITS: bool = W::COMMITS;

    #[inline(always)]
    fn write(&mut self, record: T::Ref<'_>) -> Result<()> {
        self.writer.write(record)
    }

    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, feed: S) -> Result<()> {
        self.writer.batch(feed)
    }

    fn ready(&mut self, now: Timestamp) -> Readiness {
        self.writer.ready(now)
    }

    fn flush(&mut self) -> Result<()> {
        self.writer.flush()
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Vec<Committable>> {
        self.writer.prepare(checkpoint)
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<(), Error> {
        self.writer.commit(checkpoint)
    }

    fn finish(&mut self, checkpointed: bool) -> Result<()> {
        self.span.end();
        self.writer.finish(checkpointed)
    }
}
