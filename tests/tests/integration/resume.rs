//! Jobs that go on from a directory of checkpoints: after a stop, after being dropped, at another width; and what is
//! refused.

use std::path::Path;
use std::sync::atomic::Ordering;

use tidegate::id::CheckpointId;
use tidegate::time::{Watermarks, Windows};
use tidegate::{ErrorKind, Job, sink};

use crate::rig::{Gated, SOON, durable, lines_in, number_lines, sorted, wait_for};

const N: u64 = 3000;

/// Numbers into files, with running counts on the way so that there is keyed state.
fn write(job: &Job, numbers: &Gated, out: &Path) {
    job.source("numbers", numbers.clone())
        .key_by(|n| n % 10)
        .fold("last", (0u64, 0u64), |(count, last), n| {
            *count += 1;
            *last = n;
        })
        .map(|(_, (_, last))| last)
        .rebalance()
        .sink("files", sink::exactly_once_files(out));
}

struct Folders {
    checkpoints: tempfile::TempDir,
    out: tempfile::TempDir,
}

impl Folders {
    fn new() -> Self {
        let folder = || tempfile::tempdir().expect("a folder");
        Self { checkpoints: folder(), out: folder() }
    }

    /// A run of the job of some width.
    fn job(&self, parallelism: u32, numbers: &Gated) -> Job {
        let job = durable("numbers", parallelism, self.checkpoints.path());
        write(&job, numbers, self.out.path());
        job
    }
}

#[test]
fn a_stopped_job_goes_on_where_it_was_also_at_another_width() {
    let folders = Folders::new();
    let mut done = 0;
    for (parallelism, until) in [(2, 600), (3, 1200), (2, 1800), (5, 2400), (1, N)] {
        let numbers = Gated::new(N);
        let mut job = folders.job(parallelism, &numbers);
        job.resume(done > 0);
        numbers.open(until);
        let handle = job.spawn().expect("it starts");
        wait_for(numbers.emitted(), until - done);
        if until < N {
            handle.stop(SOON).expect("it stops");
        } else {
            handle.join().expect("it ends");
        }
        assert_eq!(numbers.emitted().load(Ordering::Relaxed), until - done, "none is read twice");
        assert_eq!(lines_in(folders.out.path()), number_lines(until), "at {until}");
        done = until;
    }
}

#[test]
fn a_dropped_job_goes_on_from_its_last_checkpoint() {
    let folders = Folders::new();
    let numbers = Gated::new(N);
    let handle = folders.job(2, &numbers).spawn().expect("it starts");
    numbers.open(1000);
    wait_for(numbers.emitted(), 1000);
    handle.checkpoint().expect("it is taken");
    numbers.open(2000);
    wait_for(numbers.emitted(), 2000);
    handle.cancel().expect_err("it is cancelled");
    assert_eq!(lines_in(folders.out.path()).len(), 1000, "only what a checkpoint covers is seen");

    let again = Gated::new(N);
    again.open_all();
    let mut job = folders.job(3, &again);
    job.resume(true);
    job.run().expect("it ends");
    assert_eq!(again.emitted().load(Ordering::Relaxed), N - 1000);
    assert_eq!(lines_in(folders.out.path()), number_lines(N));
}

#[test]
fn without_the_flag_checkpoints_are_an_error_that_names_it() {
    let folders = Folders::new();
    let numbers = Gated::new(N);
    let handle = folders.job(2, &numbers).spawn().expect("it starts");
    handle.checkpoint().expect("it is taken");
    handle.stop(SOON).expect("it stops");
    let error = folders.job(2, &numbers).spawn().expect_err("there are checkpoints");
    assert_eq!(error.kind(), ErrorKind::Checkpoint);
    let text = error.to_string();
    assert!(text.contains("--resume") && text.contains("Job::resume"), "{text}");
    assert_eq!(error.path(), Some(folders.checkpoints.path()));
}

#[test]
fn resuming_without_checkpoints_starts_afresh() {
    let folders = Folders::new();
    let numbers = Gated::new(N);
    numbers.open_all();
    let mut job = folders.job(2, &numbers);
    job.resume(true);
    job.run().expect("it ends");
    assert_eq!(lines_in(folders.out.path()), number_lines(N));
}

#[test]
fn a_job_that_has_ended_says_so_and_changes_nothing() {
    let folders = Folders::new();
    let numbers = Gated::new(N);
    numbers.open_all();
    let status = folders.job(2, &numbers).run().expect("it ends");
    assert!(!status.already_ended);
    let before = lines_in(folders.out.path());
    let again = Gated::new(N);
    again.open_all();
    let mut job = folders.job(2, &again);
    job.resume(true);
    let status = job.run().expect("that is no error");
    assert!(status.already_ended);
    assert_eq!(again.emitted().load(Ordering::Relaxed), 0);
    assert_eq!(lines_in(folders.out.path()), before);
    let error = folders.job(2, &again).run().expect_err("without the flag it is");
    assert!(error.to_string().contains("--resume"), "{error}");
}

#[test]
fn a_directory_has_one_running_job_of_one_name() {
    let folders = Folders::new();
    let numbers = Gated::new(N);
    let handle = folders.job(2, &numbers).spawn().expect("it starts");
    let mut second = folders.job(2, &numbers);
    second.resume(true);
    let error = second.spawn().expect_err("the first one runs");
    assert_eq!(error.kind(), ErrorKind::Checkpoint);
    assert!(error.to_string().contains(&folders.checkpoints.path().display().to_string()));
    handle.stop(SOON).expect("it stops");

    let mut other = durable("another", 2, folders.checkpoints.path());
    write(&other, &numbers, folders.out.path());
    other.resume(true);
    let error = other.spawn().expect_err("it is another job's");
    assert!(error.to_string().contains("belongs to the job 'numbers'"), "{error}");
}

/// Takes checkpoints at 500, 1000 and 1500 and leaves; their ids.
fn three_checkpoints(folders: &Folders) -> Vec<CheckpointId> {
    let numbers = Gated::new(N);
    let mut job = folders.job(2, &numbers);
    crate::rig::set(&mut job, "checkpoint.num-retained", "3");
    let handle = job.spawn().expect("it starts");
    let mut ids = Vec::new();
    for open in [500, 1000, 1500] {
        numbers.open(open);
        wait_for(numbers.emitted(), open);
        ids.push(handle.checkpoint().expect("it is taken"));
    }
    handle.cancel().expect_err("it is cancelled");
    ids
}

#[test]
fn a_damaged_checkpoint_is_refused_by_name_and_an_older_one_can_be_named() {
    let folders = Folders::new();
    let ids = three_checkpoints(&folders);
    let manifest = folders.checkpoints.path().join(format!("chk-{}/MANIFEST", ids[2]));
    let mut bytes = std::fs::read(&manifest).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&manifest, bytes).expect("it can be written");
    let numbers = Gated::new(N);
    numbers.open_all();
    let mut job = folders.job(2, &numbers);
    job.resume(true);
    let error = job.run().expect_err("it is damaged");
    assert_eq!(error.kind(), ErrorKind::Checkpoint);
    assert!(error.to_string().contains(&format!("checkpoint {} is complete but", ids[2])));

    let mut job = folders.job(2, &numbers);
    job.restore_from(CheckpointId(99));
    let error = job.run().expect_err("there is no such checkpoint");
    assert!(error.to_string().contains("checkpoint 99 is not there"), "{error}");

    let mut job = folders.job(2, &numbers);
    job.restore_from(ids[1]);
    job.run().expect("it goes on from the second");
    assert_eq!(numbers.emitted().load(Ordering::Relaxed), N - 1000);
}

#[test]
fn an_incomplete_checkpoint_is_passed_over() {
    let folders = Folders::new();
    let ids = three_checkpoints(&folders);
    let newer = folders.checkpoints.path().join("chk-77");
    std::fs::create_dir(&newer).expect("a folder");
    std::fs::write(newer.join("data-0"), b"half").expect("a file");
    let numbers = Gated::new(N);
    numbers.open_all();
    let mut job = folders.job(2, &numbers);
    job.resume(true);
    job.run().expect("it goes on from the last complete one");
    assert!(ids.len() == 3 && !newer.exists(), "what is incomplete is removed");
    assert_eq!(numbers.emitted().load(Ordering::Relaxed), N - 1500);
    assert_eq!(lines_in(folders.out.path()), number_lines(N));
}

#[test]
fn a_job_restored_from_an_older_checkpoint_fails_back_to_that_one() {
    let folders = Folders::new();
    let ids = three_checkpoints(&folders);
    let once = crate::rig::Once::default();
    let numbers = Gated::new(N).failing_at(700, once.clone());
    numbers.open_all();
    let mut job = folders.job(2, &numbers);
    job.restore_from(ids[0]);
    let status = job.run().expect("it ends");
    assert!(once.is_taken() && status.restarts == 1);
    // Had it gone on from the newest, fewer numbers would have been read.
    assert!(numbers.emitted().load(Ordering::Relaxed) >= N - 500);
}

#[test]
fn open_windows_survive_a_stop_and_another_width() {
    let checkpoints = tempfile::tempdir().expect("a folder");
    let mut all = Vec::new();
    for (parallelism, until) in [(2, 1000), (3, 2000), (1, N)] {
        let numbers = Gated::new(N);
        let mut job = durable("windows", parallelism, checkpoints.path());
        job.resume(until > 1000);
        let (sink, collected) = sink::collect::<(u64, i64, u64)>();
        let watermarks = Watermarks::bounded_out_of_orderness(std::time::Duration::from_secs(10));
        job.source("numbers", numbers.clone())
            .watermarks(watermarks, |n| n as i64 * 10)
            .key_by(|n| n % 5)
            .window(Windows::tumbling(std::time::Duration::from_secs(7)), |n| n as i64 * 10)
            .count("per window")
            .map(|(key, window, n)| (key, window.start.0, n))
            .sink("out", sink);
        numbers.open(until);
        let handle = job.spawn().expect("it starts");
        if until < N {
            wait_for(numbers.emitted(), 1000);
            handle.stop(SOON).expect("it stops");
        } else {
            handle.join().expect("it ends");
        }
        all.extend(collected.take());
    }
    let mut expected = std::collections::BTreeMap::new();
    for n in 0..N {
        *expected.entry((n % 5, (n as i64 * 10).div_euclid(7000) * 7000)).or_insert(0) += 1;
    }
    let expected: Vec<_> = expected.into_iter().map(|((key, start), n)| (key, start, n)).collect();
    assert_eq!(sorted(all), expected);
}
