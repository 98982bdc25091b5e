//! Checkpoints and failures while what was in flight is still being read back, wide jobs, and which edges are overtaken.

use tidegate::{JobHandle, JobState};

use crate::rig::{
    Failures, Oracle, Streams, Valve, cancel, check_all, checkpoint, durable, ended, in_order, job,
    kept, run, wait_full, wait_until,
};

/// Fails a job behind a closed valve and waits until it runs again.
fn fail_once_more(handle: &JobHandle, valve: &Valve) {
    let restarts = handle.status().restarts;
    valve.fail();
    wait_until("a restart", handle, || {
        let status = handle.status();
        status.restarts > restarts && status.state == JobState::Running
    });
}

#[test]
fn k36_a_checkpoint_during_recovery_completes_with_what_is_not_read_yet() {
    // It hung until its timeout, and the job failed over for ever.
    let job = job("recovering", 3, &[("checkpoint.interval", "1h")]);
    let (oracle, valve) = (Oracle::default(), Valve::closed());
    let streams = Streams::even(12, 300);
    let (sink, collected) = kept();
    let first = in_order(job.source("numbers", streams.clone()), "first", &oracle);
    in_order(first, "second", &oracle).sink("kept", valve.before(sink));
    let handle = job.spawn().expect("it starts");
    wait_full(&streams, &handle);
    checkpoint(&handle, "it overtakes what is in flight");
    // Each time what the last one had in flight is recovered, not read, and in flight again.
    for _ in 0..4 {
        fail_once_more(&handle, &valve);
        checkpoint(&handle, "it completes though nothing recovered was read");
    }
    valve.open();
    let status = ended(handle, "recovering");
    assert_eq!(status.restarts, 4, "{:?}", status.last_failure);
    oracle.check("recovering");
    check_all(collected.take(), &streams.all(), "recovering");
}

#[test]
fn k36_an_aligned_checkpoint_during_recovery_completes_once_that_is_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let (oracle, valve) = (Oracle::default(), Valve::closed());
    let streams = Streams::even(12, 300);
    let (sink, collected) = kept();
    for (round, unaligned) in ["true", "false"].into_iter().enumerate() {
        let options = [("checkpoint.unaligned.enabled", unaligned)];
        let mut job = durable("recovering", 2, dir.path(), &options);
        job.resume(round > 0);
        let first = in_order(job.source("numbers", streams.clone()), "first", &oracle);
        in_order(first, "second", &oracle).sink("kept", valve.before(sink.clone()));
        let handle = job.spawn().expect("it starts");
        if round == 0 {
            wait_full(&streams, &handle);
            checkpoint(&handle, "it overtakes what is in flight");
            cancel(handle);
            continue;
        }
        wait_until("all tasks", &handle, || handle.state() == JobState::Running);
        let endpoint = handle.endpoint().clone();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while endpoint.status().checkpoint_under_way.is_none() {
                    std::thread::yield_now();
                }
                valve.open();
            });
            checkpoint(&handle, "it completes when what was recovered has been read");
        });
        ended(handle, "recovering");
    }
    oracle.check("recovering");
    check_all(collected.take(), &streams.all(), "recovering");
}

#[test]
fn k37_a_job_recovers_though_everything_behind_is_full_again() {
    // Recovered records filled what was needed to read them on, and nothing moved.
    for parallelism in [1, 2, 3] {
        let what = format!("{parallelism} subtasks");
        let options = [("checkpoint.interval", "1h"), ("buffer.per-channel", "2")];
        let job = job("full again", parallelism, &options);
        let (oracle, valve) = (Oracle::default(), Valve::closed());
        let streams = Streams::even(8, 2_000);
        let (sink, collected) = kept();
        let first = in_order(job.source("numbers", streams.clone()), "first", &oracle);
        let second = in_order(first, "second", &oracle);
        in_order(second, "third", &oracle).sink("kept", valve.before(sink));
        let handle = job.spawn().expect("it starts");
        for _ in 0..3 {
            wait_full(&streams, &handle);
            checkpoint(&handle, "it overtakes what is in flight");
            fail_once_more(&handle, &valve);
        }
        wait_full(&streams, &handle);
        valve.open();
        ended(handle, &what);
        oracle.check(&what);
        check_all(collected.take(), &streams.all(), &what);
    }
}

#[test]
fn k43_a_wide_job_recovers_thousands_of_channels() {
    // Each ended channel made a call deeper, and wide jobs overflowed the stack.
    let options = [("checkpoint.interval", "1h"), ("buffer.per-channel", "2")];
    let job = job("wide", 64, &options);
    let (oracle, valve) = (Oracle::default(), Valve::closed());
    let streams = Streams::even(128, 40);
    let (sink, collected) = kept();
    in_order(job.source("numbers", streams.clone()), "only", &oracle)
        .sink("kept", valve.before(sink));
    let handle = job.spawn().expect("it starts");
    wait_until("all records", &handle, || streams.emitted() >= 128 * 40);
    checkpoint(&handle, "it overtakes what is in flight");
    fail_once_more(&handle, &valve);
    valve.open();
    ended(handle, "wide");
    oracle.check("wide");
    check_all(collected.take(), &streams.all(), "wide");
}

#[test]
fn k32_an_edge_that_must_not_be_overtaken_holds_up_no_other_part_of_the_job() {
    // One such edge switched unaligned checkpoints off for the whole graph.
    let job = job("apart", 2, &[("checkpoint.interval", "1h")]);
    let (oracle, valve) = (Oracle::default(), Valve::closed());
    let (closed, open) = (Streams::even(6, 400), Streams::even(6, 400).named_from(100));
    let (sink, collected) = kept();
    let (other, other_collected) = kept();
    let first = in_order(job.source("closed", closed.clone()), "first", &oracle);
    in_order(first, "second", &oracle).sink("kept", valve.before(sink));
    // Here records are dealt out in turn, and one task has a keyed input beside such a one.
    let spread = job.source("open", open.clone()).rebalance();
    let keyed = in_order(spread, "keyed", &oracle);
    keyed.rebalance().sink("other", other);
    let handle = job.spawn().expect("it starts");
    wait_full(&closed, &handle);
    checkpoint(&handle, "the closed part is overtaken, the open one aligned");
    fail_once_more(&handle, &valve);
    valve.open();
    ended(handle, "apart");
    check_all(collected.take(), &closed.all(), "closed");
    let mut found = other_collected.take();
    found.sort_unstable();
    assert!(found == open.all(), "open");
}

#[test]
fn it_09_random_failures_ends_and_checkpoints_lose_and_repeat_nothing() {
    let mut dice = Dice(0x5eed);
    for round in 0..25 {
        let parallelism = dice.of(4) as u32 + 1;
        let interval = format!("{}ms", dice.of(5) + 1);
        let timeout = ["0s", "1ms", "3ms"][dice.of(3)];
        let drain_hold = ["true", "false"][dice.of(2)];
        let lengths = (0..10).map(|_| (dice.of(4) * dice.of(250)) as u64).collect::<Vec<_>>();
        let total: u64 = lengths.iter().sum();
        let failing: Vec<u64> =
            (0..dice.of(4)).map(|_| dice.of(total as usize + 1) as u64).collect();
        let what = format!(
            "round {round}: {parallelism} subtasks, interval {interval}, timeout {timeout}, \
             drain hold {drain_hold}, lengths {lengths:?}, failures {failing:?}"
        );
        let options = [
            ("checkpoint.interval", interval.as_str()),
            ("checkpoint.aligned-timeout", timeout),
            ("checkpoint.drain-hold", drain_hold),
        ];
        let job = job("stress", parallelism, &options);
        let streams = Streams::new(lengths);
        let other = Streams::even(2, dice.of(300) as u64).named_from(100);
        let (oracle, failures) = (Oracle::default(), Failures::at(&failing));
        let (sink, collected) = kept();
        let a = in_order(job.source("a", streams.clone()), "of a", &oracle)
            .inspect(move |_| failures.pass());
        let b = in_order(job.source("b", other.clone()), "of b", &oracle);
        in_order(a.union(b), "both", &oracle).sink("kept", tidegate::sink::paced(sink, 40_000));
        run(job, &what);
        oracle.check(&what);
        check_all(collected.take(), &[streams.all(), other.all()].concat(), &what);
    }
}

/// Numbers by a seed.
struct Dice(u64);

impl Dice {
    /// A number below `n`.
    fn of(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}
