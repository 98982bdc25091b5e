//! The one seam to durable storage: named objects in at most one level of folders.
//!
//! A store knows nothing of checkpoints; [`Snapshots`](super::snapshots::Snapshots) builds them from these few
//! operations, so that a directory, memory and an object store behave alike. Invariants every store keeps:
//! an object made by [`SnapshotStore::put`] is there whole and durable or not there; one made by
//! [`SnapshotStore::create`] is durable once its writer was closed and another object was put; nothing outside the
//! store can be named.
//! Called by `snapshots`, `verify` and by whoever writes blocks; safe to share between threads.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::DirectoryStore;
use crate::error::{Error, ErrorKind, Result};

/// Durable storage for the snapshots of one job.
pub trait SnapshotStore: fmt::Debug + Send + Sync {
    /// Where the store is, for messages: a path, or something that reads like one.
    fn location(&self) -> &Path;

    /// Makes this process the store's only owner until the store is dropped; again by the same store changes nothing.
    ///
    /// # Errors
    /// `Checkpoint` if another owner holds it, naming the store and the owner's process id; `Io` otherwise.
    fn lock(&self) -> Result<()>;

    /// What lies in `folder` ("" is the top), in the order of names. A folder that isn't there is empty.
    ///
    /// # Errors
    /// `Io` with the path.
    fn list(&self, folder: &str) -> Result<Vec<Entry>>;

    /// A new object to be written from the front; its folder is made if need be.
    ///
    /// # Errors
    /// `Io` with the path, also if the object exists: nothing is ever overwritten this way.
    fn create(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>>;

    /// Puts a small object in place at once and durably, replacing what was there. If it lies in a folder, the names of all folders
    /// are durable before: what it says of objects that were closed is true whenever it is found.
    ///
    /// # Errors
    /// [`PutError`] tells whether the new object may be in place nevertheless.
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), PutError>;

    /// An object to be read at any offset.
    ///
    /// # Errors
    /// `Io` with the path.
    fn open(&self, name: &ObjectName) -> Result<Arc<dyn ObjectReader>>;

    /// Removes an object durably; one that isn't there changes nothing.
    ///
    /// # Errors
    /// `Io` with the path.
    fn remove(&self, name: &ObjectName) -> Result<()>;

    /// Removes a folder if it is empty; one that holds something or isn't there stays as it is.
    ///
    /// # Errors
    /// `Io` with the path.
    fn remove_folder(&self, folder: &str) -> Result<()>;

    /// The folder as a directory of this machine, made if need be, for writers that map files;
    /// `None` if the store isn't one.
    ///
    /// # Errors
    /// `Io` with the path.
    fn local_folder(&self, folder: &str) -> Result<Option<PathBuf>>;

    /// The store at `dir`, where a savepoint is written or read.
    fn beside(&self, dir: &Path) -> Arc<dyn SnapshotStore> {
        Arc::new(DirectoryStore::new(dir))
    }
}

/// Writes one object from the front to the end.
pub trait ObjectWriter: fmt::Debug + Send {
    /// Puts `bytes` behind what was written.
    ///
    /// # Errors
    /// `Io` with the path; how much of `bytes` was written is unknown then.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes the contents, the length and the name in its folder durable; the folder's own name is as soon as something was
    /// [`put`](SnapshotStore::put) into the store.
    ///
    /// # Errors
    /// `Io` with the path; nothing may rely on the object then.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Reads one object at any offset.
pub trait ObjectReader: fmt::Debug + Send + Sync {
    /// The object's length when it was opened.
    fn bytes(&self) -> u64;

    /// Fills `into` from `offset`.
    ///
    /// # Errors
    /// `Io` with the path, also if the object ends before.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()>;
}

/// One thing in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name; one that isn't Unicode is shown as well as it can be and is of kind [`EntryKind::Other`].
    pub name: String,
    /// Its length, 0 for what is no object.
    pub bytes: u64,
    /// What it is.
    pub kind: EntryKind,
}

/// What an [`Entry`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// An object.
    Object,
    /// A folder.
    Folder,
    /// A link, a device or anything else that no store made; it is never followed.
    Other,
}

/// Why an object could not be put.
#[derive(Debug)]
pub struct PutError {
    /// What went wrong.
    pub error: Error,
    /// Whether the object may be in place all the same: then nothing that it names may be removed.
    pub may_be_in_place: bool,
}

impl From<PutError> for Error {
    fn from(put: PutError) -> Self {
        put.error
    }
}

/// The name of an object: `file` or `folder/file`.
///
/// Both parts are 1 to 255 of `A-Z a-z 0-9 . _ -` and don't begin with a dot, so no name leads out of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName(Arc<str>);

impl ObjectName {
    /// The object `file` in `folder`, where "" is the top.
    ///
    /// # Errors
    /// `Checkpoint` if a part is no name.
    pub fn new(folder: &str, file: &str) -> Result<Self> {
        if folder.is_empty() { Self::parse(file) } else { Self::parse(&format!("{folder}/{file}")) }
    }

    /// Reads a name.
    ///
    /// # Errors
    /// `Checkpoint` if it isn't one.
    pub fn parse(name: &str) -> Result<Self> {
        let (folder, file) = split(name);
        if (folder.is_empty() && !name.starts_with('/') || is_part(folder)) && is_part(file) {
            Ok(Self(name.into()))
        } else {
            let shown: String = name.chars().take(80).collect();
            Err(Error::new(ErrorKind::Checkpoint, format!("{shown:?} is no name of an object")))
        }
    }

    /// The folder, "" for the top.
    pub fn folder(&self) -> &str {
        split(&self.0).0
    }

    /// The name within the folder.
    pub fn file(&self) -> &str {
        split(&self.0).1
    }

    /// Both, with a slash between.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether `part` may be the name of a folder or of a file in one.
pub(crate) fn is_part(part: &str) -> bool {
    (1..=PART_BYTES_MAX).contains(&part.len())
        && !part.starts_with('.')
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("", name))
}

/// Reads a whole object of at most `bytes_max` bytes.
pub(crate) fn read_whole(
    store: &dyn SnapshotStore,
    name: &ObjectName,
    bytes_max: u64,
) -> Result<Vec<u8>> {
    let object = store.open(name)?;
    let path = store.location().join(name.as_str());
    let bytes = object.bytes();
    if bytes > bytes_max {
        let message = format!("{bytes} bytes are more than the {bytes_max} such a file may have");
        return Err(Error::new(ErrorKind::Checkpoint, message).at_path(path));
    }
    let mut whole = vec![0; usize::try_from(bytes).expect("bounded by bytes_max")];
    object.read_at(0, &mut whole)?;
    Ok(whole)
}

const PART_BYTES_MAX: usize = 255;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leads_out_of_the_store() {
        for bad in [
            "", "/", "a/", "/a", ".", "..", "../a", "a/..", "a/../b", "a/b/c", "a//b", ".a",
            "a/.b", "a\\b", "a\0b", "a b", "ä", "a\n",
        ] {
            assert!(ObjectName::parse(bad).is_err(), "{bad:?}");
        }
        assert!(ObjectName::parse(&"a".repeat(256)).is_err());
    }

    #[test]
    fn a_name_is_a_file_or_a_file_in_a_folder() {
        let top = ObjectName::parse("OWNER").unwrap();
        assert_eq!((top.folder(), top.file()), ("", "OWNER"));
        let inner = ObjectName::new("chk-7", "data-0").unwrap();
        assert_eq!(
            (inner.folder(), inner.file(), inner.as_str()),
            ("chk-7", "data-0", "chk-7/data-0")
        );
        assert_eq!(ObjectName::new("", "MANIFEST").unwrap().as_str(), "MANIFEST");
    }
}
