//! Rows of CSV files read in place: [`CsvRow`], a record whose fields are columns, and [`RowParser`], which splits lines.
//!
//! The header is resolved once; a row is then one pass over the line for the delimiters and one parse a field, straight
//! into the record's view. Nothing is allocated per row, except that a row with quotes is unquoted into memory that the
//! parser keeps. Finding where a row ends (a quoted field may hold a line feed) is the caller's work: the CSV source.
//! Columns that no field names are skipped; a row with more or fewer columns than the header is refused.

use std::fmt;

use super::csv_field::{CsvField, Malformed};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{Data, words16};

/// A record that can be read from a row of a CSV file. Derive it beside `Data`:
///
/// ```
/// use tidegate::clock::EpochMillis;
/// use tidegate::record::Data;
/// use tidegate::source::csv_row::{CsvRow, RowParser};
///
/// #[derive(Clone, Data, CsvRow)]
/// struct Flight {
///     date: EpochMillis,
///     delay: Option<i32>,
///     #[csv(rename = "origin")]
///     from: String,
/// }
///
/// let mut rows = RowParser::new::<Flight>("date,origin,delay", b',')?;
/// let flight = rows.row::<Flight>("2001-01-01 00:01,LAS,33")?;
/// assert_eq!((flight.date.0, flight.delay, flight.from), (978_307_260_000, Some(33), "LAS"));
/// # Ok::<(), tidegate::error::Error>(())
/// ```
pub trait CsvRow: Data {
    /// The columns' names, in the order of the fields.
    const COLUMNS: &'static [&'static str];

    /// The view of a row, each field parsed in place.
    ///
    /// # Errors
    /// The first field that can't be parsed.
    fn row<'a>(columns: &Columns<'a>) -> Result<Self::Ref<'a>, FieldError>;
}

pub use tidegate_derive::CsvRow;

/// Splits lines into the columns of a header.
#[derive(Clone, Debug)]
pub struct RowParser {
    delimiter: u8,
    /// Which column each field of the record is.
    column_of_field: Vec<usize>,
    /// Where each column of the current row ends in the text.
    ends: Vec<usize>,
    /// The current row without its quotes, if it has some.
    unquoted: String,
}

impl RowParser {
    /// A parser for the rows below this header line.
    ///
    /// # Errors
    /// The header lacks a column of `R` or has it twice, or the delimiter is no ASCII character that could be one.
    pub fn new<R: CsvRow>(header: &str, delimiter: u8) -> Result<Self> {
        if !delimiter.is_ascii() || matches!(delimiter, 0 | b'"' | b'\r' | b'\n') {
            let message = "a CSV delimiter is an ASCII character other than quotes and line ends";
            return Err(Error::config(message));
        }
        let header = header.strip_prefix('\u{feff}').unwrap_or(header).trim_end();
        let most = 1 + header.bytes().filter(|&byte| byte == delimiter).count();
        let (mut ends, mut unquoted) = (vec![0; most], String::new());
        let (text, found) = split(header, delimiter, &mut ends, &mut unquoted)?;
        ends.truncate(found);
        let names: Vec<&str> = (0..found).map(|at| column(text, &ends, at).trim()).collect();
        let mut column_of_field = Vec::new();
        for &field in R::COLUMNS {
            let mut places = names.iter().enumerate().filter(|&(_, &name)| name == field);
            let Some((place, _)) = places.next() else {
                let message = format!("the header has no such column; it has {}", names.join(", "));
                return Err(Error::new(ErrorKind::Record, message).in_field(field));
            };
            if places.next().is_some() {
                let message = "the header has this column more than once";
                return Err(Error::new(ErrorKind::Record, message).in_field(field));
            }
            column_of_field.push(place);
        }
        Ok(Self { delimiter, column_of_field, ends, unquoted })
    }

    /// Reads a row, whose line end is cut off (a carriage return may be left).
    ///
    /// # Errors
    /// The row has more or fewer columns than the header, quotes that don't match, or a field that can't be parsed.
    #[inline]
    pub fn row<'a, R: CsvRow>(&'a mut self, line: &'a str) -> Result<R::Ref<'a>, FieldError> {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (text, found) = split(line, self.delimiter, &mut self.ends, &mut self.unquoted)?;
        let (ends, column_of_field) = (self.ends.as_slice(), self.column_of_field.as_slice());
        if found != ends.len() {
            return Err(FieldError::count(found, ends.len(), column_of_field, R::COLUMNS));
        }
        R::row(&Columns { text, ends, column_of_field, names: R::COLUMNS })
    }

    /// The name of column `at` of the header, if the record reads it.
    #[cfg(feature = "csv")]
    pub(super) fn name_of<R: CsvRow>(&self, at: usize) -> Option<&'static str> {
        let field = self.column_of_field.iter().position(|column| *column == at)?;
        R::COLUMNS.get(field).copied()
    }
}

/// The columns of one row.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    text: &'a str,
    ends: &'a [usize],
    column_of_field: &'a [usize],
    names: &'static [&'static str],
}

impl<'a> Columns<'a> {
    /// Parses the column of field `index` of the record.
    ///
    /// # Errors
    /// The text is no `T`; the error names the column.
    #[inline(always)]
    pub fn parse<T: CsvField>(&self, index: usize) -> Result<T::Ref<'a>, FieldError> {
        let text = column(self.text, self.ends, self.column_of_field[index]);
        T::parse(text).map_err(|malformed| self.malformed(index, text, malformed))
    }

    #[cold]
    fn malformed(&self, index: usize, text: &str, malformed: Malformed) -> FieldError {
        let text = text.chars().take(SHOWN_CHARS_MAX).collect();
        FieldError {
            column: Some(self.names[index]),
            problem: Problem::Malformed { expected: malformed.expected, text },
        }
    }
}

/// Of a malformed field so many characters are shown.
const SHOWN_CHARS_MAX: usize = 40;

/// Column `at` of a split text.
#[inline(always)]
fn column<'a>(text: &'a str, ends: &[usize], at: usize) -> &'a str {
    let start = if at == 0 { 0 } else { ends[at - 1] + 1 };
    &text[start..ends[at]]
}

/// Writes where the columns of a line end, as far as there is room, and says how many there are. The text is the line,
/// or without its quotes `unquoted`.
#[inline]
fn split<'a>(
    line: &'a str,
    delimiter: u8,
    ends: &mut [usize],
    unquoted: &'a mut String,
) -> Result<(&'a str, usize), FieldError> {
    let delimiters = u64::from_le_bytes([delimiter; 8]);
    let quotes = u64::from_le_bytes([b'"'; 8]);
    let (mut found, mut quoted) = (0, 0);
    let mut note = |end| {
        if let Some(place) = ends.get_mut(found) {
            *place = end;
        }
        found += 1;
    };
    let mut word = |word: u64, start: usize| {
        quoted |= zero_bytes(word ^ quotes);
        let mut hits = zero_bytes(word ^ delimiters);
        while hits != 0 {
            note(start + hits.trailing_zeros() as usize / 8);
            hits &= hits - 1;
        }
    };
    let (words, rest) = line.as_bytes().as_chunks::<8>();
    for (index, bytes) in words.iter().enumerate() {
        word(u64::from_le_bytes(*bytes), index * 8);
    }
    word(words16(rest).0, words.len() * 8);
    note(line.len());
    if quoted == 0 {
        return Ok((line, found));
    }
    let found = unquote(line, delimiter, ends, unquoted)?;
    Ok((unquoted, found))
}

/// The top bit of each byte that is zero.
#[inline(always)]
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    !(((word & LOW) + LOW) | word | LOW)
}

/// Splits a line with quotes: a quoted column may hold the delimiter, and a quote as two.
#[cold]
fn unquote(
    line: &str,
    delimiter: u8,
    ends: &mut [usize],
    to: &mut String,
) -> Result<usize, FieldError> {
    let delimiter = char::from(delimiter);
    to.clear();
    let (mut rest, mut found) = (line, 0);
    loop {
        rest = match rest.strip_prefix('"') {
            Some(quoted) => unquote_column(quoted, to)?,
            None => {
                let end = rest.find(delimiter).unwrap_or(rest.len());
                to.push_str(&rest[..end]);
                &rest[end..]
            }
        };
        if let Some(place) = ends.get_mut(found) {
            *place = to.len();
        }
        found += 1;
        match rest.strip_prefix(delimiter) {
            Some(more) => rest = more,
            None if rest.is_empty() => return Ok(found),
            None => return Err(FieldError { column: None, problem: Problem::Quotes }),
        }
        to.push(delimiter);
    }
}

/// Appends a column whose opening quote is cut off, and returns what follows its closing quote.
fn unquote_column<'a>(mut rest: &'a str, to: &mut String) -> Result<&'a str, FieldError> {
    loop {
        let Some((part, behind)) = rest.split_once('"') else {
            return Err(FieldError { column: None, problem: Problem::Quotes });
        };
        to.push_str(part);
        let Some(more) = behind.strip_prefix('"') else { return Ok(behind) };
        to.push('"');
        rest = more;
    }
}

/// Why a row can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldError {
    /// The column, if it is about one.
    pub column: Option<&'static str>,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A column's text can't be parsed.
    Malformed {
        /// What it should be.
        expected: &'static str,
        /// The text, or its beginning.
        text: Box<str>,
    },
    /// The row has another number of columns than the header.
    ColumnCount {
        /// Columns of the row.
        found: usize,
        /// Columns of the header.
        expected: usize,
    },
    /// A quoted column is not closed, or goes on behind its closing quote.
    Quotes,
}

impl FieldError {
    /// A row that is too short lacks at least the first of the record's columns that it doesn't reach.
    #[cold]
    fn count(
        found: usize,
        expected: usize,
        column_of_field: &[usize],
        names: &'static [&'static str],
    ) -> Self {
        let missing = column_of_field.iter().zip(names).filter(|(column, _)| **column >= found);
        let column = missing.min_by_key(|(column, _)| **column).map(|(_, name)| *name);
        Self { column, problem: Problem::ColumnCount { found, expected } }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { expected, text } => write!(f, "expected {expected}, found {text:?}"),
            Self::ColumnCount { found, expected } => {
                write!(f, "the row has {found} columns, but the header has {expected}")
            }
            Self::Quotes => {
                f.write_str("a quoted column is not closed, or goes on behind its quote")
            }
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(column) = self.column {
            write!(f, "field '{column}': ")?;
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for FieldError {}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Self {
        let whole = Self::new(ErrorKind::Record, error.problem.to_string());
        match error.column {
            Some(column) => whole.in_field(column),
            None => whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::EpochMillis;
    use crate::record::AsData;

    #[derive(Clone, Data, CsvRow, Debug, PartialEq)]
    struct Flight {
        date: EpochMillis,
        delay: Option<i32>,
        #[csv(rename = "from")]
        origin: String,
        r#type: char,
    }

    fn parser(header: &str) -> RowParser {
        RowParser::new::<Flight>(header, b',').expect("the header has the columns")
    }

    fn refusal(header: &str) -> String {
        let refused = RowParser::new::<Flight>(header, b',');
        refused.map(drop).expect_err("the header is wrong").to_string()
    }

    #[test]
    fn columns_are_found_by_their_names_wherever_they_stand() {
        let mut rows = parser("type,unused,\"from\",delay,date\r\n");
        let view = rows.row::<Flight>("x,,LAS,-3,1970-01-02\r").expect("the row is right");
        let flight = Flight {
            date: EpochMillis(86_400_000),
            delay: Some(-3),
            origin: "LAS".into(),
            r#type: 'x',
        };
        assert_eq!(view, flight.view());
        let view = rows.row::<Flight>("é,anything at all,Zürich,,0").expect("the row is right");
        assert_eq!((view.delay, view.origin, view.r#type), (None, "Zürich", 'é'));
    }

    #[test]
    fn quotes_may_hold_delimiters_and_doubled_quotes() {
        let mut rows = parser("from,delay,date,type");
        let view =
            rows.row::<Flight>("\"a, \"\"b\"\"\",\"7\",0,\"\"\"\"").expect("the row is right");
        assert_eq!((view.origin, view.delay, view.r#type), ("a, \"b\"", Some(7), '"'));
        for broken in ["\"a,1,0,x", "\"a\"b,1,0,x"] {
            let error = rows.row::<Flight>(broken).map(drop).expect_err("the quotes are wrong");
            assert_eq!(error.problem, Problem::Quotes, "{broken}");
        }
    }

    #[test]
    fn a_malformed_field_is_named_with_what_was_expected() {
        let mut rows = parser("date,delay,from,type");
        let error = rows.row::<Flight>("0,4x,LAS,y").map(drop).expect_err("4x is no number");
        assert_eq!(error.to_string(), "field 'delay': expected an integer, found \"4x\"");
        let error = Error::from(error);
        assert_eq!((error.kind(), error.field()), (ErrorKind::Record, Some("delay")));
        for (row, found) in [("0,1,LAS", 3), ("0,1,LAS,y,more", 5), ("", 1)] {
            let error = rows.row::<Flight>(row).map(drop).expect_err("the row has other columns");
            assert_eq!(error.problem, Problem::ColumnCount { found, expected: 4 }, "{row}");
        }
    }

    #[test]
    fn a_header_without_a_column_or_with_one_twice_is_refused() {
        assert_eq!(
            refusal("date,delay,origin,type"),
            "field 'from': the header has no such column; it has date, delay, origin, type"
        );
        assert!(refusal("date,delay,from,type,date").starts_with("field 'date'"));
        assert!(RowParser::new::<Flight>("date", b'"').is_err());
    }

    #[test]
    fn splitting_agrees_with_the_naive_split_at_every_length() {
        let mut ends = [0; 64];
        for seed in 0..2000u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let line: String = (0..seed % 61)
                .map(|_| {
                    state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                    ['a', ',', 'ü', '-', '+', '\u{7f}'][(state >> 60) as usize % 6]
                })
                .collect();
            let mut unquoted = String::new();
            let (text, found) = split(&line, b',', &mut ends, &mut unquoted).expect("no quotes");
            let columns: Vec<_> = (0..found).map(|at| column(text, &ends, at)).collect();
            assert_eq!(columns, line.split(',').collect::<Vec<_>>());
        }
    }
}
