//! A range of a file as a split: which file it was when the job started, and how far it has been read.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::Split;
use crate::error::{Error, ErrorKind, Result};
use crate::record::fields::{Fields, put_bytes, put_u64};

/// Tells whether a file is still the one that was there: its length and time of modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    len: u64,
    /// Nanoseconds since 1970; all bits of the signed number.
    modified: u64,
}

impl Fingerprint {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let modified =
            metadata.mtime().wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec());
        Self { len: metadata.len(), modified: modified.cast_unsigned() }
    }
}

/// The lines of a file that begin at `position` or behind it, and before `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileSplit {
    pub(super) path: PathBuf,
    pub(super) file: Fingerprint,
    /// Where the next line begins; at the start the range's beginning, in the middle of a line perhaps.
    /// Counted in uncompressed bytes.
    pub(super) position: u64,
    /// `u64::MAX` for a compressed file.
    pub(super) end: u64,
}

const VERSION: u8 = 1;

impl FileSplit {
    pub(super) fn encode(&self) -> Split {
        let mut bytes = vec![VERSION];
        put_bytes(&mut bytes, self.path.as_os_str().as_bytes());
        for n in [self.file.len, self.file.modified, self.position, self.end] {
            put_u64(&mut bytes, n);
        }
        Split(bytes)
    }

    pub(super) fn parse(split: &Split) -> Result<Self> {
        let mut fields = Fields::versioned(&split.0, VERSION, "a file's split")?;
        let path = PathBuf::from(OsStr::from_bytes(fields.bytes()?));
        let file = Fingerprint { len: fields.u64()?, modified: fields.u64()? };
        let (position, end) = (fields.u64()?, fields.u64()?);
        fields.end()?;
        Ok(Self { path, file, position, end })
    }

    /// Refuses a file that is not the one that the split was made of: offsets mean nothing in it.
    pub(super) fn check(&self, metadata: &Metadata) -> Result<()> {
        let found = Fingerprint::of(metadata);
        if found == self.file {
            return Ok(());
        }
        let what = if found.len == self.file.len {
            "it was modified".to_owned()
        } else {
            format!("it had {} bytes and has {}", self.file.len, found.len)
        };
        Err(Error::new(
            ErrorKind::Checkpoint,
            format!("the file changed since the job started: {what}"),
        )
        .at_path(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_survives_its_encoding_whatever_the_path() {
        let split = FileSplit {
            path: PathBuf::from(OsStr::from_bytes(b"in/\xFF name")),
            file: Fingerprint { len: 7, modified: u64::MAX },
            position: 3,
            end: 5,
        };
        let encoded = split.encode();
        assert_eq!(FileSplit::parse(&encoded).expect("parses"), split);
        for n in 0..encoded.0.len() {
            assert!(FileSplit::parse(&Split(encoded.0[..n].to_vec())).is_err(), "cut to {n}");
        }
    }
}
