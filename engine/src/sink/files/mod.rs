//! Lines in files that become visible exactly once.
//!
//! A subtask writes `.part-<subtask>-<number>.<attempt>`; a checkpoint makes that durable and closes it; when the
//! checkpoint is complete, the file is renamed to `part-<subtask>-<number>.<checkpoint>.<extension>` without replacing anything;
//! without checkpoints, to `part-<subtask>-<number>.<extension>`. The name so tells the first checkpoint that covers the file,
//! and a job that goes back to an earlier one moves the files of later ones to `.superseded`.
//!
//! Invariants. A committed file never changes. Numbers are above everything that is there when a writer opens. Only
//! files of the two patterns are ever touched, and of those only uncommitted ones: see `folder`. What `prepare` returns
//! names every file that is prepared and not known to be committed, so the last complete checkpoint alone is enough to
//! commit all of it. A failed `fsync` may have lost data, so the writer that saw one never writes again.

mod folder;
mod part;

#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use part::{part_name, prepared_again, prepared_sample};

use std::fmt::{self, Display};
use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use folder::{Attempts, Folder};
use part::{Part, Sealed, numbered};

use super::{Committable, Sink, Writer, WriterContext};
use crate::error::{Error, ErrorKind, Result};
use crate::id::CheckpointId;
use crate::record::Data;

/// Bytes gathered before they are written to the file.
const BUFFER_BYTES: usize = 256 << 10;

/// A sink that writes each record's view, displayed, as a line of files in the folder `dir`, which is made if it is not
/// there. No other job may write there, and it may hold nothing but parts.
///
/// After a commit the sink expects its part in place: one that is moved away before the next checkpoint is complete makes
/// a restore fail, since it can't be told from a lost one. Without checkpoints everything becomes visible at the end.
pub fn exactly_once_files(dir: impl Into<PathBuf>) -> ExactlyOnceFiles<Displayed> {
    ExactlyOnceFiles {
        dir: dir.into(),
        format: Displayed,
        extension: "txt".to_owned(),
        roll_bytes: u64::MAX,
        attempts: Attempts::default(),
    }
}

/// See [`exactly_once_files`].
#[derive(Clone, Debug)]
pub struct ExactlyOnceFiles<L> {
    dir: PathBuf,
    format: L,
    extension: String,
    roll_bytes: u64,
    attempts: Attempts,
}

impl<L> ExactlyOnceFiles<L> {
    /// Lines are what `format` appends, and a line break: `.format::<Bid, _>(|bid, line| write!(line, "{}", bid.price))`.
    pub fn format<T: Data, F>(self, format: F) -> ExactlyOnceFiles<Formatted<T, F>>
    where
        F: for<'a> FnMut(T::Ref<'a>, &mut Vec<u8>) -> io::Result<()> + Clone + Send + 'static,
    {
        ExactlyOnceFiles {
            dir: self.dir,
            format: Formatted { format, of: PhantomData },
            extension: self.extension,
            roll_bytes: self.roll_bytes,
            attempts: self.attempts,
        }
    }

    /// What comes behind the dot of committed names; `txt` if not given.
    #[must_use]
    pub fn extension(mut self, extension: impl Into<String>) -> Self {
        self.extension = extension.into();
        self
    }

    /// Begins a new file once one has that many bytes. Without it a file ends at a checkpoint only.
    #[must_use]
    pub fn roll_bytes(mut self, bytes: u64) -> Self {
        self.roll_bytes = bytes;
        self
    }
}

/// How a record becomes a line.
pub trait Line<T: Data>: Clone + Send + 'static {
    /// Appends the line, without its break.
    ///
    /// # Errors
    /// The record can't be written.
    fn append(&mut self, record: T::Ref<'_>, to: &mut Vec<u8>) -> io::Result<()>;
}

/// Lines are the records' views, displayed.
#[derive(Clone, Copy, Debug)]
pub struct Displayed;

impl<T: Data> Line<T> for Displayed
where
    for<'a> T::Ref<'a>: Display,
{
    #[inline(always)]
    fn append(&mut self, record: T::Ref<'_>, to: &mut Vec<u8>) -> io::Result<()> {
        write!(to, "{record}")
    }
}

/// Lines are what a closure appends.
pub struct Formatted<T, F> {
    format: F,
    of: PhantomData<fn(T)>,
}

impl<T, F: Clone> Clone for Formatted<T, F> {
    fn clone(&self) -> Self {
        Self { format: self.format.clone(), of: PhantomData }
    }
}

impl<T, F> fmt::Debug for Formatted<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Formatted").finish_non_exhaustive()
    }
}

impl<T: Data, F> Line<T> for Formatted<T, F>
where
    F: for<'a> FnMut(T::Ref<'a>, &mut Vec<u8>) -> io::Result<()> + Clone + Send + 'static,
{
    #[inline(always)]
    fn append(&mut self, record: T::Ref<'_>, to: &mut Vec<u8>) -> io::Result<()> {
        (self.format)(record, to)
    }
}

impl<T: Data, L: Line<T>> Sink<T> for ExactlyOnceFiles<L> {
    type Writer = FilesWriter<L>;
    const RETRACTS: bool = true;

    fn check(&self) -> Result<()> {
        let extension = self.extension.as_bytes();
        if extension.is_empty() || extension.iter().any(|b| matches!(b, b'/' | 0)) {
            return Err(Error::config(format!("extension '{}' is no extension", self.extension)));
        }
        if numbered(&self.extension).is_some() {
            let message = format!("extension '{}' begins with a number", self.extension);
            return Err(Error::config(message));
        }
        // A run begins, and its attempts count from 0.
        self.attempts.reset();
        Folder::create(&self.dir)
    }

    fn retract(&self, after: CheckpointId) -> Result<()> {
        Folder::create(&self.dir)?;
        Folder::open(&self.dir)?.supersede(after)
    }

    fn open(&self, prepared: Vec<Committable>, context: WriterContext<'_>) -> Result<Self::Writer> {
        Folder::create(&self.dir)?;
        self.attempts.enter(context.subtask, context.attempt)?;
        let folder = Arc::new(Folder::open(&self.dir)?);
        for committable in &prepared {
            folder.commit(&Sealed::parse(&committable.0)?)?;
        }
        if !prepared.is_empty() {
            folder.sync()?;
        }
        let found = folder.scan(context.subtask, context.parallelism)?;
        let mut stale = found.uncommitted;
        if context.restored.is_none() {
            folder.remove(&mut stale)?;
        }
        Ok(FilesWriter {
            format: self.format.clone(),
            extension: self.extension.clone(),
            roll_bytes: self.roll_bytes,
            folder,
            subtask: context.subtask,
            attempt: context.attempt.0,
            next_number: found.next_number,
            line: Vec::with_capacity(BUFFER_BYTES + 4096),
            part: None,
            rolled: Vec::new(),
            prepared: Vec::new(),
            stale,
            lost: false,
        })
    }
}

/// Writes one subtask's files of an [`ExactlyOnceFiles`].
#[derive(Debug)]
pub struct FilesWriter<L> {
    format: L,
    extension: String,
    roll_bytes: u64,
    folder: Arc<Folder>,
    subtask: u32,
    attempt: u32,
    next_number: u64,
    /// Lines that are not in `part` yet.
    line: Vec<u8>,
    /// The file being written.
    part: Option<Part>,
    /// Files closed for their size since the last checkpoint.
    rolled: Vec<Sealed>,
    /// Closed and durable, by the checkpoint at which that was done, oldest first.
    prepared: Vec<(CheckpointId, Sealed)>,
    /// What earlier attempts left, to be removed at the first commit: before that it may be what another subtask is
    /// about to commit from the restored checkpoint.
    stale: Vec<String>,
    /// An `fsync` failed.
    lost: bool,
}

impl<T: Data, L: Line<T>> Writer<T> for FilesWriter<L> {
    const COMMITS: bool = true;

    #[inline(always)]
    fn write(&mut self, record: T::Ref<'_>) -> Result<()> {
        let before = self.line.len();
        if let Err(error) = self.format.append(record, &mut self.line) {
            self.line.truncate(before);
            return Err(Error::new(ErrorKind::Record, format!("can't format a record: {error}"))
                .caused_by(error));
        }
        self.line.push(b'\n');
        if self.line.len() >= BUFFER_BYTES { self.spill() } else { Ok(()) }
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Vec<Committable>> {
        self.seal()?;
        if !self.rolled.is_empty() {
            // The names of uncommitted files are as much a part of the checkpoint as their bytes.
            self.folder.sync().inspect_err(|_| self.lost = true)?;
            let rolled = self.rolled.drain(..);
            self.prepared.extend(rolled.map(|part| (checkpoint, part.covered_by(checkpoint))));
        }
        Ok(self.prepared.iter().map(|(_, sealed)| Committable(sealed.encode())).collect())
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<()> {
        let covered = self.prepared.partition_point(|(of, _)| *of <= checkpoint);
        for (_, sealed) in &self.prepared[..covered] {
            self.folder.commit(sealed)?;
        }
        if covered > 0 {
            self.folder.sync()?;
            self.prepared.drain(..covered);
        }
        // A checkpoint after the restore is complete, so every subtask has opened and committed what it restored.
        self.folder.remove(&mut self.stale)
    }

    fn finish(&mut self, checkpointed: bool) -> Result<()> {
        if checkpointed {
            return Ok(());
        }
        self.seal()?;
        let restored = std::mem::take(&mut self.prepared).into_iter().map(|(_, sealed)| sealed);
        let all: Vec<_> = restored.chain(self.rolled.drain(..)).collect();
        for sealed in &all {
            self.folder.commit(sealed)?;
        }
        if all.is_empty() { Ok(()) } else { self.folder.sync() }
    }
}

impl<L> FilesWriter<L> {
    /// Writes the gathered lines to the file. After an error they are still gathered and can be written again.
    #[cold]
    fn spill(&mut self) -> Result<()> {
        if self.lost {
            return Err(Error::new(ErrorKind::Io, "an earlier fsync failed, so data may be lost")
                .at_path(self.folder.path()));
        }
        if self.line.is_empty() {
            return Ok(());
        }
        let part = match &mut self.part {
            Some(part) => part,
            none => {
                let number = self.next_number;
                let part = Part::create(&self.folder, self.subtask, number, self.attempt)?;
                self.next_number += 1;
                none.insert(part)
            }
        };
        part.append(&self.line)?;
        self.line.clear();
        if part.len() >= self.roll_bytes { self.seal() } else { Ok(()) }
    }

    /// Writes what is gathered, makes the file durable and closes it.
    fn seal(&mut self) -> Result<()> {
        let rolled = self.rolled.len();
        self.spill()?;
        if self.rolled.len() > rolled {
            return Ok(());
        }
        let Some(part) = self.part.take() else {
            return Ok(());
        };
        let sealed = part.seal(&self.extension).inspect_err(|_| self.lost = true)?;
        self.rolled.push(sealed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
