//! What a job costs while next to nothing comes: CPU time of the process, workers parking.

use std::time::{Duration, Instant};

use tidegate::config::IdleStrategy;
use tidegate::sink::fold;
use tidegate::source::{Source, channel, range};
use tidegate::{Job, JobState};

use crate::args::{Args, Command, opt};
use crate::failure::Failure;
use crate::json::Line;
use crate::throughput::WORKERS;
use crate::usage::cpu;

/// The command.
pub const COMMAND: Command = Command {
    name: "idle",
    about: "CPU time of a job to which next to nothing comes",
    options: &[
        opt("seconds", "S", "measure so long; 10 if not given"),
        opt(
            "source",
            "WHAT",
            "paced (a record a second, the default) or channel (nothing is sent)",
        ),
        WORKERS,
    ],
};

/// After its start a job has so long to come to rest.
const SETTLE: Duration = Duration::from_millis(500);

fn write_down<S: Source<Out = u64>>(job: &Job, source: S) {
    let (sink, _) = fold::<(u64, u64), u64, _>(0, |count: &mut u64, _| *count += 1);
    job.source("numbers", source).key_by(|n| n % 1000).count("counts").sink("sink", sink);
}

/// Runs the command.
///
/// # Errors
/// What is wrong with an option, or why the job failed.
pub fn idle(mut args: Args) -> Result<(), Failure> {
    args.config.idle.strategy = IdleStrategy::Park;
    args.default("checkpoint.interval", "never");
    let seconds = args.number("seconds", 10)?.max(1);
    let workers = args.workers();
    let job = Job::with_config(COMMAND.name, args.config.clone());
    let source = args.text("source").unwrap_or("paced");
    // Kept: the input ends when the last sender is gone.
    let mut sender = None;
    match source {
        "paced" => write_down(&job, range(0..u64::MAX).rate(1)),
        "channel" => {
            let (sends, numbers) = channel::<u64>(16);
            sender = Some(sends);
            write_down(&job, numbers);
        }
        other => {
            let text = format!("--source: expected paced or channel, found '{other}'");
            return Err(Failure::Usage(text));
        }
    }
    let handle = job.spawn()?;
    let mut seen = 0;
    while handle.state() == JobState::Starting {
        seen = handle.wait_change(seen, Duration::from_secs(1));
    }
    std::thread::sleep(SETTLE);
    let (begun, used) = (Instant::now(), cpu());
    std::thread::sleep(Duration::from_secs(seconds));
    let (elapsed, used) = (begun.elapsed(), cpu() - used);
    let share = 100.0 * used.as_secs_f64() / elapsed.as_secs_f64();
    let params = format!("workers={workers} source={source}");
    let line = Line::new()
        .text("peer", "tidegate")
        .text("workload", COMMAND.name)
        .text("params", &params)
        .decimals("seconds", Some(elapsed.as_secs_f64()), 1)
        .decimals("cpu_s", Some(used.as_secs_f64()), 4)
        .decimals("cpu_percent", Some(share), 3);
    println!("{}", line.end());
    drop(sender);
    let _ = handle.cancel();
    Ok(())
}
