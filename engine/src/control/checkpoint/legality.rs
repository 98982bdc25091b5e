//! Whether a graph may be restored from a checkpoint in which tasks had finished.
//!
//! Checked when a job starts from a checkpoint or savepoint, since its graph may have changed; not
//! at failover of an unchanged graph. An operator the checkpoint doesn't know counts as running.

use std::fmt;

use super::metadata::{Metadata, SubtaskEntry};
use super::topology::{Edge, EdgeKind, Operator, Topology};
use crate::id::VertexId;

/// How far a vertex, or one of its operators, was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VertexProgress {
    /// No subtask had finished.
    AllRunning,
    /// Some had.
    PartlyFinished,
    /// All had, for good.
    FullyFinished,
}

/// Why a graph can't be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IllegalGraph {
    /// The operators of one chain were not equally far.
    Mixed {
        /// The chain.
        vertex: VertexId,
        /// Its head.
        head: String,
        /// An operator that differs from the head.
        operator: String,
    },
    /// A vertex had finished tasks although what feeds it could still send records.
    FedByRunning {
        /// The vertex with finished tasks.
        vertex: VertexId,
        /// How far it was.
        progress: VertexProgress,
        /// The vertex that feeds it.
        producer: VertexId,
        /// How far that was.
        producer_progress: VertexProgress,
    },
}

impl fmt::Display for IllegalGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mixed { vertex, head, operator } => write!(
                f,
                "{vertex} chains '{head}' and '{operator}', \
                 of which one has finished tasks the other has not"
            ),
            Self::FedByRunning { vertex, progress, producer, producer_progress } => write!(
                f,
                "{vertex} ({progress:?}) would be fed by {producer} ({producer_progress:?})"
            ),
        }
    }
}

impl std::error::Error for IllegalGraph {}

/// Checks `topology` against what `metadata` records.
///
/// # Errors
/// The first rule that is broken, in topological order.
pub fn check<S>(topology: &Topology, metadata: &Metadata<S>) -> Result<(), IllegalGraph> {
    for vertex in topology.in_order() {
        let progress = vertex_progress(topology, metadata, vertex.id);
        let head = &vertex.operators[0];
        for operator in &vertex.operators[1..] {
            if operator_progress(metadata, operator) != progress {
                return Err(IllegalGraph::Mixed {
                    vertex: vertex.id,
                    head: head.id().to_owned(),
                    operator: operator.id().to_owned(),
                });
            }
        }
        for edge in topology.inputs(vertex.id) {
            let producer_progress = vertex_progress(topology, metadata, edge.from);
            if producer_progress < least_producer_progress(progress, edge) {
                let (vertex, producer) = (vertex.id, edge.from);
                return Err(IllegalGraph::FedByRunning {
                    vertex,
                    progress,
                    producer,
                    producer_progress,
                });
            }
        }
    }
    Ok(())
}

fn least_producer_progress(progress: VertexProgress, edge: &Edge) -> VertexProgress {
    match (progress, edge.kind) {
        (VertexProgress::AllRunning, EdgeKind::AllToAll | EdgeKind::Pointwise) => {
            VertexProgress::AllRunning
        }
        (VertexProgress::PartlyFinished, EdgeKind::Pointwise) => VertexProgress::PartlyFinished,
        (VertexProgress::PartlyFinished, EdgeKind::AllToAll)
        | (VertexProgress::FullyFinished, EdgeKind::AllToAll | EdgeKind::Pointwise) => {
            VertexProgress::FullyFinished
        }
    }
}

fn vertex_progress<S>(
    topology: &Topology,
    metadata: &Metadata<S>,
    vertex: VertexId,
) -> VertexProgress {
    topology.vertex(vertex).map_or(VertexProgress::AllRunning, |vertex| {
        operator_progress(metadata, &vertex.operators[0])
    })
}

fn operator_progress<S>(metadata: &Metadata<S>, operator: &Operator) -> VertexProgress {
    let Some(entry) = metadata.operator(operator) else { return VertexProgress::AllRunning };
    let is_finished = |entry: &SubtaskEntry<S>| matches!(entry, SubtaskEntry::Finished { .. });
    if entry.is_fully_finished() {
        VertexProgress::FullyFinished
    } else if entry.entries().any(|(_, entry)| is_finished(entry)) {
        VertexProgress::PartlyFinished
    } else {
        VertexProgress::AllRunning
    }
}
