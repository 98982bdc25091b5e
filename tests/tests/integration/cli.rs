//! The command line's answers and exit codes.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate::cli::run;
use tidegate::config::Config;
use tidegate::{Job, JobState, sink, source};

fn tidegate(args: &[&str]) -> (u8, String, String) {
    let args = ["tidegate"].iter().chain(args).map(OsString::from);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(args, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (code, text(out), text(err))
}

/// A directory with the checkpoints of a job that has ended, and a savepoint's folder.
fn made(dir: &Path) -> (String, PathBuf) {
    let mut config = Config::default();
    config.checkpoint.interval = None;
    config.checkpoint.dir = Some(dir.join("checkpoints"));
    let job = Job::with_config("shown", config);
    let (collect, _collected) = sink::collect::<(u64, u64)>();
    job.source("numbers", source::generate_forever(|i| i))
        .key_by(|n| n % 5_000)
        .count("counts")
        .filter(|(_, count)| count == 0)
        .sink("collect", collect);
    let handle = job.spawn().expect("starts");
    let mut seen = 0;
    while handle.state() == JobState::Starting {
        seen = handle.wait_change(seen, Duration::from_secs(60));
    }
    handle.checkpoint().expect("a checkpoint");
    handle.checkpoint().expect("a checkpoint");
    let savepoint = handle.savepoint(dir.join("saved")).expect("a savepoint");
    handle.cancel().expect_err("is cancelled");
    (dir.join("checkpoints").to_string_lossy().into_owned(), savepoint)
}

#[test]
fn checkpoints_are_listed_inspected_and_verified() {
    let temporary = tempfile::tempdir().expect("a directory");
    let (dir, savepoint) = made(temporary.path());
    let (code, out, _) = tidegate(&["checkpoint", "list", &dir]);
    assert_eq!(code, 0);
    assert_eq!(out.lines().filter(|line| line.contains("chk-")).count(), 2, "{out}");
    let (code, out, _) = tidegate(&["checkpoint", "list", &dir, "--json"]);
    assert!(code == 0 && out.starts_with('[') && out.contains("\"kind\":\"checkpoint\""), "{out}");
    let (code, out, _) = tidegate(&["checkpoint", "inspect", &dir]);
    assert!(code == 0 && out.contains("operator 'counts'"), "{out}");
    let saved = savepoint.to_string_lossy();
    let (code, out, _) = tidegate(&["checkpoint", "inspect", &saved, "--json"]);
    assert!(code == 0 && out.contains("\"kind\":\"savepoint\""), "{out}");
    for place in [&*dir, &*saved] {
        let (code, out, _) = tidegate(&["checkpoint", "verify", place]);
        assert!(code == 0 && out.contains("sound"), "{out}");
    }
}

#[test]
fn a_flipped_byte_is_named_with_exit_code_3() {
    let temporary = tempfile::tempdir().expect("a directory");
    let (dir, savepoint) = made(temporary.path());
    let data = savepoint.join("data-0");
    let mut bytes = fs::read(&data).expect("reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&data, bytes).expect("writes");
    let (code, out, _) = tidegate(&["checkpoint", "verify", &savepoint.to_string_lossy()]);
    assert!(code == 3 && out.contains("data-0") && out.contains("byte"), "{code} {out}");
    let (code, _, err) = tidegate(&["checkpoint", "inspect", &dir, "4711"]);
    assert!(code == 3 && err.contains("4711"), "{code} {err}");
}

#[test]
fn what_can_not_be_done_is_said_with_exit_code_2() {
    assert_eq!(tidegate(&["savepoint", "job"]).0, 2);
    assert_eq!(tidegate(&["checkpoint", "unknown"]).0, 2);
    let (code, _, err) = tidegate(&["checkpoint", "list", "/no/such/directory"]);
    assert!(code == 1 && err.contains("/no/such/directory"), "{code} {err}");
    let (code, out, _) = tidegate(&["--help"]);
    assert!(code == 0 && out.contains("checkpoint"), "{out}");
}
