//! The binary as its users see it: results, exit codes, stopping and resuming.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/flights-200k.csv.zst");
const SHIPPED_SUM: &str = "3d570fcfea317152485293db930d59d0dcfb3fdee683ab5f6fdfc72627d9fc00";
const ALL_SUM: &str = "58c0405b26b2c9719f76b2504464bd59c247dbf3e33dc5f8a78c43b96c02b259";

/// A folder for one job.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("makes a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The command `what`, with this folder's output and checkpoints.
    fn command(&self, what: &str, more: &[&str]) -> Command {
        let mut command = runner();
        command.arg(what).args(more).arg("--quiet");
        command.arg("--output").arg(self.path("output"));
        command.arg("--checkpoints").arg(self.path("checkpoints"));
        command
    }

    fn run(&self, what: &str, more: &[&str]) -> Output {
        self.command(what, more).output().expect("the runner starts")
    }

    /// Committed lines, sorted by their bytes.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for entry in std::fs::read_dir(self.path("output")).expect("there is an output") {
            let path = entry.expect("can be listed").path();
            if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
                let text = std::fs::read_to_string(path).expect("parts are text");
                lines.extend(text.lines().map(str::to_owned));
            }
        }
        lines.sort_unstable();
        lines
    }

    fn sum(&self) -> String {
        let mut sum = Sha256::new();
        for line in self.lines() {
            sum.update(line);
            sum.update("\n");
        }
        sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn runner() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"));
    // Data for these tests, not for the runner.
    command.env_remove("TIDEGATE_FLIGHTS");
    command
}

fn code(output: &Output) -> i32 {
    let stderr = String::from_utf8_lossy(&output.stderr);
    output.status.code().unwrap_or_else(|| panic!("killed: {stderr}"))
}

/// Asserts the code and what is said.
fn assert_refused(output: &Output, expected: i32, says: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(code(output), expected, "{stderr}");
    assert!(stderr.contains(says), "{stderr}");
}

#[track_caller]
fn flights(input: &str, workers: &str, sum: &str) {
    let folder = Folder::new();
    let output = folder.run("flights", &["--input", input, "--workers", workers, "--json"]);
    assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(folder.sum(), sum, "{workers} workers");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let last = stdout.lines().last().unwrap_or_default();
    assert!(last.starts_with(r#"{"workload":"flights","events":"#), "{last}");
    assert_eq!(
        keys(last),
        [
            "workload",
            "events",
            "seconds",
            "events_per_s",
            "checkpoints",
            "checkpoint_ms_median",
            "checkpoint_ms_max",
            "restarts",
            "peak_rss_bytes"
        ]
    );
}

/// The keys of an object of texts and numbers.
fn keys(line: &str) -> Vec<&str> {
    line.split('"')
        .collect::<Vec<_>>()
        .windows(2)
        .filter(|two| two[1].starts_with(':'))
        .map(|two| two[0])
        .collect()
}

#[test]
fn flights_by_hour_are_exact_with_one_two_and_five_workers() {
    for workers in ["1", "2", "5"] {
        flights(SHIPPED, workers, SHIPPED_SUM);
    }
}

#[test]
fn all_flights_by_hour_are_exact_with_one_two_and_five_workers() {
    let Some(input) = std::env::var_os("TIDEGATE_FLIGHTS") else {
        println!("SKIPPED: TIDEGATE_FLIGHTS names no file");
        return;
    };
    for workers in ["1", "2", "5"] {
        flights(&input.to_string_lossy(), workers, ALL_SUM);
    }
}

#[test]
fn the_commands_that_measure_print_their_figures_however_options_are_written() {
    for (name, options, figures) in [
        ("overtake", "count=20 buffers=8", &["us_p50", "in_band_us_p999", "references_us_p99"][..]),
        ("end", "runs=1 events=1000 workers=1", &["end_ms_median"]),
        ("end", "runs=1 events=1000 workers=2 stages=2", &["end_ms_max"]),
        ("idle", "seconds=1 workers=2", &["cpu_percent"]),
        ("idle", "seconds=1 workers=1 source=channel", &["cpu_percent"]),
        (
            "checkpoint",
            "count=2 sink-rate=500000 workers=1 aligned_seconds=30",
            &["ckpt_ms_p99", "fsync_ms_median", "aligned_ms_median"],
        ),
        ("checkpoint", "mode=aligned count=1 sink-rate=500_000 workers=1", &["ckpt_ms_median"]),
        ("spill", "mib=1 count=1 workers=1", &["mapped_bytes", "worker_ms_max"]),
        ("toll", "rounds=1 fours=1 window=500 workers=2", &["with_to_without", "ckpt_ms_median"]),
        (
            "steered",
            "rounds=2 seconds=1 workers=2",
            &["called_to_quiet", "quiet_to_off", "call_ms_p99"],
        ),
    ] {
        let flags = options.split(' ').flat_map(|option| {
            let (key, value) = option.split_once('=').expect("an option has a value");
            [format!("--{key}"), value.to_owned()]
        });
        for line in [options.split(' ').map(str::to_owned).collect::<Vec<_>>(), flags.collect()] {
            let folder = Folder::new();
            let output = runner().arg(name).args(&line).current_dir(folder.0.path()).output();
            let output = output.expect("the runner starts");
            assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
            let stdout = String::from_utf8_lossy(&output.stdout);
            let last = stdout.lines().last().unwrap_or_default();
            assert!(last.contains(&format!(r#""workload":"{name}""#)), "{last}");
            assert!(figures.iter().all(|figure| keys(last).contains(figure)), "{last}");
            assert!(!last.contains("null"), "{line:?}: {last}");
        }
    }
}

#[test]
fn a_job_that_has_ended_says_so_and_is_not_begun_again_unasked() {
    let folder = Folder::new();
    assert_eq!(code(&folder.run("flights", &["--input", SHIPPED])), 0);
    let again = folder.run("flights", &["--input", SHIPPED, "--resume"]);
    assert_eq!(code(&again), 0);
    assert!(String::from_utf8_lossy(&again.stdout).contains("the job has ended before"));
    assert_refused(&folder.run("flights", &["--input", SHIPPED]), 3, "--resume");
    assert_eq!(folder.sum(), SHIPPED_SUM);
}

#[test]
fn a_stopped_job_goes_on_where_it_was() {
    let folder = Folder::new();
    let paced = ["--input", SHIPPED, "--rate", "20000", "--checkpoint-interval", "50ms"];
    let mut command = folder.command("flights", &paced);
    command.args(["--events", "/dev/stderr"]).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the runner starts");
    let mut events = BufReader::new(child.stderr.take().expect("is piped")).lines();
    let completed = |line: &String| line.contains(r#""event":"completed""#);
    let line = events.by_ref().map_while(Result::ok).find(completed);
    assert!(line.is_some(), "a checkpoint completes before the job ends");
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM).expect("the job runs");
    // The pipe is read to its end, so that the runner never waits for it.
    let rest: Vec<String> = events.map_while(Result::ok).collect();
    let output = child.wait_with_output().expect("the runner ends");
    assert_eq!(output.status.code(), Some(0), "{rest:?}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("go on with --resume"), "{stdout}");
    assert!(folder.lines().len() < 28_794, "the job was stopped before its end");
    assert_eq!(code(&folder.run("flights", &["--input", SHIPPED, "--resume"])), 0);
    assert_eq!(folder.sum(), SHIPPED_SUM);
}

/// What a request to a served job is answered.
fn asked(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the job is served");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    answer
}

#[test]
fn a_served_job_is_stopped_with_a_savepoint_and_goes_on_with_another_parallelism() {
    let folder = Folder::new();
    let paced = ["--input", SHIPPED, "--rate", "20000", "--workers", "2"];
    let mut command = folder.command("flights", &paced);
    let list = ["--task-managers", "node1:1,node2:2", "--rest", "127.0.0.1:0"];
    command.args(list).stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the runner starts");
    let mut lines = BufReader::new(child.stderr.take().expect("is piped")).lines();
    let line = lines.next().expect("it says where it is served").expect("it is text");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
    let address = address.unwrap_or_else(|| panic!("{line}"));
    while !asked(address, "GET", "/jobs", "").contains("RUNNING") {}
    let managers = asked(address, "GET", "/taskmanagers", "");
    assert!(managers.contains("node1") && managers.contains("node2"), "{managers}");
    let saved = folder.path("saved");
    let body = format!("{{\"targetDirectory\":\"{}\"}}", saved.display());
    let answer = asked(address, "POST", "/jobs/flights/stop", &body);
    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let output = child.wait_with_output().expect("the runner ends");
    assert_eq!(output.status.code(), Some(0), "{rest:?}");
    assert!(folder.lines().len() < 28_794, "the job was stopped before its end");
    let savepoint = std::fs::read_dir(saved)
        .expect("it is there")
        .next()
        .expect("one")
        .expect("is read")
        .path();
    let savepoint = savepoint.to_string_lossy();
    let again =
        ["--input", SHIPPED, "--restore-from", &*savepoint, "--parallelism", "3", "--workers", "2"];
    let output = folder.run("flights", &again);
    assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(folder.sum(), SHIPPED_SUM);
}

#[test]
fn wrong_usage_ends_with_two_and_says_what_would_be_right() {
    for (line, says) in [
        (&["flihgts"][..], "did you mean 'flights'?"),
        (&["flights", "--worker", "2"], "did you mean 'workers'?"),
        (&["flights", "workers=0"], "a whole number from 1"),
        (&["flights", "workers=10000"], "parallelism"),
        (&["flights", "checkpoint-interval=0"], "checkpoint.interval"),
        (&["flights", "--resume"], "--output and --checkpoints"),
        (&["flights", "--restore-from", "7"], "--output and --checkpoints"),
        (
            &["flights", "--resume", "--restore-from", "x", "--output", "o", "--checkpoints", "c"],
            "another",
        ),
        (&["flights", "--rest", "here"], "rest.address"),
        (&["flights", "--rest", "0.0.0.0:0"], "rest.token-file"),
        (&["flights", "--input", "no/such/*.csv"], "no file matches"),
        (&["wordcount"], "--input is missing"),
        (&["w2", "keys=0"], "--keys"),
        (&["w1", "--config", "no/such/file"], "no/such/file"),
    ] {
        let folder = Folder::new();
        let output = runner().args(line).current_dir(folder.0.path()).output();
        assert_refused(&output.expect("the runner starts"), 2, says);
    }
}

#[test]
fn a_bad_row_ends_with_one_and_is_named() {
    let folder = Folder::new();
    let input = folder.path("bad.csv");
    std::fs::write(&input, "date,delay,origin\n2001-01-01T00:01,5,LAS\n2001-01-01T00:02,x,LAS\n")
        .expect("writes");
    let input = input.to_string_lossy();
    let more = ["--input", &*input, "--restart-strategy.type", "none"];
    let output = folder.run("flights", &more);
    assert_refused(&output, 1, "bad.csv:3");
    assert_refused(&output, 1, "field 'delay'");
    assert_eq!(folder.lines(), [""; 0], "nothing half-written is visible");
}

#[test]
fn a_configuration_file_is_read_and_shown_with_origins() {
    let folder = Folder::new();
    let path = folder.path("options.toml");
    std::fs::write(&path, "[checkpoint]\nnum-retained = 7\n").expect("writes");
    let output = runner()
        .args(["flights", "checkpoint.interval=3s", "--print-config", "--config"])
        .arg(&path)
        .output()
        .expect("the runner starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    for line in ["checkpoint.num-retained = 7 (file)", "checkpoint.interval = 3s (flag)"] {
        assert!(stdout.lines().any(|shown| shown == line), "{line} in\n{stdout}");
    }
}

#[test]
fn words_of_files_are_counted_once_each() {
    let folder = Folder::new();
    let text = folder.path("a.txt");
    std::fs::write(&text, "To be, or not\nto BE\n").expect("writes");
    std::fs::write(folder.path("b.txt"), "not").expect("writes");
    let input = Path::new(&text).with_file_name("*.txt");
    let output = folder.run("wordcount", &["--input", &input.to_string_lossy()]);
    assert_eq!(code(&output), 0, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(folder.lines(), ["be,2", "not,2", "or,1", "to,2"]);
}
