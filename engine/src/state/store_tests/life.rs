//! The life of checkpoints: owned, begun, completed, shared, read, removed; in memory and in a directory alike.

use super::*;
use crate::error::ErrorKind;
use crate::state::directory::DirectoryStore;
use crate::state::snapshots::{SnapshotReader, SnapshotWriter, Survey, savepoint_folder};
use crate::state::store::ObjectName;
use crate::state::verify::verify;

fn take(store: &Arc<dyn SnapshotStore>) -> (Snapshots, Survey) {
    Snapshots::own(store.clone(), &owner()).unwrap()
}

/// Runs `test` on each kind of store.
fn on_each_store(test: impl Fn(Arc<dyn SnapshotStore>)) {
    test(Arc::new(memory()));
    let folder = tempfile::tempdir().unwrap();
    test(Arc::new(DirectoryStore::new(folder.path().join("a/b"))));
}

fn put_by_hand(store: &Arc<dyn SnapshotStore>, name: &str) {
    store.put(&ObjectName::parse(name).unwrap(), b"by hand").unwrap();
}

fn exists(store: &Arc<dyn SnapshotStore>, name: &str) -> bool {
    store.open(&ObjectName::parse(name).unwrap()).is_ok()
}

/// Writes checkpoint `id` naming the shared files of `runs`, and makes one of its own, whose run it returns.
fn write_shared(
    snapshots: &Snapshots,
    id: u64,
    older: &[(FileMeta, BlockRef)],
) -> (FileMeta, BlockRef) {
    let id = CheckpointId(id);
    snapshots.reserve_ids(CheckpointId(id.0 + 1)).unwrap();
    let writer = snapshots.begin(id).unwrap();
    finish_shared(&writer, older)
}

fn finish_shared(writer: &SnapshotWriter, older: &[(FileMeta, BlockRef)]) -> (FileMeta, BlockRef) {
    let mut shared = writer.shared_file(0).unwrap();
    let run = shared.write(list_origin(), &noise(writer.id().0 as u32, 100)).unwrap();
    let made = (shared.close().unwrap(), run);
    let (files, runs) = older.iter().cloned().chain([made.clone()]).unzip();
    writer.commit(&meta(writer.id(), files, runs)).unwrap();
    made
}

#[test]
fn a_completed_checkpoint_is_found_and_read_by_the_next_owner() {
    on_each_store(|store| {
        let (snapshots, survey) = take(&store);
        assert!(survey.completed.is_empty() && survey.previous.is_none());
        let meta = write_checkpoint(&snapshots, 1, &noise(1, 100_000)).unwrap();
        assert_eq!(snapshots.completed(), [CheckpointId(1)]);
        drop(snapshots);

        let (snapshots, survey) = take(&store);
        assert_eq!(survey.completed, [CheckpointId(1)]);
        assert_eq!(survey.previous.unwrap().owner, owner());
        assert!(survey.foreign.is_empty() && survey.removed.is_empty(), "{:?}", survey.foreign);
        let reader = snapshots.open(CheckpointId(1)).unwrap();
        assert_eq!(reader.meta(), &meta);
        let data = StateData::Blocks(meta.block_refs().cloned().collect());
        assert!(reader.bytes(&data, 100_000).unwrap() == noise(1, 100_000));
        assert_eq!(reader.bytes(&data, 99_999).unwrap_err().kind(), ErrorKind::Checkpoint);
        assert_eq!(verify(&store, "chk-1").unwrap().files, 1);
    });
}

#[test]
fn ids_are_never_drawn_twice() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        assert_eq!(snapshots.next_id(), CheckpointId(1));
        assert!(snapshots.begin(CheckpointId(1)).is_err(), "not reserved");
        snapshots.reserve_ids(CheckpointId(65)).unwrap();
        snapshots.begin(CheckpointId(3)).unwrap();
        assert!(snapshots.begin(CheckpointId(3)).is_err(), "begun twice");
        snapshots.reserve_ids(CheckpointId(10)).unwrap();
        drop(snapshots);
        assert_eq!(take(&store).0.next_id(), CheckpointId(65));
    });
}

#[test]
fn ids_go_on_behind_the_folders_if_their_record_is_lost() {
    on_each_store(|store| {
        write_checkpoint(&take(&store).0, 41, b"x").unwrap();
        store.remove(&ObjectName::parse("NEXT-ID").unwrap()).unwrap();
        assert_eq!(take(&store).0.next_id(), CheckpointId(42));
    });
}

#[test]
fn each_owner_raises_the_epoch_and_an_old_one_commits_nothing() {
    on_each_store(|store| {
        let (old, _) = take(&store);
        old.reserve_ids(CheckpointId(9)).unwrap();
        let writer = old.begin(CheckpointId(1)).unwrap();
        let files = vec![writer.data_file(0).unwrap().close().unwrap()];
        let (new, _) = take(&store);
        assert_eq!((old.epoch(), new.epoch()), (1, 2));
        let writer_files = writer.commit(&meta(CheckpointId(1), vec![], vec![])).unwrap_err();
        assert_eq!(writer_files.kind(), ErrorKind::Checkpoint);
        assert!(writer.commit(&meta(CheckpointId(1), files, vec![])).is_err());
        assert!(!exists(&store, "chk-1/MANIFEST"));
    });
}

#[test]
fn a_job_of_another_name_is_refused_and_a_changed_graph_is_not() {
    on_each_store(|store| {
        take(&store);
        let other = Owner { job: "another".into(), ..owner() };
        let error = Snapshots::own(store.clone(), &other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Checkpoint);
        assert!(error.to_string().contains("'word count'"), "{error}");
        let changed = Owner { fingerprint: "new".into(), ..owner() };
        let (_, survey) = Snapshots::own(store.clone(), &changed).unwrap();
        assert_eq!(survey.previous.unwrap().owner.fingerprint, "a1b2");
    });
}

#[test]
fn what_is_temporary_incomplete_or_unreferenced_goes_and_what_is_foreign_stays() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        write_checkpoint(&snapshots, 1, b"x").unwrap();
        write_shared(&snapshots, 2, &[]);
        let ours = [
            "OWNER.tmp",
            "NEXT-ID.tmp",
            "chk-1/data-9",
            "chk-1/spill-3",
            "chk-1/MANIFEST.tmp",
            "chk-5/data-0",
            "chk-5/MANIFEST.tmp",
            "shared/s-5-0",
            "spare/spare-17",
        ];
        let foreign = ["notes.txt", "chk-1/notes", "chk-5/data-x", "chk-05/data-0", "shared/mine"];
        ours.iter().chain(&foreign).for_each(|name| put_by_hand(&store, name));
        put_by_hand(&store, "savepoint-1/data-0");
        drop(snapshots);

        let (snapshots, survey) = take(&store);
        assert_eq!(survey.completed, [CheckpointId(1), CheckpointId(2)]);
        assert_eq!(survey.incomplete, [CheckpointId(5)]);
        assert!(ours.iter().all(|name| !exists(&store, name)));
        assert!(foreign.iter().all(|name| exists(&store, name)));
        assert!(exists(&store, "savepoint-1/data-0"), "savepoints are the user's");
        assert_eq!(survey.foreign.len(), foreign.len(), "{:?}", survey.foreign);
        assert_eq!(snapshots.next_id(), CheckpointId(6));
        assert!(exists(&store, "shared/s-2-0"));
    });
}

#[test]
fn a_completed_checkpoint_with_a_bad_manifest_is_refused_by_name_and_kept() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        write_shared(&snapshots, 1, &[]);
        put_by_hand(&store, "chk-1/MANIFEST");
        put_by_hand(&store, "shared/s-9-0");
        drop(snapshots);
        let (snapshots, survey) = take(&store);
        assert!(survey.completed.is_empty());
        let [(id, error)] = &survey.damaged[..] else { panic!("{:?}", survey.damaged) };
        assert_eq!((*id, error.kind()), (CheckpointId(1), ErrorKind::Checkpoint));
        assert!(error.path().unwrap().ends_with("chk-1/MANIFEST"));
        assert!(snapshots.open(CheckpointId(1)).is_err());
        assert!(exists(&store, "shared/s-1-0") && exists(&store, "shared/s-9-0"));
    });
}

#[test]
fn a_shared_file_goes_with_the_last_checkpoint_that_names_it() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        let first = write_shared(&snapshots, 1, &[]);
        let second = write_shared(&snapshots, 2, std::slice::from_ref(&first));
        write_shared(&snapshots, 3, &[second]);
        let (snapshots, _) = take(&store);
        snapshots.remove(CheckpointId(1)).unwrap();
        assert!(exists(&store, "shared/s-1-0"), "checkpoint 2 names it");
        assert_eq!(snapshots.retain(1).unwrap(), [CheckpointId(2)]);
        assert!(!exists(&store, "shared/s-1-0"));
        assert!(exists(&store, "shared/s-2-0"), "checkpoint 3 names it");
        verify(&store, "chk-3").unwrap();
        snapshots.remove(CheckpointId(3)).unwrap();
        assert!(store.list("shared").unwrap().is_empty());
        assert!(store.list("").unwrap().iter().all(|e| !e.name.starts_with("chk-")));
    });
}

#[test]
fn a_shared_file_stays_while_a_checkpoint_is_written_that_may_name_it() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        let first = write_shared(&snapshots, 1, &[]);
        snapshots.reserve_ids(CheckpointId(9)).unwrap();
        let naming = snapshots.begin(CheckpointId(2)).unwrap();
        snapshots.remove(CheckpointId(1)).unwrap();
        let later = snapshots.begin(CheckpointId(3)).unwrap();
        assert!(exists(&store, "shared/s-1-0"));
        finish_shared(&naming, &[first]);
        snapshots.remove(CheckpointId(2)).unwrap();
        assert!(exists(&store, "shared/s-1-0"), "checkpoint 3 may name it");
        later.abort().unwrap();
        assert!(store.list("shared").unwrap().is_empty());
    });
}

#[test]
fn p14_a_checkpoint_is_not_removed_while_it_is_read() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        let meta = write_checkpoint(&snapshots, 1, b"state of 1").unwrap();
        let reader = snapshots.open(CheckpointId(1)).unwrap();
        write_checkpoint(&snapshots, 2, b"state of 2").unwrap();
        snapshots.retain(1).unwrap();
        let data = StateData::Blocks(meta.block_refs().cloned().collect());
        assert_eq!(reader.bytes(&data, 100).unwrap(), b"state of 1");
        drop(reader);
        snapshots.retain(1).unwrap();
        assert_eq!(snapshots.completed(), [CheckpointId(2)]);
        assert!(!exists(&store, "chk-1/data-0"));
    });
}

#[test]
fn an_aborted_checkpoint_leaves_nothing() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        snapshots.reserve_ids(CheckpointId(9)).unwrap();
        let writer = snapshots.begin(CheckpointId(4)).unwrap();
        writer.data_file(0).unwrap().close().unwrap();
        writer.shared_file(0).unwrap().close().unwrap();
        SnapshotWriter::join(store.clone(), CheckpointId(4)).data_file(1).unwrap().close().unwrap();
        writer.abort().unwrap();
        assert!(
            store.list("chk-4").unwrap().is_empty() && store.list("shared").unwrap().is_empty()
        );
    });
}

#[test]
fn a_file_is_never_overwritten() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        write_checkpoint(&snapshots, 1, b"x").unwrap();
        let zombie = SnapshotWriter::join(store.clone(), CheckpointId(1));
        assert_eq!(zombie.data_file(0).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(
            zombie.commit(&meta(CheckpointId(1), vec![], vec![])).unwrap_err().kind(),
            ErrorKind::Internal
        );
        verify(&store, "chk-1").unwrap();
    });
}

#[test]
fn a_manifest_that_contradicts_its_files_is_not_committed() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        snapshots.reserve_ids(CheckpointId(9)).unwrap();
        let writer = snapshots.begin(CheckpointId(1)).unwrap();
        let mut file = writer.data_file(0).unwrap().close().unwrap();
        file.bytes += 1;
        let error = writer.commit(&meta(CheckpointId(1), vec![file], vec![])).unwrap_err();
        assert!(error.to_string().contains("has 0 bytes, the manifest says 1"), "{error}");
        let file = FileMeta { name: "data-7".into(), bytes: 0, crc: 0 };
        let error = writer.commit(&meta(CheckpointId(1), vec![file], vec![])).unwrap_err();
        assert!(error.to_string().contains("data-7: is missing"), "{error}");
    });
}

#[test]
fn only_the_owner_aborts_and_never_what_is_completed() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        snapshots.reserve_ids(CheckpointId(2)).unwrap();
        let writer = snapshots.begin(CheckpointId(1)).unwrap();
        let file = writer.data_file(0).unwrap().close().unwrap();
        let joined = SnapshotWriter::join(store.clone(), CheckpointId(1));
        assert_eq!(joined.abort().unwrap_err().kind(), ErrorKind::Internal);
        writer.commit(&meta(CheckpointId(1), vec![file], vec![])).unwrap();
        writer.abort().unwrap();
        verify(&store, "chk-1").unwrap();
    });
}

#[test]
fn what_is_being_removed_is_not_opened_again() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        write_checkpoint(&snapshots, 1, b"x").unwrap();
        let reader = snapshots.open(CheckpointId(1)).unwrap();
        snapshots.remove(CheckpointId(1)).unwrap();
        let error = snapshots.open(CheckpointId(1)).unwrap_err();
        assert!(error.to_string().contains("being removed"), "{error}");
        drop(reader);
        snapshots.remove(CheckpointId(1)).unwrap();
        assert!(!exists(&store, "chk-1/MANIFEST"));
    });
}

#[test]
fn no_folder_leads_out_of_the_store() {
    on_each_store(|store| {
        let (snapshots, _) = take(&store);
        write_checkpoint(&snapshots, 1, b"x").unwrap();
        for folder in ["..", "../b", "/", "chk-1/../chk-1"] {
            assert!(SnapshotReader::open(store.clone(), folder).is_err(), "{folder}");
            assert!(verify(&store, folder).is_err(), "{folder}");
        }
    });
}

#[test]
fn a_savepoint_can_be_moved_and_belongs_to_the_user() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    let store: Arc<dyn SnapshotStore> = Arc::new(DirectoryStore::new(&from));
    let folder_name = savepoint_folder(CheckpointId(3));
    let begin = || SnapshotWriter::savepoint(store.clone(), &folder_name, CheckpointId(3));
    let writer = begin().unwrap();
    assert_eq!(writer.shared_file(0).unwrap_err().kind(), ErrorKind::Internal);
    let mut data = writer.data_file(0).unwrap();
    let run = data.write(list_origin(), b"moved").unwrap();
    let kind = SnapshotKind::Savepoint { drained: false };
    let meta = meta(CheckpointId(3), vec![data.close().unwrap()], vec![run]);
    let meta = CheckpointMeta { kind, ..meta };
    writer.commit(&meta).unwrap();
    assert_eq!(writer.commit(&meta).unwrap_err().kind(), ErrorKind::Checkpoint);
    assert_eq!(begin().unwrap_err().kind(), ErrorKind::Checkpoint);
    writer.abort().unwrap();
    take(&store);

    let to = folder.path().join("a place of the user's");
    std::fs::rename(from.join(savepoint_folder(CheckpointId(3))), &to).unwrap();
    let store: Arc<dyn SnapshotStore> = Arc::new(DirectoryStore::new(&to));
    let reader = SnapshotReader::open(store.clone(), "").unwrap();
    let data = StateData::Blocks(reader.meta().block_refs().cloned().collect());
    assert_eq!(reader.bytes(&data, 10).unwrap(), b"moved");
    verify(&store, "").unwrap();
}
