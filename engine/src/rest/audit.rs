//! Where changes are recorded: one line of JSON each, with who asked, what was and what is.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::desk::{Desk, now_millis};
use super::dispatch::Call;

use crate::error::{Error, Result};

/// Where lines of the audit log go.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum AuditSink {
    /// Nowhere.
    #[default]
    None,
    /// To the end of a file, which is made if it is not there; only its owner may read it.
    File(PathBuf),
    /// To the program, on the thread that serves: it must not wait.
    Callback(Arc<dyn Fn(&str) + Send + Sync>),
}

impl fmt::Debug for AuditSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Callback(_) => f.write_str("Callback"),
        }
    }
}

/// The log of one server.
#[derive(Debug)]
pub(super) struct Audit {
    file: Option<Mutex<File>>,
    sink: AuditSink,
}

impl Audit {
    /// Opens the log.
    ///
    /// # Errors
    /// The file can't be opened.
    pub(super) fn open(sink: &AuditSink) -> Result<Self> {
        let file = match sink {
            AuditSink::File(path) => {
                let mut options = File::options();
                options.create(true).append(true);
                #[cfg(unix)]
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                let file = options.open(path);
                Some(Mutex::new(file.map_err(|e| Error::io(path, "can't be opened", e))?))
            }
            AuditSink::None | AuditSink::Callback(_) => None,
        };
        Ok(Self { file, sink: sink.clone() })
    }

    /// Writes a line for each value; how many could not be written. What they tell of has been done by then.
    pub(super) fn write(&self, lines: &[Value]) -> u64 {
        let mut lost = 0;
        if matches!(self.sink, AuditSink::None) {
            return lost;
        }
        for line in lines {
            let text = format!("{line}\n");
            if let Some(file) = &self.file {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                lost += u64::from(file.write_all(text.as_bytes()).is_err());
            }
            if let AuditSink::Callback(tell) = &self.sink {
                tell(text.trim_end());
            }
        }
        lost
    }
}

/// The line for a change to a job.
pub(super) fn line(desk: &Desk, call: &Call, operation: &str, details: Value) -> Value {
    json!({
        "timestamp": now_millis().to_string(),
        "operation": operation,
        "type": "JOB",
        "id": desk.jid,
        "principal": call.principal,
        "old": null,
        "new": details,
    })
}
