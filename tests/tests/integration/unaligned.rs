//! Unaligned checkpoints under back-pressure and failure: what was in flight is neither lost nor seen twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::config::{Config, Origin};
use tidegate::source::Source;
use tidegate::{Job, JobStatus, sink, source};

/// Records that the jobs read.
const RECORDS: u64 = 60_000;
const KEYS: u64 = 97;
const FULL_SPEED: u64 = 1_000_000_000;

fn config(parallelism: u32, aligned_timeout_ms: u64) -> Config {
    let mut config = Config::default();
    config.set("taskmanager.slots", &parallelism.to_string(), Origin::Flag).expect("a number");
    config.checkpoint.interval = Some(Duration::from_millis(5));
    config.checkpoint.unaligned_enabled = true;
    config.checkpoint.aligned_timeout = Duration::from_millis(aligned_timeout_ms);
    // Small buffers, so that many are in flight.
    config.buffer.segment_bytes = 4096;
    config
}

/// Counts per key through two keyed exchanges, and the greatest count of each key comes out.
fn job(
    config: Config,
    name: &str,
    rate: u64,
    fail_at: &[u64],
) -> (Job, sink::Collected<(u64, u64)>) {
    let job = Job::with_config(name, config);
    let (collect, collected) = sink::collect::<(u64, u64)>();
    let seen = Arc::new(AtomicU64::new(0));
    let fail_at = fail_at.to_vec();
    job.source("numbers", source::generate(RECORDS, |i| i).rate(rate))
        .key_by(|n| n % KEYS)
        .count("counts")
        .map(|(key, count)| (key, count))
        .key_by(|(_, count)| count % 7)
        .fold("slow", 0u64, |total, (_, count)| *total = total.wrapping_add(count))
        .map(move |(rest, total)| {
            let n = seen.fetch_add(1, Ordering::Relaxed);
            assert!(!fail_at.contains(&n), "planned failure at {n}");
            for _ in 0..50 {
                std::hint::spin_loop();
            }
            (rest, total)
        })
        .sink("collect", collect);
    (job, collected)
}

/// Each record changes one running total once: the totals of a class are all distinct prefixes of one sum.
fn check(collected: &sink::Collected<(u64, u64)>) {
    let mut expected: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for n in 0..RECORDS {
        let count = n / KEYS + 1;
        let entry = expected.entry(count % 7).or_default();
        *entry = (entry.0 + 1, entry.1 + count);
    }
    let mut found: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (rest, total) in collected.take() {
        let entry = found.entry(rest).or_default();
        *entry = (entry.0 + 1, entry.1.max(total));
    }
    assert_eq!(found, expected, "(records, final total) by class");
}

fn run(parallelism: u32, aligned_timeout_ms: u64, fail_at: &[u64]) -> JobStatus {
    let name = format!("unaligned {parallelism} {aligned_timeout_ms} {fail_at:?}");
    let (job, collected) = job(config(parallelism, aligned_timeout_ms), &name, FULL_SPEED, fail_at);
    let status = job.run().expect("the job ends");
    check(&collected);
    status
}

#[test]
fn unaligned_checkpoints_of_a_job_that_ends_lose_nothing() {
    for parallelism in [1, 2, 3] {
        let status = run(parallelism, 0, &[]);
        assert!(status.checkpoints_completed > 0, "{status:?}");
        assert_eq!(status.restarts, 0);
    }
}

#[test]
fn unaligned_checkpoints_restore_what_was_in_flight() {
    for parallelism in [1, 2, 3] {
        let status = run(parallelism, 0, &[20_000, 45_000]);
        assert_eq!(status.restarts, 2, "{:?}", status.last_failure);
    }
}

#[test]
fn checkpoints_that_time_out_while_aligning_restore_what_was_in_flight() {
    for parallelism in [1, 2, 3] {
        let status = run(parallelism, 1, &[10_000, 30_000, 50_000]);
        assert_eq!(status.restarts, 3, "{:?}", status.last_failure);
    }
}

#[test]
fn in_flight_records_follow_their_keys_to_another_parallelism() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut collected = Vec::new();
    for (round, parallelism) in [2, 3, 1, 2].into_iter().enumerate() {
        let mut config = config(parallelism, 0);
        config.checkpoint.dir = Some(dir.path().to_owned());
        let (mut job, output) = job(config, "rescale in flight", RECORDS / 2, &[]);
        job.resume(round > 0);
        if round < 3 {
            let handle = job.spawn().expect("the job starts");
            for _ in 0..3 {
                handle.wait_checkpoint(Duration::from_secs(20));
            }
            let stopped = handle.cancel();
            assert!(stopped.is_err(), "the input is longer than that");
        } else {
            job.run().expect("the job ends");
        }
        collected.extend(output.take());
    }
    // What each round committed adds up: nothing is missing or twice.
    let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
    for n in 0..RECORDS {
        *expected.entry((n / KEYS + 1) % 7).or_default() += 1;
    }
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    for (rest, _) in collected {
        *found.entry(rest).or_default() += 1;
    }
    assert_eq!(found, expected);
}
