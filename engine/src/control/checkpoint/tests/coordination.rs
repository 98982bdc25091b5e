//! CC: trigger, acknowledgement, completion, abort, finish permit.

use std::time::Duration;

use super::rig::*;
use crate::clock::Timestamp;
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::{
    Ack, Fact, HeldCheckpoint, Input, Outcome, Output, Unacknowledged, WaitingChannel,
};
use crate::control::checkpoint::options::{CheckpointMode, CheckpointOptions, SnapshotKind};
use crate::control::checkpoint::tasks::TaskState;
use crate::control::checkpoint::topology::Topology;
use crate::id::ChannelIndex;

/// A source feeding a sink, one task each.
fn pair() -> Topology {
    topology(&[1, 1], &[(0, 1, AllToAll)])
}

fn concurrent(max_concurrent: usize) -> CoordinatorConfig {
    CoordinatorConfig { max_concurrent, ..CoordinatorConfig::default() }
}

fn intolerant() -> CoordinatorConfig {
    CoordinatorConfig { tolerable_failed: Some(0), ..CoordinatorConfig::default() }
}

#[test]
fn a_checkpoint_goes_from_request_to_completion() {
    let mut rig = Rig::default(pair());
    rig.now = Timestamp::from_millis(7);
    let out = rig.checkpoint();
    let (timestamp, options) = (rig.now, CheckpointOptions::aligned());
    let trigger = Output::Trigger { task: task(0, 0), checkpoint: id(1), timestamp, options };
    assert!(out.contains(&trigger));
    assert_eq!(triggers(&out).len(), 1);
    assert_eq!(metadata(rig.ack(1, task(1, 0))).len(), 0);
    assert_eq!(metadata(rig.ack(1, task(0, 0))).len(), 1);
    assert!(rig.coordinator.is_storing());
    let out = rig.stored(1);
    assert_eq!(completions(&out), [(1, task(0, 0)), (1, task(1, 0))]);
    assert_eq!(outcomes(&out), [Outcome::Completed { checkpoint: id(1) }]);
    assert_eq!(rig.coordinator.retained().latest(), Some(id(1)));
}

#[test]
fn no_trigger_goes_out_before_its_id_is_durable() {
    let mut rig = Rig::default(pair());
    rig.is_prompt = false;
    let out = rig.checkpoint();
    assert_eq!(triggers(&out), []);
    let below = out.iter().find_map(|output| match output {
        Output::ReserveIds { below } => Some(*below),
        _ => None,
    });
    let out = rig.send(Input::IdReserved { below: below.unwrap() });
    assert_eq!(triggers(&out), [(1, task(0, 0))]);
}

#[test]
fn ids_that_cannot_be_reserved_fail_the_request_and_count() {
    let mut rig = Rig::new(intolerant(), pair());
    rig.is_prompt = false;
    rig.checkpoint();
    let out = rig.send(Input::ReserveFailed);
    assert_eq!(failures(&out), [(None, FailureReason::IoWhileTriggering)]);
    assert_eq!(job_failures(&out), [true]);
}

#[test]
fn cc_01_a_failing_task_fails_the_checkpoint_at_once_and_uncounted() {
    let mut rig = Rig::new(intolerant(), topology(&[2, 1], &[(0, 1, AllToAll)]));
    rig.checkpoint();
    let out = rig.decline_for(1, task(0, 0), FailureReason::TaskCheckpointFailure);
    let told = [task(0, 0), task(0, 1), task(1, 0)].map(|task| (1, task, None));
    assert_eq!(aborts(&out), told);
    rig.checkpoint();
    let out = rig.state(task(0, 0), TaskState::Failed);
    assert_eq!(failures(&out), [(Some(2), FailureReason::TaskFailure)]);
    let told: Vec<_> = aborts(&out).into_iter().map(|(_, task, _)| task).collect();
    assert!(told.contains(&task(0, 1)) && told.contains(&task(1, 0)));
    assert_eq!(job_failures(&out), [] as [bool; 0]);
}

#[test]
fn cc_02_a_finish_request_is_held_until_the_task_has_acknowledged() {
    let mut rig = Rig::default(pair());
    rig.checkpoint();
    let out = rig.finish(task(0, 0));
    let held = HeldCheckpoint {
        checkpoint: id(1),
        options: CheckpointOptions::aligned(),
        timestamp: rig.now,
        is_triggered: true,
    };
    assert!(out.contains(&Output::PermitHold { task: task(0, 0), pending: vec![held] }));
    assert_eq!(grants(&out), []);
    assert_eq!(grants(&rig.ack(1, task(0, 0))), [task(0, 0)]);
    rig.complete(1);
    let out = rig.checkpoint();
    assert_eq!(triggers(&out), [(2, task(1, 0))]);
    assert_eq!(rig.awaited(2), [task(1, 0)]);
}

#[test]
fn cc_02_a_hold_ends_with_an_abort_too() {
    let mut rig = Rig::default(pair());
    rig.checkpoint();
    rig.finish(task(0, 0));
    assert_eq!(grants(&rig.decline(1, task(1, 0))), [task(0, 0)]);
}

#[test]
fn cc_02_a_held_task_that_gets_its_barriers_from_others_is_told_so() {
    let mut rig = Rig::default(pair());
    rig.checkpoint();
    let out = rig.finish(task(1, 0));
    let is_triggered = out.iter().find_map(|output| match output {
        Output::PermitHold { pending, .. } => Some(pending[0].is_triggered),
        _ => None,
    });
    assert_eq!(is_triggered, Some(false));
}

#[test]
fn cc_03_a_plan_after_the_grant_triggers_the_successors() {
    let mut rig = Rig::default(pair());
    assert_eq!(grants(&rig.finish(task(0, 0))), [task(0, 0)]);
    assert_eq!(triggers(&rig.checkpoint()), [(1, task(1, 0))]);
    assert_eq!(outcomes(&rig.complete(1)), [Outcome::Completed { checkpoint: id(1) }]);
}

#[test]
fn cc_05_a_completion_subsumes_older_checkpoints() {
    let mut rig = Rig::new(concurrent(2), pair());
    for done in [1, 2] {
        rig.checkpoint();
        rig.complete(done);
    }
    rig.checkpoint();
    rig.ack(3, task(0, 0));
    rig.checkpoint();
    assert_eq!(rig.pending(), [3, 4]);
    let out = rig.complete(4);
    assert_eq!(failures(&out), [(Some(3), FailureReason::Subsumed)]);
    assert_eq!(completions(&out), [(4, task(0, 0)), (4, task(1, 0))]);
    assert!(aborts(&out).iter().all(|&(aborted, _, latest)| aborted == 3 && latest == Some(4)));
    assert_eq!(rig.pending(), [] as [u64; 0]);
}

#[test]
fn cc_06_a_savepoint_goes_on_when_a_newer_checkpoint_completes_and_is_not_notified() {
    let mut rig = Rig::new(concurrent(2), pair());
    rig.savepoint();
    rig.ack(1, task(0, 0));
    rig.checkpoint();
    assert_eq!(completions(&rig.complete(2)).len(), 2);
    assert_eq!(rig.pending(), [1]);
    let out = rig.complete(1);
    assert_eq!(outcomes(&out), [Outcome::Completed { checkpoint: id(1) }]);
    assert_eq!(completions(&out), []);
    assert!(rig.coordinator.retained().iter().eq([id(2)]), "a savepoint is its owner's");
}

#[test]
fn cc_07_a_checkpoint_expires_and_the_late_state_is_discarded() {
    let timeout = Duration::from_millis(200);
    let config = CoordinatorConfig { timeout, ..intolerant() };
    let mut rig = Rig::new(config, pair());
    rig.checkpoint();
    rig.complete(1);
    rig.checkpoint();
    rig.ack(2, task(0, 0));
    let waiting = vec![WaitingChannel { channel: ChannelIndex(0), bytes_before_barrier: 4096 }];
    let progress = waiting.clone();
    rig.send(Input::Progress { checkpoint: id(2), task: task(1, 0), waiting: progress });
    assert_eq!(rig.coordinator.deadline(), Some(rig.now + timeout));
    assert_eq!(failures(&rig.pass(timeout - Duration::from_nanos(1))), []);
    let out = rig.pass(Duration::from_nanos(1));
    assert!(out.contains(&Output::Fact(Fact::Failed {
        checkpoint: Some(id(2)),
        kind: SnapshotKind::Checkpoint,
        reason: FailureReason::Expired,
        unacknowledged: vec![Unacknowledged { task: task(1, 0), waiting }],
    })));
    assert_eq!(aborts(&out), [(2, task(0, 0), Some(1)), (2, task(1, 0), Some(1))]);
    assert_eq!(job_failures(&out), [true], "an expired checkpoint counts");
    let late = Ack { operators: vec![Some(keyed("late"))], ..ack(2, task(1, 0)) };
    let out = rig.send(Input::Ack(late));
    assert_eq!(discarded_states(&out), ["late"]);
    let is_known = |output: &Output<State>| {
        matches!(output, Output::Fact(Fact::LateAck { was_pending: true, .. }))
    };
    assert!(out.iter().any(is_known));
}

#[test]
fn cc_08_repeated_unknown_and_late_acknowledgements_change_nothing() {
    let mut rig = Rig::default(pair());
    rig.checkpoint();
    let with = |checkpoint, from, name| {
        Input::Ack(Ack { operators: vec![Some(keyed(name))], ..ack(checkpoint, from) })
    };
    rig.send(with(1, task(0, 0), "first"));
    let out = rig.send(with(1, task(0, 0), "first"));
    assert_eq!(discarded_states(&out), [] as [&str; 0], "the state counts already");
    let mut stranger = task(1, 0);
    stranger.attempt.0 = 9;
    assert_eq!(discarded_states(&rig.send(with(1, stranger, "stranger"))), ["stranger"]);
    assert_eq!(rig.awaited(1), [task(1, 0)]);
    assert_eq!(discarded_states(&rig.send(with(77, task(1, 0), "unknown"))), ["unknown"]);
    assert_eq!(discarded_states(&rig.decline(1, task(1, 0))), ["first"]);
    assert_eq!(discarded_states(&rig.send(with(1, task(1, 0), "late"))), ["late"]);
}

#[test]
fn an_acknowledgement_repeated_after_completion_discards_nothing() {
    let mut rig = Rig::default(pair());
    rig.savepoint();
    rig.complete(1);
    let repeat = Ack { operators: vec![Some(keyed("kept"))], ..ack(1, task(0, 0)) };
    assert_eq!(rig.send(Input::Ack(repeat)), []);
}

#[test]
fn cc_09_an_abort_names_the_latest_completed_checkpoint() {
    let mut rig = Rig::default(pair());
    for done in 1..=7 {
        rig.checkpoint();
        rig.complete(done);
    }
    rig.checkpoint();
    let out = rig.decline(8, task(0, 0));
    assert_eq!(aborts(&out), [(8, task(0, 0), Some(7)), (8, task(1, 0), Some(7))]);
}

#[test]
fn cc_10_a_task_finished_at_plan_time_is_told_nothing() {
    let mut rig = Rig::default(pair());
    rig.finish(task(0, 0));
    rig.checkpoint();
    assert_eq!(completions(&rig.complete(1)), [(1, task(1, 0))]);
}

#[test]
fn cc_11_a_store_that_fails_aborts_the_checkpoint_and_files_are_deleted_only_if_that_is_safe() {
    for is_outcome_known in [true, false] {
        let mut rig = Rig::new(intolerant(), pair());
        rig.checkpoint();
        rig.ack_all_with(|task| Ack { operators: vec![Some(keyed("state"))], ..ack(1, task) }, 1);
        let out = rig.send(Input::StoreFailed { checkpoint: id(1), is_outcome_known });
        assert_eq!(failures(&out), [(Some(1), FailureReason::FinalizeFailed)]);
        assert_eq!(aborts(&out), [(1, task(0, 0), None), (1, task(1, 0), None)]);
        assert_eq!(job_failures(&out), [true], "it counts");
        let count = if is_outcome_known { 1 } else { 0 };
        assert_eq!(discarded(&out).len(), count);
        assert_eq!(discarded_states(&out).len(), 2 * count);
        assert_eq!(triggers(&rig.checkpoint()), [(2, task(0, 0))]);
    }
}

#[test]
fn cc_15_a_trigger_that_reaches_no_task_fails_the_checkpoint_at_once() {
    let mut rig = Rig::default(pair());
    rig.checkpoint();
    let out = rig.decline_for(1, task(0, 0), FailureReason::DeclinedTaskClosing);
    assert_eq!(failures(&out), [(Some(1), FailureReason::DeclinedTaskClosing)]);
    assert_eq!(rig.pending(), [] as [u64; 0]);
}

#[test]
fn cc_16_the_trigger_of_a_second_savepoint_waits_for_the_first_ones_acknowledgement() {
    let mut rig = Rig::default(pair());
    rig.savepoint();
    rig.ack(1, task(0, 0));
    assert_eq!(grants(&rig.finish(task(0, 0))), [task(0, 0)]);
    let out = rig.savepoint();
    assert_eq!(rig.awaited(2), [task(1, 0)]);
    assert_eq!(triggers(&out), [], "the barrier of 1 may still be unread in its channel");
    let out = rig.ack(1, task(1, 0));
    assert_eq!(triggers(&out), [(2, task(1, 0))]);
    assert_eq!(outcomes(&rig.stored(1)), [Outcome::Completed { checkpoint: id(1) }]);
    assert_eq!(outcomes(&rig.complete(2)), [Outcome::Completed { checkpoint: id(2) }]);
}

#[test]
fn cc_16_a_held_back_trigger_is_not_acted_upon() {
    let mut rig = Rig::default(pair());
    rig.savepoint();
    rig.ack(1, task(0, 0));
    rig.finish(task(0, 0));
    rig.savepoint();
    let out = rig.finish(task(1, 0));
    let seen = out.iter().find_map(|output| match output {
        Output::PermitHold { pending, .. } => Some(
            pending.iter().map(|held| (held.checkpoint.0, held.is_triggered)).collect::<Vec<_>>(),
        ),
        _ => None,
    });
    assert_eq!(seen, Some(vec![(1, false), (2, false)]));
}

#[test]
fn cc_17_a_permit_asked_right_after_the_plan_is_held_and_one_before_it_changes_the_plan() {
    let mut rig = Rig::default(pair());
    rig.is_prompt = false;
    rig.checkpoint();
    assert_eq!(grants(&rig.finish(task(0, 0))), [task(0, 0)], "no plan has been made");
    let out = rig.send(Input::IdReserved { below: id(9) });
    assert_eq!(triggers(&out), [(1, task(1, 0))]);
    assert_eq!(grants(&rig.finish(task(1, 0))), [], "the plan counts from its computation");
    assert_eq!(grants(&rig.ack(1, task(1, 0))), [task(1, 0)]);
}

#[test]
fn messages_of_an_old_attempt_change_nothing() {
    let mut rig = Rig::default(pair());
    rig.state(
        crate::id::AttemptId { attempt: crate::id::Attempt(1), ..task(0, 0) },
        TaskState::Running,
    );
    assert_eq!(rig.finish(task(0, 0)), []);
    rig.state(task(0, 0), TaskState::Failed);
    rig.checkpoint();
    assert_eq!(rig.decline(1, task(0, 0)), []);
    assert_eq!(rig.pending(), [1]);
}

#[test]
fn shutdown_ends_everything_and_takes_nothing_new() {
    let mut rig = Rig::default(pair());
    rig.checkpoint();
    rig.checkpoint();
    let out = rig.send(Input::Shutdown);
    let expected = [FailureReason::CoordinatorShutdown; 2];
    assert!(failures(&out).into_iter().map(|failure| failure.1).eq(expected));
    assert_eq!(outcomes(&rig.checkpoint()).len(), 1);
    assert_eq!(rig.coordinator.deadline(), None);
}

#[test]
fn a_savepoint_waits_for_an_unaligned_checkpoint_to_end() {
    let mode = CheckpointMode::ExactlyOnceUnaligned { aligned_timeout: None };
    let mut rig = Rig::new(CoordinatorConfig { mode, ..CoordinatorConfig::default() }, pair());
    rig.checkpoint();
    assert_eq!(triggers(&rig.savepoint()), []);
    assert_eq!(triggers(&rig.complete(1)), [(2, task(0, 0))]);
}

#[test]
fn a_failure_after_the_grant_takes_the_permit_back() {
    let mut rig = Rig::default(pair());
    rig.finish(task(0, 0));
    rig.state(task(0, 0), TaskState::Failed);
    let reason = FailureReason::NotAllRequiredTasksRunning;
    assert_eq!(failures(&rig.checkpoint()), [(None, reason)]);
}

#[test]
fn a_task_that_is_being_cancelled_gets_no_permit() {
    let mut rig = Rig::default(pair());
    rig.send(Input::Failover { tasks: vec![task(0, 0).subtask] });
    assert_eq!(rig.finish(task(0, 0)), []);
}
