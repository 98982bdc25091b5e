//! Reads one completed snapshot at restore.
//!
//! Opening checks the manifest and that every file is there in full length; blocks are checked as they are read.
//! What was written by others is never believed: see `block_io` and `manifest_codec` for the bounds.

use std::sync::Arc;

use super::block::BlockRef;
use super::block_io::BlockReader;
use super::manifest::{CheckpointMeta, MANIFEST_BYTES_MAX, StateData};
use super::manifest_codec::MANIFEST_NAME;
use super::snapshot_writer::{check_files, file_name};
use super::snapshots::{Pin, checkpoint_of};
use super::store::{EntryKind, ObjectName, SnapshotStore, read_whole};
use crate::error::{Error, ErrorKind, Result};

/// One completed checkpoint or savepoint.
#[derive(Debug)]
pub struct SnapshotReader {
    store: Arc<dyn SnapshotStore>,
    folder: String,
    meta: CheckpointMeta,
    _pin: Option<Pin>,
}

impl SnapshotReader {
    /// Opens the snapshot in `folder` of `store`; "" if the store is the snapshot's own folder, as for a savepoint
    /// that was moved. The store need not be owned.
    ///
    /// # Errors
    /// `Checkpoint` with the path if it isn't completed, is damaged or lacks a file; `Io` with the path.
    pub fn open(store: Arc<dyn SnapshotStore>, folder: &str) -> Result<Self> {
        let meta = read_manifest(&*store, folder)?;
        check_files(&*store, folder, &meta)?;
        Ok(Self { store, folder: folder.to_owned(), meta, _pin: None })
    }

    /// What the snapshot consists of.
    pub fn meta(&self) -> &CheckpointMeta {
        &self.meta
    }

    /// Reads one run of blocks.
    ///
    /// # Errors
    /// `Checkpoint` or `Io` with the path.
    pub fn blocks(&self, run: &BlockRef) -> Result<BlockReader> {
        let name = file_name(&self.folder, &run.file)?;
        let path = self.store.location().join(name.as_str());
        BlockReader::new(self.store.open(&name)?, run, &path)
    }

    /// Reads all bytes of a part, which may be at most `bytes_max`.
    ///
    /// # Errors
    /// `Checkpoint` if there are more, or one of them is wrong; `Io` with the path.
    pub fn bytes(&self, data: &StateData, bytes_max: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut add = |piece: &[u8]| {
            if piece.len() > bytes_max - bytes.len() {
                let message = format!("a part has more than {bytes_max} bytes");
                let path = self.store.location().join(&self.folder);
                return Err(Error::new(ErrorKind::Checkpoint, message).at_path(path));
            }
            bytes.extend_from_slice(piece);
            Ok(())
        };
        match data {
            StateData::Inline(inline) => add(inline)?,
            StateData::Blocks(runs) => {
                for run in runs {
                    let mut blocks = self.blocks(run)?;
                    while let Some(block) = blocks.read_block()? {
                        add(block.payload)?;
                    }
                }
            }
        }
        Ok(bytes)
    }

    pub(crate) fn hold(&mut self, pin: Pin) {
        self._pin = Some(pin);
    }
}

/// Reads the manifest in `folder`.
pub(crate) fn read_manifest(store: &dyn SnapshotStore, folder: &str) -> Result<CheckpointMeta> {
    let name = ObjectName::new(folder, MANIFEST_NAME)?;
    let path = store.location().join(name.as_str());
    let is_manifest =
        |e: &super::store::Entry| e.name == MANIFEST_NAME && e.kind == EntryKind::Object;
    if !store.list(folder)?.iter().any(is_manifest) {
        let message = "is not there: no completed snapshot";
        return Err(Error::new(ErrorKind::Checkpoint, message).at_path(path));
    }
    let bytes = read_whole(store, &name, MANIFEST_BYTES_MAX)?;
    let meta = CheckpointMeta::decode(&bytes).map_err(|e| e.at_path(&path))?;
    match checkpoint_of(folder) {
        Some(id) if id != meta.id => {
            let message = format!("is the manifest of checkpoint {}", meta.id);
            Err(Error::new(ErrorKind::Checkpoint, message).at_path(path))
        }
        Some(_) | None => Ok(meta),
    }
}
