//! A store in memory, for tests, that can fail and crash like a disk.
//!
//! It keeps two images: the live one that a running process sees, and the durable one that is left when the power
//! goes. Every step that a directory would do with a system call of its own is an operation, counted from 0; a
//! [`Fault`] can be set for any of them. After a crash every further operation fails, and
//! [`MemoryStore::after_crash`] gives the store that the next process finds.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::directory::{DirectoryStore, TEMPORARY_SUFFIX};
use super::store::{
    Entry, EntryKind, ObjectName, ObjectReader, ObjectWriter, PutError, SnapshotStore,
};
use crate::error::{Error, ErrorKind, Result};

/// What happens at an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The disk is full.
    NoSpace,
    /// The disk is broken.
    Broken,
    /// Only half of what is written arrives, then the disk is full.
    Torn,
    /// The process dies before the operation.
    Crash,
}

/// What the next process finds after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// All that was written: only the process died.
    Everything,
    /// Only what was synced: the power went.
    Durable,
    /// What was synced, and of the rest the first half of each file under each name.
    Torn,
}

/// Snapshots in memory.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
    location: PathBuf,
    /// The folder that is this store's top.
    top: Arc<str>,
    is_whole: bool,
}

#[derive(Debug, Default)]
struct Inner {
    live: BTreeMap<ObjectName, Arc<Object>>,
    durable: BTreeMap<ObjectName, Arc<Object>>,
    operations: u64,
    faults: BTreeMap<u64, Fault>,
    is_dead: bool,
}

/// One object's contents; like an inode, it may be in both images.
#[derive(Debug, Default)]
struct Object(Mutex<Contents>);

#[derive(Clone, Debug, Default)]
struct Contents {
    live: Vec<u8>,
    durable: Vec<u8>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        let location = PathBuf::from("memory:");
        Self { inner: Arc::default(), location, top: "".into(), is_whole: false }
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store that is the whole disk: savepoints in its location lie in it too.
    pub fn whole_disk() -> Self {
        Self { is_whole: true, ..Self::default() }
    }

    /// Lets `fault` happen at operation number `operation`.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        self.lock_inner().faults.insert(operation, fault);
    }

    /// Takes back all faults that have not happened.
    pub fn heal(&self) {
        self.lock_inner().faults.clear();
    }

    /// Whether the process has died at an operation.
    pub fn is_dead(&self) -> bool {
        self.lock_inner().is_dead
    }

    /// How many operations were done or tried.
    pub fn operations(&self) -> u64 {
        self.lock_inner().operations
    }

    /// The store that the next process finds if this one dies at this moment.
    pub fn after_crash(&self, survivors: Survivors) -> Self {
        let inner = self.lock_inner();
        let image = match survivors {
            Survivors::Everything | Survivors::Torn => &inner.live,
            Survivors::Durable => &inner.durable,
        };
        let kept = image.iter().map(|(name, object)| {
            let contents = object.contents();
            let bytes = match survivors {
                Survivors::Everything => contents.live.clone(),
                Survivors::Durable => contents.durable.clone(),
                Survivors::Torn if contents.live == contents.durable => contents.live.clone(),
                Survivors::Torn => contents.live[..contents.live.len() / 2].to_vec(),
            };
            (name.clone(), Arc::new(Object::durable(bytes)))
        });
        let live: BTreeMap<_, _> = kept.collect();
        let inner = Inner { durable: live.clone(), live, ..Inner::default() };
        Self { inner: Arc::new(Mutex::new(inner)), ..self.clone() }
    }

    /// The names of all objects.
    pub fn names(&self) -> Vec<ObjectName> {
        self.lock_inner().live.keys().cloned().collect()
    }

    /// Changes the bytes of an object behind the store's back.
    ///
    /// # Panics
    /// If there is no such object.
    pub fn tamper(&self, name: &ObjectName, change: impl FnOnce(&mut Vec<u8>)) {
        let object = self.lock_inner().live.get(name).cloned().expect("the object is there");
        let mut contents = object.contents();
        change(&mut contents.live);
    }

    fn lock_inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name in this store as one in the whole.
    fn inside(&self, name: &ObjectName) -> Result<ObjectName> {
        if self.top.is_empty() {
            Ok(name.clone())
        } else {
            ObjectName::new(&self.top, name.as_str())
        }
    }

    fn path(&self, name: &ObjectName) -> PathBuf {
        self.location.join(name.as_str())
    }

    /// One system call's worth of work on `name`.
    fn operation(&self, name: &ObjectName, act: impl FnOnce(&mut Inner)) -> Result<()> {
        let mut inner = self.lock_inner();
        match inner.next_fault() {
            None => {
                act(&mut inner);
                Ok(())
            }
            Some(errno) => Err(self.refused(name, errno.1)),
        }
    }

    fn append_to(&self, name: &ObjectName, object: &Object, bytes: &[u8]) -> Result<()> {
        match self.lock_inner().next_fault() {
            None => {
                object.contents().live.extend_from_slice(bytes);
                Ok(())
            }
            Some((fault, errno)) => {
                if fault == Fault::Torn {
                    object.contents().live.extend_from_slice(&bytes[..bytes.len() / 2]);
                }
                Err(self.refused(name, errno))
            }
        }
    }

    fn sync(&self, name: &ObjectName, object: &Object) -> Result<()> {
        self.operation(name, |_| object.contents().sync())
    }

    fn sync_folder(&self, name: &ObjectName) -> Result<()> {
        self.operation(name, |inner| {
            let in_folder = |other: &ObjectName| other.folder() == name.folder();
            inner.durable.retain(|other, _| !in_folder(other));
            let kept = inner.live.iter().filter(|(other, _)| in_folder(other));
            inner.durable.extend(kept.map(|(name, object)| (name.clone(), object.clone())));
        })
    }

    fn refused(&self, name: &ObjectName, errno: Errno) -> Error {
        Error::io(self.path(name), "can't be written", io::Error::from(errno))
    }

    fn missing(&self, name: &ObjectName) -> Error {
        Error::io(self.path(name), "can't be opened", io::Error::from(Errno::NOENT))
    }

    fn put_temporary(&self, name: &ObjectName, bytes: &[u8]) -> Result<ObjectName> {
        let file = format!("{}{TEMPORARY_SUFFIX}", name.file());
        let temporary = ObjectName::new(name.folder(), &file)?;
        let object = Arc::new(Object::default());
        self.operation(&temporary, |inner| {
            inner.live.insert(temporary.clone(), object.clone());
        })?;
        self.append_to(&temporary, &object, bytes)?;
        self.sync(&temporary, &object)?;
        Ok(temporary)
    }
}

impl SnapshotStore for MemoryStore {
    fn location(&self) -> &Path {
        &self.location
    }

    fn lock(&self) -> Result<()> {
        Ok(())
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        let inner = self.lock_inner();
        let folder = if folder.is_empty() { &*self.top } else { folder };
        let mut entries: Vec<Entry> = Vec::new();
        for (name, object) in &inner.live {
            if name.folder() == folder {
                let bytes = object.contents().live.len() as u64;
                let name = name.file().to_owned();
                entries.push(Entry { name, bytes, kind: EntryKind::Object });
            } else if folder.is_empty() && entries.last().is_none_or(|e| e.name != name.folder()) {
                let name = name.folder().to_owned();
                entries.push(Entry { name, bytes: 0, kind: EntryKind::Folder });
            }
        }
        Ok(entries)
    }

    fn create(&self, name: &ObjectName) -> Result<Box<dyn ObjectWriter>> {
        let name = &self.inside(name)?;
        if self.lock_inner().live.contains_key(name) {
            let exists = io::Error::from(Errno::EXIST);
            return Err(Error::io(self.path(name), "can't be made", exists));
        }
        let object = Arc::new(Object::default());
        self.operation(name, |inner| {
            inner.live.insert(name.clone(), object.clone());
        })?;
        Ok(Box::new(MemoryWriter { store: self.clone(), name: name.clone(), object }))
    }

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), PutError> {
        let before = |error| PutError { error, may_be_in_place: false };
        let name = &self.inside(name).map_err(before)?;
        let temporary = self.put_temporary(name, bytes).map_err(before)?;
        self.operation(name, |inner| {
            if let Some(object) = inner.live.remove(&temporary) {
                inner.live.insert(name.clone(), object);
            }
        })
        .map_err(before)?;
        self.sync_folder(name).map_err(|error| PutError { error, may_be_in_place: true })
    }

    fn open(&self, name: &ObjectName) -> Result<Arc<dyn ObjectReader>> {
        let name = &self.inside(name)?;
        let inner = self.lock_inner();
        let object = inner.live.get(name).cloned().ok_or_else(|| self.missing(name))?;
        let bytes = object.contents().live.len() as u64;
        Ok(Arc::new(MemoryReader { object, bytes, path: self.path(name) }))
    }

    fn remove(&self, name: &ObjectName) -> Result<()> {
        let name = &self.inside(name)?;
        if !self.lock_inner().live.contains_key(name) {
            return Ok(());
        }
        self.operation(name, |inner| {
            inner.live.remove(name);
        })?;
        self.sync_folder(name)
    }

    fn remove_folder(&self, _folder: &str) -> Result<()> {
        Ok(())
    }

    fn local_folder(&self, _folder: &str) -> Result<Option<PathBuf>> {
        Ok(None)
    }

    fn beside(&self, dir: &Path) -> Arc<dyn SnapshotStore> {
        match dir.strip_prefix(&self.location).ok().and_then(Path::to_str) {
            Some(top) if self.is_whole => Arc::new(Self { top: top.into(), ..self.clone() }),
            Some(_) | None => Arc::new(DirectoryStore::new(dir)),
        }
    }
}

impl Inner {
    /// Counts an operation; what goes wrong with it, if anything does.
    fn next_fault(&mut self) -> Option<(Fault, Errno)> {
        let fault = self.faults.get(&self.operations).copied();
        self.operations += 1;
        self.is_dead |= fault == Some(Fault::Crash);
        if self.is_dead {
            return Some((Fault::Crash, Errno::IO));
        }
        fault.map(|fault| match fault {
            Fault::NoSpace | Fault::Torn => (fault, Errno::NOSPC),
            Fault::Broken | Fault::Crash => (fault, Errno::IO),
        })
    }
}

impl Object {
    fn durable(bytes: Vec<u8>) -> Self {
        Self(Mutex::new(Contents { live: bytes.clone(), durable: bytes }))
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn sync(&mut self) {
        self.durable.clone_from(&self.live);
    }
}

#[derive(Debug)]
struct MemoryWriter {
    store: MemoryStore,
    name: ObjectName,
    object: Arc<Object>,
}

impl ObjectWriter for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.store.append_to(&self.name, &self.object, bytes)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.sync(&self.name, &self.object)?;
        self.store.sync_folder(&self.name)
    }
}

#[derive(Debug)]
struct MemoryReader {
    object: Arc<Object>,
    bytes: u64,
    path: PathBuf,
}

impl ObjectReader for MemoryReader {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let contents = self.object.contents();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = start.checked_add(into.len()).and_then(|end| contents.live.get(start..end));
        let Some(found) = found else {
            let what = format!("can't be read at byte {offset}: the object ends before");
            return Err(Error::new(ErrorKind::Io, what).at_path(&self.path));
        };
        into.copy_from_slice(found);
        Ok(())
    }
}
