//! Runs a job to its end: with progress, an event log and signals.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidegate::Job;
use tidegate::id::VertexId;
use tidegate::runtime::JobStatus;

use crate::event_log::EventLog;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::signals::Signals;

/// Time between two looks at counters and signals.
const LOOK: Duration = Duration::from_millis(50);
/// After a signal the job has so long for its last checkpoint.
const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// How a job is watched.
#[derive(Debug, Default)]
pub struct Watch {
    /// Where the event log goes.
    pub events: Option<PathBuf>,
    /// Whether no progress is shown.
    pub is_quiet: bool,
}

/// What came of a job.
#[derive(Debug)]
pub struct Outcome {
    /// Its last status.
    pub status: JobStatus,
    /// From before its start to after its end.
    pub elapsed: Duration,
    /// Records that its sources have read in this process.
    pub records: u64,
    /// Whether a signal stopped it before its end.
    pub is_stopped: bool,
}

/// Runs `job` to its end, or until a signal stops it.
///
/// # Errors
/// What is wrong with the job, or why it failed.
pub fn run(job: Job, watch: &Watch) -> Result<Outcome, Failure> {
    let signals = Signals::install()?;
    let mut log = watch.events.as_deref().map(EventLog::open).transpose()?;
    let begun = Instant::now();
    let handle = job.spawn()?;
    if let Some(address) = handle.rest_address() {
        eprintln!("served at http://{address} while it runs");
    }
    let mut progress = Progress::new(watch.is_quiet);
    let (mut seen, mut records) = (0, Records::default());
    let is_stopped = loop {
        seen = handle.wait_change(seen, LOOK);
        let status = handle.status();
        if let Some(log) = &mut log {
            log.note(&status);
        }
        records.note(&status);
        progress.show(records.total(), status.checkpoints_completed);
        if status.state.is_over() {
            break false;
        }
        if signals.is_asked() {
            break true;
        }
    };
    progress.end();
    let ended = if is_stopped { handle.stop(STOP_DEADLINE) } else { handle.join() };
    let elapsed = begun.elapsed();
    let status = ended?;
    if let Some(log) = &mut log {
        log.note(&status);
    }
    records.note(&status);
    Ok(Outcome { status, elapsed, records: records.total(), is_stopped })
}

/// Counts what sources read over all attempts: an attempt's counters begin at zero.
#[derive(Debug, Default)]
struct Records {
    earlier: u64,
    current: u64,
}

impl Records {
    fn note(&mut self, status: &JobStatus) {
        // Sources come first among the vertices.
        let sources = status.tasks.iter().filter(|task| task.subtask.vertex == VertexId(0));
        let now = sources.map(|task| task.figures.records_in).sum();
        if now < self.current {
            self.earlier += self.current;
        }
        self.current = now;
    }

    fn total(&self) -> u64 {
        self.earlier + self.current
    }
}
