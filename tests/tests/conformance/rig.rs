//! What the scenarios of whole jobs share: numbered streams, a valve before the sink, and an oracle.
//!
//! Every record is of one stream and carries its number there and a sum over both. An operator that keeps each stream's
//! next number in keyed state sees a gap, a repeat, another order and a changed byte at once; what the sink commits is
//! compared as a whole.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate::clock::Timestamp;
use tidegate::config::Origin;
use tidegate::id::CheckpointId;
use tidegate::sink::{Collected, Committable, Readiness, Sink, Writer, WriterContext};
use tidegate::source::{Poll, Reader, ReaderContext, Source, Split};
use tidegate::{Chain, Config, Data, Error, ErrorKind, Job, JobHandle, JobState, JobStatus};
use tidegate::{Output, Result, Stream, sink};

/// How long a scenario waits for what must happen.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// A record: its stream, its number there, and a sum over both.
pub(crate) type Numbered = (u64, u64, u64);

pub(crate) fn numbered(stream: u64, number: u64) -> Numbered {
    (stream, number, sum(stream, number))
}

fn sum(stream: u64, number: u64) -> u64 {
    let mixed = (stream << 40 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 31)
}

/// A job with options, of as many workers as make sense on a small machine.
pub(crate) fn job(name: &str, parallelism: u32, options: &[(&str, &str)]) -> Job {
    let mut config = Config::default();
    let (width, slots) = (parallelism.to_string(), parallelism.min(4).to_string());
    let defaults = [
        ("parallelism.default", width.as_str()),
        ("taskmanager.slots", slots.as_str()),
        ("checkpoint.aligned-timeout", "0s"),
        // Small buffers, so that many are in flight.
        ("buffer.segment-bytes", "4KiB"),
        ("buffer.per-channel", "4"),
        ("restart-strategy.type", "fixed-delay"),
        ("restart-strategy.fixed-delay.attempts", "100"),
        ("restart-strategy.fixed-delay.delay", "1ms"),
    ];
    for (key, value) in defaults.iter().chain(options) {
        config.set(key, value, Origin::Code).unwrap_or_else(|e| panic!("{key}: {e}"));
    }
    Job::with_config(name, config)
}

/// A job that takes checkpoints into a directory, when it is asked and at its end.
pub(crate) fn durable(name: &str, parallelism: u32, dir: &Path, options: &[(&str, &str)]) -> Job {
    let dir = dir.to_str().expect("the path is text");
    let own = [("checkpoint.dir", dir), ("checkpoint.interval", "1h")];
    job(name, parallelism, &[&own, options].concat())
}

/// Numbered records of several streams, each stream a split.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    /// How long each stream is.
    lengths: Arc<Vec<u64>>,
    first: u64,
    open: Arc<AtomicU64>,
    emitted: Arc<AtomicU64>,
}

impl Streams {
    /// Streams of these lengths, that come as fast as they are read.
    pub(crate) fn new(lengths: Vec<u64>) -> Self {
        let open = Arc::new(AtomicU64::new(u64::MAX));
        Self { lengths: Arc::new(lengths), first: 0, open, emitted: Arc::default() }
    }

    /// So many streams of one length.
    pub(crate) fn even(streams: u64, length: u64) -> Self {
        Self::new(vec![length; streams as usize])
    }

    /// The same with other names for the streams: the first is called `first`.
    pub(crate) fn named_from(mut self, first: u64) -> Self {
        self.first = first;
        self
    }

    /// Lets only the numbers below `limit` of each stream come, until this is called again.
    pub(crate) fn limit(&self, limit: u64) {
        self.open.store(limit, Ordering::Relaxed);
    }

    /// How many records were emitted, in all attempts together.
    pub(crate) fn emitted(&self) -> u64 {
        self.emitted.load(Ordering::Relaxed)
    }

    /// All records, sorted.
    pub(crate) fn all(&self) -> Vec<Numbered> {
        (self.first..)
            .zip(&*self.lengths)
            .flat_map(|(stream, length)| (0..*length).map(move |number| numbered(stream, number)))
            .collect()
    }
}

impl Source for Streams {
    type Out = Numbered;
    type Reader = StreamsReader;

    fn splits(&self, _parallelism: u32) -> Result<Vec<Split>> {
        Ok((0..self.lengths.len() as u64).map(|stream| split(stream, 0)).collect())
    }

    fn open(&self, splits: Vec<Split>, _context: ReaderContext<'_>) -> Result<StreamsReader> {
        Ok(StreamsReader {
            source: self.clone(),
            places: splits.iter().map(place).collect(),
            turn: 0,
        })
    }
}

fn split(stream: u64, next: u64) -> Split {
    Split([stream, next].iter().flat_map(|n| n.to_le_bytes()).collect())
}

fn place(split: &Split) -> (u64, u64) {
    let number = |at: usize| u64::from_le_bytes(split.0[at..at + 8].try_into().expect("8 bytes"));
    (number(0), number(8))
}

#[derive(Debug)]
pub(crate) struct StreamsReader {
    source: Streams,
    /// Streams with the next number of each.
    places: Vec<(u64, u64)>,
    turn: usize,
}

impl Reader for StreamsReader {
    type Out = Numbered;

    fn poll(
        &mut self,
        limit: usize,
        now: Timestamp,
        out: &mut Output<'_, Numbered>,
    ) -> Result<Poll> {
        let Streams { lengths, first, open, emitted } = &self.source;
        let open = open.load(Ordering::Relaxed);
        let mut count = 0;
        let mut idle = 0;
        while count < limit && idle < self.places.len() {
            self.turn = (self.turn + 1) % self.places.len();
            let (stream, next) = &mut self.places[self.turn];
            if *next >= lengths[*stream as usize].min(open) {
                idle += 1;
                continue;
            }
            idle = 0;
            out.emit(numbered(first + *stream, *next));
            *next += 1;
            count += 1;
        }
        emitted.fetch_add(count as u64, Ordering::Relaxed);
        self.places.retain(|(stream, next)| *next < lengths[*stream as usize]);
        Ok(match (count, self.places.is_empty()) {
            (_, true) => Poll::End,
            (0, false) => Poll::Busy(now + Duration::from_millis(1)),
            (_, false) => Poll::Ready,
        })
    }

    fn snapshot(&mut self) -> Vec<Split> {
        self.places.iter().map(|(stream, next)| split(*stream, *next)).collect()
    }
}

/// What the checks of a job have found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle(Arc<Mutex<Vec<String>>>);

impl Oracle {
    fn found(&self, what: String) {
        self.0.lock().expect("nobody panics with it").push(what);
    }

    /// Fails if anything was found.
    #[track_caller]
    pub(crate) fn check(&self, what: &str) {
        let found = self.0.lock().expect("nobody panics with it");
        assert!(found.is_empty(), "{what}: {} faults, such as {}", found.len(), found[0]);
    }
}

/// Passes a stream on by key and looks that each of its streams comes whole and in order.
pub(crate) fn in_order<C: Chain<Out = Numbered>>(
    stream: Stream<Numbered, C>,
    name: &'static str,
    oracle: &Oracle,
) -> Stream<Numbered, impl Chain<Out = Numbered> + use<C>> {
    let oracle = oracle.clone();
    stream.key_by(|(stream, _, _)| stream).process_each(
        name,
        |states| states.value::<u64>("next"),
        move |next, (stream, number, magic), cx, out| {
            let mut next = cx.value(next);
            let expected = next.get().unwrap_or(0);
            if number != expected {
                oracle.found(format!("'{name}': {number} of stream {stream}, not {expected}"));
            }
            if magic != sum(stream, number) {
                oracle.found(format!("'{name}': the bytes of {number} of stream {stream} changed"));
            }
            next.set(number + 1);
            out.emit((stream, number, magic));
            Ok(())
        },
    )
}

/// Whether a sink takes records; shared by all its writers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Valve(Arc<AtomicU8>);

const CLOSED: u8 = 0;
const OPEN: u8 = 1;
const FAILS: u8 = 2;

impl Valve {
    /// One that takes nothing yet.
    pub(crate) fn closed() -> Self {
        Self::default()
    }

    pub(crate) fn open(&self) {
        self.0.store(OPEN, Ordering::Relaxed);
    }

    /// Lets one writer panic, once; then it takes nothing.
    pub(crate) fn fail(&self) {
        self.0.store(FAILS, Ordering::Relaxed);
    }

    /// A sink behind this valve.
    pub(crate) fn before<S>(&self, sink: S) -> Valved<S> {
        Valved { sink, valve: self.clone() }
    }
}

/// A sink behind a valve.
#[derive(Clone, Debug)]
pub(crate) struct Valved<S> {
    sink: S,
    valve: Valve,
}

impl<T: Data, S: Sink<T>> Sink<T> for Valved<S> {
    type Writer = ValvedWriter<S::Writer>;
    const RETRACTS: bool = S::RETRACTS;

    fn check(&self) -> Result<()> {
        self.sink.check()
    }

    fn retract(&self, after: CheckpointId) -> Result<()> {
        self.sink.retract(after)
    }

    fn open(&self, prepared: Vec<Committable>, cx: WriterContext<'_>) -> Result<Self::Writer> {
        Ok(ValvedWriter { writer: self.sink.open(prepared, cx)?, valve: self.valve.clone() })
    }
}

#[derive(Debug)]
pub(crate) struct ValvedWriter<W> {
    writer: W,
    valve: Valve,
}

impl<T: Data, W: Writer<T>> Writer<T> for ValvedWriter<W> {
    const MAY_BE_BUSY: bool = true;
    const COMMITS: bool = W::COMMITS;

    fn write(&mut self, record: T::Ref<'_>) -> Result<()> {
        self.writer.write(record)
    }

    fn ready(&mut self, now: Timestamp) -> Readiness {
        let valve = &self.valve.0;
        if valve.compare_exchange(FAILS, CLOSED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            panic!("the valve was told to fail");
        }
        match valve.load(Ordering::Relaxed) {
            OPEN => self.writer.ready(now),
            _ => Readiness::Busy(now + Duration::from_millis(1)),
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

/// A sink that keeps numbered records, and what it has kept.
pub(crate) fn kept() -> (sink::Collect<Numbered>, Collected<Numbered>) {
    sink::collect()
}

/// Fails unless what was committed is exactly `expected`, whatever the order; `expected` is sorted.
#[track_caller]
pub(crate) fn check_all(found: Vec<Numbered>, expected: &[Numbered], what: &str) {
    let mut found = found;
    found.sort_unstable();
    if found == expected {
        return;
    }
    let mut counts: BTreeMap<Numbered, i64> = BTreeMap::new();
    for record in expected {
        *counts.entry(*record).or_default() -= 1;
    }
    for record in &found {
        *counts.entry(*record).or_default() += 1;
    }
    counts.retain(|_, count| *count != 0);
    let first: Vec<_> = counts.iter().take(5).collect();
    panic!("{what}: {} records too often or missing, such as {first:?}", counts.len());
}

/// A panic of a closure at the given counts of its calls, each once in all attempts.
#[derive(Clone, Debug)]
pub(crate) struct Failures {
    at: Arc<Vec<u64>>,
    calls: Arc<AtomicU64>,
}

impl Failures {
    pub(crate) fn at(calls: &[u64]) -> Self {
        Self { at: Arc::new(calls.to_vec()), calls: Arc::default() }
    }

    /// To be called for each record.
    pub(crate) fn pass(&self) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        assert!(!self.at.contains(&call), "planned failure at record {call}");
    }
}

/// Waits until `is_so`.
#[track_caller]
pub(crate) fn wait_until(what: &str, handle: &JobHandle, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "{what} did not happen: {:?}", handle.status());
        std::thread::yield_now();
    }
}

/// Waits for a job's end; one that stands still fails the test with its status.
#[track_caller]
pub(crate) fn ended(handle: JobHandle, what: &str) -> JobStatus {
    wait_until(&format!("{what}: the end"), &handle, || handle.state().is_over());
    handle.join().unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Runs a job to its end.
#[track_caller]
pub(crate) fn run(job: Job, what: &str) -> JobStatus {
    ended(job.spawn().unwrap_or_else(|error| panic!("{what}: {error}")), what)
}

/// Cancels a job that goes on.
#[track_caller]
pub(crate) fn cancel(handle: JobHandle) {
    let error = handle.cancel().expect_err("it is cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
}

/// Waits until nothing moves: the sources have been held up for a while by what is full behind them.
#[track_caller]
pub(crate) fn wait_full(streams: &Streams, handle: &JobHandle) {
    let (mut seen, mut quiet) = (0, 0);
    wait_until("back-pressure", handle, || {
        let now = streams.emitted();
        quiet = if now == seen { quiet + 1 } else { 0 };
        seen = now;
        // Each look lets others run; what is not full takes something meanwhile.
        std::thread::yield_now();
        now > 0 && quiet > 2_000
    });
}

/// Completes a checkpoint, as soon as all tasks run.
#[track_caller]
pub(crate) fn checkpoint(handle: &JobHandle, what: &str) -> CheckpointId {
    wait_until(what, handle, || handle.state() == JobState::Running);
    handle.checkpoint().unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Fails unless a job was restarted for its planned failures; two of them may come at once.
#[track_caller]
pub(crate) fn check_restarts(status: &JobStatus, planned: usize, what: &str) {
    let range = usize::from(planned > 0)..=planned;
    assert!(range.contains(&(status.restarts as usize)), "{what}: {status:?}");
}

/// An error of user code.
pub(crate) fn failure(text: &str) -> Error {
    Error::new(ErrorKind::User, text.to_owned())
}

/// A test of this program that runs in a process of its own. It is ignored, and does nothing without `variable`, whose
/// value it gets.
pub(crate) fn in_own_process(test: &str, variable: &str, value: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().expect("it is known"));
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(variable, value);
    command.stdout(std::process::Stdio::null());
    command
}
