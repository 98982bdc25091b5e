//! `/taskmanagers`: where subtasks run, and what is free.

use serde_json::{Value, json};

use super::answer::Answer;
use super::ask::ask;
use super::desk::Desk;
use super::dispatch::Call;
use crate::runtime::{Request, TaskManagerStatus};

/// `GET /taskmanagers`.
pub(super) async fn list(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    let found = ask(desk, Request::TaskManagers).await?;
    let total = found.len();
    let page: Vec<Value> = call.query.page(found).iter().map(shown).collect();
    Ok(Answer::ok(json!({ "taskmanagers": page, "total": total })))
}

/// `GET /taskmanagers/{id}`.
pub(super) async fn one(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    let id = call.parameter("id");
    let found = ask(desk, Request::TaskManagers).await?;
    let one = found.iter().find(|task_manager| task_manager.resource_id == id);
    one.map(|one| Answer::ok(shown(one))).ok_or_else(|| {
        Answer::error(404, format!("there is no task manager {}", super::query::shown(id)))
    })
}

fn shown(task_manager: &TaskManagerStatus) -> Value {
    json!({
        "id": task_manager.resource_id,
        "nodeId": task_manager.node_id,
        "nodePool": task_manager.node_pool,
        "slotsNumber": task_manager.slots,
        "freeSlots": task_manager.free_slots,
        "blocklisted": task_manager.blocklisted.map(|action| action.wire_name()),
        "subtasks": task_manager.subtasks.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
