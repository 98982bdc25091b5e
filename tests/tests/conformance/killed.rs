//! Processes that are killed while they write, end, complete and commit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

use tidegate::sink;

use crate::rig::{Numbered, Oracle, SOON, Streams, durable, in_order, in_own_process, run};

const DIR: &str = "TIDEGATE_TEST_KILLED_DIR";

/// Streams of very different length, so that subtasks end while others go on.
fn streams() -> Streams {
    Streams::new(vec![5, 300, 20, 1_200, 0, 2_000])
}

#[test]
#[ignore = "it_10 runs it in processes of its own"]
fn child_of_it_10() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else { return };
    let options = [("checkpoint.interval", "2ms"), ("checkpoint.drain-hold", "true")];
    let mut job = durable("killed", 3, &dir.join("checkpoints"), &options);
    job.resume(true);
    let oracle = Oracle::default();
    let files = sink::exactly_once_files(dir.join("out")).format::<Numbered, _>(
        |(stream, number, magic), to| {
            use std::io::Write;
            write!(to, "{stream} {number} {magic}")
        },
    );
    let first = in_order(job.source("numbers", streams()), "first", &oracle);
    in_order(first, "second", &oracle).sink("files", sink::paced(files, 4_000));
    run(job, "killed");
    oracle.check("killed");
}

/// What is looked for in the folder of a running job before it is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// A checkpoint is being written: there is a folder without a manifest.
    Writing,
    /// A spill file is there, and its manifest is not.
    Spilling,
    /// One more manifest is in place; its commits may not be.
    Completed,
    /// One more part is visible.
    Committed,
    /// The job has taken many looks.
    Later(u64),
}

/// Folders of checkpoints, how many have manifests, and whether one has only a spill file.
fn checkpoints(dir: &Path) -> (usize, usize, bool) {
    let (mut folders, mut completed, mut spilling) = (0, 0, false);
    for entry in fs::read_dir(dir.join("checkpoints")).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("chk-") {
            let is_complete = entry.path().join("MANIFEST").exists();
            folders += 1;
            completed += usize::from(is_complete);
            spilling |= !is_complete && entry.path().join("spill-0").exists();
        }
    }
    (folders, completed, spilling)
}

/// The number of the newest completed checkpoint.
fn newest(dir: &Path) -> u64 {
    let folders = fs::read_dir(dir.join("checkpoints")).into_iter().flatten().flatten();
    let completed = folders.filter(|entry| entry.path().join("MANIFEST").exists());
    let numbers = completed
        .filter_map(|e| e.file_name().to_string_lossy().strip_prefix("chk-")?.parse().ok());
    numbers.max().unwrap_or(0)
}

fn parts(dir: &Path) -> usize {
    let entries = fs::read_dir(dir.join("out")).into_iter().flatten().flatten();
    entries.filter(|e| e.file_name().to_string_lossy().starts_with("part-")).count()
}

/// Waits for the moment, or until the process has ended by itself; whether it has.
fn await_moment(child: &mut Child, dir: &Path, moment: Moment) -> bool {
    let (begin, before, newest_before) = (Instant::now(), parts(dir), newest(dir));
    let mut looks = 0;
    loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            assert!(status.success(), "the job has failed: {status}");
            return true;
        }
        looks += 1;
        let (folders, completed, spilling) = checkpoints(dir);
        let is_there = match moment {
            Moment::Writing => folders > completed,
            Moment::Spilling => spilling,
            Moment::Completed => newest(dir) > newest_before,
            Moment::Committed => parts(dir) > before,
            Moment::Later(count) => looks > count && newest(dir) > newest_before,
        };
        if is_there {
            return false;
        }
        assert!(begin.elapsed() < SOON, "{moment:?} has not come");
        std::thread::yield_now();
    }
}

#[test]
fn it_10_a_job_that_is_killed_at_any_moment_goes_on_exactly_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let moments = [
        Moment::Writing,
        Moment::Completed,
        Moment::Spilling,
        Moment::Committed,
        Moment::Later(200),
        Moment::Completed,
        Moment::Spilling,
        Moment::Later(1_000),
        Moment::Committed,
        Moment::Writing,
        Moment::Later(3_000),
        Moment::Completed,
    ];
    let mut killed = 0;
    for moment in moments {
        let mut command = in_own_process("killed::child_of_it_10", DIR, dir.path());
        let mut child = command.stderr(Stdio::inherit()).spawn().expect("it starts");
        if await_moment(&mut child, dir.path(), moment) {
            break;
        }
        child.kill().expect("it runs");
        child.wait().expect("it is gone");
        killed += 1;
    }
    assert!(killed >= 5, "only {killed} were killed before the job had ended");
    let mut last = in_own_process("killed::child_of_it_10", DIR, dir.path());
    assert!(last.status().expect("it starts").success());

    let mut lines = Vec::new();
    for entry in fs::read_dir(dir.path().join("out")).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(name.starts_with("part-"), "{name} was left uncommitted");
        let text = fs::read_to_string(&path).expect("it is text");
        lines.extend(text.lines().map(|line| {
            let mut numbers = line.split(' ').map(|n| n.parse().expect("a number"));
            let mut next = || numbers.next().expect("three numbers");
            (next(), next(), next())
        }));
    }
    crate::rig::check_all(lines, &streams().all(), "killed");
}
