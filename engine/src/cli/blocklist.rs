//! `tidegate blocklist`: what is kept off, through the REST interface.

use std::io::Write;

use clap::ArgMatches;
use serde_json::{Value, json};

use super::remote::Remote;
use super::table::{cell, table};
use super::{no_output, put};
use crate::control::blocklist::item::BlocklistAction;
use crate::error::{Error, Result};

/// So many items are asked for at a time.
const PAGE: usize = 10_000;
const GROUPS: [&str; 2] = ["blocklistedTaskManagers", "blocklistedNodes"];

/// `tidegate blocklist list`.
pub(super) fn list(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let remote = Remote::of(matches)?;
    let mut all = [Vec::new(), Vec::new()];
    for page in 0.. {
        let path = format!("/blocklist?offset={}&limit={PAGE}", page * PAGE);
        let mut found = remote.get(&path)?;
        let mut is_last = true;
        for (all, group) in all.iter_mut().zip(GROUPS) {
            let Value::Array(items) = found[group].take() else { continue };
            is_last &= items.len() < PAGE;
            all.extend(items);
        }
        if is_last {
            break;
        }
    }
    let [task_managers, nodes] = all;
    if matches.get_flag("json") {
        put(out, &json!({ "blocklistedTaskManagers": task_managers, "blocklistedNodes": nodes }))?;
        return Ok(0);
    }
    let row = |kind: &str, item: &Value| {
        let field = |name: &str| cell(&item[name]);
        let on = field("taskManagers");
        [
            kind.to_owned(),
            field("id"),
            field("action"),
            field("endTimestamp"),
            field("origin"),
            field("cause"),
            on,
        ]
    };
    let rows: Vec<_> = nodes
        .iter()
        .map(|item| row("node", item))
        .chain(task_managers.iter().map(|item| row("task manager", item)))
        .collect();
    table(out, ["TYPE", "ID", "ACTION", "UNTIL (MS)", "ORIGIN", "CAUSE", "TASK MANAGERS"], &rows)?;
    Ok(0)
}

/// `tidegate blocklist add`.
pub(super) fn add(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let action = if matches.get_flag("evacuate") {
        BlocklistAction::MarkAndEvacuate
    } else {
        BlocklistAction::MarkBlocklisted
    };
    let entry = |id: &String| {
        let mut entry = json!({ "id": id, "action": action.wire_name() });
        for name in ["timeout", "cause"] {
            if let Some(text) = matches.get_one::<String>(name) {
                entry[name] = json!(text);
            }
        }
        entry
    };
    let (task_managers, nodes) = named(matches, entry)?;
    let body = json!({ "newBlocklistedTaskManagers": task_managers, "newBlocklistedNodes": nodes });
    let mut path = "/blocklist/add?verbose=true".to_owned();
    for (name, parameter) in [("force", "force"), ("dry-run", "dryRun")] {
        if matches.get_flag(name) {
            path.push_str(&format!("&{parameter}=true"));
        }
    }
    let told = Remote::of(matches)?.post(&path, &body)?;
    if matches.get_flag("json") {
        put(out, &told)?;
        return Ok(0);
    }
    let count = task_managers.len() + nodes.len();
    if let Some(would) = told.get("dryRun") {
        let (hit, free) = (cell(&would["taskManagers"]), cell(&would["freeSlots"]));
        writeln!(out, "would blocklist {count}; task managers: {hit}; free slots: {free}")
            .map_err(no_output)?;
    } else {
        writeln!(out, "blocklisted {count}").map_err(no_output)?;
    }
    for warning in told["warnings"].as_array().into_iter().flatten() {
        writeln!(out, "warning: {}", cell(warning)).map_err(no_output)?;
    }
    Ok(0)
}

/// `tidegate blocklist remove`.
pub(super) fn remove(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let (task_managers, nodes) = named(matches, |id| json!({ "id": id }))?;
    let body = json!({
        "blocklistedTaskManagersToRemove": task_managers,
        "blocklistedNodesToRemove": nodes,
    });
    let ignore = if matches.get_flag("ignore-missing") { "?ignoreMissing=true" } else { "" };
    let told = Remote::of(matches)?.post(&format!("/blocklist/remove{ignore}"), &body)?;
    if matches.get_flag("json") {
        put(out, &told)?;
    } else {
        let count = task_managers.len() + nodes.len();
        writeln!(out, "taken back {count}").map_err(no_output)?;
    }
    Ok(0)
}

/// The entries of the task managers and nodes that a command names.
fn named(
    matches: &ArgMatches,
    entry: impl Fn(&String) -> Value,
) -> Result<(Vec<Value>, Vec<Value>)> {
    let of = |name| -> Vec<Value> {
        matches.get_many::<String>(name).into_iter().flatten().map(&entry).collect()
    };
    let (task_managers, nodes) = (of("task-manager"), of("node"));
    if task_managers.is_empty() && nodes.is_empty() {
        return Err(Error::config("name a --node or a --task-manager"));
    }
    Ok((task_managers, nodes))
}
