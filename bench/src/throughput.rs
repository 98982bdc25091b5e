//! What the throughput workloads share: runs after a warm-up, each printed as the programs compared with print theirs.

use std::path::PathBuf;

use tidegate::Job;
use tidegate::sink::Folded;

use crate::args::{Args, Opt, opt};
use crate::clocked::Span;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::json::Line;

/// What a sink of these workloads comes to: how many records, and their checksum.
pub type Tally = (u64, u64);

/// Options of all of them.
pub const WORKERS: Opt = opt("workers", "N", "threads; as many as there are CPUs if not given");
/// How often.
pub const RUNS: Opt = opt("runs", "N", "so many runs after one to warm up; 1 if not given");
/// With checkpoints or not.
pub const CHECKPOINTED: Opt = opt("ckpt", "", "take a checkpoint a second");
/// Which sort of them.
pub const UNALIGNED: Opt =
    opt("unaligned", "", "with ckpt: barriers overtake at once instead of after 200 ms");

/// A workload.
#[derive(Debug)]
pub struct Throughput<'a> {
    /// Its name.
    pub name: &'a str,
    /// What distinguishes its rows, besides workers and checkpoints.
    pub params: String,
    /// How many events a run has; as many as the sink takes if not given.
    pub events: Option<u64>,
}

impl Throughput<'_> {
    /// Runs a warm-up and `runs`, and prints a line for each run. `write_down` makes the job's streams, clocked by a span,
    /// and returns what its sinks come to.
    ///
    /// # Errors
    /// What is wrong with an option, or why a job failed.
    pub fn run(
        &self,
        mut args: Args,
        write_down: impl Fn(&Job, &Span) -> Folded<Tally>,
    ) -> Result<(), Failure> {
        let is_checkpointed = args.flag("ckpt")?;
        args.default("checkpoint.interval", if is_checkpointed { "1s" } else { "never" });
        let is_unaligned = args.flag("unaligned")?;
        if is_unaligned {
            args.default("checkpoint.aligned-timeout", "0");
        }
        let runs = args.number("runs", 1)?;
        for run in 0..=runs {
            let span = Span::default();
            let mut config = args.config.clone();
            let folder = fresh_checkpoints(&mut args, is_checkpointed)?;
            config.checkpoint.dir = folder.clone();
            let job = Job::with_config(self.name, config);
            let folded = write_down(&job, &span);
            let status = job.run()?;
            if let Some(folder) = folder.as_deref().and_then(|checkpoints| checkpoints.parent()) {
                // What can't be removed doesn't spoil the figures.
                let _ = std::fs::remove_dir_all(folder);
            }
            if run == 0 {
                continue;
            }
            let (out, check) = folded
                .take()
                .into_iter()
                .fold((0, 0u64), |(out, check), part| (out + part.0, check.wrapping_add(part.1)));
            let events = self.events.unwrap_or(out);
            let mut params = format!("workers={}{}", args.workers(), self.params);
            if is_checkpointed {
                params.push_str(if is_unaligned { " ckpt=1s unaligned" } else { " ckpt=1s" });
            }
            let mut line = Line::new()
                .text("peer", "tidegate")
                .text("workload", self.name)
                .text("params", &params)
                .raw("events", events)
                .decimals("seconds", Some(span.seconds()), 4)
                .decimals("events_per_s", Some(events as f64 / span.seconds()), 0)
                .decimals("cpu_s", Some(span.cpu_seconds()), 3)
                .raw("out", out)
                .raw("chk", check);
            if is_checkpointed {
                line = line.raw("checkpoints", status.checkpoints_completed);
            }
            println!("{}", line.end());
        }
        Ok(())
    }
}

/// A new folder for a run's checkpoints.
fn fresh_checkpoints(args: &mut Args, is_checkpointed: bool) -> Result<Option<PathBuf>, Failure> {
    if !is_checkpointed {
        return Ok(None);
    }
    args.config.checkpoint.dir = None;
    let checkpoints = Folders::of(args)?.checkpoints;
    args.config.checkpoint.dir = None;
    Ok(Some(checkpoints))
}
