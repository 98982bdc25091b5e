//! The checkpoints in a store, for the one job that owns it.
//!
//! Layout: `OWNER`, `NEXT-ID`, `LOCK`; a folder `chk-<id>` for each checkpoint with `data-<n>`, `spill-<n>` and, last
//! of all, `MANIFEST`; `shared/` for files that several checkpoints use; `savepoint-…` where savepoints were
//! asked for in the same store. Invariants: a checkpoint is completed from the moment its manifest is in place, and
//! gone from the moment its manifest is gone; the manifest goes first, the files after; a shared file goes with the
//! last manifest that names it, never while a checkpoint is being written that may still name it; what is open for
//! reading is removed only after it was closed. Handles are cheap to clone and may be used on any thread, but not
//! on a worker: every call may wait for the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::manifest::{CheckpointMeta, MANIFEST_BYTES_MAX};
use super::manifest_codec::MANIFEST_NAME;
use super::owner;
use super::store::{EntryKind, ObjectName, SnapshotStore, read_whole};
use super::survey;
use crate::error::{Error, ErrorKind, Result};
use crate::id::CheckpointId;

pub use super::owner::{End, Owner, OwnerRecord};
pub use super::snapshot_reader::SnapshotReader;
pub use super::snapshot_writer::SnapshotWriter;
pub use super::survey::Survey;

/// The checkpoints of the job that owns a store.
#[derive(Clone, Debug)]
pub struct Snapshots {
    shared: Arc<Shared>,
}

/// What all handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn SnapshotStore>,
    record: OwnerRecord,
    ledger: Mutex<Ledger>,
}

/// What is in the store, as far as removing depends on it.
#[derive(Debug, Default)]
struct Ledger {
    /// Completed checkpoints and the shared files each names.
    completed: BTreeMap<CheckpointId, BTreeSet<Arc<str>>>,
    /// Checkpoints being written, each with the moment it began.
    writing: BTreeMap<CheckpointId, u64>,
    /// Checkpoints of which it is unknown whether the manifest is in place.
    uncertain: BTreeSet<CheckpointId>,
    /// How many readers a checkpoint has.
    pins: BTreeMap<CheckpointId, u32>,
    /// To be removed when the last reader is gone.
    doomed: BTreeSet<CheckpointId>,
    /// Shared files that no manifest names any more, each with the moment it lost the last one.
    orphans: BTreeMap<Arc<str>, u64>,
    /// Counts beginnings: the ledger's idea of a moment.
    moment: u64,
    /// The first id that is not reserved.
    next_id: CheckpointId,
}

impl Snapshots {
    /// Takes ownership of `store` for a job, removes what is temporary, incomplete or unreferenced in it, and tells
    /// what is there. The ownership lasts until `store` and all handles are dropped.
    ///
    /// # Errors
    /// `Checkpoint` if another running job holds the store, if it belongs to a job of another name, or if its own
    /// records are damaged; `Io` with the path.
    pub fn own(store: Arc<dyn SnapshotStore>, owner: &Owner) -> Result<(Self, Survey)> {
        store.lock()?;
        let previous = owner::read_owner(&*store)?;
        if let Some(previous) = &previous
            && previous.owner.job != owner.job
        {
            let message = format!(
                "belongs to the job '{}', not to '{}'; use another directory",
                previous.owner.job, owner.job
            );
            return Err(Error::new(ErrorKind::Checkpoint, message).at_path(store.location()));
        }
        let record = OwnerRecord {
            owner: owner.clone(),
            epoch: previous.as_ref().map_or(0, |p| p.epoch).saturating_add(1),
            pid: std::process::id(),
        };
        owner::write_owner(&*store, &record)?;
        let mut survey = survey::survey(&*store)?;
        survey.previous = previous;
        let next_id = owner::read_next_id(&*store)?.max(CheckpointId(survey.id_max.0 + 1));
        let completed =
            survey.shared_files.iter().map(|(id, files)| (*id, files.clone())).collect();
        let ledger = Mutex::new(Ledger { completed, next_id, ..Ledger::default() });
        Ok((Self { shared: Arc::new(Shared { store, record, ledger }) }, survey))
    }

    /// The owner's epoch: raised durably by each new owner, so that what an old one sends can be told apart.
    pub fn epoch(&self) -> u64 {
        self.shared.record.epoch
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn SnapshotStore> {
        &self.shared.store
    }

    /// The first checkpoint id that is not reserved.
    pub fn next_id(&self) -> CheckpointId {
        self.shared.ledger().next_id
    }

    /// Makes it durable that ids below `upto` are taken, so that no later owner draws one of them again. Reserving
    /// many at once costs one sync for all of them; what is reserved and not used is a harmless gap.
    ///
    /// # Errors
    /// `Io` with the path: none of the new ids may be used.
    pub fn reserve_ids(&self, upto: CheckpointId) -> Result<()> {
        let mut ledger = self.shared.ledger();
        if upto > ledger.next_id {
            owner::write_next_id(&*self.shared.store, upto)?;
            ledger.next_id = upto;
        }
        Ok(())
    }

    /// Makes it durable that there is nothing to go on with by itself, or again that there is.
    ///
    /// # Errors
    /// `Io` with the path.
    pub fn mark(&self, end: Option<&End>) -> Result<()> {
        owner::write_end(&*self.shared.store, end)
    }

    /// Why there is nothing to go on with by itself, if so.
    ///
    /// # Errors
    /// `Io` with the path; `Checkpoint` if the mark is damaged.
    pub fn end(&self) -> Result<Option<End>> {
        owner::read_end(&*self.shared.store)
    }

    /// Begins to write checkpoint `id`.
    ///
    /// # Errors
    /// `Internal` if the id is not reserved, or was begun before.
    pub fn begin(&self, id: CheckpointId) -> Result<SnapshotWriter> {
        let mut ledger = self.shared.ledger();
        if id >= ledger.next_id || ledger.completed.contains_key(&id) {
            let message = format!("checkpoint {id} is begun, but its id is not reserved or used");
            return Err(Error::new(ErrorKind::Internal, message));
        }
        ledger.moment += 1;
        let moment = ledger.moment;
        if ledger.writing.insert(id, moment).is_some() {
            let message = format!("checkpoint {id} is begun twice");
            return Err(Error::new(ErrorKind::Internal, message));
        }
        drop(ledger);
        Ok(SnapshotWriter::owned(self.shared.clone(), id))
    }

    /// The completed checkpoints, oldest first.
    pub fn completed(&self) -> Vec<CheckpointId> {
        self.shared.ledger().completed.keys().copied().collect()
    }

    /// Whether it is unknown if the manifest of checkpoint `id` is in place.
    pub fn is_uncertain(&self, id: CheckpointId) -> bool {
        self.shared.ledger().uncertain.contains(&id)
    }

    /// Opens a completed checkpoint; it is not removed while the reader lives.
    ///
    /// # Errors
    /// `Checkpoint` with the path if it isn't completed, is damaged or lacks a file; `Io` with the path.
    pub fn open(&self, id: CheckpointId) -> Result<SnapshotReader> {
        let pin = Pin::new(&self.shared, id)?;
        let mut reader = SnapshotReader::open(self.shared.store.clone(), &checkpoint_folder(id))?;
        reader.hold(pin);
        Ok(reader)
    }

    /// Makes sure that checkpoint `id` survives everything, before anything is committed because it is complete: whoever completed
    /// it may have failed to sync its manifest, and not know.
    ///
    /// # Errors
    /// `Io` with the path; the checkpoint is as it was.
    pub fn confirm(&self, id: CheckpointId) -> Result<()> {
        let store = self.store();
        let name = ObjectName::new(&checkpoint_folder(id), MANIFEST_NAME)?;
        let manifest = read_whole(&**store, &name, MANIFEST_BYTES_MAX)?;
        store.put(&name, &manifest).map_err(|put| put.error)
    }

    /// Removes checkpoint `id`, or as soon as nobody reads it any more.
    ///
    /// # Errors
    /// `Io` with the path; what is left is removed by the next owner.
    pub fn remove(&self, id: CheckpointId) -> Result<()> {
        self.shared.ledger().doomed.insert(id);
        self.shared.sweep()
    }

    /// Removes the oldest checkpoints but the newest `count`, at least 1 of them, and names the removed.
    ///
    /// # Errors
    /// `Io` with the path; what is left is removed by the next owner.
    pub fn retain(&self, count: usize) -> Result<Vec<CheckpointId>> {
        let removed: Vec<_> = {
            let mut ledger = self.shared.ledger();
            let over = ledger.completed.len().saturating_sub(count.max(1));
            let oldest: Vec<_> = ledger.completed.keys().copied().take(over).collect();
            ledger.doomed.extend(&oldest);
            oldest
        };
        self.shared.sweep()?;
        Ok(removed)
    }
}

impl Shared {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if a newer owner has taken the store, as far as that can be seen.
    pub(crate) fn check_epoch(&self) -> Result<()> {
        let found = owner::read_owner(&*self.store)?;
        if found.as_ref().is_some_and(|f| f.epoch == self.record.epoch) {
            return Ok(());
        }
        let newer = found.map_or(0, |f| f.epoch);
        let message = format!("owner epoch {} is over: the owner is {newer}", self.record.epoch);
        Err(Error::new(ErrorKind::Checkpoint, message).at_path(self.store.location()))
    }

    /// Enters a checkpoint whose manifest is in place.
    pub(crate) fn completed(&self, meta: &CheckpointMeta) {
        let mut ledger = self.ledger();
        let files: BTreeSet<Arc<str>> =
            meta.files.iter().filter(|f| f.is_shared()).map(|f| f.name.clone()).collect();
        ledger.orphans.retain(|orphan, _| !files.contains(orphan));
        ledger.completed.insert(meta.id, files);
        // A newer completed one stands in for those of which it is unknown.
        let older = ledger.uncertain.iter().copied().filter(|id| *id < meta.id);
        let older: Vec<_> = older.collect();
        ledger.doomed.extend(older);
        ledger.writing.remove(&meta.id);
    }

    /// Notes that it is unknown whether the checkpoint's manifest is in place: its files stay.
    pub(crate) fn uncertain(&self, id: CheckpointId) {
        self.ledger().uncertain.insert(id);
    }

    /// Removes a checkpoint that will not be completed.
    pub(crate) fn abort(&self, id: CheckpointId) -> Result<()> {
        let stays = {
            let mut ledger = self.ledger();
            ledger.writing.remove(&id);
            ledger.uncertain.contains(&id) || ledger.completed.contains_key(&id)
        };
        if stays {
            return Ok(());
        }
        remove_folder(&*self.store, &checkpoint_folder(id))?;
        for entry in self.store.list(SHARED_FOLDER)? {
            if shared_file_of(&entry.name) == Some(id) {
                self.store.remove(&ObjectName::new(SHARED_FOLDER, &entry.name)?)?;
            }
        }
        self.sweep()
    }

    /// Removes what is doomed and not read, and shared files that nothing can name any more.
    pub(crate) fn sweep(&self) -> Result<()> {
        let ready: Vec<_> = {
            let ledger = self.ledger();
            ledger.doomed.iter().copied().filter(|id| !ledger.pins.contains_key(id)).collect()
        };
        for id in ready {
            let folder = checkpoint_folder(id);
            self.store.remove(&ObjectName::new(&folder, MANIFEST_NAME)?)?;
            self.forget(id);
            remove_folder(&*self.store, &folder)?;
        }
        let orphans: Vec<_> = {
            let ledger = self.ledger();
            let is_over = |moment| ledger.writing.values().all(|began| began > moment);
            let over = ledger.orphans.iter().filter(|(_, moment)| is_over(*moment));
            over.map(|(name, _)| name.clone()).collect()
        };
        for orphan in orphans {
            self.store.remove(&ObjectName::parse(&orphan)?)?;
            self.ledger().orphans.remove(&orphan);
        }
        Ok(())
    }

    /// Takes a checkpoint whose manifest is gone out of the ledger.
    fn forget(&self, id: CheckpointId) {
        let mut ledger = self.ledger();
        ledger.doomed.remove(&id);
        ledger.uncertain.remove(&id);
        let files = ledger.completed.remove(&id).unwrap_or_default();
        for file in files {
            if !ledger.completed.values().any(|others| others.contains(&file)) {
                let moment = ledger.moment;
                ledger.orphans.insert(file, moment);
            }
        }
    }
}

/// Keeps a checkpoint from being removed.
#[derive(Debug)]
pub(crate) struct Pin {
    shared: Arc<Shared>,
    id: CheckpointId,
}

impl Pin {
    /// Doomed is for good, so what is pinned here can't be among what a sweep has chosen.
    fn new(shared: &Arc<Shared>, id: CheckpointId) -> Result<Self> {
        let mut ledger = shared.ledger();
        if ledger.doomed.contains(&id) {
            let path = shared.store.location().join(checkpoint_folder(id));
            return Err(Error::new(ErrorKind::Checkpoint, "is being removed").at_path(path));
        }
        *ledger.pins.entry(id).or_default() += 1;
        Ok(Self { shared: shared.clone(), id })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut ledger = self.shared.ledger();
        if let Some(count) = ledger.pins.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                ledger.pins.remove(&self.id);
            }
        }
    }
}

/// Removes the files of a folder that are ours, then the folder if nothing else is in it.
pub(crate) fn remove_folder(store: &dyn SnapshotStore, folder: &str) -> Result<()> {
    for entry in store.list(folder)? {
        if entry.kind == EntryKind::Object && is_snapshot_file(&entry.name) {
            store.remove(&ObjectName::new(folder, &entry.name)?)?;
        }
    }
    store.remove_folder(folder)
}

/// The folder of checkpoint `id`.
pub fn checkpoint_folder(id: CheckpointId) -> String {
    format!("{CHECKPOINT_PREFIX}{id}")
}

/// What the folder of savepoint `id` is called unless the user says otherwise.
pub fn savepoint_folder(id: CheckpointId) -> String {
    format!("{SAVEPOINT_PREFIX}{id}")
}

/// The checkpoint whose folder this is.
pub(crate) fn checkpoint_of(folder: &str) -> Option<CheckpointId> {
    let id = CheckpointId(folder.strip_prefix(CHECKPOINT_PREFIX)?.parse().ok()?);
    (checkpoint_folder(id) == folder).then_some(id)
}

/// The name of shared file number `index` that checkpoint `id` made.
pub(crate) fn shared_file(id: CheckpointId, index: u32) -> String {
    format!("s-{id}-{index}")
}

/// The checkpoint that made a shared file.
pub(crate) fn shared_file_of(name: &str) -> Option<CheckpointId> {
    let (id, index) = name.strip_prefix("s-")?.split_once('-')?;
    let (id, index) = (CheckpointId(id.parse().ok()?), index.parse().ok()?);
    (shared_file(id, index) == name).then_some(id)
}

/// Whether a file in a snapshot's folder is one that we made.
pub(crate) fn is_snapshot_file(name: &str) -> bool {
    let name = name.strip_suffix(super::directory::TEMPORARY_SUFFIX).unwrap_or(name);
    let is_numbered = |prefix| name.strip_prefix(prefix).is_some_and(|n| n.parse::<u32>().is_ok());
    name == MANIFEST_NAME || is_numbered(DATA_PREFIX) || is_numbered(SPILL_PREFIX)
}

pub(crate) const SHARED_FOLDER: &str = "shared";
/// Where spill files wait to be used again.
pub(crate) const SPARE_FOLDER: &str = "spare";
pub(crate) const DATA_PREFIX: &str = "data-";
pub(crate) const SPILL_PREFIX: &str = "spill-";
const CHECKPOINT_PREFIX: &str = "chk-";
pub(crate) const SAVEPOINT_PREFIX: &str = "savepoint-";
