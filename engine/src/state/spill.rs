//! A file for buffers in flight, written through a mapping where that is safe.
//!
//! A store into a mapped page that the file system can't back is SIGBUS and kills the host process. So a page is
//! touched only after both: `fallocate` has granted its place, and `MADV_POPULATE_WRITE` has made it present and
//! writable, which reports a full or broken disk as an error where a store would be a signal. Where either isn't
//! supported, the rest of the file is written by plain writes; both may mix in one file. Nobody else writes a file
//! while it is a [`SpillFile`]: it has mode 0600 and lies among the spare files until it is finished.
//!
//! One for each process and checkpoint, on the thread that spills; made and finished by
//! [`SpillPool`](super::spill_pool::SpillPool), which keeps files and mappings warm from one checkpoint to the next.

#![expect(unsafe_code, reason = "a mapping is memory that the compiler knows nothing of")]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{MmapMut, MmapOptions};
use rustix::io::Errno;

use super::block::{BLOCK_PAYLOAD_MAX, BlockOrigin, BlockRef, ZEROS, seal};
use super::manifest::FileMeta;
use super::sum::Sum;
use super::writeback::Writeback;
use crate::error::{Error, ErrorKind, Result};

/// A spill file that is being written.
#[derive(Debug)]
pub struct SpillFile {
    spare: Spare,
    /// What the manifest will call it.
    name: Arc<str>,
    sum: Sum,
    mapped_bytes: u64,
    written_bytes: u64,
    writeback: Writeback,
    is_broken: bool,
}

/// The mapped front of a file. Invariant: `left <= populated <= granted`, and a mapped byte is touched from `left` to `populated` only.
///
/// Space is granted as far as it is known to be needed, to the page: what a file has too much is given back when it is cut, and a
/// file system that tells the disk of freed blocks waits for it (bench `checkpoint`: a millisecond where it is mounted with
/// `discard`).
#[derive(Debug)]
pub(crate) struct Segments {
    bytes_each: u64,
    /// Each maps `bytes_each` bytes, one after the other from the file's front.
    maps: Vec<MmapMut>,
    /// How far the file system has granted space since the file was begun.
    granted: u64,
    /// How far space will be needed, as far as that is known.
    expected: u64,
    /// How far pages were made present and writable since the file was begun.
    populated: u64,
    /// Up to where pages were taken out of the mapping since then: they are written.
    left: u64,
    is_supported: bool,
}

/// A file with its mappings, while it is written and while it waits to be written again.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) file: File,
    pub(crate) segments: Segments,
    pub(crate) name: SpareName,
}

/// A file's name among the spare ones; dropping it removes the name.
#[derive(Debug)]
pub(crate) struct SpareName {
    pub(crate) path: PathBuf,
    pub(crate) is_kept: bool,
}

impl Spare {
    pub(crate) fn path(&self) -> &Path {
        &self.name.path
    }
}

impl Drop for SpareName {
    fn drop(&mut self) {
        if !self.is_kept {
            // What can't be removed here is removed by the store's next owner.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl SpillFile {
    /// Writes into `spare`; the manifest will call the file `name`.
    pub(crate) fn new(mut spare: Spare, name: Arc<str>) -> Self {
        spare.segments.begin_again();
        Self {
            spare,
            name,
            sum: Sum::default(),
            mapped_bytes: 0,
            written_bytes: 0,
            writeback: Writeback::new(WRITEBACK_BYTES),
            is_broken: false,
        }
    }

    /// Buffers of `bytes` in all, with headers and padding, come next: the file system is asked once for all of them.
    pub fn expect(&mut self, bytes: u64) {
        self.spare.segments.expected = self.sum.bytes + bytes;
    }

    /// Appends one buffer, in several blocks if it is long, and names it.
    ///
    /// # Errors
    /// `Io` with the path and what the system said; the file is of no use then, and the checkpoint is to be
    /// declined.
    pub fn append(&mut self, origin: BlockOrigin, payload: &[u8]) -> Result<BlockRef> {
        self.check()?;
        let offset = self.sum.bytes;
        let mut run = Sum::default();
        let mut rest = payload;
        for place in 0.. {
            let (piece, later) = rest.split_at(rest.len().min(BLOCK_PAYLOAD_MAX));
            let (head, bytes, sum) = seal(origin, place, later.is_empty(), piece);
            self.write([&bytes, piece, &ZEROS[..head.padding_bytes()]], sum.bytes)?;
            run.join(sum);
            self.sum.join(sum);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        Ok(BlockRef { file: self.name.clone(), offset, length: run.bytes, crc: run.crc })
    }

    /// How many bytes were appended, with headers and padding.
    pub fn bytes(&self) -> u64 {
        self.sum.bytes
    }

    /// How many of them went through the mapping.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped_bytes
    }

    /// How many of them went through plain writes.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Writes the rest by plain writes, as where mapping isn't supported.
    #[cfg(test)]
    pub(crate) fn map_no_more(&mut self) {
        self.spare.segments.is_supported = false;
    }

    /// Cuts the file to its length and makes the contents durable.
    pub(crate) fn close(mut self) -> Result<(FileMeta, Spare)> {
        self.check()?;
        let Spare { file, segments, name } = &mut self.spare;
        segments.leave(segments.populated);
        file.set_len(self.sum.bytes).map_err(|e| Error::io(&name.path, "can't be cut", e))?;
        let synced = file.sync_data();
        synced.map_err(|e| Error::io(&name.path, "can't be made durable", e))?;
        let meta = FileMeta { name: self.name, bytes: self.sum.bytes, crc: self.sum.crc };
        Ok((meta, self.spare))
    }

    fn check(&self) -> Result<()> {
        if self.is_broken {
            let message = "an earlier write to this file failed";
            return Err(Error::new(ErrorKind::Io, message).at_path(self.spare.path()));
        }
        Ok(())
    }

    fn write(&mut self, parts: [&[u8]; 3], bytes: u64) -> Result<()> {
        let offset = self.sum.bytes;
        let at = |path: &Path, e| Error::io(path, "can't be spilled to", e);
        let Spare { file, segments, name } = &mut self.spare;
        self.is_broken = true;
        if segments.prepare(file, offset + bytes).map_err(|e| at(&name.path, e))? {
            segments.store(offset, parts);
            self.mapped_bytes += bytes;
        } else {
            write_at(file, offset, parts).map_err(|e| at(&name.path, e))?;
            self.written_bytes += bytes;
        }
        self.is_broken = false;
        // Not the last pages: a page that is being written would have to be made writable again for what comes next.
        let end = offset + bytes;
        let end = end - end % PAGES_BYTES;
        if self.writeback.is_due(end) {
            segments.leave(end);
            self.writeback.begin(file, end);
        }
        Ok(())
    }
}

impl Segments {
    /// None so far; each will have `bytes_each` bytes, which are whole pages.
    pub(crate) fn new(bytes_each: u64) -> Self {
        let is_supported = cfg!(target_os = "linux");
        let maps = Vec::new();
        Self { bytes_each, maps, granted: 0, expected: 0, populated: 0, left: 0, is_supported }
    }

    /// The same mappings for the next use of the file: what was cut off must be granted again.
    pub(crate) fn begin_again(&mut self) {
        (self.granted, self.expected, self.populated, self.left) = (0, 0, 0, 0);
        self.is_supported = cfg!(target_os = "linux");
    }

    /// Has the first `bytes`, down to whole pages, of a file that waits for its next use made present, and gives back the others. It
    /// is done again then, which is quick if the kernel has left them alone.
    pub(crate) fn warm(&mut self, file: &File, bytes: u64) {
        self.begin_again();
        let bytes = bytes - bytes % page_bytes();
        // What goes wrong here goes wrong again where somebody waits for it.
        let _ = file.set_len(bytes).and_then(|()| self.prepare(file, bytes));
    }

    /// Makes every byte below `end` safe to touch; `false` if that isn't supported here.
    fn prepare(&mut self, file: &File, end: u64) -> io::Result<bool> {
        while self.is_supported && self.populated < end {
            self.is_supported = if self.granted < end {
                self.grant(file, end.max(self.expected).next_multiple_of(page_bytes()))?
            } else {
                self.populate(end.next_multiple_of(POPULATE_BYTES).min(self.granted))?
            };
        }
        Ok(self.is_supported)
    }

    /// Lets the file system set space aside up to `end`, and maps it.
    fn grant(&mut self, file: &File, end: u64) -> io::Result<bool> {
        match allocate(file, self.granted, end - self.granted) {
            Ok(true) => {}
            // A disk that lacks it may have room for what there is to write: plain writes find out.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NOSPC) => return Ok(false),
            outcome => return outcome,
        }
        while (self.maps.len() as u64) * self.bytes_each < end {
            let length = usize::try_from(self.bytes_each).expect("a segment fits into memory");
            let mut options = MmapOptions::new();
            options.offset(self.maps.len() as u64 * self.bytes_each).len(length);
            // SAFETY: only this process has the file open for writing, and no byte of the mapping is touched before
            // `prepare` has had the range granted and populated.
            let map = unsafe { options.map_mut(file) };
            match map {
                Ok(map) => {
                    read_nothing_ahead(&map);
                    self.maps.push(map);
                }
                Err(e) if Errno::from_io_error(&e) == Some(Errno::NODEV) => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        self.granted = end;
        Ok(true)
    }

    /// Makes the pages from `populated` to `end`, all of them granted, present and writable.
    fn populate(&mut self, end: u64) -> io::Result<bool> {
        while self.populated < end {
            let (segment, at) = self.locate(self.populated);
            let length = (self.bytes_each - at as u64).min(end - self.populated);
            if !populate_range(&self.maps[segment], at, length as usize)? {
                return Ok(false);
            }
            self.populated += length;
        }
        Ok(true)
    }

    /// Copies `parts` to `offset`, one behind the other. The range was prepared.
    fn store(&mut self, offset: u64, parts: [&[u8]; 3]) {
        let end = offset + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        assert!(self.left <= offset && end <= self.populated, "only prepared bytes are touched");
        let mut at = offset;
        for mut part in parts {
            while !part.is_empty() {
                let (segment, from) = self.locate(at);
                let room = &mut self.maps[segment][from..];
                let (piece, later) = part.split_at(part.len().min(room.len()));
                room[..piece.len()].copy_from_slice(piece);
                at += piece.len() as u64;
                part = later;
            }
        }
    }

    /// Takes the pages below `end`, which are whole, out of the mapping; what they hold stays the file's. The disk could begin with a
    /// mapped page only after every CPU that runs a thread of ours has been interrupted to forget it, for each page anew; so they
    /// are interrupted once for all of them (bench `checkpoint`: what made checkpoints slower the busier the workers were).
    fn leave(&mut self, end: u64) {
        let end = end.min(self.populated);
        while self.left < end {
            let (segment, at) = self.locate(self.left);
            let length = (self.bytes_each - at as u64).min(end - self.left);
            take_out_range(&self.maps[segment], at, length as usize);
            self.left += length;
        }
    }

    fn locate(&self, offset: u64) -> (usize, usize) {
        ((offset / self.bytes_each) as usize, (offset % self.bytes_each) as usize)
    }
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Has the file system set space aside; `false` if it can't do that.
#[cfg(target_os = "linux")]
fn allocate(file: &File, offset: u64, bytes: u64) -> io::Result<bool> {
    let flags = rustix::fs::FallocateFlags::empty();
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, bytes)) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn allocate(_file: &File, _offset: u64, _bytes: u64) -> io::Result<bool> {
    Ok(false)
}

/// Else a page that is made present brings its neighbours along, zeroed, which are cut off again: half a millisecond of a
/// checkpoint of some MB (bench `checkpoint`).
#[cfg(target_os = "linux")]
fn read_nothing_ahead(map: &MmapMut) {
    // A kernel that knows no such advice is only slower.
    let _ = map.advise(memmap2::Advice::Random);
}

#[cfg(not(target_os = "linux"))]
fn read_nothing_ahead(_map: &MmapMut) {}

/// Makes pages present and writable; `false` if the kernel can't do that.
#[cfg(target_os = "linux")]
fn populate_range(map: &MmapMut, at: usize, bytes: usize) -> io::Result<bool> {
    let advice = memmap2::Advice::PopulateWrite;
    loop {
        let Err(e) = map.advise_range(advice, at, bytes) else {
            return Ok(true);
        };
        match Errno::from_io_error(&e) {
            Some(Errno::INTR | Errno::AGAIN) => {}
            Some(Errno::INVAL) => return Ok(false),
            // What would have been SIGBUS: the page can't be read or backed.
            Some(Errno::FAULT) => return Err(Errno::IO.into()),
            _ => return Err(e),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn populate_range(_map: &MmapMut, _at: usize, _bytes: usize) -> io::Result<bool> {
    Ok(false)
}

/// Takes pages out of a mapping. A kernel that doesn't is only slower.
#[cfg(target_os = "linux")]
fn take_out_range(map: &MmapMut, at: usize, bytes: usize) {
    let advice = memmap2::UncheckedAdvice::DontNeed;
    // SAFETY: the mapping is shared, so its bytes are the file's and stay what they are; nobody has a reference to them.
    let _ = unsafe { map.unchecked_advise_range(advice, at, bytes) };
}

#[cfg(not(target_os = "linux"))]
fn take_out_range(_map: &MmapMut, _at: usize, _bytes: usize) {}

fn write_at(file: &File, offset: u64, parts: [&[u8]; 3]) -> io::Result<()> {
    let mut at = offset;
    for part in parts {
        file.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// How far ahead pages are populated: one call for many faults.
const POPULATE_BYTES: u64 = 1 << 20;
/// So many bytes are handed to the disk at once.
const WRITEBACK_BYTES: u64 = 1 << 20;
/// Whole pages on every machine.
pub(crate) const PAGES_BYTES: u64 = 64 << 10;
