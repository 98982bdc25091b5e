//! W6b: a gigabyte of keyed state. All keys are filled, then updated at a rate; checkpoints at full size are timed, then one
//! failure in user code and the time until every subtask has processed a record again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::runtime::CheckpointStats;
use tidegate::sink::fold;
use tidegate::{Job, JobHandle};

use crate::args::{Args, Command, opt};
use crate::clocked::Span;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::json::Line;
use crate::keyed_feed::KeyedFeed;
use crate::report::median;
use crate::throughput::WORKERS;
use crate::usage::peak_rss_bytes;

/// The command.
pub const COMMAND: Command = Command {
    name: "w6b",
    about: "checkpoints of a gigabyte of keyed state, and recovery with it",
    options: &[
        opt("keys", "N", "8,000,000 if not given"),
        opt("size", "BYTES", "of each key's value; 128, or 16 for small tests"),
        opt("rate", "N", "updates a second once all keys are there; 100,000 if not given"),
        opt("checkpoints", "N", "wait for so many at full size; 3 if not given"),
        opt("ckpt-ms", "MS", "time between checkpoints; 5,000 if not given"),
        opt("seconds", "S", "wait no longer than that for them; 120 if not given"),
        WORKERS,
    ],
};

/// One failure, and the way back from it.
#[derive(Clone, Debug)]
struct Recovery(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_asked: AtomicBool,
    clock: Span,
    failed_at: AtomicU64,
    back: AtomicU32,
    back_at: AtomicU64,
}

/// Belongs to a subtask of one attempt: cloned when that is made.
#[derive(Debug)]
struct Member {
    recovery: Recovery,
    made_at: u64,
    is_back: bool,
}

impl Clone for Member {
    fn clone(&self) -> Self {
        let recovery = self.recovery.clone();
        Self { made_at: recovery.0.clock.now(), recovery, is_back: false }
    }
}

impl Member {
    /// A record is processed.
    #[inline(always)]
    fn processed(&mut self) {
        let inner = &*self.recovery.0;
        if inner.is_asked.load(Ordering::Relaxed) {
            self.fail();
        }
        if !self.is_back {
            self.note();
        }
    }

    #[cold]
    fn fail(&self) {
        let inner = &*self.recovery.0;
        if inner.is_asked.swap(false, Ordering::Relaxed) {
            inner.failed_at.store(inner.clock.now(), Ordering::Relaxed);
            panic!("asked for");
        }
    }

    #[cold]
    fn note(&mut self) {
        self.is_back = true;
        let inner = &*self.recovery.0;
        let failed_at = inner.failed_at.load(Ordering::Relaxed);
        if failed_at != 0 && failed_at < self.made_at {
            inner.back_at.fetch_max(inner.clock.now(), Ordering::Relaxed);
            inner.back.fetch_add(1, Ordering::Release);
        }
    }
}

fn write_down<const SIZE: usize>(job: &Job, feed: KeyedFeed, recovery: &Recovery) {
    let (sink, _) = fold::<(u64, u8), u64, _>(0, |count, _| *count += 1);
    let mut member = Member { recovery: recovery.clone(), made_at: 0, is_back: false };
    job.source("keys", feed)
        .key_by(|key| key)
        .aggregate(
            "values",
            [0u8; SIZE],
            move |value: &mut [u8; SIZE], _| {
                value[0] = value[0].wrapping_add(1);
                member.processed();
            },
            |value| value[0],
        )
        .sink("count", sink);
}

/// Runs the command.
///
/// # Errors
/// What is wrong with an option, or why the job failed.
pub fn w6b(mut args: Args) -> Result<(), Failure> {
    let feed =
        KeyedFeed { keys: args.number("keys", 8_000_000)?, rate: args.number("rate", 100_000)? };
    let size = args.number("size", 128)?;
    let deadline = Instant::now() + Duration::from_secs(args.number("seconds", 120)?);
    let wanted = args.number("checkpoints", 3)? as usize;
    let interval = format!("{}ms", args.number("ckpt-ms", 5000)?);
    args.default("checkpoint.interval", &interval);
    let workers = args.workers();
    let folders = Folders::of(&mut args)?;
    let job = Job::with_config(COMMAND.name, args.config.clone());
    let recovery = Recovery(Arc::new(Inner::default()));
    match size {
        128 => write_down::<128>(&job, feed, &recovery),
        16 => write_down::<16>(&job, feed, &recovery),
        _ => return Err(Failure::Usage("--size: 128 or 16".to_owned())),
    }
    let handle = job.spawn()?;
    let done = full_checkpoints(
        &handle,
        feed.keys / u64::from(workers) * u64::from(workers) * size,
        wanted,
        deadline,
    );
    let steps = handle.status().snapshot_steps;
    recovery.0.is_asked.store(true, Ordering::Relaxed);
    let recovered = until(deadline + Duration::from_secs(60), || {
        let is_back = recovery.0.back.load(Ordering::Acquire) >= workers;
        is_back || handle.state().is_over()
    });
    let status = handle.status();
    let since = recovery.0.back_at.load(Ordering::Relaxed);
    let since = since.saturating_sub(recovery.0.failed_at.load(Ordering::Relaxed));
    let is_back = recovered && !status.state.is_over();
    let mut durations: Vec<_> = done.iter().map(|stats| stats.duration).collect();
    durations.sort_unstable();
    let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
    let line = Line::new()
        .text("peer", "tidegate")
        .text("workload", COMMAND.name)
        .text("params", &format!("workers={workers} keys={} size={size}", feed.keys))
        .raw("checkpoints", durations.len())
        .decimals("ckpt_ms_median", median(&durations).map(millis), 1)
        .decimals("ckpt_ms_min", durations.first().copied().map(millis), 1)
        .decimals("ckpt_ms_max", durations.last().copied().map(millis), 1)
        .raw("state_bytes", done.first().map_or(0, |stats| stats.bytes))
        .raw("snapshot_steps", steps.count())
        .decimals("snapshot_step_ms_p9999", Some(millis(steps.quantile(0.9999))), 4)
        .decimals("snapshot_step_ms_max", Some(millis(steps.max())), 4)
        .decimals("recovery_s", is_back.then_some(since as f64 / 1e9), 3)
        .raw("peak_rss_bytes", peak_rss_bytes());
    println!("{}", line.end());
    let failure = status.last_failure.filter(|_| !is_back);
    let _ = handle.cancel();
    if let Some(folder) = folders.checkpoints.parent().filter(|folder| folder.starts_with("out")) {
        let _ = std::fs::remove_dir_all(folder);
    }
    match failure {
        Some(why) => Err(Failure::Other(format!("the job did not come back: {why}"))),
        None => Ok(()),
    }
}

/// The completed checkpoints of at least `full` bytes, once there are so many or the time is over.
fn full_checkpoints(
    handle: &JobHandle,
    full: u64,
    wanted: usize,
    deadline: Instant,
) -> Vec<CheckpointStats> {
    let mut done = Vec::new();
    until(deadline, || {
        let status = handle.status();
        done = status.checkpoints.into_iter().filter(|stats| stats.bytes >= full).collect();
        done.len() >= wanted || status.state.is_over()
    });
    done
}

/// Looks again and again; whether it came true in time.
fn until(deadline: Instant, mut is_so: impl FnMut() -> bool) -> bool {
    while !is_so() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}
