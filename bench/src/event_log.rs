//! A log of what happens to a job, a JSON object a line, for scripts that kill the job and want to know when they did.
//!
//! Lines are written at once and not synced: they outlive the process, not the machine.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate::runtime::{JobState, JobStatus};

use crate::failure::Failure;
use crate::json::Line;

/// The log.
#[derive(Debug)]
pub struct EventLog {
    file: File,
    state: JobState,
    triggered: u64,
    completed: u64,
    failed: u64,
    restarts: u32,
}

impl EventLog {
    /// Appends to the file, which may be a pipe.
    ///
    /// # Errors
    /// It can't be opened.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(|error| Failure::Other(format!("{}: {error}", path.display())))?;
        Ok(Self {
            file,
            state: JobState::Starting,
            triggered: 0,
            completed: 0,
            failed: 0,
            restarts: 0,
        })
    }

    /// Writes what has changed.
    pub fn note(&mut self, status: &JobStatus) {
        let mut lines = Vec::new();
        if status.restarts > self.restarts {
            self.restarts = status.restarts;
            lines.push(event("restarted").raw("restarts", self.restarts));
        }
        if status.state != self.state {
            self.state = status.state;
            lines.push(event("state").text("state", &format!("{:?}", self.state)));
        }
        let new = usize::try_from(status.checkpoints_completed - self.completed);
        let new = new.unwrap_or(usize::MAX).min(status.checkpoints.len());
        for done in &status.checkpoints[status.checkpoints.len() - new..] {
            if done.id.0 > self.triggered {
                self.triggered = done.id.0;
                lines.push(event("triggered").raw("checkpoint", done.id.0));
            }
            let millis = done.duration.as_secs_f64() * 1e3;
            lines.push(
                event("completed")
                    .raw("checkpoint", done.id.0)
                    .decimals("ms", Some(millis), 3)
                    .raw("bytes", done.bytes),
            );
        }
        self.completed = status.checkpoints_completed;
        if status.checkpoints_failed > self.failed {
            self.failed = status.checkpoints_failed;
            let why = status.last_checkpoint_failure.as_deref().unwrap_or_default();
            lines.push(event("failed").text("why", why));
        }
        if let Some((id, _)) = status.checkpoint_under_way
            && id.0 > self.triggered
        {
            self.triggered = id.0;
            lines.push(event("triggered").raw("checkpoint", id.0));
        }
        for line in lines {
            // Whoever reads the log may be gone; the job goes on.
            let _ = self.file.write_all(format!("{}\n", line.end()).as_bytes());
        }
    }
}

fn event(name: &str) -> Line {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Line::new().text("event", name).raw("at_ms", now.as_millis())
}
