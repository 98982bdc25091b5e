//! `process` in whole jobs: keyed state of each kind, timers of both clocks, restarts and rescaling with timers pending.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tidegate::clock::EpochMillis;
use tidegate::config::Origin;
use tidegate::metrics::Counter;
use tidegate::operator::{Context, Process, Timer};
use tidegate::sink::{self, Collected};
use tidegate::source::{self, Source};
use tidegate::state::{ListState, MapState, ValueState};
use tidegate::time::{Watermarks, Windows};
use tidegate::{BoxError, Config, Error, ErrorKind, Job, JobHandle, OnError, Output};

/// How long a test waits for what must happen.
const SOON: Duration = Duration::from_secs(60);

fn job(parallelism: u32, options: &[(&str, &str)]) -> Job {
    let mut config = Config::default();
    let parallelism = parallelism.to_string();
    let width = [("parallelism.default", &*parallelism), ("taskmanager.slots", &*parallelism)];
    for (key, value) in width.iter().chain(options) {
        config.set(key, value, Origin::Code).expect("the option exists");
    }
    Job::with_config("process", config)
}

/// A job that keeps checkpoints in `dir` and goes on from the last one there.
fn durable(parallelism: u32, dir: &Path) -> Job {
    let dir = dir.to_str().expect("the path is text");
    let mut job = job(parallelism, &[("checkpoint.dir", dir), ("checkpoint.interval", "5ms")]);
    job.resume(true);
    job
}

fn sorted<T: tidegate::Data + Ord>(collected: &Collected<T>) -> Vec<T> {
    let mut records = collected.take();
    records.sort();
    records
}

/// Waits for checkpoints until one has completed after `counter` had passed `count`.
fn checkpoint_past(handle: &JobHandle, counter: &Counter, count: u64) {
    let mut was_past = false;
    while !was_past {
        was_past = counter.get() > count;
        assert!(handle.wait_checkpoint(SOON), "no checkpoint: {:?}", handle.status());
    }
    // The one that ran when the count was read may have begun before.
    assert!(handle.wait_checkpoint(SOON), "no checkpoint: {:?}", handle.status());
}

/// Records of each key counted by second of event time, by hand: a timer at the end of each second.
struct PerSecond {
    /// By the end of the second.
    counts: MapState<i64, u64>,
    fails: Option<Arc<AtomicBool>>,
}

impl Process<u64, (u64, i64)> for PerSecond {
    type Out = (u64, (i64, u64));

    fn process(
        &mut self,
        (_, time): (u64, i64),
        cx: &mut Context<'_, u64>,
        _: &mut Output<'_, Self::Out>,
    ) -> Result<(), BoxError> {
        if self.fails.as_ref().is_some_and(|fails| fails.swap(false, Ordering::Relaxed)) {
            return Err("told to fail".into());
        }
        let end = time - time % 1000 + 999;
        let count = cx.map(&self.counts).get(end).unwrap_or(0);
        cx.map(&self.counts).insert(end, count + 1);
        cx.set_event_timer(EpochMillis(end));
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        cx: &mut Context<'_, u64>,
        out: &mut Output<'_, Self::Out>,
    ) -> Result<(), BoxError> {
        let count = cx.map(&self.counts).get(timer.time.0).ok_or("a timer without records")?;
        cx.map(&self.counts).remove(timer.time.0);
        out.emit((cx.key(), (timer.time.0, count)));
        Ok(())
    }
}

/// What `PerSecond` makes of `n` records 10 ms apart with `keys` keys.
fn per_second(n: u64, keys: u64) -> Vec<(u64, (i64, u64))> {
    let mut counts = BTreeMap::new();
    for i in 0..n {
        let time = 10 * i as i64;
        *counts.entry((i % keys, time - time % 1000 + 999)).or_insert(0) += 1;
    }
    counts.into_iter().map(|((key, end), count)| (key, (end, count))).collect()
}

#[test]
fn counts_are_emitted_by_timers_at_the_end_of_each_second() {
    let job = job(2, &[]);
    let (counts, found) = sink::collect();
    // Contiguous halves: event time goes on with the slower one.
    job.source("records", source::generate(20_000, |i| (i % 7, 10 * i as i64)))
        .watermarks(Watermarks::ascending(), |(_, time)| time)
        .rebalance()
        .key_by(|(key, _)| key)
        .process("counts", |states| Ok(PerSecond { counts: states.map("counts")?, fails: None }))
        .sink("found", counts);
    job.run().expect("the job runs");
    assert_eq!(sorted(&found), per_second(20_000, 7));
}

#[test]
fn in_one_subtask_timers_fire_once_each_and_in_order() {
    let job = job(1, &[]);
    let (counts, found) = sink::collect();
    job.source("records", source::generate(20_000, |i| (i % 7, 10 * i as i64)))
        .watermarks(Watermarks::ascending(), |(_, time)| time)
        .key_by(|(key, _)| key)
        .process("counts", |states| Ok(PerSecond { counts: states.map("counts")?, fails: None }))
        .sink("found", counts);
    job.run().expect("the job runs");
    let mut found = found.take();
    assert!(
        found.is_sorted_by_key(|(_, (end, _))| *end),
        "timers fire in the order of their times"
    );
    found.sort();
    assert_eq!(found, per_second(20_000, 7));
}

#[test]
fn a_map_state_lets_each_word_through_once_for_each_key() {
    let job = job(2, &[]);
    let (distinct, found) = sink::collect();
    job.source("words", source::generate(10_000, |i| (i % 3, format!("w{}", i % 10))))
        .key_by(|(key, _)| key)
        .process_each(
            "distinct",
            |states| states.map::<String, bool>("seen"),
            |seen, (key, word), cx, out| {
                if !cx.map(seen).contains(word) {
                    cx.map(seen).insert(word, true);
                    out.emit((key, word));
                }
                Ok(())
            },
        )
        .sink("found", distinct);
    job.run().expect("the job runs");
    let expected: Vec<_> =
        (0..3u64).flat_map(|key| (0..10).map(move |w| (key, format!("w{w}")))).collect();
    assert_eq!(sorted(&found), expected);
}

/// Keeps all numbers of a key and emits them at the end of the input.
struct AtTheEnd {
    numbers: ListState<u64>,
}

impl Process<u64, u64> for AtTheEnd {
    type Out = (u64, String);

    fn process(
        &mut self,
        number: u64,
        cx: &mut Context<'_, u64>,
        _: &mut Output<'_, Self::Out>,
    ) -> Result<(), BoxError> {
        cx.list(&self.numbers).add(number);
        cx.set_event_timer(EpochMillis::MAX);
        Ok(())
    }

    fn on_timer(
        &mut self,
        _: Timer,
        cx: &mut Context<'_, u64>,
        out: &mut Output<'_, Self::Out>,
    ) -> Result<(), BoxError> {
        assert_eq!(cx.watermark(), EpochMillis::MAX);
        let numbers: Vec<_> = cx.list(&self.numbers).iter().map(|n| n.to_string()).collect();
        out.emit((cx.key(), numbers.join(" ")));
        Ok(())
    }
}

#[test]
fn a_list_state_keeps_the_order_and_the_end_of_the_input_fires_event_time_timers() {
    let job = job(1, &[]);
    let (lists, found) = sink::collect();
    job.source("numbers", source::range(0..10))
        .key_by(|n| n % 3)
        .process("lists", |states| Ok(AtTheEnd { numbers: states.list("numbers")? }))
        .sink("found", lists);
    job.run().expect("the job runs");
    let expected = [(0, "0 3 6 9"), (1, "1 4 7"), (2, "2 5 8")];
    assert_eq!(sorted(&found), expected.map(|(key, list)| (key, list.to_owned())));
}

/// Sets a processing-time timer that much after each record.
struct Echo;

impl Process<u64, (u64, i64)> for Echo {
    type Out = u64;

    fn process(
        &mut self,
        (_, delay): (u64, i64),
        cx: &mut Context<'_, u64>,
        _: &mut Output<'_, u64>,
    ) -> Result<(), BoxError> {
        let now = cx.processing_time().0;
        cx.set_processing_timer(EpochMillis(now + delay));
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        cx: &mut Context<'_, u64>,
        out: &mut Output<'_, u64>,
    ) -> Result<(), BoxError> {
        assert!(timer.time <= cx.processing_time());
        out.emit(cx.key());
        Ok(())
    }
}

#[test]
fn processing_timers_fire_while_no_record_comes_and_never_after_the_end() {
    let job = job(1, &[]);
    let (sender, records) = source::channel(16);
    let (echoes, found) = sink::collect();
    let (seen, echoed) = mpsc::channel();
    job.source("records", records)
        .key_by(|(key, _)| key)
        .process("echo", |_| Ok(Echo))
        // Past an exchange: what a timer emits in an idle task is sent on.
        .rebalance()
        .inspect(move |key| seen.send(key).expect("the test waits for it"))
        .sink("found", echoes);
    let handle = job.spawn().expect("the job starts");
    let hour = 3_600_000;
    for (key, delay) in [(1u64, 30i64), (2, hour), (3, 10)] {
        sender.send((key, delay)).expect("the job runs");
    }
    let mut first_two = [(); 2].map(|()| echoed.recv_timeout(SOON).expect("a timer fires"));
    first_two.sort_unstable();
    assert_eq!(first_two, [1, 3]);
    drop(sender);
    handle.join().expect("the job ends although a timer is pending");
    assert_eq!(sorted(&found), [1, 3]);
}

#[test]
fn processing_timers_fire_between_the_records_of_a_paced_source() {
    let job = job(1, &[]);
    let (echoes, found) = sink::collect();
    job.source("records", source::generate(200, |i| (i, 1i64)).rate(1000))
        .key_by(|(key, _)| key)
        .process("echo", |_| Ok(Echo))
        .sink("found", echoes);
    job.run().expect("the job runs");
    let mut found = sorted(&found);
    // Those of the last moments may be pending at the end.
    assert!(!found.is_empty());
    let fired = found.len();
    found.dedup();
    assert_eq!(found.len(), fired, "no timer fires twice");
}

#[test]
fn a_restart_with_timers_pending_fires_each_exactly_once() {
    let n = 3000;
    let fails = Arc::new(AtomicBool::new(false));
    let job = job(2, &[("checkpoint.interval", "5ms")]);
    let passed = Counter::new();
    let (counts, found) = sink::collect();
    let (counted, failing) = (passed.clone(), fails.clone());
    job.source("records", source::generate(n, |i| (i % 50, 10 * i as i64)).rate(6000))
        .with_parallelism(1)
        .inspect(move |_| counted.add(1))
        .watermarks(Watermarks::ascending(), |(_, time)| time)
        .key_by(|(key, _)| key)
        .process("counts", move |states| {
            Ok(PerSecond { counts: states.map("counts")?, fails: Some(failing.clone()) })
        })
        .with_parallelism(2)
        .sink("found", counts);
    let handle = job.spawn().expect("the job starts");
    checkpoint_past(&handle, &passed, 1000);
    fails.store(true, Ordering::Relaxed);
    let status = handle.join().expect("the job ends well");
    assert_eq!(status.restarts, 1);
    assert!(passed.get() > n, "records were read again");
    assert_eq!(sorted(&found), per_second(n, 50));
}

/// Counts records, and timers that fired, and emits both at the end of the input.
struct Tally {
    records: ValueState<u64>,
    fired: ValueState<u64>,
}

impl Process<u64, (u64, i64)> for Tally {
    type Out = (u64, (u64, u64));

    fn process(
        &mut self,
        (_, time): (u64, i64),
        cx: &mut Context<'_, u64>,
        _: &mut Output<'_, Self::Out>,
    ) -> Result<(), BoxError> {
        cx.value(&self.records).update(|n| n.unwrap_or(0) + 1);
        // One of its own for each record, at times all over the input.
        cx.set_event_timer(EpochMillis(time * 7919 % 1_000_003 + 1_000_000));
        cx.set_event_timer(EpochMillis::MAX);
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        cx: &mut Context<'_, u64>,
        out: &mut Output<'_, Self::Out>,
    ) -> Result<(), BoxError> {
        if timer.time < EpochMillis::MAX {
            cx.value(&self.fired).update(|n| n.unwrap_or(0) + 1);
            return Ok(());
        }
        let records = cx.value(&self.records).get().unwrap_or(0);
        out.emit((cx.key(), (records, cx.value(&self.fired).get().unwrap_or(0))));
        Ok(())
    }
}

fn tally(job: &Job, n: u64, rate: u64, passed: &Counter) -> Collected<(u64, (u64, u64))> {
    let (tallies, found) = sink::collect();
    let counted = passed.clone();
    job.source("records", source::generate(n, |i| (i % 500, i as i64)).rate(rate))
        .inspect(move |_| counted.add(1))
        .watermarks(Watermarks::ascending(), |(_, time)| time)
        .key_by(|(key, _)| key)
        .process("tally", |states| {
            Ok(Tally { records: states.value("records")?, fired: states.value("fired")? })
        })
        .sink("found", tallies);
    found
}

#[test]
fn p21_timers_pending_in_whole_jobs_fire_once_after_rescaling_2_3_2() {
    let dir = tempfile::tempdir().expect("a directory");
    let n = 20_000;
    for (parallelism, stop) in [(2, 3000), (3, 3000)] {
        let job = durable(parallelism, dir.path());
        let passed = Counter::new();
        let found = tally(&job, n, 4000, &passed);
        let handle = job.spawn().expect("the job starts");
        checkpoint_past(&handle, &passed, stop);
        handle.cancel().expect_or_cancelled();
        assert!(found.take().is_empty(), "nothing comes out before the end");
    }
    let job = durable(2, dir.path());
    let passed = Counter::new();
    let found = tally(&job, n, 1_000_000, &passed);
    job.run().expect("the job ends");
    assert!(passed.get() < n, "the input was read on, not again");
    let expected: Vec<_> = (0..500).map(|key| (key, (n / 500, n / 500))).collect();
    assert_eq!(sorted(&found), expected);
}

/// How a cancelled job ends.
trait Cancelled {
    fn expect_or_cancelled(self);
}

impl<T: std::fmt::Debug> Cancelled for Result<T, Error> {
    fn expect_or_cancelled(self) {
        if let Err(error) = self {
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        }
    }
}

#[test]
fn a_state_that_has_another_type_than_in_the_checkpoint_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = durable(1, dir.path());
    let passed = Counter::new();
    let _found = tally(&first, 20_000, 4000, &passed);
    let handle = first.spawn().expect("the job starts");
    checkpoint_past(&handle, &passed, 100);
    handle.cancel().expect_or_cancelled();

    let second = durable(1, dir.path());
    let (counts, _found) = sink::collect::<u64>();
    second
        .source("records", source::generate(20_000, |i| (i % 500, i as i64)).rate(4000))
        .inspect(|_| ())
        .watermarks(Watermarks::ascending(), |(_, time)| time)
        .key_by(|(key, _)| key)
        .process_each(
            "tally",
            |states| Ok((states.value::<String>("records")?, states.value::<u64>("fired")?)),
            |_, (key, _), _, out| {
                out.emit(key);
                Ok(())
            },
        )
        .sink("found", counts);
    let error = second.run().expect_err("the state is another one");
    assert_eq!(error.kind(), ErrorKind::Checkpoint, "{error}");
    assert_eq!((error.operator(), error.field()), (Some("tally"), Some("records")));
}

#[test]
fn two_states_of_one_name_are_refused_before_anything_starts() {
    let job = job(1, &[]);
    let (numbers, _found) = sink::collect::<u64>();
    job.source("numbers", source::range(0..1))
        .key_by(|n| n)
        .process_each(
            "twice",
            |states| Ok((states.value::<u64>("same")?, states.list::<u64>("same")?)),
            |_, n, _, out| {
                out.emit(n);
                Ok(())
            },
        )
        .sink("found", numbers);
    let error = job.build().expect_err("a name is taken");
    assert_eq!((error.kind(), error.operator()), (ErrorKind::Config, Some("twice")));
}

#[test]
fn an_error_of_user_code_fails_the_job_by_name_or_is_counted() {
    let run = |policy: OnError| {
        let job = job(1, &[("restart-strategy.type", "none")]);
        let (counts, found) = sink::collect();
        job.source("records", source::generate(10, |i| (i, 10 * i as i64)))
            .watermarks(Watermarks::ascending(), |(_, time)| time)
            .key_by(|(key, _)| key)
            .process_or("counts", policy, |states| {
                let fails = Some(Arc::new(AtomicBool::new(true)));
                Ok(PerSecond { counts: states.map("counts")?, fails })
            })
            .sink("found", counts);
        job.run().map(|_| found.take().len())
    };
    let error = run(OnError::Fail).expect_err("the first record fails");
    assert_eq!((error.kind(), error.operator()), (ErrorKind::User, Some("counts")));
    let skipped = Counter::new();
    assert_eq!(run(OnError::SkipAndCount(skipped.clone())).expect("it goes on"), 9);
    assert_eq!(skipped.get(), 1);
}

/// The end of the data overtook what a watermark had made fire when the output was full.
#[test]
fn what_fires_at_the_end_waits_for_room_and_none_of_it_is_lost() {
    let options = [("buffer.segment-bytes", "4096"), ("buffer.per-channel", "2")];
    let n = 20_000;
    let job = job(1, &options);
    let (timers, found) = sink::collect();
    job.source("records", source::generate(n, |i| (i, 0i64)))
        .watermarks(Watermarks::ascending(), |(_, time)| time)
        .key_by(|(key, _)| key)
        .process("counts", |states| Ok(PerSecond { counts: states.map("counts")?, fails: None }))
        .rebalance()
        .key_by(|(key, _)| key)
        .window(Windows::tumbling(Duration::from_secs(1)), |(_, (end, _))| end)
        .count("again")
        .rebalance()
        .map(|(key, _, count)| (key, count))
        .sink("found", timers);
    let mut stepper = job.stepper().expect("the job starts");
    while stepper.step().expect("the job runs") {}
    assert_eq!(sorted(&found), (0..n).map(|key| (key, 1)).collect::<Vec<_>>());
}

#[test]
fn folds_of_any_size_go_on_from_their_checkpoints() {
    let job = job(2, &[("checkpoint.interval", "5ms")]);
    let (longest, reduced) = sink::collect();
    let (joined, folded) = sink::collect();
    let (lengths, aggregated) = sink::collect();
    let words = |name: &str| {
        job.source(name, source::generate(300, |i| "x".repeat((i % 30) as usize)))
            .with_parallelism(1)
            .key_by(|word| word.len() as u64 % 2)
    };
    words("a")
        .reduce_owned("longest", |a, b| if b.len() > a.len() { b } else { a })
        .sink("l", longest);
    words("b")
        .fold_owned("joined", String::new(), |all: &mut String, word| all.push_str(word))
        .sink("j", joined);
    words("c")
        .aggregate_owned(
            "lengths",
            Vec::<u32>::new(),
            |all: &mut Vec<u32>, word: &str| all.push(word.len() as u32),
            |all: &Vec<u32>| all.iter().map(|n| u64::from(*n)).sum::<u64>(),
        )
        .sink("s", lengths);
    job.run().expect("the job runs");
    let (even, odd): (u64, u64) = ((0..30).step_by(2).sum(), (1..30).step_by(2).sum());
    let last = |records: Vec<(u64, u64)>| records.into_iter().collect::<BTreeMap<_, _>>();
    let longest = reduced.take().into_iter().map(|(key, word)| (key, word.len() as u64)).collect();
    assert_eq!(last(longest), BTreeMap::from([(0, 28), (1, 29)]));
    let joined = folded.take().into_iter().map(|(key, all)| (key, all.len() as u64)).collect();
    assert_eq!(last(joined), BTreeMap::from([(0, 10 * even), (1, 10 * odd)]));
    assert_eq!(last(aggregated.take()), BTreeMap::from([(0, 10 * even), (1, 10 * odd)]));
}
