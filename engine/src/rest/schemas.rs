//! The schemas of bodies, for the description.

use serde_json::{Value, json};

use crate::control::blocklist::item::BlocklistAction;
use crate::control::identity::IDENTIFIER_BYTES_MAX;

/// All schemas by name.
pub(super) fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "integer", "minimum": 0 });
    let time = json!({ "type": "integer" });
    let maybe_text = json!({ "type": ["string", "null"] });
    let id = id();
    let action = json!({ "type": "string", "enum": BlocklistAction::WIRE_NAMES });
    let millis = json!({
        "description": "milliseconds since 1970",
        "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "string", "pattern": "^[0-9]{1,18}$" }],
    });
    let entry = |with_id: bool| {
        let mut schema = object(
            json!({
                "action": action,
                "cause": text,
                "timeout": {
                    "description": "milliseconds, or a duration like `10 min`; not beside `endTimestamp`",
                    "anyOf": [
                        { "type": "integer", "minimum": 1 },
                        { "type": "string", "pattern": "^[0-9]{1,9} ?(ms|s|min|h|d)$" },
                    ],
                },
                "endTimestamp": millis,
            }),
            &["action"],
        );
        schema["not"] = json!({ "required": ["timeout", "endTimestamp"] });
        if with_id {
            schema["properties"]["id"] = id.clone();
            schema["required"] = json!(["id", "action"]);
        }
        schema
    };
    let listed = |on_node: bool| {
        let mut schema = open(
            json!({
                "id": text, "timestamp": text, "action": action, "endTimestamp": text,
                "cause": text, "origin": text,
            }),
            &["id", "timestamp", "action"],
        );
        if on_node {
            schema["properties"]["taskManagers"] = list(&text);
        }
        schema
    };
    let removal = object(json!({ "id": id, "action": action }), &["id"]);
    let counts = json!({ "type": "object", "additionalProperties": number });
    let figures = open(
        json!({
            "read-records": number, "read-bytes": number, "read-buffers": number,
            "accumulated-busy-time": number, "accumulated-idle-time": number,
            "accumulated-backpressured-time": number, "queued-entries": number, "late-records": number,
        }),
        &["read-records"],
    );
    let vertex = open(
        json!({
            "id": text, "name": text, "parallelism": number, "status": text, "metrics": figures,
        }),
        &["id", "name", "parallelism"],
    );
    let checkpoint = open(
        json!({
            "id": number, "status": text, "is_savepoint": { "type": "boolean" },
            "trigger_timestamp": number, "latest_ack_timestamp": number, "state_size": number,
            "end_to_end_duration": number, "alignment_duration": number,
        }),
        &["id", "status"],
    );
    let statistics = open(json!({ "min": number, "max": number, "avg": number }), &[]);
    let task_manager = open(
        json!({
            "id": text, "nodeId": text, "nodePool": text, "slotsNumber": number,
            "freeSlots": number, "blocklisted": maybe_text, "subtasks": list(&text),
        }),
        &["id", "nodeId", "nodePool", "slotsNumber", "freeSlots"],
    );
    json!({
        "Any": { "type": "object" },
        "Empty": object(json!({}), &[]),
        "Errors": object(json!({ "errors": list(&text) }), &["errors"]),
        "AddToBlocklist":
            one_of(["newBlocklistedTaskManagers", "newBlocklistedNodes"], &entry(true)),
        "RemoveFromBlocklist":
            one_of(["blocklistedTaskManagersToRemove", "blocklistedNodesToRemove"], &removal),
        "Item": entry(false),
        "Added": open(json!({ "warnings": list(&text), "dryRun": { "type": "object" } }), &[]),
        "Blocklist": open(json!({
            "blocklistedTaskManagers": list(&listed(false)),
            "blocklistedNodes": list(&listed(true)),
        }), &["blocklistedTaskManagers", "blocklistedNodes"]),
        "Jobs": open(json!({
            "jobs": list(&open(json!({ "id": text, "status": text }), &["id", "status"])),
            "total": number,
        }), &["jobs"]),
        "JobsOverview": open(json!({
            "jobs": list(&open(
                json!({
                    "jid": text, "name": text, "state": text, "tasks": counts,
                    "start-time": time, "end-time": time, "duration": number,
                    "last-modification": time,
                }),
                &["jid", "name", "state"],
            )),
            "total": number,
        }), &["jobs"]),
        "Job": open(json!({
            "jid": text, "name": text, "state": text, "now": number, "restarts": number,
            "start-time": time, "end-time": time, "duration": number,
            "last-failure": maybe_text, "vertices": list(&vertex), "total": number,
            "status-counts": counts,
        }), &["jid", "name", "state", "vertices"]),
        "Plan": open(json!({ "text": text, "dot": text }), &["text", "dot"]),
        "Checkpoints": open(json!({
            "counts": counts,
            "summary": open(json!({
                "state_size": statistics, "end_to_end_duration": statistics,
                "alignment_duration": statistics,
            }), &[]),
            "latest": open(json!({
                "completed": { "anyOf": [checkpoint, { "type": "null" }] },
                "failed": { "anyOf": [{ "type": "object" }, { "type": "null" }] },
            }), &[]),
            "history": list(&checkpoint),
            "total": number,
        }), &["counts", "history"]),
        "TakeSavepoint": object(json!({ "target-directory": directory() }), &["target-directory"]),
        "Stop": object(
            json!({ "targetDirectory": directory(), "drain": { "type": "boolean" } }),
            &[],
        ),
        "Triggered": object(json!({ "request-id": text }), &["request-id"]),
        "TriggerStatus": open(json!({
            "status": object(
                json!({ "id": { "type": "string", "enum": ["IN_PROGRESS", "COMPLETED"] } }),
                &["id"],
            ),
            "operation": open(json!({
                "location": text, "checkpointId": number,
                "outcome": {
                    "type": "string",
                    "enum": ["COMPLETED", "STOPPED", "SIDE_EFFECTS_PENDING", "FAILED"],
                },
                "failure-cause": open(json!({ "class": text, "stack-trace": text }), &[]),
            }), &[]),
        }), &["status"]),
        "TaskManagers": open(
            json!({ "taskmanagers": list(&task_manager), "total": number }),
            &["taskmanagers"],
        ),
        "TaskManager": task_manager,
        "Events": open(json!({
            "events": list(&open(
                json!({ "number": number, "timestamp": text, "event": text }),
                &["number", "timestamp", "event"],
            )),
            "total": number,
        }), &["events"]),
        "Config": open(json!({
            "options": list(&open(
                json!({ "key": text, "value": text, "origin": text }),
                &["key", "value"],
            )),
        }), &["options"]),
        "Health": open(json!({ "status": text, "jobState": text }), &["status"]),
    })
}

/// An id of a task manager or node.
pub(super) fn id() -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": IDENTIFIER_BYTES_MAX,
        "pattern": "^[^\\s\\x00-\\x1f\\x7f]+$",
    })
}

fn directory() -> Value {
    json!({
        "type": "string",
        "description": "an absolute path on the machine where the job runs",
        "pattern": "^/",
        "maxLength": super::triggers::DIRECTORY_BYTES_MAX,
    })
}

fn list(items: &Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// Two lists of which at least one has entries.
fn one_of(names: [&str; 2], entry: &Value) -> Value {
    let mut schema = object(json!({ names[0]: list(entry), names[1]: list(entry) }), &[]);
    let filled =
        |name: &str| json!({ "required": [name], "properties": { name: { "minItems": 1 } } });
    schema["anyOf"] = json!(names.map(filled));
    schema
}

/// An object with these fields and no others.
fn object(properties: Value, required: &[&str]) -> Value {
    let mut schema = open(properties, required);
    schema["additionalProperties"] = json!(false);
    schema
}

/// An object that may have more fields in a later version.
fn open(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}
