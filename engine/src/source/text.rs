//! Lines of text: of files, and of text in memory.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use memchr::{memchr, memchr_iter};

use super::bad_record::FieldError;
use super::files::{Files, LineFormat};
use super::lines::{Line, show};
use super::{Poll, Reader, ReaderContext, Source, Split};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::record::fields::{Fields, put_u64};
use crate::record::{Output, positions};

/// The lines of the files that match the glob `pattern`: `text_files("input/*.txt")`.
///
/// Lines end at LF or CRLF, which are not part of them; the last one may have no break. Files compressed with gzip or
/// zstd are read with the features of those names. Names that begin with a dot match only if the pattern says so.
pub fn text_files(pattern: impl Into<String>) -> Files<Text> {
    Files::new(pattern, Text)
}

/// Each line is a record.
#[derive(Clone, Copy, Debug)]
pub struct Text;

impl LineFormat for Text {
    type Out = String;

    #[inline(always)]
    fn record(&mut self, line: &str, out: &mut Output<'_, String>) -> Result<(), FieldError> {
        out.emit_ref(line);
        Ok(())
    }
}

/// The lines of a text in memory, cut at line ends into one part per subtask.
pub fn text_str(text: &'static str) -> TextBytes {
    text_bytes(text)
}

/// The lines of a text in memory, which is shared by all subtasks and must be UTF-8.
pub fn text_bytes(text: impl Into<Bytes>) -> TextBytes {
    TextBytes { text: text.into() }
}

/// See [`text_bytes`].
#[derive(Clone, Debug)]
pub struct TextBytes {
    text: Bytes,
}

const VERSION: u8 = 1;

impl TextBytes {
    fn split_of(&self, part: &Range<usize>) -> Split {
        let mut bytes = vec![VERSION];
        for n in [self.text.len(), part.start, part.end] {
            put_u64(&mut bytes, n as u64);
        }
        Split(bytes)
    }

    fn parse(&self, split: &Split) -> Result<Range<usize>> {
        let mut fields = Fields::versioned(&split.0, VERSION, "a text's split")?;
        let (len, start, end) = (fields.u64()?, fields.u64()?, fields.u64()?);
        if len != self.text.len() as u64 {
            return Err(Error::new(
                ErrorKind::Checkpoint,
                format!("the text had {len} bytes and has {}", self.text.len()),
            ));
        }
        if start > end || end > len {
            return Err(fields.malformed());
        }
        fields.end()?;
        // Neither is more than the text's length.
        Ok(start as usize..end as usize)
    }

    /// The first line's beginning at `at` or behind it.
    fn align(&self, at: usize) -> usize {
        match at.checked_sub(1) {
            Some(before) => {
                memchr(b'\n', &self.text[before..]).map_or(self.text.len(), |nl| before + nl + 1)
            }
            None => 0,
        }
    }
}

impl Source for TextBytes {
    type Out = String;
    type Reader = TextReader;

    fn splits(&self, parallelism: u32) -> Result<Vec<Split>> {
        let (n, p) = (self.text.len() as u128, u128::from(parallelism));
        let cut = |w: u32| self.align((n * u128::from(w) / p) as usize);
        Ok((0..parallelism).map(|w| self.split_of(&(cut(w)..cut(w + 1)))).collect())
    }

    fn open(&self, splits: Vec<Split>, _context: ReaderContext<'_>) -> Result<TextReader> {
        let parts = splits.iter().map(|split| self.parse(split)).collect::<Result<_>>()?;
        Ok(TextReader { source: self.clone(), parts, ends: Vec::new() })
    }
}

/// Reads one subtask's share of a [`TextBytes`].
#[derive(Debug)]
pub struct TextReader {
    source: TextBytes,
    /// What is not read; the front one is being read.
    parts: VecDeque<Range<usize>>,
    ends: Vec<usize>,
}

/// Lines shown in one poll.
const BATCH_MAX: usize = 1024;

impl Reader for TextReader {
    type Out = String;

    #[inline(always)]
    fn poll(
        &mut self,
        limit: usize,
        _now: Timestamp,
        out: &mut Output<'_, String>,
    ) -> Result<Poll> {
        let Some(part) = self.parts.front_mut() else {
            return Ok(Poll::End);
        };
        let bytes = &self.source.text[part.clone()];
        self.ends.clear();
        self.ends.extend(positions(b'\n', bytes).take(limit.min(BATCH_MAX)).map(|at| at + 1));
        if self.ends.len() < limit.min(BATCH_MAX) {
            let seen = self.ends.last().copied().unwrap_or(0);
            if seen < bytes.len() {
                self.ends.push(bytes.len());
            }
        }
        let end = self.ends.last().copied().unwrap_or(0);
        show(&bytes[..end], 0, &self.ends, part.start as u64, |at, line| match line {
            Line::Text(line) => {
                out.emit_ref(line);
                Ok(())
            }
            Line::Bytes(_) => Err(not_text(&self.source.text, at)),
        })?;
        part.start += end;
        if part.start == part.end {
            self.parts.pop_front();
        }
        Ok(Poll::Ready)
    }

    fn snapshot(&mut self) -> Vec<Split> {
        let rest = self.parts.iter().filter(|part| !part.is_empty());
        rest.map(|part| self.source.split_of(part)).collect()
    }
}

#[cold]
fn not_text(text: &[u8], offset: u64) -> Error {
    // The offset is that of a line in the text.
    let line = 1 + memchr_iter(b'\n', &text[..offset as usize]).count() as u64;
    Error::new(ErrorKind::Record, "the line is not UTF-8").at_line(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::source::{Drive, conformance};

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn text_in_memory_conforms() {
        conformance(|| text_str("a\nbb\r\n\nccc\nß"), &owned(&["a", "bb", "", "ccc", "ß"]));
        conformance(|| text_str("a\n"), &owned(&["a"]));
        conformance(|| text_bytes(Vec::new()), &[]);
        conformance(
            || text_str("one long line and nothing else"),
            &owned(&["one long line and nothing else"]),
        );
    }

    #[test]
    fn each_subtask_reads_a_part_cut_at_a_line_end() {
        let shares = Drive::new(&text_str("aaaa\nb\ncccccc\nd\n"), 2).expect("opens").read_shares();
        assert_eq!(shares, [owned(&["aaaa", "b", "cccccc"]), owned(&["d"])]);
    }

    #[test]
    fn text_in_memory_that_is_not_utf8_names_the_line() {
        let source = text_bytes(&b"ok\nok\n\xFF\n"[..]);
        let error = Drive::new(&source, 1).expect("opens").try_read(9, 9).expect_err("is refused");
        assert_eq!((error.kind(), error.line()), (ErrorKind::Record, Some(3)));
    }

    #[test]
    fn another_text_than_the_checkpoints_is_refused() {
        let splits = text_str("a\nb\n").splits(1).expect("cuts");
        let error = Drive::restored(&text_str("a\n"), 1, splits).expect_err("is refused");
        assert_eq!(error.kind(), ErrorKind::Checkpoint);
    }
}
