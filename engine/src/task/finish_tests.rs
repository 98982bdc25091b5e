//! FT: end of data, final checkpoint, permit, leaving; on the finish machine together with the alignment machine.

mod cascade;
mod known;
mod rig;
mod simulation;

use rig::{Rig, barrier};

use super::finish::{Config, Failure, Input, Output, Step};
use crate::channel::options::CheckpointOptions;
use crate::id::CheckpointId;

fn savepoint(n: u64, drain: bool) -> crate::channel::event::Barrier {
    crate::channel::event::Barrier {
        options: CheckpointOptions::stop_with_savepoint(drain),
        ..barrier(n)
    }
}

#[test]
fn ft_01_a_finished_operator_takes_part_in_snapshots() {
    let mut rig = Rig::new(Config::new(1, 1));
    rig.end_of_data(0, true);
    rig.barrier(0, barrier(2));
    assert_eq!(rig.acks, [2]);
}

#[test]
fn ft_02_without_checkpoints_the_task_leaves_at_once() {
    let mut rig = Rig::new(Config { checkpointing: false, ..Config::new(1, 2) });
    rig.end_of_data(0, true);
    rig.end_of_partition(0);
    assert_eq!(rig.lanes, "D EOP");
    assert!(rig.finish.has_left());
    assert!(!rig.has(|o| matches!(o, Output::AckEndOfData { .. } | Output::AskPermit { .. })));
}

#[test]
fn ft_03_checkpoints_before_while_and_after_inputs_end() {
    checkpoints_around_the_end(CheckpointOptions::aligned());
}

#[test]
fn ft_07_nobody_is_resumed_whatever_the_options() {
    checkpoints_around_the_end(CheckpointOptions::aligned());
    checkpoints_around_the_end(CheckpointOptions::unaligned());
    let timeout = std::time::Duration::from_millis(10);
    checkpoints_around_the_end(CheckpointOptions::aligned_with_timeout(timeout));
}

fn checkpoints_around_the_end(options: CheckpointOptions) {
    let of = |n| crate::channel::event::Barrier { options, ..barrier(n) };
    let mut rig = Rig::new(Config { lanes: 2, ..Config::new(3, 2) });
    for channel in 0..3 {
        rig.barrier(channel, of(2));
    }
    let resumed = rig.resumed;
    rig.end_of_data(0, true);
    rig.end_of_partition(0);
    rig.end_of_data(1, true);
    rig.end_of_data(2, true);
    // Both other predecessors have finished, their last events are on the way.
    rig.trigger(of(4));
    rig.end_of_partition(1);
    rig.end_of_partition(2);
    rig.trigger(of(6));
    rig.feed(Input::EndOfDataAcked { lane: 0 });
    rig.feed(Input::EndOfDataAcked { lane: 1 });
    assert!(!rig.asked(), "nothing has completed after the end");
    rig.complete(6);
    assert_eq!(rig.acks, [2, 4, 6]);
    assert_eq!(rig.lanes, "b2 D b4 b6");
    assert_eq!(rig.resumed, resumed, "nobody is resumed");
    rig.feed(Input::Granted);
    assert_eq!(rig.lanes, "b2 D b4 b6 EOP");
}

#[test]
fn ft_04_only_a_completed_checkpoint_releases() {
    let mut rig = Rig::ended(0, 0);
    for n in 1..=3 {
        rig.trigger(barrier(n));
    }
    rig.feed(Input::Aborted { checkpoint: CheckpointId(1), latest: None });
    rig.feed(Input::Aborted { checkpoint: CheckpointId(2), latest: None });
    assert!(!rig.asked());
    rig.complete(3);
    assert!(rig.asked());
}

#[test]
fn ft_05_a_savepoint_that_ends_the_job_replaces_the_final_checkpoint() {
    for drain in [true, false] {
        // FT-06: a source, or a task behind one.
        for channels in [0, 1] {
            let mut rig = Rig::ended(channels, 1);
            rig.feed(Input::EndOfDataAcked { lane: 0 });
            rig.trigger(barrier(6));
            rig.trigger(savepoint(7, drain));
            rig.complete(6);
            assert!(!rig.asked());
            rig.complete(7);
            assert!(rig.asked());
            assert_eq!(rig.lanes, "D b6 b7");
        }
    }
}

#[test]
fn ft_06_a_running_source_ends_its_data_before_the_savepoint() {
    for (drain, lanes, steps) in [(true, "D b7", 5), (false, "S b7", 1)] {
        let mut rig = Rig::new(Config::new(0, 1));
        rig.trigger(savepoint(7, drain));
        assert_eq!(rig.lanes, lanes);
        assert_eq!(rig.steps().len(), steps);
        assert_eq!(rig.finish.operators_finished(), drain);
        rig.feed(Input::EndOfDataAcked { lane: 0 });
        rig.complete(7);
        assert!(rig.asked());
        assert!(!rig.has(|o| *o == Output::AwaitsCheckpoint(true)));
    }
}

#[test]
fn ft_08_finished_operators_are_part_of_the_snapshot() {
    let mut rig = Rig::new(Config::new(1, 1));
    rig.barrier(0, barrier(2));
    rig.end_of_data(0, true);
    rig.barrier(0, barrier(4));
    assert_eq!(rig.flags, [false, true]);
}

#[test]
fn ft_09_leaving_waits_for_every_snapshot_under_way() {
    let mut rig = Rig::ended(0, 0);
    rig.slow = vec![2];
    rig.trigger(barrier(1));
    rig.trigger(barrier(2));
    rig.complete(1);
    assert!(!rig.asked());
    rig.over(2);
    assert!(rig.asked());
    assert_eq!(rig.acks, [1, 2]);
}

#[test]
fn ft_12_one_stop_makes_the_end_a_stop() {
    let mut rig = Rig::new(Config::new(2, 1));
    rig.end_of_data(0, false);
    assert!(!rig.finish.is_ended());
    rig.end_of_data(1, true);
    assert_eq!(rig.lanes, "S");
    let mut rig = Rig::new(Config::new(2, 1));
    rig.end_of_data(0, true);
    rig.end_of_data(1, true);
    assert_eq!(rig.lanes, "D");
}

#[test]
fn ft_13_a_chain_finishes_from_head_to_tail() {
    let mut rig = Rig::new(Config { operators: 3, ..Config::new(0, 1) });
    rig.feed(Input::SourceEnded);
    let mut expected = vec![Step::EmitMaxWatermark];
    for operator in 0..3 {
        if operator > 0 {
            expected.push(Step::EndInput { operator, input: 0 });
        }
        expected.push(Step::QuiesceTimers { operator });
        expected.push(Step::RunMails { operator });
        expected.push(Step::Finish { operator });
        expected.push(Step::RunMails { operator });
    }
    assert_eq!(rig.steps(), expected);
    rig.trigger(barrier(1));
    rig.feed(Input::EndOfDataAcked { lane: 0 });
    rig.complete(1);
    rig.feed(Input::Granted);
    assert_eq!(rig.steps(), expected, "no callback after finish but snapshots and completions");
    let wanted = |o: &Output| {
        matches!(
            o,
            Output::BroadcastEndOfData { .. }
                | Output::NotifyComplete { .. }
                | Output::CloseMailbox
                | Output::EmitEndOfPartition
                | Output::CloseOperators
        )
    };
    let order: Vec<Output> = rig.log.iter().copied().filter(wanted).collect();
    assert_eq!(
        order,
        [
            Output::BroadcastEndOfData { drain: true },
            Output::NotifyComplete { checkpoint: CheckpointId(1) },
            Output::CloseMailbox,
            Output::EmitEndOfPartition,
            Output::CloseOperators,
        ]
    );
}

#[test]
fn ft_14_only_a_source_makes_the_last_watermark() {
    let mut rig = Rig::new(Config::new(1, 1));
    rig.end_of_data(0, true);
    assert!(!rig.steps().contains(&Step::EmitMaxWatermark));
    assert_eq!(rig.steps()[0], Step::EndInput { operator: 0, input: 0 });
    let mut source = Rig::new(Config::new(0, 1));
    source.feed(Input::SourceEnded);
    let marks = source.steps().iter().filter(|s| **s == Step::EmitMaxWatermark).count();
    assert_eq!(marks, 1);
}

#[test]
fn ft_16_mails_that_gave_way_run_before_end_of_data() {
    let mut rig = Rig::new(Config::new(1, 1));
    rig.holds_step = Some(Step::RunMails { operator: 0 });
    rig.end_of_data(0, true);
    assert!(rig.lanes.is_empty() && !rig.steps().contains(&Step::Finish { operator: 0 }));
    // Meanwhile a checkpoint goes through.
    rig.barrier(0, barrier(1));
    assert_eq!((rig.lanes.as_str(), rig.flags.as_slice()), ("b1", &[false][..]));
    rig.holds_step = None;
    rig.feed(Input::StepDone);
    assert_eq!(rig.lanes, "b1 D");
}

#[test]
fn ft_17_end_of_data_waits_for_what_the_commit_emits() {
    let mut rig = Rig::new(Config { emits_on_commit: true, ..Config::new(1, 1) });
    rig.barrier(0, barrier(1));
    rig.end_of_data(0, true);
    assert_eq!(rig.log.last(), Some(&Output::AwaitsCheckpoint(true)));
    rig.complete(1);
    assert_eq!(rig.lanes, "b1 c1", "1 was taken before the end");
    rig.barrier(0, barrier(2));
    rig.complete(2);
    assert_eq!(rig.lanes, "b1 c1 b2 c2 D");
    rig.end_of_partition(0);
    assert!(!rig.asked());
    rig.feed(Input::EndOfDataAcked { lane: 0 });
    assert!(rig.asked(), "a later checkpoint is not awaited");
}

#[test]
fn ft_19_after_a_restore_finish_is_not_run_again() {
    let mut rig = Rig::new(Config {
        operators_finished: true,
        restored: Some(CheckpointId(5)),
        ended_inputs: vec![0],
        ..Config::new(1, 1)
    });
    rig.feed(Input::Start);
    assert_eq!(rig.steps(), [Step::EmitMaxWatermark]);
    assert_eq!(rig.lanes, "D");
    rig.end_of_data(0, true);
    rig.end_of_partition(0);
    rig.complete(5);
    assert!(!rig.has(|o| matches!(o, Output::NotifyComplete { .. })), "delivered by the restore");
    rig.feed(Input::EndOfDataAcked { lane: 0 });
    rig.trigger(barrier(6));
    rig.complete(6);
    assert!(rig.asked());
    assert_eq!(rig.steps().len(), 1);
    assert_eq!(rig.flags, [true]);
}

#[test]
fn ft_20_a_stop_on_all_inputs_is_forwarded() {
    let mut rig = Rig::new(Config { inputs: vec![1, 1], ..Config::new(2, 1) });
    rig.end_of_data(0, false);
    rig.end_of_data(1, false);
    assert_eq!(rig.lanes, "S");
    assert_eq!(rig.steps(), [Step::QuiesceTimers { operator: 0 }]);
}

#[test]
fn ft_21_a_cancelled_task_leaves_without_a_commit() {
    let mut rig = Rig::ended(0, 1);
    rig.trigger(barrier(1));
    rig.feed(Input::Cancel);
    rig.complete(1);
    assert!(rig.finish.has_left());
    assert!(!rig.has(|o| matches!(o, Output::NotifyComplete { .. } | Output::EmitEndOfPartition)));
}

#[test]
fn ft_22_each_input_ends_once_also_over_a_restore() {
    let two = Config { inputs: vec![1, 1], ..Config::new(2, 1) };
    let mut rig = Rig::new(two.clone());
    rig.end_of_data(0, true);
    assert_eq!(rig.steps(), [Step::EndInput { operator: 0, input: 0 }]);
    assert_eq!(rig.finish.ended_inputs(), [0]);
    let mut restored =
        Rig::new(Config { ended_inputs: vec![0], restored: Some(CheckpointId(1)), ..two });
    restored.end_of_data(0, true);
    assert!(restored.steps().is_empty());
    restored.end_of_data(1, true);
    assert_eq!(restored.steps()[0], Step::EndInput { operator: 0, input: 1 });
    assert_eq!(restored.finish.ended_inputs(), [0, 1]);
    assert_eq!(restored.lanes, "D");
}

#[test]
fn ft_23_the_task_waits_for_an_operator_while_mails_are_served() {
    let mut rig = Rig::new(Config::new(0, 0));
    rig.feed(Input::SourceEnded);
    rig.feed(Input::FinalizePending { operator: 0 });
    for n in 1..=3 {
        rig.trigger(barrier(n));
        rig.complete(n);
        assert!(!rig.asked());
    }
    rig.feed(Input::Finalized { operator: 0 });
    assert!(rig.asked());
    assert_eq!(rig.acks, [1, 2, 3]);
}

#[test]
fn ft_25_the_operators_failure_is_the_tasks() {
    let mut rig = Rig::ended(0, 0);
    rig.feed(Input::FinalizePending { operator: 0 });
    rig.feed(Input::FinalizeFailed { operator: 0 });
    let cause = Failure::Finalize { operator: 0 };
    assert_eq!(rig.log.last(), Some(&Output::Fail { cause }));
}

#[test]
fn ft_26_a_completed_savepoint_does_not_replace_an_operators_wait() {
    let mut rig = Rig::ended(0, 0);
    rig.feed(Input::FinalizePending { operator: 0 });
    rig.trigger(savepoint(4, true));
    rig.complete(4);
    assert!(!rig.asked());
    rig.feed(Input::Finalized { operator: 0 });
    assert!(rig.asked());
}

#[test]
fn ep_19_end_of_partition_waits_for_every_acknowledgement() {
    for drain_hold in [true, false] {
        let mut rig = Rig::new(Config { drain_hold, ..Config::new(0, 2) });
        rig.feed(Input::SourceEnded);
        rig.trigger(barrier(1));
        rig.complete(1);
        rig.feed(Input::EndOfDataAcked { lane: 1 });
        assert_eq!(rig.asked(), !drain_hold);
        rig.feed(Input::EndOfDataAcked { lane: 0 });
        assert!(rig.asked());
        rig.feed(Input::Granted);
        assert_eq!(rig.lanes, "D b1 EOP");
    }
}

#[test]
fn a_task_without_state_or_commit_leaves_without_a_checkpoint() {
    let mut rig = Rig::new(Config { needs_final_checkpoint: false, ..Config::new(0, 1) });
    rig.feed(Input::SourceEnded);
    assert!(!rig.asked());
    rig.feed(Input::EndOfDataAcked { lane: 0 });
    assert!(rig.asked());
    assert!(!rig.has(|o| matches!(o, Output::AwaitsCheckpoint(_))));
}

#[test]
fn awaiting_is_reported_once_all_else_is_there_and_withdrawn_on_completion() {
    let mut rig = Rig::ended(1, 1);
    assert!(!rig.has(|o| matches!(o, Output::AwaitsCheckpoint(_))));
    rig.feed(Input::EndOfDataAcked { lane: 0 });
    assert_eq!(rig.log.last(), Some(&Output::AwaitsCheckpoint(true)));
    rig.trigger(barrier(1));
    rig.complete(1);
    let reports = rig.log.iter().filter(|o| matches!(o, Output::AwaitsCheckpoint(_)));
    assert_eq!(reports.count(), 2);
}

#[test]
fn a_held_task_acts_on_triggers_it_has_not_seen_and_asks_again() {
    let mut rig = Rig::ended(0, 0);
    rig.trigger(barrier(1));
    rig.complete(1);
    assert_eq!(rig.asks(), 1);
    rig.feed(Input::Hold { pending: vec![barrier(1), barrier(2), barrier(3)] });
    assert_eq!(rig.acks, [1, 2, 3]);
    assert!(rig.asks() > 1);
    rig.feed(Input::Granted);
    assert_eq!(rig.lanes, "D b1 b2 b3 EOP");
}

#[test]
fn a_held_task_waits_for_a_checkpoint_it_has_taken() {
    let mut rig = Rig::ended(0, 0);
    rig.trigger(barrier(1));
    rig.complete(1);
    rig.feed(Input::Hold { pending: vec![barrier(1)] });
    assert_eq!(rig.asks(), 1);
    rig.feed(Input::Aborted { checkpoint: CheckpointId(1), latest: None });
    assert_eq!(rig.asks(), 2);
}

#[test]
fn k04_a_trigger_while_the_permit_is_asked_is_taken_flushed_and_asked_for_again() {
    let mut rig = Rig::ended(0, 0);
    rig.trigger(barrier(1));
    rig.complete(1);
    rig.holds_flush = true;
    rig.trigger(barrier(2));
    assert_eq!((rig.asks(), rig.acks.len()), (1, 2));
    rig.feed(Input::Hold { pending: vec![barrier(2)] });
    assert_eq!(rig.acks.len(), 2, "an answer from before changes nothing");
    rig.holds_flush = false;
    rig.feed(Input::Flushed);
    assert_eq!(rig.asks(), 2);
}

#[test]
fn a_savepoint_that_comes_while_leaving_is_waited_for() {
    let mut rig = Rig::ended(0, 0);
    rig.trigger(barrier(1));
    rig.complete(1);
    rig.trigger(savepoint(2, true));
    assert_eq!(rig.asks(), 1);
    rig.complete(2);
    assert_eq!(rig.asks(), 2);
}

#[test]
fn a_failed_savepoint_that_was_to_end_the_job_fails_the_task() {
    let mut rig = Rig::ended(0, 0);
    rig.trigger(savepoint(2, false));
    rig.feed(Input::Aborted { checkpoint: CheckpointId(2), latest: None });
    let cause = Failure::Savepoint { checkpoint: CheckpointId(2) };
    assert_eq!(rig.log.last(), Some(&Output::Fail { cause }));
}

#[test]
fn a_trigger_for_a_task_that_has_left_is_declined() {
    let mut rig = Rig::ended(0, 0);
    rig.trigger(barrier(1));
    rig.complete(1);
    rig.feed(Input::Granted);
    rig.trigger(barrier(2));
    let checkpoint = CheckpointId(2);
    assert_eq!(rig.log.last(), Some(&Output::DeclineClosing { checkpoint }));
}

#[test]
fn a_lost_completion_is_made_up_by_an_abort_notice() {
    let mut rig = Rig::new(Config::new(1, 1));
    let latest = Some(CheckpointId(3));
    rig.feed(Input::Aborted { checkpoint: CheckpointId(4), latest });
    rig.complete(3);
    assert_eq!(
        rig.log,
        [
            Output::NotifyComplete { checkpoint: CheckpointId(3) },
            Output::Abort { checkpoint: CheckpointId(4) },
        ]
    );
}
