//! Faults put into the engine on purpose, and in how many schedules each is found.

use std::fmt;

use tidegate::probe::Fault;

use super::summary::{self, Batch};

/// What became of one fault.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The rule that was broken.
    pub fault: Fault,
    /// How many schedules were run.
    pub schedules: u64,
    /// The seed that found it, and what was wrong.
    pub found: Option<(u64, String)>,
}

/// Runs schedules with each fault until it is found, at most `seeds` of them.
pub fn run(seeds: u64, threads: u64) -> impl Iterator<Item = Mutant> {
    Fault::ALL.iter().map(move |&fault| {
        let summary = summary::run(Batch {
            first: 0,
            seeds,
            threads,
            most: None,
            violations_max: 1,
            fault: Some(fault),
        });
        let found = summary.violations.into_iter().next();
        Mutant { fault, schedules: summary.schedules, found }
    })
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, schedules, found } = self;
        match found {
            Some((seed, violation)) => {
                let line = violation.lines().next().unwrap_or_default();
                let violation: String = line.chars().take(100).collect();
                write!(
                    f,
                    "{:<24} {schedules:>6}  seed {seed:>6}: {violation}",
                    format!("{fault:?}")
                )
            }
            None => write!(f, "{:<24} {schedules:>6}  not found", format!("{fault:?}")),
        }
    }
}
