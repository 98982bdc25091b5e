//! The thread that writes snapshots: parts of tasks into blocks, manifests last; removes what nobody needs.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::clock::Clock;
use super::control::ControlEvent;
use super::control_queue::ControlSender;
use super::incremental::Increments;
use super::spiller::{Spiller, Written, write_channels};
use crate::channel::capture::CapturedChannel;
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{AttemptId, CheckpointId, KeyGroup};
use crate::metrics::Counter;
use crate::probe::{Fault, is_broken};
use crate::record::key_group::KeyGroupRange;
use crate::state::block::{BlockKind, BlockOrigin};
use crate::state::block_io::BlockWriter;
use crate::state::manifest::{
    ChannelMeta, CheckpointMeta, FileMeta, INLINE_BYTES_MAX, StateData, StateKind, StatePart,
};
use crate::state::part::{Part, PartData, PartKind};
use crate::state::snapshots::{End, SnapshotWriter, Snapshots, savepoint_folder};
use crate::state::spill_pool::SpillPool;
use crate::task::{Report, ReportKind};

/// What became of what was in flight towards a task; `None`: the thread that spills was asked to write it.
type InFlight = Result<Option<Written>>;

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
    /// Whether it has a spill file.
    is_spilling: bool,
    files: Vec<FileMeta>,
    next_file: u32,
}

impl Open {
    /// Makes all files durable under their names, and tells how many bytes were spilled through a mapping.
    fn close_files(
        &mut self,
        checkpoint: CheckpointId,
        spiller: Option<&mut Spiller>,
    ) -> Result<u64> {
        let spilled = match (spiller, self.writer.spill_path(0)?) {
            (Some(spiller), Some((path, _))) if self.is_spilling => {
                Some(spiller.finish(checkpoint, path)?)
            }
            _ => None,
        };
        // The files of state meanwhile.
        let closed: Result<Vec<FileMeta>> = [self.shared.take(), self.data.take()]
            .into_iter()
            .flatten()
            .map(BlockWriter::close)
            .collect();
        let mut mapped_bytes = 0;
        if let Some(spilled) = spilled {
            let (file, mapped) = spilled.wait()?;
            self.files.push(file);
            mapped_bytes = mapped;
        }
        self.files.extend(closed?);
        Ok(mapped_bytes)
    }

    /// Gives it up, with its files.
    fn abort(self) -> Result<()> {
        drop((self.data, self.shared));
        self.writer.abort()
    }
}

/// The writer of snapshots.
#[derive(Debug)]
pub(super) struct SnapshotIo {
    snapshots: Snapshots,
    control: ControlSender,
    open: BTreeMap<CheckpointId, Open>,
    /// Has the spill files; none if the store is no directory.
    spiller: Option<Spiller>,
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
        /// What a spill file is mapped by.
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
            spiller: spills.map(Spiller::new),
            mapped_bytes,
            savepoints: BTreeMap::new(),
            increments: is_incremental.then(Increments::default),
        }
    }

    /// Does what is asked until the end.
    pub(super) fn serve(&mut self, requests: &Receiver<IoRequest>) {
        let mut waiting = VecDeque::new();
        while let Ok(request) = requests.recv() {
            waiting.push_back((request, None));
            loop {
                waiting.extend(requests.try_iter().map(|request| (request, None)));
                self.begin_spilling(&mut waiting);
                let Some((request, begun)) = waiting.pop_front() else { break };
                if !self.carry_out(request, begun) {
                    return;
                }
            }
        }
    }

    /// Does what is asked. `false` at the end.
    pub(super) fn handle(&mut self, request: IoRequest) -> bool {
        self.carry_out(request, None)
    }

    /// Has what is in flight towards all tasks whose reports wait written, while the state of the first is.
    fn begin_spilling(&mut self, waiting: &mut VecDeque<(IoRequest, Option<InFlight>)>) {
        for (request, begun) in waiting {
            let IoRequest::Store(Report { attempt, kind }) = request else { return };
            if let ReportKind::Snapshot { checkpoint, channels, .. } = kind
                && self.spiller.is_some()
                && begun.is_none()
            {
                let channels = std::mem::take(channels);
                *begun = Some(self.write_channels(*attempt, *checkpoint, channels));
            }
        }
    }

    fn carry_out(&mut self, request: IoRequest, begun: Option<InFlight>) -> bool {
        let is_removal = matches!(request, IoRequest::Discard(_));
        let event = match request {
            IoRequest::Savepoint(checkpoint, target) => {
                self.savepoints.insert(checkpoint, target);
                return true;
            }
            IoRequest::Store(report) => match self.store(report, begun) {
                Some(event) => event,
                None => return true,
            },
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
        if let (true, Some(spiller)) = (is_removal, &mut self.spiller) {
            spiller.warm();
        }
        true
    }

    /// Writes a task's snapshot. The answer, unless the thread that spills gives it when it has written what was in flight.
    fn store(&mut self, report: Report, begun: Option<InFlight>) -> Option<ControlEvent> {
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
            return Some(ControlEvent::NotStored { attempt, checkpoint: CheckpointId(0), cause });
        };
        let mut bytes = 0;
        let in_flight = begun.unwrap_or_else(|| self.write_channels(attempt, checkpoint, channels));
        let operators = self.write_parts(attempt, checkpoint, parts, &mut bytes);
        let has_failed = operators.is_err() || in_flight.is_err();
        let answer = move |written: Result<Written>| match (operators, written) {
            (Ok(operators), Ok((channels, persisted_bytes))) => {
                ControlEvent::Stored(Box::new(StoredTask {
                    attempt,
                    checkpoint,
                    operators,
                    channels,
                    operators_finished,
                    ended_inputs,
                    persisted_bytes,
                    alignment: alignment.map(|report| report.alignment).unwrap_or_default(),
                    bytes,
                }))
            }
            (Err(cause), _) | (_, Err(cause)) => {
                ControlEvent::NotStored { attempt, checkpoint, cause }
            }
        };
        let event = match in_flight.transpose() {
            Some(written) => Some(answer(written)),
            None => {
                let control = self.control.clone();
                let spiller = self.spiller.as_mut().expect("it was asked");
                let asked = spiller.and_then(move |written| control.send(answer(written)));
                asked.err().map(|cause| ControlEvent::NotStored { attempt, checkpoint, cause })
            }
        };
        if has_failed {
            self.forsake(checkpoint);
        }
        event
    }

    /// Gives up the files of a checkpoint that lacks a task: a half-written run makes its file useless.
    fn forsake(&mut self, checkpoint: CheckpointId) {
        if let Some(open) = self.open.get_mut(&checkpoint) {
            open.data = None;
            open.shared = None;
            open.is_spilling = false;
        }
        if let Some(spiller) = &mut self.spiller {
            spiller.discard(checkpoint);
        }
        if let Some(increments) = &mut self.increments {
            increments.forget(checkpoint);
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

    /// Has what was in flight written into the checkpoint's spill file, or writes it into the data file if the store is no directory.
    fn write_channels(
        &mut self,
        attempt: AttemptId,
        checkpoint: CheckpointId,
        channels: Vec<CapturedChannel>,
    ) -> InFlight {
        let subtask = attempt.subtask;
        let is_empty = channels.iter().all(|channel| channel.slots.is_empty());
        self.open(checkpoint)?;
        if let (Some(open), Some(spiller), false) =
            (self.open.get_mut(&checkpoint), &mut self.spiller, is_empty)
            && let Some((_, name)) = open.writer.spill_path(0)?
        {
            open.is_spilling = true;
            spiller.write(checkpoint, name, subtask, channels)?;
            return Ok(None);
        }
        write_channels(subtask, channels, |origin, payload, _| {
            self.data(checkpoint)?.write(origin, payload)
        })
        .map(Some)
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
                is_spilling: false,
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
        match open.close_files(checkpoint, self.spiller.as_mut()) {
            Ok(mapped_bytes) => self.mapped_bytes.add(mapped_bytes),
            Err(error) => {
                let _ = open.writer.abort();
                return Err((error, true));
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
        if let Some(spiller) = &mut self.spiller {
            spiller.discard(checkpoint);
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
