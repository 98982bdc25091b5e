//! Faults known from other engines, at the end of a task.

use super::rig::{Rig, barrier};
use super::savepoint;
use crate::id::CheckpointId;
use crate::task::finish::{Config, Input, Output, Step};

#[test]
fn k01_end_of_data_waits_for_the_commit_even_if_a_later_checkpoint_completes_first() {
    // The next stage finished before the last committables came, and they were lost.
    let mut rig = Rig::new(Config { emits_on_commit: true, ..Config::new(1, 1) });
    rig.end_of_data(0, true);
    rig.barrier(0, barrier(2));
    rig.barrier(0, barrier(3));
    assert_eq!(rig.lanes, "b2 b3");
    rig.complete(3);
    assert_eq!(rig.lanes, "b2 b3 c3 D");
    rig.complete(2);
    assert_eq!(rig.lanes, "b2 b3 c3 D", "what 3 committed is not committed again");
}

#[test]
fn k02_every_operator_runs_all_its_mails_before_and_after_it_finishes() {
    // The end of the mailbox skipped continuations of the lowest priority, and windows were lost.
    let mut rig = Rig::new(Config { operators: 2, ..Config::new(1, 1) });
    rig.end_of_data(0, true);
    let steps = rig.steps();
    for operator in 0..2 {
        let finish = steps.iter().position(|s| *s == Step::Finish { operator });
        let finish = finish.expect("it finishes");
        assert_eq!(steps[finish - 1], Step::RunMails { operator });
        assert_eq!(steps[finish + 1], Step::RunMails { operator });
    }
}

#[test]
fn k10_the_end_asks_for_a_checkpoint_at_once() {
    // A bounded job waited a whole interval for somebody to trigger the last checkpoint.
    let mut rig = Rig::new(Config::new(0, 0));
    rig.feed(Input::SourceEnded);
    assert_eq!(rig.log.last(), Some(&Output::AwaitsCheckpoint(true)));
}

#[test]
fn k11_a_stop_that_races_with_the_natural_end_takes_one_path() {
    // The stop comes while the source finishes by itself.
    for drain in [true, false] {
        let mut rig = Rig::new(Config::new(0, 1));
        rig.holds_step = Some(Step::Finish { operator: 0 });
        rig.feed(Input::SourceEnded);
        rig.trigger(savepoint(7, drain));
        assert!(rig.lanes.is_empty());
        rig.holds_step = None;
        rig.feed(Input::StepDone);
        assert_eq!(rig.lanes, "D b7");
        rig.feed(Input::EndOfDataAcked { lane: 0 });
        rig.complete(7);
        assert!(rig.asked());
    }
    // The natural end comes while the source stops.
    let mut rig = Rig::new(Config::new(0, 1));
    rig.holds_step = Some(Step::QuiesceTimers { operator: 0 });
    rig.trigger(savepoint(7, false));
    rig.feed(Input::SourceEnded);
    rig.holds_step = None;
    rig.feed(Input::StepDone);
    assert_eq!(rig.lanes, "S b7");
}

#[test]
fn k41_commits_name_real_checkpoints_once_and_in_rising_order() {
    let mut rig = Rig::new(Config::new(1, 1));
    for n in [3, 2, 3, 5] {
        rig.complete(n);
    }
    let notified = |n| Output::NotifyComplete { checkpoint: CheckpointId(n) };
    assert_eq!(rig.log, [notified(3), notified(5)]);
}
