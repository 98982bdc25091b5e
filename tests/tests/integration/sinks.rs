//! Sinks other than files in whole jobs: channels to and from the host program, standard output, paced ones.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate::source::Source;
use tidegate::{ErrorKind, JobState, sink, source};

use crate::rig::{Gated, SOON, fragile, job, set, sorted, wait_for, wait_until};

/// A writer that was asked whether it takes a record, and got none, kept a place of the channel: with as many subtasks as
/// places the one that had a record never found any.
#[test]
fn records_go_through_a_job_from_channel_to_channel_while_it_runs() {
    for parallelism in 1..=3 {
        let mut job = job("case", parallelism);
        set(&mut job, "checkpoint.interval", "2ms");
        let (to_job, input) = source::channel::<u64>(4);
        let (output, from_job) = sink::channel::<(u64, u64)>(2);
        job.source("in", input).key_by(|n| n % 3).sum("sums", |n| n).sink("out", output);
        let handle = job.spawn().expect("it starts");
        for n in 0..300u64 {
            to_job.send(n).expect("the job runs");
            // The answer comes while the input is open: nothing waits for the end or for a full buffer.
            let (key, sum) = from_job.recv_timeout(SOON).expect("an answer");
            let expected: u64 = (0..=n).filter(|m| m % 3 == n % 3).sum();
            assert_eq!((key, sum), (n % 3, expected));
        }
        drop(to_job);
        assert_eq!(from_job.recv(), None, "the job is over");
        handle.join().expect("it ends");
    }
}

#[test]
fn a_reader_of_a_channel_that_waits_holds_the_job_back_and_loses_nothing() {
    let job = job("case", 2);
    let numbers = Gated::new(10_000);
    numbers.open_all();
    let (output, from_job) = sink::channel::<u64>(8);
    job.source("numbers", numbers).rebalance().sink("out", output);
    let handle = job.spawn().expect("it starts");
    let first = from_job.recv_timeout(SOON).expect("a record");
    let mut all = vec![first];
    all.extend(from_job.iter());
    handle.join().expect("it ends");
    assert_eq!(sorted(all), (0..10_000).collect::<Vec<_>>());
}

#[test]
fn a_reader_of_a_channel_that_has_gone_ends_the_job() {
    let job = fragile("case", 2);
    let (output, from_job) = sink::channel::<u64>(8);
    job.source("numbers", source::generate_forever(|n| n)).sink("out", output);
    let handle = job.spawn().expect("it starts");
    from_job.recv_timeout(SOON).expect("a record");
    drop(from_job);
    let error = handle.join().expect_err("nobody reads any more");
    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    assert_eq!(error.operator(), Some("out"), "{error}");
}

/// Not a test of its own: what the next test starts as a process, to read its standard output.
#[test]
fn prints_numbers_if_told_to() {
    if std::env::var_os("TIDEGATE_TEST_PRINTS").is_none() {
        return;
    }
    let job = job("prints", 2);
    job.source("numbers", source::range(0..1000))
        .map(|n| format!("number {n}"))
        .sink("lines", sink::stdout());
    job.run().expect("it runs");
}

#[test]
fn lines_on_standard_output_are_whole_and_each_comes_once() {
    let this = std::env::current_exe().expect("the test has a program");
    let mut child = Command::new(this)
        .args(["--exact", "sinks::prints_numbers_if_told_to", "--nocapture"])
        .env("TIDEGATE_TEST_PRINTS", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    // The harness prints lines of its own, and may begin one that ours go on with.
    let numbers: Vec<u64> = lines
        .map(|line| line.expect("it is text"))
        .filter_map(|line| line.rsplit_once("number ")?.1.parse().ok())
        .collect();
    assert!(child.wait().expect("it ends").success());
    assert_eq!(sorted(numbers), (0..1000).collect::<Vec<_>>());
}

#[test]
fn a_paced_sink_holds_its_job_back_but_no_checkpoint() {
    let mut job = job("case", 2);
    set(&mut job, "checkpoint.interval", "1h");
    set(&mut job, "checkpoint.aligned-timeout", "0");
    set(&mut job, "buffer.segment-bytes", "4KiB");
    let numbers = Gated::new(1_000_000);
    numbers.open_all();
    let (sink, out) = sink::collect::<u64>();
    job.source("numbers", numbers.clone())
        .key_by(|n| n % 100)
        .count("n")
        .map(|(_, n)| n)
        .sink("slow", sink::paced(sink, 200));
    let handle = job.spawn().expect("it starts");
    wait_until("its start", || handle.state() == JobState::Running);
    // So many are for the sink to take in a minute, and fit the buffers.
    wait_for(numbers.emitted(), 10_000);
    for _ in 0..3 {
        handle.checkpoint().expect("barriers overtake what waits for the sink");
    }
    assert!(out.take().len() < 10_000, "most of them are still on the way");
    assert_eq!(handle.cancel().expect_err("it is cancelled").kind(), ErrorKind::Cancelled);
}

#[test]
fn a_paced_source_in_a_job_keeps_its_rate_and_its_place_over_restarts() {
    let mut job = job("case", 2);
    set(&mut job, "checkpoint.interval", "3ms");
    let once = crate::rig::Once::default();
    let fails = once.clone();
    let (sink, out) = sink::collect::<u64>();
    let begun = std::time::Instant::now();
    job.source("numbers", source::range(0..400).rate(2000))
        .map(move |n| {
            assert!(n != 150 || !fails.take(), "planned");
            n
        })
        .sink("out", sink);
    let status = job.run().expect("it ends");
    assert_eq!((status.restarts, once.is_taken()), (1, true));
    assert_eq!(sorted(out.take()), (0..400).collect::<Vec<_>>());
    // Faster than it was told it never is; bursts are at most four milliseconds' worth.
    assert!(begun.elapsed() >= Duration::from_millis(90), "{:?}", begun.elapsed());
}
