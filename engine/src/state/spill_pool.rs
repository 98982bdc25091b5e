//! Spill files, kept mapped and warm from one checkpoint to the next.
//!
//! A spill file lies among the spare files for as long as the pool knows it. Finishing one gives it a second name
//! in the checkpoint's folder. When the checkpoint is removed that name goes, the link count tells it, and the file
//! is free to be written again: nobody has to be told, and a file that a checkpoint has is never written. Where
//! links aren't supported the file is moved and not used again. Owned by the thread that spills.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::manifest::FileMeta;
use super::snapshots::SPARE_FOLDER;
use super::spill::{PAGES_BYTES, Segments, Spare, SpareName, SpillFile};
use super::store::SnapshotStore;
use crate::error::{Error, ErrorKind, Result};

/// Makes spill files, and makes them again of old ones.
#[derive(Debug)]
pub struct SpillPool {
    folder: PathBuf,
    segment_bytes: u64,
    /// Oldest first; those that a checkpoint still has are among them.
    spares: Vec<Spare>,
    spare_count_max: usize,
    next_number: u64,
    recycled_count: u64,
    /// How long the last file became.
    last_bytes: u64,
}

impl SpillPool {
    /// Keeps at most `spare_count_max` files in `folder`, which exists and is on the file system of the checkpoints,
    /// and maps each by `segment_bytes` at a time.
    pub fn new(folder: impl Into<PathBuf>, segment_bytes: u64, spare_count_max: usize) -> Self {
        Self {
            folder: folder.into(),
            segment_bytes: segment_bytes.max(1).next_multiple_of(PAGES_BYTES),
            spares: Vec::new(),
            spare_count_max,
            next_number: u64::from(std::process::id()) << 32,
            recycled_count: 0,
            last_bytes: 0,
        }
    }

    /// The pool among the spare files of `store`; `None` if the store is no directory.
    ///
    /// # Errors
    /// `Io` with the path.
    pub fn in_store(
        store: &dyn SnapshotStore,
        segment_bytes: u64,
        spare_count_max: usize,
    ) -> Result<Option<Self>> {
        let folder = store.local_folder(SPARE_FOLDER)?;
        Ok(folder.map(|folder| Self::new(folder, segment_bytes, spare_count_max)))
    }

    /// Begins a file that the manifest will call `name`. Dropping it instead of finishing it removes it.
    ///
    /// # Errors
    /// `Io` with the path.
    pub fn begin(&mut self, name: Arc<str>) -> Result<SpillFile> {
        let spare = match self.free() {
            Some(at) => {
                self.recycled_count += 1;
                self.spares.remove(at)
            }
            None => self.make()?,
        };
        Ok(SpillFile::new(spare, name))
    }

    /// Prepares the file that is taken next for most of the bytes that the last one had: the next one may have a few less, and
    /// what is too much has to be given back. Takes some milliseconds that the next checkpoint doesn't have to; to be called
    /// when nobody waits.
    pub fn warm(&mut self) {
        if let Some(at) = self.free() {
            let Spare { file, segments, .. } = &mut self.spares[at];
            segments.warm(file, self.last_bytes - self.last_bytes / 32);
        }
    }

    /// The first spare file that no checkpoint has.
    fn free(&mut self) -> Option<usize> {
        let mut at = 0;
        while at < self.spares.len() {
            match self.spares[at].file.metadata().map_or(0, |m| m.nlink()) {
                0 => drop(self.spares.remove(at)),
                1 => return Some(at),
                _ => at += 1,
            }
        }
        None
    }

    /// Makes a file durable and puts it at `path`, the place that the snapshot writer names for it.
    ///
    /// # Errors
    /// `Io` with the path; the file is removed, and the checkpoint is to be declined.
    pub fn finish(&mut self, spill: SpillFile, path: &Path) -> Result<FileMeta> {
        let (meta, mut spare) = spill.close()?;
        self.last_bytes = meta.bytes;
        let at = |e: io::Error| Error::io(path, "can't be put in place", e);
        let is_linked = match fs::hard_link(spare.path(), path) {
            Ok(()) => true,
            Err(e) if is_unsupported(&e) => {
                fs::rename(spare.path(), path).map_err(at)?;
                spare.name.is_kept = true;
                false
            }
            Err(e) => return Err(at(e)),
        };
        let folder = path.parent().expect("a file lies in a folder");
        File::open(folder).and_then(|f| f.sync_all()).map_err(at)?;
        if is_linked {
            self.spares.push(spare);
            let over = self.spares.len().saturating_sub(self.spare_count_max);
            self.spares.drain(..over);
        }
        Ok(meta)
    }

    /// How many files were made of old ones.
    pub fn recycled_count(&self) -> u64 {
        self.recycled_count
    }

    fn make(&mut self) -> Result<Spare> {
        loop {
            let path = self.folder.join(format!("{SPARE_PREFIX}{}", self.next_number));
            let Some(next) = self.next_number.checked_add(1) else {
                return Err(Error::new(ErrorKind::Internal, "no number for a spill file is left"));
            };
            self.next_number = next;
            let options = &mut OpenOptions::new();
            match options.read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => {
                    let name = SpareName { path, is_kept: false };
                    return Ok(Spare { file, segments: Segments::new(self.segment_bytes), name });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::io(path, "can't be made", e)),
            }
        }
    }
}

/// Whether the file system has no links, or no more of them.
fn is_unsupported(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK)
    )
}

/// Whether a file in the spare folder is one of ours.
pub(crate) fn is_spare(name: &str) -> bool {
    name.strip_prefix(SPARE_PREFIX).is_some_and(|n| n.parse::<u64>().is_ok())
}

const SPARE_PREFIX: &str = "spare-";
