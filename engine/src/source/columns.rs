//! Cuts a CSV line into columns, in place.
//!
//! Eight bytes at a time are compared with the delimiter and the quote; a line without quotes is done then. In one with
//! quotes, a column that begins with a quote ends at the next single one, and two quotes stand for one; such a column
//! alone is copied. A quote elsewhere is a character like others.

use super::bad_record::FieldError;
use crate::record::load::words16;

/// The columns of one line, and the names of the header if there is one.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    line: &'a str,
    unescaped: &'a str,
    spans: &'a [Span],
    names: &'a [String],
}

impl<'a> Columns<'a> {
    /// How many there are.
    pub fn len(self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.spans.is_empty()
    }

    /// Column `index`, without its quotes.
    #[inline(always)]
    pub fn get(self, index: usize) -> Option<&'a str> {
        let span = self.spans.get(index)?;
        let text = if span.start & UNESCAPED == 0 { self.line } else { self.unescaped };
        Some(&text[(span.start & !UNESCAPED) as usize..span.end as usize])
    }

    /// The bytes of column `index`: cheaper than [`Columns::get`] where the text is only looked through, as for a number.
    #[inline(always)]
    pub fn bytes(self, index: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(index)?;
        let text = if span.start & UNESCAPED == 0 { self.line } else { self.unescaped };
        Some(&text.as_bytes()[(span.start & !UNESCAPED) as usize..span.end as usize])
    }

    /// The columns in order.
    pub fn iter(self) -> impl Iterator<Item = &'a str> {
        (0..self.len()).map_while(move |index| self.get(index))
    }

    /// What the header calls column `index`; else its number, from 1.
    pub fn name(self, index: usize) -> String {
        self.names.get(index).cloned().unwrap_or_else(|| format!("column {}", index + 1))
    }

    /// Column `index`, read as `N` from its text.
    ///
    /// # Errors
    /// There is no such column, or it is no `N`; the error names it.
    #[inline]
    pub fn parse<N: std::str::FromStr>(self, index: usize) -> Result<N, FieldError>
    where
        N::Err: std::fmt::Display,
    {
        match self.get(index) {
            Some(text) => text.parse().map_err(|error| {
                FieldError::field(self.name(index), format!("'{}': {error}", Shown(text)))
            }),
            None => Err(FieldError::field(self.name(index), "the row has no such column")),
        }
    }
}

/// The beginning of a text: a message stays short.
struct Shown<'a>(&'a str);

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const CHARS_MAX: usize = 40;
        match self.0.char_indices().nth(CHARS_MAX) {
            Some((at, _)) => write!(f, "{}…", self.0[..at].escape_debug()),
            None => write!(f, "{}", self.0.escape_debug()),
        }
    }
}

/// Where a column lies: in the line, or, if `start` has the bit [`UNESCAPED`], in the text that was unescaped.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

/// Lines are shorter than 2 GiB: see `Files::max_line_bytes`.
const UNESCAPED: u32 = 1 << 31;

/// Columns that are noted between two looks at the room.
const ROOM: usize = 65;

/// Cuts lines; keeps its memory from line to line.
#[derive(Clone, Debug)]
pub(super) struct Splitter {
    delimiter: u8,
    quote: u8,
    /// The columns are the first `len`; there is room for [`ROOM`] more.
    spans: Vec<Span>,
    len: usize,
    unescaped: String,
}

impl Splitter {
    /// Both are ASCII, and not the same.
    pub(super) fn new(delimiter: u8, quote: u8) -> Self {
        Self {
            delimiter,
            quote,
            spans: vec![Span { start: 0, end: 0 }; 2 * ROOM],
            len: 0,
            unescaped: String::new(),
        }
    }

    pub(super) fn delimiter(&self) -> u8 {
        self.delimiter
    }

    pub(super) fn quote(&self) -> u8 {
        self.quote
    }

    /// The columns of `line`, called as in `names`.
    ///
    /// # Errors
    /// A quote is not closed, or something follows it.
    #[inline]
    pub(super) fn split<'a>(
        &'a mut self,
        line: &'a str,
        names: &'a [String],
    ) -> Result<Columns<'a>, FieldError> {
        if !self.split_plain(line.as_bytes()) {
            self.split_quoted(line)?;
        }
        Ok(Columns { line, unescaped: &self.unescaped, spans: &self.spans[..self.len], names })
    }

    /// Cuts a line that has no quotes; `false` if there is one.
    #[inline(always)]
    fn split_plain(&mut self, line: &[u8]) -> bool {
        let mut spans = self.spans.as_mut_slice();
        let (mut n, mut start) = (0, 0);
        for (block, at) in line.chunks(64).zip((0..).step_by(64)) {
            let (words, rest) = block.as_chunks::<8>();
            let (mut found, mut quotes) = (0, 0);
            for (word, i) in words.iter().zip(0..) {
                let word = u64::from_le_bytes(*word);
                found |= gather(equal(word, self.delimiter)) << (8 * i);
                quotes |= equal(word, self.quote);
            }
            if !rest.is_empty() {
                // Filled up with zeros, which are neither.
                let (word, _) = words16(rest);
                found |= gather(equal(word, self.delimiter)) << (8 * words.len());
                quotes |= equal(word, self.quote);
            }
            if quotes != 0 {
                return false;
            }
            if spans.len() - n <= ROOM {
                spans = grow(&mut self.spans);
            }
            // One loop for 64 bytes: rows of as many columns each leave it at the same turn, so it is well predicted.
            while found != 0 {
                let end = at + found.trailing_zeros();
                spans[n] = Span { start, end };
                (n, start) = (n + 1, end + 1);
                found &= found - 1;
            }
        }
        spans[n] = Span { start, end: line.len() as u32 };
        self.len = n + 1;
        true
    }

    /// Cuts any line.
    #[inline(never)]
    fn split_quoted(&mut self, line: &str) -> Result<(), FieldError> {
        self.len = 0;
        self.unescaped.clear();
        let bytes = line.as_bytes();
        let mut start = 0;
        loop {
            let end = if bytes.get(start) == Some(&self.quote) {
                self.quoted(line, start + 1)?
            } else {
                let end = find(self.delimiter, bytes, start);
                self.push(Span { start: start as u32, end: end as u32 });
                end
            };
            if end == bytes.len() {
                return Ok(());
            }
            start = end + 1;
        }
    }

    /// Notes the column whose content begins at `start`, behind its quote, and says where it ends.
    fn quoted(&mut self, line: &str, start: usize) -> Result<usize, FieldError> {
        let bytes = line.as_bytes();
        let column = |n: usize| format!("column {}", n + 1);
        let (mut from, copied) = (start, self.unescaped.len());
        let mut is_copied = false;
        loop {
            let at = find(self.quote, bytes, from);
            if at == bytes.len() {
                return Err(FieldError::field(column(self.len), "a quote is not closed"));
            }
            if bytes.get(at + 1) == Some(&self.quote) {
                // Two quotes stand for one: copy with the first, go on behind the second.
                self.unescaped.push_str(&line[from..=at]);
                is_copied = true;
                from = at + 2;
                continue;
            }
            if bytes.get(at + 1).is_some_and(|&next| next != self.delimiter) {
                return Err(FieldError::field(
                    column(self.len),
                    "something follows the closing quote",
                ));
            }
            let span = if is_copied {
                self.unescaped.push_str(&line[from..at]);
                Span { start: copied as u32 | UNESCAPED, end: self.unescaped.len() as u32 }
            } else {
                Span { start: start as u32, end: at as u32 }
            };
            self.push(span);
            return Ok(at + 1);
        }
    }

    fn push(&mut self, span: Span) {
        if self.spans.len() - self.len <= ROOM {
            grow(&mut self.spans);
        }
        self.spans[self.len] = span;
        self.len += 1;
    }
}

/// Which column, from 0, goes on where `text` ends.
#[cold]
pub(super) fn column_behind(text: &str, delimiter: u8, quote: u8) -> usize {
    let mut is_quoted = false;
    let ends_a_column = |byte: u8| {
        is_quoted ^= byte == quote;
        byte == delimiter && !is_quoted
    };
    text.bytes().map(ends_a_column).filter(|ends| *ends).count()
}

/// Doubles the room.
#[cold]
#[inline(never)]
fn grow(spans: &mut Vec<Span>) -> &mut [Span] {
    spans.resize(spans.len() * 2, Span { start: 0, end: 0 });
    spans
}

/// Where `byte` is at `from` or behind it; the end if nowhere.
fn find(byte: u8, bytes: &[u8], from: usize) -> usize {
    memchr::memchr(byte, &bytes[from..]).map_or(bytes.len(), |at| from + at)
}

const fn splat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// The high bit of each byte of `word` that is `byte`; exactly those.
#[inline(always)]
const fn equal(word: u64, byte: u8) -> u64 {
    const LOW: u64 = splat(0x7F);
    let zero = word ^ splat(byte);
    !(((zero & LOW) + LOW) | zero | LOW)
}

/// Bit `i` for the high bit of byte `i`.
#[inline(always)]
const fn gather(highs: u64) -> u64 {
    // Byte i's bit comes to bit 56 + i by the factor's bit 7 * (8 - i), and no two of the products meet.
    (highs >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(line: &str) -> Result<Vec<String>, FieldError> {
        let mut splitter = Splitter::new(b',', b'"');
        let columns = splitter.split(line, &[])?;
        Ok(columns.iter().map(str::to_owned).collect())
    }

    #[test]
    fn columns_are_cut_at_delimiters_outside_quotes() {
        for (line, expected) in [
            ("", &[""][..]),
            (",", &["", ""]),
            ("a,b", &["a", "b"]),
            ("0123456,89", &["0123456", "89"]),
            ("01234567,9,", &["01234567", "9", ""]),
            ("é,€,😀,", &["é", "€", "😀", ""]),
            ("\"a,b\",c", &["a,b", "c"]),
            ("\"\",\"\"", &["", ""]),
            ("\"a\"\"b\",\"\"\"\"", &["a\"b", "\""]),
            ("5\" pipe,\"x\ny\"", &["5\" pipe", "x\ny"]),
        ] {
            assert_eq!(split(line).expect("cuts"), expected, "{line}");
        }
    }

    #[test]
    fn a_quote_that_is_not_closed_or_closed_too_early_names_the_column() {
        for (line, field) in [("a,\"b", "column 2"), ("\"a\"b,c", "column 1"), ("\"", "column 1")] {
            assert_eq!(
                split(line).expect_err("is refused").field.as_deref(),
                Some(field),
                "{line}"
            );
        }
    }

    #[test]
    fn a_column_that_does_not_parse_is_named_and_shown_short() {
        let names = ["id".to_owned(), "price".to_owned()];
        let mut splitter = Splitter::new(b',', b'"');
        let line = format!("7,{}", "x".repeat(100));
        let columns = splitter.split(&line, &names).expect("cuts");
        assert_eq!(columns.parse::<u64>(0).expect("parses"), 7);
        let error = columns.parse::<u64>(1).expect_err("is refused");
        assert_eq!(error.field.as_deref(), Some("price"));
        assert!(error.message.len() < 100, "{}", error.message);
        assert_eq!(
            columns.parse::<u64>(2).expect_err("is refused").field.as_deref(),
            Some("column 3")
        );
    }

    proptest! {
        #[test]
        fn what_is_written_as_csv_is_read_back(
            columns in prop::collection::vec("[a-c,\"\né€😀]{0,12}", 1..9),
        ) {
            let written = |column: &String| {
                if column.contains(['"', ',', '\n']) {
                    format!("\"{}\"", column.replace('"', "\"\""))
                } else {
                    column.clone()
                }
            };
            let line = columns.iter().map(written).collect::<Vec<_>>().join(",");
            prop_assert_eq!(split(&line).expect("cuts"), columns);
        }

        #[test]
        fn the_two_ways_of_cutting_agree(line in "[a-c,é]{0,200}") {
            let mut splitter = Splitter::new(b',', b'"');
            splitter.split_quoted(&line).expect("has no quotes");
            let spans = splitter.spans[..splitter.len].iter().map(|span| &line[span.start as usize..span.end as usize]);
            let expected: Vec<_> = spans.map(str::to_owned).collect();
            prop_assert_eq!(split(&line).expect("cuts"), expected);
        }
    }
}
