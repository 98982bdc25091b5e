//! Which task gets what after a restore.

use std::collections::{BTreeMap, BTreeSet};

use super::rig::*;
use crate::clock::Timestamp;
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::message::{Ack, Input, Restored};
use crate::control::checkpoint::metadata::{
    Metadata, OperatorEntry, Progress, SubtaskEntry, SubtaskState,
};
use crate::control::checkpoint::options::SnapshotKind;
use crate::control::checkpoint::restore::{
    InFlightSource, KeyedSource, ListSource, Restoration, RestoreError, TaskRestore, key_groups,
};
use crate::control::checkpoint::tasks::TaskState;
use crate::id::{Attempt, AttemptId, ChannelIndex};

fn stored(state: State) -> SubtaskState<State> {
    SubtaskState { state: Some(state), channels: None, ended_inputs: Vec::new(), reference: id(1) }
}

fn running(state: State) -> Option<SubtaskEntry<State>> {
    Some(SubtaskEntry::Running(stored(state)))
}

fn operators_finished(state: State) -> Option<SubtaskEntry<State>> {
    Some(SubtaskEntry::OperatorsFinished(stored(state)))
}

const FINISHED: Option<SubtaskEntry<State>> = Some(SubtaskEntry::Finished { union: None });

/// Operators "v0", "v1", ... with these entries.
fn metadata(operators: Vec<Vec<Option<SubtaskEntry<State>>>>) -> Metadata<State> {
    let entry = |entries: Vec<Option<SubtaskEntry<State>>>| OperatorEntry {
        parallelism: u32::try_from(entries.len()).unwrap(),
        max_parallelism: 128,
        progress: Progress::Subtasks {
            entries: (0..).zip(entries).filter_map(|(index, it)| Some((index, it?))).collect(),
            coordinator: None,
        },
    };
    let operators =
        (0..).zip(operators).map(|(index, entries)| (format!("v{index}"), entry(entries)));
    let (timestamp, kind) = (Timestamp::ZERO, SnapshotKind::Checkpoint);
    Metadata {
        checkpoint: id(1),
        timestamp,
        kind,
        operators: operators.collect(),
        pinned_edges: BTreeSet::new(),
    }
}

fn restored(restoration: &Restoration<State>, vertex: u32, index: u32) -> &TaskRestore<State> {
    &restoration.tasks[&task(vertex, index).subtask]
}

#[test]
fn dp_06_broadcast_state_is_never_taken_from_a_finished_subtask() {
    let metadata = metadata(vec![vec![FINISHED, running(broadcast("running"))]]);
    let restoration = Restoration::new(&topology(&[3], &[]), &metadata).unwrap();
    for index in 0..3 {
        let operator = &restored(&restoration, 0, index).operators[0];
        assert_eq!(operator.broadcast, Some(broadcast("running")));
    }
}

#[test]
fn key_groups_cover_the_range_once() {
    for parallelism in 1..40 {
        let mut next = 0;
        for index in 0..parallelism {
            let range = key_groups(index, parallelism, 128);
            assert_eq!(range.start, next);
            // The same owner as `group * parallelism / max_parallelism`.
            assert!(range.clone().all(|group| group * parallelism / 128 == index));
            next = range.end;
        }
        assert_eq!(next, 128);
    }
}

#[test]
fn with_one_parallelism_state_goes_to_the_subtask_that_had_it() {
    let metadata = metadata(vec![vec![running(keyed("a")), running(keyed("b"))]]);
    let restoration = Restoration::new(&topology(&[2], &[]), &metadata).unwrap();
    let keyed_1 = &restored(&restoration, 0, 1).operators[0].keyed;
    assert_eq!(keyed_1, &[KeyedSource { state: keyed("b"), groups: 64..128 }]);
}

#[test]
fn with_another_parallelism_keyed_state_goes_by_key_group() {
    let metadata =
        metadata(vec![vec![running(keyed("a")), running(keyed("b")), running(keyed("c"))]]);
    let restoration = Restoration::new(&topology(&[2], &[]), &metadata).unwrap();
    let source = |name, groups| KeyedSource { state: keyed(name), groups };
    let expected =
        [[source("a", 0..43), source("b", 43..64)], [source("b", 64..86), source("c", 86..128)]];
    for (index, expected) in (0..).zip(expected) {
        assert_eq!(restored(&restoration, 0, index).operators[0].keyed, expected);
    }
}

#[test]
fn with_another_parallelism_lists_of_unfinished_subtasks_are_dealt_out_to_all() {
    let metadata = metadata(vec![vec![FINISHED, running(list("b")), running(list("c"))]]);
    let restoration = Restoration::new(&topology(&[2], &[]), &metadata).unwrap();
    assert!(restoration.left_out.is_empty(), "all new subtasks run");
    for index in 0..2 {
        let sources = vec![list("b"), list("c")];
        let expected = ListSource::Dealt { sources, index, of: 2 };
        assert_eq!(restored(&restoration, 0, index).operators[0].list, expected);
    }
}

#[test]
fn with_one_parallelism_lists_of_a_partly_finished_vertex_stay_where_they_were() {
    let metadata = metadata(vec![vec![FINISHED, running(list("b"))]]);
    let restoration = Restoration::new(&topology(&[2], &[]), &metadata).unwrap();
    assert!(restoration.left_out.iter().eq(&[task(0, 0).subtask]));
    let expected = ListSource::Own(Some(list("b")));
    assert_eq!(restored(&restoration, 0, 1).operators[0].list, expected);
}

#[test]
fn keyed_state_of_another_max_parallelism_is_refused_by_name() {
    let mut metadata = metadata(vec![vec![running(keyed("a"))]]);
    metadata.operators.get_mut("v0").unwrap().max_parallelism = 64;
    let error = Restoration::new(&topology(&[1], &[]), &metadata).unwrap_err();
    assert_eq!(error, RestoreError::MaxParallelism { operator: "v0".to_owned(), was: 64, is: 128 });
}

#[test]
fn channels_of_tasks_that_are_left_out_are_born_ended() {
    let metadata = metadata(vec![vec![FINISHED, running(keyed("b"))], vec![running(keyed("c"))]]);
    let graph = topology(&[2, 1], &[(0, 1, AllToAll)]);
    let restoration = Restoration::new(&graph, &metadata).unwrap();
    assert_eq!(restored(&restoration, 1, 0).born_ended, [ChannelIndex(0)]);
}

#[test]
fn a_finished_task_that_would_be_fed_again_after_a_rescale_runs_again() {
    // Pointwise; the producers are rescaled, so each of them may send to the finished consumer.
    let metadata =
        metadata(vec![vec![FINISHED, running(list("b"))], vec![FINISHED, running(keyed("d"))]]);
    let graph = topology(&[1, 2], &[(0, 1, Pointwise)]);
    let restoration = Restoration::new(&graph, &metadata).unwrap();
    assert!(restoration.left_out.is_empty());
}

#[test]
fn a_task_with_finished_operators_only_commits_unless_it_is_fed_again() {
    let before = vec![operators_finished(list("a")), running(list("b"))];
    let after = vec![operators_finished(list("c")), running(list("d"))];
    let metadata = metadata(vec![before, after]);
    let same = topology(&[2, 2], &[(0, 1, Pointwise)]);
    let restoration = Restoration::new(&same, &metadata).unwrap();
    assert!(restored(&restoration, 0, 0).operators_finished);
    assert!(restored(&restoration, 1, 0).operators_finished);
    assert!(!restored(&restoration, 1, 1).operators_finished);
    let rescaled = topology(&[1, 2], &[(0, 1, Pointwise)]);
    let restoration = Restoration::new(&rescaled, &metadata).unwrap();
    assert!(!restored(&restoration, 1, 0).operators_finished);
}

#[test]
fn ft_22_ended_inputs_are_restored_and_after_a_rescale_only_if_ended_for_all() {
    let with_ended = |ended: &[u32]| {
        let ended_inputs = ended.to_vec();
        Some(SubtaskEntry::Running(SubtaskState { ended_inputs, ..stored(keyed("a")) }))
    };
    let metadata = metadata(vec![vec![with_ended(&[0, 1]), with_ended(&[1])]]);
    let same = Restoration::new(&topology(&[2], &[]), &metadata).unwrap();
    assert_eq!(restored(&same, 0, 0).ended_inputs, [0, 1]);
    let rescaled = Restoration::new(&topology(&[3], &[]), &metadata).unwrap();
    assert_eq!(restored(&rescaled, 0, 0).ended_inputs, [1]);
}

#[test]
fn records_in_flight_stay_with_their_subtask_until_a_parallelism_changes() {
    let with_channels = |name| {
        let channels = Some(list(name));
        Some(SubtaskEntry::Running(SubtaskState { channels, ..stored(keyed("k")) }))
    };
    let metadata = metadata(vec![
        vec![running(list("s")), running(list("s"))],
        vec![with_channels("a"), with_channels("b")],
    ]);
    let in_flight = |parallelism: &[u32]| {
        let graph = topology(parallelism, &[(0, 1, AllToAll)]);
        let restoration = Restoration::new(&graph, &metadata).unwrap();
        restored(&restoration, 1, 1).in_flight.clone()
    };
    assert_eq!(in_flight(&[2, 2]), InFlightSource::Own(Some(list("b"))));
    let all = InFlightSource::Rescaled(vec![(0, list("a")), (1, list("b"))]);
    assert_eq!(in_flight(&[2, 3]), all);
    assert_eq!(in_flight(&[1, 2]), all, "the channels have changed");
}

#[test]
fn ft_28_a_task_that_finished_after_the_restored_checkpoint_runs_again() {
    let graph = topology(&[2], &[]);
    let mut rig = Rig::default(graph.clone());
    rig.checkpoint();
    let both = |task| Ack { operators: vec![Some(list("state"))], ..ack(1, task) };
    let written = super::rig::metadata(rig.ack_all_with(both, 1)).remove(0);
    rig.stored(1);
    assert_eq!(grants(&rig.finish(task(0, 0))), [task(0, 0)]);
    rig.state(task(0, 0), TaskState::Finished);
    rig.state(task(0, 1), TaskState::Failed);
    let restoration = Restoration::new(&graph, &written).unwrap();
    assert!(restoration.left_out.is_empty());
    let attempts: Vec<_> = restoration
        .tasks
        .keys()
        .map(|&subtask| AttemptId { subtask, attempt: Attempt(1) })
        .collect();
    rig.send(Input::Failover { tasks: restoration.tasks.keys().copied().collect() });
    let tasks = attempts.clone();
    let (left_out, contributions) = (Vec::new(), BTreeMap::new());
    rig.send(Input::Restored(Restored { checkpoint: Some(id(1)), tasks, left_out, contributions }));
    for &attempt in &attempts {
        rig.state(attempt, TaskState::Running);
    }
    assert_eq!(triggers(&rig.checkpoint()), [(2, attempts[0]), (2, attempts[1])]);
}

#[test]
fn a_restart_without_any_checkpoint_runs_all_tasks() {
    let mut rig = Rig::new(CoordinatorConfig::default(), topology(&[2], &[]));
    rig.finish(task(0, 0));
    let subtasks = [task(0, 0).subtask, task(0, 1).subtask];
    rig.send(Input::Failover { tasks: subtasks.to_vec() });
    let tasks: Vec<_> = subtasks.map(|subtask| AttemptId { subtask, attempt: Attempt(1) }).to_vec();
    let (left_out, contributions) = (Vec::new(), BTreeMap::new());
    let all = Restored { checkpoint: None, tasks: tasks.clone(), left_out, contributions };
    rig.send(Input::Restored(all));
    for &attempt in &tasks {
        rig.state(attempt, TaskState::Running);
    }
    assert_eq!(triggers(&rig.checkpoint()).len(), 2);
}

#[test]
fn records_in_flight_on_an_edge_that_cannot_hand_them_over_keep_its_parallelism() {
    let graph = topology(&[2, 2], &[(0, 1, Pointwise)]);
    let mut rig = Rig::default(graph.clone());
    rig.checkpoint();
    let captured = |task: AttemptId| {
        let pinned_inputs = if task.subtask.vertex.0 == 1 { vec![0] } else { Vec::new() };
        Ack { pinned_inputs, ..ack(1, task) }
    };
    let mut written = super::rig::metadata(rig.ack_all_with(captured, 1)).remove(0);
    assert!(Restoration::new(&graph, &written).is_ok());
    let refusal = RestoreError::PinnedEdge { from: "v0".to_owned(), to: "v1".to_owned() };
    for parallelism in [[1, 2], [2, 3]] {
        let rescaled = topology(&parallelism, &[(0, 1, Pointwise)]);
        assert_eq!(Restoration::new(&rescaled, &written), Err(refusal.clone()));
    }
    assert_eq!(Restoration::new(&topology(&[2, 2], &[]), &written), Err(refusal));
    written.ignore_in_flight();
    assert!(Restoration::new(&topology(&[1, 2], &[(0, 1, Pointwise)]), &written).is_ok());
}
