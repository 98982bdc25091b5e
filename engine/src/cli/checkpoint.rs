//! `tidegate checkpoint`: looks at checkpoints and savepoints without running a job.
//!
//! Nothing is changed and no ownership is taken, so a running job is not disturbed; what it removes meanwhile is told as missing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ArgMatches;
use serde_json::{Value, json};

use super::{BAD, no_output, put};
use crate::error::{Error, ErrorKind, Result};
use crate::state::directory::DirectoryStore;
use crate::state::manifest::{CheckpointMeta, OperatorMeta, OperatorState, SnapshotKind};
use crate::state::store::{EntryKind, SnapshotStore};
use crate::state::verify::{Verified, inspect, verify};

/// A directory with snapshots, and their folders in it, oldest first; "" if the directory is a snapshot itself.
struct Place {
    store: Arc<dyn SnapshotStore>,
    folders: Vec<String>,
}

impl Place {
    fn of(matches: &ArgMatches) -> Result<Self> {
        let dir: &PathBuf = matches.get_one("dir").expect("the argument is required");
        let is_folder =
            std::fs::metadata(dir).map_err(|e| Error::io(dir, "can't be read", e))?.is_dir();
        if !is_folder {
            return Err(Error::config("is no directory").at_path(dir));
        }
        let store: Arc<dyn SnapshotStore> = Arc::new(DirectoryStore::new(dir));
        let entries = store.list("")?;
        if entries.iter().any(|entry| entry.name == "MANIFEST") {
            return Ok(Self { store, folders: vec![String::new()] });
        }
        let number = |name: &str| name.rsplit_once('-').and_then(|(_, id)| id.parse::<u64>().ok());
        let mut folders: Vec<(bool, Option<u64>, String)> = entries
            .into_iter()
            .filter(|entry| entry.kind == EntryKind::Folder)
            .filter(|entry| entry.name.starts_with("chk-") || entry.name.starts_with("savepoint-"))
            .map(|entry| (entry.name.starts_with("chk-"), number(&entry.name), entry.name))
            .collect();
        folders.sort();
        Ok(Self { store, folders: folders.into_iter().map(|(_, _, name)| name).collect() })
    }

    /// The folder that the user names by id or by its own name.
    fn named(&self, id: &str) -> Result<String> {
        let is_it = |folder: &&String| **folder == id || **folder == format!("chk-{id}");
        let missing = || {
            let message = format!("there is no checkpoint {id}");
            Error::new(ErrorKind::Checkpoint, message).at_path(self.store.location())
        };
        self.folders.iter().find(is_it).cloned().ok_or_else(missing)
    }

    fn path(&self, folder: &str) -> PathBuf {
        let root: &Path = self.store.location();
        if folder.is_empty() { root.to_owned() } else { root.join(folder) }
    }
}

pub(super) fn list(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let place = Place::of(matches)?;
    let mut code = 0;
    let mut rows = Vec::new();
    for folder in &place.folders {
        let row = match inspect(&place.store, folder) {
            Ok(found) => {
                let meta = &found.meta;
                json!({
                    "folder": folder, "id": meta.id.0, "kind": kind(meta), "job": meta.job,
                    "triggered_at": meta.triggered_at.to_string(), "bytes": bytes(meta),
                    "files": meta.files.len(),
                })
            }
            Err(error) => {
                code = BAD;
                json!({ "folder": folder, "error": error.to_string() })
            }
        };
        rows.push(row);
    }
    if matches.get_flag("json") {
        put(out, &Value::Array(rows))?;
        return Ok(code);
    }
    let text = |row: &Value, key: &str| match &row[key] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    };
    let line = |out: &mut dyn Write, cells: [&str; 6]| {
        let [id, kind, triggered, files, bytes, rest] = cells;
        writeln!(out, "{id:>8}  {kind:<17}  {triggered:<24}  {files:>5}  {bytes:>14}  {rest}")
            .map_err(no_output)
    };
    line(out, ["ID", "KIND", "TRIGGERED", "FILES", "BYTES", "FOLDER"])?;
    for row in &rows {
        if let Some(error) = row["error"].as_str() {
            line(out, ["-", "bad", "", "", "", &format!("{}: {error}", text(row, "folder"))])?;
        } else {
            let cells = ["id", "kind", "triggered_at", "files", "bytes", "folder"];
            let [id, kind, triggered, files, bytes, folder] = cells.map(|key| text(row, key));
            line(out, [&id, &kind, &triggered, &files, &bytes, &folder])?;
        }
    }
    Ok(code)
}

pub(super) fn show(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let place = Place::of(matches)?;
    let folder = match matches.get_one::<String>("id") {
        Some(id) => place.named(id)?,
        None => place.folders.last().cloned().ok_or_else(|| {
            Error::new(ErrorKind::Checkpoint, "there is no checkpoint")
                .at_path(place.store.location())
        })?,
    };
    let found = inspect(&place.store, &folder)?;
    if !matches.get_flag("json") {
        write!(out, "{found}").map_err(no_output)?;
        return Ok(0);
    }
    let meta = &found.meta;
    let files: Vec<Value> = meta
        .files
        .iter()
        .map(|file| json!({ "name": &*file.name, "bytes": file.bytes, "crc32c": file.crc }))
        .collect();
    let vertices: Vec<Value> = meta
        .vertices
        .iter()
        .map(|vertex| {
            json!({
                "id": vertex.id.0, "name": vertex.name, "parallelism": vertex.parallelism,
                "max_parallelism": vertex.max_parallelism,
                "operators": vertex.operators.iter().map(operator).collect::<Vec<_>>(),
            })
        })
        .collect();
    let value = json!({
        "path": found.path.to_string_lossy(), "job": meta.job, "id": meta.id.0, "kind": kind(meta),
        "fingerprint": meta.fingerprint, "owner_epoch": meta.owner_epoch,
        "triggered_at": meta.triggered_at.to_string(), "completed_at": meta.completed_at.to_string(),
        "bytes": bytes(meta), "files": files, "vertices": vertices,
    });
    put(out, &value)?;
    Ok(0)
}

fn operator(operator: &OperatorMeta) -> Value {
    let (state, subtasks) = match &operator.state {
        OperatorState::None => ("none", 0),
        OperatorState::Subtasks(subtasks) => ("subtasks", subtasks.len()),
        OperatorState::FullyFinished { parallelism, .. } => ("finished", *parallelism as usize),
    };
    json!({ "name": operator.name, "state": state, "subtasks": subtasks })
}

pub(super) fn check(matches: &ArgMatches, out: &mut dyn Write) -> Result<u8> {
    let place = Place::of(matches)?;
    let folders = match matches.get_one::<String>("id") {
        Some(id) => vec![place.named(id)?],
        None => place.folders.clone(),
    };
    let is_json = matches.get_flag("json");
    let (mut code, mut rows) = (0, Vec::new());
    for folder in &folders {
        let path = place.path(folder);
        let path = path.display();
        let (line, row) = match verify(&place.store, folder) {
            Ok(Verified { files, blocks, bytes }) => (
                format!("{path}: sound: {files} files, {blocks} blocks, {bytes} bytes"),
                json!({ "folder": folder, "sound": true, "files": files, "blocks": blocks, "bytes": bytes }),
            ),
            Err(error) => {
                code = BAD;
                let row = json!({ "folder": folder, "sound": false, "error": error.to_string() });
                (format!("{path}: bad: {error}"), row)
            }
        };
        if !is_json {
            writeln!(out, "{line}").map_err(no_output)?;
        }
        rows.push(row);
    }
    if is_json {
        put(out, &Value::Array(rows))?;
    }
    Ok(code)
}

fn kind(meta: &CheckpointMeta) -> &'static str {
    match meta.kind {
        SnapshotKind::Checkpoint => "checkpoint",
        SnapshotKind::Savepoint { drained: false } => "savepoint",
        SnapshotKind::Savepoint { drained: true } => "drained savepoint",
    }
}

fn bytes(meta: &CheckpointMeta) -> u64 {
    meta.files.iter().map(|file| file.bytes).sum()
}
