//! The one error of the public API: a kind, a sentence, and where it happened.

use std::fmt;
use std::path::{Path, PathBuf};

/// An error of any type, as user code returns it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What sort of thing went wrong. Programs decide by it; people read the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The job, an option or a command line is wrong; nothing was started.
    Config,
    /// A record could not be read, decoded or written.
    Record,
    /// User code failed: it returned an error or panicked.
    User,
    /// A file or the operating system said no.
    Io,
    /// A checkpoint can't be used, or a directory belongs to another job.
    Checkpoint,
    /// The job was cancelled, or stopped at its deadline.
    Cancelled,
    /// A task did not return from user code by the deadline and was left behind.
    Stuck,
    /// Nobody has the slots that the job needs.
    Resources,
    /// The thing asked for is not supported.
    Unsupported,
    /// Tidegate itself is wrong; please report it.
    Internal,
}

/// What went wrong, and where.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    message: String,
    operator: Option<String>,
    subtask: Option<u32>,
    path: Option<PathBuf>,
    line: Option<u64>,
    field: Option<String>,
    source: Option<BoxError>,
}

impl Error {
    /// An error of `kind`, told by `message`: lower case, no full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            operator: None,
            subtask: None,
            path: None,
            line: None,
            field: None,
            source: None,
        }))
    }

    /// A wrong job, option or command line.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// What the operating system said about `path`.
    pub fn io(path: impl AsRef<Path>, what: &str, source: std::io::Error) -> Self {
        Self::new(ErrorKind::Io, format!("{what}: {source}")).at_path(path).caused_by(source)
    }

    /// Says in which operator it happened.
    #[must_use]
    pub fn in_operator(mut self, name: impl Into<String>) -> Self {
        self.0.operator.get_or_insert_with(|| name.into());
        self
    }

    /// Says in which subtask it happened.
    #[must_use]
    pub fn in_subtask(mut self, index: u32) -> Self {
        self.0.subtask.get_or_insert(index);
        self
    }

    /// Says which file or folder it is about.
    #[must_use]
    pub fn at_path(mut self, path: impl AsRef<Path>) -> Self {
        self.0.path.get_or_insert_with(|| path.as_ref().to_owned());
        self
    }

    /// Says which line of the file, counted from 1.
    #[must_use]
    pub fn at_line(mut self, line: u64) -> Self {
        self.0.line.get_or_insert(line);
        self
    }

    /// Says which field of the record.
    #[must_use]
    pub fn in_field(mut self, field: impl Into<String>) -> Self {
        self.0.field.get_or_insert_with(|| field.into());
        self
    }

    /// Keeps what caused it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What sort of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operator it happened in, if it was one.
    pub fn operator(&self) -> Option<&str> {
        self.0.operator.as_deref()
    }

    /// The subtask it happened in, if it was one.
    pub fn subtask(&self) -> Option<u32> {
        self.0.subtask
    }

    /// The file or folder it is about, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The line of the file, counted from 1, if it is about one.
    pub fn line(&self) -> Option<u64> {
        self.0.line
    }

    /// The field of the record, if it is about one.
    pub fn field(&self) -> Option<&str> {
        self.0.field.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &self.0;
        if let Some(operator) = &e.operator {
            write!(f, "operator '{operator}'")?;
            if let Some(subtask) = e.subtask {
                write!(f, " subtask {subtask}")?;
            }
            f.write_str(": ")?;
        }
        if let Some(path) = &e.path {
            write!(f, "{}", path.display())?;
            if let Some(line) = e.line {
                write!(f, ":{line}")?;
            }
            f.write_str(": ")?;
        } else if let Some(line) = e.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(field) = &e.field {
            write!(f, "field '{field}': ")?;
        }
        f.write_str(&e.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

/// The result of an operation of the public API.
pub type Result<T, E = Error> = std::result::Result<T, E>;
