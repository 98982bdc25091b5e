//! Writes responses: the FLIP's fields, and after them our own.

use serde_json::{Value, json};

use crate::control::blocklist::item::{BlocklistAction, BlocklistedItem, ItemKey, Origin};
use crate::control::moment::Moment;
use crate::control::resource_manager::ResourceManager;

/// The body of `GET /blocklist`.
pub(super) fn list(rm: &mut ResourceManager) -> Value {
    let snapshot = rm.blocklist_mut().snapshot();
    let (mut task_managers, mut nodes) = (Vec::new(), Vec::new());
    for found in snapshot.items() {
        let mut value = item(found);
        match &found.key {
            ItemKey::TaskManager(_) => task_managers.push(value),
            ItemKey::Node(node) => {
                let on: Vec<_> =
                    snapshot.task_managers_on(node).iter().map(|id| id.as_str()).collect();
                value["taskManagers"] = json!(on);
                nodes.push(value);
            }
        }
    }
    json!({ "blocklistedTaskManagers": task_managers, "blocklistedNodes": nodes })
}

/// One item. Timestamps are strings, as the FLIP has them.
pub(super) fn item(item: &BlocklistedItem) -> Value {
    json!({
        "id": item.key.identifier(),
        "timestamp": item.timestamp.0.to_string(),
        "action": item.action.wire_name(),
        "endTimestamp": item.end().0.to_string(),
        "cause": item.cause.message(),
        "origin": item.origin.name(),
    })
}

/// Whether a task manager or node is known.
pub(super) fn is_known(rm: &ResourceManager, key: &ItemKey) -> bool {
    match key {
        ItemKey::TaskManager(id) => rm.task_managers().contains_key(id),
        ItemKey::Node(node) => rm.task_managers().values().any(|at| at == node),
    }
}

/// What adding these keys would hit.
pub(super) fn dry_run(rm: &ResourceManager, keys: &[&ItemKey]) -> Value {
    let hit = rm.task_managers().iter().filter(|(id, node)| {
        keys.iter().any(|key| match key {
            ItemKey::TaskManager(named) => named == *id,
            ItemKey::Node(named) => named == *node,
        })
    });
    let hit: Vec<&str> = hit.map(|(id, _)| id.as_str()).collect();
    let overview = rm.overview();
    json!({
        "taskManagers": hit,
        "freeSlots": overview.free_slots,
        "actions": BlocklistAction::WIRE_NAMES,
    })
}

/// One line of the audit log.
pub(super) fn audit(
    now: Moment,
    what: &str,
    key: &ItemKey,
    by: &Origin,
    old: Option<Value>,
    new: Option<Value>,
) -> Value {
    let principal = match by {
        Origin::Rest { principal } => principal.as_str(),
        Origin::Strategy { .. } | Origin::Remote | Origin::External { .. } => by.name(),
    };
    json!({
        "timestamp": now.wall.0.to_string(),
        "operation": what,
        "type": key.item_type().wire_name(),
        "id": key.identifier(),
        "principal": principal,
        "old": old,
        "new": new,
    })
}
