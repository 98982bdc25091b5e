//! Reads request bodies, strictly: every unknown field, wrong type, double or bad id is an error, and all are told.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value};

use super::RestRequest;
use crate::clock::EpochMillis;
use crate::control::blocklist::cause::Cause;
use crate::control::blocklist::item::{BlocklistAction, ItemKey, ItemType, NewItem, Origin};
use crate::control::blocklist::options;
use crate::control::moment::{Moment, after};

type Errors = Vec<String>;

/// The most errors that are told.
const ERRORS_MAX: usize = 20;

/// One item to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Removal {
    pub(super) key: ItemKey,
    /// The action it must have.
    pub(super) action: Option<BlocklistAction>,
}

/// The items of `/blocklist/add`.
pub(super) fn add(
    now: Moment,
    request: &RestRequest<'_>,
    max_timeout: Duration,
) -> Result<Vec<NewItem>, Errors> {
    let groups = [
        ("newBlocklistedTaskManagers", ItemType::TaskManager),
        ("newBlocklistedNodes", ItemType::Node),
    ];
    entries(request, groups, |key, entry, errors| {
        new_item(now, request, max_timeout, key, entry, errors)
    })
}

/// The items of `/blocklist/remove`.
pub(super) fn remove(request: &RestRequest<'_>) -> Result<Vec<Removal>, Errors> {
    let groups = [
        ("blocklistedTaskManagersToRemove", ItemType::TaskManager),
        ("blocklistedNodesToRemove", ItemType::Node),
    ];
    entries(request, groups, |key, entry, errors| {
        let mut entry = entry.clone();
        let action = entry.remove("action").and_then(|action| read_action(&action, errors));
        refuse_unknown(&entry, errors);
        Some(Removal { key, action })
    })
}

/// The item of `PUT /blocklist/nodes/<id>`.
pub(super) fn put(
    now: Moment,
    request: &RestRequest<'_>,
    max_timeout: Duration,
    key: ItemKey,
) -> Result<NewItem, Errors> {
    let entry = object(request)?;
    let mut errors = Vec::new();
    let item = new_item(now, request, max_timeout, key, &entry, &mut errors);
    item.filter(|_| errors.is_empty()).ok_or(errors)
}

/// A text as an error may repeat it: short, and without control characters.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn object(request: &RestRequest<'_>) -> Result<Map<String, Value>, Errors> {
    match serde_json::from_slice(request.body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(vec!["the body must be a JSON object".into()]),
        Err(error) => Err(vec![format!("the body is not JSON: {error}")]),
    }
}

fn entries<T>(
    request: &RestRequest<'_>,
    groups: [(&str, ItemType); 2],
    mut read: impl FnMut(ItemKey, &Map<String, Value>, &mut Errors) -> Option<T>,
) -> Result<Vec<T>, Errors> {
    let mut body = object(request)?;
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for (name, item_type) in groups {
        let list = match body.remove(name) {
            None => continue,
            Some(Value::Array(list)) => list,
            Some(_) => {
                errors.push(format!("{name} must be an array"));
                continue;
            }
        };
        let mut seen = BTreeSet::new();
        for (index, entry) in list.iter().enumerate() {
            let Some(entry) = entry.as_object() else {
                errors.push(format!("{name}[{index}] must be an object"));
                continue;
            };
            let mut entry = entry.clone();
            let Some(Value::String(id)) = entry.remove("id") else {
                errors.push(format!("{name}[{index}]: 'id' must be a string"));
                continue;
            };
            match ItemKey::new(item_type, &id) {
                Err(error) => errors.push(format!("{name}[{index}]: '{}': {error}", shown(&id))),
                Ok(key) if !seen.insert(key.clone()) => {
                    errors.push(format!("{name}[{index}]: '{id}' is there twice"));
                }
                Ok(key) => {
                    let before = errors.len();
                    found.extend(read(key, &entry, &mut errors));
                    for error in &mut errors[before..] {
                        *error = format!("{name}[{index}]: {error}");
                    }
                }
            }
            if errors.len() >= ERRORS_MAX {
                return Err(errors);
            }
        }
    }
    refuse_unknown(&body, &mut errors);
    if errors.is_empty() && found.is_empty() {
        errors.push(format!("{} or {} must name something", groups[0].0, groups[1].0));
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}

fn new_item(
    now: Moment,
    request: &RestRequest<'_>,
    max_timeout: Duration,
    key: ItemKey,
    entry: &Map<String, Value>,
    errors: &mut Errors,
) -> Option<NewItem> {
    let mut entry = entry.clone();
    let action = match entry.remove("action") {
        Some(action) => read_action(&action, errors),
        None => {
            errors.push(format!("'action' is missing; it is {}", actions()));
            None
        }
    };
    let cause = match entry.remove("cause") {
        None => Cause::new("Rest", ""),
        Some(Value::String(text)) => Cause::new("Rest", &text),
        Some(_) => {
            errors.push("'cause' must be a string".into());
            Cause::default()
        }
    };
    let end_timestamp = match (entry.remove("timeout"), entry.remove("endTimestamp")) {
        (None, None) => None,
        (Some(_), Some(_)) => {
            errors.push("'timeout' and 'endTimestamp' exclude each other".into());
            None
        }
        (Some(timeout), None) => read_timeout(now, &timeout, max_timeout, errors),
        (None, Some(end)) => read_end(now, &end, errors),
    };
    refuse_unknown(&entry, errors);
    let origin = Origin::Rest { principal: request.principal.into() };
    Some(NewItem { key, action: action?, cause, end_timestamp, origin })
}

fn read_action(value: &Value, errors: &mut Errors) -> Option<BlocklistAction> {
    let action = value.as_str().and_then(BlocklistAction::from_wire_name);
    if action.is_none() {
        errors.push(format!("{} is no action; it is {}", shown(&value.to_string()), actions()));
    }
    action
}

fn actions() -> String {
    BlocklistAction::WIRE_NAMES.join(" or ")
}

/// A duration as text (`10 min`) or a number of milliseconds.
fn read_timeout(
    now: Moment,
    value: &Value,
    max_timeout: Duration,
    errors: &mut Errors,
) -> Option<EpochMillis> {
    let timeout = match value.as_str() {
        Some(text) => options::duration("timeout", text).ok(),
        None => value.as_u64().map(Duration::from_millis),
    };
    match timeout {
        Some(timeout) if !timeout.is_zero() && timeout <= max_timeout => {
            Some(after(now.wall, timeout))
        }
        Some(_) | None => {
            let most = max_timeout.as_secs();
            errors.push(format!("'timeout' must be a duration above 0 and at most {most} s"));
            None
        }
    }
}

/// Milliseconds since 1970, as a number or as text.
fn read_end(now: Moment, value: &Value, errors: &mut Errors) -> Option<EpochMillis> {
    let millis = match value.as_str() {
        Some(text) => text.parse().ok(),
        None => value.as_i64(),
    };
    let end = millis.map(EpochMillis).filter(|end| *end > now.wall);
    if end.is_none() {
        errors.push("'endTimestamp' must be milliseconds since 1970, in the future".into());
    }
    end
}

fn refuse_unknown(left: &Map<String, Value>, errors: &mut Errors) {
    errors.extend(left.keys().map(|field| format!("'{}' is unknown", shown(field))));
}
