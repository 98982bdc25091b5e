//! DP: what a checkpoint records.

use std::collections::{BTreeMap, BTreeSet};

use super::rig::*;
use crate::clock::Timestamp;
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::message::{Ack, Input, Restored};
use crate::control::checkpoint::metadata::{
    Metadata, OperatorEntry, Progress, StateSummary as _, SubtaskEntry, SubtaskState,
};
use crate::control::checkpoint::options::SnapshotKind;
use crate::control::checkpoint::restore::Restoration;
use crate::id::AttemptId;

fn with(ack: Ack<State>, state: State) -> Ack<State> {
    Ack { operators: vec![Some(state)], ..ack }
}

fn plain(state: Option<State>, checkpoint: u64) -> SubtaskState<State> {
    SubtaskState { state, channels: None, ended_inputs: Vec::new(), reference: id(checkpoint) }
}

fn entry(metadata: &Metadata<State>, vertex: &str, index: u32) -> Option<SubtaskEntry<State>> {
    metadata.operators[vertex].entry(index).cloned()
}

/// Two sources' tasks with union state; the first has ended, was let go by checkpoint 1 and left.
fn partly_finished() -> Rig {
    let config = CoordinatorConfig { tolerable_failed: Some(0), ..CoordinatorConfig::default() };
    let mut rig = Rig::new(config, topology(&[2], &[]));
    rig.checkpoint();
    rig.send(Input::Ack(with(last_ack(1, task(0, 0)), union("a"))));
    rig.send(Input::Ack(with(ack(1, task(0, 1)), union("b"))));
    rig.stored(1);
    rig.finish(task(0, 0));
    rig
}

#[test]
fn dp_01_the_union_state_of_a_finished_subtask_stays_in_the_metadata() {
    let mut rig = partly_finished();
    let left_behind = Some(SubtaskEntry::Finished { union: union("a").union_part() });
    for checkpoint in [2, 3] {
        rig.checkpoint();
        let out = rig.send(Input::Ack(with(ack(checkpoint, task(0, 1)), union("b"))));
        let metadata = metadata(out).remove(0);
        assert_eq!(entry(&metadata, "v0", 0), left_behind);
        rig.stored(checkpoint);
        let restored = Restoration::new(&topology(&[2], &[]), &metadata).unwrap();
        let unions = &restored.tasks[&task(0, 1).subtask].operators[0].union;
        assert_eq!(unions, &[union("a").union_part().unwrap(), union("b")]);
    }
}

#[test]
fn dp_01_contributions_survive_a_restore_and_go_when_the_vertex_is_fully_finished() {
    let mut rig = partly_finished();
    rig.checkpoint();
    let metadata_2 = metadata(rig.send(Input::Ack(with(ack(2, task(0, 1)), union("b"))))).remove(0);
    rig.stored(2);
    let restoration = Restoration::new(&topology(&[2], &[]), &metadata_2).unwrap();
    rig.send(Input::Failover { tasks: vec![task(0, 0).subtask, task(0, 1).subtask] });
    let again = AttemptId { attempt: crate::id::Attempt(1), ..task(0, 1) };
    rig.send(Input::Restored(Restored {
        checkpoint: Some(id(2)),
        tasks: vec![again],
        left_out: restoration.left_out.into_iter().collect(),
        contributions: restoration.contributions,
    }));
    rig.state(again, crate::control::checkpoint::tasks::TaskState::Running);
    rig.checkpoint();
    let out = rig.send(Input::Ack(with(ack(3, again), union("b"))));
    let left_behind = Some(SubtaskEntry::Finished { union: union("a").union_part() });
    assert_eq!(entry(&metadata(out)[0], "v0", 0), left_behind);
    rig.stored(3);
    rig.checkpoint();
    let out = rig.send(Input::Ack(with(last_ack(4, again), union("b"))));
    assert!(metadata(out)[0].operators["v0"].is_fully_finished());
    assert_eq!(discarded_states(&rig.stored(4)), ["b"]);
}

#[test]
fn dp_02_one_of_two_subtasks_with_finished_operators_stops_nothing() {
    let mut rig = Rig::default(topology(&[2], &[]));
    rig.checkpoint();
    rig.send(Input::Ack(with(ack(1, task(0, 0)), union("a"))));
    let out = rig.send(Input::Ack(with(last_ack(1, task(0, 1)), union("b"))));
    let metadata = metadata(out).remove(0);
    let expected = SubtaskEntry::Running(plain(Some(union("a")), 1));
    assert_eq!(entry(&metadata, "v0", 0), Some(expected));
    let expected = SubtaskEntry::OperatorsFinished(plain(Some(union("b")), 1));
    assert_eq!(entry(&metadata, "v0", 1), Some(expected));
    assert_eq!(completions(&rig.stored(1)).len(), 2);
}

#[test]
fn dp_03_all_with_finished_operators_and_nothing_uncommitted_are_fully_finished() {
    let mut rig = Rig::default(topology(&[2, 1], &[(0, 1, AllToAll)]));
    rig.checkpoint();
    rig.send(Input::Ack(with(last_ack(1, task(0, 0)), union("a"))));
    rig.send(Input::Ack(with(last_ack(1, task(0, 1)), union("b"))));
    let uncommitted =
        Ack { holds_uncommitted: true, ..with(last_ack(1, task(1, 0)), list("files")) };
    let metadata = metadata(rig.send(Input::Ack(uncommitted))).remove(0);
    assert!(metadata.operators["v0"].is_fully_finished());
    let expected = SubtaskEntry::OperatorsFinished(plain(Some(list("files")), 1));
    assert_eq!(entry(&metadata, "v1", 0), Some(expected), "its commit has to be made sure of");
}

#[test]
fn a_vertex_behind_one_that_is_not_fully_finished_is_not_either() {
    let mut rig = Rig::default(topology(&[1, 1], &[(0, 1, AllToAll)]));
    rig.checkpoint();
    rig.send(Input::Ack(Ack { holds_uncommitted: true, ..last_ack(1, task(0, 0)) }));
    let metadata = metadata(rig.send(Input::Ack(last_ack(1, task(1, 0))))).remove(0);
    assert!(!metadata.operators["v1"].is_fully_finished());
}

#[test]
fn dp_04_a_vertex_left_out_of_the_restore_stays_fully_finished() {
    // V and W had finished before the restore and are not deployed; X[0] finishes after it.
    let graph = topology(&[1, 1, 2], &[(0, 1, AllToAll), (1, 2, AllToAll)]);
    let mut rig = Rig::created(CoordinatorConfig::default(), graph);
    rig.send(Input::Restored(Restored {
        checkpoint: None,
        tasks: vec![task(2, 0), task(2, 1)],
        left_out: vec![task(0, 0).subtask, task(1, 0).subtask],
        contributions: BTreeMap::new(),
    }));
    for index in [0, 1] {
        rig.state(task(2, index), crate::control::checkpoint::tasks::TaskState::Running);
    }
    rig.finish(task(2, 0));
    assert_eq!(triggers(&rig.checkpoint()), [(1, task(2, 1))]);
    assert_eq!(rig.coordinator.progress(id(1)), Some((3, 4)));
    let metadata = metadata(rig.ack(1, task(2, 1))).remove(0);
    assert!(metadata.operators["v0"].is_fully_finished());
    assert!(metadata.operators["v1"].is_fully_finished());
    assert_eq!(entry(&metadata, "v2", 0), Some(SubtaskEntry::Finished { union: None }));
    assert_eq!(entry(&metadata, "v2", 1), None, "a running subtask without state has no entry");
}

#[test]
fn dp_05_the_coordinator_state_of_a_fully_finished_vertex_is_dropped() {
    let mut rig = Rig::default(topology(&[1, 1], &[]));
    rig.finish(task(0, 0));
    rig.checkpoint();
    for (operator, state) in [("v0", list("gone")), ("v1", list("kept"))] {
        let operator = operator.to_owned();
        rig.send(Input::CoordinatorState { checkpoint: id(1), operator, state });
    }
    let metadata = metadata(rig.ack(1, task(1, 0))).remove(0);
    assert!(metadata.operators["v0"].is_fully_finished());
    let entries = BTreeMap::new();
    let kept = Progress::Subtasks { entries, coordinator: Some(list("kept")) };
    assert_eq!(metadata.operators["v1"].progress, kept);
    assert_eq!(discarded_states(&rig.stored(1)), ["gone"]);
}

/// One operator of four subtasks: running, operators finished, finished, and without entry.
fn all_kinds() -> Metadata<State> {
    let mut running = plain(Some(keyed("running")), 1);
    running.channels = Some(list("in flight"));
    let entries = BTreeMap::from([
        (0, SubtaskEntry::Running(running)),
        (1, SubtaskEntry::OperatorsFinished(plain(Some(list("files")), 1))),
        (2, SubtaskEntry::Finished { union: Some(union("part")) }),
    ]);
    let entry = |progress| OperatorEntry { parallelism: 4, max_parallelism: 128, progress };
    let operators = BTreeMap::from([
        ("v0".to_owned(), entry(Progress::FullyFinished)),
        ("v1".to_owned(), entry(Progress::Subtasks { entries, coordinator: None })),
    ]);
    let (timestamp, kind) = (Timestamp::ZERO, SnapshotKind::Checkpoint);
    Metadata { checkpoint: id(1), timestamp, kind, operators, pinned_edges: BTreeSet::new() }
}

#[test]
fn dp_07_ignoring_records_in_flight_keeps_every_finished_entry() {
    let mut metadata = all_kinds();
    metadata.ignore_in_flight();
    let Some(SubtaskEntry::Running(running)) = entry(&metadata, "v1", 0) else {
        panic!("a running entry");
    };
    assert_eq!(running, plain(Some(keyed("running")), 1));
    for (operator, index) in [("v1", 1), ("v1", 2), ("v1", 3)] {
        assert_eq!(entry(&metadata, operator, index), entry(&all_kinds(), operator, index));
    }
    assert!(metadata.operators["v0"].is_fully_finished());
}

#[test]
fn k13_a_restore_without_records_in_flight_runs_no_finished_operator_again() {
    // Copying the state without what was in flight lost who had finished, and finished operators ran again.
    let graph = topology(&[4, 4], &[(0, 1, AllToAll)]);
    let whole = Restoration::new(&graph, &all_kinds()).unwrap();
    let mut ignoring = all_kinds();
    ignoring.ignore_in_flight();
    let without = Restoration::new(&graph, &ignoring).unwrap();
    assert_eq!(without.left_out, whole.left_out);
    for (subtask, task) in &without.tasks {
        assert_eq!(task.operators_finished, whole.tasks[subtask].operators_finished);
        assert_eq!(task.born_ended, whole.tasks[subtask].born_ended);
        assert_eq!(task.operators, whole.tasks[subtask].operators, "state stays");
    }
    assert_ne!(ignoring, all_kinds(), "something was in flight");
}

#[test]
fn dp_08_each_of_the_five_kinds_of_entry_restores_as_what_it_is() {
    let graph = topology(&[4, 4], &[(0, 1, AllToAll)]);
    let restored = Restoration::new(&graph, &all_kinds()).unwrap();
    let left_out: Vec<_> = restored.left_out.iter().copied().collect();
    let expected = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 2)];
    assert_eq!(left_out, expected.map(|(vertex, index)| task(vertex, index).subtask));
    let finished = |index| restored.tasks[&task(1, index).subtask].operators_finished;
    assert!(!finished(0) && finished(1) && !finished(3));
}

#[test]
fn the_ended_inputs_and_records_in_flight_are_filed_with_the_head_of_the_chain() {
    let mut rig = Rig::default(topology(&[1, 1], &[(0, 1, AllToAll)]));
    rig.checkpoint();
    rig.ack(1, task(0, 0));
    let last = Ack {
        channels: Some(list("in flight")),
        ended_inputs: vec![1],
        ..with(ack(1, task(1, 0)), keyed("state"))
    };
    let metadata = metadata(rig.send(Input::Ack(last))).remove(0);
    let expected = SubtaskState {
        state: Some(keyed("state")),
        channels: Some(list("in flight")),
        ended_inputs: vec![1],
        reference: id(1),
    };
    assert_eq!(entry(&metadata, "v1", 0), Some(SubtaskEntry::Running(expected)));
}

#[test]
fn fm_06_a_partly_finished_vertex_with_union_state_fails_no_job() {
    let mut rig = partly_finished();
    rig.checkpoint();
    let mut out = rig.send(Input::Ack(with(ack(2, task(0, 1)), union("b"))));
    out.extend(rig.stored(2));
    assert_eq!(failures(&out), []);
    assert_eq!(job_failures(&out), [] as [bool; 0]);
    assert_eq!(completions(&out), [(2, task(0, 1))]);
}
