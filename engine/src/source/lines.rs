//! Finds lines in what is read, a batch at a time.
//!
//! Bytes are read into one buffer; a call of [`Lines::find`] reads at most once and notes where whole lines end, and
//! [`Lines::consume`] shows them in place. Text is validated a batch at a time, since short calls cost more than bytes.
//! A line is never cut: it lies whole in the buffer, which grows for a long one up to the bound and shrinks again. So a
//! character is never cut either.
//!
//! A position is the offset at which a line begins, and the byte before it is a line break: going to a position means
//! going to the byte before it and skipping the rest of that line. The same step finds the first line of a range that
//! begins in the middle of one, which belongs to the range before.

use std::io;

use memchr::{memchr, memchr2_iter};

use crate::record::positions;

/// What is read once; small enough to stay in L2.
pub(super) const READ_BYTES: usize = 128 << 10;
/// Lines found in one call.
const BATCH_MAX: usize = 1024;
const BOM: &[u8] = "\u{feff}".as_bytes();
/// For `Lines::closed`: no quote has been closed in this line.
const NEVER: usize = usize::MAX;

/// Where bytes come from.
pub(super) trait Input {
    /// As [`io::Read::read`]; 0 at the end.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Goes to a later offset in one step, if that is possible.
    fn seek(&mut self, _offset: u64) -> io::Result<bool> {
        Ok(false)
    }
}

/// Line breaks between quotes are no line ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quotes {
    pub(super) quote: u8,
    /// A quote opens only at the beginning of a column.
    pub(super) delimiter: u8,
}

/// What [`Lines::find`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Whole lines: [`Lines::consume`] shows them.
    Lines,
    /// None yet; there may be some after another call.
    Nothing,
    /// A line that is longer than the bound begins at the position; [`Lines::skip_line`] goes on behind it.
    TooLong,
    /// No line begins before the end.
    End,
}

/// A line without its break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Text(&'a str),
    /// It is not UTF-8.
    Bytes(&'a [u8]),
}

/// The lines of an input, from some position on.
#[derive(Debug)]
pub(super) struct Lines<I> {
    input: I,
    buffer: Vec<u8>,
    /// `buffer[start..filled]` is not consumed; its first byte lies at `offset` of the input.
    start: usize,
    filled: usize,
    offset: u64,
    /// No line that is not in `ends` ends before `searched`.
    searched: usize,
    /// Where the lines found end, their breaks included.
    ends: Vec<usize>,
    is_at_end: bool,
    line_bytes_max: usize,
    /// Bytes before this offset are passed over.
    skip_to: u64,
    /// The bytes up to the next break are passed over.
    is_skipping: bool,
    has_bom: bool,
    quotes: Option<Quotes>,
    is_quoted: bool,
    /// Where a quote was closed last, in the buffer.
    closed: usize,
}

impl<I: Input> Lines<I> {
    /// The lines of `input`, which stands at its beginning. A line, with its break, has at most `line_bytes_max` bytes.
    pub(super) fn new(input: I, line_bytes_max: usize, quotes: Option<Quotes>) -> Self {
        Self {
            input,
            buffer: vec![0; READ_BYTES],
            start: 0,
            filled: 0,
            offset: 0,
            searched: 0,
            ends: Vec::with_capacity(BATCH_MAX),
            is_at_end: false,
            line_bytes_max,
            skip_to: 0,
            is_skipping: false,
            has_bom: false,
            quotes,
            is_quoted: false,
            closed: NEVER,
        }
    }

    /// Goes to the first line that begins at `position` or behind it, if that is further on.
    pub(super) fn go_to(&mut self, position: u64) -> io::Result<()> {
        if position <= self.position() {
            return Ok(());
        }
        self.skip_to = position - 1;
        self.is_skipping = true;
        if self.input.seek(self.skip_to)? {
            (self.start, self.filled, self.searched) = (0, 0, 0);
            (self.offset, self.is_at_end) = (self.skip_to, false);
        }
        Ok(())
    }

    /// Where the next line begins; a place to go on from.
    pub(super) fn position(&self) -> u64 {
        if self.is_skipping {
            self.offset.max(self.skip_to + 1)
        } else if self.has_bom && self.offset == BOM.len() as u64 {
            0
        } else {
            self.offset
        }
    }

    /// Finds at most `limit` lines, all of which begin before offset `before`. Reads at most once.
    #[inline]
    pub(super) fn find(&mut self, limit: usize, before: u64) -> io::Result<Found> {
        self.ends.clear();
        if (self.is_skipping || self.offset == 0)
            && let Some(found) = self.begin(before)?
        {
            return Ok(found);
        }
        for has_read in [false, true] {
            let ahead = before.saturating_sub(self.offset);
            if ahead == 0 {
                return Ok(Found::End);
            }
            let stop = self.start.saturating_add(usize::try_from(ahead).unwrap_or(usize::MAX));
            self.search(limit.min(BATCH_MAX), stop);
            if let Some(&end) = self.ends.first() {
                let is_long = end - self.start > self.line_bytes_max;
                return Ok(if is_long { Found::TooLong } else { Found::Lines });
            }
            if self.filled - self.start > self.line_bytes_max {
                return Ok(Found::TooLong);
            }
            if self.is_at_end {
                if self.start == self.filled {
                    return Ok(Found::End);
                }
                self.ends.push(self.filled);
                return Ok(Found::Lines);
            }
            if !has_read {
                self.read()?;
            }
        }
        Ok(Found::Nothing)
    }

    /// Shows the lines found, each with the offset at which it begins, and goes on behind them.
    ///
    /// # Errors
    /// The first that `each` returns; then the position has not moved.
    #[inline(always)]
    pub(super) fn consume<E>(
        &mut self,
        each: impl FnMut(u64, Line<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(&end) = self.ends.last() else {
            return Ok(());
        };
        show(&self.buffer[self.start..end], self.start, &self.ends, self.offset, each)?;
        self.offset += (end - self.start) as u64;
        self.start = end;
        Ok(())
    }

    /// Passes over the line that begins at the position, however long it is.
    pub(super) fn skip_line(&mut self) {
        self.ends.clear();
        self.is_skipping = true;
        self.skip_to = self.offset;
    }

    /// Passes over what has to be passed over. `Some`: call again, or there is no line.
    #[cold]
    fn begin(&mut self, before: u64) -> io::Result<Option<Found>> {
        let mut has_read = false;
        while self.is_skipping {
            let before_it = self.skip_to.saturating_sub(self.offset);
            let there = self.filled - self.start;
            self.pass(there.min(usize::try_from(before_it).unwrap_or(usize::MAX)));
            if self.offset >= self.skip_to {
                let rest = &self.buffer[self.start..self.filled];
                match memchr(b'\n', rest) {
                    Some(at) => {
                        self.pass(at + 1);
                        self.is_skipping = false;
                        return Ok(None);
                    }
                    None => self.pass(rest.len()),
                }
                if self.offset >= before {
                    return Ok(Some(Found::End));
                }
            }
            if self.is_at_end {
                return Ok(Some(Found::End));
            }
            if has_read {
                return Ok(Some(Found::Nothing));
            }
            self.read()?;
            has_read = true;
        }
        while self.filled < BOM.len() && !self.is_at_end {
            self.read()?;
        }
        if self.offset == 0 && self.buffer[self.start..self.filled].starts_with(BOM) {
            self.has_bom = true;
            self.pass(BOM.len());
        }
        Ok(None)
    }

    fn pass(&mut self, n: usize) {
        self.start += n;
        self.offset += n as u64;
        self.searched = self.start;
        (self.is_quoted, self.closed) = (false, NEVER);
    }

    /// Notes up to `limit` lines, each of which begins before index `stop` of the buffer; a long one is noted alone.
    #[inline]
    fn search(&mut self, limit: usize, stop: usize) {
        if self.searched < self.start {
            self.searched = self.start;
        }
        match self.quotes {
            None => {
                let mut begin = self.start;
                for at in positions(b'\n', &self.buffer[self.searched..self.filled]) {
                    let end = self.searched + at + 1;
                    if end - begin > self.line_bytes_max && !self.ends.is_empty() {
                        break;
                    }
                    self.ends.push(end);
                    begin = end;
                    if self.ends.len() == limit || begin >= stop {
                        break;
                    }
                }
                self.searched = self.ends.last().copied().unwrap_or(self.filled);
            }
            Some(quotes) => self.search_quoted(quotes, limit, stop),
        }
    }

    fn search_quoted(&mut self, quotes: Quotes, limit: usize, stop: usize) {
        let mut begin = self.start;
        let (buffer, from) = (&self.buffer[..self.filled], self.searched);
        for at in memchr2_iter(quotes.quote, b'\n', &buffer[from..]) {
            let at = from + at;
            if buffer[at] == quotes.quote {
                if self.is_quoted {
                    (self.is_quoted, self.closed) = (false, at);
                } else {
                    // Elsewhere a quote is a character like others.
                    self.is_quoted =
                        at == begin || buffer[at - 1] == quotes.delimiter || self.closed == at - 1;
                }
            } else if !self.is_quoted {
                let end = at + 1;
                if end - begin > self.line_bytes_max && !self.ends.is_empty() {
                    break;
                }
                self.ends.push(end);
                (begin, self.closed) = (end, NEVER);
                if self.ends.len() == limit || begin >= stop {
                    break;
                }
            }
        }
        match self.ends.last() {
            Some(&end) => {
                self.searched = end;
                (self.is_quoted, self.closed) = (false, NEVER);
            }
            None => self.searched = self.filled,
        }
    }

    /// Reads once behind what is there.
    #[cold]
    fn read(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.searched = self.searched.saturating_sub(self.start);
            if self.closed != NEVER {
                self.closed -= self.start;
            }
            self.filled -= self.start;
            self.start = 0;
        }
        if self.filled == self.buffer.len() {
            // The bound was checked, so this ends at twice the longest line.
            self.buffer.resize(self.filled * 2, 0);
        } else if self.buffer.len() > READ_BYTES && self.filled < READ_BYTES / 2 {
            self.buffer.truncate(READ_BYTES);
            self.buffer.shrink_to_fit();
        }
        let free = &mut self.buffer[self.filled..];
        // No more at once than usual, so that a call stays short when the buffer is large.
        let most = free.len().min(READ_BYTES);
        loop {
            match self.input.read(&mut free[..most]) {
                Ok(0) => {
                    self.is_at_end = true;
                    return Ok(());
                }
                Ok(n) => {
                    self.filled += n;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A line, or that one was too long.
#[cfg(feature = "simulation")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineSeen {
    /// A line without its break, and where it begins.
    Text(u64, String),
    /// The same, of one that is not UTF-8.
    Bytes(u64, Vec<u8>),
    /// One that was passed over began here.
    TooLong(u64),
}

/// The lines of `bytes`, of which at most `step` come with each read; for those who feed it bytes from anywhere.
#[cfg(feature = "simulation")]
pub fn lines_of(
    bytes: &[u8],
    step: usize,
    line_bytes_max: usize,
    quotes: Option<(u8, u8)>,
) -> Vec<LineSeen> {
    struct Slow<'a>(&'a [u8], usize);

    impl Input for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(self.1).min(into.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    let quotes = quotes.map(|(quote, delimiter)| Quotes { quote, delimiter });
    let mut lines = Lines::new(Slow(bytes, step.max(1)), line_bytes_max, quotes);
    let mut seen = Vec::new();
    loop {
        match lines.find(BATCH_MAX, u64::MAX).expect("memory can be read") {
            Found::Lines => {
                let shown = lines.consume::<std::convert::Infallible>(|at, line| {
                    seen.push(match line {
                        Line::Text(text) => LineSeen::Text(at, text.to_owned()),
                        Line::Bytes(bytes) => LineSeen::Bytes(at, bytes.to_vec()),
                    });
                    Ok(())
                });
                shown.expect("nothing can go wrong");
            }
            Found::Nothing => {}
            Found::TooLong => {
                seen.push(LineSeen::TooLong(lines.position()));
                lines.skip_line();
            }
            Found::End => return seen,
        }
    }
}

/// Shows the lines of `bytes`, which lie at `start` of what `ends` are indices of and at `offset` of the input.
#[inline(always)]
pub(super) fn show<E>(
    bytes: &[u8],
    start: usize,
    ends: &[usize],
    offset: u64,
    mut each: impl FnMut(u64, Line<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return show_each(bytes, start, ends, offset, &mut each);
    };
    let mut begin = 0;
    for end in ends {
        let end = end - start;
        let content = end - break_len(&bytes[begin..end]);
        each(offset + begin as u64, Line::Text(&text[begin..content]))?;
        begin = end;
    }
    Ok(())
}

/// How long the break at the end of a line is: 2 for CRLF, 0 for a last line without one.
#[inline(always)]
fn break_len(line: &[u8]) -> usize {
    match line {
        [.., b'\r', b'\n'] => 2,
        [.., b'\n'] => 1,
        _ => 0,
    }
}

/// The same where not all is text.
#[cold]
#[inline(never)]
fn show_each<E>(
    bytes: &[u8],
    start: usize,
    ends: &[usize],
    offset: u64,
    each: &mut dyn FnMut(u64, Line<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut begin = 0;
    for end in ends {
        let end = end - start;
        let line = &bytes[begin..end - break_len(&bytes[begin..end])];
        let shown = match std::str::from_utf8(line) {
            Ok(text) => Line::Text(text),
            Err(_) => Line::Bytes(line),
        };
        each(offset + begin as u64, shown)?;
        begin = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
