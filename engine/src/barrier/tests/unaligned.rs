//! UN: unaligned checkpoints.

use super::rig::{Rig, index};
use crate::barrier::{AbortReason, Input, Output};
use crate::channel::event::Position;
use crate::channel::options::CheckpointOptions;

fn unaligned(channels: usize) -> Rig {
    let mut rig = Rig::exact(channels);
    rig.options = CheckpointOptions::unaligned();
    rig
}

#[test]
fn un_01_the_first_barrier_takes_the_snapshot() {
    let mut rig = unaligned(3);
    rig.run("u1,1");
    assert_eq!(rig.triggered(), [1]);
    rig.run("B0 u1,0 B1");
    assert!(rig.completed.is_empty());
    rig.run("E2");
    assert_eq!(rig.completed, [1]);
    rig.run("E0 E1");
    assert_eq!(rig.counts(1), [1, 0, 0]);
    assert!(rig.aborts.is_empty());
}

#[test]
fn un_02_an_ended_channel_ends_its_capture() {
    let mut rig = unaligned(3);
    rig.run("E0 u3,1 B1 B2 E1 u3,2");
    assert_eq!((rig.triggered(), rig.counts(3)), (vec![3], vec![0, 0, 1]));
    rig.run("B2 u4,2 E2");
    assert_eq!((rig.triggered(), rig.counts(4)), (vec![3, 4], vec![0, 0, 0]));
}

#[test]
fn un_03_only_what_is_before_the_barrier_is_captured() {
    let mut rig = unaligned(3);
    rig.run("u1,0 u1,1 u1,2 B0 B0 B2 u2,2 u2,0 B0 B2 B1 E2 E1 B0 E0");
    assert_eq!(rig.triggered(), [1, 2]);
    assert_eq!(rig.counts(2), [0, 1, 0]);
}

#[test]
fn un_04_captures_of_following_checkpoints_are_apart() {
    let mut rig = unaligned(4);
    rig.run("E2 E1 B0 B0 B3 u2,3 u2,0");
    assert_eq!(rig.counts(2), [0, 0, 0, 0]);
    rig.run("B3 B0 u3,3 B3 B0 u3,0");
    assert_eq!(rig.counts(3), [1, 0, 0, 0]);
    rig.run("u4,0 u4,3 B0 B0 B3 E0 B3 u5,3 B3 E3");
    assert_eq!(rig.counts(4), [0, 0, 0, 0]);
    assert_eq!(rig.counts(5), [0, 0, 0, 0]);
    assert_eq!(rig.triggered(), [2, 3, 4, 5]);
}

#[test]
fn un_05_a_cancellation_ends_it_and_raises_the_latest() {
    for cancelled in [1, 2] {
        let mut rig = unaligned(2);
        rig.run(&format!("u1,0 x{cancelled},1"));
        assert!(!rig.machine.is_pending());
        assert_eq!(rig.aborts, [(cancelled, AbortReason::CancellationBarrier)]);
        assert_eq!(rig.machine.latest().map(|n| n.0), Some(cancelled));
        rig.run(&format!("x{},0", cancelled + 1));
        assert_eq!(rig.machine.latest().map(|n| n.0), Some(cancelled + 1));
        assert_eq!(rig.aborted(), [cancelled, cancelled + 1]);
    }
}

#[test]
fn un_06_a_cancelled_checkpoint_never_starts() {
    let mut rig = unaligned(1);
    rig.run("x1,0 u1,0");
    assert!(rig.triggered().is_empty());
    assert_eq!(rig.aborted(), [1]);
}

#[test]
fn un_07_a_cancellation_discards_what_was_captured() {
    let mut rig = unaligned(3);
    rig.run("u2,0 u2,2 B0 B2 B1");
    assert_eq!(rig.counts(2), [0, 1, 0]);
    rig.run("x2,1");
    assert_eq!(rig.aborted(), [2]);
    let at = |wanted: fn(&Output) -> bool| rig.outputs.iter().position(wanted);
    let drop = at(|o| matches!(o, Output::CaptureAbort { .. }));
    let abort = at(|o| matches!(o, Output::Abort { .. }));
    assert!(drop.is_some() && drop < abort);
    assert!(!rig.captured.contains_key(&2));
}

#[test]
fn un_08_barriers_of_a_cancelled_checkpoint_start_nothing() {
    let mut rig = unaligned(3);
    rig.run("x4,1 u4,2 B0 u4,0");
    assert!(rig.triggered().is_empty());
    assert_eq!(rig.aborted(), [4]);
}

#[test]
fn un_09_a_repeated_cancellation_aborts_once() {
    let mut rig = unaligned(3);
    rig.run("x6,1 x6,2 u6,0 B0 E0 E1 E2");
    assert!(rig.triggered().is_empty());
    assert_eq!(rig.aborted(), [6]);
}

#[test]
fn un_10_obsolete_barriers_do_not_end_a_capture() {
    for drained in [false, true] {
        let mut rig = unaligned(3);
        rig.reads = false;
        // Channel 0 holds a buffer before barrier 2 and one after; channel 1 two around an obsolete barrier 1.
        rig.data(0);
        rig.overtake(0, rig.barrier(2));
        rig.data(0);
        rig.data(1);
        rig.overtake(1, rig.barrier(1));
        rig.data(1);
        rig.data(2);
        rig.serve();
        assert_eq!(rig.triggered(), [2]);
        assert_eq!(rig.counts(2), [1, 2, 1]);
        if drained {
            rig.read_all();
        }
        rig.run("B0 B1 B2");
        assert_eq!(rig.counts(2), [1, 3, 2]);
        rig.run("u2,1 B1 u1,2 B2");
        assert_eq!(rig.counts(2), [1, 3, 3]);
        rig.run("u2,2 B2");
        assert_eq!(rig.counts(2), [1, 3, 3]);
        assert_eq!(rig.completed, [2]);
    }
}

#[test]
fn un_11_a_closed_machine_answers_nothing() {
    let mut rig = unaligned(2);
    rig.run("u1,0 B1");
    rig.feed(Input::Close);
    for input in [
        Input::PriorityBarrier {
            channel: index(1),
            barrier: rig.barrier(1),
            position: Position(1),
        },
        Input::EndOfPartition { channel: index(1) },
        Input::Tick,
        Input::Trigger { barrier: rig.barrier(2) },
    ] {
        rig.feed(input);
        assert!(rig.outputs.is_empty(), "{input:?}");
    }
    assert_eq!(rig.machine.deadline(), None);
}

#[test]
fn un_12_an_unaligned_barrier_displaces_a_savepoint_and_captures_its_blocked_channel() {
    let mut rig = unaligned(2);
    rig.options = CheckpointOptions::savepoint();
    rig.run("b0,0 B0");
    assert_eq!(rig.blocked(), [0]);
    rig.options = CheckpointOptions::unaligned();
    rig.reads = false;
    rig.run("u1,1");
    assert_eq!(rig.aborts, [(0, AbortReason::Subsumed)]);
    assert!(rig.blocked().is_empty());
    assert_eq!(rig.captured[&1][0], [0]);
}
