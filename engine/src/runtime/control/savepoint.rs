//! Savepoints on the control thread: who asked for one, where it goes, and how stopping with one ended.

use std::path::PathBuf;

use crossbeam::channel::Sender;

use super::Control;
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::{Input, Outcome, StopOutcome};
use crate::control::checkpoint::options::SnapshotKind;
use crate::control::checkpoint::request::{Origin, RequestId};
use crate::error::{Error, ErrorKind, Result};
use crate::id::CheckpointId;
use crate::runtime::snapshot_io::{IoRequest, SavepointTarget};

/// How stopping a job with a savepoint ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SavepointStop {
    /// The savepoint is complete and all tasks have finished; the job has ended.
    Stopped {
        /// The savepoint's folder.
        savepoint: PathBuf,
    },
    /// The savepoint is complete, but a task failed behind it: what it has prepared becomes visible by starting from the
    /// savepoint, which is never done by itself. The job has failed.
    SideEffectsPending {
        /// The savepoint's folder.
        savepoint: PathBuf,
    },
    /// There is no savepoint; the job goes on, or fails over.
    Failed {
        /// Why.
        cause: String,
    },
}

/// Who waits for the outcome of a request.
#[derive(Debug)]
pub(super) enum Promise {
    Checkpoint(Sender<Result<CheckpointId>>),
    Savepoint(Sender<Result<PathBuf>>),
    Stop(Sender<Result<SavepointStop>>, bool),
    /// Tasks are to be moved once it is complete.
    Move,
}

impl Control {
    /// Why no snapshot can be asked for, if so.
    pub(super) fn refusal(&self) -> Option<Error> {
        let why = if !self.options.checkpointed {
            "the job takes no checkpoints: set checkpoint.interval or checkpoint.dir"
        } else if self.is_deployed() {
            return None;
        } else {
            "the job is not running"
        };
        Some(Error::new(ErrorKind::Checkpoint, why))
    }

    /// Why a savepoint can't drain the job: what goes on when it is complete would be in no checkpoint.
    fn drain_refusal(&self, is_drain: bool) -> Option<Error> {
        let emitting = self.vertices.iter().find(|vertex| is_drain && vertex.emits_on_commit)?;
        let message = format!(
            "a job is not drained by a savepoint if records go on after its commit, as in '{}': stop it without drain, or \
             let its sources end",
            emitting.name
        );
        Some(Error::new(ErrorKind::Unsupported, message))
    }

    pub(super) fn promised(&mut self, promise: Promise) -> RequestId {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        self.promises.insert(request, promise);
        request
    }

    pub(super) fn savepoint(&mut self, dir: PathBuf, promise: Sender<Result<PathBuf>>) {
        if let Some(refusal) = self.refusal() {
            let _ = promise.send(Err(refusal));
            return;
        }
        let request = self.promised(Promise::Savepoint(promise));
        self.targets.insert(request, SavepointTarget { dir, stops: false });
        self.decide(Input::Request { request, kind: SnapshotKind::Savepoint });
    }

    pub(super) fn stop_with_savepoint(
        &mut self,
        dir: PathBuf,
        is_drain: bool,
        promise: Sender<Result<SavepointStop>>,
    ) {
        if let Some(refusal) = self.refusal().or_else(|| self.drain_refusal(is_drain)) {
            let _ = promise.send(Err(refusal));
            return;
        }
        let request = self.promised(Promise::Stop(promise, is_drain));
        self.targets.insert(request, SavepointTarget { dir, stops: true });
        self.decide(Input::Stop { request, is_drain });
    }

    /// A snapshot is about to be triggered: tells the writer if it is a savepoint.
    pub(super) fn triggered_snapshot(&mut self, checkpoint: CheckpointId) {
        let pending = self.coordinator.pending().find(|pending| pending.id == checkpoint);
        let request = match pending.map(|pending| pending.request.origin) {
            Some(Origin::User(request) | Origin::Stop(request)) => request,
            Some(Origin::Periodic | Origin::Final) | None => return,
        };
        if let Some(target) = self.targets.remove(&request) {
            self.ask_io(IoRequest::Savepoint(checkpoint, target.clone()));
            self.savepoints.insert(checkpoint, target);
        }
    }

    fn take_savepoint(&mut self, checkpoint: CheckpointId) -> Result<PathBuf> {
        let target = self.savepoints.remove(&checkpoint);
        let lost = || Error::new(ErrorKind::Internal, "the savepoint has no folder");
        target.map(|target| target.path(checkpoint)).ok_or_else(lost)
    }

    /// Tells a user what came of a request.
    pub(super) fn promise(&mut self, request: RequestId, outcome: Outcome) {
        self.targets.remove(&request);
        let Some(promise) = self.promises.remove(&request) else { return };
        let failed = |control: &Self, checkpoint: Option<CheckpointId>, reason: FailureReason| {
            let cause = checkpoint.and_then(|id| control.failure_causes.get(&id).cloned());
            cause.unwrap_or_else(|| reason.to_string())
        };
        let error =
            |cause: String| Error::new(ErrorKind::Checkpoint, format!("no checkpoint: {cause}"));
        match (promise, outcome) {
            (Promise::Move, Outcome::Failed { .. }) => self.cluster.checkpoint_failed(),
            (Promise::Move, Outcome::Completed { .. } | Outcome::Stop(_)) => {}
            (Promise::Checkpoint(to), Outcome::Completed { checkpoint }) => {
                let _ = to.send(Ok(checkpoint));
            }
            (Promise::Savepoint(to), Outcome::Completed { checkpoint }) => {
                let _ = to.send(self.take_savepoint(checkpoint));
            }
            (Promise::Checkpoint(to), Outcome::Failed { checkpoint, reason }) => {
                let _ = to.send(Err(error(failed(self, checkpoint, reason))));
            }
            (Promise::Savepoint(to), Outcome::Failed { checkpoint, reason }) => {
                let _ = to.send(Err(error(failed(self, checkpoint, reason))));
            }
            (Promise::Stop(to, is_drain), Outcome::Stop(StopOutcome::Stopped { savepoint })) => {
                self.stopped = Some(is_drain);
                let savepoint = self.take_savepoint(savepoint);
                let _ = to.send(savepoint.map(|savepoint| SavepointStop::Stopped { savepoint }));
            }
            (
                Promise::Stop(to, _),
                Outcome::Stop(StopOutcome::SideEffectsPending { savepoint }),
            ) => {
                let savepoint = self.take_savepoint(savepoint);
                let pending = |savepoint| SavepointStop::SideEffectsPending { savepoint };
                let _ = to.send(savepoint.map(pending));
            }
            (Promise::Stop(to, _), Outcome::Stop(StopOutcome::Failed { reason })) => {
                // The snapshot that has just failed is the one of this request.
                let last = self.failed_stop.take();
                let _ = to.send(Ok(SavepointStop::Failed { cause: failed(self, last, reason) }));
            }
            (Promise::Stop(to, _), Outcome::Completed { .. } | Outcome::Failed { .. }) => {
                let _ =
                    to.send(Err(Error::new(ErrorKind::Internal, "stopping ended as a checkpoint")));
            }
            (Promise::Checkpoint(to), Outcome::Stop(_)) => {
                let _ =
                    to.send(Err(Error::new(ErrorKind::Internal, "a checkpoint ended as stopping")));
            }
            (Promise::Savepoint(to), Outcome::Stop(_)) => {
                let _ =
                    to.send(Err(Error::new(ErrorKind::Internal, "a savepoint ended as stopping")));
            }
        }
    }
}
