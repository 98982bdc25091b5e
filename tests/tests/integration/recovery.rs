//! What becomes of a job when user code fails: it restarts from its last checkpoint, and everything counts once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::sink::{Committable, Sink, Writer, WriterContext};
use tidegate::{ErrorKind, Result, sink};

use crate::rig::{
    Gated, Once, checkpointed, lines_in, next_checkpoint, number_lines, set, sorted, wait_until,
};

const N: u64 = 6000;

#[test]
fn a_panic_in_a_closure_restarts_the_job_and_each_record_counts_once() {
    for parallelism in 1..=3 {
        let job = checkpointed("case", parallelism);
        let (numbers, once) = (Gated::new(N), Once::default());
        let failing = once.clone();
        let (sink, collected) = sink::collect::<(u64, u64)>();
        let (sum, total) = sink::fold::<u64, _, _>(0u64, |sum, n| *sum += n);
        let (main, side) = job.source("numbers", numbers.clone()).split(|n, main, side| {
            main.emit(n);
            side.emit(n);
        });
        side.sink("sum", sum);
        main.map(move |n| {
            assert!(n < 4000 || !failing.take(), "as planned");
            n
        })
        .key_by(|n| n % 100)
        .count("per key")
        .sink("counts", sink);
        let handle = job.spawn().expect("it starts");
        numbers.open(3000);
        next_checkpoint(&handle);
        next_checkpoint(&handle);
        numbers.open_all();
        let status = handle.join().expect("the job ends");
        assert!(once.is_taken());
        assert_eq!(status.restarts, 1);
        assert!(status.last_failure.is_some_and(|text| text.contains("panicked: as planned")));
        let expected: Vec<_> =
            (0..100).flat_map(|key| (1..=N / 100).map(move |n| (key, n))).collect();
        assert_eq!(sorted(collected.take()), expected, "with {parallelism} subtasks");
        assert_eq!(total.take().iter().sum::<u64>(), N * (N - 1) / 2);
    }
}

#[test]
fn an_error_of_a_source_restarts_the_job_and_files_hold_each_record_once() {
    for parallelism in 1..=3 {
        let dir = tempfile::tempdir().expect("a folder");
        let once = Once::default();
        let numbers = Gated::new(N).failing_at(4000, once.clone());
        let job = checkpointed("case", parallelism);
        job.source("numbers", numbers.clone())
            .rebalance()
            .sink("files", sink::exactly_once_files(dir.path()));
        let handle = job.spawn().expect("it starts");
        numbers.open(3000);
        next_checkpoint(&handle);
        numbers.open_all();
        let status = handle.join().expect("the job ends");
        assert!(once.is_taken());
        assert_eq!(status.restarts, 1);
        assert_eq!(lines_in(dir.path()), number_lines(N));
    }
}

/// A sink that fails at a moment of its life, once.
#[derive(Clone)]
struct Failing<K> {
    inner: K,
    at: &'static str,
    once: Once,
}

struct FailingWriter<W> {
    inner: W,
    at: &'static str,
    once: Once,
    written: u64,
}

impl<W> FailingWriter<W> {
    fn fail(&self, here: &str) -> Result<()> {
        if self.at == here && self.written > 1000 && self.once.take() {
            return Err(tidegate::Error::new(ErrorKind::Io, format!("no {here} today")));
        }
        Ok(())
    }
}

impl<K: Sink<u64>> Sink<u64> for Failing<K> {
    type Writer = FailingWriter<K::Writer>;

    fn open(&self, prepared: Vec<Committable>, cx: WriterContext<'_>) -> Result<Self::Writer> {
        let inner = self.inner.open(prepared, cx)?;
        Ok(FailingWriter { inner, at: self.at, once: self.once.clone(), written: 0 })
    }
}

impl<W: Writer<u64>> Writer<u64> for FailingWriter<W> {
    const COMMITS: bool = W::COMMITS;

    fn write(&mut self, record: u64) -> Result<()> {
        self.written += 1;
        self.fail("write")?;
        self.inner.write(record)
    }

    fn prepare(&mut self, checkpoint: tidegate::id::CheckpointId) -> Result<Vec<Committable>> {
        self.fail("prepare")?;
        self.inner.prepare(checkpoint)
    }

    fn commit(&mut self, checkpoint: tidegate::id::CheckpointId) -> Result<()> {
        self.fail("commit")?;
        self.inner.commit(checkpoint)
    }

    fn finish(&mut self, checkpointed: bool) -> Result<()> {
        self.fail("finish")?;
        self.inner.finish(checkpointed)
    }
}

#[test]
fn p12_a_sink_that_fails_anywhere_still_counts_each_record_once() {
    for at in ["write", "prepare", "commit", "finish"] {
        let dir = tempfile::tempdir().expect("a folder");
        let (numbers, once) = (Gated::new(N), Once::default());
        let job = checkpointed("case", 2);
        let (memory, collected) = sink::collect::<u64>();
        let (files, kept) = job.source("numbers", numbers.clone()).split(|n, a, b| {
            a.emit(n);
            b.emit(n);
        });
        let inner = sink::exactly_once_files(dir.path());
        files.sink("files", Failing { inner, at, once: once.clone() });
        kept.sink("memory", memory);
        let handle = job.spawn().expect("it starts");
        numbers.open(3000);
        next_checkpoint(&handle);
        numbers.open_all();
        let status = handle.join().expect("the job ends");
        assert!(once.is_taken(), "{at}");
        // A snapshot that fails declines the checkpoint; the job goes on.
        assert_eq!(status.restarts, u32::from(at != "prepare"), "{at}");
        if at == "prepare" {
            let why = status.last_checkpoint_failure.expect("it is told");
            assert!(why.contains("no prepare today"), "{why}");
        }
        assert_eq!(lines_in(dir.path()), number_lines(N), "{at}");
        assert_eq!(sorted(collected.take()), (0..N).collect::<Vec<_>>(), "{at}");
    }
}

#[test]
fn the_strategy_says_how_often_a_job_restarts() {
    for (strategy, restarts) in [("none", 0), ("fixed-delay", 3)] {
        let mut job = checkpointed("case", 2);
        set(&mut job, "restart-strategy.type", strategy);
        set(&mut job, "restart-strategy.fixed-delay.attempts", "3");
        set(&mut job, "restart-strategy.fixed-delay.delay", "1ms");
        let attempts = Arc::new(AtomicU64::new(0));
        let counted = attempts.clone();
        let (sum, total) = sink::fold::<u64, _, _>(0u64, |sum, n| *sum += n);
        let numbers = Gated::new(10);
        numbers.open_all();
        job.source("numbers", numbers)
            .map(move |n| {
                if n == 5 {
                    counted.fetch_add(1, Ordering::Relaxed);
                    panic!("always");
                }
                n
            })
            .sink("sum", sum);
        let error = job.run().expect_err("it fails for good");
        assert_eq!(error.kind(), ErrorKind::User);
        assert!(error.to_string().contains("panicked: always"), "{error}");
        assert!(error.operator().is_some_and(|name| name.contains("source 'numbers'")), "{error}");
        assert_eq!(attempts.load(Ordering::Relaxed), restarts + 1);
        assert!(total.take().is_empty(), "nothing counts");
    }
}

#[test]
fn the_first_restart_has_no_delay() {
    let mut job = checkpointed("case", 1);
    set(&mut job, "restart-strategy.type", "fixed-delay");
    set(&mut job, "restart-strategy.fixed-delay.delay", "1h");
    let once = Once::default();
    let failing = once;
    let (sink, collected) = sink::collect::<u64>();
    let numbers = Gated::new(10);
    numbers.open_all();
    job.source("numbers", numbers)
        .map(move |n| {
            assert!(!failing.take(), "as planned");
            n
        })
        .sink("out", sink);
    job.run().expect("it would take an hour else");
    assert_eq!(sorted(collected.take()), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_job_whose_restart_is_delayed_can_be_cancelled() {
    let mut job = checkpointed("case", 1);
    set(&mut job, "restart-strategy.exponential-delay.initial-backoff", "1h");
    set(&mut job, "restart-strategy.exponential-delay.max-backoff", "1h");
    let (sum, _total) = sink::fold::<u64, _, _>(0u64, |sum, n| *sum += n);
    let numbers = Gated::new(10);
    numbers.open_all();
    job.source("numbers", numbers)
        .map(|n| if n == 5 { panic!("always") } else { n })
        .sink("sum", sum);
    let handle = job.spawn().expect("it starts");
    wait_until("a second failure", || handle.status().restarts == 2);
    let error = handle.cancel().expect_err("it is cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[test]
fn p02_a_job_shorter_than_its_interval_commits_everything_at_its_end() {
    for interval in ["1h", "never"] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut job = checkpointed("case", 2);
        set(&mut job, "checkpoint.interval", interval);
        let numbers = Gated::new(7);
        numbers.open_all();
        let files = sink::exactly_once_files(dir.path()).roll_bytes(6);
        job.source("numbers", numbers).rebalance().sink("files", files);
        let handle = job.spawn().expect("it starts");
        wait_until("the end", || handle.state().is_over());
        handle.join().expect("the job ends");
        assert_eq!(lines_in(dir.path()), number_lines(7));
        let hidden = std::fs::read_dir(dir.path()).expect("it is there").count();
        let visible = std::fs::read_dir(dir.path())
            .expect("it is there")
            .filter(|entry| {
                let name = entry.as_ref().expect("it can be listed").file_name();
                name.to_string_lossy().starts_with("part-")
            })
            .count();
        assert_eq!(hidden, visible, "nothing uncommitted is left");
    }
}

#[test]
fn p03_checkpoints_complete_when_one_branch_has_ended_and_another_goes_on() {
    let job = checkpointed("case", 2);
    let (short, long) = (Gated::new(100), Gated::new(N));
    let (a, a_out) = sink::collect::<u64>();
    let (b, b_out) = sink::collect::<u64>();
    job.source("short", short.clone()).rebalance().sink("a", a);
    job.source("long", long.clone()).rebalance().sink("b", b);
    let handle = job.spawn().expect("it starts");
    short.open_all();
    long.open(500);
    wait_until("100", || short.emitted().load(Ordering::Relaxed) >= 100);
    for _ in 0..5 {
        next_checkpoint(&handle);
    }
    let id = handle.checkpoint().expect("one on demand, too");
    assert!(id.0 > 0);
    long.open_all();
    handle.join().expect("the job ends");
    assert_eq!(sorted(a_out.take()), (0..100).collect::<Vec<_>>());
    assert_eq!(sorted(b_out.take()), (0..N).collect::<Vec<_>>());
}

#[test]
fn a_failure_after_one_branch_has_ended_does_not_run_it_again() {
    let job = checkpointed("case", 2);
    let (short, long, once) = (Gated::new(100), Gated::new(N), Once::default());
    let failing = once;
    let (a, a_out) = sink::collect::<u64>();
    let (b, b_out) = sink::collect::<u64>();
    job.source("short", short.clone()).rebalance().sink("a", a);
    job.source("long", long.clone())
        .map(move |n| {
            assert!(n < 1000 || !failing.take(), "as planned");
            n
        })
        .rebalance()
        .sink("b", b);
    let handle = job.spawn().expect("it starts");
    short.open_all();
    long.open(500);
    wait_until("100", || short.emitted().load(Ordering::Relaxed) >= 100);
    // The first of these may have begun before the branch ended; the third has not.
    for _ in 0..3 {
        next_checkpoint(&handle);
    }
    long.open_all();
    let status = handle.join().expect("the job ends");
    assert_eq!(status.restarts, 1);
    assert_eq!(short.emitted().load(Ordering::Relaxed), 100);
    assert_eq!(sorted(a_out.take()), (0..100).collect::<Vec<_>>());
    assert_eq!(sorted(b_out.take()), (0..N).collect::<Vec<_>>());
}

#[test]
fn a_checkpoint_on_demand_is_refused_where_there_are_none() {
    let mut job = checkpointed("case", 1);
    set(&mut job, "checkpoint.interval", "never");
    let numbers = Gated::new(10);
    let (sum, total) = sink::fold::<u64, _, _>(0u64, |sum, n| *sum += n);
    job.source("numbers", numbers.clone()).sink("sum", sum);
    let handle = job.spawn().expect("it starts");
    let error = handle.checkpoint().expect_err("there are none");
    assert!(error.to_string().contains("checkpoint.interval"), "{error}");
    assert!(!handle.wait_checkpoint(Duration::from_millis(1)));
    numbers.open_all();
    handle.join().expect("the job ends");
    assert_eq!(total.take(), [45]);
}
