//! Why the program ends without having done its work, and the exit code that says so.

use std::fmt;

use tidegate::config::ConfigError;
use tidegate::{Error, ErrorKind};

/// Why nothing came of it.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// The job can't start, or failed.
    Job(Error),
    /// Something around the job failed: a results file, a text to read.
    Other(String),
}

impl Failure {
    /// 1: the job failed; 2: usage or configuration; 3: a checkpoint can't be used.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Other(_) => 1,
            Self::Job(error) => match error.kind() {
                ErrorKind::Config | ErrorKind::Unsupported => 2,
                ErrorKind::Checkpoint => 3,
                // A kind that is added later is the job's too.
                ErrorKind::Record
                | ErrorKind::User
                | ErrorKind::Io
                | ErrorKind::Cancelled
                | ErrorKind::Stuck
                | ErrorKind::Resources
                | ErrorKind::Internal
                | _ => 1,
            },
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Other(text) => f.write_str(text),
            Self::Job(error) => error.fmt(f),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Job(error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}
