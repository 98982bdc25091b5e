//! AT: checkpoints that start aligned and become unaligned when their timeout passes.

use std::time::Duration;

use super::rig::{Rig, index, timeout};
use crate::barrier::{Input, Output};
use crate::channel::event::Barrier;
use crate::channel::options::CheckpointOptions;

fn held(channels: usize) -> Rig {
    Rig::held(channels, timeout(10))
}

fn unaligned(rig: &Rig) -> Vec<bool> {
    rig.snapshots.iter().map(|barrier| barrier.options.is_unaligned()).collect()
}

#[test]
fn at_01_announced_barriers_are_promoted_when_the_timer_fires() {
    let mut rig = held(2);
    rig.run("B0 B0 a1,0 b1,0 +20");
    assert_eq!(unaligned(&rig), [true]);
    assert_eq!(rig.captured[&1][0], [0, 1]);
    rig.run("B1 a1,1 b1,1");
    assert_eq!(rig.captured[&1][1], [0]);
    assert_eq!(rig.completed, [1]);
    assert_eq!(rig.states[&1], [0, 0]);
    rig.run("p");
    assert_eq!((rig.delivered(0), rig.delivered(1)), ("D0 D1 b1".into(), "D0 b1".into()));
    assert_eq!(rig.triggered(), [1]);
    assert!(rig.blocked().is_empty());
}

#[test]
fn at_02_a_first_barrier_before_the_timeout_changes_nothing_of_it() {
    let mut rig = held(3);
    rig.run("b1,2 r2 B0 B0 a1,0 b1,0 +20 B1 a1,1 b1,1 p");
    assert_eq!(unaligned(&rig), [true]);
    assert_eq!(rig.counts(1), [2, 1, 0]);
    assert_eq!((rig.completed.clone(), rig.blocked()), (vec![1], vec![]));
}

#[test]
fn at_03_the_first_barrier_after_the_timeout_of_announced_ones_triggers() {
    let mut rig = held(2);
    rig.run("B0 B1 a1,0 a1,1 ~40");
    assert!(rig.triggered().is_empty());
    rig.run("b1,0 b1,1 r0 r0");
    assert_eq!(unaligned(&rig), [true]);
    // Channel 0 was read up to its barrier, channel 1 is cut at the announced place.
    assert_eq!(rig.states[&1], [1, 0]);
    assert_eq!(rig.counts(1), [0, 1]);
    assert_eq!(rig.completed, [1]);
}

#[test]
fn at_04_a_local_barrier_that_is_late_switches_at_its_announcement() {
    let mut rig = held(2);
    rig.run("B0 ~11 a1,0 b1,0");
    assert_eq!(unaligned(&rig), [true]);
    assert_eq!(rig.counts(1), [1, 0]);
}

#[test]
fn at_05_a_late_announcement_switches_an_aligning_checkpoint() {
    let mut rig = held(3);
    rig.run("b1,0 b1,1 b1,2 p");
    assert_eq!(unaligned(&rig), [false]);
    rig.run("a2,0 b2,0 r0 ~11");
    assert_eq!(rig.triggered(), [1]);
    rig.run("a2,1 b2,1");
    assert_eq!(unaligned(&rig), [false, true]);
}

#[test]
fn at_06_a_passive_timeout_and_a_late_timer_make_one_snapshot() {
    for first in ["b1,0 r0 ~11 a1,1 b1,1", "a1,0 b1,0 ~11 a1,1 b1,1", "a1,0 b1,0 r0 ~11 a1,1 b1,1"]
    {
        let mut rig = held(3);
        rig.run("B1");
        rig.run(first);
        assert_eq!(unaligned(&rig), [true], "{first}");
        rig.feed(Input::Tick);
        rig.run("a1,2 b1,2 p");
        assert_eq!((rig.triggered(), rig.completed.clone()), (vec![1], vec![1]));
        assert_eq!(rig.counts(1), [0, 1, 0]);
    }
}

#[test]
fn at_07_the_timer_needs_no_further_event() {
    let mut rig = held(2);
    rig.run("a1,0 b1,0 r0");
    assert_eq!(rig.machine.deadline(), Some(rig.now + Duration::from_millis(10)));
    rig.run("+11");
    assert_eq!(unaligned(&rig), [true]);
    assert_eq!(rig.machine.deadline(), None);
}

#[test]
fn at_08_a_checkpoint_completed_in_time_stays_aligned() {
    let mut rig = held(2);
    rig.run("a1,0 b1,0 r0 a1,1 b1,1 r1 +11");
    assert_eq!(unaligned(&rig), [false]);
    assert!(rig.captured.is_empty());
    rig.feed(Input::Tick);
    assert!(rig.outputs.is_empty(), "a late timer does nothing");
}

#[test]
fn at_09_a_cancelled_checkpoint_does_not_time_out() {
    let mut rig = held(2);
    rig.run("b1,0 r0 x1,1 r1 +11");
    rig.feed(Input::Tick);
    assert!(rig.triggered().is_empty());
    assert_eq!(rig.aborted(), [1]);
}

#[test]
fn at_10_a_timer_after_close_does_nothing() {
    let mut rig = held(2);
    rig.run("b1,0 r0");
    rig.feed(Input::Close);
    rig.run("~11");
    rig.feed(Input::Tick);
    assert!(rig.outputs.is_empty() && rig.triggered().is_empty());
}

#[test]
fn at_11_an_unaligned_barrier_from_upstream_switches() {
    let mut rig = held(2);
    rig.run("B0 B1 a1,0 b1,0 u1,1");
    assert_eq!(unaligned(&rig), [true]);
    assert_eq!(rig.counts(1), [1, 1]);
    assert_eq!(rig.completed, [1]);
}

#[test]
fn at_12_channels_blocked_before_the_switch_stay_blocked_until_the_end() {
    let mut rig = held(2);
    rig.run("a1,0 b1,0 r0 B0 +11");
    assert_eq!(rig.blocked(), [0]);
    assert_eq!(rig.counts(1), [0, 0]);
    rig.run("B1 a1,1 b1,1 B1 p");
    assert_eq!(unaligned(&rig), [true]);
    assert_eq!(rig.counts(1), [0, 1]);
    assert!(rig.blocked().is_empty());
}

#[test]
fn at_13_what_the_overtaking_barrier_overtook_is_captured() {
    let mut rig = held(3);
    rig.run("b1,0 r0 B1 B1 u1,1 B1");
    assert_eq!(unaligned(&rig), [true]);
    assert_eq!(rig.captured[&1][1], [0, 1]);
}

#[test]
fn at_14_an_end_of_partition_performs_the_switch() {
    let mut rig = held(3);
    rig.run("b1,0 r0 ~11 B1 E1 B2 E2 r1");
    assert!(rig.triggered().is_empty());
    rig.run("r1");
    assert_eq!(unaligned(&rig), [true]);
    assert_eq!(rig.counts(1), [0, 0, 1]);
    rig.run("p");
    assert_eq!((rig.completed.clone(), rig.triggered()), (vec![1], vec![1]));
}

#[test]
fn at_15_an_end_of_partition_starts_the_alignment_clock() {
    let mut rig = held(3);
    rig.run("a1,0");
    assert!(!rig.machine.is_aligning());
    rig.run("E1 r1 +2");
    assert!(rig.machine.is_aligning());
    rig.run("b1,0 r0 a1,2 b1,2 r2");
    assert_eq!(rig.triggered(), [1]);
    assert_eq!(rig.machine.report().map(|r| r.alignment), Some(Duration::from_millis(2)));
}

#[test]
fn at_16_the_next_checkpoint_starts_aligned_again() {
    let mut rig = held(1);
    rig.run("B0 a1,0 b1,0 +11 p");
    let barrier = Barrier { timestamp: rig.now, ..rig.barrier(2) };
    rig.announce(0, barrier);
    rig.in_band(0, barrier);
    rig.run("p");
    let options: Vec<CheckpointOptions> = rig.snapshots.iter().map(|b| b.options).collect();
    assert_eq!(options, [CheckpointOptions::unaligned(), timeout(10)]);
    assert_eq!(rig.completed, [1, 2]);
}

#[test]
fn at_17_a_timeout_of_never_never_comes() {
    let mut rig = held(2);
    rig.options = CheckpointOptions::aligned_with_timeout(Duration::MAX);
    rig.run("a1,0 b1,0 r0");
    assert_eq!(rig.machine.deadline(), None);
    rig.run("+1000000000 a1,1 b1,1 r1");
    assert_eq!(unaligned(&rig), [false]);
}

#[test]
fn at_18_nothing_is_captured_behind_a_barrier_that_was_read() {
    for barrier in ["a1,0 b1,0 r0", "b1,0 r0"] {
        let mut rig = held(2);
        rig.run(barrier).run("+11 B0 B0 p");
        assert_eq!((rig.triggered(), rig.counts(1)), (vec![1], vec![0, 0]));
    }
}

#[test]
fn at_19_a_savepoint_stays_aligned() {
    let mut rig = held(2);
    rig.options = CheckpointOptions::savepoint();
    rig.run("b1,0 r0 B0 +1000 b1,1 r1");
    assert_eq!(unaligned(&rig), [false]);
    assert_eq!((rig.blocks.clone(), rig.resumes.clone()), (vec![0], vec![0]));
    assert!(rig.captured.is_empty());
}

#[test]
fn an_announced_barrier_still_on_its_way_is_awaited_by_the_capture() {
    let mut rig = held(2);
    rig.run("b1,0 r0");
    // A remote channel: the announcement came ahead of two of three buffers.
    rig.data(1);
    let position = crate::channel::event::Position(3);
    rig.feed(Input::Announcement { channel: index(1), barrier: rig.barrier(1), position });
    rig.run("+11");
    assert_eq!((rig.triggered(), rig.counts(1)), (vec![1], vec![0, 1]));
    rig.run("B1");
    assert!(rig.completed.is_empty());
    rig.run("B1 b1,1 B1");
    assert_eq!((rig.counts(1), rig.completed.clone()), (vec![0, 3], vec![1]));
    rig.run("p");
    assert_eq!(rig.delivered(1), "D0 D1 D2 b1 D3");
}

#[test]
fn an_announcement_does_not_subsume_a_savepoint() {
    let mut rig = held(2);
    rig.options = CheckpointOptions::savepoint();
    rig.run("b1,0 r0");
    rig.options = timeout(10);
    rig.run("a2,0 b2,0");
    assert!(rig.aborts.is_empty());
    rig.options = CheckpointOptions::savepoint();
    rig.run("b1,1");
    rig.options = timeout(10);
    rig.run("a2,1 b2,1 p");
    assert_eq!(rig.triggered(), [1, 2]);
    assert_eq!(unaligned(&rig), [false, false]);
}

#[test]
fn a_savepoint_gives_way_when_the_announced_checkpoint_times_out() {
    let mut rig = held(2);
    rig.options = CheckpointOptions::savepoint();
    rig.run("b1,0 r0");
    rig.options = timeout(10);
    rig.run("B0 a2,0 b2,0 +11");
    assert_eq!(rig.aborted(), [1]);
    assert_eq!((rig.triggered(), rig.counts(2)), (vec![2], vec![1, 0]));
    assert!(rig.blocked().is_empty());
}

#[test]
fn a_savepoint_gives_way_to_an_announcement_that_is_late_already() {
    let mut rig = held(2);
    rig.options = CheckpointOptions::savepoint();
    rig.run("b1,0 r0 ~11");
    rig.options = timeout(10);
    rig.run("a2,0");
    assert_eq!((rig.aborted(), rig.triggered()), (vec![1], vec![2]));
}

#[test]
fn the_timeout_counts_from_the_trigger() {
    let mut rig = held(2);
    rig.run("~8 a1,0 b1,0 r0");
    assert_eq!(rig.machine.deadline(), Some(rig.barrier(1).timestamp + Duration::from_millis(10)));
    rig.run("+2");
    assert!(rig.outputs.iter().any(|o| matches!(o, Output::CaptureStart { .. })));
}
