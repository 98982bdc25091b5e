//! `/health`: whether the server answers. It says how the job is, but asks nobody, so a busy control thread is no bad health.

use serde_json::json;

use super::answer::Answer;
use super::desk::Desk;
use super::jobs::state;

/// `GET /health`.
pub(super) fn health(desk: &Desk) -> Answer {
    Answer::ok(json!({ "status": "UP", "jobState": state(desk.endpoint.shared().state()) }))
}
