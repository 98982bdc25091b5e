//! Reads every byte of a completed snapshot, and tells what is in one.
//!
//! For the command line, and for a job that wants to know before it starts. Needs no ownership.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::block::BlockRef;
use super::block_io::BlockReader;
use super::manifest::{
    CheckpointMeta, FileMeta, OperatorState, SnapshotKind, StateData, SubtaskState,
};
use super::snapshot_reader::SnapshotReader;
use super::snapshot_writer::file_name;
use super::store::SnapshotStore;
use super::sum::Sum;
use crate::error::{Error, ErrorKind, Result};

/// What a sound snapshot has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many files.
    pub files: u64,
    /// How many blocks.
    pub blocks: u64,
    /// How many bytes, the manifest not counted.
    pub bytes: u64,
}

/// Reads every byte of the snapshot in `folder` and checks it against block sums, file sums and the manifest.
///
/// # Errors
/// `Checkpoint` naming the first bad file and the offset of its first bad block; `Io` with the path.
pub fn verify(store: &Arc<dyn SnapshotStore>, folder: &str) -> Result<Verified> {
    let reader = SnapshotReader::open(store.clone(), folder)?;
    let mut runs: BTreeMap<&str, Vec<&BlockRef>> = BTreeMap::new();
    for run in reader.meta().block_refs() {
        runs.entry(&run.file).or_default().push(run);
    }
    let mut verified = Verified::default();
    for file in &reader.meta().files {
        let name = file_name(folder, &file.name)?;
        let path = store.location().join(name.as_str());
        let blocks = read_file(BlockReader::whole(store.open(&name)?, &path), file, &path)?;
        for run in runs.remove(&*file.name).unwrap_or_default() {
            check_run(run, &blocks, &path)?;
        }
        verified.files += 1;
        verified.blocks += blocks.len() as u64;
        verified.bytes += file.bytes;
    }
    Ok(verified)
}

/// Where each block begins, and its sum.
fn read_file(mut reader: BlockReader, file: &FileMeta, path: &Path) -> Result<Vec<(u64, Sum)>> {
    let mut blocks = Vec::new();
    let mut sum = Sum::default();
    while let Some(block) = reader.read_block()? {
        sum.join(block.sum);
        blocks.push((block.offset, block.sum));
    }
    if (sum.bytes, sum.crc) != (file.bytes, file.crc) {
        let message = "the blocks are sound, but the file is not the one the manifest names";
        return Err(Error::new(ErrorKind::Checkpoint, message).at_path(path));
    }
    Ok(blocks)
}

/// Checks that a reference names whole blocks with the sum it says.
fn check_run(run: &BlockRef, blocks: &[(u64, Sum)], path: &Path) -> Result<()> {
    let mut sum = Sum::default();
    let first = blocks.binary_search_by_key(&run.offset, |(offset, _)| *offset);
    for (_, block) in &blocks[first.unwrap_or(blocks.len())..] {
        if sum.bytes >= run.length {
            break;
        }
        sum.join(*block);
    }
    if (sum.bytes, sum.crc) == (run.length, run.crc) {
        return Ok(());
    }
    let message = format!("block at byte {}: the manifest names another run here", run.offset);
    Err(Error::new(ErrorKind::Checkpoint, message).at_path(path))
}

/// What is in a snapshot, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Where it is.
    pub path: PathBuf,
    /// Its manifest.
    pub meta: CheckpointMeta,
}

/// Tells what is in the snapshot in `folder`, without reading more than its manifest.
///
/// # Errors
/// `Checkpoint` or `Io` with the path.
pub fn inspect(store: &Arc<dyn SnapshotStore>, folder: &str) -> Result<Inspection> {
    let meta = SnapshotReader::open(store.clone(), folder)?.meta().clone();
    Ok(Inspection { path: store.location().join(folder), meta })
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meta = &self.meta;
        let kind = match meta.kind {
            SnapshotKind::Checkpoint => "checkpoint",
            SnapshotKind::Savepoint { drained: false } => "savepoint",
            SnapshotKind::Savepoint { drained: true } => "drained savepoint",
        };
        writeln!(f, "{kind} {} of job '{}' in {}", meta.id, meta.job, self.path.display())?;
        writeln!(f, "  fingerprint {}, owner epoch {}", meta.fingerprint, meta.owner_epoch)?;
        writeln!(f, "  triggered {}, completed {}", meta.triggered_at, meta.completed_at)?;
        for file in &meta.files {
            writeln!(f, "  file {} {} bytes, crc32c {:08x}", file.name, file.bytes, file.crc)?;
        }
        for vertex in &meta.vertices {
            writeln!(
                f,
                "  vertex {} '{}' parallelism {} of {}",
                vertex.id, vertex.name, vertex.parallelism, vertex.max_parallelism
            )?;
            for operator in &vertex.operators {
                writeln!(f, "    operator '{}' {}", operator.name, Entries(&operator.state))?;
            }
            let channels = vertex.subtasks.iter().flat_map(|s| &s.channels);
            let (count, bytes) = channels.fold((0_u64, 0), |(count, bytes), channel| {
                (count + channel.count, bytes + data_bytes(&channel.data))
            });
            if count > 0 {
                writeln!(f, "    in flight {count} buffers, {bytes} bytes")?;
            }
        }
        for edge in meta.edges.iter().filter(|e| e.captured_bytes > 0) {
            let bound =
                if edge.is_reroutable { "" } else { ", restores with this parallelism only" };
            writeln!(
                f,
                "  edge {} to {}: {} bytes in flight{bound}",
                edge.from, edge.to, edge.captured_bytes
            )?;
        }
        Ok(())
    }
}

struct Entries<'a>(&'a OperatorState);

impl fmt::Display for Entries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            OperatorState::None => f.write_str("no entry"),
            OperatorState::FullyFinished { parallelism, .. } => {
                write!(f, "fully finished at parallelism {parallelism}")
            }
            OperatorState::Subtasks(subtasks) => {
                let (mut running, mut finished, mut operators_finished) = (0, 0, 0);
                for subtask in subtasks {
                    match subtask {
                        SubtaskState::Running(_) => running += 1,
                        SubtaskState::Finished { .. } => finished += 1,
                        SubtaskState::OperatorsFinished(_) => operators_finished += 1,
                    }
                }
                let bytes: u64 = self.0.parts().map(|part| data_bytes(&part.data)).sum();
                write!(
                    f,
                    "{running} running, {finished} finished, {operators_finished} with operators finished, {bytes} bytes"
                )
            }
        }
    }
}

/// Bytes in the manifest, or in the files with headers and padding.
fn data_bytes(data: &StateData) -> u64 {
    match data {
        StateData::Inline(bytes) => bytes.len() as u64,
        StateData::Blocks(runs) => runs.iter().map(|run| run.length).sum(),
    }
}
