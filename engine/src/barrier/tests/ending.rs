//! EP: barriers right before EndOfPartition. Each runs with EndOfData in the channel (drain-hold) and without.

use super::rig::{Rig, timeout};
use crate::barrier::{AbortReason, Config, Input};
use crate::channel::event::Position;
use crate::channel::options::CheckpointOptions;
use crate::id::CheckpointId;

/// Two channels; channel 1 holds two buffers and EndOfPartition, unread.
fn two(options: CheckpointOptions) -> Rig {
    let mut rig = Rig::held(2, options);
    rig.run("B1 B1 Eq1");
    rig
}

fn inserted(rig: &Rig, channel: usize) -> Vec<u64> {
    let barriers = rig.machine.inserted(super::rig::index(channel));
    barriers.iter().map(|barrier| barrier.checkpoint.0).collect()
}

#[test]
fn ep_01_an_aligned_barrier_is_delivered_right_before_the_end() {
    let mut rig = two(CheckpointOptions::aligned());
    rig.run("b5,0 B0 r0");
    assert_eq!((rig.blocked(), inserted(&rig, 1)), (vec![0], vec![5]));
    rig.run("r1 r1");
    assert!(rig.triggered().is_empty());
    rig.run("r1");
    assert_eq!(rig.delivered(1), "D0 D1 b5 EOP");
    assert_eq!((rig.triggered(), rig.states[&5].clone()), (vec![5], vec![0, 2]));
    assert_eq!(rig.resumes, [0], "nobody is left on channel 1 to be resumed");
}

#[test]
fn ep_02_unaligned_cut_at_eop() {
    let mut rig = two(CheckpointOptions::unaligned());
    rig.run("u5,0");
    assert_eq!((rig.triggered(), rig.completed.clone()), (vec![5], vec![5]));
    assert_eq!(rig.captured[&5][1], [0, 1]);
    rig.run("p");
    assert_eq!(rig.delivered(1), "D0 D1 b5 EOP");
    assert_eq!(rig.triggered(), [5]);
}

#[test]
fn ep_03_a_timeout_cuts_at_the_end() {
    let mut rig = two(timeout(10));
    rig.run("a5,0 b5,0 r0 r1 +11");
    assert_eq!((rig.triggered(), rig.completed.clone()), (vec![5], vec![5]));
    assert!(rig.snapshots[0].options.is_unaligned());
    assert_eq!((rig.captured[&5][1].clone(), rig.states[&5].clone()), (vec![1], vec![0, 1]));
    rig.run("p");
    assert_eq!(rig.triggered(), [5]);
}

#[test]
fn ep_04_a_channel_that_ends_during_the_alignment() {
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("b5,0 r0 B1 Eq1");
    assert_eq!(inserted(&rig, 1), [5]);
    rig.run("p");
    assert_eq!(rig.delivered(1), "D0 b5 EOP");
    assert_eq!((rig.triggered(), rig.states[&5].clone()), (vec![5], vec![0, 1]));
}

#[test]
fn ep_05_no_barrier_is_inserted_that_was_sent() {
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("b5,0 b5,1 p Eq1");
    assert!(inserted(&rig, 1).is_empty());
    rig.run("b6,0 r0");
    assert_eq!(inserted(&rig, 1), [6]);
    rig.run("p");
    assert_eq!(rig.triggered(), [5, 6]);
}

#[test]
fn ep_06_the_notice_is_served_on_a_blocked_channel() {
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("b5,1 r1 Eq1");
    assert_eq!((rig.blocked(), inserted(&rig, 1)), (vec![1], vec![]));
    rig.run("b5,0 p");
    assert_eq!(rig.triggered(), [5]);
    assert_eq!(rig.machine.open_channels(), 1);
}

#[test]
fn ep_07_an_aborted_inserted_barrier_is_read_as_obsolete() {
    let mut rig = two(CheckpointOptions::aligned());
    rig.run("b5,0 r0 A5");
    assert_eq!(rig.aborts, [(5, AbortReason::Notice)]);
    rig.resumes.clear();
    rig.run("p");
    assert_eq!(rig.delivered(1), "D0 D1 b5 EOP");
    assert!(rig.triggered().is_empty() && rig.resumes.is_empty());
}

#[test]
fn ep_08_a_subsumed_inserted_barrier_is_followed_by_the_newer() {
    let mut rig = Rig::held(3, CheckpointOptions::aligned());
    rig.run("B1 Eq1 b5,0 r0 b6,2 r2");
    assert_eq!(rig.aborts, [(5, AbortReason::Subsumed)]);
    assert_eq!(inserted(&rig, 1), [5, 6]);
    rig.run("r1 r1");
    assert_eq!(rig.delivered(1), "D0 b5 b6 EOP");
    rig.run("b6,0 r0");
    assert_eq!(rig.triggered(), [6]);
}

#[test]
fn ep_09_an_aligned_trigger_waits_for_the_last_inserted_barrier() {
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("B0 Eq0 B1 B1 Eq1 T7 r0 r0 r1 r1");
    assert!(rig.triggered().is_empty());
    rig.run("r1");
    assert_eq!((rig.triggered(), rig.states[&7].clone()), (vec![7], vec![1, 2]));
}

#[test]
fn ep_10_an_unaligned_trigger_cuts_every_channel_at_its_end() {
    let mut rig = Rig::held(2, CheckpointOptions::unaligned());
    rig.run("B0 Eq0 B1 B1 Eq1 T7");
    assert_eq!((rig.triggered(), rig.completed.clone()), (vec![7], vec![7]));
    assert_eq!(rig.captured[&7], [vec![0], vec![0, 1]]);
}

#[test]
fn ep_11_a_trigger_after_all_data_ended_is_taken_at_once() {
    for options in [CheckpointOptions::aligned(), CheckpointOptions::unaligned(), timeout(10)] {
        let mut rig = Rig::held(2, options);
        rig.run("B0 D0 D1 p T7");
        assert_eq!((rig.triggered(), rig.completed.clone()), (vec![7], vec![7]));
        assert!(rig.resumes.is_empty() && rig.blocks.is_empty() && rig.captured.is_empty());
        rig.run("Eq0 Eq1 p");
        assert_eq!((rig.triggered(), rig.aborted()), (vec![7], vec![]));
    }
}

#[test]
fn ep_12_a_trigger_waits_for_an_end_in_flight() {
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("Eq0 p T7");
    assert!(rig.triggered().is_empty());
    rig.run("B1 Eq1");
    assert_eq!(inserted(&rig, 1), [7]);
    rig.run("p");
    assert_eq!((rig.triggered(), rig.states[&7].clone()), (vec![7], vec![0, 1]));
}

#[test]
fn ep_12_an_unaligned_trigger_captures_up_to_an_end_in_flight() {
    let mut rig = Rig::held(2, CheckpointOptions::unaligned());
    rig.run("Eq0 p B1 T7 B1 r1");
    assert!(rig.completed.is_empty());
    rig.run("B1 Eq1");
    assert_eq!((rig.completed.clone(), rig.captured[&7][1].clone()), (vec![7], vec![0, 1, 2]));
}

#[test]
fn ep_13_a_trigger_and_a_barrier_make_one_snapshot() {
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("T7 b7,0 r0 B1 Eq1 p");
    assert_eq!((rig.triggered(), rig.aborted(), rig.blocked()), (vec![7], vec![], vec![]));
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("D0 D1 p T7 b7,0 p");
    assert_eq!((rig.triggered(), rig.blocked()), (vec![7], vec![]));
    // The barriers were faster than the trigger: nothing is declined that was taken.
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("b7,0 b7,1 p T7 b8,0 b8,1 p T7 T8");
    assert_eq!((rig.triggered(), rig.declined.clone()), (vec![7, 8], vec![]));
}

#[test]
fn ep_14_triggers_after_all_ends_are_taken_directly() {
    for options in [CheckpointOptions::aligned(), CheckpointOptions::unaligned(), timeout(0)] {
        let mut rig = Rig::held(2, options);
        rig.run("Eq0 Eq1 p +3 T8 T9 T8 T7");
        assert_eq!((rig.triggered(), rig.completed.clone()), (vec![8, 9], vec![8, 9]));
        assert!(rig.captured.is_empty());
        assert_eq!((rig.declined.clone(), rig.machine.deadline()), (vec![7], None));
        let report = rig.machine.report().expect("9 has run");
        assert_eq!(report.alignment, std::time::Duration::ZERO);
        assert_eq!(report.start_delay, std::time::Duration::from_millis(3));
    }
}

#[test]
fn ep_15_the_tracker_inserts_every_pending_barrier_in_order() {
    let mut rig = Rig::new(Config::at_least_once(3));
    rig.reads = false;
    rig.run("b4,0 b4,1 b5,0 b5,1 p B2 Eq2");
    assert_eq!(inserted(&rig, 2), [4, 5]);
    rig.run("p");
    assert_eq!(rig.delivered(2), "D0 b4 b5 EOP");
    assert_eq!(rig.triggered(), [4, 5]);
}

#[test]
fn ep_16_nothing_is_inserted_for_a_cancelled_checkpoint() {
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("b5,0 r0 x5,1 r1");
    assert_eq!(rig.aborts, [(5, AbortReason::CancellationBarrier)]);
    rig.run("Eq1");
    assert!(inserted(&rig, 1).is_empty());
    rig.run("p");
    assert_eq!((rig.triggered(), rig.aborted()), (vec![], vec![5]));
    // The same while the cancellation is unread.
    let mut rig = Rig::held(2, CheckpointOptions::unaligned());
    rig.run("B1 x5,1 B1 Eq1 u5,0");
    assert!(inserted(&rig, 1).is_empty() && rig.completed.is_empty());
    rig.run("p");
    assert_eq!((rig.completed.clone(), rig.aborted()), (vec![], vec![5]));
}

#[test]
fn ep_17_a_forced_aligned_checkpoint_waits_for_the_inserted_barrier() {
    let mut rig = two(CheckpointOptions::unaligned().forced_aligned());
    rig.run("b5,0 r0 +1000");
    assert!(rig.triggered().is_empty());
    rig.run("p");
    assert_eq!((rig.triggered(), rig.states[&5].clone()), (vec![5], vec![0, 2]));
    assert!(rig.captured.is_empty());
    assert!(rig.snapshots[0].options.original().is_unaligned());
}

#[test]
fn ep_20_channels_of_a_producer_in_drain_hold_are_cut_without_progress() {
    let mut rig = Rig::held(2, CheckpointOptions::unaligned());
    rig.run("B0 B0 D0 u5,0 B1 D1 u5,1");
    assert_eq!((rig.triggered(), rig.completed.clone()), (vec![5], vec![5]));
    assert_eq!(rig.counts(5), [2, 1]);
    assert!(rig.log.is_empty(), "nothing was read");
}

#[test]
fn ep_22_an_aligned_and_an_announced_checkpoint_are_both_delivered_before_the_end() {
    let mut rig = Rig::held(3, CheckpointOptions::aligned());
    rig.run("b4,0 r0 b4,2 r2");
    rig.options = timeout(1_000);
    rig.run("a5,0 b5,0 B1 Eq1 r1 r1");
    assert_eq!(rig.triggered(), [4]);
    assert_eq!(rig.machine.latest(), Some(CheckpointId(5)));
    rig.run("a5,2 b5,2 p");
    assert_eq!((rig.triggered(), rig.aborted()), (vec![4, 5], vec![]));
    assert_eq!((rig.states[&4].clone(), rig.states[&5].clone()), (vec![0, 1, 0], vec![0, 1, 0]));
}

#[test]
fn ep_23_a_cut_starts_at_the_next_unread_buffer() {
    let mut rig = two(CheckpointOptions::unaligned());
    rig.run("r1 u5,0");
    assert_eq!((rig.states[&5][1], rig.captured[&5][1].clone()), (1, vec![1]));
}

#[test]
fn ep_25_born_ended_channels_beside_a_live_one() {
    for data in [true, false] {
        let mut rig = Rig::held(2, CheckpointOptions::aligned());
        // The gate itself yields what a finished producer would have sent; its notice is implied at the start.
        if data {
            rig.run("B1 D1 Eq1");
        } else {
            rig.run("D1 Eq1");
        }
        rig.run("b5,0 r0 p");
        assert_eq!((rig.triggered(), rig.completed.clone()), (vec![5], vec![5]));
        assert_eq!(rig.machine.open_channels(), 1);
        rig.run("b6,0 r0");
        assert_eq!(rig.triggered(), [5, 6]);
    }
}

#[test]
fn with_drain_hold_a_finish_notice_counts_as_the_barrier() {
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("B1 D1 p Eq1 b5,0 r0");
    assert_eq!(rig.triggered(), [5], "only events stand before the inserted barrier");
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("B1 D1 p b5,0 r0");
    assert!(rig.triggered().is_empty());
    rig.run("Eq1");
    assert_eq!(rig.triggered(), [5]);
    rig.run("p");
    assert_eq!(rig.machine.open_channels(), 1);
}

#[test]
fn a_notice_after_the_deadline_cuts_at_once() {
    let mut rig = Rig::held(2, timeout(10));
    rig.run("a5,0 b5,0 r0 ~11 B1 Eq1");
    assert_eq!((rig.completed.clone(), rig.counts(5)), (vec![5], vec![0, 1]));
}

#[test]
fn a_notice_for_an_obsolete_position_changes_nothing_after_the_end() {
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("Eq1 p");
    let next = CheckpointId(1);
    let position = Position(0);
    rig.feed(Input::FinishNotice { channel: super::rig::index(1), next, position });
    rig.run("b5,0 r0");
    assert_eq!(rig.triggered(), [5]);
}
