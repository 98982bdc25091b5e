//! The lines between the engine and a plug-in: one JSON object each.
//!
//! ```text
//! to the plug-in:   {"id":1,"job":"job-1","attempt":{"vertex":0,"subtask":1,"attempt":2},"timestamp":"1652313600000",
//!                    "locations":[{"taskManager":"tm1","node":"n1","address":"10.0.0.1","pool":"default"}],
//!                    "cause":{"class":"IoError","message":"disk full","rootClass":"IoError","labels":{}},"chain":[],
//!                    "cluster":{"nodes":3,"taskManagers":6,"blocklistedNodes":0,
//!                               "pools":{"default":{"nodes":3,"taskManagers":6,"blocklistedNodes":0}}}}
//! from the plug-in: {"id":1,"items":[{"node":"n1","action":"MARK_BLOCKLISTED","timeoutMs":600000,"cause":"disk full"}]}
//! ```
//!
//! An item names a `node` or a `taskManager`; `action`, `timeoutMs` and `cause` may be left out. Anything else is nonsense.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::control::blocklist::cause::Cause;
use crate::control::blocklist::item::{BlocklistAction, ItemKey, ItemType};
use crate::control::blocklist::runner::ITEMS_PER_CALL_MAX;
use crate::control::blocklist::strategy::FailureEvent;

/// What a plug-in answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// To which request.
    pub(super) id: u64,
    /// What it wants.
    pub(super) items: Vec<Wanted>,
}

/// An item that a plug-in wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) key: ItemKey,
    pub(super) action: BlocklistAction,
    pub(super) timeout: Option<Duration>,
    pub(super) cause: Option<String>,
}

/// The line that asks about a failure, with its end.
pub(super) fn request(id: u64, failure: &FailureEvent) -> String {
    let attempt = failure.attempt.map(|it| {
        json!({"vertex": it.subtask.vertex.0, "subtask": it.subtask.index, "attempt": it.attempt.0})
    });
    let locations = failure.locations.iter().map(|location| {
        json!({
            "taskManager": location.resource_id.as_str(),
            "node": location.node_id.as_str(),
            "address": location.address,
            "pool": location.pool.as_str(),
        })
    });
    let pools = failure.cluster.pools.iter().map(|(name, pool)| {
        let figures = json!({
            "nodes": pool.nodes,
            "taskManagers": pool.task_managers,
            "blocklistedNodes": pool.blocklisted_nodes,
        });
        (name.to_string(), figures)
    });
    let mut line = json!({
        "id": id,
        "job": failure.job.to_string(),
        "attempt": attempt,
        "timestamp": failure.now.wall.0.to_string(),
        "locations": locations.collect::<Vec<_>>(),
        "cause": cause(&failure.cause),
        "chain": failure.chain.iter().map(cause).collect::<Vec<_>>(),
        "cluster": {
            "nodes": failure.cluster.nodes,
            "taskManagers": failure.cluster.task_managers,
            "blocklistedNodes": failure.cluster.blocklisted_nodes,
            "pools": pools.collect::<Map<_, _>>(),
        },
    })
    .to_string();
    line.push('\n');
    line
}

fn cause(cause: &Cause) -> Value {
    json!({
        "class": cause.class(),
        "message": cause.message(),
        "rootClass": cause.root_class(),
        "labels": cause.labels(),
    })
}

/// Reads an answer, strictly; the error says what is wrong with it.
pub(super) fn answer(line: &[u8]) -> Result<Answer, String> {
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("no JSON: {error}"))?;
    let Value::Object(mut fields) = value else { return Err("no JSON object".into()) };
    let id = fields.remove("id").as_ref().and_then(Value::as_u64);
    let id = id.ok_or("'id' is not the number of a request")?;
    let Some(Value::Array(items)) = fields.remove("items") else {
        return Err("'items' is not a list".into());
    };
    refuse_others(&fields)?;
    if items.len() > ITEMS_PER_CALL_MAX {
        return Err(format!("{} items, of which at most {ITEMS_PER_CALL_MAX} may be", items.len()));
    }
    let items = items.into_iter().map(wanted).collect::<Result<_, _>>()?;
    Ok(Answer { id, items })
}

fn wanted(value: Value) -> Result<Wanted, String> {
    let Value::Object(mut fields) = value else { return Err("an item is no object".into()) };
    let mut text = |name: &str| match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("'{name}' is no text")),
    };
    let (node, task_manager) = (text("node")?, text("taskManager")?);
    let (action, cause) = (text("action")?, text("cause")?);
    let (item_type, id) = match (&node, &task_manager) {
        (Some(node), None) => (ItemType::Node, node),
        (None, Some(task_manager)) => (ItemType::TaskManager, task_manager),
        (Some(_), Some(_)) | (None, None) => {
            return Err("an item names a 'node' or a 'taskManager'".into());
        }
    };
    let key = ItemKey::new(item_type, id).map_err(|error| error.to_string())?;
    let action = action.map(|name| {
        BlocklistAction::from_wire_name(&name).ok_or_else(|| {
            format!("'action' is neither {}", BlocklistAction::WIRE_NAMES.join(" nor "))
        })
    });
    let action = action.transpose()?.unwrap_or_default();
    let timeout = match fields.remove("timeoutMs") {
        None | Some(Value::Null) => None,
        Some(number) => {
            let millis = number.as_u64().filter(|millis| *millis > 0);
            Some(Duration::from_millis(millis.ok_or("'timeoutMs' is no number above 0")?))
        }
    };
    refuse_others(&fields)?;
    Ok(Wanted { key, action, timeout, cause })
}

fn refuse_others(fields: &Map<String, Value>) -> Result<(), String> {
    match fields.keys().next() {
        Some(name) => {
            let name: String = name.chars().take(64).collect();
            Err(format!("unknown field '{name}'"))
        }
        None => Ok(()),
    }
}
