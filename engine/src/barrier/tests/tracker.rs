//! TR: the at-least-once tracker.

use std::time::Duration;

use super::rig::Rig;
use crate::barrier::Config;

fn tracker(channels: usize) -> Rig {
    Rig::new(Config::at_least_once(channels))
}

#[test]
fn tr_01_the_highest_complete_checkpoint_is_taken() {
    let mut rig = tracker(3);
    rig.run("b1,0 b2,0 b2,1 b3,0 b4,0 b4,1 b5,1 E2");
    assert_eq!(rig.triggered(), [4]);
    assert!(rig.machine.is_pending(), "5 is still awaited");
    assert_eq!(rig.machine.open_channels(), 2);
    assert!(rig.aborts.is_empty() && rig.blocks.is_empty());
    rig.run("b5,0");
    assert_eq!(rig.triggered(), [4, 5]);
}

#[test]
fn tr_02_a_counted_channel_that_ends_is_counted_once() {
    let mut rig = tracker(3);
    rig.run("b2,0 b2,1 E1");
    assert!(rig.triggered().is_empty());
    rig.run("b2,2");
    assert_eq!(rig.triggered(), [2]);
}

#[test]
fn tr_03_checkpoints_go_on_while_channels_end() {
    let mut rig = tracker(3);
    rig.run("E2 b5,0 b6,0 b6,1 E1 b7,0");
    assert_eq!(rig.triggered(), [6, 7]);
}

#[test]
fn tr_04_the_last_open_channel_does_not_trigger_twice() {
    let mut rig = tracker(2);
    rig.run("b1,0 E0 b1,1");
    assert_eq!(rig.triggered(), [1]);
    assert!(!rig.machine.is_pending());
}

#[test]
fn tr_05_a_cancelled_checkpoint_is_aborted_once() {
    let mut rig = tracker(3);
    rig.run("x4,0 b4,1 b5,1 E2");
    assert_eq!((rig.aborted(), rig.triggered()), (vec![4], vec![]));
    assert!(rig.machine.is_pending());
    assert_eq!(rig.machine.open_channels(), 2);
}

#[test]
fn tr_06_a_cancellation_aborts_older_ones_too() {
    let mut rig = tracker(3);
    rig.run("E2 b5,0 b6,0 x6,1 E1 x7,0");
    assert_eq!((rig.aborted(), rig.triggered()), (vec![5, 6, 7], vec![]));
}

#[test]
fn tr_07_a_cancellation_after_an_end() {
    let mut rig = tracker(2);
    rig.run("b1,0 E0 x1,1");
    assert_eq!(rig.aborted(), [1]);
    assert!(!rig.machine.is_pending());
}

#[test]
fn tr_08_alignments_overlap() {
    let mut rig = tracker(2);
    rig.run("b1,1 +1000 b2,1 +1000 b1,0 +1000");
    assert_eq!(rig.triggered(), [1]);
    rig.run("b2,0");
    assert_eq!(rig.triggered(), [1, 2]);
    assert_eq!(rig.machine.report().map(|r| r.alignment), Some(Duration::from_secs(2)));
}

#[test]
fn the_oldest_is_dropped_when_too_many_are_pending() {
    let mut rig = tracker(2);
    for n in 1..=60 {
        rig.run(&format!("b{n},0"));
    }
    for n in 1..=10 {
        rig.run(&format!("b{n},1"));
        assert!(rig.triggered().is_empty());
    }
    rig.run("b11,1");
    assert_eq!(rig.triggered(), [11]);
}

#[test]
fn a_trigger_after_all_channels_ended_is_taken_at_once_and_once() {
    let mut rig = tracker(2);
    rig.run("E0 E1 T2 T3 T3 T2 T1");
    assert_eq!((rig.triggered(), rig.declined.clone()), (vec![2, 3], vec![1]));
}

#[test]
fn an_aborted_checkpoint_is_not_taken() {
    let mut rig = tracker(2);
    rig.run("b1,0 A1 b1,1");
    assert_eq!((rig.aborted(), rig.triggered()), (vec![1], vec![]));
    assert!(!rig.machine.is_pending());
}

/// The task took nothing up to the one that it had heard was given up: the job waited for the older ones for ever.
#[test]
fn one_given_up_is_told_behind_older_ones_that_are_followed() {
    let mut rig = tracker(2);
    rig.run("b1,0 b2,0 b3,0 A3 A1");
    assert_eq!((rig.aborted(), rig.triggered()), (vec![1], vec![]));
    rig.run("b1,1 b2,1");
    assert_eq!((rig.aborted(), rig.triggered()), (vec![1, 3], vec![2]));
    rig.run("b3,1 b4,0 b4,1");
    assert_eq!((rig.aborted(), rig.triggered()), (vec![1, 3], vec![2, 4]));
}

#[test]
fn one_given_up_is_told_when_a_cancellation_ends_what_was_older() {
    let mut rig = tracker(2);
    rig.run("b1,0 b2,0 b3,0 A3 x2,1");
    assert_eq!((rig.aborted(), rig.triggered()), (vec![1, 2, 3], vec![]));
}
