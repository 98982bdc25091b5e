//! `/jobs/{job}/checkpoints`: what was completed, newest first, and what that took.

use std::time::Duration;

use serde_json::{Value, json};

use super::answer::Answer;
use super::desk::Desk;
use super::dispatch::Call;
use super::jobs::named;
use crate::runtime::CheckpointStats;

/// `GET /jobs/{job}/checkpoints`.
pub(super) fn list(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    named(desk, call)?;
    let status = desk.endpoint.status();
    let newest_first: Vec<Value> = status.checkpoints.iter().rev().map(completed).collect();
    let latest = newest_first.first().cloned();
    let failed = status.last_checkpoint_failure.map(|why| json!({ "failure_message": why }));
    let all = &status.checkpoints;
    let under_way = u64::from(status.checkpoint_under_way.is_some());
    let total = newest_first.len();
    Ok(Answer::ok(json!({
        "counts": {
            "total": status.checkpoints_completed + status.checkpoints_failed + under_way,
            "in_progress": under_way,
            "completed": status.checkpoints_completed,
            "failed": status.checkpoints_failed,
        },
        "summary": {
            "state_size": statistics(all.iter().map(|done| done.bytes)),
            "end_to_end_duration": statistics(all.iter().map(|done| millis(done.duration))),
            "alignment_duration": statistics(all.iter().map(|done| millis(done.alignment))),
        },
        "latest": { "completed": latest, "failed": failed },
        "history": call.query.page(newest_first),
        "total": total,
    })))
}

fn completed(done: &CheckpointStats) -> Value {
    let triggered = u64::try_from(done.triggered_at.0).unwrap_or(0);
    json!({
        "id": done.id.0,
        "status": "COMPLETED",
        "is_savepoint": false,
        "trigger_timestamp": triggered,
        "latest_ack_timestamp": triggered + millis(done.duration),
        "state_size": done.bytes,
        "end_to_end_duration": millis(done.duration),
        "alignment_duration": millis(done.alignment),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Least, greatest and mean; zeros of nothing.
fn statistics(values: impl Iterator<Item = u64> + Clone) -> Value {
    let count = values.clone().count().max(1) as u64;
    json!({
        "min": values.clone().min().unwrap_or(0),
        "max": values.clone().max().unwrap_or(0),
        "avg": values.sum::<u64>() / count,
    })
}
