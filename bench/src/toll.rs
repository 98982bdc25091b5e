//! What a checkpoint costs the throughput of W2: one is taken at the beginning of every other window.

use std::time::Duration;

use tidegate::{Config, Job};

use crate::args::{Args, Command, opt};
use crate::clocked::Span;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::json::Line;
use crate::quantile::Quantiles;
use crate::throughput::WORKERS;
use crate::w2;
use crate::windows::{Sorted, end, rates, shares};

/// The command.
pub const COMMAND: Command = Command {
    name: "toll",
    about: "what a checkpoint a second costs w2, in windows with one and without, taking turns",
    options: &[
        opt("fours", "N", "so many times four windows; 5 if not given"),
        opt("window", "MS", "how long a window is, in milliseconds; 1000 if not given"),
        opt("unaligned", "", "barriers overtake at once instead of after 200 ms"),
        opt("rounds", "N", "so many runs; 5 if not given"),
        opt("checkpoints", "DIR", "where checkpoints go; a new folder under out/ if not given"),
        WORKERS,
    ],
};

/// More than a run takes.
const EVENTS: u64 = 1 << 40;

/// Runs the command.
///
/// # Errors
/// What is wrong with an option, or why a job or a checkpoint failed.
pub fn toll(mut args: Args) -> Result<(), Failure> {
    let (fours, rounds) = (args.number("fours", 5)?, args.number("rounds", 5)?);
    let window = Duration::from_millis(args.number("window", 1000)?);
    if window.is_zero() {
        return Err(Failure::Usage("--window: 1 or more".to_owned()));
    }
    let is_unaligned = args.flag("unaligned")?;
    if is_unaligned {
        args.default("checkpoint.aligned-timeout", "0");
    }
    // Those of the windows only.
    args.default("checkpoint.interval", "never");
    Folders::of(&mut args)?;
    let (mut all, mut times) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut config = args.config.clone();
        config.checkpoint.dir = config.checkpoint.dir.map(|dir| dir.join(round.to_string()));
        let (rates, taken) = run(config, fours, window)?;
        all.extend(shares(&rates));
        times.extend(taken);
    }
    let (all, times): (Sorted, Quantiles) =
        (all.into_iter().collect(), times.into_iter().collect());
    let unaligned = if is_unaligned { " unaligned" } else { "" };
    let params = format!("workers={} window_ms={}{unaligned}", args.workers(), window.as_millis());
    let line = Line::new()
        .text("peer", "tidegate")
        .text("workload", COMMAND.name)
        .text("params", &params)
        .raw("fours", all.count())
        .decimals("with_to_without_low", all.bound(-1.0), 3)
        .decimals("with_to_without", all.median(), 3)
        .decimals("with_to_without_high", all.bound(1.0), 3)
        .raw("checkpoints", times.count())
        .decimals("ckpt_ms_median", times.millis(0.5), 1);
    println!("{}", line.end());
    Ok(())
}

fn run(config: Config, fours: u64, window: Duration) -> Result<(Vec<f64>, Vec<Duration>), Failure> {
    let job = Job::with_config(COMMAND.name, config);
    let _folded = w2::write_down(&job, EVENTS, w2::KEYS, &Span::default());
    let handle = job.spawn()?;
    let rates = rates(&handle, fours, window, |with| {
        if with {
            handle.checkpoint()?;
        }
        Ok(())
    })?;
    let times = handle.status().checkpoints.iter().map(|done| done.duration).collect();
    end(handle)?;
    Ok((rates, times))
}
