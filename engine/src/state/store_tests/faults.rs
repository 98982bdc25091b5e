//! A disk that fills up or breaks, and a process that dies, at every single operation.

use super::*;
use crate::error::{Error, ErrorKind};
use crate::state::memory::{Fault, Survivors};
use crate::state::snapshots::SnapshotWriter;
use crate::state::store::{EntryKind, ObjectName};
use crate::state::verify::verify;

/// What a run got done before it failed.
#[derive(Debug, Default)]
struct Done {
    begun: Vec<CheckpointId>,
    committed: Vec<CheckpointId>,
    removed: Vec<CheckpointId>,
    /// The shared file of checkpoint 2.
    shared: Option<(FileMeta, BlockRef)>,
}

/// Takes a store over and writes four checkpoints, some with a common file, of which two are removed.
fn run(store: &MemoryStore, done: &mut Done, goes_on: bool) -> Result<()> {
    let (snapshots, _) = Snapshots::own(Arc::new(store.clone()), &owner())?;
    for id in 1..=4 {
        let id = CheckpointId(id);
        let result = checkpoint(&snapshots, id, done).and_then(|()| {
            let over = done.committed.len().saturating_sub(2);
            done.removed = done.committed[..over].to_vec();
            snapshots.retain(2).map(drop)
        });
        if !goes_on {
            result?;
        }
    }
    Ok(())
}

fn checkpoint(snapshots: &Snapshots, id: CheckpointId, done: &mut Done) -> Result<()> {
    snapshots.reserve_ids(CheckpointId(id.0 + 1))?;
    let writer = snapshots.begin(id)?;
    done.begun.push(id);
    let written = write(&writer, done);
    match written {
        Ok(()) => done.committed.push(id),
        Err(error) => {
            let _ = writer.abort();
            return Err(error);
        }
    }
    Ok(())
}

fn write(writer: &SnapshotWriter, done: &mut Done) -> Result<()> {
    let mut data = writer.data_file(0)?;
    let mut runs = vec![data.write(list_origin(), &vec![7; 1_100_000])?];
    let mut files = vec![data.close()?];
    let is_named = done.shared.as_ref().is_some_and(|_| writer.id() != CheckpointId(4));
    if writer.id() == CheckpointId(2) {
        let mut shared = writer.shared_file(0)?;
        let run = shared.write(list_origin(), b"shared")?;
        let file = shared.close()?;
        files.push(file.clone());
        runs.push(run.clone());
        writer.commit(&meta(writer.id(), files, runs))?;
        done.shared = Some((file, run));
        return Ok(());
    }
    if is_named && let Some((file, run)) = &done.shared {
        files.push(file.clone());
        runs.push(run.clone());
    }
    writer.commit(&meta(writer.id(), files, runs))
}

/// Takes over what a run left, and checks that nothing completed is lost and nothing else is found.
fn check(store: &MemoryStore, done: &Done, what: &str) {
    let seam: Arc<dyn SnapshotStore> = Arc::new(store.clone());
    let (snapshots, survey) = Snapshots::own(seam.clone(), &owner()).unwrap();
    assert!(survey.damaged.is_empty(), "{what}: {:?}", survey.damaged);
    assert!(survey.foreign.is_empty(), "{what}: {:?}", survey.foreign);
    for id in done.committed.iter().filter(|id| !done.removed.contains(id)) {
        assert!(survey.completed.contains(id), "{what}: {id} is lost of {done:?}");
    }
    for id in &survey.completed {
        assert!(done.begun.contains(id), "{what}: {id} comes from nowhere");
        verify(&seam, &format!("chk-{id}")).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    assert!(done.begun.iter().all(|id| *id < snapshots.next_id()), "{what}: an id is drawn twice");
    for name in store.names() {
        let folder = name.folder();
        let is_known = folder.is_empty()
            || folder == "shared"
            || survey.completed.iter().any(|id| folder == format!("chk-{id}"));
        assert!(is_known && !name.as_str().ends_with(".tmp"), "{what}: {name} is left");
    }
    let mut next = Done::default();
    let id = snapshots.next_id().max(CheckpointId(10));
    checkpoint(&snapshots, id, &mut next).unwrap();
    snapshots.retain(1).unwrap();
    assert!(store.list("shared").unwrap().is_empty(), "{what}: shared files leak");
    let folders = store.list("").unwrap().into_iter().filter(|e| e.kind == EntryKind::Folder);
    assert_eq!(folders.count(), 1, "{what}: folders leak");
}

fn operations_of_a_run() -> u64 {
    let store = memory();
    let mut done = Done::default();
    run(&store, &mut done, false).unwrap();
    assert_eq!(done.committed.len(), 4);
    assert_eq!(done.removed, [CheckpointId(1), CheckpointId(2)]);
    check(&store, &done, "no fault");
    store.operations()
}

#[test]
fn p11_a_crash_at_any_operation_loses_no_completed_checkpoint() {
    let operations = operations_of_a_run();
    assert!(operations > 60, "{operations}");
    for at in 0..operations {
        for survivors in [Survivors::Everything, Survivors::Durable, Survivors::Torn] {
            let store = memory();
            store.fail_at(at, Fault::Crash);
            let mut done = Done::default();
            let result = run(&store, &mut done, false);
            assert!(result.is_err() || done.committed.len() == 4, "the crash at {at} is an error");
            check(&store.after_crash(survivors), &done, &format!("crash at {at}, {survivors:?}"));
        }
    }
}

#[test]
fn a_full_or_broken_disk_at_any_operation_fails_that_checkpoint_only() {
    let operations = operations_of_a_run();
    for at in 0..operations {
        for fault in [Fault::NoSpace, Fault::Broken, Fault::Torn] {
            let store = memory();
            store.fail_at(at, fault);
            let mut done = Done::default();
            let owned = run(&store, &mut done, true);
            let what = format!("{fault:?} at {at}");
            assert!(owned.is_err() || done.committed.len() >= 2, "{what}: {done:?}");
            check(&store.after_crash(Survivors::Everything), &done, &what);
        }
    }
}

#[test]
fn an_error_of_the_disk_names_the_file_and_keeps_the_errno() {
    let operations = operations_of_a_run();
    let mut paths = Vec::new();
    for at in 0..operations {
        let store = memory();
        store.fail_at(at, Fault::NoSpace);
        let Err(error) = run(&store, &mut Done::default(), false) else { continue };
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_eq!(errno(&error), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{error}");
        paths.push(error.path().unwrap().to_owned());
    }
    for wanted in ["OWNER", "NEXT-ID", "chk-1/data-0", "chk-2/MANIFEST", "shared/s-2-0"] {
        assert!(paths.iter().any(|path| path.ends_with(wanted)), "{wanted} in {paths:?}");
    }
}

fn errno(error: &Error) -> Option<i32> {
    std::error::Error::source(error)?.downcast_ref::<std::io::Error>()?.raw_os_error()
}

#[test]
fn files_stay_where_it_is_unknown_whether_a_checkpoint_completed() {
    let store = memory();
    let snapshots = own(&store);
    snapshots.reserve_ids(CheckpointId(2)).unwrap();
    let writer = snapshots.begin(CheckpointId(1)).unwrap();
    let mut data = writer.data_file(0).unwrap();
    let run = data.write(list_origin(), b"state").unwrap();
    let meta = meta(CheckpointId(1), vec![data.close().unwrap()], vec![run]);
    // Make, write, sync and rename succeed; syncing the folder fails.
    store.fail_at(store.operations() + 4, Fault::Broken);
    assert_eq!(writer.commit(&meta).unwrap_err().kind(), ErrorKind::Io);
    writer.abort().unwrap();
    let next: Arc<dyn SnapshotStore> = Arc::new(store.after_crash(Survivors::Everything));
    let (_, survey) = Snapshots::own(next.clone(), &owner()).unwrap();
    assert_eq!(survey.completed, [CheckpointId(1)]);
    verify(&next, "chk-1").unwrap();

    write_checkpoint(&snapshots, 2, b"newer").unwrap();
    snapshots.retain(2).unwrap();
    let next: Arc<dyn SnapshotStore> = Arc::new(store.after_crash(Survivors::Everything));
    let (_, survey) = Snapshots::own(next, &owner()).unwrap();
    assert_eq!((survey.completed, survey.incomplete), (vec![CheckpointId(2)], vec![]));
}

#[test]
fn every_flipped_byte_of_the_owner_and_id_records_is_found() {
    let store = memory();
    let snapshots = own(&store);
    snapshots.reserve_ids(CheckpointId(65)).unwrap();
    for name in ["OWNER", "NEXT-ID"] {
        let name = ObjectName::parse(name).unwrap();
        for at in 0..store.open(&name).unwrap().bytes() as usize {
            for bit in 0..8 {
                store.tamper(&name, |bytes| bytes[at] ^= 1 << bit);
                let error = Snapshots::own(Arc::new(store.clone()), &owner()).err();
                store.tamper(&name, |bytes| bytes[at] ^= 1 << bit);
                let error = error.unwrap_or_else(|| panic!("{name} byte {at} bit {bit}"));
                assert_eq!(error.kind(), ErrorKind::Checkpoint, "{error}");
            }
        }
    }
}
