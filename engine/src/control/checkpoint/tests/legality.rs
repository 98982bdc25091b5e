//! VF: which graphs may be restored.

use std::collections::{BTreeMap, BTreeSet};

use super::rig::{AllToAll, Pointwise, State, id, topology};
use crate::clock::Timestamp;
use crate::control::checkpoint::legality::{IllegalGraph, VertexProgress, check};
use crate::control::checkpoint::metadata::{Metadata, OperatorEntry, Progress, SubtaskEntry};
use crate::control::checkpoint::options::SnapshotKind;
use crate::control::checkpoint::topology::{EdgeKind, Operator, Topology, Vertex};
use crate::id::VertexId;

use VertexProgress::{AllRunning, FullyFinished, PartlyFinished};

fn entry(progress: VertexProgress) -> OperatorEntry<State> {
    let subtasks = |entries| Progress::Subtasks { entries, coordinator: None };
    let progress = match progress {
        AllRunning => subtasks(BTreeMap::new()),
        PartlyFinished => subtasks(BTreeMap::from([(0, SubtaskEntry::Finished { union: None })])),
        FullyFinished => Progress::FullyFinished,
    };
    OperatorEntry { parallelism: 2, max_parallelism: 128, progress }
}

fn metadata(operators: &[(&str, VertexProgress)]) -> Metadata<State> {
    let operators =
        operators.iter().map(|&(name, progress)| (name.to_owned(), entry(progress))).collect();
    let (timestamp, kind) = (Timestamp::ZERO, SnapshotKind::Checkpoint);
    Metadata { checkpoint: id(1), timestamp, kind, operators, pinned_edges: BTreeSet::new() }
}

/// Vertex 0 feeds vertex 1 over these edges.
fn is_legal(from: VertexProgress, edges: &[EdgeKind], to: VertexProgress) -> bool {
    let edges: Vec<_> = edges.iter().map(|&kind| (0, 1, kind)).collect();
    check(&topology(&[2, 2], &edges), &metadata(&[("v0", from), ("v1", to)])).is_ok()
}

#[test]
fn vf_01_operators_of_one_chain_must_be_equally_far() {
    let named = Operator { user_id: Some("mine".to_owned()), ..Operator::stateful("tail") };
    for (recorded, tail) in [("tail", Operator::stateful("tail")), ("mine", named)] {
        let operators = vec![Operator::stateful("head"), tail];
        let vertex = Vertex { operators, ..Vertex::new(0, 2) };
        let topology = Topology::new(vec![vertex], Vec::new()).unwrap();
        let error = check(&topology, &metadata(&[(recorded, FullyFinished)])).unwrap_err();
        let IllegalGraph::Mixed { vertex, head, operator } = &error else { panic!("{error}") };
        assert_eq!((*vertex, head.as_str(), operator.as_str()), (VertexId(0), "head", recorded));
        let all = metadata(&[(recorded, FullyFinished), ("head", FullyFinished)]);
        assert_eq!(check(&topology, &all), Ok(()));
    }
}

#[test]
fn vf_02_running_before_fully_finished_is_illegal() {
    assert!(!is_legal(AllRunning, &[AllToAll], FullyFinished));
}

#[test]
fn vf_03_partly_before_fully_finished_is_illegal() {
    assert!(!is_legal(PartlyFinished, &[AllToAll], FullyFinished));
    assert!(!is_legal(PartlyFinished, &[Pointwise], FullyFinished));
}

#[test]
fn vf_04_only_fully_finished_may_feed_partly_finished_all_to_all() {
    assert!(!is_legal(AllRunning, &[AllToAll], PartlyFinished));
    assert!(!is_legal(PartlyFinished, &[AllToAll], PartlyFinished));
}

#[test]
fn vf_05_of_two_edges_all_to_all_dominates() {
    assert!(!is_legal(PartlyFinished, &[Pointwise, AllToAll], PartlyFinished));
    assert!(!is_legal(PartlyFinished, &[AllToAll, Pointwise], PartlyFinished));
}

#[test]
fn vf_06_running_may_not_feed_partly_finished_pointwise() {
    assert!(!is_legal(AllRunning, &[Pointwise], PartlyFinished));
}

#[test]
fn vf_07_legal_graphs() {
    assert!(is_legal(FullyFinished, &[AllToAll], PartlyFinished));
    assert!(is_legal(FullyFinished, &[Pointwise], PartlyFinished));
    assert!(is_legal(PartlyFinished, &[Pointwise], PartlyFinished));
    assert!(is_legal(FullyFinished, &[AllToAll], FullyFinished));
    assert!(is_legal(PartlyFinished, &[AllToAll], AllRunning));
    let with_new = topology(&[2, 2], &[(0, 1, AllToAll)]);
    assert_eq!(check(&with_new, &metadata(&[("v0", FullyFinished)])), Ok(()));
}

#[test]
fn vf_08_assigning_state_does_not_check_the_graph() {
    let graph = topology(&[2, 2], &[(0, 1, AllToAll)]);
    let illegal = metadata(&[("v0", AllRunning), ("v1", FullyFinished)]);
    assert!(check(&graph, &illegal).is_err());
    let restored = crate::control::checkpoint::restore::Restoration::new(&graph, &illegal).unwrap();
    assert!(restored.left_out.is_empty(), "nothing that is still fed is left out");
}
