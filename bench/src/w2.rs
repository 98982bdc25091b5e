//! W2: keyed shuffle. Events are partitioned by key; each updates its key's count and sum and emits them.

use tidegate::Job;
use tidegate::sink::{Folded, fold};
use tidegate::source::generate;

use crate::args::{Args, Command, opt};
use crate::clocked::{Clocked, Span};
use crate::event::{event, w2_check};
use crate::failure::Failure;
use crate::throughput::{CHECKPOINTED, RUNS, Tally, Throughput, UNALIGNED, WORKERS};

/// The command.
pub const COMMAND: Command = Command {
    name: "w2",
    about: "throughput of a keyed exchange: partition by key, running count and sum",
    options: &[
        opt("events", "N", "20,000,000 if not given"),
        opt("keys", "N", "1,000,000 if not given, at most 4,294,967,296"),
        WORKERS,
        RUNS,
        CHECKPOINTED,
        UNALIGNED,
    ],
};

/// So many keys if not told.
pub const KEYS: u64 = 1_000_000;

/// Writes the job down.
pub fn write_down(job: &Job, events: u64, keys: u64, span: &Span) -> Folded<Tally> {
    let (sink, folded) = fold::<(u64, (u64, u64)), Tally, _>(
        (0, 0),
        |(updates, check): &mut Tally, (key, (count, sum))| {
            *updates += 1;
            *check = check.wrapping_add(w2_check(key, count, sum));
        },
    );
    job.source("events", Clocked::new(generate(events, move |i| event(i, keys)), span))
        .key_by(|(key, _)| key)
        .fold("sums", (0, 0), |(count, sum): &mut (u64, u64), (_, value)| {
            (*count, *sum) = (*count + 1, sum.wrapping_add(value));
        })
        .sink("check", Clocked::new(sink, span));
    folded
}

/// Runs the command.
///
/// # Errors
/// What is wrong with an option, or why the job failed.
pub fn w2(args: Args) -> Result<(), Failure> {
    let events = args.number("events", 20_000_000)?;
    let keys = args.number("keys", KEYS)?;
    if !(1..=1 << 32).contains(&keys) {
        return Err(Failure::Usage("--keys: from 1 to 4294967296".to_owned()));
    }
    let params = if keys == KEYS { String::new() } else { format!(" keys={keys}") };
    let workload = Throughput { name: COMMAND.name, params, events: Some(events) };
    workload.run(args, |job, span| write_down(job, events, keys, span))
}
