//! K: faults that other engines had, and P: reports of their users, each as the rule that prevents
//! it here.

use std::collections::BTreeMap;
use std::time::Duration;

use super::rig::*;
use crate::clock::Timestamp;
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::{Ack, Input, Outcome, Output, Restored};
use crate::control::checkpoint::options::CheckpointMode;
use crate::control::checkpoint::tasks::TaskState;
use crate::control::checkpoint::topology::Topology;
use crate::id::{Attempt, AttemptId, CheckpointId};

fn pair() -> Topology {
    topology(&[1, 1], &[(0, 1, AllToAll)])
}

/// The job restarts; the tasks run again as attempt 1.
fn restart(rig: &mut Rig, checkpoint: Option<CheckpointId>) -> Vec<Output<State>> {
    let subtasks = [task(0, 0).subtask, task(1, 0).subtask];
    let mut out = rig.send(Input::Failover { tasks: subtasks.to_vec() });
    let tasks = subtasks.map(|subtask| AttemptId { subtask, attempt: Attempt(1) }).to_vec();
    let (left_out, contributions) = (Vec::new(), BTreeMap::new());
    let restored = Restored { checkpoint, tasks: tasks.clone(), left_out, contributions };
    out.extend(rig.send(Input::Restored(restored)));
    for task in tasks {
        out.extend(rig.state(task, TaskState::Running));
    }
    out
}

/// A plan counted failed tasks as finished and awaited too few.
#[test]
fn k03_no_checkpoint_is_planned_while_a_task_has_failed() {
    let mut rig = Rig::default(pair());
    for state in [TaskState::Failed, TaskState::Canceled, TaskState::Canceling] {
        rig.state(task(0, 0), state);
        let reason = FailureReason::NotAllRequiredTasksRunning;
        assert_eq!(outcomes(&rig.checkpoint()), [Outcome::Failed { checkpoint: None, reason }]);
    }
}

/// A savepoint failed because a task finished between plan and trigger.
#[test]
fn k04_a_savepoint_survives_tasks_that_end_while_it_is_triggered() {
    let mut rig = Rig::default(pair());
    rig.savepoint();
    rig.finish(task(0, 0));
    rig.finish(task(1, 0));
    let out = rig.complete(1);
    assert_eq!(outcomes(&out), [Outcome::Completed { checkpoint: id(1) }]);
}

/// A trigger for a task that was gone was acknowledged by its worker, and the checkpoint hung until
/// its timeout.
#[test]
fn k05_a_declined_trigger_ends_the_checkpoint_without_any_time_passing() {
    let mut rig = Rig::default(pair());
    rig.checkpoint();
    rig.decline_for(1, task(0, 0), FailureReason::DeclinedTaskNotReady);
    assert_eq!(rig.pending(), [] as [u64; 0]);
}

/// Failed trigger messages were ignored, and the checkpoint stayed pending.
#[test]
fn k06_the_first_failed_trigger_aborts() {
    let mut rig = Rig::default(topology(&[3], &[]));
    rig.checkpoint();
    rig.ack(1, task(0, 0));
    let out = rig.decline_for(1, task(0, 2), FailureReason::TaskCheckpointFailure);
    assert_eq!(failures(&out), [(Some(1), FailureReason::TaskCheckpointFailure)]);
    assert_eq!(rig.decline_for(1, task(0, 1), FailureReason::TaskCheckpointFailure), []);
}

/// Duplicates after a failed stop: the job restarted from its last checkpoint after parts of the
/// savepoint were committed.
#[test]
fn k12_after_the_stop_savepoint_no_failure_allows_a_restart() {
    let mut rig = Rig::default(pair());
    rig.send(Input::Stop {
        request: crate::control::checkpoint::request::RequestId(1),
        is_drain: true,
    });
    rig.complete(1);
    assert_eq!(job_failures(&rig.state(task(0, 0), TaskState::Failed)), [false]);
    assert_eq!(job_failures(&rig.state(task(1, 0), TaskState::Failed)), [] as [bool; 0]);
}

/// Finalization took the state of an operator's half on the control thread of a finished vertex for
/// an error.
#[test]
fn k14_coordinator_state_of_a_finished_vertex_is_no_error() {
    let mut rig = Rig::default(topology(&[1, 1], &[]));
    rig.finish(task(0, 0));
    rig.checkpoint();
    let (checkpoint, operator) = (id(1), "v0".to_owned());
    rig.send(Input::CoordinatorState { checkpoint, operator, state: list("enumerator") });
    let out = rig.complete(1);
    assert_eq!(outcomes(&out), [Outcome::Completed { checkpoint: id(1) }]);
}

/// The control process crashed when a task that had reported its end restarted.
#[test]
fn k15_a_restart_takes_back_every_report_of_the_end() {
    let mut rig = Rig::default(pair());
    rig.end(task(0, 0));
    rig.end(task(1, 0));
    restart(&mut rig, None);
    assert_eq!(rig.coordinator.deadline(), None, "nothing is retried for the old attempts");
    assert_eq!(rig.pending(), [] as [u64; 0]);
    assert!(rig.coordinator.tasks().iter().all(|(_, task)| !task.is_at_end_of_data));
}

/// An event for a source that had finished failed the job.
#[test]
fn k16_a_finished_task_is_sent_nothing() {
    let mut rig = Rig::default(pair());
    rig.checkpoint();
    rig.ack(1, task(0, 0));
    rig.finish(task(0, 0));
    let out = rig.complete(1);
    assert_eq!(completions(&out), [(1, task(1, 0))]);
    rig.checkpoint();
    let out = rig.decline(2, task(1, 0));
    assert_eq!(aborts(&out), [(2, task(1, 0), Some(1))]);
}

/// The channel state of one checkpoint went to the file of the next.
#[test]
fn k26_unaligned_checkpoints_never_overlap() {
    let mode = CheckpointMode::ExactlyOnceUnaligned { aligned_timeout: None };
    let config = CoordinatorConfig { mode, max_concurrent: 2, ..CoordinatorConfig::default() };
    let error = config.check().unwrap_err();
    assert!(error.to_string().contains("checkpoint.max-concurrent"));
    let mut rig = Rig::new(CoordinatorConfig { max_concurrent: 1, ..config }, pair());
    rig.checkpoint();
    rig.checkpoint();
    rig.savepoint();
    assert_eq!(rig.pending(), [1]);
}

/// A bounded job waited for a whole interval at its end.
#[test]
fn k40_the_end_of_a_bounded_job_waits_for_no_interval() {
    let mut rig = Rig::default(topology(&[3], &[]));
    rig.end(task(0, 0));
    rig.end(task(0, 1));
    assert_eq!(triggers(&rig.end(task(0, 2))).len(), 3);
}

/// As long as only part of a vertex with union state had ended, every checkpoint failed.
#[test]
fn k44_checkpoints_go_on_while_part_of_a_vertex_with_union_state_has_ended() {
    let mut rig = Rig::default(topology(&[2], &[]));
    rig.finish(task(0, 0));
    for checkpoint in 1..=5 {
        rig.checkpoint();
        let operators = vec![Some(union("state"))];
        rig.send(Input::Ack(Ack { operators, ..ack(checkpoint, task(0, 1)) }));
        assert_eq!(completions(&rig.stored(checkpoint)).len(), 1);
    }
}

#[test]
fn p10_barriers_never_pile_up_beyond_the_concurrent_ones() {
    let second = Duration::from_secs(1);
    for max_concurrent in [1, 3] {
        let config = CoordinatorConfig {
            interval: Some(second),
            max_concurrent,
            ..CoordinatorConfig::default()
        };
        let mut rig = Rig::new(config, pair());
        let mut started = 0;
        for _ in 0..100 {
            started += triggers(&rig.pass(second)).len();
            assert!(rig.pending().len() <= max_concurrent);
        }
        // The source has acknowledged none, so one trigger is with it and the others are held back.
        assert_eq!(started, 1);
        let oldest = rig.pending()[0];
        rig.complete(oldest);
        assert_eq!(rig.pending().len(), max_concurrent, "one request was waiting, not a hundred");
        let newest = rig.pending()[max_concurrent - 1];
        for pending in rig.pending() {
            rig.complete(pending);
        }
        assert!(rig.pending().iter().all(|&pending| pending > newest) && rig.pending().is_empty());
    }
}

#[test]
fn p14_a_completion_that_crosses_a_restart_never_drops_what_is_being_restored() {
    let config = CoordinatorConfig { num_retained: 1, ..CoordinatorConfig::default() };
    let mut rig = Rig::new(config, pair());
    rig.now = Timestamp::from_millis(1);
    rig.checkpoint();
    rig.complete(1);
    rig.checkpoint();
    rig.ack_all_with(|task| Ack { operators: vec![Some(keyed("two"))], ..ack(2, task) }, 2);
    rig.state(task(0, 0), TaskState::Failed);
    assert!(rig.coordinator.is_storing(), "a restart can wait for the store");
    // It does not wait: the tasks are restored from 1.
    let latest = rig.coordinator.retained().latest();
    restart(&mut rig, latest);
    let out = rig.stored(2);
    assert_eq!(discarded(&out), [2]);
    assert_eq!(discarded_states(&out), ["two", "two"]);
    assert_eq!(completions(&out), []);
    assert_eq!(rig.coordinator.retained().latest(), Some(id(1)));
}

#[test]
fn p14_a_restart_that_waits_for_the_store_uses_the_newer_checkpoint() {
    let config = CoordinatorConfig { num_retained: 1, ..CoordinatorConfig::default() };
    let mut rig = Rig::new(config, pair());
    rig.checkpoint();
    rig.complete(1);
    rig.checkpoint();
    rig.ack_all(2);
    rig.send(Input::Failover { tasks: vec![task(0, 0).subtask, task(1, 0).subtask] });
    assert!(rig.coordinator.is_storing());
    let out = rig.stored(2);
    assert_eq!(rig.coordinator.retained().latest(), Some(id(2)));
    assert_eq!(discarded(&out), [1]);
    assert_eq!(completions(&out), [(2, task(0, 0)), (2, task(1, 0))]);
}
