//! The execution graph as the coordinator needs it: vertices, edges, and which subtask reads from
//! which.
//!
//! A value: built once a job and never changed. Edges go forward only (checked on construction), so
//! `in_order` lists every vertex after all of its predecessors. Used by the plan, the metadata, the
//! final checkpoint and restore.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::id::{ChannelIndex, SubtaskId, VertexId};

/// How the subtasks of two vertices are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeKind {
    /// Every producer feeds every consumer.
    AllToAll,
    /// 1:1 with equal parallelism, contiguous ranges otherwise.
    Pointwise,
}

impl EdgeKind {
    /// The producers (of `producers`) that feed consumer `index` (of `consumers`).
    pub fn producers_of(self, index: u32, producers: u32, consumers: u32) -> Range<u32> {
        match self {
            Self::AllToAll => 0..producers,
            Self::Pointwise if producers < consumers => {
                let producer = scale(index, producers, consumers);
                producer..producer + 1
            }
            Self::Pointwise => {
                scale(index, producers, consumers)..scale(index + 1, producers, consumers)
            }
        }
    }
}

/// `index * to / from`, without overflow.
fn scale(index: u32, to: u32, from: u32) -> u32 {
    let scaled = u64::from(index) * u64::from(to) / u64::from(from);
    u32::try_from(scaled).expect("index is at most `from`, so the result is at most `to`")
}

/// One connection between two vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The producing vertex.
    pub from: VertexId,
    /// The consuming vertex.
    pub to: VertexId,
    /// Who feeds whom.
    pub kind: EdgeKind,
    /// The consumer starts only when the producer is done; such a job can't be stopped with a
    /// savepoint.
    pub is_blocking: bool,
}

impl Edge {
    /// A pipelined edge.
    pub const fn new(from: u32, to: u32, kind: EdgeKind) -> Self {
        Self { from: VertexId(from), to: VertexId(to), kind, is_blocking: false }
    }
}

/// One operator of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    /// The name the user gave; state is looked up under it first.
    pub user_id: Option<String>,
    /// The name made from the operator's place in the graph.
    pub generated_id: String,
    /// Its snapshot can hold something.
    pub has_state: bool,
    /// It acts when a checkpoint completes.
    pub has_commit_hook: bool,
}

impl Operator {
    /// An operator with state, named by its place.
    pub fn stateful(generated_id: impl Into<String>) -> Self {
        Self { generated_id: generated_id.into(), has_state: true, ..Self::default() }
    }

    /// The name its state is written under.
    pub fn id(&self) -> &str {
        self.user_id.as_deref().unwrap_or(&self.generated_id)
    }
}

/// One operator chain with one parallelism.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vertex {
    /// Which.
    pub id: VertexId,
    /// Number of subtasks, at least 1.
    pub parallelism: u32,
    /// Number of key groups; at least `parallelism`.
    pub max_parallelism: u32,
    /// The chain, head first; never empty.
    pub operators: Vec<Operator>,
}

impl Vertex {
    /// A vertex of `parallelism` subtasks with one stateful operator named after it.
    pub fn new(id: u32, parallelism: u32) -> Self {
        let id = VertexId(id);
        let operators = vec![Operator::stateful(id.to_string())];
        Self { id, parallelism, max_parallelism: parallelism.max(128), operators }
    }

    /// Its subtasks in order.
    pub fn subtasks(&self) -> impl Iterator<Item = SubtaskId> + use<> {
        let vertex = self.id;
        (0..self.parallelism).map(move |index| SubtaskId { vertex, index })
    }
}

/// Why a graph can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyError {
    /// Two vertices have one id.
    Repeated(VertexId),
    /// An edge names a vertex that isn't there.
    Unknown(VertexId),
    /// A vertex without subtasks or without operators, or with fewer key groups than subtasks.
    Malformed(VertexId),
    /// The edges form a loop through this vertex.
    Loop(VertexId),
}

impl std::fmt::Display for TopologyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Repeated(vertex) => write!(f, "two vertices are called {vertex}"),
            Self::Unknown(vertex) => write!(f, "an edge names {vertex}, which does not exist"),
            Self::Malformed(vertex) => {
                write!(f, "{vertex} needs subtasks, operators and enough key groups")
            }
            Self::Loop(vertex) => write!(f, "the edges form a loop through {vertex}"),
        }
    }
}

impl std::error::Error for TopologyError {}

/// Vertices and edges of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// In topological order.
    vertices: Vec<Vertex>,
    place: BTreeMap<VertexId, usize>,
    /// In the order given: the order of a vertex's gates.
    edges: Vec<Edge>,
    /// Per place: the edges that end there.
    inputs: Vec<Vec<usize>>,
}

impl Topology {
    /// The graph of `vertices` and `edges`; edges into one vertex are its gates, in this order.
    ///
    /// # Errors
    /// See [`TopologyError`].
    pub fn new(vertices: Vec<Vertex>, edges: Vec<Edge>) -> Result<Self, TopologyError> {
        let mut waiting = BTreeMap::new();
        for vertex in vertices {
            let id = vertex.id;
            if vertex.parallelism == 0
                || vertex.operators.is_empty()
                || vertex.max_parallelism < vertex.parallelism
            {
                return Err(TopologyError::Malformed(id));
            }
            if waiting.insert(id, vertex).is_some() {
                return Err(TopologyError::Repeated(id));
            }
        }
        for end in edges.iter().flat_map(|edge| [edge.from, edge.to]) {
            if !waiting.contains_key(&end) {
                return Err(TopologyError::Unknown(end));
            }
        }
        let (mut ordered, mut place) = (Vec::with_capacity(waiting.len()), BTreeMap::new());
        while let Some(&first) = waiting.keys().next() {
            let ready = |id: &VertexId| {
                edges.iter().all(|edge| edge.to != *id || place.contains_key(&edge.from))
            };
            let id = waiting.keys().copied().find(ready).ok_or(TopologyError::Loop(first))?;
            place.insert(id, ordered.len());
            ordered.extend(waiting.remove(&id));
        }
        let mut inputs = vec![Vec::new(); ordered.len()];
        for (index, edge) in edges.iter().enumerate() {
            inputs[place[&edge.to]].push(index);
        }
        Ok(Self { vertices: ordered, place, edges, inputs })
    }

    /// Every vertex after its predecessors.
    pub fn in_order(&self) -> &[Vertex] {
        &self.vertices
    }

    /// The vertex called `id`, if there is one.
    pub fn vertex(&self, id: VertexId) -> Option<&Vertex> {
        self.place.get(&id).map(|&place| &self.vertices[place])
    }

    /// The edges into `vertex`, in the order of its gates.
    pub fn inputs(&self, vertex: VertexId) -> impl Iterator<Item = &Edge> {
        let inputs = self.place.get(&vertex).map_or(&[][..], |&place| &self.inputs[place]);
        inputs.iter().map(|&edge| &self.edges[edge])
    }

    /// All edges, in the order given.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// All subtasks, those of a vertex after those of its predecessors.
    pub fn subtasks(&self) -> impl Iterator<Item = SubtaskId> {
        self.vertices.iter().flat_map(Vertex::subtasks)
    }

    /// The subtasks that feed `subtask` over `edge`.
    ///
    /// # Panics
    /// If the edge or the subtask is of another graph.
    pub fn producers(
        &self,
        subtask: SubtaskId,
        edge: &Edge,
    ) -> impl Iterator<Item = SubtaskId> + use<> {
        let parallelism = |id: VertexId| self.vertices[self.place[&id]].parallelism;
        let (producers, consumers) = (parallelism(edge.from), parallelism(edge.to));
        let vertex = edge.from;
        edge.kind
            .producers_of(subtask.index, producers, consumers)
            .map(move |index| SubtaskId { vertex, index })
    }

    /// The input channels of `subtask` and who feeds them: gate by gate, producers in order.
    pub fn channels(&self, subtask: SubtaskId) -> impl Iterator<Item = (ChannelIndex, SubtaskId)> {
        let producers =
            self.inputs(subtask.vertex).flat_map(move |edge| self.producers(subtask, edge));
        (0..).map(ChannelIndex).zip(producers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointwise_ranges_cover_every_producer_and_consumer() {
        for producers in 1..20 {
            for consumers in 1..20 {
                let mut fed = vec![0; producers as usize];
                for consumer in 0..consumers {
                    let range = EdgeKind::Pointwise.producers_of(consumer, producers, consumers);
                    assert!(!range.is_empty());
                    range.for_each(|producer| fed[producer as usize] += 1);
                }
                assert!(fed.iter().all(|&times| times > 0), "{producers} to {consumers}");
                if producers >= consumers {
                    assert!(fed.iter().all(|&times| times == 1), "{producers} to {consumers}");
                }
            }
        }
    }

    #[test]
    fn a_loop_is_refused() {
        let edges = vec![Edge::new(0, 1, EdgeKind::AllToAll), Edge::new(1, 0, EdgeKind::AllToAll)];
        let vertices = vec![Vertex::new(0, 1), Vertex::new(1, 1)];
        assert_eq!(Topology::new(vertices, edges), Err(TopologyError::Loop(VertexId(0))));
    }

    #[test]
    fn channels_are_numbered_gate_by_gate() {
        let vertices = vec![Vertex::new(0, 2), Vertex::new(1, 2), Vertex::new(2, 2)];
        let edges = vec![Edge::new(1, 2, EdgeKind::Pointwise), Edge::new(0, 2, EdgeKind::AllToAll)];
        let topology = Topology::new(vertices, edges).expect("the graph has no loop");
        let channels: Vec<_> = topology.channels(SubtaskId::new(2, 1)).collect();
        let expected =
            [(0, SubtaskId::new(1, 1)), (1, SubtaskId::new(0, 0)), (2, SubtaskId::new(0, 1))];
        assert_eq!(channels, expected.map(|(index, from)| (ChannelIndex(index), from)));
    }
}
