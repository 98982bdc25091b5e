//! The thread that writes snapshots: parts of tasks into blocks, manifests last; removes what nobody needs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::clock::Clock;
use super::control::ControlEvent;
use super::control_queue::ControlSender;
use super::in_flight::{IN_FLIGHT_EVENT, encode_event};
use super::incremental::Increments;
use crate::channel::capture::{CapturedChannel, CapturedSlot, Restores};
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{AttemptId, ChannelIndex, CheckpointId, KeyGroup};
use crate::metrics::Counter;
use crate::probe::{Fault, is_broken};
use crate::record::key_group::KeyGroupRange;
use crate::state::block::{BlockKind, BlockOrigin, BlockRef};
use crate::state::block_io::BlockWriter;
use crate::state::manifest::{
    ChannelMeta, ChannelSide, CheckpointMeta, FileMeta, INLINE_BYTES_MAX, StateData, StateKind,
    StatePart,
};
use crate::state::part::{Part, PartData, PartKind};
use crate::state::snapshots::{End, SnapshotWriter, Snapshots, savepoint_folder};
use crate::state::spill::SpillFile;
use crate::state::spill_pool::SpillPool;
use crate::task::{Report, ReportKind};

/// What the thread is asked.
#[derive(Debug)]
pub(super) enum IoRequest {
    /// The snapshot is a savepoint and goes elsewhere. Comes before any part of it.
    Savepoint(CheckpointId, SavepointTarget),
    /// Write a task's snapshot; answered by `Stored` or `NotStored`.
    Store(Report),
    /// Write the manifest; answered by `Finalized`.
    Finalize(Box<CheckpointMeta>),
    /// Remove a checkpoint, complete or not; answered by `Discarded`.
    Discard(CheckpointId),
    /// Remove all completed checkpoints.
    RemoveAll,
    /// Make ids durable; answered by `Reserved`.
    Reserve(CheckpointId),
    /// End the thread.
    Shutdown,
}

/// Where a savepoint goes.
#[derive(Clone, Debug)]
pub(super) struct SavepointTarget {
    /// The folder in which its own is made.
    pub(super) dir: PathBuf,
    /// Whether the job ends with it: its store then says so.
    pub(super) stops: bool,
}

impl SavepointTarget {
    /// The savepoint's own folder.
    pub(super) fn path(&self, checkpoint: CheckpointId) -> PathBuf {
        self.dir.join(savepoint_folder(checkpoint))
    }
}

/// What a task's snapshot became.
#[derive(Debug)]
pub(super) struct StoredTask {
    pub(super) attempt: AttemptId,
    pub(super) checkpoint: CheckpointId,
    /// By operator.
    pub(super) operators: BTreeMap<Arc<str>, Vec<StatePart>>,
    /// What was in flight towards it.
    pub(super) channels: Vec<ChannelMeta>,
    pub(super) persisted_bytes: u64,
    pub(super) operators_finished: bool,
    pub(super) ended_inputs: Vec<u32>,
    pub(super) alignment: std::time::Duration,
    pub(super) bytes: u64,
}

/// A checkpoint that is being written.
#[derive(Debug)]
struct Open {
    writer: SnapshotWriter,
    data: Option<BlockWriter>,
    /// Blocks that later checkpoints may name too.
    shared: Option<BlockWriter>,
    spill: Option<SpillFile>,
    files: Vec<FileMeta>,
    next_file: u32,
}

impl Open {
    /// Gives it up, with its files.
    fn abort(self) -> Result<()> {
        drop((self.data, self.shared, self.spill));
        self.writer.abort()
    }
}

/// The writer of snapshots.
#[derive(Debug)]
pub(super) struct SnapshotIo {
    snapshots: Snapshots,
    control: ControlSender,
    open: BTreeMap<CheckpointId, Open>,
    /// Spill files; none if the store is no directory.
    spills: Option<SpillPool>,
    mapped_bytes: Counter,
    /// Savepoints that are being written.
    savepoints: BTreeMap<CheckpointId, SavepointTarget>,
    /// What incremental checkpoints build on, if they are wanted.
    increments: Option<Increments>,
}

impl SnapshotIo {
    pub(super) fn new(
        snapshots: Snapshots,
        control: ControlSender,
        mapped_bytes: Counter,
        is_incremental: bool,
    ) -> Self {
        /// What a spill file grows by.
        const SEGMENT_BYTES: u64 = 16 << 20;
        /// Warm files that are kept for the next checkpoints.
        const SPARES: usize = 4;
        // Without a folder of spare files, buffers go into data files: a full disk shows there too.
        let spills =
            SpillPool::in_store(&**snapshots.store(), SEGMENT_BYTES, SPARES).unwrap_or_default();
        Self {
            snapshots,
            control,
            open: BTreeMap::new(),
            spills,
            mapped_bytes,
            savepoints: BTreeMap::new(),
            increments: is_incremental.then(Increments::default),
        }
    }

    /// Does what is asked. `false` at the end.
    pub(super) fn handle(&mut self, request: IoRequest) -> bool {
        let is_removal = matches!(request, IoRequest::Discard(_));
        let event = match request {
            IoRequest::Savepoint(checkpoint, target) => {
                self.savepoints.insert(checkpoint, target);
                return true;
            }
            IoRequest::Store(report) => self.store(report),
            IoRequest::Finalize(meta) => {
                let checkpoint = meta.id;
                let result = self.finalize(*meta);
                ControlEvent::Finalized { checkpoint, result }
            }
            IoRequest::Discard(checkpoint) => {
                let result = self.discard(checkpoint);
                ControlEvent::Discarded { checkpoint, result }
            }
            IoRequest::RemoveAll => {
                for checkpoint in self.snapshots.completed() {
                    // The job is over; what is left is removed by the next owner.
                    let _ = self.snapshots.remove(checkpoint);
                }
                return true;
            }
            IoRequest::Reserve(below) => {
                let result = if is_broken(Fault::IdsNotReserved) {
                    Ok(())
                } else {
                    self.snapshots.reserve_ids(below)
                };
                ControlEvent::Reserved { below, result }
            }
            IoRequest::Shutdown => return false,
        };
        self.control.send(event);
        // A checkpoint that is gone leaves its spill file to the next.
        if let (true, Some(pool)) = (is_removal, &mut self.spills) {
            pool.warm();
        }
        true
    }

    fn store(&mut self, report: Report) -> ControlEvent {
        let Report { attempt, kind } = report;
        let ReportKind::Snapshot {
            checkpoint,
            parts,
            channels,
            operators_finished,
            ended_inputs,
            alignment,
        } = kind
        else {
            let cause = Error::new(ErrorKind::Internal, "a report that is no snapshot");
            return ControlEvent::NotStored { attempt, checkpoint: CheckpointId(0), cause };
        };
        let mut bytes = 0;
        let mut persisted_bytes = 0;
        let stored =
            self.write_parts(attempt, checkpoint, parts, &mut bytes).and_then(|operators| {
                let channels =
                    self.write_channels(attempt, checkpoint, channels, &mut persisted_bytes)?;
                Ok((operators, channels))
            });
        match stored {
            Ok((operators, channels)) => ControlEvent::Stored(Box::new(StoredTask {
                attempt,
                checkpoint,
                operators,
                channels,
                operators_finished,
                ended_inputs,
                persisted_bytes,
                alignment: alignment.map(|report| report.alignment).unwrap_or_default(),
                bytes,
            })),
            Err(cause) => {
                // A half-written run makes its file useless.
                if let Some(open) = self.open.get_mut(&checkpoint) {
                    open.data = None;
                    open.shared = None;
                    open.spill = None;
                }
                if let Some(increments) = &mut self.increments {
                    increments.forget(checkpoint);
                }
                ControlEvent::NotStored { attempt, checkpoint, cause }
            }
        }
    }

    fn write_parts(
        &mut self,
        attempt: AttemptId,
        checkpoint: CheckpointId,
        parts: Vec<Part>,
        bytes: &mut u64,
    ) -> Result<BTreeMap<Arc<str>, Vec<StatePart>>> {
        let mut operators: BTreeMap<Arc<str>, Vec<StatePart>> = BTreeMap::new();
        for part in parts {
            let Part { operator, kind, name, data } = part;
            let (kind, data) = match data {
                PartData::Inline(content) if content.len() <= INLINE_BYTES_MAX => {
                    *bytes += content.len() as u64;
                    (state_kind(kind, None), StateData::Inline(content))
                }
                PartData::Inline(content) => {
                    let out = self.data(checkpoint)?;
                    let origin = BlockOrigin::state(block_kind(kind), attempt.subtask, 0);
                    *bytes += content.len() as u64;
                    (state_kind(kind, None), StateData::Blocks(vec![out.write(origin, &content)?]))
                }
                PartData::Blocks(blocks) => {
                    let origin = BlockOrigin::state(block_kind(kind), attempt.subtask, 0);
                    let is_savepoint = self.savepoints.contains_key(&checkpoint);
                    if let (Some(moment), Some(mut increments), false) =
                        (blocks.moment(), self.increments.take(), is_savepoint)
                    {
                        let written = self.shared(checkpoint).and_then(|out| {
                            increments.write(checkpoint, moment, blocks, &mut |range, block| {
                                *bytes += block.len() as u64;
                                let (first, last) =
                                    (KeyGroup(range.first), KeyGroup(range.end - 1));
                                out.write(origin.groups(first, last), block)
                            })
                        });
                        self.increments = Some(increments);
                        let (covered, runs) = written?;
                        let data = StateData::Blocks(runs);
                        let part = StatePart { kind: state_kind(kind, covered), name, data };
                        operators.entry(operator).or_default().push(part);
                        continue;
                    }
                    let out = self.data(checkpoint)?;
                    let mut runs = Vec::new();
                    let mut covered: Option<KeyGroupRange> = None;
                    blocks.write(&mut |range, block| {
                        *bytes += block.len() as u64;
                        covered = Some(covered.map_or(range, |covered| KeyGroupRange {
                            first: covered.first.min(range.first),
                            end: covered.end.max(range.end),
                        }));
                        let origin = origin.groups(KeyGroup(range.first), KeyGroup(range.end - 1));
                        runs.push(out.write(origin, block)?);
                        Ok(())
                    })?;
                    (state_kind(kind, covered), StateData::Blocks(runs))
                }
            };
            operators.entry(operator).or_default().push(StatePart { kind, name, data });
        }
        Ok(operators)
    }

    /// Writes what was in flight: buffers into the checkpoint's spill file, or its data file if the store is no directory.
    fn write_channels(
        &mut self,
        attempt: AttemptId,
        checkpoint: CheckpointId,
        channels: Vec<CapturedChannel>,
        bytes: &mut u64,
    ) -> Result<Vec<ChannelMeta>> {
        let mut metas = Vec::with_capacity(channels.len());
        for (index, channel) in channels.into_iter().enumerate() {
            let mut parts: Vec<(Restores, Vec<BlockRef>)> = Vec::new();
            for (number, (restores, slot)) in channel.slots.iter().enumerate() {
                let place = ChannelIndex(index as u32);
                let mut origin = BlockOrigin::buffer(attempt.subtask, place, number as u64);
                let run = match slot {
                    CapturedSlot::Buffer { buffer, offset } => {
                        let frames = &buffer.as_slice()[*offset..];
                        *bytes += frames.len() as u64;
                        self.spill(checkpoint, origin, frames)?
                    }
                    CapturedSlot::Copied(frames) => {
                        *bytes += frames.len() as u64;
                        self.spill(checkpoint, origin, frames)?
                    }
                    CapturedSlot::Event(event) => {
                        // An event is told from a buffer by its place among operators.
                        origin.operator = IN_FLIGHT_EVENT;
                        self.spill(checkpoint, origin, &encode_event(event))?
                    }
                };
                match parts.last_mut() {
                    Some((of, runs)) if of == restores => runs.push(run),
                    Some(_) | None => parts.push((*restores, vec![run])),
                }
            }
            let mut meta = ChannelMeta {
                gate: channel.edge as u32,
                channel: channel.producer,
                side: ChannelSide::Receiver,
                restores: 0,
                first: 0,
                count: 0,
                watermark: channel.watermark,
                is_idle: channel.is_idle,
                data: StateData::Inline(Vec::new()),
            };
            // Without anything in flight it still tells the watermark.
            if parts.is_empty() {
                metas.push(meta.clone());
            }
            for (restores, runs) in parts {
                meta.restores = restores.0;
                meta.first += meta.count;
                meta.count = runs.len() as u64;
                meta.data = StateData::Blocks(runs);
                metas.push(meta.clone());
            }
        }
        Ok(metas)
    }

    fn spill(
        &mut self,
        checkpoint: CheckpointId,
        origin: BlockOrigin,
        payload: &[u8],
    ) -> Result<BlockRef> {
        self.open(checkpoint)?;
        let Self { open, spills, .. } = self;
        let (Some(open), Some(pool)) = (open.get_mut(&checkpoint), spills) else {
            return self.data(checkpoint)?.write(origin, payload);
        };
        if open.spill.is_none() {
            let Some((_, name)) = open.writer.spill_path(0)? else {
                return self.data(checkpoint)?.write(origin, payload);
            };
            open.spill = Some(pool.begin(name)?);
        }
        open.spill.as_mut().expect("it was just begun").append(origin, payload)
    }

    /// The file that blocks of a checkpoint go into.
    fn data(&mut self, checkpoint: CheckpointId) -> Result<&mut BlockWriter> {
        let open = self.open(checkpoint)?;
        if open.data.is_none() {
            open.data = Some(open.writer.data_file(open.next_file)?);
            open.next_file += 1;
        }
        Ok(open.data.as_mut().expect("it was just made"))
    }

    /// The file that blocks of a checkpoint go into if later ones may name them too.
    fn shared(&mut self, checkpoint: CheckpointId) -> Result<&mut BlockWriter> {
        let open = self.open(checkpoint)?;
        if open.shared.is_none() {
            open.shared = Some(open.writer.shared_file(open.next_file)?);
            open.next_file += 1;
        }
        Ok(open.shared.as_mut().expect("it was just made"))
    }

    fn open(&mut self, checkpoint: CheckpointId) -> Result<&mut Open> {
        if !self.open.contains_key(&checkpoint) {
            let writer = match self.savepoints.get(&checkpoint) {
                Some(target) => {
                    let store = self.snapshots.store().beside(&target.dir);
                    SnapshotWriter::savepoint(store, &savepoint_folder(checkpoint), checkpoint)?
                }
                None => self.snapshots.begin(checkpoint)?,
            };
            let open = Open {
                writer,
                data: None,
                shared: None,
                spill: None,
                files: Vec::new(),
                next_file: 0,
            };
            self.open.insert(checkpoint, open);
        }
        Ok(self.open.get_mut(&checkpoint).expect("it was just put in"))
    }

    fn finalize(&mut self, mut meta: CheckpointMeta) -> Result<EpochMillis, (Error, bool)> {
        let checkpoint = meta.id;
        let failed = |error: Error| (error, true);
        self.open(checkpoint).map_err(failed)?;
        let mut open = self.open.remove(&checkpoint).expect("it was just opened");
        // Before the first file is synced: what the file system notes of it then goes with that one's journal.
        if let Some(Err(error)) = open.spill.as_mut().map(SpillFile::cut) {
            let _ = open.writer.abort();
            return Err((error, true));
        }
        for data in [open.data.take(), open.shared.take()].into_iter().flatten() {
            match data.close() {
                Ok(file) => open.files.push(file),
                Err(error) => {
                    let _ = open.writer.abort();
                    return Err((error, true));
                }
            }
        }
        if let (Some(spill), Some(pool)) = (open.spill.take(), &mut self.spills) {
            self.mapped_bytes.add(spill.mapped_bytes());
            let closed = open
                .writer
                .spill_path(0)
                .and_then(|path| path.map(|(path, _)| pool.finish(spill, &path)).transpose());
            match closed {
                Ok(file) => open.files.extend(file),
                Err(error) => {
                    let _ = open.writer.abort();
                    return Err((error, true));
                }
            }
        }
        if let Some(increments) = &self.increments {
            match increments.earlier_files(&meta, &open.files) {
                Ok(earlier) => open.files.extend(earlier),
                Err(error) => {
                    let _ = open.writer.abort();
                    return Err((error, true));
                }
            }
        }
        meta.files = open.files;
        meta.owner_epoch = self.snapshots.epoch();
        meta.completed_at = Clock::wall();
        if let Err(error) = open.writer.commit(&meta) {
            // The writer keeps the files if it is unknown whether the manifest is in place.
            let _ = open.writer.abort();
            return Err((error, !self.snapshots.is_uncertain(checkpoint)));
        }
        match self.savepoints.remove(&checkpoint) {
            // What it commits is visible from here on, so no older checkpoint of the store may be gone on from unasked. Not even a
            // drained job has ended yet: its last transactions are only about to be committed.
            Some(target) if target.stops => {
                let path = target.path(checkpoint).to_string_lossy().into_owned();
                let end = End::Savepoint(path);
                self.snapshots.mark(Some(&end)).map_err(|error| (error, false))?;
            }
            Some(_) => {}
            None => {
                if let Some(increments) = &mut self.increments {
                    increments.completed(&meta);
                }
            }
        }
        Ok(meta.completed_at)
    }

    fn discard(&mut self, checkpoint: CheckpointId) -> Result<()> {
        if let Some(increments) = &mut self.increments {
            increments.forget(checkpoint);
        }
        let was_savepoint = self.savepoints.remove(&checkpoint).is_some();
        match self.open.remove(&checkpoint) {
            Some(open) => open.abort(),
            // A savepoint belongs to the user.
            None if was_savepoint => Ok(()),
            None => self.snapshots.remove(checkpoint),
        }
    }
}

impl Drop for SnapshotIo {
    fn drop(&mut self) {
        for (_, open) in std::mem::take(&mut self.open) {
            let _ = open.abort();
        }
    }
}

fn block_kind(kind: PartKind) -> BlockKind {
    match kind {
        PartKind::Keyed => BlockKind::Keyed,
        PartKind::List => BlockKind::List,
        PartKind::Union => BlockKind::Union,
        PartKind::Broadcast => BlockKind::Broadcast,
        PartKind::Timers => BlockKind::Timers,
        PartKind::Committables => BlockKind::Committables,
        PartKind::Position => BlockKind::Position,
    }
}

fn state_kind(kind: PartKind, covered: Option<KeyGroupRange>) -> StateKind {
    let covered = covered.unwrap_or(KeyGroupRange { first: 0, end: 1 });
    let (first, last) = (KeyGroup(covered.first), KeyGroup(covered.end - 1));
    match kind {
        PartKind::Keyed => StateKind::Keyed { first, last },
        PartKind::List => StateKind::List,
        PartKind::Union => StateKind::Union,
        PartKind::Broadcast => StateKind::Broadcast,
        PartKind::Timers => StateKind::Timers { first, last },
        PartKind::Committables => StateKind::Committables,
        PartKind::Position => StateKind::Position,
    }
}

/// A moment of the monotonic clock as one of the wall clock.
pub(super) fn wall_of(clock: Clock, at: Timestamp) -> EpochMillis {
    let ago = i64::try_from(clock.now().since(at).as_millis()).unwrap_or(0);
    EpochMillis(Clock::wall().0 - ago)
}

#[cfg(test)]
mod tests;
