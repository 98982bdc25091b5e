//! CSV files whose rows are records of a derived type.
//!
//! The header of each file says which column is which field, so files whose columns stand in another order can be read
//! together.

use std::marker::PhantomData;

use super::bad_record::FieldError;
use super::columns::column_behind;
use super::csv_row::{self, CsvRow, RowParser};
use super::files::{Files, LineFormat};
use crate::error::{Error, Result};
use crate::record::Output;

/// The rows of the CSV files that match the glob `pattern`, as records of `R`: `csv_files::<Flight>("in/*.csv")`.
///
/// Each file begins with a header that has the columns that `R` names; others are passed over. Files compressed with
/// gzip or zstd are read with the features of those names.
pub fn csv_files<R: CsvRow>(pattern: impl Into<String>) -> Files<CsvRecords<R>> {
    Files::new(
        pattern,
        CsvRecords { delimiter: b',', quoted_breaks: true, parser: None, of: PhantomData },
    )
}

/// The format of CSV files whose rows are records of `R`.
#[derive(Debug)]
pub struct CsvRecords<R> {
    delimiter: u8,
    quoted_breaks: bool,
    /// Absent until the file's header has been read.
    parser: Option<RowParser>,
    of: PhantomData<fn() -> R>,
}

impl<R> Clone for CsvRecords<R> {
    fn clone(&self) -> Self {
        Self { parser: self.parser.clone(), ..*self }
    }
}

impl<R: CsvRow> Files<CsvRecords<R>> {
    /// What is between columns, an ASCII character; a comma if not set.
    #[must_use]
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.format.delimiter = delimiter;
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

impl<R: CsvRow> LineFormat for CsvRecords<R> {
    type Out = R;

    #[inline(always)]
    fn record(&mut self, line: &str, out: &mut Output<'_, R>) -> Result<(), FieldError> {
        if line.is_empty() {
            return Ok(());
        }
        let parser = self.parser.as_mut().expect("a file's header is read before its rows");
        match parser.row::<R>(line) {
            Ok(row) => {
                out.emit_ref(row);
                Ok(())
            }
            Err(error) => Err(refused(error)),
        }
    }

    fn header(&mut self, line: &str) -> Result<(), FieldError> {
        let parser = RowParser::new::<R>(line, self.delimiter).map_err(|error| {
            let message = without_field(&error);
            match error.field() {
                Some(field) => FieldError::field(field, message),
                None => FieldError::record(message),
            }
            .caused_by(error)
        })?;
        self.parser = Some(parser);
        Ok(())
    }

    fn has_header(&self) -> bool {
        true
    }

    fn quoted_breaks(&self) -> Option<(u8, u8)> {
        self.quoted_breaks.then_some((b'"', self.delimiter))
    }

    fn field_behind(&self, text: &str) -> Option<String> {
        let column = column_behind(text, self.delimiter, b'"');
        self.parser.as_ref()?.name_of::<R>(column).map(str::to_owned)
    }

    fn check(&self) -> Result<()> {
        if !self.delimiter.is_ascii() || matches!(self.delimiter, 0 | b'"' | b'\n' | b'\r') {
            return Err(Error::config("a CSV delimiter is ASCII, no quote and no line break"));
        }
        Ok(())
    }
}

/// What an error says, without the field that it begins with.
fn without_field(error: &Error) -> String {
    let whole = error.to_string();
    let prefix = error.field().map(|field| format!("field '{field}': ")).unwrap_or_default();
    whole.strip_prefix(&prefix).unwrap_or(&whole).to_owned()
}

#[cold]
#[inline(never)]
fn refused(error: csv_row::FieldError) -> FieldError {
    let message = error.problem.to_string();
    match error.column {
        Some(column) => FieldError::field(column, message),
        None => FieldError::record(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::record::Data;
    use crate::source::Source;
    use crate::testing::source::{Drive, conformance};

    #[derive(Clone, Debug, PartialEq, Data, CsvRow)]
    struct Pair {
        id: u64,
        name: String,
    }

    fn pair(id: u64, name: &str) -> Pair {
        Pair { id, name: name.to_owned() }
    }

    fn file(content: &[u8]) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().expect("makes a folder");
        let path = dir.path().join("rows.csv");
        std::fs::write(&path, content).expect("writes");
        let pattern = path.to_str().expect("is text").to_owned();
        (dir, pattern)
    }

    #[test]
    fn records_conform_with_other_columns_quotes_breaks_crlf_and_bom() {
        let content = "\u{feff}name,other,id\r\none,x,1\r\n\r\n\"t\"\"w\no\",,2\r\n\"a,b\",\"q\",3";
        let (_dir, pattern) = file(content.as_bytes());
        let expected = [pair(1, "one"), pair(2, "t\"w\no"), pair(3, "a,b")];
        conformance(|| csv_files::<Pair>(pattern.clone()), &expected);
    }

    #[test]
    fn a_large_file_is_split_only_without_quoted_breaks() {
        let rows: Vec<Pair> = (0..60).map(|i| pair(i, &format!("{i}").repeat(25_000))).collect();
        let lines = rows.iter().map(|row| format!("{};{}\n", row.id, row.name));
        let content = "id;name\n".to_owned() + &lines.collect::<String>();
        let (_dir, pattern) = file(content.as_bytes());
        let source = csv_files::<Pair>(pattern).delimiter(b';');
        assert_eq!(source.splits(4).expect("cuts").len(), 1);
        let source = source.with_quoted_breaks(false);
        assert_eq!(source.splits(4).expect("cuts").len(), 3);
        conformance(|| source.clone(), &rows);
    }

    #[test]
    fn what_is_wrong_is_told_by_line_and_field() {
        for (content, line, field) in [
            (&b"id,name\n1,a\n2\n"[..], 3, Some("name")),
            (b"id,name\n1,a,b\n", 2, None),
            (b"id,name\nx,a\n", 2, Some("id")),
            (b"id,other\n1,a\n", 1, Some("name")),
            (b"id,name\n1,\xFF\n", 2, Some("name")),
            (b"name,id\n\"a,\"\"b\",\xFF\n", 2, Some("id")),
            (b"id,other,name\n1,\xFF,c\n", 2, None),
        ] {
            let (_dir, pattern) = file(content);
            let mut drive = Drive::new(&csv_files::<Pair>(pattern), 1).expect("opens");
            let error = drive.try_read(usize::MAX, 256).expect_err("the row is wrong");
            let found = (error.kind(), error.line(), error.field());
            assert_eq!(found, (ErrorKind::Record, Some(line), field), "{error}");
        }
    }
}
