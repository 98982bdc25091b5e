//! Writes a large file past the page cache.
//!
//! The bytes of a checkpoint are read again after a failure at most. By way of the page cache each is copied by the kernel,
//! and where the disk is faster than that thread it waits for it: bench `w6b`, ARCHITECTURE ("Decisions"). A file shorter than
//! one portion is written as any other, and so is one on a file system that knows no direct writes.
//!
//! Owned by a writer that goes from the file's front to its end.

use std::fs::File;
use std::io::{self, Write};

use super::writeback::Writeback;

/// A file written from front to end, in portions that begin and end at multiples of [`ALIGN`].
#[derive(Debug)]
pub(crate) struct DirectFile {
    file: File,
    /// `PORTION` bytes from `start` on gather the next write. Reserved with the first byte and never moved.
    portion: Vec<u8>,
    start: usize,
    mode: Mode,
    written: u64,
    writeback: Writeback,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// No whole portion was written yet.
    Untried,
    Direct,
    /// By way of the page cache.
    Cached,
}

impl DirectFile {
    /// Writes the empty `file`.
    pub(crate) fn new(file: File) -> Self {
        let writeback = Writeback::new(WRITEBACK_BYTES);
        Self { file, portion: Vec::new(), start: 0, mode: Mode::Untried, written: 0, writeback }
    }

    /// Puts `bytes` behind what is there.
    ///
    /// # Errors
    /// What the system says; the file is of no use then.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if self.portion.capacity() == 0 {
            self.portion.reserve_exact(PORTION + ALIGN);
            self.start = self.portion.as_ptr().align_offset(ALIGN);
            self.portion.resize(self.start, 0);
        }
        while !bytes.is_empty() {
            let room = self.start + PORTION - self.portion.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.portion.extend_from_slice(now);
            bytes = later;
            if now.len() == room {
                self.write_portion()?;
            }
        }
        Ok(())
    }

    /// Writes what is gathered still, and makes the file's bytes durable.
    ///
    /// # Errors
    /// What the system says; the file is of no use then.
    pub(crate) fn close(mut self) -> io::Result<()> {
        if self.mode == Mode::Direct {
            // The end is no multiple of `ALIGN`.
            set_direct(&self.file, false)?;
        }
        self.file.write_all(&self.portion[self.start..])?;
        self.file.sync_data()
    }

    fn write_portion(&mut self) -> io::Result<()> {
        if self.mode == Mode::Untried {
            self.mode =
                if set_direct(&self.file, true).is_ok() { Mode::Direct } else { Mode::Cached };
        }
        let mut portion = &self.portion[self.start..];
        if self.mode == Mode::Direct {
            match self.file.write(portion) {
                Ok(PORTION) => portion = &[],
                // A part was written, which ends anywhere: the next write says why.
                Ok(n) => portion = &portion[n..],
                // Some file systems take the flag and refuse the writes.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if !portion.is_empty() {
                set_direct(&self.file, false)?;
                self.mode = Mode::Cached;
            }
        }
        self.file.write_all(portion)?;
        self.written += PORTION as u64;
        if self.mode == Mode::Cached {
            self.writeback.written(&self.file, self.written);
        }
        self.portion.truncate(self.start);
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn set_direct(file: &File, is_direct: bool) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, is_direct);
    Ok(fcntl_setfl(file, flags)?)
}

#[cfg(not(target_os = "linux"))]
fn set_direct(_file: &File, is_direct: bool) -> io::Result<()> {
    if is_direct { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
}

/// What addresses in memory and in the file are multiples of: more than any disk asks for.
const ALIGN: usize = 4096;
/// So many bytes are written at once. Fewer leave the disk idle between two of them, more keep a CPU from its worker for
/// longer (bench `w6b`).
const PORTION: usize = 1 << 20;
/// Where there are no direct writes, so many bytes are handed to the disk at once.
const WRITEBACK_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn written(path: &Path, bytes: &[u8], step: usize, mode: Mode) -> Mode {
        let mut file = DirectFile { mode, ..DirectFile::new(File::create_new(path).unwrap()) };
        for part in bytes.chunks(step) {
            file.append(part).unwrap();
        }
        let mode = file.mode;
        file.close().unwrap();
        mode
    }

    #[test]
    fn a_file_has_the_bytes_that_were_appended_whatever_their_number() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..2 * PORTION + 5).map(|n| (n / 7) as u8).collect();
        for n in [0, 1, ALIGN, PORTION - 1, PORTION, PORTION + 1, 2 * PORTION, 2 * PORTION + 5] {
            for (step, first) in [(PORTION / 3 + 1, Mode::Untried), (3 * PORTION, Mode::Cached)] {
                let path = folder.path().join(format!("{n}-{step}"));
                let mode = written(&path, &bytes[..n], step, first);
                assert!(fs::read(&path).unwrap() == bytes[..n], "{n} bytes, {mode:?}");
                assert_eq!(mode == Mode::Untried, n < PORTION && first == Mode::Untried);
            }
        }
    }

    #[test]
    fn a_file_that_takes_no_direct_writes_is_written_all_the_same() {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = folder.path().join("file");
        let bytes = vec![7; PORTION + 100];
        written(&path, &bytes, 10_000, Mode::Untried);
        assert!(fs::read(&path).unwrap() == bytes);
    }
}
