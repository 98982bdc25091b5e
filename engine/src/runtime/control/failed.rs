//! Why the last checkpoint failed: the cause, who had not acknowledged, and what each of those was waiting for.
//!
//! What a task waits for it tells when it hears that the checkpoint was given up, so the report grows for a moment.

use std::collections::BTreeMap;
use std::fmt;

use crate::graph::ExecutionGraph;
use crate::id::{AttemptId, CheckpointId};
use crate::task::AwaitedBarrier;

/// A failed checkpoint.
#[derive(Debug)]
pub(super) struct FailedCheckpoint {
    checkpoint: CheckpointId,
    cause: String,
    /// Tasks that had not acknowledged, by name, and what each waited for.
    awaited: BTreeMap<AttemptId, (String, Vec<String>)>,
}

impl FailedCheckpoint {
    pub(super) fn new(
        checkpoint: CheckpointId,
        cause: String,
        unacknowledged: impl Iterator<Item = AttemptId>,
        graph: &ExecutionGraph,
    ) -> Self {
        let named = unacknowledged.map(|task| {
            let vertex = graph.vertices.get(task.subtask.vertex.0 as usize);
            let name = vertex.map_or_else(String::new, |vertex| vertex.name.to_string());
            (task, (format!("'{name}' {}", task.subtask.index), Vec::new()))
        });
        Self { checkpoint, cause, awaited: named.collect() }
    }

    /// A task tells which barriers had not come.
    pub(super) fn waited(
        &mut self,
        task: AttemptId,
        checkpoint: CheckpointId,
        barriers: &[AwaitedBarrier],
        graph: &ExecutionGraph,
    ) {
        let Some((_, waits)) =
            self.awaited.get_mut(&task).filter(|_| self.checkpoint == checkpoint)
        else {
            return;
        };
        let name = |edge: usize| {
            let edge = graph.edges.iter().find(|plan| plan.edge == edge)?;
            Some(graph.vertices.get(edge.from.0 as usize)?.name.to_string())
        };
        let wait = |barrier: &AwaitedBarrier| {
            let AwaitedBarrier { edge, producer, bytes } = *barrier;
            let name = name(edge).unwrap_or_default();
            format!("no barrier from '{name}' {producer}, {bytes} bytes before it")
        };
        *waits = barriers.iter().map(wait).collect();
    }
}

impl fmt::Display for FailedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)?;
        for (place, (name, waits)) in self.awaited.values().enumerate() {
            f.write_str(if place == 0 { "; not acknowledged by " } else { ", " })?;
            f.write_str(name)?;
            if !waits.is_empty() {
                write!(f, " ({})", waits.join("; "))?;
            }
        }
        Ok(())
    }
}
