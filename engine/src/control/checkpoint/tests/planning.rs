//! CP: the plan.

use std::collections::BTreeSet;

use super::rig::*;
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::Outcome;
use crate::control::checkpoint::plan::Plan;
use crate::control::checkpoint::tasks::{TaskState, Tasks};
use crate::control::checkpoint::topology::Topology;
use crate::id::{Attempt, AttemptId, SubtaskId, VertexId};

/// All tasks run, but for these, which have finished.
fn tasks(topology: &Topology, finished: &[(u32, &[u32])]) -> Tasks {
    let mut tasks = Tasks::new(topology);
    for subtask in topology.subtasks() {
        tasks.report(AttemptId { subtask, attempt: Attempt(0) }, TaskState::Running);
    }
    for &(vertex, indices) in finished {
        for &index in indices {
            tasks.report(task(vertex, index), TaskState::Finished);
        }
    }
    tasks
}

fn plan(topology: &Topology, finished: &[(u32, &[u32])]) -> Plan {
    Plan::calculate(topology, &tasks(topology, finished), true).unwrap()
}

/// The triggered tasks as (vertex, index).
fn triggered(plan: &Plan) -> Vec<(u32, u32)> {
    plan.to_trigger.iter().map(|task| (task.subtask.vertex.0, task.subtask.index)).collect()
}

fn vertices(ids: &[u32]) -> BTreeSet<VertexId> {
    ids.iter().copied().map(VertexId).collect()
}

#[test]
fn cp_01_all_running_triggers_sources_and_waits_for_all() {
    let topology =
        topology(&[3, 4, 5, 6], &[(0, 2, AllToAll), (1, 2, Pointwise), (2, 3, AllToAll)]);
    let plan = plan(&topology, &[]);
    let expected = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)];
    assert_eq!(triggered(&plan), expected);
    assert_eq!(plan.to_wait.len(), 18);
    assert!(plan.finished.is_empty() && plan.fully_finished.is_empty());
}

#[test]
fn cp_02_a_running_source_task_keeps_an_all_to_all_consumer_untriggered() {
    let topology = topology(&[3, 4], &[(0, 1, AllToAll)]);
    let plan = plan(&topology, &[(0, &[0, 1])]);
    assert_eq!(triggered(&plan), [(0, 2)]);
    assert_eq!(plan.to_wait, [task(0, 2), task(1, 0), task(1, 1), task(1, 2), task(1, 3)]);
    assert!(plan.finished.iter().eq(&[SubtaskId::new(0, 0), SubtaskId::new(0, 1)]));
}

#[test]
fn cp_03_pointwise_consumers_of_finished_tasks_are_triggered() {
    let topology = topology(&[4, 4], &[(0, 1, Pointwise)]);
    let plan = plan(&topology, &[(0, &[0, 1])]);
    assert_eq!(triggered(&plan), [(0, 2), (0, 3), (1, 0), (1, 1)]);
}

#[test]
fn cp_04_a_finished_consumer_is_not_triggered() {
    let topology = topology(&[4, 4], &[(0, 1, Pointwise)]);
    let plan = plan(&topology, &[(0, &[0, 1]), (1, &[0])]);
    assert_eq!(triggered(&plan), [(0, 2), (0, 3), (1, 1)]);
}

#[test]
fn cp_05_one_finished_input_of_three_triggers_nobody_behind_it() {
    let edges = [(0, 3, AllToAll), (1, 3, Pointwise), (2, 3, Pointwise)];
    let topology = topology(&[3, 5, 5, 5], &edges);
    let finished: [(u32, &[u32]); 4] = [(0, &[0, 1, 2]), (1, &[0, 2, 3]), (2, &[2, 4]), (3, &[2])];
    let plan = plan(&topology, &finished);
    assert_eq!(triggered(&plan), [(1, 1), (1, 4), (2, 0), (2, 1), (2, 3)]);
    assert_eq!(plan.fully_finished, vertices(&[0]));
}

#[test]
fn cp_06_several_layers() {
    let edges = [
        (0, 2, Pointwise),
        (0, 3, Pointwise),
        (1, 2, AllToAll),
        (1, 3, Pointwise),
        (2, 4, Pointwise),
        (3, 4, AllToAll),
    ];
    let topology = topology(&[16; 5], &edges);
    let all: Vec<_> = (0..16).collect();
    let plan = plan(&topology, &[(0, &[0, 1, 2, 3]), (1, &all), (2, &[0, 1])]);
    let expected: BTreeSet<_> = (4..16)
        .map(|index| (0, index))
        .chain([(2, 2), (2, 3), (3, 0), (3, 1), (3, 2), (3, 3)])
        .collect();
    assert_eq!(triggered(&plan).into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(plan.fully_finished, vertices(&[1]));
}

#[test]
fn cp_07_a_task_in_any_other_state_refuses_the_plan_and_uses_up_no_id() {
    let states = [
        TaskState::Created,
        TaskState::Scheduled,
        TaskState::Deploying,
        TaskState::Initializing,
        TaskState::Canceling,
        TaskState::Canceled,
        TaskState::Failed,
    ];
    for state in states {
        for vertex in [0, 1] {
            let mut rig = Rig::default(topology(&[1, 1], &[(0, 1, AllToAll)]));
            rig.state(task(vertex, 0), state);
            let out = rig.checkpoint();
            assert_eq!(failures(&out), [(None, FailureReason::NotAllRequiredTasksRunning)]);
            assert_eq!(rig.pending(), [] as [u64; 0]);
            rig.state(task(vertex, 0), TaskState::Running);
            assert_eq!(triggers(&rig.checkpoint()), [(1, task(0, 0))], "{state:?} took an id");
        }
    }
}

#[test]
fn cp_08_failed_and_cancelled_tasks_are_not_finished() {
    for state in [TaskState::Failed, TaskState::Canceled] {
        let topology = topology(&[2, 1], &[(0, 1, AllToAll)]);
        let mut tasks = tasks(&topology, &[]);
        tasks.report(task(0, 1), state);
        let refusal = Plan::calculate(&topology, &tasks, true).unwrap_err();
        assert_eq!(refusal.task, Some((SubtaskId::new(0, 1), state)));
        assert!(!tasks.get(SubtaskId::new(0, 1)).is_finished());
    }
}

#[test]
fn cp_09_with_checkpoints_after_finish_off_a_finished_source_refuses() {
    let config = CoordinatorConfig { after_finish: false, ..CoordinatorConfig::default() };
    let mut rig = Rig::new(config, topology(&[2, 1], &[(0, 1, AllToAll)]));
    assert_eq!(grants(&rig.finish(task(0, 0))), [task(0, 0)]);
    let out = rig.checkpoint();
    assert_eq!(failures(&out), [(None, FailureReason::NotAllRequiredTasksRunning)]);
    assert_eq!(rig.pending(), [] as [u64; 0]);
}

#[test]
fn cp_10_finished_tasks_count_as_acknowledged_at_once() {
    let mut rig = Rig::default(topology(&[3, 3], &[]));
    for finished in [task(0, 0), task(0, 1), task(1, 1)] {
        rig.finish(finished);
    }
    rig.checkpoint();
    assert_eq!(rig.coordinator.progress(id(1)), Some((3, 6)));
}

#[test]
fn cp_11_with_all_finished_a_request_is_refused() {
    let mut rig = Rig::default(topology(&[1, 1], &[(0, 1, AllToAll)]));
    rig.finish(task(0, 0));
    rig.finish(task(1, 0));
    let reason = FailureReason::NotAllRequiredTasksRunning;
    assert_eq!(outcomes(&rig.checkpoint()), [Outcome::Failed { checkpoint: None, reason }]);
    assert_eq!(rig.pending(), [] as [u64; 0]);
}

#[test]
fn cp_12_random_plans_trigger_exactly_the_tasks_without_running_producers_and_reach_all() {
    let mut random = Random(12);
    for _ in 0..3000 {
        let topology = random_topology(&mut random);
        let (tasks, running) = random_tasks(&mut random, &topology);
        let Ok(plan) = Plan::calculate(&topology, &tasks, true) else {
            assert!(running.is_empty());
            continue;
        };
        let waited: BTreeSet<_> = plan.to_wait.iter().map(|task| task.subtask).collect();
        assert_eq!(waited, running);
        let mut reached: BTreeSet<_> = plan.to_trigger.iter().map(|task| task.subtask).collect();
        assert_eq!(reached, triggered_slowly(&topology, &running));
        for subtask in topology.subtasks().filter(|subtask| running.contains(subtask)) {
            if topology.channels(subtask).any(|(_, producer)| reached.contains(&producer)) {
                reached.insert(subtask);
            }
        }
        assert_eq!(reached, running, "every running task gets a trigger or a barrier");
    }
}

#[test]
fn cp_13_the_shortcut_over_vertices_changes_no_plan() {
    let topology = topology(&[3, 3, 3], &[(0, 1, Pointwise), (1, 2, AllToAll)]);
    for finished in 0..8_u32 {
        let indices: Vec<_> = (0..3).filter(|index| finished & (1 << index) != 0).collect();
        let tasks = tasks(&topology, &[(0, &indices)]);
        let running: BTreeSet<_> = tasks
            .iter()
            .filter(|(_, task)| task.is_running())
            .map(|(subtask, _)| subtask)
            .collect();
        let plan = Plan::calculate(&topology, &tasks, true).unwrap();
        let triggered: BTreeSet<_> = plan.to_trigger.iter().map(|task| task.subtask).collect();
        assert_eq!(triggered, triggered_slowly(&topology, &running));
    }
}

/// The definition, task by task.
fn triggered_slowly(topology: &Topology, running: &BTreeSet<SubtaskId>) -> BTreeSet<SubtaskId> {
    let is_first = |subtask: &SubtaskId| {
        !topology.channels(*subtask).any(|(_, producer)| running.contains(&producer))
    };
    running.iter().copied().filter(is_first).collect()
}

fn random_topology(random: &mut Random) -> Topology {
    let count = 1 + random.below(6);
    let parallelism: Vec<_> = (0..count).map(|_| 1 + random.below(7)).collect();
    let mut edges = Vec::new();
    for to in 1..count {
        for from in 0..to {
            match random.below(4) {
                0 => edges.push((from, to, AllToAll)),
                1 => edges.push((from, to, Pointwise)),
                _ => {}
            }
        }
    }
    topology(&parallelism, &edges)
}

/// Some have finished, each after all of its producers.
fn random_tasks(random: &mut Random, topology: &Topology) -> (Tasks, BTreeSet<SubtaskId>) {
    let mut tasks = tasks(topology, &[]);
    let mut running = BTreeSet::new();
    for subtask in topology.subtasks() {
        let is_fed = topology.channels(subtask).any(|(_, producer)| running.contains(&producer));
        if is_fed || random.below(5) < 2 {
            running.insert(subtask);
        } else {
            tasks.report(AttemptId { subtask, attempt: Attempt(0) }, TaskState::Finished);
        }
    }
    (tasks, running)
}
