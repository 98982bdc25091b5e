//! W1: forward. A source, a map, a filter and a sum, in one chain: what a record costs that meets no exchange.

use tidegate::Job;
use tidegate::sink::{Folded, fold};
use tidegate::source::generate;

use crate::args::{Args, Command, opt};
use crate::clocked::{Clocked, Span};
use crate::event::{Event, event, w1_keep, w1_map};
use crate::failure::Failure;
use crate::throughput::{CHECKPOINTED, RUNS, Tally, Throughput, WORKERS};

/// The command.
pub const COMMAND: Command = Command {
    name: "w1",
    about: "throughput without an exchange: generate, map, filter, sum",
    options: &[opt("events", "N", "50,000,000 if not given"), WORKERS, RUNS, CHECKPOINTED],
};

/// Keys are as good as never the same.
pub const KEYS: u64 = 1 << 32;

/// Writes the job down.
pub fn write_down(job: &Job, events: u64, span: &Span) -> Folded<Tally> {
    let (sink, folded) = fold::<Event, Tally, _>((0, 0), |(count, sum): &mut Tally, (_, value)| {
        (*count, *sum) = (*count + 1, sum.wrapping_add(value));
    });
    job.source("events", Clocked::new(generate(events, |i| event(i, KEYS)), span))
        .map(w1_map)
        .filter(w1_keep)
        .sink("sum", Clocked::new(sink, span));
    folded
}

/// Runs the command.
///
/// # Errors
/// What is wrong with an option, or why the job failed.
pub fn w1(args: Args) -> Result<(), Failure> {
    let events = args.number("events", 50_000_000)?;
    let workload = Throughput { name: COMMAND.name, params: String::new(), events: Some(events) };
    workload.run(args, |job, span| write_down(job, events, span))
}
