//! The checkpoint at the end of a job, and commit stages behind each other.

use std::time::Duration;

use super::rig::*;
use crate::clock::Timestamp;
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::{Input, Restored};
use crate::control::checkpoint::metadata::Contributions;
use crate::control::checkpoint::tasks::TaskState;
use crate::id::{Attempt, AttemptId};

const HOUR: Duration = Duration::from_secs(3600);

fn hourly() -> CoordinatorConfig {
    CoordinatorConfig { interval: Some(HOUR), min_pause: HOUR, ..CoordinatorConfig::default() }
}

fn pair(config: CoordinatorConfig) -> Rig {
    Rig::new(config, topology(&[1, 1], &[(0, 1, AllToAll)]))
}

#[test]
fn cc_12_the_last_report_of_the_end_starts_a_checkpoint_at_once() {
    let mut rig = pair(hourly());
    rig.checkpoint();
    rig.complete(1);
    assert_eq!(triggers(&rig.end(task(0, 0))), [], "the sink has still something to do");
    assert_eq!(triggers(&rig.end(task(1, 0))), [(2, task(0, 0))]);
}

#[test]
fn cc_13_a_failed_one_is_retried_with_back_off_until_it_completes() {
    let mut rig = pair(CoordinatorConfig::default());
    rig.end(task(0, 0));
    rig.end(task(1, 0));
    for (attempt, wait) in [(1, 10), (2, 20), (3, 40)] {
        assert_eq!(triggers(&rig.decline(attempt, task(1, 0))), []);
        let retry_at = rig.now + Duration::from_millis(wait);
        assert_eq!(rig.coordinator.deadline(), Some(retry_at));
        let out = rig.pass(Duration::from_millis(wait));
        assert_eq!(triggers(&out), [(attempt + 1, task(0, 0))]);
    }
    rig.ack_all_with(|task| last_ack(4, task), 4);
    assert_eq!(completions(&rig.stored(4)).len(), 2);
    assert_eq!(rig.coordinator.deadline(), None, "nobody waits");
    assert_eq!(grants(&rig.finish(task(0, 0))), [task(0, 0)]);
    assert_eq!(grants(&rig.finish(task(1, 0))), [task(1, 0)]);
    assert_eq!(rig.pending(), [] as [u64; 0]);
}

#[test]
fn cc_14_a_restarted_task_has_to_report_its_end_again() {
    let mut rig = pair(hourly());
    rig.end(task(0, 0));
    let (source, sink) = (task(0, 0), task(1, 0));
    rig.state(source, TaskState::Failed);
    rig.send(Input::Failover { tasks: vec![source.subtask, sink.subtask] });
    let again = |task: AttemptId| AttemptId { attempt: Attempt(1), ..task };
    rig.send(Input::Restored(Restored {
        checkpoint: None,
        tasks: vec![again(source), again(sink)],
        left_out: Vec::new(),
        contributions: Contributions::new(),
    }));
    rig.state(again(source), TaskState::Running);
    rig.state(again(sink), TaskState::Running);
    assert_eq!(rig.end(source), [], "the old attempt says nothing more");
    assert_eq!(triggers(&rig.end(again(sink))), []);
    assert_eq!(triggers(&rig.end(again(source))), [(1, again(source))]);
}

#[test]
fn a_withdrawn_wait_starts_nothing() {
    let mut rig = pair(CoordinatorConfig::default());
    rig.end(task(0, 0));
    rig.send(Input::AwaitWithdrawn { task: task(0, 0) });
    assert_eq!(triggers(&rig.end(task(1, 0))), []);
    assert_eq!(triggers(&rig.end(task(0, 0))), [(1, task(0, 0))]);
}

#[test]
fn a_task_that_only_waits_for_its_producers_to_leave_is_not_waited_for() {
    let mut rig = pair(CoordinatorConfig::default());
    rig.send(Input::EndOfDataReached { task: task(1, 0) });
    assert_eq!(triggers(&rig.end(task(0, 0))), [(1, task(0, 0))]);
}

#[test]
fn a_report_that_crossed_the_completion_starts_nothing() {
    let mut rig = Rig::default(topology(&[1], &[]));
    rig.checkpoint();
    rig.ack_all_with(|task| last_ack(1, task), 1);
    rig.stored(1);
    rig.send(Input::EndOfDataReached { task: task(0, 0) });
    let late = Input::AwaitsCheckpoint { task: task(0, 0), since: Some(id(1)) };
    assert_eq!(rig.send(late), []);
}

#[test]
fn a_completed_checkpoint_from_before_the_end_releases_nobody() {
    let mut rig = Rig::default(topology(&[1], &[]));
    rig.checkpoint();
    rig.ack(1, task(0, 0));
    assert_eq!(rig.end(task(0, 0)), [], "the one under way may do, or not");
    assert_eq!(triggers(&rig.stored(1)), [(2, task(0, 0))]);
}

/// Source, then `stages` tasks that emit on commit and hold back their end of data until then, then
/// a sink that commits. Returns how many checkpoints it takes to end.
fn run_commit_stages(stages: u32) -> u64 {
    let last = stages + 1;
    let edges: Vec<_> = (0..last).map(|from| (from, from + 1, AllToAll)).collect();
    let mut rig = Rig::default(topology(&vec![1; last as usize + 1], &edges));
    // The source has ended; the first stage has had everything and holds back.
    let mut started = triggers(&rig.end(task(0, 0)));
    started.extend(triggers(&rig.send(Input::AwaitsCheckpoint { task: task(1, 0), since: None })));
    for stage in 1..=last {
        let checkpoint = u64::from(stage);
        assert_eq!(started.iter().map(|it| it.0).collect::<Vec<_>>(), [checkpoint]);
        // All up to this stage have finished their operators.
        rig.ack_all_with(
            |task| match task.subtask.vertex.0 <= stage {
                true => last_ack(checkpoint, task),
                false => ack(checkpoint, task),
            },
            checkpoint,
        );
        started = triggers(&rig.stored(checkpoint));
        assert_eq!(started, []);
        // Its completion lets the stage emit, pass on its end of data and leave, after the source.
        let mut out = Vec::new();
        if stage == 1 {
            out.extend(rig.finish(task(0, 0)));
        }
        out.extend(rig.send(Input::EndOfDataReached { task: task(stage, 0) }));
        out.extend(rig.finish(task(stage, 0)));
        assert!(grants(&out).contains(&task(stage, 0)));
        if stage < last {
            assert_eq!(triggers(&out), [], "the next stage has still something to do");
            out = rig.send(Input::AwaitsCheckpoint { task: task(stage + 1, 0), since: None });
            started = triggers(&out);
        } else {
            return checkpoint;
        }
    }
    unreachable!("the loop ends with the last stage")
}

#[test]
fn ft_27_three_commit_stages_take_at_most_four_checkpoints_without_any_interval() {
    assert_eq!(run_commit_stages(3), 4);
    assert_eq!(run_commit_stages(0), 1);
    assert_eq!(run_commit_stages(7), 8);
}

#[test]
fn a_task_fed_by_one_that_holds_back_is_not_waited_for() {
    let topology = topology(&[2, 2, 1], &[(0, 1, Pointwise), (1, 2, AllToAll)]);
    let mut rig = Rig::default(topology);
    rig.end(task(0, 0));
    rig.end(task(0, 1));
    let hold = |index| Input::AwaitsCheckpoint { task: task(1, index), since: None };
    assert_eq!(triggers(&rig.send(hold(0))), [], "v1[1] can still move");
    let out = rig.send(hold(1));
    assert_eq!(triggers(&out), [(1, task(0, 0)), (1, task(0, 1))], "v2[0] can't");
}

#[test]
fn a_running_source_keeps_the_final_checkpoint_away() {
    let mut rig = Rig::default(topology(&[1, 1, 1], &[(0, 2, AllToAll), (1, 2, AllToAll)]));
    assert_eq!(rig.end(task(0, 0)), []);
    assert_eq!(rig.end(task(2, 0)), []);
    assert_eq!(triggers(&rig.end(task(1, 0))).len(), 2);
}

#[test]
fn p03_a_branch_that_has_ended_holds_up_no_checkpoint_of_the_other() {
    // Two branches; the first is bounded.
    let branches = topology(&[1, 1, 1, 1], &[(0, 1, AllToAll), (2, 3, AllToAll)]);
    let interval = Some(Duration::from_secs(1));
    let mut rig =
        Rig::new(CoordinatorConfig { interval, ..CoordinatorConfig::default() }, branches);
    rig.now = Timestamp::from_millis(500);
    rig.checkpoint();
    let done = rig.pending()[0];
    // The bounded branch ends while a checkpoint waits for it: it acknowledges, and only then may
    // leave.
    rig.end(task(0, 0));
    rig.end(task(1, 0));
    assert_eq!(grants(&rig.finish(task(0, 0))), []);
    for ended in [task(0, 0), task(1, 0)] {
        rig.send(Input::Ack(last_ack(done, ended)));
    }
    assert_eq!(completions(&rig.complete(done)).len(), 3, "the source has left by its permit");
    assert_eq!(grants(&rig.finish(task(1, 0))), [task(1, 0)]);
    // The other goes on, and so do checkpoints.
    let out = rig.pass(Duration::from_secs(1));
    let next = triggers(&out)[0].0;
    assert_eq!(rig.awaited(next), [task(2, 0), task(3, 0)]);
    assert_eq!(completions(&rig.complete(next)).len(), 2);
    let reasons = failures(&out);
    assert!(!reasons.iter().any(|failure| failure.1 == FailureReason::Expired));
}
