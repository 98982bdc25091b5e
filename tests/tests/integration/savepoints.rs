//! Savepoints, stopping with one, going back to an earlier snapshot, and what is kept of checkpoints.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate::config::{Config, Origin};
use tidegate::error::ErrorKind;
use tidegate::id::CheckpointId;
use tidegate::source::Source;
use tidegate::{Job, JobHandle, JobState, JobStatus, SavepointStop, sink, source};

const KEYS: u64 = 13;
const PATIENCE: Duration = Duration::from_secs(15);

fn config(dir: &Path, parallelism: u32) -> Config {
    let mut config = Config::default();
    config.set("taskmanager.slots", &parallelism.to_string(), Origin::Flag).expect("a number");
    config.checkpoint.interval = None;
    config.checkpoint.dir = Some(dir.join("checkpoints"));
    config
}

/// Counts per key; each record's line is its key and how many there have been.
fn job(config: Config, dir: &Path, records: u64, rate: u64) -> Job {
    let job = Job::with_config("savepoints", config);
    let files =
        sink::exactly_once_files(dir.join("out")).format::<(u64, u64), _>(|(key, count), line| {
            use std::io::Write;
            write!(line, "{key} {count}")
        });
    job.source("numbers", source::generate(records, |i| i).rate(rate))
        .key_by(|n| n % KEYS)
        .count("counts")
        .sink("files", files);
    job
}

/// All lines of committed parts.
fn lines(dir: &Path) -> Vec<(u64, u64)> {
    let mut lines = Vec::new();
    let Ok(entries) = fs::read_dir(dir.join("out")) else { return lines };
    for entry in entries {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.starts_with("part-") {
            for line in fs::read_to_string(&path).expect("text").lines() {
                let (key, count) = line.split_once(' ').expect("two numbers");
                lines.push((key.parse().expect("a number"), count.parse().expect("a number")));
            }
        }
    }
    lines.sort_unstable();
    lines
}

/// Whether the lines are those of a job that has read some prefix of its input once; how much.
fn prefix(dir: &Path) -> u64 {
    let lines = lines(dir);
    let mut by_key: BTreeMap<u64, u64> = BTreeMap::new();
    for (key, count) in &lines {
        let last = by_key.entry(*key).or_default();
        assert_eq!(*count, *last + 1, "key {key} in {lines:?}");
        *last = *count;
    }
    lines.len() as u64
}

fn all(dir: &Path, records: u64) {
    assert_eq!(prefix(dir), records);
}

/// Starts a job and waits until all its tasks run.
fn started(job: Job) -> JobHandle {
    let handle = job.spawn().expect("starts");
    let mut seen = 0;
    while handle.state() == JobState::Starting {
        seen = handle.wait_change(seen, PATIENCE);
    }
    handle
}

/// Runs a job to its end; one that stands still fails the test with its status.
fn ended(job: Job) -> JobStatus {
    let handle = job.spawn().expect("starts");
    let mut seen = 0;
    while !handle.state().is_over() {
        let now = handle.wait_change(seen, PATIENCE);
        assert!(now > seen || handle.state().is_over(), "stands still: {:?}", handle.status());
        seen = now;
    }
    handle.join().expect("ends")
}

/// Takes `n` checkpoints.
fn checkpoints(handle: &JobHandle, n: usize) -> Vec<CheckpointId> {
    (0..n).map(|_| handle.checkpoint().expect("a checkpoint")).collect()
}

fn tree(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

const RECORDS: u64 = 4_000;
const RATE: u64 = 20_000;
/// So slow that the job is in the middle of its input whatever the machine does.
const SLOW: u64 = 2_000;

#[test]
fn a_savepoint_is_whole_in_itself_and_restores_from_wherever_it_is_moved() {
    for parallelism in [1, 2] {
        let dir = tempfile::tempdir().expect("a directory");
        let handle = started(job(config(dir.path(), 2), dir.path(), RECORDS, SLOW));
        checkpoints(&handle, 2);
        let savepoint = handle.savepoint(dir.path().join("saved")).expect("a savepoint");
        assert!(savepoint.join("MANIFEST").is_file(), "{}", savepoint.display());
        assert_eq!(handle.status().checkpoints_completed, 2, "a savepoint is not counted");
        checkpoints(&handle, 2);
        handle.cancel().expect_err("is cancelled");
        fs::create_dir(dir.path().join("elsewhere")).expect("makes a folder");
        let moved = dir.path().join("elsewhere").join("renamed");
        fs::rename(&savepoint, &moved).expect("moves");
        fs::remove_dir_all(dir.path().join("checkpoints")).expect("removes");
        let mut again = job(config(dir.path(), parallelism), dir.path(), RECORDS, RATE);
        again.restore_from_savepoint(&moved);
        let status = ended(again);
        assert_eq!(status.state, JobState::Finished);
        all(dir.path(), RECORDS);
        assert!(moved.join("MANIFEST").is_file(), "it stays its owner's");
    }
}

#[test]
fn sw_05_a_job_stopped_without_drain_goes_on_from_its_savepoint_and_from_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let handle = started(job(config(dir.path(), 2), dir.path(), RECORDS, SLOW));
    checkpoints(&handle, 1);
    let stopped = handle.stop_with_savepoint(dir.path().join("saved"), false).expect("an outcome");
    let SavepointStop::Stopped { savepoint } = stopped else { panic!("{stopped:?}") };
    assert_eq!(handle.join().expect("ends").state, JobState::Cancelled);
    let before = prefix(dir.path());
    assert!(before < RECORDS, "it was stopped on the way");
    let mut plain = job(config(dir.path(), 2), dir.path(), RECORDS, RATE);
    plain.resume(true);
    let refused = plain.run().expect_err("its commits are newer than the last checkpoint");
    assert!(refused.to_string().contains("savepoint"), "{refused}");
    let mut again = job(config(dir.path(), 1), dir.path(), RECORDS, RATE);
    again.restore_from_savepoint(savepoint);
    assert_eq!(ended(again).state, JobState::Finished);
    all(dir.path(), RECORDS);
}

#[test]
fn sw_05_a_drained_savepoint_restores_as_ended() {
    let dir = tempfile::tempdir().expect("a directory");
    let handle = started(job(config(dir.path(), 2), dir.path(), RECORDS, SLOW));
    checkpoints(&handle, 1);
    let stopped = handle.stop_with_savepoint(dir.path().join("saved"), true).expect("an outcome");
    let SavepointStop::Stopped { savepoint } = stopped else { panic!("{stopped:?}") };
    assert_eq!(handle.join().expect("ends").state, JobState::Finished);
    let before = prefix(dir.path());
    for _ in 0..2 {
        let mut again = job(config(dir.path(), 2), dir.path(), RECORDS, RATE);
        again.restore_from_savepoint(&savepoint);
        assert_eq!(ended(again).state, JobState::Finished);
        assert_eq!(prefix(dir.path()), before, "nothing more is read, nothing is lost");
    }
    let mut resumed = job(config(dir.path(), 2), dir.path(), RECORDS, RATE);
    resumed.resume(true);
    assert!(ended(resumed).already_ended);
}

#[test]
fn sw_07_a_job_part_of_which_has_finished_is_stopped_and_restored() {
    let dir = tempfile::tempdir().expect("a directory");
    let make = |rate| {
        let job = Job::with_config("two branches", config(dir.path(), 2));
        let files = |name: &str| sink::exactly_once_files(dir.path().join(name));
        job.source("short", source::generate(20, |i| i)).sink("small", files("small"));
        job.source("long", source::generate(RECORDS, |i| i).rate(rate)).sink("big", files("big"));
        job
    };
    let count = |name: &str| -> usize {
        let entries = fs::read_dir(dir.path().join(name)).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let parts = paths
            .filter(|path| !path.file_name().expect("a name").to_string_lossy().starts_with('.'));
        parts.map(|path| fs::read_to_string(path).expect("text").lines().count()).sum()
    };
    let handle = started(make(SLOW));
    let mut taken = 0;
    while count("small") < 20 {
        checkpoints(&handle, 1);
        taken += 1;
        assert!(taken < 1_000, "the short branch does not end");
    }
    checkpoints(&handle, 2);
    let stopped = handle.stop_with_savepoint(dir.path().join("saved"), false).expect("an outcome");
    let SavepointStop::Stopped { savepoint } = stopped else { panic!("{stopped:?}") };
    handle.join().expect("ends");
    assert!(count("big") < RECORDS as usize);
    let mut again = make(RATE);
    again.restore_from_savepoint(savepoint);
    ended(again);
    assert_eq!((count("small"), count("big")), (20, RECORDS as usize));
}

#[test]
fn sw_08_a_stop_that_meets_the_natural_end_completes_or_fails_cleanly() {
    for records in [10, 200, 1_000, 3_000] {
        let dir = tempfile::tempdir().expect("a directory");
        let handle = started(job(config(dir.path(), 2), dir.path(), records, 1_000_000));
        let outcome = handle.stop_with_savepoint(dir.path().join("saved"), false);
        handle.join().expect("ends");
        let savepoint = match outcome {
            Ok(SavepointStop::Stopped { savepoint }) => Some(savepoint),
            Ok(SavepointStop::Failed { .. }) | Err(_) => None,
            other => panic!("{other:?}"),
        };
        let mut again = job(config(dir.path(), 2), dir.path(), records, 1_000_000);
        match savepoint {
            Some(savepoint) => again.restore_from_savepoint(savepoint),
            None => again.resume(true),
        };
        ended(again);
        all(dir.path(), records);
    }
}

#[test]
fn sw_10_a_savepoint_that_can_not_be_written_fails_and_the_job_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let handle = started(job(config(dir.path(), 2), dir.path(), RECORDS, SLOW));
    checkpoints(&handle, 1);
    let file = dir.path().join("file");
    fs::write(&file, "in the way").expect("writes");
    let error = handle.savepoint(&file).expect_err("a file is no folder");
    assert_eq!(error.kind(), ErrorKind::Checkpoint);
    assert!(error.to_string().contains("file"), "{error}");
    checkpoints(&handle, 1);
    handle.cancel().expect_err("is cancelled");
    assert!(prefix(dir.path()) < RECORDS);
}

#[test]
fn going_back_takes_back_what_was_committed_since() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut many = config(dir.path(), 2);
    many.checkpoint.num_retained = 10;
    let handle = started(job(many.clone(), dir.path(), RECORDS, SLOW));
    let ids = checkpoints(&handle, 5);
    handle.cancel().expect_err("is cancelled");
    let mut back = job(many.clone(), dir.path(), RECORDS, SLOW);
    back.restore_from(ids[1]);
    let handle = started(back);
    let left = tree(&dir.path().join("checkpoints"));
    assert!(!left.contains(&format!("chk-{}", ids[4])), "{left:?}");
    assert!(left.contains(&format!("chk-{}", ids[1])), "{left:?}");
    let next = checkpoints(&handle, 1);
    assert!(next[0] > ids[4], "ids are never used twice");
    handle.cancel().expect_err("is cancelled");
    prefix(dir.path());
    let mut resumed = job(many, dir.path(), RECORDS, RATE);
    resumed.resume(true);
    ended(resumed);
    all(dir.path(), RECORDS);
}

#[test]
fn only_so_many_checkpoints_are_kept_and_none_if_the_job_is_cancelled_and_not_to_keep_them() {
    for is_retained in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = config(dir.path(), 2);
        config.checkpoint.num_retained = 2;
        config.checkpoint.retain_on_cancel = is_retained;
        let handle = started(job(config, dir.path(), RECORDS, SLOW));
        let ids = checkpoints(&handle, 5);
        handle.cancel().expect_err("is cancelled");
        let left = tree(&dir.path().join("checkpoints"));
        let folders: Vec<&String> = left.iter().filter(|name| name.starts_with("chk-")).collect();
        if is_retained {
            let mut expected = [format!("chk-{}", ids[3]), format!("chk-{}", ids[4])];
            expected.sort();
            assert_eq!(folders, expected.iter().collect::<Vec<_>>());
        } else {
            assert!(folders.is_empty(), "{left:?}");
        }
    }
}

#[test]
fn what_a_crash_has_left_is_removed_at_the_next_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let handle = started(job(config(dir.path(), 2), dir.path(), RECORDS, SLOW));
    checkpoints(&handle, 1);
    handle.cancel().expect_err("is cancelled");
    let store = dir.path().join("checkpoints");
    fs::create_dir(store.join("chk-900")).expect("makes a folder");
    fs::write(store.join("chk-900").join("data-0"), "half").expect("writes");
    fs::create_dir_all(store.join("shared")).expect("makes a folder");
    fs::write(store.join("shared").join("s-900-0"), "half").expect("writes");
    let mut again = job(config(dir.path(), 2), dir.path(), RECORDS, RATE);
    again.resume(true);
    ended(again);
    assert!(!store.join("chk-900").exists() && !store.join("shared").join("s-900-0").exists());
    all(dir.path(), RECORDS);
}

#[test]
fn a_checkpoint_that_expires_says_who_had_not_acknowledged_and_what_it_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = config(dir.path(), 1);
    config.checkpoint.unaligned_enabled = false;
    config.checkpoint.timeout = Duration::from_millis(200);
    let job = Job::with_config("slow sink", config);
    job.source("numbers", source::generate_forever(|i| i))
        .key_by(|n| n % KEYS)
        .count("counts")
        .key_by(|(key, _)| key)
        .count("again")
        .sink("slow", sink::paced(sink::discard(), 10));
    let handle = started(job);
    handle.checkpoint().expect_err("times out");
    let mut seen = 0;
    let mut text = String::new();
    for _ in 0..1_000 {
        text = handle.status().last_checkpoint_failure.unwrap_or_default();
        if text.contains("bytes before it") {
            break;
        }
        seen = handle.wait_change(seen, PATIENCE);
    }
    assert!(text.contains("not acknowledged by") && text.contains("no barrier from"), "{text}");
    handle.cancel().expect_err("is cancelled");
}
