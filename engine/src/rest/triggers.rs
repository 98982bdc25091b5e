//! Checkpoints, savepoints and stops that were asked for: they take longer than a request, so each gets an id to ask after.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError};

use crossbeam::channel::{Receiver, TryRecvError, bounded};
use serde_json::{Value, json};

use super::answer::Answer;
use super::audit;
use super::desk::Desk;
use super::dispatch::Call;
use super::jobs::{named, runs};
use crate::error::Result as JobResult;
use crate::id::CheckpointId;
use crate::runtime::{JobState, Request, SavepointStop};

/// So many are remembered.
const KEPT_MAX: usize = 100;
/// So many may be under way.
const PENDING_MAX: usize = 16;
/// The longest path.
pub(super) const DIRECTORY_BYTES_MAX: usize = 4096;

/// What was asked for, oldest first.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    next: u64,
    kept: BTreeMap<u64, State>,
    /// Stops whose outcome nobody has been told.
    untold: BTreeSet<u64>,
}

/// How far one is.
#[derive(Debug)]
enum State {
    Checkpoint(Receiver<JobResult<CheckpointId>>),
    Savepoint(Receiver<JobResult<PathBuf>>),
    StopWithSavepoint(Receiver<JobResult<SavepointStop>>),
    /// A stop with a last checkpoint: the job itself says when it is over.
    Stop,
    Done(Value),
}

/// `POST /jobs/{job}/checkpoints`.
pub(super) fn checkpoint(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    let (promise, outcome) = bounded(1);
    let details = json!({});
    trigger(
        desk,
        call,
        "checkpoint",
        details,
        Request::Checkpoint(promise),
        State::Checkpoint(outcome),
    )
}

/// `POST /jobs/{job}/savepoints`.
pub(super) fn savepoint(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    let body = call.object(&["target-directory"])?;
    let Some(directory) = directory(body.get("target-directory"), "target-directory")? else {
        return Err(Answer::error(400, "'target-directory' is missing"));
    };
    let details = json!({ "target-directory": directory });
    let (promise, outcome) = bounded(1);
    let request = Request::Savepoint(directory, promise);
    trigger(desk, call, "savepoint", details, request, State::Savepoint(outcome))
}

/// `POST /jobs/{job}/stop`.
pub(super) fn stop(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    let body = call.object(&["targetDirectory", "drain"])?;
    let drain = match body.get("drain") {
        None => false,
        Some(Value::Bool(drain)) => *drain,
        Some(_) => return Err(Answer::error(400, "'drain' must be true or false")),
    };
    match directory(body.get("targetDirectory"), "targetDirectory")? {
        Some(directory) => {
            let details = json!({ "targetDirectory": directory, "drain": drain });
            let (promise, outcome) = bounded(1);
            let request = Request::StopWithSavepoint(directory, drain, promise);
            trigger(desk, call, "stop", details, request, State::StopWithSavepoint(outcome))
        }
        None if drain => Err(Answer::error(400, "'drain' needs a 'targetDirectory'")),
        None => trigger(desk, call, "stop", json!({}), Request::Stop, State::Stop),
    }
}

/// `GET /jobs/{job}/savepoints/{trigger}`, and of checkpoints.
pub(super) fn status(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    named(desk, call)?;
    let id = call.parameter("trigger");
    let number = (id.len() == 32).then(|| u64::from_str_radix(id, 16).ok()).flatten();
    let mut triggers = lock(desk);
    triggers.look(desk.endpoint.shared().state());
    let Some(state) = number.and_then(|number| triggers.kept.get(&number)) else {
        let text = format!("nothing was asked for under {}", super::query::shown(id));
        return Err(Answer::error(404, text));
    };
    let told = match state {
        State::Done(operation) => {
            json!({ "status": { "id": "COMPLETED" }, "operation": operation })
        }
        State::Checkpoint(_) | State::Savepoint(_) | State::StopWithSavepoint(_) | State::Stop => {
            return Ok(Answer::ok(json!({ "status": { "id": "IN_PROGRESS" } })));
        }
    };
    if let Some(number) = number {
        triggers.untold.remove(&number);
    }
    Ok(Answer::ok(told))
}

fn trigger(
    desk: &Desk,
    call: &Call,
    operation: &str,
    mut details: Value,
    request: Request,
    state: State,
) -> Result<Answer, Answer> {
    named(desk, call)?;
    runs(desk)?;
    let mut triggers = lock(desk);
    triggers.look(desk.endpoint.shared().state());
    let pending = triggers.kept.values().filter(|state| !matches!(state, State::Done(_))).count();
    if pending >= PENDING_MAX {
        let text = format!("{pending} checkpoints and savepoints are under way; ask again later");
        return Err(Answer::error(429, text));
    }
    triggers.next += 1;
    let number = triggers.next;
    if matches!(state, State::Stop | State::StopWithSavepoint(_)) {
        triggers.untold.insert(number);
    }
    triggers.kept.insert(number, state);
    while triggers.kept.len() > KEPT_MAX {
        let done = triggers.kept.iter().find(|(_, state)| matches!(state, State::Done(_)));
        let Some(number) = done.map(|(number, _)| *number) else { break };
        triggers.kept.remove(&number);
    }
    desk.endpoint.request(request);
    let id = format!("{number:032x}");
    details["request-id"] = json!(id);
    let answer = Answer::json(202, json!({ "request-id": id }));
    Ok(answer.audited(audit::line(desk, call, operation, details)))
}

/// Whether somebody stopped the job and has not been told how that ended.
pub(super) fn owes_an_outcome(desk: &Desk) -> bool {
    !lock(desk).untold.is_empty()
}

impl Triggers {
    /// Takes what has been answered since.
    fn look(&mut self, job: JobState) {
        for state in self.kept.values_mut() {
            let done = match &*state {
                State::Checkpoint(outcome) => {
                    taken(outcome, |id| json!({ "outcome": "COMPLETED", "checkpointId": id.0 }))
                }
                State::Savepoint(outcome) => {
                    taken(outcome, |folder| json!({ "outcome": "COMPLETED", "location": folder }))
                }
                State::StopWithSavepoint(outcome) => taken(outcome, stopped),
                State::Stop => match job {
                    JobState::Finished | JobState::Cancelled => {
                        Some(json!({ "outcome": "STOPPED" }))
                    }
                    JobState::Failed => Some(failed("the job failed while it was stopping")),
                    JobState::Starting | JobState::Running | JobState::Restarting => None,
                },
                State::Done(_) => None,
            };
            if let Some(done) = done {
                *state = State::Done(done);
            }
        }
    }
}

/// The outcome, once there is one.
fn taken<T>(outcome: &Receiver<JobResult<T>>, done: impl FnOnce(T) -> Value) -> Option<Value> {
    match outcome.try_recv() {
        Ok(Ok(found)) => Some(done(found)),
        Ok(Err(error)) => Some(failed(&error.to_string())),
        Err(TryRecvError::Disconnected) => Some(failed("the job is over")),
        Err(TryRecvError::Empty) => None,
    }
}

fn stopped(stop: SavepointStop) -> Value {
    match stop {
        SavepointStop::Stopped { savepoint } => {
            json!({ "outcome": "STOPPED", "location": savepoint })
        }
        SavepointStop::SideEffectsPending { savepoint } => {
            json!({ "outcome": "SIDE_EFFECTS_PENDING", "location": savepoint })
        }
        SavepointStop::Failed { cause } => failed(&cause),
    }
}

fn failed(why: &str) -> Value {
    let cause = json!({ "class": "SavepointFailed", "stack-trace": why });
    json!({ "outcome": "FAILED", "failure-cause": cause })
}

/// A folder that a request names, if it does.
fn directory(value: Option<&Value>, name: &str) -> Result<Option<PathBuf>, Answer> {
    let Some(value) = value else { return Ok(None) };
    let Some(text) = value.as_str() else {
        return Err(Answer::error(400, format!("'{name}' must be a string")));
    };
    let path = PathBuf::from(text);
    if !path.is_absolute() || text.len() > DIRECTORY_BYTES_MAX || text.contains(char::is_control) {
        let text =
            format!("'{name}' must be an absolute path of at most {DIRECTORY_BYTES_MAX} bytes");
        return Err(Answer::error(400, text));
    }
    Ok(Some(path))
}

fn lock(desk: &Desk) -> MutexGuard<'_, Triggers> {
    desk.triggers.lock().unwrap_or_else(PoisonError::into_inner)
}
