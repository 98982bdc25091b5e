//! Between the coordinator's metadata and what lies in the store: manifests made of the one, restored state of the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::clock::EpochMillis;
use crate::clock::Timestamp;
use crate::control::checkpoint::metadata::{
    Metadata, OperatorEntry, Progress, StateKinds, StateSummary, SubtaskEntry,
    SubtaskState as EntryState,
};
use crate::control::checkpoint::options::SnapshotKind as Kind;
use crate::control::checkpoint::restore::{ListSource, TaskRestore};
use crate::control::checkpoint::topology::Topology;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::ExecutionGraph;
use crate::id::{CheckpointId, KeyGroup, VertexId};
use crate::probe::{Fault, is_broken};
use crate::record::key_group::KeyGroupRange;
use crate::state::manifest::{
    ChannelMeta, CheckpointMeta, EdgeMeta, OperatorMeta, OperatorState, SnapshotKind, StateData,
    StateKind, StatePart, SubtaskMeta, SubtaskState, VertexMeta,
};
use crate::state::part::{
    PartKind, ReadBlocks, RestoredData, RestoredPart, RestoredState, decode_list, encode_list,
};
use crate::state::snapshots::SnapshotReader;

/// The state of one operator in one subtask, as stored: the handle that the coordinator passes around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    /// The operator's state.
    pub(super) parts: Arc<Vec<StatePart>>,
    /// With the head operator: what was in flight towards the subtask.
    pub(super) channels: Arc<Vec<ChannelMeta>>,
}

impl Handle {
    pub(super) fn of_parts(parts: Vec<StatePart>) -> Self {
        Self { parts: Arc::new(parts), channels: Arc::default() }
    }

    pub(super) fn of_channels(channels: Vec<ChannelMeta>) -> Self {
        Self { parts: Arc::default(), channels: Arc::new(channels) }
    }
}

impl StateSummary for Handle {
    fn kinds(&self) -> StateKinds {
        let mut kinds = StateKinds::default();
        for part in self.parts.iter() {
            match part.kind {
                StateKind::Keyed { .. } | StateKind::Timers { .. } => kinds.keyed = true,
                StateKind::List | StateKind::Committables | StateKind::Position => {
                    kinds.list = true;
                }
                StateKind::Union => kinds.union = true,
                StateKind::Broadcast => kinds.broadcast = true,
            }
        }
        kinds
    }

    fn union_part(&self) -> Option<Self> {
        let parts: Vec<StatePart> =
            self.parts.iter().filter(|part| part.kind == StateKind::Union).cloned().collect();
        (!parts.is_empty()).then(|| Self::of_parts(parts))
    }
}

/// The manifest of a fully acknowledged checkpoint; files are filled in by who wrote them.
pub(super) fn manifest(
    job: &str,
    graph: &ExecutionGraph,
    topology: &Topology,
    metadata: &Metadata<Handle>,
    triggered_at: EpochMillis,
) -> CheckpointMeta {
    let vertices = topology
        .in_order()
        .iter()
        .map(|vertex| {
            let plan = &graph.vertices[vertex.id.0 as usize];
            let entries: Vec<_> =
                vertex.operators.iter().map(|op| metadata.operators.get(op.id())).collect();
            let fully = entries
                .iter()
                .all(|entry| entry.is_some_and(|e| matches!(e.progress, Progress::FullyFinished)));
            let operators = vertex
                .operators
                .iter()
                .zip(&entries)
                .map(|(operator, entry)| OperatorMeta {
                    name: operator.id().to_owned(),
                    state: operator_state(*entry, vertex.parallelism, vertex.max_parallelism),
                })
                .collect();
            let subtasks = if fully {
                Vec::new()
            } else {
                (0..vertex.parallelism)
                    .map(|index| subtask_meta(entries.first().copied().flatten(), index))
                    .collect()
            };
            VertexMeta {
                id: vertex.id,
                name: plan.name.to_string(),
                parallelism: vertex.parallelism,
                max_parallelism: vertex.max_parallelism,
                operators,
                subtasks,
            }
        })
        .collect();
    let edges = graph
        .edges
        .iter()
        .map(|edge| EdgeMeta {
            from: edge.from,
            to: edge.to,
            gate: edge.edge as u32,
            captured_bytes: captured_bytes(metadata, edge.edge),
            is_reroutable: edge.kind == crate::operator::EdgeKind::Keyed,
        })
        .collect();
    CheckpointMeta {
        job: job.to_owned(),
        fingerprint: graph.fingerprint(),
        id: metadata.checkpoint,
        kind: match metadata.kind {
            Kind::Checkpoint => SnapshotKind::Checkpoint,
            Kind::Savepoint => SnapshotKind::Savepoint { drained: false },
            Kind::StopSavepoint { is_drain } => SnapshotKind::Savepoint { drained: is_drain },
        },
        triggered_at,
        completed_at: triggered_at,
        owner_epoch: 0,
        files: Vec::new(),
        vertices,
        edges,
    }
}

/// Bytes in flight on an edge.
fn captured_bytes(metadata: &Metadata<Handle>, edge: usize) -> u64 {
    let mut bytes = 0;
    for operator in metadata.operators.values() {
        let Progress::Subtasks { entries, .. } = &operator.progress else { continue };
        for entry in entries.values() {
            let (SubtaskEntry::Running(state) | SubtaskEntry::OperatorsFinished(state)) = entry
            else {
                continue;
            };
            let channels = state.channels.iter().flat_map(|handle| handle.channels.iter());
            for channel in channels.filter(|channel| channel.gate == edge as u32) {
                if let StateData::Blocks(runs) = &channel.data {
                    bytes += runs.iter().map(|run| run.length).sum::<u64>();
                }
            }
        }
    }
    bytes
}

fn operator_state(
    entry: Option<&OperatorEntry<Handle>>,
    parallelism: u32,
    max_parallelism: u32,
) -> OperatorState {
    let Some(entry) = entry else { return OperatorState::None };
    match &entry.progress {
        Progress::FullyFinished => OperatorState::FullyFinished { parallelism, max_parallelism },
        Progress::Subtasks { entries, .. } => {
            let parts = |state: &EntryState<Handle>| {
                state.state.as_ref().map_or_else(Vec::new, |handle| handle.parts.to_vec())
            };
            let subtasks = (0..parallelism)
                .map(|index| match entries.get(&index) {
                    None => SubtaskState::Running(Vec::new()),
                    Some(SubtaskEntry::Running(state)) => SubtaskState::Running(parts(state)),
                    Some(SubtaskEntry::OperatorsFinished(state)) => {
                        SubtaskState::OperatorsFinished(parts(state))
                    }
                    Some(SubtaskEntry::Finished { union }) => SubtaskState::Finished {
                        union: union.as_ref().map_or_else(Vec::new, |handle| handle.parts.to_vec()),
                    },
                })
                .collect();
            OperatorState::Subtasks(subtasks)
        }
    }
}

fn subtask_meta(head: Option<&OperatorEntry<Handle>>, index: u32) -> SubtaskMeta {
    let mut meta = SubtaskMeta::default();
    if let Some(OperatorEntry { progress: Progress::Subtasks { entries, .. }, .. }) = head
        && let Some(SubtaskEntry::Running(state) | SubtaskEntry::OperatorsFinished(state)) =
            entries.get(&index)
    {
        meta.ended_inputs = state.ended_inputs.clone();
        if let Some(handle) = &state.channels {
            meta.channels = handle.channels.to_vec();
        }
    }
    meta
}

/// The coordinator's metadata of a stored checkpoint.
pub(super) fn metadata(meta: &CheckpointMeta) -> Metadata<Handle> {
    let mut operators = BTreeMap::new();
    for vertex in &meta.vertices {
        for (place, operator) in vertex.operators.iter().enumerate() {
            let progress = match &operator.state {
                OperatorState::None => {
                    Progress::Subtasks { entries: BTreeMap::new(), coordinator: None }
                }
                OperatorState::FullyFinished { .. } => Progress::FullyFinished,
                OperatorState::Subtasks(subtasks) => {
                    let entry = |(index, subtask): (usize, &SubtaskState)| {
                        let head = vertex.subtasks.get(index).filter(|_| place == 0);
                        let ended =
                            head.map_or_else(Vec::new, |subtask| subtask.ended_inputs.clone());
                        let state = |parts: &Vec<StatePart>| EntryState {
                            state: (!parts.is_empty()).then(|| Handle::of_parts(parts.clone())),
                            channels: head
                                .filter(|subtask| !subtask.channels.is_empty())
                                .map(|subtask| Handle::of_channels(subtask.channels.clone())),
                            ended_inputs: ended.clone(),
                            reference: meta.id,
                        };
                        let entry = match subtask {
                            SubtaskState::Running(parts) => SubtaskEntry::Running(state(parts)),
                            SubtaskState::OperatorsFinished(parts) => {
                                SubtaskEntry::OperatorsFinished(state(parts))
                            }
                            SubtaskState::Finished { union } => SubtaskEntry::Finished {
                                union: (!union.is_empty()).then(|| Handle::of_parts(union.clone())),
                            },
                        };
                        (index as u32, entry)
                    };
                    let entries = subtasks.iter().enumerate().map(entry).collect();
                    Progress::Subtasks { entries, coordinator: None }
                }
            };
            let entry = OperatorEntry {
                parallelism: vertex.parallelism,
                max_parallelism: vertex.max_parallelism,
                progress,
            };
            operators.insert(operator.name.clone(), entry);
        }
    }
    let kind = match meta.kind {
        SnapshotKind::Checkpoint => Kind::Checkpoint,
        SnapshotKind::Savepoint { drained } => Kind::StopSavepoint { is_drain: drained },
    };
    let pinned_edges = pinned_edges(meta);
    Metadata { checkpoint: meta.id, timestamp: Timestamp::ZERO, kind, operators, pinned_edges }
}

/// Edges with bytes in flight that no other subtask could take, by the head operators of their vertices.
fn pinned_edges(meta: &CheckpointMeta) -> BTreeSet<(String, String)> {
    let head = |id: VertexId| {
        let vertex = meta.vertices.iter().find(|vertex| vertex.id == id)?;
        Some(vertex.operators.first()?.name.clone())
    };
    meta.edges
        .iter()
        .filter(|edge| !edge.is_reroutable && edge.captured_bytes > 0)
        .filter_map(|edge| Some((head(edge.from)?, head(edge.to)?)))
        .collect()
}

/// Refuses state that no operator of the job would take.
pub(super) fn check_operators(topology: &Topology, meta: &CheckpointMeta) -> Result<()> {
    for operator in meta.vertices.iter().flat_map(|vertex| &vertex.operators) {
        let is_known = topology
            .in_order()
            .iter()
            .flat_map(|vertex| &vertex.operators)
            .any(|known| known.id() == operator.name);
        let has_state = match &operator.state {
            OperatorState::None | OperatorState::FullyFinished { .. } => false,
            OperatorState::Subtasks(subtasks) => subtasks.iter().any(|subtask| match subtask {
                SubtaskState::Running(parts) | SubtaskState::OperatorsFinished(parts) => {
                    !parts.is_empty()
                }
                SubtaskState::Finished { union } => !union.is_empty(),
            }),
        };
        if has_state && !is_known {
            let message = format!(
                "checkpoint {} holds state of the operator '{}', which the job does not have",
                meta.id, operator.name
            );
            return Err(Error::new(ErrorKind::Checkpoint, message));
        }
    }
    Ok(())
}

/// What one subtask's operators find in the checkpoint.
pub(super) fn restored_state(
    checkpoint: CheckpointId,
    names: &[String],
    task: &TaskRestore<Handle>,
    reader: &Arc<SnapshotReader>,
) -> Result<RestoredState> {
    let mut operators: BTreeMap<String, Vec<RestoredPart>> = BTreeMap::new();
    for (name, restore) in names.iter().zip(&task.operators) {
        let mut parts = Vec::new();
        for source in &restore.keyed {
            for part in source.state.parts.iter() {
                if matches!(part.kind, StateKind::Keyed { .. } | StateKind::Timers { .. }) {
                    parts.push(restored_part(part, reader)?);
                }
            }
        }
        match &restore.list {
            ListSource::Own(own) => {
                for part in own.iter().flat_map(|handle| handle.parts.iter()) {
                    if is_list(part.kind) {
                        parts.push(restored_part(part, reader)?);
                    }
                }
            }
            ListSource::Dealt { sources, index, of } => {
                parts.extend(deal(sources, *index, *of, reader)?);
            }
        }
        let whole = restore.union.iter().chain(&restore.broadcast);
        for part in whole.flat_map(|handle| handle.parts.iter()) {
            if matches!(part.kind, StateKind::Union | StateKind::Broadcast) {
                parts.push(restored_part(part, reader)?);
            }
        }
        operators.insert(name.clone(), parts);
    }
    Ok(RestoredState { checkpoint: Some(checkpoint), operators })
}

fn is_list(kind: StateKind) -> bool {
    matches!(kind, StateKind::List | StateKind::Committables | StateKind::Position)
}

/// A share of the items of all lists of one name, counted through in order.
fn deal(
    sources: &[Handle],
    index: u32,
    of: u32,
    reader: &Arc<SnapshotReader>,
) -> Result<Vec<RestoredPart>> {
    let mut lists: BTreeMap<(PartKind, String), Vec<Vec<u8>>> = BTreeMap::new();
    for part in sources.iter().flat_map(|handle| handle.parts.iter()) {
        if is_list(part.kind) {
            let bytes = reader.bytes(&part.data, LIST_BYTES_MAX)?;
            lists
                .entry((part_kind(part.kind), part.name.clone()))
                .or_default()
                .extend(decode_list(&bytes)?);
        }
    }
    Ok(lists
        .into_iter()
        .map(|((kind, name), items)| {
            let (index, of) = if is_broken(Fault::DealtTwice) { (0, 1) } else { (index, of) };
            let share = items.iter().skip(index as usize).step_by(of.max(1) as usize);
            let data = RestoredData::Inline(encode_list(share.map(Vec::as_slice)));
            RestoredPart { kind, name, data }
        })
        .collect())
}

/// The longest list that is dealt out.
const LIST_BYTES_MAX: usize = 256 << 20;

fn part_kind(kind: StateKind) -> PartKind {
    match kind {
        StateKind::Keyed { .. } => PartKind::Keyed,
        StateKind::List => PartKind::List,
        StateKind::Union => PartKind::Union,
        StateKind::Broadcast => PartKind::Broadcast,
        StateKind::Timers { .. } => PartKind::Timers,
        StateKind::Committables => PartKind::Committables,
        StateKind::Position => PartKind::Position,
    }
}

fn restored_part(part: &StatePart, reader: &Arc<SnapshotReader>) -> Result<RestoredPart> {
    let data = match (&part.data, part.kind) {
        (StateData::Inline(bytes), _) => RestoredData::Inline(bytes.clone()),
        (
            StateData::Blocks(_),
            StateKind::Keyed { first, last } | StateKind::Timers { first, last },
        ) => RestoredData::Blocks(Arc::new(Blocks {
            reader: reader.clone(),
            groups: KeyGroupRange { first: first.0, end: last.0.saturating_add(1) },
            data: part.data.clone(),
        })),
        (
            StateData::Blocks(_),
            StateKind::List
            | StateKind::Union
            | StateKind::Broadcast
            | StateKind::Committables
            | StateKind::Position,
        ) => RestoredData::Inline(reader.bytes(&part.data, LIST_BYTES_MAX)?),
    };
    Ok(RestoredPart { kind: part_kind(part.kind), name: part.name.clone(), data })
}

/// Blocks of keyed state in a stored checkpoint.
#[derive(Debug)]
struct Blocks {
    reader: Arc<SnapshotReader>,
    groups: KeyGroupRange,
    data: StateData,
}

impl ReadBlocks for Blocks {
    fn read(&self, range: KeyGroupRange, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let StateData::Blocks(runs) = &self.data else { return Ok(()) };
        let (first, last) = (KeyGroup(range.first), KeyGroup(range.end - 1));
        for run in runs {
            let mut blocks = self.reader.blocks(run)?.with_groups(first, last);
            while let Some(block) = blocks.read_block()? {
                each(block.payload)?;
            }
        }
        Ok(())
    }

    fn bytes(&self, range: KeyGroupRange) -> u64 {
        let StateData::Blocks(runs) = &self.data else { return 0 };
        // Memory will be taken for them: a run may claim any length, but the files were seen to have theirs.
        let claimed = runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.length));
        let bytes = claimed.min(self.reader.meta().files.iter().map(|file| file.bytes).sum());
        let KeyGroupRange { first, end } = self.groups;
        let shared = range.end.min(end).saturating_sub(range.first.max(first));
        bytes / u64::from(end.saturating_sub(first).max(1)) * u64::from(shared)
    }
}
