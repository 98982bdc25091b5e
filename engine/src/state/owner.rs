//! Who owns a store, and up to which number checkpoint ids are taken: two small text files.
//!
//! Both are lines of `name value` that end with a checksum, are written by `put`, and are read strictly: what is
//! not exactly as it would be written is damaged. Called by `snapshots` only.

use std::fmt::Write;
use std::path::Path;

use super::store::{EntryKind, ObjectName, SnapshotStore, read_whole};
use crate::error::{Error, ErrorKind, Result};
use crate::id::CheckpointId;

/// The job that wants to own a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The job's name: a store belongs to one name for good.
    pub job: String,
    /// The job graph's fingerprint, as text; it may change from one owner to the next.
    pub fingerprint: String,
}

/// What `OWNER` tells of the last owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRecord {
    /// The job.
    pub owner: Owner,
    /// Raised by 1 with each new owner, from 1.
    pub epoch: u64,
    /// The owner's process.
    pub pid: u32,
}

impl OwnerRecord {
    fn text(&self) -> String {
        let Owner { job, fingerprint } = &self.owner;
        sealed(&format!(
            "{OWNER_TITLE}\njob {}\nfingerprint {}\nepoch {}\npid {}\n",
            escaped(job),
            escaped(fingerprint),
            self.epoch,
            self.pid
        ))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().skip(1);
        let mut field = |name: &str| lines.next()?.strip_prefix(name);
        let record = Self {
            owner: Owner {
                job: unescaped(field("job ")?)?,
                fingerprint: unescaped(field("fingerprint ")?)?,
            },
            epoch: field("epoch ")?.parse().ok()?,
            pid: field("pid ")?.parse().ok()?,
        };
        (record.text() == text).then_some(record)
    }
}

/// Why there is nothing to go on with by itself: the content of `ENDED`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The job has ended.
    Ended,
    /// The job was stopped with a savepoint, of which this is the folder.
    Savepoint(String),
    /// Somebody has begun to go back to an earlier snapshot, which this names, and has not come to the end of it.
    GoingBack(String),
}

impl End {
    fn text(&self) -> String {
        match self {
            Self::Ended => String::new(),
            Self::Savepoint(folder) => {
                sealed(&format!("{END_TITLE}\nsavepoint {}\n", escaped(folder)))
            }
            Self::GoingBack(to) => sealed(&format!("{END_TITLE}\nback {}\n", escaped(to))),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let end = match text.lines().nth(1).and_then(|line| line.split_once(' ')) {
            Some(("savepoint", folder)) => Self::Savepoint(unescaped(folder)?),
            Some(("back", to)) => Self::GoingBack(unescaped(to)?),
            Some(_) | None => Self::Ended,
        };
        (end.text() == text).then_some(end)
    }
}

/// Reads `ENDED`; `None` if the job goes on.
pub(crate) fn read_end(store: &dyn SnapshotStore) -> Result<Option<End>> {
    read(store, ENDED, End::parse)
}

/// Writes `ENDED`, or removes it.
pub(crate) fn write_end(store: &dyn SnapshotStore, end: Option<&End>) -> Result<()> {
    let name = ObjectName::parse(ENDED)?;
    match end {
        Some(end) => Ok(store.put(&name, end.text().as_bytes())?),
        None => store.remove(&name),
    }
}

/// Reads `OWNER`; `None` if nobody has owned the store so far.
pub(crate) fn read_owner(store: &dyn SnapshotStore) -> Result<Option<OwnerRecord>> {
    read(store, OWNER, OwnerRecord::parse)
}

/// Writes `OWNER`.
pub(crate) fn write_owner(store: &dyn SnapshotStore, record: &OwnerRecord) -> Result<()> {
    Ok(store.put(&ObjectName::parse(OWNER)?, record.text().as_bytes())?)
}

/// Reads the first id that was never reserved; 1 if none was.
pub(crate) fn read_next_id(store: &dyn SnapshotStore) -> Result<CheckpointId> {
    let parse = |text: &str| {
        let next = CheckpointId(text.lines().nth(1)?.strip_prefix("next ")?.parse().ok()?);
        (next_id_text(next) == text).then_some(next)
    };
    Ok(read(store, NEXT_ID, parse)?.unwrap_or(CheckpointId(1)))
}

/// Writes the first id that is not reserved.
pub(crate) fn write_next_id(store: &dyn SnapshotStore, next: CheckpointId) -> Result<()> {
    Ok(store.put(&ObjectName::parse(NEXT_ID)?, next_id_text(next).as_bytes())?)
}

/// Reads one of the small files and writes what it says again; for those who feed it bytes from anywhere.
#[cfg(feature = "simulation")]
pub(crate) fn again(store: &dyn SnapshotStore, name: &str) -> Result<Option<Vec<u8>>> {
    match name {
        OWNER => match read_owner(store)? {
            Some(record) => write_owner(store, &record)?,
            None => return Ok(None),
        },
        NEXT_ID => write_next_id(store, read_next_id(store)?)?,
        _ => match read_end(store)? {
            Some(end) => write_end(store, Some(&end))?,
            None => return Ok(None),
        },
    }
    read_whole(store, &ObjectName::parse(name)?, TEXT_BYTES_MAX).map(Some)
}

fn next_id_text(next: CheckpointId) -> String {
    sealed(&format!("{NEXT_ID_TITLE}\nnext {next}\n"))
}

fn read<T>(
    store: &dyn SnapshotStore,
    name: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>> {
    let is_it = |e: &super::store::Entry| e.name == name && e.kind == EntryKind::Object;
    if !store.list("")?.iter().any(is_it) {
        return Ok(None);
    }
    let bytes = read_whole(store, &ObjectName::parse(name)?, TEXT_BYTES_MAX)?;
    let value = std::str::from_utf8(&bytes).ok().and_then(parse);
    let damaged = || damaged(&store.location().join(name));
    value.map(Some).ok_or_else(damaged)
}

fn damaged(path: &Path) -> Error {
    Error::new(ErrorKind::Checkpoint, "the file is damaged").at_path(path)
}

/// The text with a last line that sums it up.
fn sealed(text: &str) -> String {
    let mut sealed = text.to_owned();
    writeln!(sealed, "crc32c {:08x}", crc32c::crc32c(text.as_bytes())).expect("into memory");
    sealed
}

/// On one line, whatever the name is.
fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescaped(line: &str) -> Option<String> {
    let mut name = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        name.push(match c {
            '\\' => match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                '\\' => '\\',
                _ => return None,
            },
            c => c,
        });
    }
    Some(name)
}

/// The file that names the owner.
pub(crate) const OWNER: &str = "OWNER";
/// Says that there is nothing to go on with; empty if the job has ended.
pub(crate) const ENDED: &str = "ENDED";
/// The file that tells the next id.
pub(crate) const NEXT_ID: &str = "NEXT-ID";
const OWNER_TITLE: &str = "tidegate snapshots 1";
const NEXT_ID_TITLE: &str = "tidegate ids 1";
const END_TITLE: &str = "tidegate end 1";
const TEXT_BYTES_MAX: u64 = 64 << 10;
