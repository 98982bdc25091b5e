//! JSON values, one a line.

use std::fmt;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::bad_record::FieldError;
use super::files::{Files, LineFormat};
use crate::record::{AsData, Output};

/// The lines of the files that match the glob `pattern`, each a JSON value read as `T`. Blank lines are passed over.
pub fn json_lines<T>(pattern: impl Into<String>) -> Files<Json<T>>
where
    T: DeserializeOwned + AsData + 'static,
{
    Files::new(pattern, Json { of: PhantomData })
}

/// Each line is a JSON value.
pub struct Json<T> {
    of: PhantomData<fn() -> T>,
}

#[cfg(feature = "simulation")]
impl<T> Json<T> {
    /// For those who feed it lines from anywhere.
    #[doc(hidden)]
    pub fn new() -> Self {
        Self { of: PhantomData }
    }
}

impl<T> Clone for Json<T> {
    fn clone(&self) -> Self {
        Self { of: PhantomData }
    }
}

impl<T> fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Json").finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned + AsData + 'static> LineFormat for Json<T> {
    type Out = T::Data;

    fn record(&mut self, line: &str, out: &mut Output<'_, T::Data>) -> Result<(), FieldError> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let value: T = serde_json::from_str(line).map_err(wrong)?;
        out.emit(value);
        Ok(())
    }
}

#[cold]
fn wrong(error: serde_json::Error) -> FieldError {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = error.to_string();
    // Of the place only the column is of use: the line is that of the file.
    let message = match message.strip_suffix(&place) {
        Some(what) => format!("{what} at character {}", error.column()),
        None => message,
    };
    FieldError::record(message).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::testing::source::{Drive, conformance};

    fn source(dir: &tempfile::TempDir, content: &str) -> Files<Json<(u64, String)>> {
        let path = dir.path().join("rows.json");
        std::fs::write(&path, content).expect("writes");
        json_lines(path.to_str().expect("is text"))
    }

    #[test]
    fn json_lines_conform() {
        let dir = tempfile::tempdir().expect("makes a folder");
        let source = source(&dir, "[1,\"one\"]\r\n\n[2, \"t\\nwo\"]\n  \n[3,\"ß\"]");
        let expected = [(1, "one"), (2, "t\nwo"), (3, "ß")];
        conformance(|| source.clone(), &expected.map(|(n, name)| (n, name.to_owned())));
    }

    #[test]
    fn a_line_that_is_no_such_value_is_told_by_line_and_character() {
        let dir = tempfile::tempdir().expect("makes a folder");
        for bad in ["[2]", "{", "[-1,\"x\"]", "[1,\"x\"] x"] {
            let source = source(&dir, &format!("[1,\"one\"]\n{bad}\n"));
            let error =
                Drive::new(&source, 1).expect("opens").try_read(9, 9).expect_err("is refused");
            assert_eq!((error.kind(), error.line()), (ErrorKind::Record, Some(2)), "{error}");
            let said = error.to_string();
            assert!(said.contains("at character") && !said.contains("at line"), "{said}");
        }
    }
}
