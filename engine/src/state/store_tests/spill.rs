//! Spill files: mapped where that is safe, typed errors where the disk says no.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::error::{Error, ErrorKind};
use crate::state::block::{BLOCK_HEAD_BYTES, BLOCK_PAYLOAD_MAX, run_bytes};
use crate::state::directory::DirectoryStore;
use crate::state::snapshots::SnapshotReader;
use crate::state::spill::SpillFile;
use crate::state::spill_pool::SpillPool;
use crate::state::verify::verify;

const SEGMENT_BYTES: u64 = 64 << 10;

fn pool(folder: &Path) -> SpillPool {
    let spare = folder.join("spare");
    fs::create_dir_all(&spare).unwrap();
    SpillPool::new(spare, SEGMENT_BYTES, 4)
}

fn buffer(number: u64) -> BlockOrigin {
    BlockOrigin::buffer(SubtaskId::new(0, 0), ChannelIndex(2), number)
}

fn spill_buffers(spill: &mut SpillFile, count: u64, bytes: usize) -> Vec<BlockRef> {
    let append = |number| spill.append(buffer(number), &noise(number as u32, bytes)).unwrap();
    (0..count).map(append).collect()
}

/// Whether this file system can preallocate, found out without the code under test.
fn can_preallocate(folder: &Path) -> bool {
    let file = fs::File::create(folder.join("probe")).unwrap();
    let can = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 4096).is_ok();
    fs::remove_file(folder.join("probe")).unwrap();
    can
}

fn errno(error: &Error) -> Option<rustix::io::Errno> {
    let source = std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?;
    rustix::io::Errno::from_io_error(source)
}

/// Spills checkpoint `id` in `store` and commits it.
fn spill_checkpoint(snapshots: &Snapshots, pool: &mut SpillPool, id: u64) -> Vec<BlockRef> {
    let id = CheckpointId(id);
    snapshots.reserve_ids(CheckpointId(id.0 + 1)).unwrap();
    let writer = snapshots.begin(id).unwrap();
    let (path, name) = writer.spill_path(0).unwrap().unwrap();
    let mut spill = pool.begin(name).unwrap();
    let runs = spill_buffers(&mut spill, id.0 * 3, 32 << 10);
    let file = pool.finish(spill, &path).unwrap();
    writer.commit(&meta(id, vec![file], runs.clone())).unwrap();
    runs
}

#[test]
fn buffers_go_through_the_mapping_where_the_file_system_preallocates() {
    let folder = tempfile::tempdir().unwrap();
    if !can_preallocate(folder.path()) {
        println!("SKIPPED: this file system can't preallocate");
        return;
    }
    let mut pool = pool(folder.path());
    let mut spill = pool.begin("spill-0".into()).unwrap();
    spill_buffers(&mut spill, 10, 32 << 10);
    assert_eq!((spill.mapped_bytes(), spill.written_bytes()), (spill.bytes(), 0));
    assert!(spill.mapped_bytes() > 320 << 10);
}

#[test]
fn what_was_spilled_is_read_back_across_segments_and_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn SnapshotStore> = Arc::new(DirectoryStore::new(folder.path().join("c")));
    let (snapshots, _) = Snapshots::own(store.clone(), &owner()).unwrap();
    let mut pool = SpillPool::in_store(&*store, SEGMENT_BYTES, 4).unwrap().unwrap();
    for id in [5, 2, 7, 1, 3] {
        let id = id + 100;
        let runs = spill_checkpoint(&snapshots, &mut pool, id);
        snapshots.retain(2).unwrap();
        let reader = SnapshotReader::open(store.clone(), &format!("chk-{id}"));
        if let Ok(reader) = reader {
            for (number, run) in runs.iter().enumerate() {
                let mut blocks = reader.blocks(run).unwrap();
                let block = blocks.read_block().unwrap().unwrap();
                assert_eq!(block.head.origin, buffer(number as u64));
                assert!(block.payload == noise(number as u32, 32 << 10));
            }
        }
        for id in snapshots.completed() {
            verify(&store, &format!("chk-{id}")).unwrap();
        }
    }
    assert!(pool.recycled_count() > 0, "files of removed checkpoints are used again");
    drop(pool);
    assert!(store.list("spare").unwrap().is_empty());
}

#[test]
fn a_file_of_several_writebacks_has_all_bytes_also_when_it_is_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = pool(folder.path());
    for id in 0..3 {
        let mut spill = pool.begin("spill-0".into()).unwrap();
        let runs = spill_buffers(&mut spill, 70 + id, 50_000);
        let path = folder.path().join(format!("spill-{id}"));
        let file = pool.finish(spill, &path).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!((bytes.len() as u64, crc32c::crc32c(&bytes)), (file.bytes, file.crc));
        for (number, run) in runs.iter().enumerate() {
            let payload = &bytes[run.offset as usize + BLOCK_HEAD_BYTES..][..50_000];
            assert!(payload == noise(number as u32, 50_000), "buffer {number}");
        }
        fs::remove_file(&path).unwrap();
        pool.warm();
    }
    assert_eq!(pool.recycled_count(), 2);
}

#[test]
fn a_file_has_no_page_more_than_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    if !can_preallocate(folder.path()) {
        println!("SKIPPED: this file system can't preallocate");
        return;
    }
    let page_bytes = rustix::param::page_size() as u64;
    let lengths = [0, 1, 8, 32 << 10, BLOCK_PAYLOAD_MAX, BLOCK_PAYLOAD_MAX + 1, 3_000_001];
    for is_expected in [false, true] {
        let mut pool = pool(folder.path());
        let mut spill = pool.begin("spill-0".into()).unwrap();
        let spare = fs::read_dir(folder.path().join("spare")).unwrap().next().unwrap().unwrap();
        let bytes_on_disk = || fs::metadata(spare.path()).unwrap().len();
        let expected: u64 = lengths.iter().map(|bytes| run_bytes(*bytes)).sum();
        if is_expected {
            spill.expect(expected);
        }
        for (number, bytes) in lengths.into_iter().enumerate() {
            let run = spill.append(buffer(number as u64), &noise(1, bytes)).unwrap();
            assert_eq!(run.length, run_bytes(bytes), "a payload of {bytes}");
            let known = if is_expected { expected } else { spill.bytes() };
            assert_eq!(bytes_on_disk(), known.next_multiple_of(page_bytes));
        }
        let path = folder.path().join(format!("spill-{is_expected}"));
        assert_eq!(pool.finish(spill, &path).unwrap().bytes, expected);
        assert_eq!(bytes_on_disk(), expected);
        // One that was longer gives back what the next one probably doesn't need.
        let mut short = pool.begin("spill-1".into()).unwrap();
        short.append(buffer(0), &noise(1, 500_000)).unwrap();
        let short = pool.finish(short, &folder.path().join(format!("short-{is_expected}")));
        fs::remove_file(&path).unwrap();
        pool.warm();
        let short = short.unwrap().bytes;
        assert!((short * 15 / 16..=short).contains(&bytes_on_disk()), "{}", bytes_on_disk());
    }
}

#[test]
fn a_file_that_a_checkpoint_has_is_never_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = pool(folder.path());
    let mut contents: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for id in 0..6 {
        let mut spill = pool.begin("spill-0".into()).unwrap();
        spill_buffers(&mut spill, 1 + id % 3, 50_000);
        let path = folder.path().join(format!("spill-{id}"));
        let file = pool.finish(spill, &path).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!((bytes.len() as u64, crc32c::crc32c(&bytes)), (file.bytes, file.crc));
        contents.push((path, bytes));
        assert!(contents.iter().all(|(path, bytes)| fs::read(path).unwrap() == *bytes));
    }
    assert_eq!(pool.recycled_count(), 0);
    fs::remove_file(&contents.remove(3).0).unwrap();
    let mut spill = pool.begin("spill-0".into()).unwrap();
    spill_buffers(&mut spill, 2, 50_000);
    assert_eq!(pool.recycled_count(), 1);
    assert!(contents.iter().all(|(path, bytes)| fs::read(path).unwrap() == *bytes));
}

#[test]
fn buffers_go_through_plain_writes_where_mapping_is_not_supported() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = pool(folder.path());
    let mut mapped = pool.begin("spill-0".into()).unwrap();
    let runs = spill_buffers(&mut mapped, 7, 30_001);
    let mut plain = pool.begin("spill-0".into()).unwrap();
    plain.map_no_more();
    assert_eq!(spill_buffers(&mut plain, 7, 30_001), runs);
    assert_eq!((plain.mapped_bytes(), plain.written_bytes()), (0, plain.bytes()));
    let mut mixed = pool.begin("spill-0".into()).unwrap();
    spill_buffers(&mut mixed, 3, 30_001);
    mixed.map_no_more();
    for number in 3..7 {
        mixed.append(buffer(number), &noise(number as u32, 30_001)).unwrap();
    }
    let paths = ["a", "b", "c"].map(|name| folder.path().join(name));
    let files = [mapped, plain, mixed];
    let metas: Vec<_> =
        files.into_iter().zip(&paths).map(|(spill, path)| pool.finish(spill, path)).collect();
    let expected = metas[0].as_ref().unwrap();
    assert!(metas.iter().all(|meta| meta.as_ref().unwrap() == expected));
    let bytes = paths.map(|path| fs::read(path).unwrap());
    assert!(bytes[0] == bytes[1] && bytes[0] == bytes[2]);
}

#[test]
fn a_long_buffer_is_cut_into_blocks_and_read_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn SnapshotStore> = Arc::new(DirectoryStore::new(folder.path()));
    let (snapshots, _) = Snapshots::own(store.clone(), &owner()).unwrap();
    let mut pool = SpillPool::in_store(&*store, SEGMENT_BYTES, 4).unwrap().unwrap();
    snapshots.reserve_ids(CheckpointId(2)).unwrap();
    let writer = snapshots.begin(CheckpointId(1)).unwrap();
    let (path, name) = writer.spill_path(0).unwrap().unwrap();
    let mut spill = pool.begin(name).unwrap();
    let long = noise(1, 3_000_001);
    let runs = vec![spill.append(buffer(0), &long).unwrap(), spill.append(buffer(1), &[]).unwrap()];
    let data = StateData::Blocks(runs[..1].to_vec());
    let files = vec![pool.finish(spill, &path).unwrap()];
    writer.commit(&meta(CheckpointId(1), files, runs)).unwrap();
    assert_eq!(verify(&store, "chk-1").unwrap().blocks, 4);
    let reader = snapshots.open(CheckpointId(1)).unwrap();
    assert!(reader.bytes(&data, 4 << 20).unwrap() == long);
}

#[test]
fn a_vanished_directory_is_an_error_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = pool(folder.path());
    let mut spill = pool.begin("spill-0".into()).unwrap();
    fs::remove_dir_all(folder.path()).unwrap();
    spill_buffers(&mut spill, 5, 32 << 10);
    let path = folder.path().join("chk-1/spill-0");
    let error = pool.finish(spill, &path).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(&*path)));
    assert_eq!(errno(&error), Some(rustix::io::Errno::NOENT));
    let error = pool.begin("spill-0".into()).unwrap_err();
    assert_eq!((error.kind(), errno(&error)), (ErrorKind::Io, Some(rustix::io::Errno::NOENT)));
}

#[test]
fn a_dropped_spill_file_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = pool(folder.path());
    let mut spill = pool.begin("spill-0".into()).unwrap();
    spill_buffers(&mut spill, 5, 32 << 10);
    drop(spill);
    assert_eq!(fs::read_dir(folder.path().join("spare")).unwrap().count(), 0);
}

#[test]
fn cw_09_a_spill_file_cut_anywhere_by_a_crash_is_ignored_and_its_place_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("checkpoints");
    let store: Arc<dyn SnapshotStore> = Arc::new(DirectoryStore::new(&root));
    let whole = {
        let (snapshots, _) = Snapshots::own(store.clone(), &owner()).unwrap();
        let mut pool = SpillPool::in_store(&*store, SEGMENT_BYTES, 4).unwrap().unwrap();
        spill_checkpoint(&snapshots, &mut pool, 1);
        snapshots.reserve_ids(CheckpointId(100_000)).unwrap();
        fs::read(root.join("chk-1/spill-0")).unwrap()
    };
    assert!(whole.len() > 64 << 10);
    for (round, bytes) in (0..whole.len()).step_by(1_999).chain([whole.len()]).enumerate() {
        // Killed with the file written so far: it has its second name or not yet, and there is no manifest.
        let spare = root.join("spare/spare-77");
        fs::write(&spare, &whole[..bytes]).unwrap();
        fs::create_dir(root.join("chk-2")).unwrap();
        if round % 2 == 0 {
            fs::hard_link(&spare, root.join("chk-2/spill-0")).unwrap();
        }
        let (snapshots, survey) = Snapshots::own(store.clone(), &owner()).unwrap();
        assert_eq!(survey.completed, [CheckpointId(1)], "cut at {bytes}");
        assert!(survey.damaged.is_empty() && survey.foreign.is_empty(), "{survey:?}");
        assert!(!root.join("chk-2").exists() && !spare.exists(), "cut at {bytes}");
        verify(&store, "chk-1").unwrap();
        // And the place is free for the next one.
        let mut pool = SpillPool::in_store(&*store, SEGMENT_BYTES, 4).unwrap().unwrap();
        snapshots.reserve_ids(CheckpointId(200_000)).unwrap();
        spill_checkpoint(&snapshots, &mut pool, 3);
        verify(&store, "chk-3").unwrap();
        snapshots.remove(CheckpointId(3)).unwrap();
    }
}

/// Mounts a file system of 10 MiB, if this machine lets us.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=10m", "tmpfs"]).arg(folder.path());
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        is_mounted.then(|| Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

#[test]
fn p13_a_full_disk_is_an_error_and_no_signal() {
    let Some(disk) = SmallDisk::mount() else {
        println!("SKIPPED: no file system may be mounted here");
        return;
    };
    for is_plain in [false, true] {
        let root = disk.0.path().join(format!("checkpoints-{is_plain}"));
        let store: Arc<dyn SnapshotStore> = Arc::new(DirectoryStore::new(&root));
        let (snapshots, _) = Snapshots::own(store.clone(), &owner()).unwrap();
        let mut pool = SpillPool::in_store(&*store, 1 << 20, 4).unwrap().unwrap();
        spill_checkpoint(&snapshots, &mut pool, 1);

        snapshots.reserve_ids(CheckpointId(9)).unwrap();
        let writer = snapshots.begin(CheckpointId(2)).unwrap();
        let (_, name) = writer.spill_path(0).unwrap().unwrap();
        let mut spill = pool.begin(name).unwrap();
        if is_plain {
            spill.map_no_more();
        }
        let fills = (0..400).map(|number| spill.append(buffer(number), &noise(1, 32 << 10)));
        let error = fills.filter_map(Result::err).next().unwrap();
        assert_eq!((error.kind(), errno(&error)), (ErrorKind::Io, Some(rustix::io::Errno::NOSPC)));
        assert!(error.path().unwrap().starts_with(root.join("spare")), "{error}");
        assert!(spill.append(buffer(0), b"more").is_err(), "a broken file takes nothing");
        drop(spill);
        writer.abort().unwrap();

        spill_checkpoint(&snapshots, &mut pool, 3);
        verify(&store, "chk-1").unwrap();
        verify(&store, "chk-3").unwrap();
        drop(pool);
        snapshots.remove(CheckpointId(1)).unwrap();
        snapshots.remove(CheckpointId(3)).unwrap();
    }
}
