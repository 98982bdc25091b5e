//! What incremental checkpoints know: where each part of each keyed table was written last.
//!
//! A table is written in parts. A part that was not written to since the last completed checkpoint is not written again: the
//! new checkpoint names the same blocks, which lie in a shared file. Invariants: only completed checkpoints are built upon, and
//! always on the newest, whose files exist while it is the newest; a table that is made anew, as after a restore, has a new name
//! and so is written whole. Owned by the thread that writes snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::id::CheckpointId;
use crate::record::key_group::KeyGroupRange;
use crate::state::block::BlockRef;
use crate::state::manifest::{CheckpointMeta, FileMeta};
use crate::state::part::{TableMoment, WriteBlocks};

/// One part of a table: the key groups its blocks cover, and the blocks; none if it is empty.
type Written = (KeyGroupRange, Vec<BlockRef>);

/// A table as a checkpoint holds it.
#[derive(Debug)]
struct Base {
    epoch: u32,
    parts: BTreeMap<u64, Written>,
}

/// What is known of tables.
#[derive(Debug, Default)]
pub(super) struct Increments {
    /// Tables in the newest completed checkpoint.
    completed: BTreeMap<u64, Base>,
    /// Tables in checkpoints that are being written.
    writing: BTreeMap<CheckpointId, BTreeMap<u64, Base>>,
    /// The shared files of the newest completed checkpoint.
    files: BTreeMap<Arc<str>, FileMeta>,
}

impl Increments {
    /// Writes what has changed of a table with `out`, and returns all runs of it with the key groups they cover.
    ///
    /// # Errors
    /// What `out` returns.
    pub(super) fn write(
        &mut self,
        checkpoint: CheckpointId,
        moment: TableMoment,
        blocks: Box<dyn WriteBlocks>,
        out: &mut dyn FnMut(KeyGroupRange, &[u8]) -> Result<BlockRef>,
    ) -> Result<(Option<KeyGroupRange>, Vec<BlockRef>)> {
        let base = self.completed.get(&moment.table).filter(|base| base.epoch < moment.epoch);
        let since = base.map_or(0, |base| base.epoch);
        let known = blocks.parts_since(since);
        let mut parts: BTreeMap<u64, Written> = BTreeMap::new();
        blocks.write_since(since, &mut |part, bytes| {
            let run = out(part.range, bytes)?;
            let written = parts.entry(part.id).or_insert((part.range, Vec::new()));
            written.0 = joined(Some(written.0), part.range);
            let follows = written.1.last_mut().is_some_and(|last| last.join(&run));
            if !follows {
                written.1.push(run);
            }
            Ok(())
        })?;
        for part in &known {
            if parts.contains_key(&part.id) {
                continue;
            }
            let earlier = base.and_then(|base| base.parts.get(&part.id));
            let written = match (part.has_changed, earlier) {
                (true, _) => (part.range, Vec::new()),
                (false, Some(earlier)) => earlier.clone(),
                (false, None) => {
                    let message = "a part of a table is unchanged, but was never written";
                    return Err(Error::new(ErrorKind::Internal, message));
                }
            };
            parts.insert(part.id, written);
        }
        let mut covered = None;
        let mut runs: Vec<BlockRef> = Vec::new();
        for (range, of_part) in known.iter().filter_map(|part| parts.get(&part.id)) {
            if !of_part.is_empty() {
                covered = Some(joined(covered, *range));
            }
            runs.extend(of_part.iter().cloned());
        }
        let written = Base { epoch: moment.epoch, parts };
        self.writing.entry(checkpoint).or_default().insert(moment.table, written);
        Ok((covered, runs))
    }

    /// The earlier shared files that a manifest's blocks lie in.
    ///
    /// # Errors
    /// `Internal` if one is not known.
    pub(super) fn earlier_files(
        &self,
        meta: &CheckpointMeta,
        own: &[FileMeta],
    ) -> Result<Vec<FileMeta>> {
        let is_own = |name: &Arc<str>| own.iter().any(|file| file.name == *name);
        let named: BTreeSet<&Arc<str>> =
            meta.block_refs().map(|run| &run.file).filter(|name| !is_own(name)).collect();
        named
            .into_iter()
            .map(|name| {
                self.files.get(name).cloned().ok_or_else(|| {
                    Error::new(ErrorKind::Internal, format!("the file '{name}' is not known"))
                })
            })
            .collect()
    }

    /// The checkpoint is complete: the next ones build on it.
    pub(super) fn completed(&mut self, meta: &CheckpointMeta) {
        self.completed = self.writing.remove(&meta.id).unwrap_or_default();
        let shared = meta.files.iter().filter(|file| file.is_shared());
        self.files = shared.map(|file| (file.name.clone(), file.clone())).collect();
    }

    /// Nothing comes of the checkpoint.
    pub(super) fn forget(&mut self, checkpoint: CheckpointId) {
        self.writing.remove(&checkpoint);
    }
}

fn joined(range: Option<KeyGroupRange>, with: KeyGroupRange) -> KeyGroupRange {
    range.map_or(with, |range| KeyGroupRange {
        first: range.first.min(with.first),
        end: range.end.max(with.end),
    })
}
