//! Writes one snapshot: its files, then its manifest.
//!
//! Each process writes files of its own, numbered so that no two share a name, and each file is made durable by
//! closing it; the coordinator's process commits. Nothing is ever overwritten, so a process of a dead attempt can't
//! touch what a living one wrote. A savepoint goes into a folder of its own in any store and belongs to the user.

use std::path::PathBuf;
use std::sync::Arc;

use super::block_io::BlockWriter;
use super::manifest::{CheckpointMeta, FileMeta, SHARED_PREFIX, SnapshotKind};
use super::manifest_codec::MANIFEST_NAME;
use super::snapshots::{
    DATA_PREFIX, SHARED_FOLDER, SPILL_PREFIX, Shared, checkpoint_folder, remove_folder, shared_file,
};
use super::store::{ObjectName, SnapshotStore};
use crate::error::{Error, ErrorKind, Result};
use crate::id::CheckpointId;

/// Writes one checkpoint or savepoint. Clones write the same one.
#[derive(Clone, Debug)]
pub struct SnapshotWriter {
    store: Arc<dyn SnapshotStore>,
    folder: Arc<str>,
    id: CheckpointId,
    /// The owner's ledger, in the process that may commit a checkpoint.
    owner: Option<Arc<Shared>>,
    is_savepoint: bool,
}

impl SnapshotWriter {
    /// Writes files of checkpoint `id` in a process that doesn't own the store; it can neither commit nor abort.
    pub fn join(store: Arc<dyn SnapshotStore>, id: CheckpointId) -> Self {
        let folder = checkpoint_folder(id).into();
        Self { store, folder, id, owner: None, is_savepoint: false }
    }

    /// Begins savepoint `id` in `folder` of `store`, which need not be owned.
    ///
    /// # Errors
    /// `Checkpoint` if something lies in the folder; `Io` with the path.
    pub fn savepoint(
        store: Arc<dyn SnapshotStore>,
        folder: &str,
        id: CheckpointId,
    ) -> Result<Self> {
        if !store.list(folder)?.is_empty() {
            let path = store.location().join(folder);
            return Err(Error::new(ErrorKind::Checkpoint, "is not empty").at_path(path));
        }
        Ok(Self::join_savepoint(store, folder, id))
    }

    /// Writes files of savepoint `id` in a process that didn't begin it.
    pub fn join_savepoint(store: Arc<dyn SnapshotStore>, folder: &str, id: CheckpointId) -> Self {
        Self { store, folder: folder.into(), id, owner: None, is_savepoint: true }
    }

    pub(crate) fn owned(owner: Arc<Shared>, id: CheckpointId) -> Self {
        let store = owner.store.clone();
        let folder = checkpoint_folder(id).into();
        Self { store, folder, id, owner: Some(owner), is_savepoint: false }
    }

    /// Which checkpoint.
    pub fn id(&self) -> CheckpointId {
        self.id
    }

    /// The folder in the store.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// Begins the file `data-<index>`; the job gives each process its own index.
    ///
    /// # Errors
    /// `Io` with the path, also if the file exists.
    pub fn data_file(&self, index: u32) -> Result<BlockWriter> {
        let file = format!("{DATA_PREFIX}{index}");
        let name = ObjectName::new(&self.folder, &file)?;
        self.block_writer(&name, file.into())
    }

    /// Begins a file that later checkpoints may name too.
    ///
    /// # Errors
    /// `Io` with the path, also if the file exists; `Internal` for a savepoint, which names no shared file.
    pub fn shared_file(&self, index: u32) -> Result<BlockWriter> {
        if self.is_savepoint {
            let message = "a savepoint is asked for a shared file";
            return Err(Error::new(ErrorKind::Internal, message));
        }
        let file = shared_file(self.id, index);
        let name = ObjectName::new(SHARED_FOLDER, &file)?;
        self.block_writer(&name, format!("{SHARED_PREFIX}{file}").into())
    }

    /// Where a spill file of this snapshot lies and what it is called; `None` if the store is no directory: then
    /// buffers go into a data file.
    ///
    /// # Errors
    /// `Io` with the path.
    pub fn spill_path(&self, index: u32) -> Result<Option<(PathBuf, Arc<str>)>> {
        let file = format!("{SPILL_PREFIX}{index}");
        let folder = self.store.local_folder(&self.folder)?;
        Ok(folder.map(|folder| (folder.join(&file), file.into())))
    }

    /// Completes the snapshot: after `Ok` it survives everything. All files must be closed.
    ///
    /// # Errors
    /// `Checkpoint` if the manifest contradicts itself or the files, if there is one already, or if another owner
    /// has taken the store; `Io` with the path. The snapshot is not completed then, or it is unknown:
    /// [`Self::abort`] knows what to do.
    pub fn commit(&self, meta: &CheckpointMeta) -> Result<()> {
        let is_savepoint = matches!(meta.kind, SnapshotKind::Savepoint { .. });
        if meta.id != self.id || is_savepoint != self.is_savepoint {
            let message = format!("{} is committed with the manifest of another", self.folder);
            return Err(Error::new(ErrorKind::Internal, message));
        }
        self.check_right()?;
        let bytes = meta.encode()?;
        check_files(&*self.store, &self.folder, meta)?;
        if let Some(owner) = &self.owner {
            owner.check_epoch()?;
        }
        let name = ObjectName::new(&self.folder, MANIFEST_NAME)?;
        if self.has_manifest()? {
            let path = self.store.location().join(name.as_str());
            return Err(Error::new(ErrorKind::Checkpoint, "is there already").at_path(path));
        }
        self.store.put(&name, &bytes).map_err(|e| {
            if let (Some(owner), true) = (&self.owner, e.may_be_in_place) {
                owner.uncertain(self.id);
            }
            e.error
        })?;
        if let Some(owner) = &self.owner {
            owner.completed(meta);
        }
        Ok(())
    }

    /// Gives the snapshot up and removes its files, unless it is or may be completed: then they stay, and the next
    /// owner finds it completed or removes it.
    ///
    /// # Errors
    /// `Io` with the path; what is left is removed by the next owner.
    pub fn abort(&self) -> Result<()> {
        self.check_right()?;
        match &self.owner {
            Some(owner) => owner.abort(self.id),
            None if self.has_manifest()? => Ok(()),
            None => remove_folder(&*self.store, &self.folder),
        }
    }

    fn check_right(&self) -> Result<()> {
        if self.owner.is_none() && !self.is_savepoint {
            let message = "a process that doesn't own the store decides about a checkpoint";
            return Err(Error::new(ErrorKind::Internal, message));
        }
        Ok(())
    }

    fn has_manifest(&self) -> Result<bool> {
        Ok(self.store.list(&self.folder)?.iter().any(|entry| entry.name == MANIFEST_NAME))
    }

    fn block_writer(&self, name: &ObjectName, file: Arc<str>) -> Result<BlockWriter> {
        let path = self.store.location().join(name.as_str());
        Ok(BlockWriter::new(self.store.create(name)?, file, path))
    }
}

/// Checks that every file the manifest names is there in its full length.
pub(crate) fn check_files(
    store: &dyn SnapshotStore,
    folder: &str,
    meta: &CheckpointMeta,
) -> Result<()> {
    let own = store.list(folder)?;
    let has_shared = meta.files.iter().any(FileMeta::is_shared);
    let shared = if has_shared { store.list(SHARED_FOLDER)? } else { Vec::new() };
    for file in &meta.files {
        let name = file_name(folder, &file.name)?;
        let entries = if file.is_shared() { &shared } else { &own };
        let found = entries
            .binary_search_by(|entry| entry.name.as_str().cmp(name.file()))
            .map(|at| entries[at].bytes);
        let message = match found {
            Ok(bytes) if bytes == file.bytes => continue,
            Ok(bytes) => format!("has {bytes} bytes, the manifest says {}", file.bytes),
            Err(_) => "is missing, but the manifest names it".to_owned(),
        };
        let path = store.location().join(name.as_str());
        return Err(Error::new(ErrorKind::Checkpoint, message).at_path(path));
    }
    Ok(())
}

/// The object that a manifest in `folder` calls `file`.
pub(crate) fn file_name(folder: &str, file: &str) -> Result<ObjectName> {
    match file.strip_prefix(SHARED_PREFIX) {
        Some(shared) => ObjectName::new(SHARED_FOLDER, shared),
        None => ObjectName::new(folder, file),
    }
}
