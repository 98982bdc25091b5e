//! Lines of many files, as records of some format.
//!
//! Plain files are cut into ranges so that subtasks share them and a restore can deal them out anew; compressed ones,
//! and those whose records may contain line breaks, are read by one subtask each. A reader reads its splits one after
//! the other. What is wrong with a record is told by file, line and field; the line is counted only then.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::bad_record::{FieldError, OnBadRecord, OnInvalidText, Skipped};
use super::input::{Compression, Input};
use super::lines::{self, Found, Line, Lines, Quotes, READ_BYTES};
use super::split::{FileSplit, Fingerprint};
use super::{Poll, Reader, ReaderContext, Source, Split};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::record::{Data, Output};

/// Ranges a subtask gets of large files, so that a restore with more subtasks has something to give them.
const SPLITS_PER_SUBTASK: u64 = 4;
/// Smaller ranges are not worth an open file.
const SPLIT_BYTES_MIN: u64 = 1 << 20;
/// As `record.max-bytes`, unless set.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Columns are noted as 31-bit offsets.
const LINE_BYTES_LIMIT: usize = 1 << 30;

/// How lines become records.
pub trait LineFormat: Clone + Send + 'static {
    /// The record type.
    type Out: Data;

    /// Emits at most one record of a line, which comes without its break.
    ///
    /// # Errors
    /// The line is malformed; nothing of it has been emitted.
    fn record(&mut self, line: &str, out: &mut Output<'_, Self::Out>) -> Result<(), FieldError>;

    /// Takes the first line of each file, if [`LineFormat::has_header`].
    ///
    /// # Errors
    /// The file has another header than the format needs. The task fails, whatever the policy for bad records.
    fn header(&mut self, _line: &str) -> Result<(), FieldError> {
        Ok(())
    }

    /// Whether the first line of each file is a header.
    fn has_header(&self) -> bool {
        false
    }

    /// Quote and delimiter, both ASCII, if line breaks between quotes belong to the record.
    fn quoted_breaks(&self) -> Option<(u8, u8)> {
        None
    }

    /// The field that goes on where `text`, the beginning of a line, ends; `None` where lines have no fields.
    fn field_behind(&self, _text: &str) -> Option<String> {
        None
    }

    /// Checks the options.
    ///
    /// # Errors
    /// They contradict each other.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// A source of files; see `text_files`, `csv_files` and `json_lines`.
#[derive(Clone, Debug)]
pub struct Files<L> {
    pattern: String,
    pub(super) format: L,
    options: Options,
}

#[derive(Clone, Debug)]
struct Options {
    on_bad_record: OnBadRecord,
    on_invalid_text: OnInvalidText,
    line_bytes_max: usize,
    skipped: Skipped,
}

impl<L: LineFormat> Files<L> {
    /// The files that match `pattern` as lines of `format`.
    pub fn new(pattern: impl Into<String>, format: L) -> Self {
        let options = Options {
            on_bad_record: OnBadRecord::default(),
            on_invalid_text: OnInvalidText::default(),
            line_bytes_max: LINE_BYTES_MAX,
            skipped: Skipped::default(),
        };
        Self { pattern: pattern.into(), format, options }
    }

    /// What to do with records that can't be read.
    #[must_use]
    pub fn on_bad_record(mut self, policy: OnBadRecord) -> Self {
        self.options.on_bad_record = policy;
        self
    }

    /// What to do with lines that are not UTF-8.
    #[must_use]
    pub fn on_invalid_text(mut self, policy: OnInvalidText) -> Self {
        self.options.on_invalid_text = policy;
        self
    }

    /// How long a line may be in bytes, with its break: 64 MiB if not set, at most 1 GiB. A longer one is a bad record.
    #[must_use]
    pub fn max_line_bytes(mut self, bytes: usize) -> Self {
        self.options.line_bytes_max = bytes;
        self
    }

    /// Counts the records that [`OnBadRecord::SkipAndCount`] leaves out.
    pub fn skipped(&self) -> Skipped {
        self.options.skipped.clone()
    }

    /// Files are cut at byte positions only if any line break is a record's end.
    fn is_splittable(&self) -> bool {
        self.format.quoted_breaks().is_none()
    }
}

impl<L: LineFormat> Source for Files<L> {
    type Out = L::Out;
    type Reader = FilesReader<L>;

    fn splits(&self, parallelism: u32) -> Result<Vec<Split>> {
        self.format.check()?;
        if !(1..=LINE_BYTES_LIMIT).contains(&self.options.line_bytes_max) {
            return Err(Error::config("max_line_bytes is at least 1 and at most 1 GiB"));
        }
        let mut whole = Vec::new();
        for path in find(&self.pattern)? {
            let (file, metadata) = open(&path)?;
            let compression = Compression::of(&file, &path)?;
            whole.push((path, compression, Fingerprint::of(&metadata), metadata.len()));
        }
        let total: u64 = whole.iter().map(|(.., len)| len).sum();
        let most = SPLITS_PER_SUBTASK * u64::from(parallelism);
        let target = total.div_ceil(most.max(1)).max(SPLIT_BYTES_MIN);
        let mut splits = Vec::new();
        for (path, compression, file, len) in whole {
            if compression != Compression::None {
                splits.push(FileSplit { path, file, position: 0, end: u64::MAX }.encode());
                continue;
            }
            let ranges = if self.is_splittable() { len.div_ceil(target) } else { len.min(1) };
            let cut = |i: u64| (u128::from(len) * u128::from(i) / u128::from(ranges)) as u64;
            for i in 0..ranges {
                let (position, end) = (cut(i), cut(i + 1));
                splits.push(FileSplit { path: path.clone(), file, position, end }.encode());
            }
        }
        Ok(splits)
    }

    fn open(&self, splits: Vec<Split>, _context: ReaderContext<'_>) -> Result<Self::Reader> {
        let later = splits.iter().map(FileSplit::parse).collect::<Result<_>>()?;
        Ok(FilesReader {
            format: self.format.clone(),
            options: self.options.clone(),
            later,
            current: None,
        })
    }
}

/// The files that match, sorted, each once.
///
/// # Errors
/// None matches, the pattern is malformed, or a folder can't be read.
fn find(pattern: &str) -> Result<Vec<PathBuf>> {
    // A name that is there is meant as it is, even with brackets in it.
    if Path::new(pattern).exists() {
        return Ok(vec![PathBuf::from(pattern)]);
    }
    let options = glob::MatchOptions {
        // Hidden files are not meant: uncommitted parts are such.
        require_literal_leading_dot: true,
        ..glob::MatchOptions::default()
    };
    let found = glob::glob_with(pattern, options).map_err(|error| {
        Error::config(format!("'{pattern}' is no pattern: {error}")).caused_by(error)
    })?;
    let mut paths = Vec::new();
    for path in found {
        paths.push(path.map_err(|error| {
            let path = error.path().to_owned();
            Error::io(path, "can't look for files", error.into())
        })?);
    }
    paths.sort_unstable();
    paths.dedup();
    if paths.is_empty() {
        return Err(Error::config("no file matches").at_path(pattern));
    }
    Ok(paths)
}

/// Opens a regular file.
fn open(path: &Path) -> Result<(File, std::fs::Metadata)> {
    let failed = |error| Error::io(path, "can't open", error);
    // Checked before it is opened, since opening a pipe waits for its writer.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "it is a folder" } else { "it is no regular file" };
        return Err(Error::new(ErrorKind::Io, format!("can't read: {what}")).at_path(path));
    }
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    Ok((file, metadata))
}

/// Reads one subtask's share of [`Files`].
pub struct FilesReader<L> {
    format: L,
    options: Options,
    current: Option<Current<L>>,
    later: VecDeque<FileSplit>,
}

/// The split being read.
struct Current<L> {
    split: FileSplit,
    /// Knows the file's header.
    format: L,
    lines: Lines<Input>,
}

impl<L> fmt::Debug for FilesReader<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilesReader").field("later", &self.later).finish_non_exhaustive()
    }
}

impl<L: LineFormat> Reader for FilesReader<L> {
    type Out = L::Out;

    #[inline(always)]
    fn poll(
        &mut self,
        limit: usize,
        _now: Timestamp,
        out: &mut Output<'_, L::Out>,
    ) -> Result<Poll> {
        let Some(Current { split, format, lines }) = &mut self.current else {
            return self.open_next();
        };
        let options = &self.options;
        match lines.find(limit, split.end) {
            Ok(Found::Lines) => lines.consume(|offset, line| {
                let text = match line {
                    Line::Text(text) => text,
                    Line::Bytes(bytes) => {
                        return invalid(bytes, format, out, options, &split.path, offset);
                    }
                };
                format.record(text, out).or_else(|e| bad(e, options, &split.path, offset))
            })?,
            Ok(Found::Nothing) => {}
            Ok(Found::TooLong) => {
                let limit = options.line_bytes_max;
                let error = FieldError::record(format!("the line is longer than {limit} bytes"));
                bad(error, options, &split.path, lines.position())?;
                lines.skip_line();
            }
            Ok(Found::End) => self.current = None,
            Err(error) => return Err(Error::io(&split.path, "can't read", error)),
        }
        Ok(Poll::Ready)
    }

    fn snapshot(&mut self) -> Vec<Split> {
        let current = self.current.iter().map(|current| FileSplit {
            position: current.lines.position(),
            ..current.split.clone()
        });
        current
            .chain(self.later.iter().cloned())
            .filter(|split| split.position < split.end)
            .map(|split| split.encode())
            .collect()
    }
}

impl<L: LineFormat> FilesReader<L> {
    /// Opens the next split, if there is one, and reads the file's header.
    #[cold]
    fn open_next(&mut self) -> Result<Poll> {
        let Some(split) = self.later.front() else {
            return Ok(Poll::End);
        };
        let (file, metadata) = open(&split.path)?;
        split.check(&metadata)?;
        let mut format = self.format.clone();
        let quotes = format.quoted_breaks().map(|(quote, delimiter)| Quotes { quote, delimiter });
        let input = Input::new(file, &split.path)?;
        let mut lines = Lines::new(input, self.options.line_bytes_max, quotes);
        if format.has_header() {
            read_header(&mut lines, &mut format, &split.path, &self.options)?;
        }
        lines.go_to(split.position).map_err(|e| Error::io(&split.path, "can't read", e))?;
        let split = self.later.pop_front().expect("the front was just looked at");
        self.current = Some(Current { split, format, lines });
        Ok(Poll::Ready)
    }
}

/// Gives a file's first line to its format.
fn read_header<L: LineFormat>(
    lines: &mut Lines<Input>,
    format: &mut L,
    path: &Path,
    options: &Options,
) -> Result<()> {
    let wrong = |error| bad_record(error, path, 0);
    loop {
        match lines.find(1, u64::MAX).map_err(|e| Error::io(path, "can't read", e))? {
            Found::Lines => {
                return lines.consume(|_, line| match line {
                    Line::Text(text) => format.header(text).map_err(wrong),
                    Line::Bytes(_) => Err(wrong(FieldError::record("the header is not UTF-8"))),
                });
            }
            Found::Nothing => {}
            Found::TooLong => {
                let message = format!("the header is longer than {} bytes", options.line_bytes_max);
                return Err(wrong(FieldError::record(message)));
            }
            Found::End => return Ok(()),
        }
    }
}

/// A line that is not UTF-8.
#[cold]
#[inline(never)]
fn invalid<L: LineFormat>(
    line: &[u8],
    format: &mut L,
    out: &mut Output<'_, L::Out>,
    options: &Options,
    path: &Path,
    offset: u64,
) -> Result<()> {
    match options.on_invalid_text {
        OnInvalidText::Replace => format
            .record(&String::from_utf8_lossy(line), out)
            .or_else(|error| bad(error, options, path, offset)),
        OnInvalidText::Bad => {
            let text = line.utf8_chunks().next().map_or("", |chunk| chunk.valid());
            let mut error = FieldError::record("the line is not UTF-8");
            error.field = format.field_behind(text);
            bad(error, options, path, offset)
        }
    }
}

/// Does with a bad record what the policy says.
#[cold]
#[inline(never)]
fn bad(error: FieldError, options: &Options, path: &Path, offset: u64) -> Result<()> {
    match options.on_bad_record {
        OnBadRecord::Fail => Err(bad_record(error, path, offset)),
        OnBadRecord::SkipAndCount => {
            options.skipped.add();
            Ok(())
        }
    }
}

/// The error of a record that begins at `offset`.
fn bad_record(bad: FieldError, path: &Path, offset: u64) -> Error {
    let mut error = Error::new(ErrorKind::Record, bad.message).at_path(path);
    // A file that can't be read a second time has no line numbers; the error itself is what counts.
    if let Ok(line) = line_at(path, offset) {
        error = error.at_line(line);
    }
    if let Some(field) = bad.field {
        error = error.in_field(field);
    }
    match bad.cause {
        Some(cause) => error.caused_by(cause),
        None => error,
    }
}

/// The number of the line that begins at `offset`.
fn line_at(path: &Path, offset: u64) -> Result<u64> {
    let (file, _) = open(path)?;
    let mut input = Input::new(file, path)?;
    let mut buffer = vec![0; READ_BYTES];
    let (mut line, mut left) = (1, offset);
    while left > 0 {
        let most = READ_BYTES.min(usize::try_from(left).unwrap_or(READ_BYTES));
        match lines::Input::read(&mut input, &mut buffer[..most]) {
            Ok(0) => break,
            Ok(n) => {
                line += memchr::memchr_iter(b'\n', &buffer[..n]).count() as u64;
                left -= n as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io(path, "can't read", error)),
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests;
