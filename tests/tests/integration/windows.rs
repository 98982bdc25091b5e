//! Windows and time in whole jobs: out-of-order data, late records, idle and ended inputs, restarts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::source::Source as _;
use tidegate::time::{Watermarks, Window, Windows};
use tidegate::{Chain, Job, JobStatus, Stream, sink, source};

use crate::rig::{
    Once, SOON, checkpointed, durable, fragile, job, next_checkpoint, sorted, wait_for,
};
use crate::script::Item::{At, Hold, Pause, Silent};
use crate::script::{Item, Script};

/// (key, start of the window, records).
type Count = (u64, i64, u64);

const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn shown(key: u64, window: Window, n: u64) -> Count {
    (key, window.start.0, n)
}

fn late(status: &JobStatus) -> u64 {
    status.tasks.iter().map(|task| task.figures.late_records).sum()
}

/// The script's records with watermarks that follow them at once, from one subtask.
fn told(job: &Job, script: &Script) -> Stream<(u64, i64), impl Chain<Out = (u64, i64)> + use<>> {
    job.source("script", script.clone())
        .watermarks(Watermarks::ascending(), |(_, time)| time)
        .with_parallelism(1)
}

/// Runs a job that counts a script's records in windows; what came out, sorted, and the job's status.
fn counted(
    items: &[Item],
    width: u32,
    windows: Windows,
    late: Duration,
) -> (Vec<Count>, JobStatus) {
    let job = fragile("windows", width);
    let (sink, counts) = sink::collect::<Count>();
    told(&job, &Script::new(&[items]))
        .key_by(|(key, _)| key)
        .window(windows, |(_, time)| time)
        .allowed_lateness(late)
        .count("counts")
        .map(|(key, window, n)| shown(key, window, n))
        .sink("out", sink);
    let status = job.run().expect("the job runs");
    (sorted(counts.take()), status)
}

/// Times that go up in steps of `step` with a disorder of less than `disorder`, from a fixed sequence.
fn disordered(count: u64, step: u64, disorder: u64) -> impl Fn(u64) -> (u64, i64) + Clone + Send {
    move |i| {
        let noise = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        assert!(i < count, "no such record");
        (noise % 13, (i * step + noise % disorder) as i64 - 5000)
    }
}

#[test]
fn records_out_of_order_are_counted_in_all_their_windows_exactly_once() {
    const N: u64 = 20_000;
    let record = disordered(N, 3, 400);
    let cases = [
        (Windows::tumbling(millis(100)), 100, 100, 0),
        (Windows::tumbling(millis(1000)).offset_by(-370), 1000, 1000, -370),
        (Windows::sliding(millis(100), millis(20)), 100, 20, 0),
        (Windows::sliding(millis(100), millis(30)).offset_by(7), 100, 30, 7),
    ];
    for (width, (windows, size, slide, offset)) in
        (1..=3).flat_map(|width| cases.map(|case| (width, case)))
    {
        let mut expected = BTreeMap::new();
        for (key, time) in (0..N).map(&record) {
            let mut start = (time - offset).div_euclid(slide) * slide + offset;
            while start + size > time {
                *expected.entry((key, start)).or_insert(0u64) += 1;
                start -= slide;
            }
        }
        let expected: Vec<Count> = expected.into_iter().map(|((k, s), n)| (k, s, n)).collect();
        let job = fragile("windows", width);
        let (sink, counts) = sink::collect::<Count>();
        job.source("records", source::generate(N, record.clone()))
            .watermarks(Watermarks::bounded_out_of_orderness(millis(400)), |(_, time)| time)
            .key_by(|(key, _)| key)
            .window(windows, |(_, time)| time)
            .count("counts")
            .map(|(key, window, n)| shown(key, window, n))
            .sink("out", sink);
        let status = job.run().expect("the job runs");
        assert_eq!(sorted(counts.take()), expected, "{windows:?} with {width} subtasks");
        assert_eq!(late(&status), 0);
    }
}

#[test]
fn all_windows_fire_at_the_end_also_of_the_far_future() {
    let items = [At(1, 10), At(1, 1 << 50), At(2, -(1 << 50))];
    let (counts, status) = counted(&items, 2, Windows::tumbling(millis(1 << 10)), Duration::ZERO);
    assert_eq!(counts, [(1, 0, 1), (1, 1 << 50, 1), (2, -(1 << 50), 1)]);
    assert_eq!(late(&status), 0, "no watermark was sent between them");
}

#[test]
fn a_late_record_within_the_allowed_lateness_fires_its_key_again() {
    let items = [
        At(1, 10),
        At(2, 15),
        At(1, 150),
        Pause,
        At(1, 20),
        At(3, 30),
        At(1, 199),
        Pause,
        At(1, 40),
        At(1, 201),
        Pause,
        At(1, 50),
    ];
    for width in 1..=2 {
        let (counts, status) = counted(&items, width, Windows::tumbling(millis(100)), millis(100));
        let first = [(1, 0, 1), (1, 0, 2), (1, 0, 3)];
        let rest = [(1, 100, 2), (1, 200, 1), (2, 0, 1), (3, 0, 1)];
        assert_eq!(counts, [first.as_slice(), &rest].concat(), "with {width} subtasks");
        assert_eq!(late(&status), 1, "the last one");
    }
}

#[test]
fn a_record_late_for_some_sliding_windows_counts_in_the_others() {
    // Once time has come to 149, the windows from 0 and from 50 are over, that from 100 is open.
    let items = [At(1, 150), Pause, At(1, 99), At(1, 120), Pause, At(1, 20)];
    let windows = Windows::sliding(millis(100), millis(50));
    let (counts, status) = counted(&items, 1, windows, Duration::ZERO);
    assert_eq!(counts, [(1, 100, 2), (1, 150, 1)]);
    assert_eq!(late(&status), 2, "those at 99 and at 20");
}

#[test]
fn late_records_go_to_the_side_output_instead_of_being_counted() {
    let items = [At(1, 10), At(1, 250), Pause, At(1, 20), At(2, 30), At(1, 260)];
    for width in 1..=2 {
        let job = fragile("windows", width);
        let (on_time, too_late) = told(&job, &Script::new(&[&items]))
            .key_by(|(key, _)| key)
            .window(Windows::tumbling(millis(100)), |(_, time)| time)
            .aggregate_with_late("counts", 0u64, |n: &mut u64, _| *n += 1, |n: &u64| *n);
        let (sink, counts) = sink::collect::<Count>();
        let (late_sink, late_records) = sink::collect::<(u64, i64)>();
        on_time.map(|(key, window, n)| shown(key, window, n)).sink("out", sink);
        too_late.sink("late", late_sink);
        let status = job.run().expect("the job runs");
        assert_eq!(sorted(counts.take()), [(1, 0, 1), (1, 200, 2)]);
        assert_eq!(sorted(late_records.take()), [(1, 20), (2, 30)]);
        assert_eq!(late(&status), 0, "none is dropped");
    }
}

/// Counts in windows of 100 ms, and how many results have come out so far.
fn fired<C: Chain<Out = (u64, i64)>>(records: Stream<(u64, i64), C>) -> Arc<AtomicU64> {
    let fired = Arc::new(AtomicU64::new(0));
    let count = fired.clone();
    records
        .key_by(|(key, _)| key)
        .window(Windows::tumbling(millis(100)), |(_, time)| time)
        .count("counts")
        .sink("out", sink::for_each(move |_| _ = count.fetch_add(1, Ordering::Relaxed)));
    fired
}

#[test]
fn p16_a_filter_that_leaves_nothing_does_not_hold_back_time() {
    let job = fragile("filter", 2);
    let script =
        Script::new(&[&[At(1, 10), At(1, 210), Hold(1)], &[At(9, 10), At(9, 210), Hold(1)]]);
    let all = job
        .source("script", script.clone())
        .watermarks(Watermarks::ascending(), |(_, time)| time)
        .filter(|(key, _)| key != 9);
    let fired = fired(all);
    let handle = job.spawn().expect("it starts");
    wait_for(&fired, 1);
    script.open(1);
    handle.join().expect("it ends");
    assert_eq!(fired.load(Ordering::Relaxed), 2);
}

#[test]
fn p16_a_source_that_says_nothing_for_a_day_becomes_idle_and_does_not_hold_back_time() {
    for silent in [[Silent].as_slice(), &[At(2, 5), Silent]] {
        let job = fragile("silent", 2);
        let script = Script::new(&[&[At(1, 10), At(1, 210), Hold(1)], silent]);
        let fired = fired(
            job.source("script", script.clone())
                .watermarks(Watermarks::ascending().idle_after(millis(20)), |(_, time)| time),
        );
        let handle = job.spawn().expect("it starts");
        wait_for(&fired, 1);
        handle.cancel().expect_err("it would go on for a day");
    }
}

#[test]
fn p16_who_is_idle_counts_again_with_its_next_record() {
    let job = fragile("again", 2);
    let script = Script::new(&[
        &[At(1, 10), At(1, 210), Hold(2), At(1, 910)],
        &[Hold(1), At(2, 350), Pause, Hold(2)],
    ]);
    let fired = fired(
        job.source("script", script.clone())
            .watermarks(Watermarks::ascending().idle_after(millis(20)), |(_, time)| time),
    );
    let handle = job.spawn().expect("it starts");
    wait_for(&fired, 1);
    script.open(1);
    // The window from 200 fires by the second one's watermark: the first one has nothing, and is idle.
    wait_for(&fired, 2);
    script.open(2);
    handle.join().expect("it ends");
    assert_eq!(fired.load(Ordering::Relaxed), 4);
}

#[test]
fn p17_subtasks_without_a_split_and_ended_ones_leave_the_group() {
    let ended: &[Item] = &[At(3, 20)];
    let going = [At(1, 10), At(1, 210), Hold(1)];
    for lists in [vec![going.as_slice()], vec![&going, ended]] {
        let job = fragile("ended", 3);
        let script = Script::new(&lists);
        let fired = fired(
            job.source("script", script.clone())
                .watermarks(Watermarks::ascending(), |(_, time)| time),
        );
        let handle = job.spawn().expect("it starts");
        wait_for(&fired, lists.len() as u64);
        script.open(1);
        handle.join().expect("it ends");
        assert_eq!(fired.load(Ordering::Relaxed), 1 + lists.len() as u64);
    }
    let job = fragile("all ended", 3);
    let fired = fired(told(&job, &Script::new(&[])));
    job.run().expect("it ends");
    assert_eq!(fired.load(Ordering::Relaxed), 0);
}

#[test]
fn p17_a_branch_of_a_union_that_has_ended_does_not_speak_for_an_idle_one() {
    let job = checkpointed("union", 1);
    let idle_script = Script::new(&[&[At(1, 10), Hold(1), At(1, 320)]]);
    let ending_script = Script::new(&[&[At(2, 15), At(2, 210), Hold(1)]]);
    let told = |name: &str, script: &Script| {
        job.source(name, script.clone())
            .watermarks(Watermarks::ascending().idle_after(millis(20)), |(_, time)| time)
    };
    let fired = fired(told("idle", &idle_script).union(told("ending", &ending_script)));
    let handle = job.spawn().expect("it starts");
    wait_for(&fired, 2);
    ending_script.open(1);
    // Its end goes through with the checkpoints.
    next_checkpoint(&handle);
    next_checkpoint(&handle);
    idle_script.open(1);
    let status = handle.join().expect("it ends");
    assert_eq!((fired.load(Ordering::Relaxed), late(&status)), (4, 0));
}

#[test]
fn windows_go_on_over_a_restart_without_losing_or_doubling_a_count() {
    const N: u64 = 30_000;
    for width in 1..=2 {
        let record = disordered(N, 3, 100);
        let job = checkpointed("restart", width);
        let once = Once::default();
        let (sink, counts) = sink::collect::<Count>();
        let failing = once.clone();
        let completed = Arc::new(AtomicU64::new(0));
        let seen = completed.clone();
        job.source("records", source::generate(N, record).rate(200_000))
            .watermarks(Watermarks::bounded_out_of_orderness(millis(100)), |(_, time)| time)
            .key_by(|(key, _)| key)
            .window(Windows::tumbling(millis(1000)), |(_, time)| time)
            .count("counts")
            .inspect(move |(_, window, _)| {
                assert!(
                    seen.load(Ordering::Relaxed) == 0 || window.start.0 < 50_000 || !failing.take()
                );
            })
            .map(|(key, window, n)| shown(key, window, n))
            .sink("out", sink);
        let handle = job.spawn().expect("it starts");
        assert!(handle.wait_checkpoint(SOON));
        completed.store(1, Ordering::Relaxed);
        let status = handle.join().expect("it ends");
        assert!(once.is_taken() && status.restarts > 0, "it has failed once: {status:?}");
        let counts = counts.take();
        assert_eq!(counts.iter().map(|(_, _, n)| n).sum::<u64>(), N);
        let windows: std::collections::BTreeSet<_> =
            counts.iter().map(|(key, start, _)| (*key, *start)).collect();
        assert_eq!(windows.len(), counts.len(), "none has fired twice");
    }
}

#[test]
fn a_record_that_was_late_before_a_restore_is_late_after_it() {
    for (before, after) in [(1, 1), (2, 2), (2, 3), (3, 1)] {
        let checkpoints = tempfile::tempdir().expect("a folder");
        let items = [At(1, 10), At(1, 250), Pause, Hold(1), At(1, 20), At(1, 255)];
        let script = Script::new(&[&items]);
        let run = |width, resume| {
            let mut job = durable("late", width, checkpoints.path());
            job.resume(resume);
            let (sink, counts) = sink::collect::<Count>();
            let (late_sink, late_records) = sink::collect::<(u64, i64)>();
            let (on_time, too_late) = told(&job, &script)
                .key_by(|(key, _)| key)
                .window(Windows::tumbling(millis(100)), |(_, time)| time)
                .aggregate_with_late("counts", 0u64, |n: &mut u64, _| *n += 1, |n: &u64| *n);
            on_time.map(|(key, window, n)| shown(key, window, n)).sink("out", sink);
            too_late.sink("late", late_sink);
            (job.spawn().expect("it starts"), counts, late_records)
        };
        let (handle, counts, _) = run(before, false);
        wait_for(script.held(), 1);
        handle.stop(SOON).expect("it stops");
        assert_eq!(counts.take(), [(1, 0, 1)]);
        script.open(1);
        let (handle, counts, late_records) = run(after, true);
        handle.join().expect("it ends");
        assert_eq!(counts.take(), [(1, 200, 2)], "from {before} to {after} subtasks");
        assert_eq!(late_records.take(), [(1, 20)]);
    }
}

#[test]
fn windows_without_a_size_are_refused_before_anything_starts() {
    let job = job("wrong", 1);
    let fired = told(&job, &Script::new(&[&[At(1, 1)]]));
    fired
        .key_by(|(key, _)| key)
        .window(Windows::tumbling(Duration::ZERO), |(_, time)| time)
        .count("counts")
        .sink("out", sink::discard());
    let error = job.build().expect_err("it is wrong");
    assert_eq!(error.operator(), Some("counts"), "{error}");
}
