//! `tidegate jobs`, `taskmanagers`, `savepoint` and `stop`, through the REST interface.

use std::io::Write;
use std::path::PathBuf;

use clap::ArgMatches;
use serde_json::{Value, json};

use super::remote::Remote;
use super::table::{cell, table};
use super::{FAILED, no_output, put};
use crate::error::{Error, Result};

/// So many entries are asked for at a time.
const PAGE: usize = 1000;

/// `tidegate jobs`.
pub(super) fn list(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let jobs = all(&Remote::of(matches)?, "/jobs/overview", "jobs")?;
    if matches.get_flag("json") {
        put(out, &Value::Array(jobs))?;
        return Ok(0);
    }
    let row = |job: &Value| {
        [cell(&job["jid"]), cell(&job["name"]), cell(&job["state"]), cell(&job["tasks"]["total"])]
    };
    table(out, ["ID", "NAME", "STATE", "TASKS"], &jobs.iter().map(row).collect::<Vec<_>>())?;
    Ok(0)
}

/// `tidegate taskmanagers`.
pub(super) fn task_managers(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let found = all(&Remote::of(matches)?, "/taskmanagers", "taskmanagers")?;
    if matches.get_flag("json") {
        put(out, &Value::Array(found))?;
        return Ok(0);
    }
    let row = |tm: &Value| {
        ["id", "nodeId", "nodePool", "slotsNumber", "freeSlots", "blocklisted", "subtasks"]
            .map(|name| cell(&tm[name]))
    };
    let head = ["ID", "NODE", "POOL", "SLOTS", "FREE", "BLOCKLISTED", "SUBTASKS"];
    table(out, head, &found.iter().map(row).collect::<Vec<_>>())?;
    Ok(0)
}

/// All entries of a list, page by page.
fn all(remote: &Remote, path: &str, list: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    loop {
        let mut found = remote.get(&format!("{path}?offset={}&limit={PAGE}", all.len()))?;
        let Value::Array(items) = found[list].take() else { return Ok(all) };
        let is_last = items.len() < PAGE;
        all.extend(items);
        if is_last {
            return Ok(all);
        }
    }
}

/// `tidegate savepoint`.
pub(super) fn savepoint(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let directory = directory(matches, "dir")?;
    let body = json!({ "target-directory": directory });
    let outcome = Remote::of(matches)?.trigger(job(matches), "savepoints", &body)?;
    tell(matches, out, &outcome)
}

/// `tidegate stop`.
pub(super) fn stop(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let mut body = json!({});
    if matches.contains_id("savepoint") {
        let drain = matches.get_flag("drain");
        body = json!({ "targetDirectory": directory(matches, "savepoint")?, "drain": drain });
    }
    let outcome = Remote::of(matches)?.trigger(job(matches), "stop", &body)?;
    tell(matches, out, &outcome)
}

fn job(matches: &ArgMatches) -> &String {
    matches.get_one("job").expect("the argument is required")
}

/// A folder, from here if it says no more.
fn directory(matches: &ArgMatches, name: &str) -> Result<PathBuf> {
    let path: &PathBuf = matches.get_one(name).expect("it is there");
    std::path::absolute(path).map_err(|error| Error::io(path, "is no path", error))
}

/// Tells an outcome, which is also the exit code.
fn tell(matches: &ArgMatches, out: &mut dyn Write, outcome: &Value) -> Result<u8> {
    let code = match outcome["outcome"].as_str() {
        Some("COMPLETED" | "STOPPED" | "STOPPING") => 0,
        Some(_) | None => FAILED,
    };
    if matches.get_flag("json") {
        put(out, outcome)?;
        return Ok(code);
    }
    let place = match cell(&outcome["location"]) {
        place if place.is_empty() => String::new(),
        place => format!(" {place}"),
    };
    let text = match outcome["outcome"].as_str().unwrap_or_default() {
        "COMPLETED" => format!("savepoint{place}"),
        "STOPPED" => format!("stopped{place}"),
        "STOPPING" => "the job is over, or its program: the server is gone".to_owned(),
        "SIDE_EFFECTS_PENDING" => {
            format!("failed behind its savepoint; start from{place} to make its results visible")
        }
        _ => format!("failed: {}", cell(&outcome["failure-cause"]["stack-trace"])),
    };
    writeln!(out, "{text}").map_err(no_output)?;
    Ok(code)
}
