//! What fails, what is cancelled, and how the job ends.
//!
//! A failure goes to the job master, which decides what restarts and when; what it orders comes back to `orders`. Nobody waits
//! for a worker here: cancelling is asked for and answered by an event.

use std::collections::BTreeSet;
use std::error::Error as _;

use super::{Control, Phase};
use crate::control::blocklist::cause::Cause;
use crate::control::checkpoint::message::Input;
use crate::control::checkpoint::tasks::TaskState;
use crate::control::execution::TaskReport;
use crate::control::job_master::NON_RECOVERABLE;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{AttemptId, WorkerIndex};
use crate::runtime::snapshot_io::IoRequest;
use crate::runtime::status::JobState;
use crate::runtime::worker::Command;

/// What happens once all tasks are dropped.
#[derive(Debug)]
pub(super) enum Then {
    Fail(Error),
    Cancelled,
}

impl Control {
    /// A task has failed.
    pub(super) fn failed(&mut self, attempt: AttemptId, error: Error) {
        self.decide(Input::TaskState { task: attempt, state: TaskState::Failed });
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let text = error.to_string();
        self.shared.update(|board| board.last_failure = Some(text));
        let is_worth_it = self.options.checkpointed && is_worth_a_restart(&error);
        let (mut cause, chain) = causes(&error);
        if let Some(vertex) = self.vertices.get(attempt.subtask.vertex.0 as usize) {
            cause = cause.with_label("vertex", &vertex.name);
        }
        if !is_worth_it {
            cause = cause.with_label(NON_RECOVERABLE, "true");
        }
        self.last_error = Some(error);
        self.cluster.report(attempt, TaskReport::Failed { cause, chain, peer: None });
    }

    /// The job can't go on, whatever the restart strategy says.
    pub(super) fn fail(&mut self, error: Error) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let text = error.to_string();
        self.shared.update(|board| board.last_failure = Some(text));
        self.decide(Input::Cancel);
        self.cancel_all(Then::Fail(error));
    }

    /// The job master says that the job fails.
    pub(super) fn give_up(&mut self, cause: &Cause) {
        let from_cause = || {
            let message = format!("{}: {}", cause.class(), cause.message());
            Error::new(ErrorKind::Resources, message)
        };
        let is_of_task = |error: &Error| cause.message() == causes(error).0.message();
        let error = self.last_error.take().filter(is_of_task).unwrap_or_else(from_cause);
        self.fail(error);
    }

    /// A cause after which a job that takes no checkpoints can't restart.
    pub(super) fn labelled(&self, cause: Cause) -> Cause {
        if self.options.checkpointed { cause } else { cause.with_label(NON_RECOVERABLE, "true") }
    }

    /// Drops all tasks, and then ends.
    pub(super) fn cancel_all(&mut self, then: Then) {
        self.cancellations += 1;
        self.wanted = None;
        let number = self.cancellations;
        let crew = self.cluster.crew();
        let awaiting: BTreeSet<_> = crew.live().map(|at| WorkerIndex(at as u32)).collect();
        for worker in crew.live() {
            crew.post(worker, Command::CancelAll(number));
        }
        self.phase = Phase::Cancelling { number, awaiting, then };
    }

    /// A worker has dropped its tasks; it is gone if `number` is none.
    pub(super) fn cancelled(&mut self, worker: WorkerIndex, number: Option<u64>) {
        let Phase::Cancelling { number: awaited, awaiting, .. } = &mut self.phase else { return };
        if number.is_some_and(|number| number != *awaited) {
            return;
        }
        awaiting.remove(&worker);
        if !awaiting.is_empty() {
            return;
        }
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Cancelling { then: Then::Fail(error), .. } => {
                self.end(Err(error), JobState::Failed);
            }
            Phase::Cancelling { then: Then::Cancelled, .. } => {
                if !self.options.retain_on_cancel {
                    // Behind whatever is being written.
                    self.ask_io(IoRequest::RemoveAll);
                }
                let error = Error::new(ErrorKind::Cancelled, "the job was cancelled");
                self.end(Err(error), JobState::Cancelled);
            }
            Phase::Running | Phase::Over => {}
        }
    }

    /// A worker has dropped a task that was to stop.
    pub(super) fn canceled(&mut self, attempt: AttemptId) {
        if self.stopping.remove(&attempt).is_some() {
            self.cluster.report(attempt, TaskReport::Canceled);
        }
    }

    /// A worker of a task manager that is gone has dropped all it had.
    pub(super) fn worker_ended(&mut self, worker: WorkerIndex) {
        let at = worker.0 as usize;
        self.cluster.crew_mut().ended(at);
        self.ending.remove(&at);
        let there = self.stopping.iter().filter(|(_, on)| **on == at);
        for attempt in there.map(|(attempt, _)| *attempt).collect::<Vec<_>>() {
            self.canceled(attempt);
        }
        self.cancelled(worker, None);
    }

    pub(super) fn end(&mut self, outcome: Result<()>, state: JobState) {
        self.phase = Phase::Over;
        self.outcome.get_or_insert(outcome);
        self.promises.clear();
        self.shared.update(|board| board.state = state);
    }
}

/// Whether the same would not just happen again.
fn is_worth_a_restart(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::User | ErrorKind::Io | ErrorKind::Record | ErrorKind::Internal => true,
        ErrorKind::Config
        | ErrorKind::Checkpoint
        | ErrorKind::Cancelled
        | ErrorKind::Stuck
        | ErrorKind::Resources
        | ErrorKind::Unsupported => false,
    }
}

/// An error as strategies see it: its kind as class, and what it says; and what caused it, outermost first.
fn causes(error: &Error) -> (Cause, Vec<Cause>) {
    /// How many causes are told.
    const CHAIN_MAX: usize = 8;
    let mut chain = Vec::new();
    let mut source = error.source();
    while let Some(inner) = source.filter(|_| chain.len() < CHAIN_MAX) {
        let class = match inner.downcast_ref::<std::io::Error>() {
            Some(error) => format!("{:?}", error.kind()),
            None => "Error".to_owned(),
        };
        chain.push(Cause::new(&class, &inner.to_string()));
        source = inner.source();
    }
    let cause = Cause::new(&format!("{:?}Error", error.kind()), &error.to_string());
    let root = chain.last().map(|root| root.class().to_owned());
    (root.map_or_else(|| cause.clone(), |root| cause.clone().with_root_class(&root)), chain)
}
