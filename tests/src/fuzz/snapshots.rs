//! The files of a checkpoint directory.

use std::cell::RefCell;
use std::sync::Arc;

use tidegate::clock::EpochMillis;
use tidegate::decoders;
use tidegate::id::{ChannelIndex, CheckpointId, KeyGroup, SubtaskId, VertexId};
use tidegate::state::block::{BLOCK_HEAD_BYTES, BlockHead, BlockKind, BlockOrigin, BlockRef};
use tidegate::state::block_io::BlockWriter;
use tidegate::state::manifest::{
    ChannelMeta, ChannelSide, CheckpointMeta, EdgeMeta, FileMeta, OperatorMeta, OperatorState,
    SnapshotKind, StateData, StateKind, StatePart, SubtaskMeta, SubtaskState, VertexMeta,
};
use tidegate::state::memory::MemoryStore;
use tidegate::state::part::{decode_list, encode_list};
use tidegate::state::store::{ObjectName, SnapshotStore};

use super::{Seed, accept, text_seed, variant_and_text};

/// What is read is written again as the same bytes: there is one way to write a manifest.
pub(super) fn manifest(bytes: &[u8]) {
    if let Ok(meta) = CheckpointMeta::decode(bytes) {
        accept();
        let again = meta.encode().expect("what could be read can be written");
        assert_eq!(CheckpointMeta::decode(&again).expect("it was just written"), meta);
    }
}

/// Puts length and sum right.
#[allow(clippy::ptr_arg, reason = "other repairs change the length")]
pub(super) fn repair_manifest(bytes: &mut Vec<u8>) {
    const HEAD_BYTES: usize = 24;
    if bytes.len() < HEAD_BYTES + 4 {
        return;
    }
    let body = (bytes.len() - 4 - HEAD_BYTES) as u64;
    bytes[16..24].copy_from_slice(&body.to_le_bytes());
    let end = bytes.len() - 4;
    let sum = crc32c::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
}

pub(super) fn manifest_seeds() -> Vec<Seed> {
    let run = || BlockRef { file: "data-0".into(), offset: 0, length: 128, crc: 7 };
    let part = |kind, data| StatePart { kind, name: "state".into(), data };
    let groups = || StateKind::Keyed { first: KeyGroup(0), last: KeyGroup(127) };
    let rich = CheckpointMeta {
        job: "orders".into(),
        fingerprint: "f00d".into(),
        id: CheckpointId(7),
        kind: SnapshotKind::Savepoint { drained: true },
        triggered_at: EpochMillis(1_000),
        completed_at: EpochMillis(1_005),
        owner_epoch: 3,
        files: vec![FileMeta { name: "data-0".into(), bytes: 128, crc: 9 }],
        vertices: vec![
            VertexMeta {
                id: VertexId(0),
                name: "source".into(),
                parallelism: 2,
                max_parallelism: 128,
                operators: vec![OperatorMeta {
                    name: "lines".into(),
                    state: OperatorState::Subtasks(vec![
                        SubtaskState::Running(vec![
                            part(StateKind::Position, StateData::Inline(b"here".to_vec())),
                            part(groups(), StateData::Blocks(vec![run()])),
                        ]),
                        SubtaskState::Finished { union: Vec::new() },
                    ]),
                }],
                subtasks: vec![
                    SubtaskMeta {
                        ended_inputs: vec![0],
                        reference: None,
                        channels: vec![ChannelMeta {
                            gate: 0,
                            channel: 1,
                            side: ChannelSide::Receiver,
                            first: 5,
                            count: 2,
                            watermark: EpochMillis(-1),
                            is_idle: true,
                            restores: 1,
                            data: StateData::Inline(b"records".to_vec()),
                        }],
                    },
                    SubtaskMeta::default(),
                ],
            },
            VertexMeta {
                id: VertexId(1),
                name: "sink".into(),
                parallelism: 1,
                max_parallelism: 128,
                operators: vec![OperatorMeta {
                    name: "files".into(),
                    state: OperatorState::FullyFinished { parallelism: 1, max_parallelism: 128 },
                }],
                subtasks: Vec::new(),
            },
        ],
        edges: vec![EdgeMeta {
            from: VertexId(0),
            to: VertexId(1),
            gate: 0,
            captured_bytes: 7,
            is_reroutable: true,
        }],
    };
    let empty = CheckpointMeta {
        files: Vec::new(),
        vertices: Vec::new(),
        edges: Vec::new(),
        kind: SnapshotKind::Checkpoint,
        ..rich.clone()
    };
    let bytes = |meta: &CheckpointMeta| meta.encode().expect("it does not contradict itself");
    vec![("empty", bytes(&empty)), ("rich", bytes(&rich))]
}

fn origin(number: u64) -> BlockOrigin {
    let origin = BlockOrigin::state(BlockKind::List, SubtaskId::new(1, 2), 3);
    BlockOrigin { channel: ChannelIndex(4), number, ..origin }
}

/// Writes blocks with these payloads as a file.
fn file(payloads: &[&[u8]]) -> Vec<u8> {
    let store = MemoryStore::new();
    let name = ObjectName::parse("chk-1/data-0").expect("it is a name");
    let object = store.create(&name).expect("memory takes it");
    let mut writer = BlockWriter::new(object, Arc::from("data-0"), "data-0".into());
    for (number, payload) in (0..).zip(payloads) {
        writer.write(origin(number), payload).expect("memory takes it");
    }
    writer.close().expect("memory takes it");
    let reader = store.open(&name).expect("it was written");
    let mut bytes = vec![0; reader.bytes() as usize];
    reader.read_at(0, &mut bytes).expect("it was written");
    bytes
}

/// A header that is read is written again as the same bytes.
pub(super) fn block_heads(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk::<BLOCK_HEAD_BYTES>()
        && let Ok(read) = BlockHead::decode(head)
    {
        accept();
        assert_eq!(read.encode(), *head, "{read:?}");
    }
}

pub(super) fn block_head_seeds() -> Vec<Seed> {
    let whole = file(&[b"payload"]);
    vec![("list", whole[..BLOCK_HEAD_BYTES].to_vec())]
}

/// A block is shown only whole and with its own payload; never more payload than there are bytes.
pub(super) fn blocks(bytes: &[u8]) {
    let shown = RefCell::new(Vec::new());
    let outcome = decoders::blocks(bytes, |origin, payload| {
        shown.borrow_mut().push((origin, payload.to_vec()));
    });
    let shown = shown.into_inner();
    let total: usize = shown.iter().map(|(_, payload)| payload.len()).sum();
    assert!(total <= bytes.len(), "{total} bytes of payload in {} bytes", bytes.len());
    if outcome.is_ok() {
        accept();
        assert_eq!(bytes.is_empty(), shown.is_empty(), "a file without blocks");
    }
}

/// Puts the sums of the blocks right, as far as there are some.
#[allow(clippy::ptr_arg, reason = "other repairs change the length")]
pub(super) fn repair_blocks(bytes: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + BLOCK_HEAD_BYTES) {
        let length = u32::from_le_bytes(head[44..48].try_into().expect("four bytes")) as usize;
        let begin = at + BLOCK_HEAD_BYTES;
        if let Some(payload) = bytes.get(begin..begin.saturating_add(length)) {
            let sum = crc32c::crc32c(payload);
            bytes[at + 48..at + 52].copy_from_slice(&sum.to_le_bytes());
        }
        let sum = crc32c::crc32c(&bytes[at..at + 60]);
        bytes[at + 60..at + 64].copy_from_slice(&sum.to_le_bytes());
        at = begin.saturating_add(length.next_multiple_of(8));
    }
}

pub(super) fn block_seeds() -> Vec<Seed> {
    vec![
        ("none", file(&[])),
        ("one", file(&[b"payload"])),
        ("three", file(&[b"", b"12345678", &[7; 100]])),
    ]
}

/// The files in the order of their variants.
const SMALL_FILES: [&str; 3] = ["OWNER", "NEXT-ID", "ENDED"];

/// There is one way to write each of them.
pub(super) fn small_files(bytes: &[u8]) {
    let Some((&variant, bytes)) = bytes.split_first() else { return };
    let name = SMALL_FILES[usize::from(variant) % SMALL_FILES.len()];
    if let Ok(Some(again)) = decoders::small_file(name, bytes) {
        accept();
        assert_eq!(again, bytes, "{name}");
    }
}

/// Puts the sum in the last line right.
pub(super) fn repair_small_file(bytes: &mut Vec<u8>) {
    const SUM_LINE_BYTES: usize = "crc32c 00000000\n".len();
    if bytes.len() < SUM_LINE_BYTES + 1 {
        return;
    }
    let end = bytes.len() - SUM_LINE_BYTES;
    let sum = crc32c::crc32c(&bytes[1..end]);
    bytes.truncate(end);
    bytes.extend_from_slice(format!("crc32c {sum:08x}\n").as_bytes());
}

pub(super) fn small_file_seeds() -> Vec<Seed> {
    let sealed = |name, variant, text: &str| {
        let sum = crc32c::crc32c(text.as_bytes());
        text_seed(name, variant, &format!("{text}crc32c {sum:08x}\n"))
    };
    let owner = "tidegate snapshots 1\njob a\\nb\nfingerprint f00d\nepoch 3\npid 77\n";
    vec![
        sealed("owner", 0, owner),
        sealed("next-id", 1, "tidegate ids 1\nnext 65\n"),
        sealed("savepoint", 2, "tidegate end 1\nsavepoint /mnt/save\n"),
        sealed("back", 2, "tidegate end 1\nback chk-3\n"),
        text_seed("ended", 2, ""),
    ]
}

/// A list is read as it was written, and only whole.
pub(super) fn state_lists(bytes: &[u8]) {
    if let Ok(items) = decode_list(bytes) {
        accept();
        assert_eq!(encode_list(items.iter().map(Vec::as_slice)), bytes);
    }
}

pub(super) fn state_list_seeds() -> Vec<Seed> {
    let list = |items: &[&[u8]]| encode_list(items.iter().copied());
    vec![("empty", list(&[])), ("three", list(&[b"one", b"", b"three"]))]
}

/// A name never leads out of the store.
pub(super) fn object_names(bytes: &[u8]) {
    if let Some((_, text)) = variant_and_text(bytes)
        && let Ok(name) = ObjectName::parse(text)
    {
        accept();
        assert_eq!(name.as_str(), text);
        let is_inside = |part: &str| !part.is_empty() && !part.starts_with('.');
        assert!(text.split('/').all(is_inside) && text.split('/').count() <= 2, "{text:?}");
        assert!(!text.contains(['\0', '\\']) && text.is_ascii(), "{text:?}");
    }
}

pub(super) fn object_name_seeds() -> Vec<Seed> {
    vec![text_seed("data", 0, "chk-1/data-0"), text_seed("owner", 0, "OWNER")]
}
