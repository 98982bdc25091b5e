//! Makes the metadata of a fully acknowledged checkpoint.
//!
//! A vertex is fully finished iff every subtask has left or finished its operators with nothing
//! uncommitted, and all its predecessors are fully finished in the same checkpoint. Union state of
//! subtasks that had left comes from the contributions of the last completed checkpoint, so a
//! partly finished vertex stops no checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use super::message::Ack;
use super::metadata::{
    Contributions, Metadata, OperatorEntry, Progress, StateSummary, SubtaskEntry, SubtaskState,
};
use super::pending::Pending;
use super::topology::{Topology, Vertex};
use crate::id::{SubtaskId, VertexId};
use crate::probe::{Fault, is_broken};

/// The metadata, and what to remember once it is durable.
#[derive(Clone, Debug, PartialEq)]
pub struct Finalized<S> {
    /// For the store.
    pub metadata: Metadata<S>,
    /// Union state of subtasks that have left, or may when this checkpoint completes.
    pub contributions: Contributions<S>,
    /// State that fully finished vertices don't need: to be discarded once the checkpoint is
    /// complete.
    pub dropped: Vec<S>,
}

impl<S: StateSummary> Finalized<S> {
    /// Puts together what the tasks acknowledged.
    pub fn new(topology: &Topology, pending: &Pending<S>, known: &Contributions<S>) -> Self {
        let full = fully_finished(topology, pending);
        let (mut operators, mut dropped) = (BTreeMap::new(), Vec::new());
        let mut contributions = Contributions::new();
        for vertex in topology.in_order() {
            if full.contains(&vertex.id) {
                dropped.extend(acks(vertex, pending).flat_map(|ack| ack.clone().into_states()));
                let coordinators = vertex.operators.iter().map(|operator| operator.id());
                dropped.extend(
                    coordinators.filter_map(|id| pending.coordinator_states.get(id)).cloned(),
                );
            } else {
                contributions.extend(contributions_of(vertex, pending, known));
            }
            for (place, operator) in vertex.operators.iter().enumerate() {
                let progress = if full.contains(&vertex.id) {
                    Progress::FullyFinished
                } else {
                    Progress::Subtasks {
                        entries: entries(vertex, place, pending, known),
                        coordinator: pending.coordinator_states.get(operator.id()).cloned(),
                    }
                };
                let Vertex { parallelism, max_parallelism, .. } = *vertex;
                let entry = OperatorEntry { parallelism, max_parallelism, progress };
                operators.insert(operator.id().to_owned(), entry);
            }
        }
        let metadata = Metadata {
            pinned_edges: pinned_edges(topology, pending),
            checkpoint: pending.id,
            timestamp: pending.timestamp,
            kind: pending.options.kind(),
            operators,
        };
        Self { metadata, contributions, dropped }
    }
}

fn acks<'a, S>(vertex: &Vertex, pending: &'a Pending<S>) -> impl Iterator<Item = &'a Ack<S>> {
    vertex.subtasks().filter_map(|subtask| pending.acks.get(&subtask))
}

fn fully_finished<S>(topology: &Topology, pending: &Pending<S>) -> BTreeSet<VertexId> {
    let mut full = BTreeSet::new();
    for vertex in topology.in_order() {
        if topology.inputs(vertex.id).all(|edge| full.contains(&edge.from))
            && acks(vertex, pending).all(|ack| {
                let holds = ack.holds_uncommitted && !is_broken(Fault::UncommittedIsFinished);
                ack.operators_finished && !holds
            })
        {
            full.insert(vertex.id);
        }
    }
    full
}

fn pinned_edges<S>(topology: &Topology, pending: &Pending<S>) -> BTreeSet<(String, String)> {
    let head = |id| topology.vertex(id).map(|vertex| vertex.operators[0].id().to_owned());
    let pinned = topology.in_order().iter().flat_map(|vertex| {
        acks(vertex, pending)
            .flat_map(|ack| &ack.pinned_inputs)
            .filter_map(|&input| topology.inputs(vertex.id).nth(input as usize))
    });
    pinned.filter_map(|edge| Some((head(edge.from)?, head(edge.to)?))).collect()
}

fn entries<S: StateSummary>(
    vertex: &Vertex,
    place: usize,
    pending: &Pending<S>,
    known: &Contributions<S>,
) -> BTreeMap<u32, SubtaskEntry<S>> {
    let entry = |subtask: SubtaskId| match pending.acks.get(&subtask) {
        Some(ack) => acknowledged_entry(ack, place),
        None => {
            let id = vertex.operators[place].id();
            let union = known.get(&subtask).and_then(|by_operator| by_operator.get(id)).cloned();
            Some(SubtaskEntry::Finished { union })
        }
    };
    vertex
        .subtasks()
        .filter_map(|subtask| entry(subtask).map(|entry| (subtask.index, entry)))
        .collect()
}

fn acknowledged_entry<S: Clone>(ack: &Ack<S>, place: usize) -> Option<SubtaskEntry<S>> {
    let is_head = place == 0;
    let state = SubtaskState {
        state: ack.operators.get(place).cloned().flatten(),
        channels: ack.channels.clone().filter(|_| is_head),
        ended_inputs: if is_head { ack.ended_inputs.clone() } else { Vec::new() },
        reference: ack.checkpoint,
    };
    let is_empty =
        state.state.is_none() && state.channels.is_none() && state.ended_inputs.is_empty();
    match (ack.operators_finished, is_empty) {
        (true, _) => Some(SubtaskEntry::OperatorsFinished(state)),
        (false, true) => None,
        (false, false) => Some(SubtaskEntry::Running(state)),
    }
}

fn contributions_of<S: StateSummary>(
    vertex: &Vertex,
    pending: &Pending<S>,
    known: &Contributions<S>,
) -> Contributions<S> {
    let union_parts = |ack: &Ack<S>| -> BTreeMap<String, S> {
        let states = vertex.operators.iter().zip(&ack.operators);
        states
            .filter_map(|(operator, state)| {
                let part = state.as_ref().filter(|state| state.kinds().union)?.union_part()?;
                Some((operator.id().to_owned(), part))
            })
            .collect()
    };
    vertex
        .subtasks()
        .filter_map(|subtask| {
            let parts = match pending.acks.get(&subtask) {
                Some(ack) if ack.operators_finished => union_parts(ack),
                Some(_) => return None,
                None => known.get(&subtask)?.clone(),
            };
            (!parts.is_empty()).then_some((subtask, parts))
        })
        .collect()
}
