//! A task's snapshot is stored: the acknowledgement that the coordinator gets.

use super::Control;
use crate::control::checkpoint::message::{Ack, AckMetrics, Input};
use crate::graph::EdgePlan;
use crate::id::VertexId;
use crate::operator::EdgeKind;
use crate::runtime::restore::Handle;
use crate::runtime::snapshot_io::StoredTask;
use crate::state::manifest::{ChannelMeta, StateData, StateKind};

impl Control {
    pub(super) fn stored(&mut self, stored: StoredTask) {
        let StoredTask {
            attempt,
            checkpoint,
            operators,
            channels,
            persisted_bytes,
            operators_finished,
            ended_inputs,
            alignment,
            bytes,
        } = stored;
        if let Some((_, longest, total)) = self.triggered.get_mut(&checkpoint) {
            *longest = alignment.max(*longest);
            *total += bytes + persisted_bytes;
        }
        let vertex = &self.vertices[attempt.subtask.vertex.0 as usize];
        let mut by_name = operators;
        let operators: Vec<_> = vertex
            .names
            .iter()
            .map(|name| by_name.remove(name.as_str()).map(Handle::of_parts))
            .collect();
        let holds_uncommitted = operators.iter().flatten().any(|handle| {
            handle
                .parts
                .iter()
                .any(|part| part.kind == StateKind::Committables && !is_empty_list(&part.data))
        });
        let pinned_inputs = self.pinned_inputs(attempt.subtask.vertex, &channels);
        self.decide(Input::Ack(Ack {
            channels: (!channels.is_empty()).then(|| Handle::of_channels(channels)),
            pinned_inputs,
            ended_inputs,
            operators_finished,
            holds_uncommitted,
            operators,
            metrics: AckMetrics { alignment, persisted_bytes, ..AckMetrics::default() },
            ..Ack::empty(checkpoint, attempt)
        }));
    }

    /// Gates on which bytes were captured that no other subtask could take.
    fn pinned_inputs(&self, vertex: VertexId, channels: &[ChannelMeta]) -> Vec<u32> {
        let gates = self.graph.edges.iter().filter(|edge| edge.to == vertex);
        let is_pinned = |edge: &EdgePlan| {
            edge.kind != EdgeKind::Keyed
                && channels
                    .iter()
                    .any(|channel| channel.gate == edge.edge as u32 && channel.count > 0)
        };
        (0..).zip(gates).filter(|(_, edge)| is_pinned(edge)).map(|(gate, _)| gate).collect()
    }
}

fn is_empty_list(data: &StateData) -> bool {
    match data {
        StateData::Inline(bytes) => bytes.get(..4) == Some(&[0; 4]),
        StateData::Blocks(_) => false,
    }
}
