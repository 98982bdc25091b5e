//! Looks through a store when a job takes it over, and removes what nobody needs.
//!
//! Removed are temporary files, checkpoints without a manifest, files of a completed checkpoint that its manifest
//! doesn't name, shared files that no manifest names, and spare spill files, but only under names that we give.
//! Whatever else is there stays and is reported. A checkpoint whose manifest is in place but can't be read stays as
//! it is, and with it all shared files, since it may name them: its commits may be visible, so it is for the user
//! to decide.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::directory::{LOCK, TEMPORARY_SUFFIX};
use super::manifest::SHARED_PREFIX;
use super::manifest_codec::MANIFEST_NAME;
use super::owner::{ENDED, NEXT_ID, OWNER, OwnerRecord};
use super::snapshot_reader::read_manifest;
use super::snapshots::{
    SAVEPOINT_PREFIX, SHARED_FOLDER, SPARE_FOLDER, checkpoint_of, is_snapshot_file, remove_folder,
    shared_file_of,
};
use super::store::{Entry, EntryKind, ObjectName, SnapshotStore};
use crate::error::{Error, Result};
use crate::id::CheckpointId;

/// What a new owner found in a store.
#[derive(Debug, Default)]
pub struct Survey {
    /// Completed checkpoints, oldest first.
    pub completed: Vec<CheckpointId>,
    /// Checkpoints whose manifest is in place but can't be read. A job must not start from an older one by itself.
    pub damaged: Vec<(CheckpointId, Error)>,
    /// Checkpoints that were never completed; they are removed.
    pub incomplete: Vec<CheckpointId>,
    /// Other objects that were removed.
    pub removed: Vec<PathBuf>,
    /// What is not ours; it was left alone.
    pub foreign: Vec<PathBuf>,
    /// Who owned the store before.
    pub previous: Option<OwnerRecord>,
    /// The shared files that each completed checkpoint names.
    pub(crate) shared_files: BTreeMap<CheckpointId, BTreeSet<Arc<str>>>,
    /// The highest id of a folder, completed or not.
    pub(crate) id_max: CheckpointId,
}

/// Looks through the store and cleans it up.
pub(crate) fn survey(store: &dyn SnapshotStore) -> Result<Survey> {
    let mut survey = Survey::default();
    for entry in store.list("")? {
        let path = store.location().join(&entry.name);
        match (entry.kind, checkpoint_of(&entry.name)) {
            (EntryKind::Folder, Some(id)) => survey.checkpoint(store, id, &entry.name)?,
            (EntryKind::Folder, None) if is_known_folder(&entry.name) => {}
            (EntryKind::Object, _)
                if matches!(entry.name.as_str(), ENDED | OWNER | NEXT_ID | LOCK) => {}
            (EntryKind::Object, _) if is_top_temporary(&entry.name) => {
                survey.remove(store, "", &entry.name)?;
            }
            (EntryKind::Object | EntryKind::Folder | EntryKind::Other, _) => {
                survey.foreign.push(path);
            }
        }
    }
    survey.completed.sort_unstable();
    survey.incomplete.sort_unstable();
    survey.sweep_folder(store, SPARE_FOLDER, |_, name| super::spill_pool::is_spare(name))?;
    if survey.damaged.is_empty() {
        survey.sweep_folder(store, SHARED_FOLDER, |survey, name| {
            let full: Arc<str> = format!("{SHARED_PREFIX}{name}").into();
            let is_named = survey.shared_files.values().any(|files| files.contains(&full));
            !is_named && shared_file_of(name).is_some()
        })?;
    }
    Ok(survey)
}

impl Survey {
    fn checkpoint(
        &mut self,
        store: &dyn SnapshotStore,
        id: CheckpointId,
        folder: &str,
    ) -> Result<()> {
        self.id_max = self.id_max.max(id);
        let entries = store.list(folder)?;
        if !entries.iter().any(|e| e.name == MANIFEST_NAME) {
            self.incomplete.push(id);
            self.note_foreign(store, folder, &entries);
            return remove_folder(store, folder);
        }
        let meta = match read_manifest(store, folder) {
            Ok(meta) => meta,
            Err(error) => {
                self.damaged.push((id, error));
                return Ok(());
            }
        };
        let named: BTreeSet<&str> =
            meta.files.iter().map(|f| &*f.name).chain([MANIFEST_NAME]).collect();
        let surplus = |e: &&Entry| !named.contains(e.name.as_str());
        for entry in entries.iter().filter(surplus) {
            if entry.kind == EntryKind::Object && is_snapshot_file(&entry.name) {
                self.remove(store, folder, &entry.name)?;
            }
        }
        self.note_foreign(store, folder, &entries);
        self.completed.push(id);
        let shared = meta.files.iter().filter(|f| f.is_shared()).map(|f| f.name.clone());
        self.shared_files.insert(id, shared.collect());
        Ok(())
    }

    fn note_foreign(&mut self, store: &dyn SnapshotStore, folder: &str, entries: &[Entry]) {
        let is_foreign = |e: &&Entry| e.kind != EntryKind::Object || !is_snapshot_file(&e.name);
        let path = |e: &Entry| store.location().join(folder).join(&e.name);
        self.foreign.extend(entries.iter().filter(is_foreign).map(path));
    }

    /// Removes what `is_surplus` in a folder that may hold other files of ours.
    fn sweep_folder(
        &mut self,
        store: &dyn SnapshotStore,
        folder: &str,
        is_surplus: impl Fn(&Self, &str) -> bool,
    ) -> Result<()> {
        for entry in store.list(folder)? {
            let is_ours =
                shared_file_of(&entry.name).is_some() || super::spill_pool::is_spare(&entry.name);
            if entry.kind != EntryKind::Object || !is_ours {
                self.foreign.push(store.location().join(folder).join(&entry.name));
            } else if is_surplus(self, &entry.name) {
                self.remove(store, folder, &entry.name)?;
            }
        }
        Ok(())
    }

    fn remove(&mut self, store: &dyn SnapshotStore, folder: &str, file: &str) -> Result<()> {
        let name = ObjectName::new(folder, file)?;
        store.remove(&name)?;
        self.removed.push(store.location().join(name.as_str()));
        Ok(())
    }
}

/// A folder that is looked into later, or belongs to the user.
fn is_known_folder(name: &str) -> bool {
    matches!(name, SHARED_FOLDER | SPARE_FOLDER) || name.starts_with(SAVEPOINT_PREFIX)
}

fn is_top_temporary(name: &str) -> bool {
    name.strip_suffix(TEMPORARY_SUFFIX).is_some_and(|n| matches!(n, ENDED | OWNER | NEXT_ID))
}
