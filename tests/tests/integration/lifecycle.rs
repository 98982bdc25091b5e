//! How jobs are run, watched, stopped and left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::{ErrorKind, Job, sink, source};

use crate::rig::{Gated, SOON, checkpointed, job, set, sorted, wait_for, wait_until};

fn counted(job: &Job, n: u64) -> sink::Collected<(u64, u64)> {
    let (sink, collected) = sink::collect();
    job.source("numbers", source::range(0..n)).key_by(|n| n % 10).count("n").sink("out", sink);
    collected
}

#[test]
fn run_spawn_and_stepping_give_the_same() {
    const N: u64 = 20_000;
    let run = checkpointed("case", 2);
    let a = counted(&run, N);
    run.run().expect("it runs");
    let spawned = checkpointed("case", 2);
    let b = counted(&spawned, N);
    spawned.spawn().expect("it starts").join().expect("it ends");
    let stepped = checkpointed("case", 2);
    let c = counted(&stepped, N);
    let mut stepper = stepped.stepper().expect("it is right");
    while stepper.step().expect("it goes on") {}
    assert!(stepper.status().checkpoints_completed > 0, "the last one at least");
    assert!(!stepper.step().expect("it stays ended"));
    let a = sorted(a.take());
    assert_eq!(a.len() as u64, N);
    assert_eq!((&sorted(b.take()), &sorted(c.take())), (&a, &a));
}

#[test]
fn p20_an_operator_that_blocks_for_ever_is_named_and_left_behind() {
    let release = Arc::new(AtomicBool::new(false));
    let blocked = release.clone();
    let stuck = checkpointed("stuck", 2);
    let numbers = Gated::new(100);
    numbers.open_all();
    let (sink, _out) = sink::collect::<u64>();
    stuck
        .source("numbers", numbers.clone())
        .map(move |n| {
            while n == 50 && !blocked.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            n
        })
        .sink("out", sink);
    let handle = stuck.spawn().expect("it starts");
    wait_for(numbers.emitted(), 50);
    let error = handle.stop(Duration::from_millis(200)).expect_err("it is stuck");
    assert_eq!(error.kind(), ErrorKind::Stuck);
    assert!(error.operator().is_some_and(|name| name.contains("source 'numbers' > map")));
    let next = job("next", 2);
    let out = counted(&next, 100);
    next.run().expect("another job runs in the same process");
    assert_eq!(out.take().len(), 100);
    release.store(true, Ordering::Relaxed);
}

#[test]
fn a_cancelled_job_without_checkpoints_commits_nothing() {
    let numbers = Gated::new(1000);
    let cancelled = job("case", 2);
    set_never(cancelled, &numbers, |handle| {
        assert_eq!(handle.cancel().expect_err("it is cancelled").kind(), ErrorKind::Cancelled);
    });
}

fn set_never(mut job: Job, numbers: &Gated, end: impl FnOnce(tidegate::JobHandle)) {
    set(&mut job, "checkpoint.interval", "never");
    let (sink, out) = sink::collect::<u64>();
    job.source("numbers", numbers.clone()).sink("out", sink);
    let handle = job.spawn().expect("it starts");
    numbers.open(500);
    wait_for(numbers.emitted(), 500);
    end(handle);
    assert!(out.take().is_empty());
}

#[test]
fn a_union_of_a_short_and_a_long_source_ends_when_both_have() {
    let united = checkpointed("case", 2);
    let (short, long) = (Gated::new(6), Gated::new(20_000));
    let (sink, out) = sink::collect::<u64>();
    united
        .source("short", short.clone())
        .union(united.source("long", long.clone()))
        .sink("out", sink);
    let handle = united.spawn().expect("it starts");
    short.open_all();
    wait_for(short.emitted(), 6);
    crate::rig::next_checkpoint(&handle);
    long.open_all();
    handle.join().expect("it ends");
    assert_eq!(out.take().len(), 20_006);
}

#[test]
fn many_jobs_in_a_row_leave_no_thread_behind() {
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let of_jobs = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
        tasks.filter_map(name).filter(|name| name.starts_with("tidegate-")).count()
    };
    for _ in 0..300 {
        let tiny = job("tiny", 1);
        let out = counted(&tiny, 10);
        tiny.run().expect("it runs");
        assert_eq!(out.take().len(), 10);
    }
    // Other tests run at the same time: theirs are a few.
    wait_until("the end of their threads", || of_jobs() < 100);
}

#[test]
fn windows_fire_once_though_their_consumer_is_slow() {
    use tidegate::time::{Watermarks, Windows};
    let mut slow = job("case", 1);
    set(&mut slow, "buffer.segment-bytes", "4KiB");
    set(&mut slow, "buffer.per-channel", "2");
    set(&mut slow, "taskmanager.slots", "2");
    let (sink, out) = sink::collect::<(u64, u64)>();
    slow.source("numbers", source::range(0..60_000))
        .watermarks(Watermarks::ascending(), |n| n as i64)
        .key_by(|n| n % 5000)
        .window(Windows::tumbling(Duration::from_secs(15)), |n| n as i64)
        .count("per window")
        .map(|(key, _, n)| (key, n))
        .rebalance()
        .with_parallelism(2)
        .inspect(|_| {
            for n in 0..200 {
                std::hint::black_box(n);
            }
        })
        .sink("out", sink);
    let handle = slow.spawn().expect("it starts");
    wait_until("the end", || handle.state().is_over());
    handle.stop(SOON).expect("it has ended");
    let out = out.take();
    assert_eq!(out.len(), 4 * 5000);
    assert_eq!(out.iter().map(|(_, n)| n).sum::<u64>(), 60_000);
}
