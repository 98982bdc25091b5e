//! Runs Tidegate's workloads: the flights job, word count, and those of the peers that it is compared with.
//!
//! `main` is all that the binary does; the rest is public for the benches and tests of this package only.

pub mod args;
pub mod checkpoint;
pub mod clocked;
pub mod disk;
pub mod end;
pub mod event;
pub mod event_log;
pub mod failure;
pub mod flights;
pub mod folders;
pub mod idle;
pub mod json;
pub mod keyed_feed;
pub mod overtake;
pub mod progress;
pub mod quantile;
pub mod report;
pub mod run;
pub mod signals;
pub mod spill;
pub mod steered;
pub mod throughput;
pub mod toll;
pub mod usage;
pub mod w1;
pub mod w2;
pub mod w3;
pub mod w6b;
pub mod windows;
pub mod wordcount;

use std::process::ExitCode;

use args::{Args, Command, help};
use failure::Failure;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The commands; the first runs if none is named.
const COMMANDS: &[Command] = &[
    flights::COMMAND,
    wordcount::COMMAND,
    w1::COMMAND,
    w2::COMMAND,
    w3::COMMAND,
    w6b::COMMAND,
    steered::COMMAND,
    toll::COMMAND,
    checkpoint::COMMAND,
    overtake::COMMAND,
    spill::COMMAND,
    end::COMMAND,
    idle::COMMAND,
];

/// Runs the command line of this process. Exit codes: 0 done, 1 the job failed, 2 usage or configuration, 3 a
/// checkpoint can't be used.
pub fn main() -> ExitCode {
    let line: Vec<String> = std::env::args().skip(1).collect();
    if line.iter().any(|word| matches!(word.as_str(), "--help" | "-h" | "help")) {
        print!("{}", help(COMMANDS));
        return ExitCode::SUCCESS;
    }
    match Args::parse(COMMANDS, line, std::env::vars()).and_then(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn command(args: Args) -> Result<(), Failure> {
    if args.flag("print-config")? {
        let mut text = String::new();
        args.config.print(&mut text).expect("a string takes all");
        print!("{text}");
        return Ok(());
    }
    match args.command.name {
        "flights" => flights::flights(args),
        "wordcount" => wordcount::wordcount(args),
        "w1" => w1::w1(args),
        "w2" => w2::w2(args),
        "w3" => w3::w3(args),
        "w6b" => w6b::w6b(args),
        "steered" => steered::steered(args),
        "toll" => toll::toll(args),
        "checkpoint" => checkpoint::checkpoint(args),
        "overtake" => overtake::overtake(args),
        "spill" => spill::spill(args),
        "end" => end::end(args),
        "idle" => idle::idle(args),
        name => Err(Failure::Usage(format!("command '{name}' does nothing"))),
    }
}
