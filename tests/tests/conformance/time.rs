//! Time over checkpoints and failures: watermarks in flight, and timers while checkpoints follow each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::clock::EpochMillis;
use tidegate::operator::{Context, Process, Timer};
use tidegate::sink;
use tidegate::time::{Watermarks, Windows};
use tidegate::{BoxError, JobState, Output};

use crate::rig::{
    Numbered, SOON, Streams, Valve, check_all, checkpoint, ended, job, kept, wait_until,
};

#[test]
fn ep_24_watermarks_that_wait_in_a_channel_when_its_producer_ends_are_restored_and_windows_close() {
    for drain_hold in ["true", "false"] {
        let what = format!("drain hold: {drain_hold}");
        let options = [
            ("checkpoint.interval", "1h"),
            ("checkpoint.drain-hold", drain_hold),
            ("buffer.per-channel", "16"),
        ];
        let job = job("windows", 2, &options);
        let valve = Valve::closed();
        let streams = Streams::even(4, 100);
        let (sink, collected) = sink::collect::<(u64, i64, u64)>();
        job.source("numbers", streams.clone())
            .watermarks(Watermarks::ascending(), |(_, number, _)| number as i64)
            .key_by(|(stream, _, _)| stream)
            .window(Windows::tumbling(Duration::from_millis(10)), |(_, number, _)| number as i64)
            .count("by ten")
            .map(|(stream, window, count)| (stream, window.start.0, count))
            .sink("kept", valve.before(sink));
        let handle = job.spawn().expect("it starts");
        // All records, the last watermark and the end of data wait before the windows.
        wait_until("all records", &handle, || streams.emitted() >= 400);
        for _ in 0..3 {
            checkpoint(&handle, "it overtakes what is in flight");
        }
        valve.fail();
        wait_until("a restart", &handle, || {
            let status = handle.status();
            status.restarts == 1 && status.state == JobState::Running
        });
        checkpoint(&handle, "what was restored is in flight again");
        valve.open();
        let status = ended(handle, &what);
        assert_eq!(streams.emitted(), 400, "{what}: no source runs again");
        let late: u64 = status.tasks.iter().map(|task| task.figures.late_records).sum();
        assert_eq!(late, 0, "{what}");
        let mut windows = collected.take();
        windows.sort_unstable();
        let expected: Vec<_> =
            (0..4).flat_map(|stream| (0..10).map(move |ten| (stream, ten * 10, 10))).collect();
        assert_eq!(windows, expected, "{what}");
    }
}

/// Sets a timer of processing time with each record and again with each that fires, so many times for a key.
struct Ticking {
    left: tidegate::state::ValueState<u64>,
    fired: Arc<AtomicU64>,
}

const TICKS: u64 = 60;

impl Process<u64, Numbered> for Ticking {
    type Out = (u64, u64);

    fn process(
        &mut self,
        _: Numbered,
        cx: &mut Context<'_, u64>,
        _: &mut Output<'_, (u64, u64)>,
    ) -> Result<(), BoxError> {
        if cx.value(&self.left).get().is_none() {
            cx.value(&self.left).set(TICKS);
            let soon = EpochMillis(cx.processing_time().0 + 1);
            cx.set_processing_timer(soon);
        }
        Ok(())
    }

    fn on_timer(
        &mut self,
        _: Timer,
        cx: &mut Context<'_, u64>,
        out: &mut Output<'_, (u64, u64)>,
    ) -> Result<(), BoxError> {
        let left = cx.value(&self.left).get().unwrap_or(0) - 1;
        cx.value(&self.left).set(left);
        self.fired.fetch_add(1, Ordering::Relaxed);
        out.emit((cx.key(), left));
        if left > 0 {
            let soon = EpochMillis(cx.processing_time().0 + 1);
            cx.set_processing_timer(soon);
        }
        Ok(())
    }
}

#[test]
fn k38_timers_fire_while_checkpoints_follow_each_other_and_records_come_without_end() {
    // Urgent mail of checkpoints kept ordinary mail, and with it timers, from being looked at.
    let options = [("checkpoint.interval", "1ms"), ("checkpoint.max-concurrent", "1")];
    let job = job("ticking", 2, &options);
    let streams = Streams::even(6, u64::MAX >> 1);
    let (sink, collected) = sink::collect::<(u64, u64)>();
    let fired = Arc::new(AtomicU64::new(0));
    let counted = fired.clone();
    job.source("numbers", streams)
        .key_by(|(stream, _, _)| stream)
        .process("ticking", move |states| {
            Ok(Ticking { left: states.value("left")?, fired: counted.clone() })
        })
        .sink("kept", sink);
    let handle = job.spawn().expect("it starts");
    wait_until("all ticks", &handle, || fired.load(Ordering::Relaxed) >= 6 * TICKS);
    wait_until("checkpoints", &handle, || handle.status().checkpoints_completed > 10);
    handle.stop(Duration::from_secs(60)).expect("it stops");
    let mut ticks = collected.take();
    ticks.sort_unstable();
    let expected: Vec<_> =
        (0..6).flat_map(|stream| (0..TICKS).map(move |left| (stream, left))).collect();
    assert_eq!(ticks, expected);
}

#[test]
fn ft_24_an_operator_that_blocks_holds_up_its_own_thread_only() {
    let options = [("checkpoint.interval", "1h"), ("taskmanager.slots", "2")];
    let job = job("blocking", 2, &options);
    let gate = Arc::new((std::sync::Mutex::new(false), std::sync::Condvar::new()));
    // Each subtask has one stream; that of stream 0 blocks at its end until it is told to go on.
    let streams = Streams::new(vec![1, 5_000]);
    let passed = Arc::new(AtomicU64::new(0));
    let (sink, collected) = kept();
    let (waits, counts) = (gate.clone(), passed.clone());
    job.source("numbers", streams.clone())
        .inspect(move |(stream, _, _)| {
            if stream == 0 {
                let (is_open, opened) = &*waits;
                let is_open = is_open.lock().expect("nobody panics with it");
                let (_open, waited) = opened
                    .wait_timeout_while(is_open, SOON, |is_open| !*is_open)
                    .expect("nobody panics with it");
                assert!(!waited.timed_out(), "the other thread has not come to its end");
            } else {
                counts.fetch_add(1, Ordering::Relaxed);
            }
        })
        .sink("kept", sink);
    let handle = job.spawn().expect("it starts");
    wait_until("the other subtask", &handle, || passed.load(Ordering::Relaxed) == 5_000);
    let (is_open, opened) = &*gate;
    *is_open.lock().expect("nobody panics with it") = true;
    opened.notify_all();
    ended(handle, "blocking");
    check_all(collected.take(), &streams.all(), "blocking");
}
