//! Blocks and manifests as bytes: what is written is read back, and nothing else is accepted.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::state::block::{BLOCK_HEAD_BYTES, BlockHead};
use crate::state::block_io::BlockReader;
use crate::state::manifest::INLINE_BYTES_MAX;
use crate::state::store::{ObjectName, ObjectReader, SnapshotStore};
use std::path::Path;

/// An object with these bytes.
fn object(bytes: &[u8]) -> Arc<dyn ObjectReader> {
    let store = memory();
    let name = ObjectName::parse("data-0").unwrap();
    store.create(&name).unwrap().append(bytes).unwrap();
    store.open(&name).unwrap()
}

fn read_all(mut reader: BlockReader) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(block) = reader.read_block()? {
        bytes.extend_from_slice(block.payload);
    }
    Ok(bytes)
}

/// Puts the right checksum behind a manifest's bytes, so that the decoder looks further.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let at = bytes.len() - 4;
    let sum = crc32c::crc32c(&bytes[..at]);
    bytes[at..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn rich() -> CheckpointMeta {
    write_rich_checkpoint(&own(&memory()), 7)
}

fn any_name() -> impl Strategy<Value = String> {
    "[a-zä\\n]{0,12}"
}

fn any_data() -> impl Strategy<Value = StateData> {
    let runs = vec((0..2_u8, 0..50_u64, 0..50_u64, any::<u32>()), 0..4);
    prop_oneof![
        vec(any::<u8>(), 0..100).prop_map(StateData::Inline),
        runs.prop_map(|runs| {
            let run = |(file, offset, length, crc)| {
                let file = ["data-0", "shared/s-1-0"][usize::from(file)].into();
                BlockRef { file, offset, length, crc }
            };
            StateData::Blocks(runs.into_iter().map(run).collect())
        }),
    ]
}

fn any_part() -> impl Strategy<Value = StatePart> {
    let groups = (0..100_u32, 0..100_u32).prop_map(|(a, b)| (KeyGroup(a), KeyGroup(a + b)));
    let kind = prop_oneof![
        groups.clone().prop_map(|(first, last)| StateKind::Keyed { first, last }),
        groups.prop_map(|(first, last)| StateKind::Timers { first, last }),
        Just(StateKind::List),
        Just(StateKind::Union),
        Just(StateKind::Broadcast),
        Just(StateKind::Committables),
        Just(StateKind::Position),
    ];
    (kind, any_name(), any_data()).prop_map(|(kind, name, data)| StatePart { kind, name, data })
}

fn any_operator(parallelism: u32) -> impl Strategy<Value = OperatorMeta> {
    let union = (any_name(), any_data()).prop_map(|(name, data)| StatePart {
        kind: StateKind::Union,
        name,
        data,
    });
    let subtask = prop_oneof![
        vec(any_part(), 0..3).prop_map(SubtaskState::Running),
        vec(union, 0..3).prop_map(|union| SubtaskState::Finished { union }),
        vec(any_part(), 0..3).prop_map(SubtaskState::OperatorsFinished),
    ];
    let state = prop_oneof![
        Just(OperatorState::None),
        vec(subtask, parallelism as usize).prop_map(OperatorState::Subtasks),
        any::<(u32, u32)>().prop_map(|(parallelism, max_parallelism)| {
            OperatorState::FullyFinished { parallelism, max_parallelism }
        }),
    ];
    (any_name(), state).prop_map(|(name, state)| OperatorMeta { name, state })
}

fn any_vertex() -> impl Strategy<Value = VertexMeta> {
    let channel = (any::<(u32, u32, bool, u32, u32, u32, i64, bool)>(), any_data()).prop_map(
        |((gate, channel, is_sender, restores, first, count, watermark, is_idle), data)| {
            ChannelMeta {
                gate,
                channel,
                side: if is_sender { ChannelSide::Sender } else { ChannelSide::Receiver },
                restores,
                first: first.into(),
                count: count.into(),
                watermark: EpochMillis(watermark),
                is_idle,
                data,
            }
        },
    );
    let ended = proptest::collection::btree_set(any::<u32>(), 0..4);
    let task = (ended, any::<Option<u64>>(), vec(channel, 0..3)).prop_map(
        |(ended, reference, channels)| SubtaskMeta {
            ended_inputs: ended.into_iter().collect(),
            reference: reference.map(CheckpointId),
            channels,
        },
    );
    let task = task.boxed();
    (1..4_u32).prop_flat_map(move |parallelism| {
        let tasks = prop_oneof![Just(vec![]), vec(task.clone(), parallelism as usize)];
        let operators = vec(any_operator(parallelism), 0..3);
        (any::<u32>(), any_name(), operators, tasks).prop_map(
            move |(id, name, operators, tasks)| {
                let id = VertexId(id);
                let max_parallelism = 128;
                VertexMeta { id, name, parallelism, max_parallelism, operators, subtasks: tasks }
            },
        )
    })
}

fn any_meta() -> impl Strategy<Value = CheckpointMeta> {
    let file = |name: &str, crc| FileMeta { name: name.into(), bytes: 100, crc };
    let files = any::<(u32, u32)>()
        .prop_map(move |(a, b)| vec![file("data-0", a), file("shared/s-1-0", b)]);
    let edge = any::<(u32, u32, u32, u64, bool)>().prop_map(|(from, to, gate, bytes, flag)| {
        let (from, to) = (VertexId(from), VertexId(to));
        EdgeMeta { from, to, gate, captured_bytes: bytes, is_reroutable: flag }
    });
    let head = (any_name(), any_name(), any::<(u64, i64, i64, u64)>());
    (head, files, vec(any_vertex(), 0..3), vec(edge, 0..3)).prop_map(
        |((job, fingerprint, (id, triggered, completed, owner_epoch)), files, vertices, edges)| {
            CheckpointMeta {
                job,
                fingerprint,
                id: CheckpointId(id),
                kind: SnapshotKind::Checkpoint,
                triggered_at: EpochMillis(triggered),
                completed_at: EpochMillis(completed),
                owner_epoch,
                files,
                vertices,
                edges,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_manifest_is_read_back_as_it_was_written(meta in any_meta()) {
        let bytes = meta.encode().unwrap();
        prop_assert_eq!(CheckpointMeta::decode(&bytes).unwrap(), meta);
    }

    #[test]
    fn a_manifest_of_any_bytes_is_refused_without_a_panic(body in vec(any::<u8>(), 0..300)) {
        let mut bytes = rich().encode().unwrap()[..24].to_vec();
        bytes[16..24].copy_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(&[0; 4]);
        prop_assert!(CheckpointMeta::decode(&body).is_err());
        if let Ok(meta) = CheckpointMeta::decode(&resealed(bytes.clone())) {
            prop_assert_eq!(meta.encode().unwrap(), resealed(bytes));
        }
    }

    #[test]
    fn a_manifest_changed_under_a_right_sum_is_refused_or_sound(
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4)
    ) {
        let mut bytes = rich().encode().unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let bytes = resealed(bytes);
        if let Ok(meta) = CheckpointMeta::decode(&bytes) {
            prop_assert_eq!(meta.encode().unwrap(), bytes);
        }
    }

    #[test]
    fn a_payload_is_read_back_however_it_was_appended(
        pieces in vec(vec(any::<u8>(), 0..2_000), 0..6),
        long in 0..2_500_000_usize,
    ) {
        let long = noise(1, long);
        let snapshots = own(&memory());
        snapshots.reserve_ids(CheckpointId(2)).unwrap();
        let mut data = snapshots.begin(CheckpointId(1)).unwrap().data_file(0).unwrap();
        data.write(list_origin(), b"before").unwrap();
        data.begin(list_origin());
        for piece in pieces.iter().chain([&long]) {
            data.append(piece).unwrap();
        }
        let run = data.finish().unwrap();
        data.write(list_origin(), b"after").unwrap();
        let file = data.close().unwrap();

        let name = ObjectName::parse("chk-1/data-0").unwrap();
        let object = snapshots.store().open(&name).unwrap();
        let mut whole = vec![0; file.bytes as usize];
        object.read_at(0, &mut whole).unwrap();
        prop_assert_eq!(crc32c::crc32c(&whole), file.crc);
        let (start, end) = (run.offset as usize, (run.offset + run.length) as usize);
        prop_assert_eq!(crc32c::crc32c(&whole[start..end]), run.crc);
        let payload = read_all(BlockReader::new(object, &run, Path::new("x")).unwrap()).unwrap();
        prop_assert!(payload == [pieces.concat(), long].concat());
    }

    #[test]
    fn blocks_of_any_bytes_are_refused_without_a_panic(
        bytes in vec(any::<u8>(), 1..300),
        head in any::<[u8; BLOCK_HEAD_BYTES]>(),
        offset in any::<u64>(),
        length in any::<u64>(),
    ) {
        prop_assert!(read_all(BlockReader::whole(object(&bytes), Path::new("x"))).is_err());
        prop_assert!(BlockHead::decode(&head).is_err());
        let run = BlockRef { file: "data-0".into(), offset, length, crc: 0 };
        if let Ok(reader) = BlockReader::new(object(&bytes), &run, Path::new("x")) {
            prop_assert!(length == 0 || read_all(reader).is_err());
        }
    }
}

#[test]
fn dp_08_all_five_kinds_of_entry_are_read_back() {
    let meta = rich();
    assert_eq!(CheckpointMeta::decode(&meta.encode().unwrap()).unwrap(), meta);
}

#[test]
fn a_manifest_refuses_every_truncation_and_every_flipped_byte() {
    let bytes = rich().encode().unwrap();
    for length in 0..bytes.len() {
        assert!(CheckpointMeta::decode(&bytes[..length]).is_err(), "cut at {length}");
    }
    for at in 0..bytes.len() {
        for mask in [1, 0x20, 0x80, 0xff] {
            let mut flipped = bytes.clone();
            flipped[at] ^= mask;
            assert!(CheckpointMeta::decode(&flipped).is_err(), "byte {at}");
        }
    }
    assert!(CheckpointMeta::decode(&resealed([bytes, vec![0]].concat())).is_err());
}

#[test]
fn a_block_head_refuses_every_flipped_byte() {
    let head = BlockHead {
        origin: BlockOrigin::buffer(SubtaskId::new(3, 4), ChannelIndex(5), u64::MAX - 6),
        is_first: true,
        is_last: false,
        place: 0,
        payload_bytes: 77,
        payload_crc: 88,
    };
    let bytes = head.encode();
    assert_eq!(BlockHead::decode(&bytes).unwrap(), head);
    for at in 0..bytes.len() {
        for mask in 1..=255 {
            let mut flipped = bytes;
            flipped[at] ^= mask;
            assert!(BlockHead::decode(&flipped).is_err(), "byte {at} mask {mask}");
        }
    }
}

#[test]
fn a_count_of_four_billion_allocates_nothing() {
    let mut bytes = rich().encode().unwrap();
    for at in 24..bytes.len() - 8 {
        let saved: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        let sealed = resealed(bytes.clone());
        if let Ok(meta) = CheckpointMeta::decode(&sealed) {
            assert_eq!(meta.encode().unwrap(), sealed, "byte {at}");
        }
        bytes[at..at + 4].copy_from_slice(&saved);
    }
}

#[test]
fn what_could_not_be_read_back_is_not_encoded() {
    let too_long = StateData::Inline(vec![0; INLINE_BYTES_MAX + 1]);
    let with = |change: &dyn Fn(&mut CheckpointMeta)| {
        let mut meta = rich();
        change(&mut meta);
        meta.encode().unwrap_err()
    };
    let errors = [
        with(&|m| m.files[0].name = "../../etc/passwd".into()),
        with(&|m| m.files[0].name = "MANIFEST".into()),
        with(&|m| m.files[1].name = m.files[0].name.clone()),
        with(&|m| m.files[0].bytes = 1),
        with(&|m| m.kind = SnapshotKind::Savepoint { drained: true }),
        with(&|m| m.vertices[0].parallelism = 0),
        with(&|m| m.vertices[1].parallelism = 4),
        with(&|m| m.vertices[1].subtasks[0].ended_inputs = vec![2, 1]),
        with(&|m| m.vertices[1].subtasks[0].channels[0].first = u64::MAX),
        with(&|m| m.vertices[1].subtasks[0].channels[0].data = too_long.clone()),
    ];
    assert!(errors.iter().all(|e| e.kind() == ErrorKind::Checkpoint));
}

#[test]
fn a_finished_subtask_keeps_union_state_only() {
    let mut meta = rich();
    let OperatorState::Subtasks(subtasks) = &mut meta.vertices[1].operators[1].state else {
        unreachable!("the fixture's second operator has subtasks");
    };
    let parts = subtasks[0].parts().to_vec();
    subtasks[1] = SubtaskState::Finished { union: parts };
    assert!(meta.encode().unwrap_err().to_string().contains("union"));
}

#[test]
fn blocks_without_a_wanted_key_group_are_skipped() {
    let store = memory();
    let snapshots = own(&store);
    let meta = write_rich_checkpoint(&snapshots, 1);
    let mut runs = meta.block_refs().filter(|run| &*run.file == "data-0").cloned();
    let mut keyed = runs.next().unwrap();
    assert!(runs.all(|run| keyed.join(&run)), "the runs lie back to back");

    let reader = snapshots.open(CheckpointId(1)).unwrap();
    let blocks = reader.blocks(&keyed).unwrap().with_groups(KeyGroup(7), KeyGroup(8));
    let expected = [noise(1, 3_001), noise(2, 3_001)].concat();
    assert!(read_all(blocks).unwrap() == expected);
    assert_eq!(read_all(reader.blocks(&keyed).unwrap()).unwrap().len(), 16 * 3_001);
}

#[test]
fn a_run_that_lacks_its_last_block_is_refused() {
    let snapshots = own(&memory());
    let meta = write_checkpoint(&snapshots, 1, &noise(1, (1 << 20) + 5)).unwrap();
    let mut run = meta.block_refs().next().unwrap().clone();
    run.length -= 64 + 8;
    let reader = snapshots.open(CheckpointId(1)).unwrap();
    let error = read_all(reader.blocks(&run).unwrap()).unwrap_err();
    assert!(error.to_string().contains("last block"), "{error}");
}
