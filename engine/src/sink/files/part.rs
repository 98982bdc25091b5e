//! One file: written as an uncommitted part, sealed, and then known by its names, length and checksum.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use super::folder::Folder;
use crate::error::{Error, Result};
use crate::id::CheckpointId;
use crate::record::fields::{Fields, put_bytes, put_u64};

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Part {
    file: File,
    path: std::path::PathBuf,
    subtask: u32,
    number: u64,
    attempt: u32,
    /// Bytes written whole; an append that failed half-way is written again from here.
    len: u64,
    crc: u32,
}

impl Part {
    /// Makes a new file; there must be none of that name.
    pub(super) fn create(folder: &Folder, subtask: u32, number: u64, attempt: u32) -> Result<Self> {
        let path = folder.path().join(uncommitted_name(subtask, number, attempt));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|error| Error::io(&path, "can't create the file", error))?;
        Ok(Self { file, path, subtask, number, attempt, len: 0, crc: 0 })
    }

    /// Appends all of `bytes`, or nothing that counts.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, self.len)
            .map_err(|error| Error::io(&self.path, "can't write", error))?;
        self.len += bytes.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        Ok(())
    }

    /// Makes the bytes durable and closes the file.
    pub(super) fn seal(self, extension: &str) -> Result<Sealed> {
        // What an append that failed left behind the end does not belong to the file.
        self.file
            .set_len(self.len)
            .and_then(|()| self.file.sync_all())
            .map_err(|error| Error::io(&self.path, "can't make the file durable", error))?;
        Ok(Sealed {
            subtask: self.subtask,
            number: self.number,
            attempt: self.attempt,
            len: self.len,
            crc: self.crc,
            checkpoint: CheckpointId(0),
            extension: extension.to_owned(),
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }
}

/// A durable file that is committed by a rename, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sealed {
    subtask: u32,
    number: u64,
    attempt: u32,
    pub(super) len: u64,
    /// CRC32C of all bytes.
    pub(super) crc: u32,
    /// The first checkpoint that covers it; 0 for none.
    checkpoint: CheckpointId,
    extension: String,
}

const VERSION: u8 = 2;

impl Sealed {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        let Self { subtask, number, attempt, len, crc, checkpoint, .. } = *self;
        for n in [subtask.into(), number, attempt.into(), len, crc.into(), checkpoint.0] {
            put_u64(&mut bytes, n);
        }
        put_bytes(&mut bytes, self.extension.as_bytes());
        bytes
    }

    /// Reads what a checkpoint holds. Names are made of its numbers, so it can't point out of the folder.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let mut fields = Fields::versioned(bytes, VERSION, "a prepared part")?;
        let (subtask, number, attempt) = (fields.u32()?, fields.u64()?, fields.u32()?);
        let (len, crc) = (fields.u64()?, fields.u32()?);
        let (checkpoint, extension) = (CheckpointId(fields.u64()?), fields.bytes()?);
        let extension = std::str::from_utf8(extension)
            .ok()
            .filter(|e| !e.is_empty() && !e.contains(['/', '\0']))
            .ok_or_else(|| fields.malformed())?;
        let extension = extension.to_owned();
        fields.end()?;
        Ok(Self { subtask, number, attempt, len, crc, checkpoint, extension })
    }

    /// Notes the first checkpoint that covers it.
    pub(super) fn covered_by(self, checkpoint: CheckpointId) -> Self {
        Self { checkpoint, ..self }
    }

    pub(super) fn uncommitted_name(&self) -> String {
        uncommitted_name(self.subtask, self.number, self.attempt)
    }

    pub(super) fn committed_name(&self) -> String {
        let Self { subtask, number, extension, .. } = self;
        match self.checkpoint {
            CheckpointId(0) => format!("part-{subtask}-{number}.{extension}"),
            checkpoint => format!("part-{subtask}-{number}.{checkpoint}.{extension}"),
        }
    }
}

/// A committable as it lies in a checkpoint; for those who change it.
#[cfg(feature = "simulation")]
pub fn prepared_sample() -> Vec<u8> {
    let (subtask, number, attempt, len, crc) = (3, 7, 1, 100, 0xABCD);
    let (checkpoint, extension) = (CheckpointId(9), "csv".to_owned());
    Sealed { subtask, number, attempt, len, crc, checkpoint, extension }.encode()
}

/// Reads a committable and writes it again; for those who feed it bytes from anywhere.
#[cfg(feature = "simulation")]
pub fn prepared_again(bytes: &[u8]) -> Result<Vec<u8>> {
    Sealed::parse(bytes).map(|sealed| sealed.encode())
}

/// Subtask, number and whether it is committed, if it is the name of a part.
#[cfg(feature = "simulation")]
pub fn part_name(name: &str) -> Option<(u32, u64, bool)> {
    parse_name(name)
}

fn uncommitted_name(subtask: u32, number: u64, attempt: u32) -> String {
    format!(".part-{subtask}-{number}.{attempt}")
}

/// The subtask and number in a committed or uncommitted name, and whether it is committed.
pub(super) fn parse_name(name: &str) -> Option<(u32, u64, bool)> {
    let (name, committed) = match name.strip_prefix('.') {
        Some(rest) => (rest, false),
        None => (name, true),
    };
    let (numbers, end) = name.strip_prefix("part-")?.split_once('.')?;
    let (subtask, number) = numbers.split_once('-')?;
    let exact = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !exact(subtask) || !exact(number) || !committed && (end.is_empty() || !exact(end)) {
        return None;
    }
    Some((subtask.parse().ok()?, number.parse().ok()?, committed))
}

/// The first checkpoint that covers a committed part, by its name; `None` if it is no such part, or none covers it.
pub(super) fn checkpoint_of(name: &str) -> Option<CheckpointId> {
    let (_, _, is_committed) = parse_name(name)?;
    let (_, end) = name.split_once('.').filter(|_| is_committed)?;
    numbered(end)
}

/// The number that a dot follows at the beginning of `end`.
pub(super) fn numbered(end: &str) -> Option<CheckpointId> {
    let (number, _) = end.split_once('.')?;
    let is_number = number.bytes().all(|b| b.is_ascii_digit());
    number.parse().ok().filter(|_| is_number).map(CheckpointId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_that_fails_can_be_done_again_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("makes a folder");
        let folder = Folder::open(dir.path()).expect("opens");
        let mut part = Part::create(&folder, 0, 0, 0).expect("creates");
        part.append(b"one\n").expect("appends");
        let readable = File::open(&part.path).expect("opens");
        let writable = std::mem::replace(&mut part.file, readable);
        part.append(b"two\n").expect_err("is refused");
        part.file = writable;
        // As if half of it had come through.
        part.file.write_all_at(b"tw", 4).expect("writes");
        part.append(b"2\n").expect("appends");
        part.file.write_all_at(b"behind", 6).expect("writes");
        let path = part.path.clone();
        let sealed = part.seal("txt").expect("seals");
        let content = std::fs::read(path).expect("reads");
        assert_eq!(content, b"one\n2\n");
        assert_eq!((sealed.len, sealed.crc), (6, crc32c::crc32c(&content)));
    }

    #[test]
    fn a_sealed_part_survives_its_encoding_and_every_truncation_is_refused() {
        let sealed = Sealed {
            subtask: 3,
            number: u64::MAX,
            attempt: 2,
            len: 9,
            crc: u32::MAX,
            checkpoint: CheckpointId(7),
            extension: "csv.1".to_owned(),
        };
        let bytes = sealed.encode();
        assert_eq!(Sealed::parse(&bytes).expect("parses"), sealed);
        for n in 0..bytes.len() {
            assert!(Sealed::parse(&bytes[..n]).is_err(), "cut to {n}");
        }
    }
}
