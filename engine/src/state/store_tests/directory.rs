//! What only a directory has: modes, links, a lock.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::error::ErrorKind;
use crate::state::directory::DirectoryStore;
use crate::state::store::{EntryKind, ObjectName};

fn mode(path: impl AsRef<std::path::Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn everything_is_for_the_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("checkpoints");
    let store = Arc::new(DirectoryStore::new(&root));
    let (snapshots, _) = Snapshots::own(store, &owner()).unwrap();
    write_checkpoint(&snapshots, 1, b"secret").unwrap();
    assert_eq!((mode(&root), mode(root.join("chk-1"))), (0o700, 0o700));
    for file in ["OWNER", "NEXT-ID", "LOCK", "chk-1/data-0", "chk-1/MANIFEST"] {
        assert_eq!(mode(root.join(file)), 0o600, "{file}");
    }
}

#[test]
fn an_empty_directory_becomes_private_and_one_with_other_files_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, used) = (folder.path().join("empty"), folder.path().join("used"));
    for root in [&empty, &used] {
        fs::create_dir(root).unwrap();
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(used.join("notes.txt"), "mine").unwrap();
    for root in [&empty, &used] {
        Snapshots::own(Arc::new(DirectoryStore::new(root)), &owner()).unwrap();
    }
    assert_eq!((mode(&empty), mode(&used)), (0o700, 0o755));
}

#[test]
fn a_second_running_job_is_refused_and_told_which_process_has_the_directory() {
    let folder = tempfile::tempdir().unwrap();
    let first = Snapshots::own(Arc::new(DirectoryStore::new(folder.path())), &owner()).unwrap();
    let second = Snapshots::own(Arc::new(DirectoryStore::new(folder.path())), &owner());
    let error = second.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Checkpoint);
    assert_eq!(error.path(), Some(folder.path()));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(first);
    Snapshots::own(Arc::new(DirectoryStore::new(folder.path())), &owner()).unwrap();
}

#[test]
fn links_and_pipes_are_never_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (outside, root) = (folder.path().join("outside"), folder.path().join("root"));
    fs::create_dir_all(&root).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("data-0"), "outside").unwrap();
    symlink(&outside, root.join("chk-1")).unwrap();
    fs::create_dir(root.join("chk-2")).unwrap();
    symlink(outside.join("data-0"), root.join("chk-2/data-0")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("chk-2/MANIFEST"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();

    let store = DirectoryStore::new(&root);
    for name in ["chk-1/data-0", "chk-2/data-0", "chk-2/MANIFEST"] {
        let name = ObjectName::parse(name).unwrap();
        assert!(store.open(&name).is_err(), "{name}");
        assert!(store.create(&name).is_err(), "{name}");
    }
    assert!(
        store.list("").unwrap().iter().any(|e| e.name == "chk-1" && e.kind == EntryKind::Other)
    );
    let (_, survey) = Snapshots::own(Arc::new(store), &owner()).unwrap();
    assert_eq!(survey.foreign, [root.join("chk-1")]);
    assert_eq!(survey.damaged.len(), 1, "the pipe is no manifest");
    assert_eq!(fs::read_to_string(outside.join("data-0")).unwrap(), "outside");
}

#[test]
fn an_error_keeps_the_path_and_what_the_system_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "no directory").unwrap();
    let store = DirectoryStore::new(file.join("checkpoints"));
    let error = Snapshots::own(Arc::new(store), &owner()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.path().unwrap().starts_with(&file));
    let source = std::error::Error::source(&error).unwrap().downcast_ref::<std::io::Error>();
    assert_eq!(source.unwrap().raw_os_error(), Some(rustix::io::Errno::NOTDIR.raw_os_error()));
}
