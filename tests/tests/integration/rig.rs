//! What the tests of whole jobs share: jobs of a given width, checkpoints, closures that fail once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate::clock::Timestamp;
use tidegate::config::Origin;
use tidegate::source::{Poll, Reader, ReaderContext, Source, Split};
use tidegate::{Config, Error, Job, JobHandle, Output, Result};

/// How long a test waits for what must happen.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A job of that many subtasks on as many workers.
pub(crate) fn job(name: &str, parallelism: u32) -> Job {
    let mut job = Job::with_config(name, Config::default());
    let parallelism = parallelism.to_string();
    set(&mut job, "parallelism.default", &parallelism);
    set(&mut job, "taskmanager.slots", &parallelism);
    job
}

/// A job that fails for good at the first failure.
pub(crate) fn fragile(name: &str, parallelism: u32) -> Job {
    let mut job = job(name, parallelism);
    set(&mut job, "restart-strategy.type", "none");
    job
}

/// A job that takes a checkpoint every few milliseconds and keeps them in memory.
pub(crate) fn checkpointed(name: &str, parallelism: u32) -> Job {
    let mut job = job(name, parallelism);
    set(&mut job, "checkpoint.interval", "5ms");
    job
}

/// A job that takes checkpoints into a directory when asked, and one at its end.
pub(crate) fn durable(name: &str, parallelism: u32, dir: &Path) -> Job {
    let mut job = job(name, parallelism);
    set(&mut job, "checkpoint.dir", dir.to_str().expect("the path is text"));
    set(&mut job, "checkpoint.interval", "1h");
    job
}

pub(crate) fn set(job: &mut Job, key: &str, value: &str) {
    job.config_mut().set(key, value, Origin::Code).expect("the option exists");
}

/// Waits until `is_so`, for a while.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// Waits until `counter` has reached `count`.
pub(crate) fn wait_for(counter: &AtomicU64, count: u64) {
    wait_until(&format!("a count of {count}"), || counter.load(Ordering::Relaxed) >= count);
}

/// True once, for all its clones together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Once(Arc<AtomicBool>);

impl Once {
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The numbers of a range, one subtask's share each, that come only up to a limit, which the test raises.
#[derive(Clone, Debug)]
pub(crate) struct Gated {
    end: u64,
    open: Arc<AtomicU64>,
    emitted: Arc<AtomicU64>,
    fails: Option<(u64, Once)>,
}

impl Gated {
    /// The numbers below `end`, none of them yet.
    pub(crate) fn new(end: u64) -> Self {
        Self { end, open: Arc::default(), emitted: Arc::default(), fails: None }
    }

    /// Lets the numbers below `limit` come.
    pub(crate) fn open(&self, limit: u64) {
        self.open.store(limit, Ordering::Relaxed);
    }

    /// Lets all come.
    pub(crate) fn open_all(&self) {
        self.open(u64::MAX);
    }

    /// How many numbers were emitted, in all attempts together.
    pub(crate) fn emitted(&self) -> &AtomicU64 {
        &self.emitted
    }

    /// The reader fails once, before it emits `number`.
    pub(crate) fn failing_at(mut self, number: u64, once: Once) -> Self {
        self.fails = Some((number, once));
        self
    }
}

impl Source for Gated {
    type Out = u64;
    type Reader = GatedReader;

    /// Six splits, so that they can be dealt out anew: split `s` has the numbers `s`, `s + 6`, and so on.
    fn splits(&self, _parallelism: u32) -> Result<Vec<Split>> {
        Ok((0..STRIDE).map(|first| Split(first.to_le_bytes().to_vec())).collect())
    }

    fn open(&self, splits: Vec<Split>, _context: ReaderContext<'_>) -> Result<GatedReader> {
        let next = splits
            .iter()
            .map(|split| u64::from_le_bytes(split.0.as_slice().try_into().expect("8 bytes")))
            .collect();
        Ok(GatedReader { next, source: self.clone() })
    }
}

const STRIDE: u64 = 6;

#[derive(Debug)]
pub(crate) struct GatedReader {
    next: Vec<u64>,
    source: Gated,
}

impl Reader for GatedReader {
    type Out = u64;

    fn poll(&mut self, limit: usize, now: Timestamp, out: &mut Output<'_, u64>) -> Result<Poll> {
        let open = self.source.open.load(Ordering::Relaxed).min(self.source.end);
        let mut emitted = 0;
        while emitted < limit {
            let Some(next) = self.next.iter_mut().min() else { return Ok(Poll::End) };
            if *next >= open {
                break;
            }
            if let Some((at, once)) = &self.source.fails
                && *next >= *at
                && once.take()
            {
                return Err(Error::new(tidegate::ErrorKind::Io, "the disk is gone"));
            }
            out.emit(*next);
            *next += STRIDE;
            emitted += 1;
            self.source.emitted.fetch_add(1, Ordering::Relaxed);
        }
        self.next.retain(|next| *next < self.source.end);
        if self.next.is_empty() {
            return Ok(Poll::End);
        }
        Ok(if emitted > 0 { Poll::Ready } else { Poll::Busy(now + Duration::from_millis(1)) })
    }

    fn snapshot(&mut self) -> Vec<Split> {
        self.next.iter().map(|next| Split(next.to_le_bytes().to_vec())).collect()
    }
}

/// Waits until the job has taken one more checkpoint than it has.
pub(crate) fn next_checkpoint(handle: &JobHandle) {
    assert!(handle.wait_checkpoint(SOON), "no checkpoint: {:?}", handle.status());
}

/// The lines of all visible parts in a folder, sorted.
pub(crate) fn lines_in(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(dir).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.starts_with("part-") {
            let text = std::fs::read_to_string(&path).expect("it is text");
            lines.extend(text.lines().map(str::to_owned));
        }
    }
    lines.sort();
    lines
}

/// The lines that a complete job of the numbers below `end` leaves.
pub(crate) fn number_lines(end: u64) -> Vec<String> {
    let mut lines: Vec<_> = (0..end).map(|n| n.to_string()).collect();
    lines.sort();
    lines
}

pub(crate) fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values
}
