//! A file as bytes: plain, or uncompressed on the way.
//!
//! What a file is compressed with is seen in its first bytes, whatever its name. Files are read with `read`, never
//! mapped: a mapped file that somebody truncates kills the process.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::lines;
use crate::error::{Error, Result};

/// How a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

/// An open file.
#[derive(Debug)]
pub(super) struct Input(Kind);

enum Kind {
    Plain(File),
    #[cfg_attr(not(any(feature = "gzip", feature = "zstd")), expect(dead_code))]
    Compressed(Box<dyn Read>),
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Compressed(_) => "Compressed",
        })
    }
}

impl Compression {
    /// What the file's first bytes say.
    ///
    /// # Errors
    /// The file can't be read, or it is compressed and the feature that reads it is off.
    pub(super) fn of(file: &File, path: &Path) -> Result<Self> {
        let mut magic = [0; 4];
        let mut n = 0;
        while n < magic.len() {
            match file.read_at(&mut magic[n..], n as u64) {
                Ok(0) => break,
                Ok(more) => n += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(path, "can't read", error)),
            }
        }
        let (found, is_enabled, feature) = match magic[..n] {
            [0x1F, 0x8B, ..] => (Self::Gzip, cfg!(feature = "gzip"), "gzip"),
            // A frame, or one to be skipped.
            [0x28, 0xB5, 0x2F, 0xFD] | [0x50..=0x5F, 0x2A, 0x4D, 0x18] => {
                (Self::Zstd, cfg!(feature = "zstd"), "zstd")
            }
            _ => return Ok(Self::None),
        };
        if is_enabled {
            return Ok(found);
        }
        Err(Error::config(format!(
            "the file is compressed with {feature}; build tidegate with the feature '{feature}'"
        ))
        .at_path(path))
    }
}

impl Input {
    /// The bytes of `file`, from its beginning.
    ///
    /// # Errors
    /// As [`Compression::of`].
    pub(super) fn new(file: File, path: &Path) -> Result<Self> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{Advice, fadvise};
            // Only a hint: a file system that takes none reads as well.
            let _ = fadvise(&file, 0, None, Advice::Sequential);
        }
        Ok(Self(match Compression::of(&file, path)? {
            Compression::None => Kind::Plain(file),
            #[cfg(feature = "gzip")]
            Compression::Gzip => {
                Kind::Compressed(Box::new(flate2::read::MultiGzDecoder::new(file)))
            }
            #[cfg(feature = "zstd")]
            Compression::Zstd => Kind::Compressed(Box::new(super::zstd::Zstd::new(file))),
            #[cfg(not(all(feature = "gzip", feature = "zstd")))]
            _ => unreachable!("a format whose feature is off was refused"),
        }))
    }
}

impl lines::Input for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(file) => file.read(into),
            Kind::Compressed(input) => input.read(into),
        }
    }

    fn seek(&mut self, offset: u64) -> io::Result<bool> {
        match &mut self.0 {
            Kind::Plain(file) => file.seek(SeekFrom::Start(offset)).map(|_| true),
            Kind::Compressed(_) => Ok(false),
        }
    }
}
