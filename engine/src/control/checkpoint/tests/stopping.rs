//! SW: stopping with a savepoint.

use std::time::Duration;

use super::rig::*;
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::{Input, Outcome, Output, StopOutcome};
use crate::control::checkpoint::options::SnapshotKind;
use crate::control::checkpoint::request::RequestId;
use crate::control::checkpoint::tasks::TaskState;
use crate::control::checkpoint::topology::{Edge, Topology, Vertex};

fn periodic() -> CoordinatorConfig {
    let interval = Some(Duration::from_secs(10));
    CoordinatorConfig { interval, tolerable_failed: Some(0), ..CoordinatorConfig::default() }
}

fn pair() -> Rig {
    Rig::new(periodic(), topology(&[1, 1], &[(0, 1, AllToAll)]))
}

fn stop(rig: &mut Rig) -> Vec<Output<State>> {
    rig.send(Input::Stop { request: RequestId(99), is_drain: false })
}

fn leave(rig: &mut Rig) -> Vec<Output<State>> {
    let mut out = Vec::new();
    for task in [task(0, 0), task(1, 0)] {
        out.extend(rig.finish(task));
        out.extend(rig.state(task, TaskState::Finished));
    }
    out
}

fn stopped(savepoint: u64) -> Outcome {
    Outcome::Stop(StopOutcome::Stopped { savepoint: id(savepoint) })
}

fn not_stopped(reason: FailureReason) -> Outcome {
    Outcome::Stop(StopOutcome::Failed { reason })
}

#[test]
fn sw_01_savepoint_complete_and_all_finished() {
    let mut rig = pair();
    assert!(rig.coordinator.is_schedule_on());
    assert_eq!(triggers(&stop(&mut rig)), [(1, task(0, 0))]);
    let out = rig.complete(1);
    assert_eq!(completions(&out), [(1, task(0, 0)), (1, task(1, 0))]);
    assert_eq!(outcomes(&out), []);
    let out = leave(&mut rig);
    assert_eq!(outcomes(&out), [stopped(1)]);
    assert_eq!(discarded(&out), [] as [u64; 0]);
    assert!(!rig.coordinator.is_schedule_on());
    assert_eq!(rig.coordinator.deadline(), None);
}

#[test]
fn what_is_pending_or_queued_is_suspended_by_a_stop() {
    let mut rig = pair();
    rig.checkpoint();
    rig.checkpoint();
    let out = stop(&mut rig);
    let reasons: Vec<_> = failures(&out);
    let suspended = FailureReason::CoordinatorSuspend;
    assert_eq!(reasons, [(None, suspended), (Some(1), suspended)]);
    assert_eq!(rig.pending(), [2]);
    assert_eq!(failures(&rig.checkpoint()), [(None, suspended)]);
}

#[test]
fn sw_02_a_failed_savepoint_fails_the_request_and_the_schedule_goes_on() {
    let mut unaffected = pair();
    stop(&mut unaffected);
    let out = unaffected.pass(Duration::from_secs(600));
    assert_eq!(outcomes(&out), [not_stopped(FailureReason::Expired)]);
    assert!(unaffected.coordinator.is_schedule_on());
    assert_eq!(job_failures(&out), [] as [bool; 0]);

    let mut failing = pair();
    stop(&mut failing);
    let out = failing.state(task(0, 0), TaskState::Failed);
    assert_eq!(outcomes(&out), [not_stopped(FailureReason::TaskFailure)]);
    assert!(failing.coordinator.is_schedule_on());

    let mut finishing = pair();
    stop(&mut finishing);
    assert_eq!(grants(&finishing.finish(task(0, 0))), []);
    let out = finishing.pass(Duration::from_secs(600));
    assert_eq!(outcomes(&out), [not_stopped(FailureReason::Expired)]);
    assert_eq!(grants(&out), [task(0, 0)]);
    assert!(finishing.coordinator.is_schedule_on());
}

#[test]
fn sw_03_a_task_that_fails_after_the_savepoint_leaves_side_effects_pending() {
    let mut rig = pair();
    stop(&mut rig);
    rig.complete(1);
    rig.finish(task(0, 0));
    rig.state(task(0, 0), TaskState::Finished);
    let out = rig.state(task(1, 0), TaskState::Failed);
    let savepoint = id(1);
    assert_eq!(outcomes(&out), [Outcome::Stop(StopOutcome::SideEffectsPending { savepoint })]);
    assert_eq!(job_failures(&out), [false], "no automatic restart");
    assert_eq!(discarded(&out), [] as [u64; 0]);
    assert_eq!(rig.coordinator.retained().latest(), Some(savepoint));
}

#[test]
fn sw_04_what_tasks_report_before_the_savepoints_outcome_is_looked_at_after_it() {
    let mut rig = pair();
    stop(&mut rig);
    rig.ack_all(1);
    assert_eq!(outcomes(&leave(&mut rig)), [], "the store has not answered");
    assert_eq!(outcomes(&rig.stored(1)), [stopped(1)]);

    let mut rig = pair();
    stop(&mut rig);
    rig.ack_all(1);
    assert_eq!(outcomes(&rig.state(task(1, 0), TaskState::Failed)), []);
    let savepoint = id(1);
    let pending = Outcome::Stop(StopOutcome::SideEffectsPending { savepoint });
    assert_eq!(outcomes(&rig.stored(1)), [pending]);
}

#[test]
fn sw_05_every_task_gets_one_savepoint_with_the_mode_in_its_options() {
    let graphs = [
        topology(&[1, 1], &[(0, 1, AllToAll)]),
        topology(&[2, 3, 4], &[(0, 2, AllToAll), (1, 2, Pointwise)]),
    ];
    for is_drain in [true, false] {
        for graph in graphs.clone() {
            let mut rig = Rig::new(periodic(), graph.clone());
            let out = rig.send(Input::Stop { request: RequestId(1), is_drain });
            let kind = SnapshotKind::StopSavepoint { is_drain };
            assert!(out.iter().all(|output| match output {
                Output::Trigger { options, .. } => options.kind() == kind,
                _ => true,
            }));
            let told = completions(&rig.complete(1));
            assert!(told.iter().all(|&(savepoint, _)| savepoint == 1));
            assert_eq!(told.len(), graph.subtasks().count());
        }
    }
}

#[test]
fn sw_06_a_declined_stop_savepoint_fails_the_job_over() {
    let mut rig = pair();
    stop(&mut rig);
    let out = rig.decline(1, task(0, 0));
    assert_eq!(outcomes(&out), [not_stopped(FailureReason::Declined)]);
    assert_eq!(job_failures(&out), [true]);
    let told: Vec<_> = aborts(&out).into_iter().map(|(_, task, _)| task).collect();
    assert_eq!(told, [task(0, 0), task(1, 0)]);
}

#[test]
fn sw_07_a_stop_after_part_of_the_graph_has_finished() {
    let mut rig = pair();
    rig.finish(task(0, 0));
    rig.state(task(0, 0), TaskState::Finished);
    assert_eq!(triggers(&stop(&mut rig)), [(1, task(1, 0))]);
    rig.complete(1);
    rig.finish(task(1, 0));
    assert_eq!(outcomes(&rig.state(task(1, 0), TaskState::Finished)), [stopped(1)]);
}

#[test]
fn sw_08_a_stop_that_meets_the_natural_end_completes_or_fails_cleanly() {
    // The source has the permit, and its end is under way: the sink alone takes the savepoint.
    let mut rig = pair();
    rig.finish(task(0, 0));
    stop(&mut rig);
    rig.complete(1);
    rig.state(task(0, 0), TaskState::Finished);
    rig.finish(task(1, 0));
    assert_eq!(outcomes(&rig.state(task(1, 0), TaskState::Finished)), [stopped(1)]);

    // The source asks when the savepoint waits for it: it is held until it has acknowledged.
    let mut rig = pair();
    stop(&mut rig);
    assert_eq!(grants(&rig.finish(task(0, 0))), []);
    assert_eq!(grants(&rig.ack(1, task(0, 0))), [task(0, 0)]);
    rig.complete(1);
    rig.state(task(0, 0), TaskState::Finished);
    rig.finish(task(1, 0));
    assert_eq!(outcomes(&rig.state(task(1, 0), TaskState::Finished)), [stopped(1)]);

    // All have gone: there is nothing to save.
    let mut rig = pair();
    leave(&mut rig);
    let out = stop(&mut rig);
    assert_eq!(outcomes(&out), [not_stopped(FailureReason::NotAllRequiredTasksRunning)]);
}

#[test]
fn sw_08_tasks_at_their_end_wait_for_the_savepoint_and_no_other_checkpoint_is_started() {
    let mut rig = pair();
    stop(&mut rig);
    assert_eq!(triggers(&rig.end(task(0, 0))), []);
    assert_eq!(triggers(&rig.end(task(1, 0))), []);
    rig.ack_all_with(|task| last_ack(1, task), 1);
    rig.stored(1);
    assert_eq!(outcomes(&leave(&mut rig)), [stopped(1)]);
}

#[test]
fn sw_09_a_job_with_a_blocking_output_is_not_stopped() {
    let edge = Edge { is_blocking: true, ..Edge::new(0, 1, AllToAll) };
    let vertices = vec![Vertex::new(0, 1), Vertex::new(1, 1)];
    let mut rig = Rig::new(periodic(), Topology::new(vertices, vec![edge]).unwrap());
    let out = stop(&mut rig);
    assert_eq!(outcomes(&out), [not_stopped(FailureReason::BlockingOutputExists)]);
    assert!(rig.coordinator.is_schedule_on());
    rig.finish(task(0, 0));
    assert_eq!(triggers(&stop(&mut rig)), [(1, task(1, 0))], "its producer has finished");
}

#[test]
fn sw_10_cancelling_the_job_cancels_the_savepoint() {
    let mut rig = pair();
    stop(&mut rig);
    let out = rig.send(Input::Cancel);
    assert_eq!(outcomes(&out), [not_stopped(FailureReason::CoordinatorShutdown)]);
    assert_eq!(rig.pending(), [] as [u64; 0]);
    assert!(!rig.coordinator.is_schedule_on());
}

#[test]
fn cancelling_after_the_savepoint_tells_that_side_effects_are_pending() {
    let mut rig = pair();
    stop(&mut rig);
    rig.complete(1);
    let savepoint = id(1);
    let pending = Outcome::Stop(StopOutcome::SideEffectsPending { savepoint });
    assert_eq!(outcomes(&rig.send(Input::Cancel)), [pending]);
}

#[test]
fn a_second_stop_is_refused() {
    let mut rig = pair();
    stop(&mut rig);
    assert_eq!(outcomes(&stop(&mut rig)), [not_stopped(FailureReason::TooManyRequests)]);
    assert_eq!(rig.pending(), [1]);
}
