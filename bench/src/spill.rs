//! Much in flight: how long a worker is kept by an unaligned checkpoint that has to write hundreds of megabytes of it.
//!
//! One keyed exchange with large queues before a sink that takes next to nothing. The snapshot takes references; the I/O
//! thread writes. What a worker spends in snapshot code, references included, is counted by the worker itself.

use std::time::Duration;

use tidegate::Job;
use tidegate::sink::{fold, paced};
use tidegate::source::generate_forever;

use crate::args::{Args, Command, opt};
use crate::checkpoint::until_full;
use crate::event::event;
use crate::failure::Failure;
use crate::folders::Folders;
use crate::json::Line;
use crate::quantile::Quantiles;
use crate::throughput::WORKERS;

/// The command.
pub const COMMAND: Command = Command {
    name: "spill",
    about: "how long writing much in flight keeps a worker",
    options: &[
        opt("mib", "N", "so many MiB in flight, about; 256 if not given"),
        opt("count", "N", "so many checkpoints; 5 if not given"),
        opt("checkpoints", "DIR", "where checkpoints go; a new folder under out/ if not given"),
        WORKERS,
    ],
};

/// Records a second that the sink takes.
const SINK_RATE: u64 = 100;

/// Runs the command.
///
/// # Errors
/// What is wrong with an option, or why the job failed.
pub fn spill(mut args: Args) -> Result<(), Failure> {
    let (mib, count) = (args.number("mib", 256)?, args.number("count", 5)?);
    args.default("checkpoint.interval", "1h");
    args.default("checkpoint.aligned-timeout", "0");
    let workers = args.workers();
    let folders = Folders::of(&mut args)?;
    // An output has 64 buffers at the most, so much in flight takes large ones.
    let buffers = 64 * u64::from(workers);
    let segment = ((mib << 20) / buffers).next_power_of_two();
    args.config.buffer.segment_bytes = usize::try_from(segment).unwrap_or(usize::MAX);
    args.config.buffer.per_channel = 64;
    let job = Job::with_config(COMMAND.name, args.config.clone());
    let (sink, _) = fold::<(u64, u64), u64, _>(0, |count: &mut u64, _| *count += 1);
    job.source("events", generate_forever(|i| event(i, 1_000_000)))
        .key_by(|(key, _)| key)
        .count("counts")
        .sink("slow", paced(sink, SINK_RATE));
    let handle = job.spawn()?;
    until_full(&handle, SINK_RATE)?;
    for _ in 0..count {
        handle.checkpoint()?;
    }
    let status = handle.status();
    let _ = handle.cancel();
    let times: Quantiles = status.checkpoints.iter().map(|done| done.duration).collect();
    let bytes = status.checkpoints.iter().map(|done| done.bytes).max().unwrap_or(0);
    let millis = |time: Duration| Some(time.as_secs_f64() * 1e3);
    let line = Line::new()
        .text("peer", "tidegate")
        .text("workload", COMMAND.name)
        .text("params", &format!("workers={workers} mib={mib}"))
        .raw("checkpoints", times.count())
        .raw("bytes", bytes)
        .raw("mapped_bytes", status.spilled_mapped_bytes)
        .decimals("ckpt_ms_median", times.millis(0.5), 1)
        .raw("worker_steps", status.snapshot_steps.count())
        .decimals("worker_ms_p50", millis(status.snapshot_steps.quantile(0.5)), 4)
        .decimals("worker_ms_max", millis(status.snapshot_steps.max()), 4);
    println!("{}", line.end());
    if folders.checkpoints.starts_with("out") {
        let _ =
            std::fs::remove_dir_all(folders.checkpoints.parent().unwrap_or(&folders.checkpoints));
    }
    Ok(())
}
