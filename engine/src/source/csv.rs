//! Rows of CSV files.
//!
//! A header, unless there is none, is read at the beginning of each file and gives the columns their names. A row has as
//! many columns as the header; empty lines are passed over.

use std::fmt;
use std::marker::PhantomData;

use super::bad_record::FieldError;
use super::columns::{Columns, Splitter, column_behind};
use super::files::{Files, LineFormat};
use crate::error::{Error, Result};
use crate::record::{Data, Output};

/// The rows of the CSV files that match the glob `pattern`, each made a record by `row`, which emits at most one:
/// `csv_with::<(u64, String), _>("in/*.csv", |row, out| Ok(out.emit((row.parse::<u64>(0)?, row.get(1).unwrap_or("")))))`.
pub fn csv_with<T: Data, F>(pattern: impl Into<String>, row: F) -> Files<Csv<RowsBy<T, F>>>
where
    F: for<'c, 'o, 'p> FnMut(Columns<'c>, &'p mut Output<'o, T>) -> Result<(), FieldError>
        + Clone
        + Send
        + 'static,
{
    Files::new(pattern, Csv::new(RowsBy { row, of: PhantomData }))
}

/// How rows become records.
pub trait Rows: Clone + Send + 'static {
    /// The record type.
    type Out: Data;

    /// Takes the names of a file's columns, before its rows come.
    ///
    /// # Errors
    /// A column that is needed is missing.
    fn header(&mut self, _names: Columns<'_>) -> Result<(), FieldError> {
        Ok(())
    }

    /// Emits at most one record.
    ///
    /// # Errors
    /// A column is missing or malformed; nothing has been emitted.
    fn row(
        &mut self,
        columns: Columns<'_>,
        out: &mut Output<'_, Self::Out>,
    ) -> Result<(), FieldError>;
}

/// Rows read by a closure: see [`csv_with`].
pub struct RowsBy<T, F> {
    row: F,
    of: PhantomData<fn() -> T>,
}

impl<T, F: Clone> Clone for RowsBy<T, F> {
    fn clone(&self) -> Self {
        Self { row: self.row.clone(), of: PhantomData }
    }
}

impl<T, F> fmt::Debug for RowsBy<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowsBy").finish_non_exhaustive()
    }
}

impl<T: Data, F> Rows for RowsBy<T, F>
where
    F: for<'c, 'o, 'p> FnMut(Columns<'c>, &'p mut Output<'o, T>) -> Result<(), FieldError>
        + Clone
        + Send
        + 'static,
{
    type Out = T;

    #[inline(always)]
    fn row(&mut self, columns: Columns<'_>, out: &mut Output<'_, T>) -> Result<(), FieldError> {
        (self.row)(columns, out)
    }
}

/// The format of CSV files, whose rows `R` makes records of.
#[derive(Clone, Debug)]
pub struct Csv<R> {
    rows: R,
    splitter: Splitter,
    has_header: bool,
    quoted_breaks: bool,
    names: Vec<String>,
}

impl<R: Rows> Csv<R> {
    /// Comma and double quote, with a header, with line breaks between quotes.
    pub fn new(rows: R) -> Self {
        Self {
            rows,
            splitter: Splitter::new(b',', b'"'),
            has_header: true,
            quoted_breaks: true,
            names: Vec::new(),
        }
    }
}

impl<R: Rows> Files<Csv<R>> {
    /// What is between columns, an ASCII character; a comma if not set.
    #[must_use]
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.format.splitter = Splitter::new(delimiter, self.format.splitter.quote());
        self
    }

    /// Whether each file begins with its columns' names; so it is if not set.
    #[must_use]
    pub fn with_header(mut self, has_header: bool) -> Self {
        self.format.has_header = has_header;
        self
    }

    /// Whether a column between quotes may contain line breaks; so it is if not set. Where it may not, a large file is
    /// shared out over the subtasks.
    #[must_use]
    pub fn with_quoted_breaks(mut self, quoted_breaks: bool) -> Self {
        self.format.quoted_breaks = quoted_breaks;
        self
    }
}

impl<R: Rows> LineFormat for Csv<R> {
    type Out = R::Out;

    #[inline(always)]
    fn record(&mut self, line: &str, out: &mut Output<'_, R::Out>) -> Result<(), FieldError> {
        if line.is_empty() {
            return Ok(());
        }
        let columns = match self.splitter.split(line, &self.names) {
            Ok(columns) => columns,
            Err(error) => return Err(named(error, &self.names)),
        };
        if columns.len() != self.names.len() && self.has_header {
            return Err(wrong_width(columns, self.names.len()));
        }
        self.rows.row(columns, out)
    }

    fn header(&mut self, line: &str) -> Result<(), FieldError> {
        let names = self.splitter.split(line, &[])?;
        self.names = names.iter().map(str::to_owned).collect();
        self.rows.header(names)
    }

    fn has_header(&self) -> bool {
        self.has_header
    }

    fn quoted_breaks(&self) -> Option<(u8, u8)> {
        self.quoted_breaks.then(|| (self.splitter.quote(), self.splitter.delimiter()))
    }

    fn field_behind(&self, text: &str) -> Option<String> {
        let column = column_behind(text, self.splitter.delimiter(), self.splitter.quote());
        self.names.get(column).cloned()
    }

    fn check(&self) -> Result<()> {
        let delimiter = self.splitter.delimiter();
        let is_taken = delimiter == self.splitter.quote() || matches!(delimiter, b'\n' | b'\r' | 0);
        if is_taken || !delimiter.is_ascii() {
            return Err(Error::config(
                "a CSV delimiter is ASCII, no quote, no line break and not zero",
            ));
        }
        Ok(())
    }
}

/// A row of another width than the header's.
#[cold]
#[inline(never)]
fn wrong_width(columns: Columns<'_>, width: usize) -> FieldError {
    let message = format!("the row has {} columns and the header {width}", columns.len());
    if columns.len() < width {
        FieldError::field(columns.name(columns.len()), message)
    } else {
        FieldError::record(message)
    }
}

/// The splitter counts columns; where there is a header it says more.
#[cold]
#[inline(never)]
fn named(mut error: FieldError, names: &[String]) -> FieldError {
    let number = error.field.as_deref().and_then(|field| field.strip_prefix("column "));
    let index = number.and_then(|number| number.parse::<usize>().ok());
    if let Some(name) = index.and_then(|index| names.get(index - 1)) {
        error.field = Some(name.clone());
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::source::{OnBadRecord, Source};
    use crate::testing::source::{Drive, conformance};

    type Pair = (u64, String);
    type Reads = fn(Columns<'_>, &mut Output<'_, Pair>) -> Result<(), FieldError>;

    fn pairs(pattern: String) -> Files<Csv<RowsBy<Pair, Reads>>> {
        csv_with::<Pair, Reads>(pattern, |row, out| {
            out.emit((row.parse::<u64>(0)?, row.get(1).unwrap_or("")));
            Ok(())
        })
    }

    fn file(content: &[u8]) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().expect("makes a folder");
        let path = dir.path().join("rows.csv");
        std::fs::write(&path, content).expect("writes");
        let pattern = path.to_str().expect("is text").to_owned();
        (dir, pattern)
    }

    fn read(content: &[u8]) -> Result<Vec<Pair>> {
        let (_dir, pattern) = file(content);
        Drive::new(&pairs(pattern), 1)?.try_read(usize::MAX, 256)
    }

    #[test]
    fn rows_conform_with_quotes_breaks_crlf_and_bom() {
        let content = "\u{feff}\"id\",\"na\nme\"\r\n1,one\r\n\r\n2,\"t\"\"w\no\"\r\n3,\"a,b\"";
        let (_dir, pattern) = file(content.as_bytes());
        let expected = [(1, "one"), (2, "t\"w\no"), (3, "a,b")];
        conformance(|| pairs(pattern.clone()), &expected.map(|(id, name)| (id, name.to_owned())));
    }

    #[test]
    fn a_large_file_is_split_only_without_quoted_breaks_and_each_range_knows_the_header() {
        let rows: Vec<Pair> = (0..60).map(|i| (i, format!("{i}").repeat(25_000))).collect();
        let lines = rows.iter().map(|(id, name)| format!("{id};{name}\n"));
        let content = "id;name\n".to_owned() + &lines.collect::<String>();
        let (_dir, pattern) = file(content.as_bytes());
        let source = pairs(pattern).delimiter(b';');
        assert_eq!(source.splits(4).expect("cuts").len(), 1);
        let source = source.with_quoted_breaks(false);
        assert_eq!(source.splits(4).expect("cuts").len(), 3);
        conformance(|| source.clone(), &rows);
    }

    #[test]
    fn files_without_header_or_rows_are_fine() {
        let (_dir, pattern) = file(b"1,a\n2,b,more\n");
        let source = pairs(pattern).with_header(false);
        assert_eq!(Drive::new(&source, 1).expect("opens").read_all(9).len(), 2);
        assert_eq!(read(b"").expect("reads"), []);
        assert_eq!(read(b"id,name").expect("reads"), []);
    }

    #[test]
    fn what_is_wrong_with_a_row_is_told_by_line_and_field() {
        for (content, line, field) in [
            (&b"id,name\n1,a\n2\n"[..], 3, Some("name")),
            (b"id,name\n1,a,b\n", 2, None),
            (b"id,name\nx,a\n", 2, Some("id")),
            (b"id,name\n99999999999999999999,a\n", 2, Some("id")),
            (b"id,name\n1,\"a\nb\"\n2,\"open\n3,c\n", 4, Some("name")),
            (b"id,name\n1,\xFF\n", 2, Some("name")),
            (b"id,\xFF\n", 1, None),
            (b"id,\"name\n", 1, Some("column 2")),
        ] {
            let error = read(content).expect_err("is refused");
            let found = (error.kind(), error.line(), error.field());
            assert_eq!(found, (ErrorKind::Record, Some(line), field), "{error}");
            assert!(error.path().is_some_and(|path| path.ends_with("rows.csv")), "{error}");
        }
    }

    #[test]
    fn bad_rows_are_skipped_and_counted_if_so_asked() {
        let (_dir, pattern) = file(b"id,name\nx,a\n2,b\n3\n4,d\n");
        let source = pairs(pattern).on_bad_record(OnBadRecord::SkipAndCount);
        let skipped = source.skipped();
        let read = Drive::new(&source, 1).expect("opens").read_all(256);
        assert_eq!(read, [(2, "b".to_owned()), (4, "d".to_owned())]);
        assert_eq!(skipped.count(), 2);
    }

    #[test]
    fn a_delimiter_that_is_none_is_refused() {
        for delimiter in [b'"', b'\n', 0, 0xC3] {
            let (_dir, pattern) = file(b"");
            let error = pairs(pattern).delimiter(delimiter).splits(1).expect_err("is refused");
            assert_eq!(error.kind(), ErrorKind::Config);
        }
    }
}
