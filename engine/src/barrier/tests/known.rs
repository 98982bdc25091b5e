//! Faults known from other engines and from public reports, each as a scenario.

use std::time::Duration;

use super::rig::{Rig, timeout};
use crate::barrier::{Config, Input, Output};
use crate::channel::options::CheckpointOptions;

#[test]
fn k07_a_triggered_checkpoint_blocks_and_resumes_nobody() {
    // Channels were marked blocked by a trigger and resumed, though their producers were gone.
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("B0 Eq0 B1 Eq1 T1 p");
    assert_eq!(rig.triggered(), [1]);
    assert!(rig.blocks.is_empty() && rig.resumes.is_empty());
}

#[test]
fn k08_an_alignment_that_starts_with_an_end_has_a_duration() {
    // A checkpoint known by announcement whose next event was an end never started its clock.
    let mut rig = Rig::held(2, timeout(1_000));
    rig.run("a1,0 +3 Eq1 r1 +4 b1,0 r0");
    let report = rig.machine.report().expect("1 has run");
    assert_eq!(
        (report.start_delay, report.alignment),
        (Duration::from_millis(3), Duration::from_millis(4))
    );
}

#[test]
fn k17_a_stale_barrier_is_no_barrier() {
    // A late barrier of a cancelled checkpoint was taken for the current one.
    let mut rig = Rig::held(2, CheckpointOptions::unaligned());
    rig.run("x1,0 p u2,0 B1 u1,1 B1");
    assert!(rig.completed.is_empty());
    rig.run("u2,1");
    assert_eq!((rig.completed.clone(), rig.counts(2)), (vec![2], vec![0, 2]));
}

#[test]
fn k18_an_obsolete_barrier_fails_nothing() {
    let mut rig = Rig::held(2, CheckpointOptions::unaligned());
    rig.run("u5,0 u4,1 u3,0");
    assert_eq!((rig.triggered(), rig.aborted()), (vec![5], vec![]));
    assert!(rig.machine.is_pending());
}

#[test]
fn k21_the_last_barrier_never_makes_a_checkpoint_unaligned() {
    let mut rig = Rig::held(2, timeout(10));
    rig.run("b1,0 r0 ~20 b1,1 r1");
    assert!(!rig.snapshots[0].options.is_unaligned());
    assert!(rig.captured.is_empty());
}

#[test]
fn k22_the_timer_runs_from_the_first_announcement() {
    let mut rig = Rig::held(2, timeout(10));
    rig.run("B0 a1,0 b1,0");
    assert!(rig.machine.deadline().is_some());
    rig.run("+10");
    assert_eq!((rig.triggered(), rig.counts(1)), (vec![1], vec![1, 0]));
}

#[test]
fn k23_a_switch_does_not_resume_blocked_channels() {
    let mut rig = Rig::held(3, timeout(10));
    rig.run("b1,0 r0 +11");
    assert!(rig.outputs.iter().all(|output| !matches!(output, Output::Resume { .. })));
    assert_eq!(rig.blocked(), [0]);
}

#[test]
fn k24_the_timeout_counts_from_the_trigger_not_from_the_first_barrier() {
    let mut rig = Rig::held(2, timeout(10));
    rig.run("~30 b1,0 r0");
    assert!(rig.snapshots[0].options.is_unaligned(), "it was late on arrival");
}

#[test]
fn k29_a_barrier_stuck_behind_data_is_cut_without_progress_of_the_reader() {
    // Only the receiver could time out, and it did not know of a barrier still in the producer's lane.
    let mut rig = Rig::held(2, timeout(10));
    rig.run("B0 B0 a1,0 b1,0 B1 a1,1 b1,1 +11");
    assert_eq!((rig.completed.clone(), rig.counts(1)), (vec![1], vec![2, 1]));
    assert!(rig.log.is_empty(), "nothing was read");
}

#[test]
fn k30_a_checkpoint_counts_as_unaligned_iff_bytes_were_captured() {
    for (script, unaligned) in [
        ("B0 a1,0 b1,0 +11 a1,1 b1,1", true),
        ("a1,0 b1,0 +11 a1,1 b1,1", false),
        ("B0 a1,0 b1,0 a1,1 b1,1 p", false),
    ] {
        let mut rig = Rig::held(2, timeout(10));
        rig.run(script);
        assert_eq!(rig.machine.report().map(|r| r.unaligned()), Some(unaligned), "{script}");
    }
}

#[test]
fn k31_a_forced_aligned_barrier_never_captures() {
    for options in [CheckpointOptions::unaligned(), timeout(1)] {
        let mut rig = Rig::held(2, options.forced_aligned());
        rig.run("B1 b1,0 r0 +1000 B1 b1,1 p");
        assert!(rig.captured.is_empty());
        assert_eq!(rig.states[&1], [0, 2]);
    }
}

#[test]
fn k34_what_is_queued_at_the_start_and_read_later_is_captured_once() {
    // Recovered buffers were written at the start of the checkpoint and again when they were read.
    let mut rig = Rig::held(3, CheckpointOptions::unaligned());
    rig.run("B1 B2 B2 u1,0 r1 r2 r2 B2 r2 u1,1 u1,2");
    assert_eq!(rig.captured[&1], [vec![], vec![0], vec![0, 1, 2]]);
    assert_eq!((rig.completed.clone(), rig.states[&1].clone()), (vec![1], vec![0, 0, 0]));
}

#[test]
fn k39_a_late_cancellation_leaves_the_running_alignment_alone() {
    let mut rig = Rig::held(3, CheckpointOptions::aligned());
    rig.run("b1,0 r0 A1 b2,0 r0 +5 x1,1 r1 +5 b2,1 b2,2 p");
    assert_eq!(rig.machine.report().map(|r| r.alignment), Some(Duration::from_millis(10)));
}

#[test]
fn p01_an_end_is_delivered_once_while_another_channel_still_has_data() {
    // A released channel stayed in the ready queue; the next poll hid the end and the job hung.
    let mut rig = Rig::held(2, CheckpointOptions::aligned());
    rig.run("B0 D0 Eq0 B1 r0 r0 r0");
    assert_eq!(rig.machine.open_channels(), 1);
    rig.feed(Input::EndOfPartition { channel: super::rig::index(0) });
    assert_eq!((rig.machine.open_channels(), rig.outputs.len()), (1, 0));
    rig.run("D1 Eq1 p");
    assert_eq!(rig.machine.open_channels(), 0);
    assert_eq!((rig.delivered(0), rig.delivered(1)), ("D0 EOP".into(), "D0 EOP".into()));
}

#[test]
fn p04_barriers_in_odd_order() {
    // Over all orders: what is captured is what came before the barrier and was not consumed at the snapshot.
    let tokens = ["B1", "B1", "B0", "u1,1", "u2,1", "x1,1", "u1,0", "u2,0"];
    for reads in [false, true] {
        let mut orders = 0;
        let mut completed = 0;
        permute(&mut tokens.map(Some), &mut Vec::new(), &mut |order| {
            orders += 1;
            completed += odd_order(order, reads);
        });
        assert_eq!(orders, 20_160);
        assert!(completed > 10_000, "only {completed} completed");
    }
}

/// All orders of `left`; the equal first two count as one.
fn permute<'a>(
    left: &mut [Option<&'a str>],
    order: &mut Vec<&'a str>,
    visit: &mut impl FnMut(&[&str]),
) {
    if order.len() == left.len() {
        visit(order);
        return;
    }
    for at in 0..left.len() {
        if at == 1 && left[0].is_some() {
            continue;
        }
        if let Some(token) = left[at].take() {
            order.push(token);
            permute(left, order, visit);
            order.pop();
            left[at] = Some(token);
        }
    }
}

fn odd_order(order: &[&str], reads: bool) -> usize {
    let mut rig = Rig::new(Config::exactly_once(2));
    rig.options = CheckpointOptions::unaligned();
    rig.reads = reads;
    rig.logs = false;
    let mut cuts = std::collections::BTreeMap::new();
    for token in order {
        for c in 0..2 {
            for n in 1..=2 {
                if *token == format!("u{n},{c}") {
                    cuts.insert((n, c), rig.lanes[c].pushed);
                }
            }
        }
        rig.run(token);
    }
    for &n in &rig.completed {
        for c in 0..2 {
            let expected: Vec<u64> = (rig.states[&n][c]..cuts[&(n, c)]).collect();
            assert_eq!(rig.captured[&n][c], expected, "{order:?}, checkpoint {n}, channel {c}");
        }
    }
    rig.completed.len()
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a thread of little stack shows what recursion would do"
)]
fn k43_ends_of_very_many_channels_take_no_stack() {
    // One call deeper for each channel that ended overflowed the stack of wide jobs.
    const CHANNELS: usize = 20_000;
    let narrow = std::thread::Builder::new().stack_size(128 << 10);
    let ends = narrow.spawn(|| {
        let mut rig = Rig::held(CHANNELS, CheckpointOptions::unaligned());
        rig.logs = false;
        for channel in 0..CHANNELS {
            rig.data(channel);
            rig.end(channel);
            rig.serve_one(channel);
        }
        let barrier = rig.barrier(1);
        rig.feed(Input::Trigger { barrier });
        assert_eq!(rig.triggered(), [1]);
    });
    ends.expect("a thread").join().expect("neither an overflow nor a panic");
}
