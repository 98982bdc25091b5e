//! A job whose every piece is stepped by hand, on one thread and a clock of its own.
//!
//! The pieces are those of a running job: workers with their tasks, the writer of snapshots and control, joined by the same
//! queues. Whose turn it is, how much of a queue is taken and how late it is, is for the caller to say. Nothing happens by
//! itself, so the same calls do the same. Called by the simulator of the tests only.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use crossbeam::channel::{Receiver, TryRecvError};

pub use super::clock::virtual_clock::set_clock;
use super::control::{Control, ControlEvent, SavepointStop};
use super::control_queue::ControlSender;
use super::crew::Newborn;
use super::parts::{Parts, Pieces};
use super::request::Request;
use super::snapshot_io::{IoRequest, SnapshotIo};
use super::status::{JobState, JobStatus};
use super::worker::Worker;
use crate::channel::capture::{CapturedChannel, CapturedSlot};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{AttemptId, CheckpointId};
pub use crate::probe::{Observer, observe};
use crate::task::{Progress, Report, ReportKind};

/// A job in pieces.
pub struct Simulation {
    sender: ControlSender,
    events: Waiting<ControlEvent>,
    shared: std::sync::Arc<super::status::Shared>,
    control: Control,
    io: SnapshotIo,
    requests: Waiting<IoRequest>,
    workers: Vec<Worker>,
    born: mpsc::Receiver<Newborn>,
    failures: Vec<String>,
    savepoints: Vec<Receiver<Result<PathBuf>>>,
    stop: Option<Receiver<Result<SavepointStop>>>,
}

/// What was sent and not taken yet, which can be counted.
struct Waiting<T> {
    from: mpsc::Receiver<T>,
    seen: RefCell<VecDeque<T>>,
}

impl<T> Waiting<T> {
    fn of(from: mpsc::Receiver<T>) -> Self {
        Self { from, seen: RefCell::default() }
    }

    fn len(&self) -> usize {
        let mut seen = self.seen.borrow_mut();
        seen.extend(self.from.try_iter());
        seen.len()
    }

    fn take(&self) -> Option<T> {
        let seen = self.seen.borrow_mut().pop_front();
        seen.or_else(|| self.from.try_recv().ok())
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

/// What the control thread has been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A task's state is stored.
    Stored(AttemptId, CheckpointId),
    /// It could not be stored.
    NotStored(AttemptId, CheckpointId),
    /// A manifest is written; or not, and whether that is known.
    Finalized(CheckpointId, std::result::Result<(), bool>),
    /// A checkpoint was removed, or not.
    Discarded(CheckpointId, bool),
    /// Ids were reserved, or not.
    Reserved(bool),
    /// A worker has dropped a task, or all of its.
    Cancelled,
    /// The host has asked for something.
    Request,
    /// A task reports.
    Report(AttemptId, ReportName),
}

/// What a task reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportName {
    /// A barrier is awaited.
    Waiting,
    /// It runs.
    Running,
    /// It gives a checkpoint up.
    Declined(CheckpointId),
    /// It has sent its end of data.
    EndOfData,
    /// It waits for a checkpoint, or no longer.
    AwaitsCheckpoint(bool),
    /// It asks for its permit.
    FinishRequest,
    /// It has left.
    Finished,
    /// It has failed.
    Failed,
    /// It hands out its state.
    Snapshot(CheckpointId),
}

/// What the writer of snapshots has been asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To write a task's state, with what was captured of its channels.
    Store(AttemptId, CheckpointId, Captured),
    /// To write a manifest.
    Finalize(CheckpointId),
    /// To remove a checkpoint.
    Discard(CheckpointId),
    /// To reserve ids.
    Reserve,
    /// To end.
    Shutdown,
}

/// What was captured of a task's channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Channels with anything.
    pub channels: usize,
    /// Buffers.
    pub buffers: usize,
    /// Buffers that had been read in part.
    pub half_read: usize,
    /// Watermarks and changes of status.
    pub events: usize,
}

impl Simulation {
    pub(crate) fn new(parts: Parts) -> Option<Self> {
        let Pieces { sender, events, shared, control, io, requests, workers, born } =
            parts.into_pieces()?;
        Some(Self {
            sender,
            events: Waiting::of(events.into_queue()),
            shared,
            control,
            io,
            requests: Waiting::of(requests),
            workers,
            born,
            failures: Vec::new(),
            savepoints: Vec::new(),
            stop: None,
        })
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// How much mail a worker has.
    pub fn mail(&self, worker: usize) -> usize {
        self.workers[worker].mail()
    }

    /// Lets a worker take one mail.
    pub fn take_mail(&mut self, worker: usize) -> bool {
        self.workers[worker].take_mail()
    }

    /// The tasks of a worker.
    pub fn tasks(&self, worker: usize) -> impl ExactSizeIterator<Item = AttemptId> {
        self.workers[worker].attempts()
    }

    /// Steps one task of a worker.
    pub fn step(&mut self, worker: usize, task: usize) -> Progress {
        self.workers[worker].step_task(task)
    }

    /// How many requests the writer of snapshots has.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Lets the writer of snapshots serve one request.
    pub fn serve_request(&mut self) -> Option<Asked> {
        let request = self.requests.take()?;
        let asked = match &request {
            IoRequest::Store(report) => match &report.kind {
                ReportKind::Snapshot { checkpoint, channels, .. } => {
                    Asked::Store(report.attempt, *checkpoint, captured(channels))
                }
                ReportKind::Running
                | ReportKind::Waiting { .. }
                | ReportKind::Declined { .. }
                | ReportKind::EndOfData
                | ReportKind::AwaitsCheckpoint(_)
                | ReportKind::FinishRequest { .. }
                | ReportKind::Finished
                | ReportKind::Failed(_) => {
                    Asked::Store(report.attempt, CheckpointId(0), Captured::default())
                }
            },
            IoRequest::Finalize(meta) => Asked::Finalize(meta.id),
            IoRequest::Savepoint(checkpoint, _) => Asked::Finalize(*checkpoint),
            IoRequest::Discard(checkpoint) => Asked::Discard(*checkpoint),
            IoRequest::Reserve(_) | IoRequest::RemoveAll => Asked::Reserve,
            IoRequest::Shutdown => Asked::Shutdown,
        };
        self.io.handle(request);
        Some(asked)
    }

    /// How much control has to deal with.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// Lets control deal with one event.
    pub fn serve_event(&mut self) -> Option<Told> {
        let event = self.events.take()?;
        let told = told(&event);
        if let ControlEvent::Report(Report { kind: ReportKind::Failed(error), .. }) = &event {
            self.failures.push(error.to_string());
        }
        self.control.handle(event);
        self.workers.extend(self.born.try_iter().map(|(parts, _)| Worker::new(parts)));
        Some(told)
    }

    /// When control wants to be ticked.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.control.deadline()
    }

    /// Lets control see the clock.
    pub fn tick(&mut self) {
        self.control.tick();
    }

    /// How the job has ended, once it has.
    pub fn take_outcome(&mut self) -> Option<Result<()>> {
        self.control.take_outcome()
    }

    /// Asks for a stop with a last checkpoint.
    pub fn request_stop(&self) {
        self.sender.send(ControlEvent::Request(Request::Stop));
    }

    /// Asks for a checkpoint; nobody waits for it.
    pub fn request_checkpoint(&self) {
        let (promise, _) = crossbeam::channel::bounded(1);
        self.sender.send(ControlEvent::Request(Request::Checkpoint(promise)));
    }

    /// Asks for a savepoint in `dir`, of which [`take_savepoints`](Self::take_savepoints) tells.
    pub fn request_savepoint(&mut self, dir: &Path) {
        let (promise, outcome) = crossbeam::channel::bounded(1);
        self.sender.send(ControlEvent::Request(Request::Savepoint(dir.into(), promise)));
        self.savepoints.push(outcome);
    }

    /// Asks for a stop with a savepoint in `dir`, of which [`take_stop`](Self::take_stop) tells.
    pub fn request_stop_with_savepoint(&mut self, dir: &Path, drain: bool) {
        let (promise, outcome) = crossbeam::channel::bounded(1);
        let request = Request::StopWithSavepoint(dir.into(), drain, promise);
        self.sender.send(ControlEvent::Request(request));
        self.stop = Some(outcome);
    }

    /// The outcomes of savepoints asked for, since this was asked last.
    pub fn take_savepoints(&mut self) -> Vec<Result<PathBuf>> {
        let mut outcomes = Vec::new();
        self.savepoints.retain(|savepoint| match savepoint.try_recv() {
            Ok(outcome) => {
                outcomes.push(outcome);
                false
            }
            Err(error) => error == TryRecvError::Empty,
        });
        outcomes
    }

    /// The outcome of stopping with a savepoint, once there is one.
    pub fn take_stop(&mut self) -> Option<Result<SavepointStop>> {
        let outcome = self.stop.as_ref()?.try_recv().ok()?;
        self.stop = None;
        Some(outcome)
    }

    /// Why tasks have failed, since this was asked last.
    pub fn take_failures(&mut self) -> Vec<String> {
        std::mem::take(&mut self.failures)
    }

    /// Where the job is.
    pub fn status_state(&self) -> JobState {
        self.shared.state()
    }

    /// The job's status.
    pub fn status(&self) -> JobStatus {
        self.shared.status()
    }
}

fn captured(channels: &[CapturedChannel]) -> Captured {
    let mut captured = Captured::default();
    for channel in channels {
        captured.channels += usize::from(!channel.slots.is_empty());
        for (_, slot) in &channel.slots {
            match slot {
                CapturedSlot::Buffer { offset, .. } => {
                    captured.buffers += 1;
                    captured.half_read += usize::from(*offset > 0);
                }
                CapturedSlot::Copied(_) => captured.buffers += 1,
                CapturedSlot::Event(_) => captured.events += 1,
            }
        }
    }
    captured
}

fn told(event: &ControlEvent) -> Told {
    match event {
        ControlEvent::Report(report) => {
            let name = match &report.kind {
                ReportKind::Running => ReportName::Running,
                ReportKind::Snapshot { checkpoint, .. } => ReportName::Snapshot(*checkpoint),
                ReportKind::Waiting { .. } => ReportName::Waiting,
                ReportKind::Declined { checkpoint, .. } => ReportName::Declined(*checkpoint),
                ReportKind::EndOfData => ReportName::EndOfData,
                ReportKind::AwaitsCheckpoint(awaits) => ReportName::AwaitsCheckpoint(*awaits),
                ReportKind::FinishRequest { .. } => ReportName::FinishRequest,
                ReportKind::Finished => ReportName::Finished,
                ReportKind::Failed(_) => ReportName::Failed,
            };
            Told::Report(report.attempt, name)
        }
        ControlEvent::Stored(stored) => Told::Stored(stored.attempt, stored.checkpoint),
        ControlEvent::NotStored { attempt, checkpoint, .. } => {
            Told::NotStored(*attempt, *checkpoint)
        }
        ControlEvent::Finalized { checkpoint, result } => {
            let result = result.as_ref().map(|_| ()).map_err(|(_, is_known)| *is_known);
            Told::Finalized(*checkpoint, result)
        }
        ControlEvent::Discarded { checkpoint, result } => {
            Told::Discarded(*checkpoint, result.is_ok())
        }
        ControlEvent::Reserved { result, .. } => Told::Reserved(result.is_ok()),
        ControlEvent::Cancelled { .. }
        | ControlEvent::Canceled { .. }
        | ControlEvent::WorkerEnded { .. } => Told::Cancelled,
        ControlEvent::Request(_) => Told::Request,
    }
}
