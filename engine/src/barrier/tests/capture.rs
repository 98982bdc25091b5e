//! CH and OS: what of a channel becomes part of an unaligned checkpoint, by the cursor.

use super::rig::{Rig, timeout};
use crate::barrier::AbortReason;
use crate::barrier::capture::Capture;
use crate::channel::event::Position;
use crate::channel::options::CheckpointOptions;

fn unaligned(channels: usize) -> Rig {
    Rig::held(channels, CheckpointOptions::unaligned())
}

#[test]
fn ch_01_an_overtaking_barrier_is_served_before_older_data() {
    let mut rig = unaligned(1);
    rig.data(0);
    rig.data(0);
    rig.overtake(0, rig.barrier(1));
    rig.data(0);
    rig.data(0);
    rig.run("p");
    assert_eq!((rig.states[&1].clone(), rig.captured[&1][0].clone()), (vec![0], vec![0, 1]));
    assert_eq!(rig.delivered(0), "D0 D1 D2 D3");
}

#[test]
fn ch_02_a_capture_ends_at_the_barrier_and_starts_at_the_reader() {
    let mut capture = Capture::new(Position(0));
    capture.until(Position(2));
    assert_eq!(capture.extend(Position(4)), 0..2);
    let mut capture = Capture::new(Position(1));
    capture.until(Position(2));
    assert_eq!(capture.extend(Position(4)), 1..2);
}

#[test]
fn ch_03_positions_go_on_where_narrow_counters_wrap() {
    for edge in [i32::MAX as u64, u64::from(u32::MAX)] {
        let mut capture = Capture::new(Position(edge - 1));
        capture.until(Position(edge + 1));
        assert_eq!(capture.extend(Position(edge + 3)), edge - 1..edge + 1);
    }
}

#[test]
fn ch_04_without_a_barrier_all_that_is_loaded_is_captured() {
    let mut rig = unaligned(2);
    rig.run("B1 B1 B1 B1 u1,0");
    assert_eq!(rig.captured[&1][1], [0, 1, 2, 3]);
}

#[test]
fn ch_05_an_announcement_is_served_before_data_and_its_barrier_in_its_place() {
    let mut rig = Rig::held(2, timeout(10));
    rig.data(0);
    rig.data(0);
    rig.announce(0, rig.barrier(1));
    rig.in_band(0, rig.barrier(1));
    rig.data(0);
    rig.run("r0 r0 r0");
    assert_eq!(rig.delivered(0), "D0 D1 b1");
    assert_eq!(rig.blocked(), [0]);
}

#[test]
fn ch_06_an_announced_barrier_ends_the_capture_wherever_the_reader_is() {
    for (read, captured) in [("", vec![0, 1]), ("r0", vec![1]), ("r0 r0", vec![])] {
        let mut rig = Rig::held(2, timeout(10));
        rig.run("B0 B0 a1,0 b1,0 B0").run(read).run("+11");
        assert_eq!(rig.captured[&1][0], captured);
    }
}

#[test]
fn ch_07_a_promotion_needs_no_further_word_of_a_channel_whose_announcement_was_served() {
    let mut rig = Rig::held(2, timeout(10));
    rig.run("B0 B0 a1,0 b1,0 B1 a1,1 b1,1 B1");
    assert_eq!(
        (rig.triggered(), rig.has_priority(0)),
        (vec![], false),
        "both are known and silent"
    );
    let at = rig.machine.deadline().expect("the task is woken for the promotion");
    assert_eq!(at, rig.barrier(1).timestamp + std::time::Duration::from_millis(10));
    rig.run("+10");
    assert_eq!((rig.triggered(), rig.counts(1)), (vec![1], vec![2, 1]));
    assert_eq!((rig.completed.clone(), rig.machine.deadline()), (vec![1], None));
    rig.run("p");
    assert_eq!(rig.triggered(), [1], "the barriers that are read later say nothing new");
}

#[test]
fn ch_08_a_stopped_capture_takes_nothing_more() {
    let mut rig = unaligned(2);
    rig.run("u1,0 B1 u1,1 u2,1 B1 B0");
    assert_eq!((rig.completed.clone(), rig.counts(1)), (vec![1], vec![0, 1]));
    // Of 2 the older buffer is unread too, the newer one is behind its barrier.
    assert_eq!(rig.counts(2), [1, 1]);
}

#[test]
fn ch_09_a_barrier_of_an_older_checkpoint_does_not_end_a_capture() {
    let mut rig = unaligned(2);
    rig.run("u1,0 u2,0 u1,1 B1 u2,1 B1");
    assert_eq!(rig.aborts, [(1, AbortReason::Subsumed)]);
    assert_eq!((rig.completed.clone(), rig.counts(2)), (vec![2], vec![0, 1]));
}

#[test]
fn ch_10_a_late_barrier_is_ignored_however_its_checkpoint_ended() {
    for before in ["", "u1,0", "u1,0 A1", "A1"] {
        let mut rig = unaligned(2);
        rig.run(before).run("B1 u2,0 u1,1 B1 u2,1 B1");
        assert_eq!((rig.completed.clone(), rig.counts(2)), (vec![2], vec![0, 2]), "{before}");
    }
}

#[test]
fn ch_11_a_trigger_behind_a_newer_barrier_is_declined() {
    let mut rig = unaligned(2);
    rig.run("u2,0 T1");
    assert_eq!((rig.declined.clone(), rig.triggered()), (vec![1], vec![2]));
    assert!(rig.aborts.is_empty());
}

#[test]
fn ch_13_only_what_comes_before_the_barrier_is_captured() {
    let mut rig = unaligned(2);
    rig.run("u1,0 B1 u1,1 B1");
    assert_eq!(rig.captured[&1][1], [0]);
}

#[test]
fn ch_14_buffers_read_while_they_are_captured_are_captured_once() {
    let mut rig = unaligned(2);
    rig.run("B1 B1 u1,0 r1 B1 r1 r1 u1,1 p");
    assert_eq!((rig.captured[&1][1].clone(), rig.states[&1][1]), (vec![0, 1, 2], 0));
}

#[test]
fn os_02_a_barrier_read_in_time_leaves_nothing_to_capture() {
    for data in 0..3 {
        let mut rig = Rig::held(1, timeout(10));
        rig.run(&"B0 ".repeat(data)).run("a1,0 b1,0 p +11");
        assert_eq!((rig.completed.clone(), rig.captured.len()), (vec![1], 0));
        assert!(!rig.snapshots[0].options.is_unaligned());
    }
}

#[test]
fn os_03_a_timeout_captures_what_stands_before_the_barrier() {
    for data in 0..2 {
        let mut rig = Rig::held(1, timeout(10));
        rig.run(&"B0 ".repeat(data)).run("a1,0 b1,0 +11");
        assert_eq!((rig.completed.clone(), rig.counts(1)), (vec![1], vec![data]));
        rig.run("p");
        assert_eq!(rig.triggered(), [1]);
    }
}

#[test]
fn os_04_a_second_barrier_that_may_time_out_subsumes_the_first() {
    let mut rig = Rig::held(2, timeout(10));
    rig.run("a10,0 b10,0 a11,0 b11,0");
    assert_eq!(rig.aborts, [(10, AbortReason::Subsumed)]);
}

#[test]
fn os_05_a_timer_after_the_end_of_its_checkpoint_does_nothing() {
    for end in ["r0 b1,1 r1", "A1"] {
        let mut rig = Rig::held(2, timeout(10));
        rig.run("a1,0 b1,0").run(end).run("~11");
        let before = rig.triggered();
        rig.feed(crate::barrier::Input::Tick);
        assert!(rig.outputs.is_empty());
        assert_eq!(rig.triggered(), before);
    }
}

#[test]
fn os_06_a_stale_barrier_stays_in_its_place_and_is_skipped() {
    let mut rig = Rig::held(2, timeout(10));
    rig.run("B0 a9,0 b9,0 A9 B0 a10,0 b10,0 +11");
    assert_eq!(rig.captured[&10][0], [0, 1]);
    rig.run("a10,1 b10,1 p");
    assert_eq!((rig.triggered(), rig.completed.clone()), (vec![10], vec![10]));
    assert_eq!(rig.delivered(0), "D0 b9 D1 b10");
}

#[test]
fn os_07_a_blocked_channel_still_serves_what_overtakes_and_its_data_waits_for_the_end() {
    let mut rig = Rig::held(2, timeout(10));
    rig.run("a1,0 b1,0 B0 r0");
    assert_eq!(rig.blocked(), [0]);
    rig.run("r0");
    assert_eq!(rig.delivered(0), "b1", "nothing behind the barrier is read");
    // The other channel makes the checkpoint unaligned; it ends with that.
    rig.run("B1 u1,1 p");
    assert_eq!((rig.completed.clone(), rig.counts(1)), (vec![1], vec![0, 1]));
    assert_eq!((rig.blocked(), rig.delivered(0)), (vec![], "b1 D0".to_owned()));
    // Blocked again, and the notice of its end is served all the same.
    rig.run("a2,0 b2,0 B0 r0 Eq0");
    assert_eq!((rig.blocked(), rig.has_priority(0)), (vec![0], false));
    rig.run("u2,1");
    assert_eq!(rig.counts(2), [0, 0], "what waits behind the barrier is after the checkpoint");
    assert_eq!(rig.completed, [1, 2]);
}

#[test]
fn the_figures_of_a_checkpoint() {
    let mut rig = unaligned(2);
    rig.run("~3 B1 u1,0 r1 +4 B1 u1,1 r1");
    let report = rig.machine.report().expect("1 has run");
    assert_eq!(report.start_delay, std::time::Duration::from_millis(3));
    assert_eq!(report.alignment, std::time::Duration::from_millis(4));
    assert_eq!((report.bytes_processed, report.bytes_persisted), (1, 2));
    assert!(report.unaligned());
}
