//! Writes and reads runs of blocks.
//!
//! [`BlockWriter`] owns one object from its first byte to its last and gathers small blocks until a write is worth
//! a system call; after an error it is of no use any more. [`BlockReader`] reads by offset into memory of its own,
//! never by mapping a file that others could truncate, believes no length before the header's sum was checked, and
//! allocates no more than one block. Called on the snapshot I/O thread and at restore.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::block::{
    BLOCK_HEAD_BYTES, BLOCK_PAYLOAD_MAX, BlockHead, BlockOrigin, BlockRef, ZEROS, seal,
};
use super::manifest::FileMeta;
use super::scratch::Scratch;
use super::store::{ObjectReader, ObjectWriter};
use super::sum::Sum;
use crate::error::{Error, ErrorKind, Result};
use crate::id::KeyGroup;

/// Writes one file of a snapshot, run by run.
#[derive(Debug)]
pub struct BlockWriter {
    object: Box<dyn ObjectWriter>,
    file: Arc<str>,
    path: PathBuf,
    /// Whole blocks that wait to be written, then, while a run is open, a hole for a header and the payload so far.
    buffer: Scratch,
    /// Of all finished blocks, written or not.
    sum: Sum,
    run: Option<Run>,
    is_broken: bool,
    /// When so many bytes are finished, others get our CPU if they wait for it.
    turn_ends: u64,
}

#[derive(Debug)]
struct Run {
    origin: BlockOrigin,
    offset: u64,
    place: u32,
    sum: Sum,
    /// Where the open block's header goes in the buffer.
    head_at: usize,
}

impl BlockWriter {
    /// Writes `object`, which the manifest will call `file`; errors name `path`.
    pub fn new(object: Box<dyn ObjectWriter>, file: Arc<str>, path: PathBuf) -> Self {
        let buffer = Scratch::with_capacity(BUFFER_BYTES);
        let sum = Sum::default();
        Self { object, file, path, buffer, sum, run: None, is_broken: false, turn_ends: TURN_BYTES }
    }

    /// Begins a run.
    ///
    /// # Panics
    /// If the previous run was not finished.
    pub fn begin(&mut self, origin: BlockOrigin) {
        assert!(self.run.is_none(), "a run is finished before the next begins");
        let head_at = self.buffer.len();
        self.buffer.extend_from_slice(&[0; BLOCK_HEAD_BYTES]);
        let offset = self.sum.bytes;
        self.run = Some(Run { origin, offset, place: 0, sum: Sum::default(), head_at });
    }

    /// Puts `bytes` behind the run's payload.
    ///
    /// # Errors
    /// `Io` with the path; the file is of no use then.
    ///
    /// # Panics
    /// If no run was begun.
    pub fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        loop {
            let run = self.run.as_ref().expect("append comes between begin and finish");
            let room = BLOCK_PAYLOAD_MAX - (self.buffer.len() - run.head_at - BLOCK_HEAD_BYTES);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.extend_from_slice(now);
            if later.is_empty() {
                return Ok(());
            }
            bytes = later;
            self.end_block(false)?;
        }
    }

    /// Ends the run and names it.
    ///
    /// # Errors
    /// `Io` with the path; the file is of no use then.
    ///
    /// # Panics
    /// If no run was begun.
    pub fn finish(&mut self) -> Result<BlockRef> {
        self.end_block(true)?;
        let run = self.run.take().expect("finish comes after begin");
        Ok(BlockRef {
            file: self.file.clone(),
            offset: run.offset,
            length: run.sum.bytes,
            crc: run.sum.crc,
        })
    }

    /// Writes a run of which the whole payload is there.
    ///
    /// # Errors
    /// `Io` with the path; the file is of no use then.
    pub fn write(&mut self, origin: BlockOrigin, payload: &[u8]) -> Result<BlockRef> {
        if (WHOLE_BYTES_MIN..=BLOCK_PAYLOAD_MAX).contains(&payload.len()) {
            return self.write_whole(origin, payload);
        }
        self.begin(origin);
        self.append(payload)?;
        self.finish()
    }

    /// How many bytes the finished blocks have.
    pub fn bytes(&self) -> u64 {
        self.sum.bytes
    }

    /// Makes the file durable and describes it for the manifest.
    ///
    /// # Errors
    /// `Io` with the path; the checkpoint must not be completed then.
    ///
    /// # Panics
    /// If a run was begun and not finished.
    pub fn close(mut self) -> Result<FileMeta> {
        assert!(self.run.is_none(), "a file is closed after its last run");
        self.flush()?;
        self.object.close()?;
        Ok(FileMeta { name: self.file, bytes: self.sum.bytes, crc: self.sum.crc })
    }

    /// Writes a run of one block from where its payload lies: what is long enough for a write of its own need not be gathered.
    fn write_whole(&mut self, origin: BlockOrigin, payload: &[u8]) -> Result<BlockRef> {
        assert!(self.run.is_none(), "a run is finished before the next begins");
        let (head, bytes, sum) = seal(origin, 0, true, payload);
        self.buffer.extend_from_slice(&bytes);
        self.flush()?;
        self.is_broken = true;
        self.object.append(payload)?;
        self.is_broken = false;
        self.buffer.extend_from_slice(&ZEROS[..head.padding_bytes()]);
        let offset = self.sum.bytes;
        self.sum.join(sum);
        self.take_turns();
        Ok(BlockRef { file: self.file.clone(), offset, length: sum.bytes, crc: sum.crc })
    }

    fn end_block(&mut self, is_last: bool) -> Result<()> {
        let run = self.run.as_mut().expect("a block ends within a run");
        let payload = &self.buffer[run.head_at + BLOCK_HEAD_BYTES..];
        let (head, bytes, sum) = seal(run.origin, run.place, is_last, payload);
        self.buffer[run.head_at..run.head_at + BLOCK_HEAD_BYTES].copy_from_slice(&bytes);
        self.buffer.extend_from_slice(&ZEROS[..head.padding_bytes()]);
        run.sum.join(sum);
        self.sum.join(sum);
        run.place = run.place.checked_add(1).expect("a run of 4 PiB doesn't happen");
        if self.buffer.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        self.take_turns();
        if !is_last {
            let head_at = self.buffer.len();
            self.buffer.extend_from_slice(&[0; BLOCK_HEAD_BYTES]);
            self.run.as_mut().expect("the run goes on").head_at = head_at;
        }
        Ok(())
    }

    fn take_turns(&mut self) {
        if self.sum.bytes >= self.turn_ends {
            self.turn_ends = self.sum.bytes + TURN_BYTES;
            std::thread::yield_now();
        }
    }

    fn flush(&mut self) -> Result<()> {
        if self.is_broken {
            let message = "an earlier write to this file failed";
            return Err(Error::new(ErrorKind::Io, message).at_path(&self.path));
        }
        let result = self.object.append(&self.buffer);
        self.buffer.clear();
        self.is_broken = result.is_err();
        result
    }
}

/// Reads the blocks of one run, or of a whole file.
#[derive(Debug)]
pub struct BlockReader {
    object: Arc<dyn ObjectReader>,
    path: PathBuf,
    /// Where the next block begins.
    at: u64,
    end: u64,
    /// What the run's bytes must sum up to, unless blocks are skipped.
    crc: Option<u32>,
    groups: Option<(KeyGroup, KeyGroup)>,
    sum: Sum,
    run: Option<(BlockOrigin, u32)>,
    /// Bytes read ahead, of which those from `window_at` on are still to come.
    window: Vec<u8>,
    window_at: usize,
}

/// One block, checked.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Its header.
    pub head: BlockHead,
    /// Where its header begins in the file.
    pub offset: u64,
    /// Its bytes.
    pub payload: &'a [u8],
    /// Sum of header, payload and padding.
    pub(crate) sum: Sum,
}

impl BlockReader {
    /// Reads the run `run` from `object`; errors name `path`.
    ///
    /// # Errors
    /// `Checkpoint` if the file is too short for it.
    pub fn new(object: Arc<dyn ObjectReader>, run: &BlockRef, path: &Path) -> Result<Self> {
        let end = run.offset.checked_add(run.length);
        let Some(end) = end.filter(|end| *end <= object.bytes()) else {
            let message = format!(
                "bytes {} to {} are named, but the file has {}",
                run.offset,
                u128::from(run.offset) + u128::from(run.length),
                object.bytes()
            );
            return Err(Error::new(ErrorKind::Checkpoint, message).at_path(path));
        };
        Ok(Self::over(object, run.offset, end, Some(run.crc), path))
    }

    /// Reads every block of `object`; errors name `path`.
    pub fn whole(object: Arc<dyn ObjectReader>, path: &Path) -> Self {
        let end = object.bytes();
        Self::over(object, 0, end, None, path)
    }

    /// Skips blocks without a key group between `first` and `last`, both included. What is skipped is not checked.
    #[must_use]
    pub fn with_groups(mut self, first: KeyGroup, last: KeyGroup) -> Self {
        self.groups = Some((first, last));
        self.crc = None;
        self
    }

    fn over(
        object: Arc<dyn ObjectReader>,
        at: u64,
        end: u64,
        crc: Option<u32>,
        path: &Path,
    ) -> Self {
        Self {
            object,
            path: path.to_owned(),
            at,
            end,
            crc,
            groups: None,
            sum: Sum::default(),
            run: None,
            window: Vec::new(),
            window_at: 0,
        }
    }

    /// The next block, `None` after the last.
    ///
    /// # Errors
    /// `Io` if the file can't be read; `Checkpoint` with the path and the block's offset if a byte of it is wrong.
    pub fn read_block(&mut self) -> Result<Option<Block<'_>>> {
        loop {
            if self.at == self.end {
                return self.check_end().map(|()| None);
            }
            let offset = self.at;
            if self.end - offset < BLOCK_HEAD_BYTES as u64 {
                return Err(self.bad(offset, "the block is cut off"));
            }
            self.fill(BLOCK_HEAD_BYTES)?;
            let bytes = self.window[self.window_at..][..BLOCK_HEAD_BYTES]
                .try_into()
                .expect("the window was filled with a header");
            let head = BlockHead::decode(bytes).map_err(|e| self.bad(offset, &e.to_string()))?;
            if self.end - offset < head.block_bytes() {
                return Err(self.bad(offset, "the block is cut off"));
            }
            self.follow(offset, &head)?;
            self.at += head.block_bytes();
            let overlaps =
                |(first, last)| head.origin.first_group <= last && head.origin.last_group >= first;
            if self.groups.is_none_or(overlaps) {
                return self.read_payload(head, offset).map(Some);
            }
            self.skip(head.block_bytes());
        }
    }

    fn read_payload(&mut self, head: BlockHead, offset: u64) -> Result<Block<'_>> {
        let length = head.block_bytes() as usize;
        self.fill_from(offset, length)?;
        let start = self.window_at;
        self.window_at += length;
        let block = &self.window[start..][..length];
        let (payload, padding) = block[BLOCK_HEAD_BYTES..].split_at(head.payload_bytes as usize);
        let crc = crc32c::crc32c(payload);
        if crc != head.payload_crc {
            return Err(bad_block(&self.path, offset, "the payload's checksum is wrong"));
        }
        if padding.iter().any(|b| *b != 0) {
            return Err(bad_block(&self.path, offset, "the padding is not zero"));
        }
        let mut sum = Sum::default();
        sum.add(&block[..BLOCK_HEAD_BYTES]);
        sum.join(Sum { bytes: payload.len() as u64, crc });
        sum.add(padding);
        self.sum.join(sum);
        Ok(Block { head, offset, payload, sum })
    }

    /// Checks that the block continues the run, or begins one where none is open.
    fn follow(&mut self, offset: u64, head: &BlockHead) -> Result<()> {
        let expected = self.run.map_or(0, |(_, place)| place);
        let is_same = self.run.is_none_or(|(origin, _)| origin == head.origin);
        if head.place != expected || !is_same {
            return Err(self.bad(offset, "the block is not the next of its run"));
        }
        self.run = (!head.is_last).then_some((head.origin, head.place.saturating_add(1)));
        Ok(())
    }

    fn check_end(&self) -> Result<()> {
        if self.run.is_some() {
            return Err(self.bad(self.end, "the last block of the run is missing"));
        }
        if self.crc.is_some_and(|crc| crc != self.sum.crc) {
            let offset = self.end - self.sum.bytes;
            return Err(self.bad(offset, "the run is not the one the manifest names"));
        }
        Ok(())
    }

    /// Makes the window hold `bytes` bytes from `self.at` on.
    fn fill(&mut self, bytes: usize) -> Result<()> {
        self.fill_from(self.at, bytes)
    }

    fn fill_from(&mut self, offset: u64, bytes: usize) -> Result<()> {
        let held = self.window.len() - self.window_at;
        if held >= bytes {
            return Ok(());
        }
        self.window.drain(..self.window_at);
        self.window_at = 0;
        let left = self.end - offset - held as u64;
        let wanted =
            (bytes.max(READ_BYTES) - held).min(usize::try_from(left).unwrap_or(usize::MAX));
        self.window.resize(held + wanted, 0);
        self.object.read_at(offset + held as u64, &mut self.window[held..])
    }

    fn skip(&mut self, bytes: u64) {
        let held = (self.window.len() - self.window_at) as u64;
        if bytes >= held {
            self.window.clear();
            self.window_at = 0;
        } else {
            self.window_at += bytes as usize;
        }
    }

    fn bad(&self, offset: u64, what: &str) -> Error {
        bad_block(&self.path, offset, what)
    }
}

fn bad_block(path: &Path, offset: u64, what: &str) -> Error {
    Error::new(ErrorKind::Checkpoint, format!("block at byte {offset}: {what}")).at_path(path)
}

/// From how many waiting bytes on they are written.
const FLUSH_BYTES: usize = 1 << 20;
/// From how many bytes on a payload is written from where it lies.
const WHOLE_BYTES_MIN: usize = 16 << 10;
/// Below `FLUSH_BYTES` waiting, one full block with header and padding.
const BUFFER_BYTES: usize = FLUSH_BYTES + BLOCK_PAYLOAD_MAX + 2 * BLOCK_HEAD_BYTES;
/// A worker that the writer has put off its CPU, maybe while it copied a chunk, gets it back after so many bytes; else after
/// the system's time slice, which is ten times as long (bench `w6b`).
const TURN_BYTES: u64 = 128 << 10;
/// How much is read ahead.
const READ_BYTES: usize = 256 << 10;
