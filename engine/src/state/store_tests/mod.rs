//! Tests of the snapshot store as a whole, and what they share.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod directory;
mod faults;
mod format;
mod life;
mod spill;
mod verify;

use std::sync::Arc;

use super::block::{BlockKind, BlockOrigin, BlockRef};
use super::block_io::BlockWriter;
use super::manifest::{
    ChannelMeta, ChannelSide, CheckpointMeta, EdgeMeta, FileMeta, OperatorMeta, OperatorState,
    SnapshotKind, StateData, StateKind, StatePart, SubtaskMeta, SubtaskState, VertexMeta,
};
use super::memory::MemoryStore;
use super::snapshots::{Owner, Snapshots};
use super::store::SnapshotStore;
use crate::clock::EpochMillis;
use crate::error::Result;
use crate::id::{ChannelIndex, CheckpointId, KeyGroup, SubtaskId, VertexId};

fn owner() -> Owner {
    Owner { job: "word count".into(), fingerprint: "a1b2".into() }
}

fn own(store: &(impl SnapshotStore + Clone + 'static)) -> Snapshots {
    let (snapshots, _) = Snapshots::own(Arc::new(store.clone()), &owner()).unwrap();
    snapshots
}

/// A manifest with nothing but the files and one list state that names the runs.
fn meta(id: CheckpointId, files: Vec<FileMeta>, runs: Vec<BlockRef>) -> CheckpointMeta {
    let part = StatePart { kind: StateKind::List, name: "l".into(), data: StateData::Blocks(runs) };
    CheckpointMeta {
        job: owner().job,
        fingerprint: owner().fingerprint,
        id,
        kind: SnapshotKind::Checkpoint,
        triggered_at: EpochMillis(1_000),
        completed_at: EpochMillis(1_005),
        owner_epoch: 1,
        files,
        vertices: vec![VertexMeta {
            id: VertexId(0),
            name: "source".into(),
            parallelism: 1,
            max_parallelism: 128,
            operators: vec![OperatorMeta {
                name: "lines".into(),
                state: OperatorState::Subtasks(vec![SubtaskState::Running(vec![part])]),
            }],
            subtasks: vec![SubtaskMeta::default()],
        }],
        edges: vec![],
    }
}

/// Writes a checkpoint of one data file with `payload`, and commits it.
fn write_checkpoint(snapshots: &Snapshots, id: u64, payload: &[u8]) -> Result<CheckpointMeta> {
    let id = CheckpointId(id);
    snapshots.reserve_ids(CheckpointId(id.0 + 1))?;
    let writer = snapshots.begin(id)?;
    let mut data = writer.data_file(0)?;
    let run = data.write(list_origin(), payload)?;
    let meta = meta(id, vec![data.close()?], vec![run]);
    writer.commit(&meta)?;
    Ok(meta)
}

fn list_origin() -> BlockOrigin {
    BlockOrigin::state(BlockKind::List, SubtaskId::new(0, 0), 0)
}

/// A manifest with every kind of entry, and a completed checkpoint behind it of at least 64 KiB in three files.
fn write_rich_checkpoint(snapshots: &Snapshots, id: u64) -> CheckpointMeta {
    let id = CheckpointId(id);
    snapshots.reserve_ids(CheckpointId(id.0 + 1)).unwrap();
    let writer = snapshots.begin(id).unwrap();
    let (mut first, mut second) = (writer.data_file(0).unwrap(), writer.data_file(1).unwrap());
    let mut shared = writer.shared_file(0).unwrap();
    let meta = rich_meta(id, &mut first, &mut second, &mut shared);
    let files = [first, second, shared].map(|file| file.close().unwrap());
    let meta = CheckpointMeta { files: files.into(), ..meta };
    writer.commit(&meta).unwrap();
    meta
}

fn rich_meta(
    id: CheckpointId,
    first: &mut BlockWriter,
    second: &mut BlockWriter,
    shared: &mut BlockWriter,
) -> CheckpointMeta {
    let subtask = SubtaskId::new(1, 0);
    let mut keyed = Vec::new();
    for group in 0..16 {
        let origin = BlockOrigin::state(BlockKind::Keyed, subtask, 1);
        let origin = origin.groups(KeyGroup(group * 4), KeyGroup(group * 4 + 3));
        keyed.push(first.write(origin, &noise(group, 3_001)).unwrap());
    }
    let mut buffers = Vec::<BlockRef>::new();
    for number in 40..44 {
        let origin = BlockOrigin::buffer(subtask, ChannelIndex(3), number);
        let run = second.write(origin, &noise(number as u32, 5_003)).unwrap();
        if !buffers.last_mut().is_some_and(|last| last.join(&run)) {
            buffers.push(run);
        }
    }
    let union = shared.write(list_origin(), b"offsets of the finished").unwrap();
    let (first_group, last_group) = (KeyGroup(0), KeyGroup(63));
    let part = |kind, name: &str, data| StatePart { kind, name: name.into(), data };
    let inline = |bytes: &[u8]| StateData::Inline(bytes.to_vec());
    let running = vec![
        part(
            StateKind::Keyed { first: first_group, last: last_group },
            "counts",
            StateData::Blocks(keyed),
        ),
        part(StateKind::Timers { first: first_group, last: last_group }, "t", inline(b"7")),
        part(StateKind::List, "list", inline(b"")),
        part(StateKind::Broadcast, "rules", inline(b"rule")),
        part(StateKind::Committables, "files", inline(b"part-0")),
        part(StateKind::Position, "at", inline(b"42")),
    ];
    let subtasks = OperatorState::Subtasks(vec![
        SubtaskState::Running(running),
        SubtaskState::Finished {
            union: vec![part(StateKind::Union, "offsets", StateData::Blocks(vec![union]))],
        },
        SubtaskState::OperatorsFinished(vec![part(StateKind::List, "list", inline(b"last"))]),
    ]);
    let operators = [
        ("none", OperatorState::None),
        ("some", subtasks),
        ("all", OperatorState::FullyFinished { parallelism: 3, max_parallelism: 128 }),
    ];
    let channel = ChannelMeta {
        gate: 0,
        channel: 3,
        side: ChannelSide::Sender,
        restores: 2,
        first: 40,
        count: 4,
        watermark: EpochMillis(99),
        is_idle: true,
        data: StateData::Blocks(buffers),
    };
    let task = SubtaskMeta {
        ended_inputs: vec![0, 2],
        reference: Some(CheckpointId(5)),
        channels: vec![channel],
    };
    let mut meta = meta(id, vec![], vec![]);
    meta.vertices.push(VertexMeta {
        id: VertexId(1),
        name: "chain".into(),
        parallelism: 3,
        max_parallelism: 128,
        operators: operators.map(|(name, state)| OperatorMeta { name: name.into(), state }).into(),
        subtasks: vec![task, SubtaskMeta::default(), SubtaskMeta::default()],
    });
    meta.edges.push(EdgeMeta {
        from: VertexId(0),
        to: VertexId(1),
        gate: 0,
        captured_bytes: 20_012,
        is_reroutable: false,
    });
    meta
}

/// Bytes without a pattern that a checksum could miss.
fn noise(seed: u32, length: usize) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn memory() -> MemoryStore {
    MemoryStore::new()
}
