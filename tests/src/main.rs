//! `simulate --seeds N [--first N] [--threads N]`: runs schedules of the simulator and prints a line of JSON;
//! `simulate-cluster`, with the same flags, those of the simulator of the cluster's machines; with `--seed N` one, step by step.
//! `mutants [--seeds N] [--threads N]`: breaks one rule of the protocol after the other and prints in how many schedules each is found;
//! `tell SEED` tells one schedule step by step.
//! `corpus`: writes the fuzz targets' seeds.

use std::process::ExitCode;

use tidegate_tests::cluster_simulation;
use tidegate_tests::simulation::summary::{self, Batch};
use tidegate_tests::simulation::{mutants, schedule};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, otherwise: u64| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)?.parse().ok()).unwrap_or(otherwise)
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let threads = number("--threads", threads);
    if arguments.first().is_some_and(|command| command == "mutants") {
        let mut missed = 0;
        for mutant in mutants::run(number("--seeds", 10_000), threads) {
            println!("{mutant}");
            missed += u32::from(mutant.found.is_none());
        }
        return if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    if arguments.first().is_some_and(|command| command == "tell") {
        let report = schedule::run(number("tell", 0), true);
        println!("{report:?}");
        return if report.violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
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
    let command = arguments.first().map_or("", String::as_str);
    if !["simulate", "simulate-cluster"].contains(&command) {
        eprintln!(
            "usage: simulate|simulate-cluster --seeds N [--first N] [--threads N] [--seed N], mutants, tell SEED, or corpus"
        );
        return ExitCode::from(2);
    }
    let one = number("--seed", u64::MAX);
    if command == "simulate-cluster" && one != u64::MAX {
        let report = cluster_simulation::schedule::run(one, true);
        println!("{report:?}");
        return if report.violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let batch = Batch {
        first: number("--first", 0),
        seeds: number("--seeds", 1000),
        threads,
        most: None,
        violations_max: number("--violations-max", 20),
        fault: None,
    };
    let (json, violations) = if command == "simulate" {
        let summary = summary::run(batch);
        (summary.json(), summary.violations)
    } else {
        let summary = cluster_simulation::summary::run(batch);
        (summary.json(), summary.violations)
    };
    println!("{json}");
    for (seed, violation) in &violations {
        eprintln!("seed {seed}: {violation}");
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
