//! Checkpoints under back-pressure: two keyed exchanges, a sink that takes so many records a second, all queues full.
//!
//! The sink answers that it is busy; nothing sleeps on a worker. Once no queue takes any more, checkpoints are asked for
//! one after the other. An aligned barrier has to wait for all that lies before it; beside unaligned ones a few aligned
//! ones are taken, for as long as one is ready to wait.

use std::time::{Duration, Instant};

use tidegate::config::Config;
use tidegate::sink::{fold, paced};
use tidegate::source::generate_forever;
use tidegate::{ErrorKind, Job, JobHandle, JobState};

use crate::args::{Args, Command, opt};
use crate::disk::sync_times;
use crate::event::event;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::json::Line;
use crate::quantile::Quantiles;
use crate::throughput::WORKERS;

/// The command.
pub const COMMAND: Command = Command {
    name: "checkpoint",
    about: "how long checkpoints take behind a slow sink with all queues full",
    options: &[
        opt("mode", "MODE", "unaligned (with some aligned ones beside it, the default) or aligned"),
        opt("sink-rate", "N", "records a second that the sink takes; 1,000 if not given"),
        opt("count", "N", "so many checkpoints; 100 if not given"),
        opt("aligned-seconds", "S", "wait so long for aligned ones; 20 if not given"),
        opt("checkpoints", "DIR", "where checkpoints go; a new folder under out/ if not given"),
        WORKERS,
    ],
};

const KEYS: u64 = 1_000_000;
/// Between two checkpoints the queues fill up again.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two looks at a source.
const LOOK: Duration = Duration::from_millis(20);
/// A source that reads no more than the sink takes for so long stands before full queues.
const STANDING: Duration = Duration::from_millis(300);
/// Queues that are not full by then never will be.
const FILLED: Duration = Duration::from_secs(60);

/// What came of one series of checkpoints.
struct Series {
    times: Quantiles,
    bytes: u64,
    /// How long the one took that was given up, if one was.
    given_up: Option<Duration>,
    /// The longest time that snapshot code kept a worker.
    step: Duration,
}

fn write_down(job: &Job, sink_rate: u64) {
    let (sink, _) = fold::<(u64, u64), u64, _>(0, |count: &mut u64, _| *count += 1);
    job.source("events", generate_forever(|i| event(i, KEYS)))
        .key_by(|(key, _)| key)
        .count("first")
        .key_by(|(key, count)| key.wrapping_mul(31) ^ count)
        .fold("second", 0u64, |last, (key, _)| *last = key)
        .sink("slow", paced(sink, sink_rate));
}

/// Runs the command.
///
/// # Errors
/// What is wrong with an option, or why the job failed.
pub fn checkpoint(mut args: Args) -> Result<(), Failure> {
    let is_unaligned = match args.text("mode") {
        None | Some("unaligned") => true,
        Some("aligned") => false,
        Some(other) => {
            let text = format!("--mode: expected unaligned or aligned, found '{other}'");
            return Err(Failure::Usage(text));
        }
    };
    let sink_rate = args.number("sink-rate", 1000)?;
    let count = args.number("count", 100)?;
    let patience = Duration::from_secs(args.number("aligned-seconds", 20)?);
    args.default("checkpoint.interval", "1h");
    let workers = args.workers();
    let folders = Folders::of(&mut args)?;
    let run = |is_unaligned: bool, count, patience| {
        let mut config = args.config.clone();
        config.checkpoint.unaligned_enabled = is_unaligned;
        config.checkpoint.aligned_timeout = Duration::ZERO;
        let name = if is_unaligned { "unaligned" } else { "aligned" };
        config.checkpoint.dir = Some(folders.checkpoints.join(name));
        series(config, sink_rate, count, patience)
    };
    let unaligned = if is_unaligned { Some(run(true, count, Duration::MAX)?) } else { None };
    let aligned = run(false, if is_unaligned { 3 } else { count }, patience)?;
    let main = unaligned.as_ref().unwrap_or(&aligned);
    let syncs = sync_times(&folders.checkpoints, main.bytes, 20)?;
    let mode = if is_unaligned { "unaligned" } else { "aligned" };
    let params = format!("workers={workers} mode={mode} sink_rate={sink_rate}");
    let mut line = Line::new()
        .text("peer", "tidegate")
        .text("workload", COMMAND.name)
        .text("params", &params)
        .raw("checkpoints", main.times.count())
        .decimals("ckpt_ms_median", main.times.millis(0.5), 3)
        .decimals("ckpt_ms_p99", main.times.millis(0.99), 3)
        .decimals("ckpt_ms_max", main.times.millis(1.0), 3)
        .decimals("fsync_ms_median", syncs.millis(0.5), 3)
        .raw("bytes", main.bytes)
        .decimals("worker_ms_max", Some(main.step.as_secs_f64() * 1e3), 4);
    if unaligned.is_some() {
        line = line.raw("aligned_checkpoints", aligned.times.count()).decimals(
            "aligned_ms_median",
            aligned.times.millis(0.5),
            1,
        );
        if let Some(waited) = aligned.given_up {
            line = line.raw("aligned_given_up_after_ms", waited.as_millis());
        }
    }
    println!("{}", line.end());
    if folders.checkpoints.starts_with("out") {
        // What can't be removed doesn't spoil the figures.
        let _ =
            std::fs::remove_dir_all(folders.checkpoints.parent().unwrap_or(&folders.checkpoints));
    }
    Ok(())
}

/// Fills the queues and takes `count` checkpoints, as long as none takes longer than `patience`.
fn series(
    mut config: Config,
    sink_rate: u64,
    count: u64,
    patience: Duration,
) -> Result<Series, Failure> {
    if patience < config.checkpoint.timeout {
        config.checkpoint.timeout = patience;
    }
    let job = Job::with_config(COMMAND.name, config);
    write_down(&job, sink_rate);
    let handle = job.spawn()?;
    until_full(&handle, sink_rate)?;
    let mut given_up = None;
    for _ in 0..count {
        let begun = Instant::now();
        match handle.checkpoint() {
            Ok(_) => std::thread::sleep(PAUSE),
            Err(error) if error.kind() == ErrorKind::Checkpoint && begun.elapsed() >= patience => {
                given_up = Some(begun.elapsed());
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let status = handle.status();
    // The end of a job is nobody's figure here.
    let _ = handle.cancel();
    let mut bytes: Vec<u64> = status.checkpoints.iter().map(|done| done.bytes).collect();
    bytes.sort_unstable();
    Ok(Series {
        times: status.checkpoints.iter().map(|done| done.duration).collect(),
        bytes: bytes.get(bytes.len() / 2).copied().unwrap_or(0),
        given_up,
        step: status.snapshot_steps.max(),
    })
}

/// Waits until the source stands: it reads no more than the sink takes.
///
/// # Errors
/// The job is over, or the sink is as fast as the source.
pub fn until_full(handle: &JobHandle, sink_rate: u64) -> Result<(), Failure> {
    // Room comes a buffer at a time.
    let most = 4 * 4096 + 2 * sink_rate * LOOK.as_millis() as u64 / 1000;
    let begun = Instant::now();
    let (mut seen, mut since) = (0, begun);
    loop {
        std::thread::sleep(LOOK);
        let metrics = handle.metrics();
        let of_source = metrics.tasks.iter().filter(|task| task.subtask.vertex.0 == 0);
        let now = of_source.map(|task| task.figures.records_in).sum::<u64>();
        let state = handle.state();
        if state.is_over() || begun.elapsed() > FILLED {
            return Err(Failure::Other("the queues did not fill".to_owned()));
        }
        if state != JobState::Running || now == 0 || now - seen > most {
            since = Instant::now();
        } else if since.elapsed() >= STANDING {
            return Ok(());
        }
        seen = now;
    }
}
