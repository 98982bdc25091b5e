//! `/jobs`: the one job, its vertices and its plan.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::answer::Answer;
use super::audit;
use super::desk::{Desk, now_millis};
use super::dispatch::Call;
use crate::runtime::{JobState, JobStatus, Request, TaskStatus};

/// A state as Flink spells it.
pub(super) fn state(state: JobState) -> &'static str {
    match state {
        JobState::Starting => "INITIALIZING",
        JobState::Running => "RUNNING",
        JobState::Restarting => "RESTARTING",
        JobState::Finished => "FINISHED",
        JobState::Failed => "FAILED",
        JobState::Cancelled => "CANCELED",
    }
}

/// Whether the path means the job of this server.
///
/// # Errors
/// 404: it doesn't.
pub(super) fn named(desk: &Desk, call: &Call) -> Result<(), Answer> {
    let id = call.parameter("job");
    if id.eq_ignore_ascii_case(&desk.jid) || id == desk.endpoint.name() {
        return Ok(());
    }
    Err(Answer::error(404, format!("there is no job {}", super::query::shown(id))))
}

/// `GET /jobs`.
pub(super) fn list(desk: &Desk, call: &Call) -> Answer {
    let status = desk.endpoint.status();
    let jobs = call.query.page(vec![json!({ "id": desk.jid, "status": state(status.state) })]);
    Answer::ok(json!({ "jobs": jobs, "total": 1 }))
}

/// `GET /jobs/overview`.
pub(super) fn overview(desk: &Desk, call: &Call) -> Answer {
    let status = desk.endpoint.status();
    let times = Times::of(&status);
    let job = json!({
        "jid": desk.jid,
        "name": desk.endpoint.name(),
        "state": state(status.state),
        "start-time": times.start,
        "end-time": times.end,
        "duration": times.duration,
        "last-modification": status.state_since.0,
        "tasks": { "total": status.tasks.len() },
    });
    Answer::ok(json!({ "jobs": call.query.page(vec![job]), "total": 1 }))
}

/// `GET /jobs/{job}`.
pub(super) fn one(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    named(desk, call)?;
    let status = desk.endpoint.status();
    let vertices = vertices(&status);
    let total = vertices.len();
    let times = Times::of(&status);
    Ok(Answer::ok(json!({
        "jid": desk.jid,
        "name": desk.endpoint.name(),
        "state": state(status.state),
        "start-time": times.start,
        "end-time": times.end,
        "duration": times.duration,
        "now": now_millis(),
        "restarts": status.restarts,
        "last-failure": status.last_failure,
        "vertices": call.query.page(vertices),
        "total": total,
        "status-counts": { state(status.state): total },
    })))
}

/// The times of a job as Flink tells them, in milliseconds; an end of -1 is none yet.
struct Times {
    start: i64,
    end: i64,
    duration: i64,
}

impl Times {
    fn of(status: &JobStatus) -> Self {
        let start = status.started_at.0;
        let end = if status.state.is_over() { status.state_since.0 } else { -1 };
        let last = if end < 0 { i64::try_from(now_millis()).unwrap_or(i64::MAX) } else { end };
        // A wall clock may be set back.
        Self { start, end, duration: last.saturating_sub(start).max(0) }
    }
}

/// The vertices, each with the sums of its subtasks.
fn vertices(status: &JobStatus) -> Vec<Value> {
    let mut by_vertex: BTreeMap<u32, Vec<&TaskStatus>> = BTreeMap::new();
    for task in &status.tasks {
        by_vertex.entry(task.subtask.vertex.0).or_default().push(task);
    }
    let of_vertex = |(id, tasks): (u32, Vec<&TaskStatus>)| {
        let sum = |of: fn(&TaskStatus) -> u64| tasks.iter().map(|task| of(task)).sum::<u64>();
        json!({
            "id": format!("v{id}"),
            "name": tasks.first().map_or("", |task| &task.vertex),
            "parallelism": tasks.len(),
            "status": state(status.state),
            "metrics": {
                "read-records": sum(|task| task.figures.records_in),
                "read-bytes": sum(|task| task.figures.bytes_in),
                "read-buffers": sum(|task| task.figures.buffers_in),
                "accumulated-busy-time": sum(|task| millis(task.figures.busy)),
                "accumulated-idle-time": sum(|task| millis(task.figures.idle)),
                "accumulated-backpressured-time":
                    sum(|task| millis(task.figures.back_pressured)),
                "queued-entries": sum(|task| task.figures.queued),
                "late-records": sum(|task| task.figures.late_records),
            },
        })
    };
    by_vertex.into_iter().map(of_vertex).collect()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `GET /jobs/{job}/plan`.
pub(super) fn plan(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    named(desk, call)?;
    let plan = desk.endpoint.plan();
    Ok(Answer::ok(json!({ "text": plan.to_string(), "dot": plan.dot() })))
}

/// `PATCH /jobs/{job}?mode=cancel`.
pub(super) fn cancel(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    named(desk, call)?;
    runs(desk)?;
    desk.endpoint.request(Request::Cancel);
    Ok(Answer::json(202, json!({})).audited(audit::line(desk, call, "cancel", json!({}))))
}

/// Refuses what only a job can do that is not over.
///
/// # Errors
/// 409: it is.
pub(super) fn runs(desk: &Desk) -> Result<(), Answer> {
    let found = desk.endpoint.status().state;
    if found.is_over() {
        return Err(Answer::error(409, format!("the job is over: {}", state(found))));
    }
    Ok(())
}
