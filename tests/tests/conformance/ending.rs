//! Branches, sources and subtasks that end at different times, and what failures do to those that have ended.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tidegate::id::CheckpointId;
use tidegate::sink::{self, Committable, Sink, Writer, WriterContext};
use tidegate::{Job, JobHandle, JobState, Result};

use crate::rig::{
    Failures, Numbered, Oracle, Streams, cancel, check_all, check_restarts, checkpoint, durable,
    ended, failure, in_order, job, kept, run, wait_until,
};

/// Completes so many checkpoints.
fn checkpoints(handle: &JobHandle, count: usize) {
    for _ in 0..count {
        checkpoint(handle, "a checkpoint");
    }
}

#[test]
fn it_05_parts_of_a_source_end_and_the_rest_goes_on() {
    // One subtask of a source ends early, or all subtasks of one of two sources.
    for (name, lengths) in [("one subtask", [4, 500, 500, 500]), ("a whole source", [4; 4])] {
        for is_complex in [false, true] {
            for failing in [&[][..], &[1_000][..], &[900, 1_600][..]] {
                let what = format!("{name}, complex: {is_complex}, failures at {failing:?}");
                let dir = tempfile::tempdir().expect("a folder");
                let job = durable("partly ended", 4, dir.path(), &[]);
                let (oracle, failures) = (Oracle::default(), Failures::at(failing));
                let (sink, collected) = kept();
                let ending = Streams::new(lengths.to_vec());
                let going_on = Streams::even(4, 300).named_from(100);
                ending.limit(100);
                going_on.limit(50);
                let a = in_order(job.source("ending", ending.clone()), "of ending", &oracle);
                let b = in_order(job.source("going on", going_on.clone()), "of going on", &oracle)
                    .inspect(move |_| failures.pass());
                if is_complex {
                    in_order(a.union(b), "both", &oracle).rebalance().sink("kept", sink);
                } else {
                    a.union(b).sink("kept", sink);
                }
                let handle = job.spawn().expect("it starts");
                wait_until("the early end", &handle, || {
                    let early: u64 = lengths.iter().map(|length| length.min(&100)).sum();
                    ending.emitted() >= early && going_on.emitted() >= 200
                });
                checkpoints(&handle, 3);
                ending.limit(u64::MAX);
                going_on.limit(u64::MAX);
                let status = ended(handle, &what);
                check_restarts(&status, failing.len(), &what);
                oracle.check(&what);
                check_all(collected.take(), &[ending.all(), going_on.all()].concat(), &what);
                if name == "a whole source" {
                    assert_eq!(ending.emitted(), 16, "{what}: what had ended is not run again");
                }
            }
        }
    }
}

/// A branch of 20 records that ends and one of 100 that fails at its 60th.
fn two_branches(checkpoints_between: usize) -> (u64, Vec<Numbered>, Vec<Numbered>, [Streams; 2]) {
    let dir = tempfile::tempdir().expect("a folder");
    let job = durable("branches", 2, dir.path(), &[]);
    let (small, big) = (Streams::even(4, 5), Streams::even(4, 25).named_from(100));
    big.limit(10);
    let (small_sink, small_kept) = kept();
    let (big_sink, big_kept) = kept();
    let failures = Failures::at(&[60]);
    job.source("small", small.clone()).rebalance().sink("small kept", small_sink);
    job.source("big", big.clone())
        .rebalance()
        .inspect(move |_| failures.pass())
        .sink("big kept", big_sink);
    let handle = job.spawn().expect("it starts");
    wait_until("the small branch", &handle, || small.emitted() >= 20 && big.emitted() >= 40);
    checkpoints(&handle, checkpoints_between);
    big.limit(u64::MAX);
    let status = ended(handle, "two branches");
    assert_eq!(status.restarts, 1, "{:?}", status.last_failure);
    (small.emitted(), small_kept.take(), big_kept.take(), [small, big])
}

#[test]
fn it_06_a_short_branch_is_not_run_again_for_the_failure_of_another_region() {
    let (emitted, small_kept, big_kept, [small, big]) = two_branches(0);
    assert_eq!(emitted, 20, "no channel leads from one branch to the other");
    check_all(small_kept, &small.all(), "small");
    check_all(big_kept, &big.all(), "big");
}

#[test]
fn it_07_a_short_branch_that_a_checkpoint_has_recorded_is_not_run_again() {
    // The first checkpoint may have begun before the branch had ended; the third has not.
    let (emitted, small_kept, big_kept, [small, big]) = two_branches(3);
    assert_eq!(emitted, 20);
    check_all(small_kept, &small.all(), "small");
    check_all(big_kept, &big.all(), "big");
}

#[test]
fn it_08_a_restored_job_without_an_interval_ends() {
    for ends_before in [false, true] {
        let what = format!("ends before: {ends_before}");
        let dir = tempfile::tempdir().expect("a folder");
        let (sink, collected) = kept();
        let oracle = Oracle::default();
        let (short, long) = (Streams::even(3, 10), Streams::even(3, 200).named_from(100));
        long.limit(100);
        let write = |job: &Job| {
            let a = in_order(job.source("short", short.clone()), "of short", &oracle);
            let b = in_order(job.source("long", long.clone()), "of long", &oracle);
            a.union(b).sink("kept", sink.clone());
        };
        let first = durable("no interval", 2, dir.path(), &[]);
        write(&first);
        let handle = first.spawn().expect("it starts");
        if ends_before {
            wait_until("the short source", &handle, || short.emitted() >= 30);
        }
        checkpoints(&handle, if ends_before { 3 } else { 1 });
        cancel(handle);
        long.limit(u64::MAX);
        let mut second = durable("no interval", 2, dir.path(), &[("checkpoint.interval", "never")]);
        write(&second);
        second.resume(true);
        run(second, &what);
        oracle.check(&what);
        check_all(collected.take(), &[short.all(), long.all()].concat(), &what);
    }
}

/// What all writers of a sink have seen.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<BTreeSet<Numbered>>>);

/// A sink that is told of its end, and writes nothing behind it.
#[derive(Clone, Debug)]
struct Ending {
    seen: Seen,
    /// How many records each writer had when it was told of its end.
    ends: Arc<Mutex<Vec<u64>>>,
}

#[derive(Debug)]
struct EndingWriter {
    sink: Ending,
    written: u64,
    is_finished: bool,
}

impl Sink<Numbered> for Ending {
    type Writer = EndingWriter;

    fn open(&self, _prepared: Vec<Committable>, _cx: WriterContext<'_>) -> Result<EndingWriter> {
        Ok(EndingWriter { sink: self.clone(), written: 0, is_finished: false })
    }
}

impl Writer<Numbered> for EndingWriter {
    fn write(&mut self, record: Numbered) -> Result<()> {
        if self.is_finished {
            return Err(failure("a record came behind the end"));
        }
        self.written += 1;
        self.sink.seen.0.lock().expect("nobody panics with it").insert(record);
        Ok(())
    }

    fn finish(&mut self, _checkpointed: bool) -> Result<()> {
        if std::mem::replace(&mut self.is_finished, true) {
            return Err(failure("finished twice"));
        }
        self.sink.ends.lock().expect("nobody panics with it").push(self.written);
        Ok(())
    }
}

#[test]
fn ft_15_the_last_record_of_every_producer_is_read_before_anything_finishes() {
    for drain_hold in ["true", "false"] {
        let options = [
            ("checkpoint.drain-hold", drain_hold),
            ("checkpoint.interval", "1ms"),
            ("restart-strategy.type", "none"),
        ];
        let job = job("last records", 3, &options);
        let streams = Streams::new(vec![1, 700, 30, 0, 411, 9]);
        let sink = Ending { seen: Seen::default(), ends: Arc::default() };
        let oracle = Oracle::default();
        in_order(job.source("numbers", streams.clone()), "keyed", &oracle)
            .rebalance()
            .sink("ending", sink.clone());
        run(job, drain_hold);
        oracle.check(drain_hold);
        let seen: Vec<_> = sink.seen.0.lock().expect("it is over").iter().copied().collect();
        check_all(seen, &streams.all(), drain_hold);
        let ends = sink.ends.lock().expect("it is over").clone();
        assert_eq!(ends.len(), 3, "each writer once");
        assert_eq!(ends.iter().sum::<u64>(), streams.all().len() as u64, "nothing came later");
    }
}

#[test]
fn ft_18_a_job_that_no_periodic_checkpoint_meets_commits_each_row_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let (sink, collected) = kept();
    let streams = Streams::even(2, 5);
    for round in 0..2 {
        let mut job = durable("ten rows", 2, dir.path(), &[]);
        job.resume(round > 0);
        job.source("rows", streams.clone()).rebalance().sink("kept", sink.clone());
        let status = run(job, "ten rows");
        if round == 0 {
            assert!((1..=2).contains(&status.checkpoints_completed), "{status:?}");
            check_all(collected.take(), &streams.all(), "ten rows");
        } else {
            assert!(status.already_ended, "a second run finds that it has ended");
            assert!(collected.take().is_empty());
        }
    }
}

/// A sink whose commit of the last transaction fails, once.
#[derive(Clone, Debug)]
struct CrashingCommit<S> {
    inner: S,
    crashes: bool,
}

#[derive(Debug)]
struct CrashingWriter<W> {
    inner: W,
    crashes: bool,
    is_finished: bool,
}

impl<S: Sink<Numbered>> Sink<Numbered> for CrashingCommit<S> {
    type Writer = CrashingWriter<S::Writer>;

    fn open(&self, prepared: Vec<Committable>, cx: WriterContext<'_>) -> Result<Self::Writer> {
        let inner = self.inner.open(prepared, cx)?;
        Ok(CrashingWriter { inner, crashes: self.crashes, is_finished: false })
    }
}

impl<W: Writer<Numbered>> Writer<Numbered> for CrashingWriter<W> {
    const COMMITS: bool = W::COMMITS;

    fn write(&mut self, record: Numbered) -> Result<()> {
        self.inner.write(record)
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Vec<Committable>> {
        self.inner.prepare(checkpoint)
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<()> {
        if self.crashes && self.is_finished {
            return Err(failure("gone before the notice of the last checkpoint"));
        }
        self.inner.commit(checkpoint)
    }

    fn finish(&mut self, checkpointed: bool) -> Result<()> {
        self.is_finished = true;
        self.inner.finish(checkpointed)
    }
}

#[test]
fn ft_29_a_crash_between_the_final_checkpoint_and_its_notice_commits_the_last_transaction_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("out");
    let streams = Streams::even(4, 50);
    let lines = |dir: &std::path::Path| -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
        let mut lines = Vec::new();
        for path in entries.map(|entry| entry.expect("it can be listed").path()) {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if name.starts_with("part-") {
                let text = std::fs::read_to_string(&path).expect("it is text");
                lines.extend(text.lines().map(str::to_owned));
            }
        }
        lines.sort();
        lines
    };
    let mut expected: Vec<_> =
        streams.all().iter().map(|(stream, number, _)| format!("{stream} {number}")).collect();
    expected.sort();
    for crashes in [true, false] {
        let options = [("restart-strategy.type", "none")];
        let mut job = durable("last commit", 2, &dir.path().join("checkpoints"), &options);
        job.resume(!crashes);
        let files =
            sink::exactly_once_files(&out).format::<Numbered, _>(|(stream, number, _), to| {
                use std::io::Write;
                write!(to, "{stream} {number}")
            });
        job.source("numbers", streams.clone())
            .rebalance()
            .sink("files", CrashingCommit { inner: files, crashes });
        let handle = job.spawn().expect("it starts");
        wait_until("the end", &handle, || handle.state().is_over());
        if crashes {
            assert_eq!(handle.state(), JobState::Failed);
            assert!(handle.status().checkpoints_completed > 0, "the last checkpoint is complete");
            assert!(lines(&out).len() < expected.len(), "its transaction is not visible yet");
            let error = handle.join().expect_err("it failed");
            assert!(error.to_string().contains("gone before the notice"), "{error}");
        } else {
            handle.join().expect("it ends");
            assert_eq!(lines(&out), expected);
        }
    }
}

#[test]
fn k28_tasks_end_while_others_begin_again_and_again() {
    // Subtasks that were closed while others were registered broke the common list of them.
    for round in 0..8 {
        let what = format!("round {round}");
        let job = job("ending and beginning", 4, &[("checkpoint.interval", "1ms")]);
        let lengths = (0..12).map(|stream| (stream * 37 + round * 11) % 200).collect();
        let streams = Streams::new(lengths);
        let (oracle, failures) =
            (Oracle::default(), Failures::at(&[100 + round * 20, 400, 700 + round * 10]));
        let (sink, collected) = kept();
        let first = in_order(job.source("numbers", streams.clone()), "first", &oracle)
            .inspect(move |_| failures.pass());
        in_order(first, "second", &oracle).rebalance().sink("kept", sink);
        let status = run(job, &what);
        check_restarts(&status, 3, &what);
        oracle.check(&what);
        check_all(collected.take(), &streams.all(), &what);
    }
}
