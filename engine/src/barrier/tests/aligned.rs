//! AL: aligned checkpoints.

use std::time::Duration;

use super::rig::Rig;
use crate::barrier::{AbortReason, Config};
use crate::channel::options::CheckpointOptions;

#[test]
fn al_01_one_channel_never_blocks() {
    let mut rig = Rig::exact(1);
    rig.run("B0 b1,0 B0 b2,0 B0");
    assert_eq!(rig.triggered(), [1, 2]);
    assert!(rig.blocks.is_empty());
    assert_eq!(rig.machine.report().map(|r| r.alignment), Some(Duration::ZERO));
    assert_eq!(rig.states[&2], [2]);
}

#[test]
fn al_02_channels_block_until_the_last_barrier() {
    let mut rig = Rig::exact(3);
    assert_eq!(rig.run("B0 B2 B0 b1,1").blocked(), [1]);
    assert_eq!(rig.run("b1,2").blocked(), [1, 2]);
    rig.run("B0 B1 B2");
    assert_eq!(rig.states.len(), 0);
    assert!(rig.run("b1,0").blocked().is_empty());
    assert_eq!(rig.triggered(), [1]);
    assert_eq!(rig.states[&1], [3, 0, 1]);
}

#[test]
fn al_03_a_newer_barrier_subsumes_and_an_ended_channel_counts() {
    let script = ["b1,1 b1,2 b1,0 b2,1 B2 b2,0", "b3,2", "b3,0", "b4,1", "E0 B2 E2 B1 E1"];
    for (after_finish, triggered, aborted) in
        [(false, vec![1], vec![2, 3, 4]), (true, vec![1, 4], vec![2, 3])]
    {
        let mut rig = Rig::new(Config { after_finish, ..Config::exactly_once(3) });
        assert_eq!(rig.run(script[0]).blocked(), [0, 1]);
        assert_eq!(rig.run(script[1]).blocked(), [2]);
        assert_eq!(rig.run(script[2]).blocked(), [0, 2]);
        assert_eq!(rig.run(script[3]).blocked(), [1]);
        assert!(rig.run(script[4]).blocked().is_empty());
        assert_eq!(rig.triggered(), triggered);
        assert_eq!(rig.aborted(), aborted);
        assert_eq!(rig.aborts[0].1, AbortReason::Subsumed);
    }
}

#[test]
fn al_04_cancellations_on_one_channel() {
    let mut rig = Rig::exact(1);
    rig.run("B0 b1,0 B0 b2,0 B0 x4,0");
    assert_eq!(rig.machine.latest().map(|n| n.0), Some(4));
    rig.run("B0 b5,0");
    assert_eq!(rig.machine.latest().map(|n| n.0), Some(5));
    rig.run("B0 x6,0 B0");
    assert_eq!(rig.machine.latest().map(|n| n.0), Some(6));
    assert_eq!(rig.triggered(), [1, 2, 5]);
    let reason = AbortReason::CancellationBarrier;
    assert_eq!(rig.aborts, [(4, reason), (6, reason)]);
}

#[test]
fn al_05_a_barrier_of_a_cancelled_checkpoint_is_ignored_and_its_channel_resumed() {
    let mut rig = Rig::exact(3);
    rig.run("b1,1 x1,0");
    assert_eq!(rig.aborted(), [1]);
    assert!(rig.blocked().is_empty());
    rig.resumes.clear();
    assert_eq!(rig.run("b2,1 b1,2").blocked(), [1]);
    assert_eq!(rig.resumes, [2]);
    rig.run("b2,0 b2,2");
    assert_eq!(rig.triggered(), [2]);
}

#[test]
fn al_06_a_late_cancellation_changes_nothing() {
    let mut rig = Rig::exact(3);
    rig.run("b3,1 b3,0 b5,2 x3,0 b5,0 b5,1");
    assert_eq!(rig.aborts, [(3, AbortReason::Subsumed)]);
    assert_eq!(rig.triggered(), [5]);
}

#[test]
fn al_07_a_newer_cancellation_aborts_once() {
    let mut rig = Rig::exact(2);
    rig.run("b1,0 x3,1 x2,0 x3,0 B0");
    assert_eq!(rig.aborted(), [3]);
    assert!(rig.blocked().is_empty());
    assert_eq!(rig.delivered(0), "b1 D0");
}

#[test]
fn al_08_ended_channels_are_not_awaited() {
    let mut rig = Rig::exact(4);
    assert!(rig.run("E2 E1 b2,3 b2,0").blocked().is_empty());
    assert!(rig.run("b3,0 b3,3").blocked().is_empty());
    assert!(rig.run("E0 b4,3").blocked().is_empty());
    assert_eq!(rig.triggered(), [2, 3, 4]);
}

#[test]
fn al_09_end_of_partition_is_the_last_barrier() {
    let mut rig = Rig::exact(3);
    rig.run("b1,0 b1,1 E2");
    assert_eq!(rig.triggered(), [1]);
    assert!(rig.aborts.is_empty() && !rig.machine.is_pending());
}

#[test]
fn al_10_a_counted_channel_that_ends_is_counted_once() {
    let mut rig = Rig::exact(3);
    rig.run("b2,0 b2,1");
    // The channel is blocked behind its barrier, so its end is told to the machine directly.
    rig.feed(crate::barrier::Input::EndOfPartition { channel: super::rig::index(1) });
    assert!(rig.triggered().is_empty());
    rig.run("b2,2");
    assert_eq!(rig.triggered(), [2]);
    assert!(!rig.resumes.contains(&1), "nobody is left to be resumed");
}

#[test]
fn al_11_checkpoints_go_on_while_channels_end() {
    let mut rig = Rig::exact(3);
    rig.run("E2 b6,0 b6,1 E1 b7,0");
    assert_eq!(rig.triggered(), [6, 7]);
}

#[test]
fn al_12_with_the_feature_off_an_ended_channel_fails_the_checkpoint() {
    let mut rig = Rig::new(Config { after_finish: false, ..Config::exactly_once(2) });
    rig.run("b1,0 E0");
    rig.feed(crate::barrier::Input::EndOfPartition { channel: super::rig::index(0) });
    assert_eq!(rig.aborts, [(1, AbortReason::InputEndOfStream)]);
    assert_eq!(rig.machine.open_channels(), 1);
}

#[test]
fn al_13_an_old_barrier_resumes_its_channel() {
    let mut rig = Rig::exact(2);
    rig.run("b10,0 b5,1");
    assert_eq!(rig.machine.latest().map(|n| n.0), Some(10));
    assert_eq!((rig.resumes.clone(), rig.blocked()), (vec![1], vec![0]));
}

#[test]
fn al_14_many_channels_and_alternating_kinds() {
    let mut rig = Rig::exact(123);
    for n in 0..123 {
        let savepoint = n % 2 == 0;
        for channel in 0..123 {
            rig.options = match (savepoint, n % 4) {
                (true, _) => CheckpointOptions::savepoint(),
                (false, 1) => CheckpointOptions::aligned(),
                (false, _) => CheckpointOptions::unaligned(),
            };
            let verb = if rig.options.is_unaligned() { 'u' } else { 'b' };
            rig.run(&format!("B{channel} {verb}{n},{channel}"));
        }
    }
    assert_eq!(rig.triggered(), (0..123).collect::<Vec<u64>>());
    assert_eq!(rig.completed, rig.triggered());
    assert!(rig.aborts.is_empty() && rig.blocked().is_empty());
}

#[test]
fn al_16_a_late_cancellation_does_not_reset_the_alignment() {
    let mut rig = Rig::exact(2);
    rig.run("b1,0 +1000 b2,1 +1000 x1,1 +1000");
    rig.feed(crate::barrier::Input::Barrier {
        channel: super::rig::index(0),
        barrier: rig.barrier(2),
    });
    assert_eq!(rig.triggered(), [2]);
    let report = rig.machine.report().expect("2 has run");
    assert_eq!(report.alignment, Duration::from_secs(2));
    assert_eq!(report.start_delay, Duration::from_secs(1));
}
