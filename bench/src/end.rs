//! The end of a job: from its last record until it has ended, with results committed, whatever the interval.
//!
//! Finite input into exactly-once files, an interval of an hour. With two stages a sink before the exchange commits as
//! well as the one behind it, so that two tasks one after the other wait for a last checkpoint.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::sink::exactly_once_files;
use tidegate::source::range;
use tidegate::{Chain, Job, Stream};

use crate::args::{Args, Command, opt};
use crate::failure::Failure;
use crate::folders::Folders;
use crate::json::Line;
use crate::quantile::Quantiles;
use crate::throughput::WORKERS;

/// The command.
pub const COMMAND: Command = Command {
    name: "end",
    about: "from the last record of a finite job to its end, everything committed",
    options: &[
        opt("stages", "N", "tasks that commit, one after the other: 1 or 2; 1 if not given"),
        opt("events", "N", "100,000 if not given"),
        opt("runs", "N", "20 if not given"),
        opt("output", "DIR", "where the results go; a new folder under out/ if not given"),
        opt("checkpoints", "DIR", "where checkpoints go; a new folder under out/ if not given"),
        WORKERS,
    ],
};

/// When the last record was seen before its sink, in nanoseconds since the beginning.
#[derive(Clone, Debug)]
struct Last {
    beginning: Instant,
    nanos: Arc<AtomicU64>,
}

impl Last {
    fn new() -> Self {
        Self { beginning: Instant::now(), nanos: Arc::default() }
    }

    fn seen(&self) {
        let nanos = u64::try_from(self.beginning.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_max(nanos, Ordering::Relaxed);
    }

    /// How long ago that was.
    fn ago(&self) -> Duration {
        let last = Duration::from_nanos(self.nanos.load(Ordering::Relaxed));
        self.beginning.elapsed().saturating_sub(last)
    }
}

fn write_down(job: &Job, events: u64, stages: u64, output: &Path, last: &Last) {
    let numbers = job.source("numbers", range(0..events));
    if stages == 1 {
        return second(numbers, output, last);
    }
    let (on, aside) = numbers.split(|n, on, aside| {
        on.emit(n);
        aside.emit(n);
    });
    aside.sink("first", exactly_once_files(output.join("first")));
    second(on, output, last);
}

/// The stage that every job has: behind an exchange.
fn second<C: Chain<Out = u64>>(numbers: Stream<u64, C>, output: &Path, last: &Last) {
    let last = last.clone();
    numbers
        .key_by(|n| n % 1000)
        .count("counts")
        .inspect(move |_| last.seen())
        .map(|(_, count)| count)
        .sink("second", exactly_once_files(output.join("second")));
}

/// Runs the command.
///
/// # Errors
/// What is wrong with an option, or why the job failed.
pub fn end(mut args: Args) -> Result<(), Failure> {
    let (stages, events) = (args.number("stages", 1)?, args.number("events", 100_000)?);
    if !(1..=2).contains(&stages) {
        return Err(Failure::Usage("--stages: 1 or 2".to_owned()));
    }
    args.default("checkpoint.interval", "1h");
    let folders = Folders::of(&mut args)?;
    let mut times = Vec::new();
    for run in 0..args.number("runs", 20)? {
        let mut config = args.config.clone();
        config.checkpoint.dir = Some(folders.checkpoints.join(run.to_string()));
        let job = Job::with_config(COMMAND.name, config);
        let last = Last::new();
        write_down(&job, events, stages, &folders.output.join(run.to_string()), &last);
        job.run()?;
        times.push(last.ago());
    }
    let times: Quantiles = times.into_iter().collect();
    let params = format!("workers={} stages={stages} events={events}", args.workers());
    let line = Line::new()
        .text("peer", "tidegate")
        .text("workload", COMMAND.name)
        .text("params", &params)
        .raw("runs", times.count())
        .decimals("end_ms_median", times.millis(0.5), 2)
        .decimals("end_ms_max", times.millis(1.0), 2);
    println!("{}", line.end());
    if let Some(folder) = folders.checkpoints.parent().filter(|folder| folder.starts_with("out")) {
        // What can't be removed doesn't spoil the figures.
        let _ = std::fs::remove_dir_all(folder);
    }
    Ok(())
}
