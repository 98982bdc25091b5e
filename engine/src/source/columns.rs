//! Cuts a CSV line into columns, in place.
//!
//! Eight bytes at a time are compared with the delimiter and the quote; a line without quotes is done then. In one with
//! quotes, a column that begins with a quote ends at the next single one, and two quotes stand for one; such a column
//! alone is copied. A quote elsewhere is a character like others.

use super::bad_record::FieldError;

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
        if span.start & UNESCAPED == 0 {
            Some(&self.line[span.start as usize..span.end as usize])
        } else {
            Some(&self.unescaped[(span.start & !UNESCAPED) as usize..span.end as usize])
        }
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

/// Cuts lines; keeps its memory from line to line.
#[derive(Clone, Debug)]
pub(super) struct Splitter {
    delimiter: u8,
    quote: u8,
    spans: Vec<Span>,
    unescaped: String,
}

impl Splitter {
    /// Both are ASCII, and not the same.
    pub(super) fn new(delimiter: u8, quote: u8) -> Self {
        Self { delimiter, quote, spans: Vec::with_capacity(64), unescaped: String::new() }
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
        self.spans.clear();
        if !self.split_plain(line.as_bytes()) {
            self.split_quoted(line)?;
        }
        Ok(Columns { line, unescaped: &self.unescaped, spans: &self.spans, names })
    }

    /// Cuts a line that has no quotes; `false` if there is one.
    #[inline]
    fn split_plain(&mut self, line: &[u8]) -> bool {
        let (delimiters, quotes) = (splat(self.delimiter), splat(self.quote));
        let mut start = 0;
        let mut note = |at: usize, mut found: u64, spans: &mut Vec<Span>| {
            while found != 0 {
                let end = at as u32 + found.trailing_zeros() / 8;
                spans.push(Span { start, end });
                start = end + 1;
                found &= found - 1;
            }
        };
        let (words, rest) = line.as_chunks::<8>();
        for (i, word) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            if zeros(word ^ quotes) != 0 {
                return false;
            }
            note(i * 8, zeros(word ^ delimiters), &mut self.spans);
        }
        if let (Some(&word), false) = (line.last_chunk::<8>(), rest.is_empty()) {
            // The last eight bytes, of which the first were seen.
            let fresh = u64::MAX << (8 * (8 - rest.len()));
            let word = u64::from_le_bytes(word);
            if zeros(word ^ quotes) != 0 {
                return false;
            }
            note(line.len() - 8, zeros(word ^ delimiters) & fresh, &mut self.spans);
        } else {
            for (at, &byte) in rest.iter().enumerate() {
                if byte == self.quote {
                    return false;
                }
                note(at, if byte == self.delimiter { 0x80 } else { 0 }, &mut self.spans);
            }
        }
        self.spans.push(Span { start, end: line.len() as u32 });
        true
    }

    /// Cuts any line.
    #[inline(never)]
    fn split_quoted(&mut self, line: &str) -> Result<(), FieldError> {
        self.spans.clear();
        self.unescaped.clear();
        let bytes = line.as_bytes();
        let mut start = 0;
        loop {
            let end = if bytes.get(start) == Some(&self.quote) {
                self.quoted(line, start + 1)?
            } else {
                let end = find(self.delimiter, bytes, start);
                self.spans.push(Span { start: start as u32, end: end as u32 });
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
        let column = |spans: &[Span]| format!("column {}", spans.len() + 1);
        let (mut from, copied) = (start, self.unescaped.len());
        let mut is_copied = false;
        loop {
            let at = find(self.quote, bytes, from);
            if at == bytes.len() {
                return Err(FieldError::field(column(&self.spans), "a quote is not closed"));
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
                    column(&self.spans),
                    "something follows the closing quote",
                ));
            }
            self.spans.push(if is_copied {
                self.unescaped.push_str(&line[from..at]);
                Span { start: copied as u32 | UNESCAPED, end: self.unescaped.len() as u32 }
            } else {
                Span { start: start as u32, end: at as u32 }
            });
            return Ok(at + 1);
        }
    }
}

/// Where `byte` is at `from` or behind it; the end if nowhere.
fn find(byte: u8, bytes: &[u8], from: usize) -> usize {
    memchr::memchr(byte, &bytes[from..]).map_or(bytes.len(), |at| from + at)
}

const fn splat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// The high bit of each byte that is zero, exactly.
#[inline(always)]
const fn zeros(word: u64) -> u64 {
    const LOW: u64 = splat(0x7F);
    !(((word & LOW) + LOW) | word | LOW)
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
            assert_eq!(split(line).unwrap_err().field.as_deref(), Some(field), "{line}");
        }
    }

    #[test]
    fn a_column_that_does_not_parse_is_named_and_shown_short() {
        let names = ["id".to_owned(), "price".to_owned()];
        let mut splitter = Splitter::new(b',', b'"');
        let line = format!("7,{}", "x".repeat(100));
        let columns = splitter.split(&line, &names).expect("cuts");
        assert_eq!(columns.parse::<u64>(0).expect("parses"), 7);
        let error = columns.parse::<u64>(1).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("price"));
        assert!(error.message.len() < 100, "{}", error.message);
        assert_eq!(columns.parse::<u64>(2).unwrap_err().field.as_deref(), Some("column 3"));
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
        fn the_two_ways_of_cutting_agree(line in "[a-c,é]{0,40}") {
            let mut splitter = Splitter::new(b',', b'"');
            splitter.split_quoted(&line).expect("has no quotes");
            let spans = splitter.spans.iter().map(|span| &line[span.start as usize..span.end as usize]);
            let expected: Vec<_> = spans.map(str::to_owned).collect();
            prop_assert_eq!(split(&line).expect("cuts"), expected);
        }
    }
}
