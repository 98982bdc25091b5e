//! `simulate --seeds N [--first N] [--threads N]`: runs schedules of the simulator and prints a line of JSON.
//! `corpus`: writes the fuzz targets' seeds.

use std::process::ExitCode;

use tidegate_tests::simulation::summary::{self, Batch};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, otherwise: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(otherwise)
    };
    if arguments.first().is_some_and(|command| command == "corpus") {
        return match tidegate_tests::fuzz::corpus::write_seeds() {
            Ok(seeds) => {
                println!("{seeds} seeds");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("the seeds can't be written: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if arguments.first().is_none_or(|command| command != "simulate") {
        eprintln!("usage: simulate --seeds N [--first N] [--threads N], or corpus");
        return ExitCode::from(2);
    }
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let summary = summary::run(Batch {
        first: number("--first", 0),
        seeds: number("--seeds", 1000),
        threads: number("--threads", threads),
        most: None,
        violations_max: number("--violations-max", 20),
        fault: None,
    });
    println!("{}", summary.json());
    for (seed, violation) in &summary.violations {
        eprintln!("seed {seed}: {violation}");
    }
    if summary.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
