//! Writes a large file past the page cache.
//!
//! The bytes of a checkpoint are read again after a failure at most. By way of the page cache each is copied by the kernel,
//! and where the disk is faster than that thread it waits for it: bench `w6b`, ARCHITECTURE ("Decisions"). A file shorter than
//! one portion is written as any other, and so is one on a file system that knows no direct writes.
//!
//! From the first whole portion on a thread of the file's own writes one portion while its owner gathers the next, so that
//! neither waits for the other longer than it must. Owned by a writer that goes from the file's front to its end.

use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::scratch::Scratch;
use super::writeback::Writeback;

/// A file written from front to end, in portions that begin and end at multiples of [`ALIGN`].
#[derive(Debug)]
pub(crate) struct DirectFile {
    gathered: Portion,
    /// `None` after an error.
    to: Option<Target>,
}

/// Who writes whole portions.
#[derive(Debug)]
enum Target {
    /// Nobody yet.
    Caller(PortionFile),
    Helper(Helper),
}

impl DirectFile {
    /// Writes the empty `file`.
    pub(crate) fn new(file: File) -> Self {
        Self { gathered: Portion::default(), to: Some(Target::Caller(PortionFile::new(file))) }
    }

    /// Puts `bytes` behind what is there.
    ///
    /// # Errors
    /// What the system says, maybe of bytes put here by an earlier call; the file is of no use then.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            bytes = self.gathered.fill(bytes);
            if self.gathered.bytes().len() == PORTION {
                let full = std::mem::take(&mut self.gathered);
                let mut helper = match self.to.take().ok_or_else(failed_before)? {
                    Target::Caller(file) => Helper::start(file)?,
                    Target::Helper(helper) => helper,
                };
                self.gathered = helper.write(full)?;
                self.to = Some(Target::Helper(helper));
            }
        }
        Ok(())
    }

    /// Writes what is gathered still, and makes the file's bytes durable.
    ///
    /// # Errors
    /// What the system says; the file is of no use then.
    pub(crate) fn close(self) -> io::Result<()> {
        let (file, gathered) = self.end()?;
        file.close(gathered.bytes())
    }

    /// Waits until all whole portions are written; returns what is gathered still.
    fn end(self) -> io::Result<(PortionFile, Portion)> {
        let file = match self.to.ok_or_else(failed_before)? {
            Target::Caller(file) => file,
            Target::Helper(helper) => helper.end()?,
        };
        Ok((file, self.gathered))
    }
}

fn failed_before() -> io::Error {
    io::Error::other("an earlier write to this file failed")
}

/// Bytes that gather for one write.
#[derive(Debug, Default)]
struct Portion {
    /// `PORTION` bytes from `start` on. Taken with the first byte and never moved.
    memory: Scratch,
    start: usize,
}

impl Portion {
    /// Takes of `bytes` what there is room for, and returns the rest.
    fn fill<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        if self.memory.capacity() == 0 {
            self.memory = Scratch::with_capacity(PORTION + ALIGN);
            self.start = self.memory.as_ptr().align_offset(ALIGN);
            self.memory.resize(self.start, 0);
        }
        let (now, later) = bytes.split_at(bytes.len().min(PORTION - self.bytes().len()));
        self.memory.extend_from_slice(now);
        later
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

/// A thread that writes portions one after the other.
#[derive(Debug)]
struct Helper {
    full: SyncSender<Portion>,
    /// How each write went, with the portion to be used again.
    written: Receiver<io::Result<Portion>>,
    thread: JoinHandle<PortionFile>,
    /// Portions that the thread has.
    under_way: usize,
}

impl Helper {
    fn start(mut file: PortionFile) -> io::Result<Self> {
        let (full, to_write) = sync_channel::<Portion>(1);
        let (done, written) = sync_channel(2);
        let thread = spawn(move || {
            for mut portion in to_write {
                let result = file.write(portion.bytes()).map(|()| {
                    portion.memory.truncate(portion.start);
                    portion
                });
                if done.send(result).is_err() {
                    break;
                }
            }
            file
        })?;
        Ok(Self { full, written, thread, under_way: 0 })
    }

    /// Hands over a whole portion and returns an empty one, once the portion before is written.
    fn write(&mut self, portion: Portion) -> io::Result<Portion> {
        self.full.send(portion).map_err(|_| failed_before())?;
        self.under_way += 1;
        if self.under_way == 1 { Ok(Portion::default()) } else { self.one_written() }
    }

    fn one_written(&mut self) -> io::Result<Portion> {
        self.under_way -= 1;
        self.written.recv().map_err(|_| failed_before())?
    }

    /// Waits until all is written.
    fn end(mut self) -> io::Result<PortionFile> {
        while self.under_way > 0 {
            self.one_written()?;
        }
        drop(self.full);
        self.thread.join().map_err(|_| failed_before())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "lives as long as a large file is written, and does nothing but wait for the disk"
)]
fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name("tidegate-write".to_owned()).spawn(run)
}

/// The file, as who writes portions has it.
#[derive(Debug)]
struct PortionFile {
    file: File,
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

impl PortionFile {
    fn new(file: File) -> Self {
        Self { file, mode: Mode::Untried, written: 0, writeback: Writeback::new(WRITEBACK_BYTES) }
    }

    /// Writes a whole portion.
    fn write(&mut self, mut portion: &[u8]) -> io::Result<()> {
        if self.mode == Mode::Untried {
            self.mode =
                if set_direct(&self.file, true).is_ok() { Mode::Direct } else { Mode::Cached };
        }
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
        Ok(())
    }

    /// Writes the last bytes, and makes all durable.
    fn close(mut self, last: &[u8]) -> io::Result<()> {
        if self.mode == Mode::Direct {
            // The end is no multiple of `ALIGN`.
            set_direct(&self.file, false)?;
        }
        self.file.write_all(last)?;
        self.file.sync_data()
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
        let file = PortionFile { mode, ..PortionFile::new(File::create_new(path).unwrap()) };
        let to = Some(Target::Caller(file));
        let mut file = DirectFile { to, gathered: Portion::default() };
        for part in bytes.chunks(step) {
            file.append(part).unwrap();
        }
        let (file, rest) = file.end().unwrap();
        let mode = file.mode;
        file.close(rest.bytes()).unwrap();
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
    fn an_error_of_a_write_comes_with_a_later_call_and_stays() {
        let Ok(full) = File::options().write(true).open("/dev/full") else { return };
        let mut file = DirectFile::new(full);
        let mut calls = 0;
        let error = loop {
            calls += 1;
            match file.append(&vec![7; PORTION]) {
                Ok(()) => assert!(calls < 3, "two portions are under way at most"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        file.append(&vec![7; PORTION]).unwrap_err();
        file.close().unwrap_err();
        let mut file = DirectFile::new(File::options().write(true).open("/dev/full").unwrap());
        file.append(&vec![7; PORTION + 1]).unwrap();
        assert_eq!(file.close().unwrap_err().kind(), io::ErrorKind::StorageFull);
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
