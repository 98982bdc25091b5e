//! The thread that writes snapshots: parts of tasks into blocks, manifests last; removes what nobody needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam::channel::Sender;

use super::clock::Clock;
use super::control::ControlEvent;
use super::in_flight::{IN_FLIGHT_EVENT, encode_event};
use crate::channel::capture::{CapturedChannel, CapturedSlot};
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{AttemptId, ChannelIndex, CheckpointId, KeyGroup};
use crate::metrics::Counter;
use crate::record::key_group::KeyGroupRange;
use crate::state::block::{BlockKind, BlockOrigin, BlockRef};
use crate::state::block_io::BlockWriter;
use crate::state::manifest::{
    ChannelMeta, ChannelSide, CheckpointMeta, FileMeta, INLINE_BYTES_MAX, StateData, StateKind,
    StatePart,
};
use crate::state::part::{Part, PartData, PartKind};
use crate::state::snapshots::{SnapshotWriter, Snapshots};
use crate::state::spill::SpillFile;
use crate::state::spill_pool::SpillPool;
use crate::task::{Report, ReportKind};

/// What the thread is asked.
#[derive(Debug)]
pub(super) enum IoRequest {
    /// Write a task's snapshot; answered by `Stored` or `NotStored`.
    Store(Report),
    /// Write the manifest; answered by `Finalized`.
    Finalize(Box<CheckpointMeta>),
    /// Remove a checkpoint, complete or not; answered by `Discarded`.
    Discard(CheckpointId),
    /// Make ids durable; answered by `Reserved`.
    Reserve(CheckpointId),
    /// End the thread.
    Shutdown,
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
    spill: Option<SpillFile>,
    files: Vec<FileMeta>,
    next_file: u32,
}

/// The writer of snapshots.
#[derive(Debug)]
pub(super) struct SnapshotIo {
    snapshots: Snapshots,
    control: Sender<ControlEvent>,
    open: BTreeMap<CheckpointId, Open>,
    /// Spill files; none if the store is no directory.
    spills: Option<SpillPool>,
    mapped_bytes: Counter,
}

impl SnapshotIo {
    pub(super) fn new(
        snapshots: Snapshots,
        control: Sender<ControlEvent>,
        mapped_bytes: Counter,
    ) -> Self {
        /// What a spill file grows by.
        const SEGMENT_BYTES: u64 = 16 << 20;
        /// Warm files that are kept for the next checkpoints.
        const SPARES: usize = 4;
        // Without a folder of spare files, buffers go into data files: a full disk shows there too.
        let spills =
            SpillPool::in_store(&**snapshots.store(), SEGMENT_BYTES, SPARES).unwrap_or_default();
        Self { snapshots, control, open: BTreeMap::new(), spills, mapped_bytes }
    }

    /// Does what is asked. `false` at the end.
    pub(super) fn handle(&mut self, request: IoRequest) -> bool {
        let event = match request {
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
            IoRequest::Reserve(below) => {
                let result = self.snapshots.reserve_ids(below);
                ControlEvent::Reserved { below, result }
            }
            IoRequest::Shutdown => return false,
        };
        let _ = self.control.send(event);
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
        let stored = self.write_parts(attempt, checkpoint, parts, &mut bytes).and_then(|operators| {
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
                    open.spill = None;
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
                    let out = self.data(checkpoint)?;
                    let origin = BlockOrigin::state(block_kind(kind), attempt.subtask, 0);
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
            let mut runs = Vec::with_capacity(channel.slots.len());
            for (number, slot) in channel.slots.iter().enumerate() {
                let place = ChannelIndex(index as u32);
                let mut origin = BlockOrigin::buffer(attempt.subtask, place, number as u64);
                let run = match slot {
                    CapturedSlot::Buffer { buffer, offset } => {
                        let frames = &buffer.as_slice()[*offset..];
                        *bytes += frames.len() as u64;
                        self.spill(checkpoint, origin, frames)?
                    }
                    CapturedSlot::Event(event) => {
                        // An event is told from a buffer by its place among operators.
                        origin.operator = IN_FLIGHT_EVENT;
                        self.spill(checkpoint, origin, &encode_event(event))?
                    }
                };
                runs.push(run);
            }
            metas.push(ChannelMeta {
                gate: channel.edge as u32,
                channel: channel.producer,
                side: ChannelSide::Receiver,
                first: 0,
                count: runs.len() as u64,
                watermark: channel.watermark,
                is_idle: channel.is_idle,
                data: if runs.is_empty() {
                    StateData::Inline(Vec::new())
                } else {
                    StateData::Blocks(runs)
                },
            });
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

    fn open(&mut self, checkpoint: CheckpointId) -> Result<&mut Open> {
        if !self.open.contains_key(&checkpoint) {
            let writer = self.snapshots.begin(checkpoint)?;
            let open = Open { writer, data: None, spill: None, files: Vec::new(), next_file: 0 };
            self.open.insert(checkpoint, open);
        }
        Ok(self.open.get_mut(&checkpoint).expect("it was just put in"))
    }

    fn finalize(&mut self, mut meta: CheckpointMeta) -> Result<EpochMillis, (Error, bool)> {
        let checkpoint = meta.id;
        let failed = |error: Error| (error, true);
        self.open(checkpoint).map_err(failed)?;
        let mut open = self.open.remove(&checkpoint).expect("it was just opened");
        if let Some(data) = open.data.take() {
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
        meta.files = open.files;
        meta.owner_epoch = self.snapshots.epoch();
        meta.completed_at = Clock::wall();
        if let Err(error) = open.writer.commit(&meta) {
            // The writer keeps the files if it is unknown whether the manifest is in place.
            let _ = open.writer.abort();
            return Err((error, !self.snapshots.completed().contains(&checkpoint)));
        }
        Ok(meta.completed_at)
    }

    fn discard(&mut self, checkpoint: CheckpointId) -> Result<()> {
        match self.open.remove(&checkpoint) {
            Some(open) => {
                drop(open.data);
                drop(open.spill);
                open.writer.abort()
            }
            None => self.snapshots.remove(checkpoint),
        }
    }
}

impl Drop for SnapshotIo {
    fn drop(&mut self) {
        for (_, open) in std::mem::take(&mut self.open) {
            drop(open.data);
            drop(open.spill);
            let _ = open.writer.abort();
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
