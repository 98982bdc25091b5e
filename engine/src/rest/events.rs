//! `/events`: what happened to subtasks, task managers and blocklisted items, in the order of the decisions.

use serde_json::{Value, json};

use super::answer::Answer;
use super::ask::ask;
use super::desk::Desk;
use super::dispatch::Call;
use super::query::LIMIT;
use crate::control::blocklist::item::ItemKey;
use crate::id::AttemptId;
use crate::runtime::{ClusterEvent, ClusterFact, Request};

/// `GET /events`.
pub(super) async fn list(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    let after = call.query.number("after").unwrap_or(0);
    let limit = usize::try_from(call.query.number("limit").unwrap_or(LIMIT)).unwrap_or(usize::MAX);
    let found = ask(desk, |promise| Request::Events(after, promise)).await?;
    let total = found.len();
    let events: Vec<Value> = found.iter().take(limit).map(event).collect();
    Ok(Answer::ok(json!({ "events": events, "total": total })))
}

fn event(event: &ClusterEvent) -> Value {
    let (name, mut value) = fact(&event.fact);
    value["number"] = json!(event.number);
    value["timestamp"] = json!(event.at.0.to_string());
    value["event"] = json!(name);
    value
}

fn fact(fact: &ClusterFact) -> (&'static str, Value) {
    match fact {
        ClusterFact::TaskManagerStarted { task_manager, node } => (
            "TASK_MANAGER_STARTED",
            json!({ "taskManager": task_manager.as_str(), "node": node.as_str() }),
        ),
        ClusterFact::TaskManagerEnded { task_manager } => {
            ("TASK_MANAGER_ENDED", json!({ "taskManager": task_manager.as_str() }))
        }
        ClusterFact::Deployed { attempt: of, task_manager, node } => (
            "DEPLOYED",
            json!({
                "attempt": attempt(of), "taskManager": task_manager.as_str(),
                "node": node.as_str(),
            }),
        ),
        ClusterFact::Cancelled { attempt: of } => ("CANCELLED", json!({ "attempt": attempt(of) })),
        ClusterFact::ItemAdded { key, action } => {
            ("ITEM_ADDED", item(key, json!({ "action": action.wire_name() })))
        }
        ClusterFact::ItemUpdated { key, action } => {
            ("ITEM_UPDATED", item(key, json!({ "action": action.wire_name() })))
        }
        ClusterFact::ItemRemoved { key } => ("ITEM_REMOVED", item(key, json!({}))),
        ClusterFact::ItemExpired { key } => ("ITEM_EXPIRED", item(key, json!({}))),
        ClusterFact::ItemRefused { key, message } => {
            ("ITEM_REFUSED", item(key, json!({ "message": message })))
        }
        ClusterFact::EvacuationBegun => ("EVACUATION_BEGUN", json!({})),
        ClusterFact::Evacuated { attempts } => {
            ("EVACUATED", json!({ "attempts": attempts.iter().map(attempt).collect::<Vec<_>>() }))
        }
        ClusterFact::EvacuationStuck { attempts, reason } => (
            "EVACUATION_STUCK",
            json!({
                "attempts": attempts.iter().map(attempt).collect::<Vec<_>>(), "message": reason,
            }),
        ),
        ClusterFact::NotEnoughSlots { missing } => {
            ("NOT_ENOUGH_SLOTS", json!({ "missing": missing }))
        }
    }
}

fn item(key: &ItemKey, mut value: Value) -> Value {
    value["type"] = json!(key.item_type().wire_name());
    value["id"] = json!(key.identifier());
    value
}

fn attempt(of: &AttemptId) -> String {
    of.to_string()
}
