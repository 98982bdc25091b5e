//! A store in a directory of a local or network file system.
//!
//! Everything in it is made for its owner alone: folders with mode 0700, files 0600. What is read is taken as
//! untrusted: links are never followed below the root, and only regular files are opened, without waiting for
//! pipes. A name is durable once its folder and the root were synced; `put` writes `<name>.tmp`, syncs it, renames it and
//! syncs both. The lock is an advisory one on `LOCK`, which also tells the owner's process id.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::direct::DirectFile;
use super::store::{
    Entry, EntryKind, ObjectName, ObjectReader, ObjectWriter, PutError, SnapshotStore, is_part,
};
use crate::error::{Error, ErrorKind, Result};

/// Snapshots in a directory.
#[derive(Debug)]
pub struct DirectoryStore {
    root: PathBuf,
    /// Open, and with it locked, from `lock` until the store is dropped.
    held: Mutex<Option<File>>,
}

impl DirectoryStore {
    /// The store in `root`, which is made with the first write.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), held: Mutex::new(None) }
    }

    fn path(&self, name: &ObjectName) -> PathBuf {
        self.root.join(name.as_str())
    }

    fn make_root(&self) -> Result<()> {
        let missing: Vec<&Path> = self
            .root
            .ancestors()
            .take_while(|p| !p.as_os_str().is_empty() && !p.exists())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.root)
            .map_err(|e| Error::io(&self.root, "can't be made", e))?;
        for made in missing {
            let parent = made.parent().filter(|p| !p.as_os_str().is_empty());
            sync_folder(parent.unwrap_or(Path::new(".")))?;
        }
        Ok(())
    }

    /// Opens a folder; `None` if it isn't there.
    fn folder(&self, folder: &str) -> Result<Option<File>> {
        if !folder.is_empty() && !is_part(folder) {
            let message = format!("{folder:?} is no name of a folder");
            return Err(Error::new(ErrorKind::Checkpoint, message).at_path(&self.root));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&self.root, flags, Mode::empty()).and_then(|root| {
            if folder.is_empty() {
                Ok(root)
            } else {
                rustix::fs::openat(root, folder, flags | OFlags::NOFOLLOW, Mode::empty())
            }
        });
        match opened {
            Ok(fd) => Ok(Some(fd.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(Error::io(self.root.join(folder), "can't be opened", e.into())),
        }
    }

    /// Opens a folder, made if need be. Its name is durable with the first file in it, when the file system's journal has written
    /// it already: syncing it here would hold up the beginning of a checkpoint.
    fn made_folder(&self, folder: &str) -> Result<File> {
        self.make_root()?;
        let path = self.root.join(folder);
        if is_part(folder) {
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::io(&path, "can't be made", e));
                }
                Ok(()) | Err(_) => {}
            }
        }
        let gone = || Error::io(&path, "can't be opened", Errno::NOENT.into());
        self.folder(folder)?.ok_or_else(gone)
    }

    /// Takes the root for our own, if nobody else's files are in it.
    fn make_private(&self) -> Result<()> {
        let entries = self.list("")?;
        let is_ours =
            entries.iter().any(|e| e.name == "OWNER") || entries.iter().all(|e| e.name == LOCK);
        if is_ours {
            // A volume's root may belong to somebody else; the folders in it are private all the same.
            let _ = fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700));
        }
        Ok(())
    }

    fn put_temporary(&self, folder: &File, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        let temporary = temporary_of(name.file());
        let at = |e: io::Error| Error::io(self.path(name), "can't be written", e);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let _ = rustix::fs::unlinkat(folder, &temporary, AtFlags::empty());
        let fd =
            rustix::fs::openat(folder, &temporary, flags, FILE_MODE).map_err(|e| at(e.into()))?;
        let mut file = File::from(fd);
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(at)?;
        Ok(())
    }
}

impl SnapshotStore for DirectoryStore {
    fn location(&self) -> &Path {
        &self.root
    }

    fn lock(&self) -> Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(());
        }
        let folder = self.made_folder("")?;
        self.make_private()?;
        let path = self.root.join(LOCK);
        let at = |e: io::Error| Error::io(&path, "can't be locked", e);
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&folder, LOCK, flags, FILE_MODE).map_err(|e| at(e.into()))?;
        let mut file = File::from(fd);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(in_use(&self.root, &mut file)),
            Err(e) => return Err(at(e.into())),
        }
        file.set_len(0).and_then(|()| writeln!(file, "pid {}", std::process::id())).map_err(at)?;
        *held = Some(file);
        Ok(())
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        let Some(opened) = self.folder(folder)? else {
            return Ok(Vec::new());
        };
        let path = self.root.join(folder);
        let at = |e: Errno| Error::io(&path, "can't be listed", e.into());
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&opened).map_err(at)? {
            let entry = entry.map_err(at)?;
            let raw = entry.file_name();
            if matches!(raw.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match rustix::fs::statat(&opened, raw, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(e) => return Err(at(e)),
            };
            let kind = match (rustix::fs::FileType::from_raw_mode(stat.st_mode), raw.to_str()) {
                (rustix::fs::FileType::RegularFile, Ok(_)) => EntryKind::Object,
                (rustix::fs::FileType::Directory, Ok(_)) => EntryKind::Folder,
                _ => EntryKind::Other,
            };
            let bytes = if kind == EntryKind::Object {
                u64::try_from(stat.st_size).unwrap_or(0)
            } else {
                0
            };
            entries.push(Entry { name: raw.to_string_lossy().into_owned(), bytes, kind });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn create(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>> {
        let folder = self.made_folder(name.folder())?;
        let path = self.path(name);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&folder, name.file(), flags, FILE_MODE)
            .map_err(|e| Error::io(&path, "can't be made", e.into()))?;
        let file = DirectFile::new(fd.into());
        Ok(Box::new(DirectoryWriter { file, folder, path }))
    }

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), PutError> {
        let before = |error| PutError { error, may_be_in_place: false };
        let folder = self.made_folder(name.folder()).map_err(before)?;
        let temporary = temporary_of(name.file());
        let is_at_top = name.folder().is_empty();
        self.put_temporary(&folder, name, bytes)
            .and_then(|()| if is_at_top { Ok(()) } else { sync_folder(&self.root) })
            .and_then(|()| {
                rustix::fs::renameat(&folder, &temporary, &folder, name.file())
                    .map_err(|e| Error::io(self.path(name), "can't be put in place", e.into()))
            })
            .map_err(|error| {
                let _ = rustix::fs::unlinkat(&folder, &temporary, AtFlags::empty());
                before(error)
            })?;
        let in_place = |error| PutError { error, may_be_in_place: true };
        folder
            .sync_all()
            .map_err(|e| in_place(Error::io(self.path(name), "can't be made durable", e)))
    }

    fn open(&self, name: &ObjectName) -> Result<Arc<dyn ObjectReader>> {
        let path = self.path(name);
        let at = |e: io::Error| Error::io(&path, "can't be opened", e);
        let Some(folder) = self.folder(name.folder())? else {
            return Err(at(Errno::NOENT.into()));
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&folder, name.file(), flags, Mode::empty())
            .map_err(|e| at(e.into()))?;
        let file = File::from(fd);
        let metadata = file.metadata().map_err(at)?;
        if !metadata.is_file() {
            return Err(Error::new(ErrorKind::Checkpoint, "is not a file").at_path(&path));
        }
        Ok(Arc::new(DirectoryReader { file, bytes: metadata.len(), path }))
    }

    fn remove(&self, name: &ObjectName) -> Result<()> {
        let at = |e: io::Error| Error::io(self.path(name), "can't be removed", e);
        let Some(folder) = self.folder(name.folder())? else {
            return Ok(());
        };
        match rustix::fs::unlinkat(&folder, name.file(), AtFlags::empty()) {
            Ok(()) => folder.sync_all().map_err(at),
            Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(at(e.into())),
        }
    }

    fn remove_folder(&self, folder: &str) -> Result<()> {
        let path = self.root.join(folder);
        let Some(root) = self.folder("")? else {
            return Ok(());
        };
        if !is_part(folder) {
            return Ok(());
        }
        match rustix::fs::unlinkat(&root, folder, AtFlags::REMOVEDIR) {
            Ok(()) => root.sync_all().map_err(|e| Error::io(&path, "can't be removed", e)),
            Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(e) => Err(Error::io(&path, "can't be removed", e.into())),
        }
    }

    fn local_folder(&self, folder: &str) -> Result<Option<PathBuf>> {
        self.made_folder(folder)?;
        Ok(Some(self.root.join(folder)))
    }
}

#[derive(Debug)]
struct DirectoryWriter {
    file: DirectFile,
    folder: File,
    path: PathBuf,
}

impl ObjectWriter for DirectoryWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes).map_err(|e| Error::io(&self.path, "can't be written", e))
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { file, folder, path } = *self;
        file.close()
            .and_then(|()| folder.sync_all())
            .map_err(|e| Error::io(&path, "can't be made durable", e))
    }
}

#[derive(Debug)]
struct DirectoryReader {
    file: File,
    bytes: u64,
    path: PathBuf,
}

impl ObjectReader for DirectoryReader {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(into, offset)
            .map_err(|e| Error::io(&self.path, &format!("can't be read at byte {offset}"), e))
    }
}

/// The error of who finds the lock taken, with what the owner wrote into it.
fn in_use(root: &Path, lock: &mut File) -> Error {
    let mut text = String::new();
    let _ = lock.take(64).read_to_string(&mut text);
    let owner = text.strip_prefix("pid ").map(str::trim).filter(|pid| pid.parse::<u32>().is_ok());
    let message = match owner {
        Some(pid) => format!("the directory is in use by the running job of process {pid}"),
        None => "the directory is in use by another running job".to_owned(),
    };
    Error::new(ErrorKind::Checkpoint, message).at_path(root)
}

/// What a file is called until it is whole.
fn temporary_of(file: &str) -> String {
    format!("{file}{TEMPORARY_SUFFIX}")
}

fn sync_folder(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| Error::io(path, "can't be made durable", e))
}

/// What names of files end with that are not whole yet.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";
/// The file that is locked.
pub(crate) const LOCK: &str = "LOCK";
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
