//! Every byte of a completed checkpoint is covered.

use super::*;
use crate::error::ErrorKind;
use crate::state::snapshots::checkpoint_folder;
use crate::state::store::ObjectName;
use crate::state::verify::{inspect, verify};

fn rich_store() -> (MemoryStore, Arc<dyn SnapshotStore>, String) {
    let store = memory();
    write_rich_checkpoint(&own(&store), 7);
    (store.clone(), Arc::new(store), checkpoint_folder(CheckpointId(7)))
}

fn files_of_the_checkpoint(store: &MemoryStore) -> Vec<ObjectName> {
    store.names().into_iter().filter(|name| !name.folder().is_empty()).collect()
}

#[test]
fn every_flipped_byte_of_every_file_is_found() {
    let (store, seam, folder) = rich_store();
    let verified = verify(&seam, &folder).unwrap();
    assert!(verified.bytes >= 64 << 10, "{verified:?}");
    let names = files_of_the_checkpoint(&store);
    assert_eq!(names.len(), 4, "{names:?}");
    for name in names {
        let bytes = seam.open(&name).unwrap().bytes() as usize;
        for at in 0..bytes {
            let mask = 1 << (at % 8);
            store.tamper(&name, |bytes| bytes[at] ^= mask);
            assert!(verify(&seam, &folder).is_err(), "{name} byte {at}");
            store.tamper(&name, |bytes| bytes[at] ^= mask);
        }
    }
    assert_eq!(verify(&seam, &folder).unwrap(), verified);
}

#[test]
fn every_truncation_of_every_file_is_found() {
    let (store, seam, folder) = rich_store();
    for name in files_of_the_checkpoint(&store) {
        let bytes = seam.open(&name).unwrap().bytes() as usize;
        for length in 0..bytes {
            let mut cut = Vec::new();
            store.tamper(&name, |bytes| cut = bytes.split_off(length));
            assert!(verify(&seam, &folder).is_err(), "{name} cut at {length}");
            store.tamper(&name, |bytes| bytes.append(&mut cut));
        }
        store.tamper(&name, |bytes| bytes.extend_from_slice(&[0; 8]));
        assert!(verify(&seam, &folder).is_err(), "{name} with more");
        store.tamper(&name, |bytes| bytes.truncate(length_without(bytes)));
    }
    verify(&seam, &folder).unwrap();
}

fn length_without(bytes: &[u8]) -> usize {
    bytes.len() - 8
}

#[test]
fn the_first_bad_block_is_named_with_its_file_and_offset() {
    let (store, seam, folder) = rich_store();
    let block_bytes = 64 + 3_001_usize.next_multiple_of(8);
    let data = ObjectName::new(&folder, "data-0").unwrap();
    store.tamper(&data, |bytes| {
        bytes[5 * block_bytes + 70] ^= 1;
        bytes[2 * block_bytes + 80] ^= 1;
    });
    let error = verify(&seam, &folder).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checkpoint);
    assert!(error.path().unwrap().ends_with("chk-7/data-0"), "{error}");
    assert!(error.to_string().contains(&format!("block at byte {}:", 2 * block_bytes)), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let (_, seam, folder) = rich_store();
    seam.remove(&ObjectName::new(&folder, "data-1").unwrap()).unwrap();
    let error = verify(&seam, &folder).unwrap_err();
    assert!(error.to_string().contains("data-1: is missing"), "{error}");
}

#[test]
fn a_file_of_sound_blocks_from_another_checkpoint_is_refused() {
    let (store, seam, folder) = rich_store();
    let snapshots = own(&store);
    write_checkpoint(&snapshots, 8, &noise(8, 100)).unwrap();
    let meta = write_checkpoint(&snapshots, 9, &noise(9, 100)).unwrap();
    let mut other = vec![0; meta.files[0].bytes as usize];
    seam.open(&ObjectName::parse("chk-8/data-0").unwrap()).unwrap().read_at(0, &mut other).unwrap();
    store.tamper(&ObjectName::parse("chk-9/data-0").unwrap(), |bytes| *bytes = other);
    assert!(verify(&seam, "chk-9").unwrap_err().to_string().contains("not the one"));
    verify(&seam, &folder).unwrap();
}

#[test]
fn a_reference_into_the_middle_of_a_block_is_found() {
    let store = memory();
    let snapshots = own(&store);
    snapshots.reserve_ids(CheckpointId(2)).unwrap();
    let writer = snapshots.begin(CheckpointId(1)).unwrap();
    let mut data = writer.data_file(0).unwrap();
    let mut run = data.write(list_origin(), b"payload").unwrap();
    run.offset += 8;
    run.length -= 8;
    writer.commit(&meta(CheckpointId(1), vec![data.close().unwrap()], vec![run])).unwrap();
    assert!(verify(snapshots.store(), "chk-1").unwrap_err().to_string().contains("byte 8"));
}

#[test]
fn an_inspection_tells_what_is_in_a_checkpoint() {
    let (_, seam, folder) = rich_store();
    let text = inspect(&seam, &folder).unwrap().to_string();
    for wanted in [
        "checkpoint 7 of job 'word count'",
        "operator 'none' no entry",
        "operator 'some' 1 running, 1 finished, 1 with operators finished",
        "operator 'all' fully finished at parallelism 3",
        "in flight 4 buffers",
        "edge v0 to v1: 20012 bytes in flight, restores with this parallelism only",
        "file shared/s-7-0",
    ] {
        assert!(text.contains(wanted), "{wanted:?} in\n{text}");
    }
}
