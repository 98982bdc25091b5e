//! The simulator's run: schedules over seeds, and seeds that once found a bug.
//!
//! A failing seed is run again, and told step by step, with `SEED=… cargo test -p tidegate-tests --test simulation`.

use std::time::Duration;

use tidegate_tests::simulation::schedule;
use tidegate_tests::simulation::summary::{self, Batch};

fn seed_asked_for() -> Option<u64> {
    std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"))
}

#[test]
fn no_schedule_loses_or_repeats_a_record() {
    if let Some(seed) = seed_asked_for() {
        let report = schedule::run(seed, true);
        println!("{report:?}");
        assert_eq!(report.violation, None);
        return;
    }
    let summary = summary::run(Batch {
        first: 0,
        seeds: 100_000,
        threads: 2,
        most: Some(Duration::from_secs(60)),
        violations_max: 8,
    });
    println!("{}", summary.json());
    for (seed, violation) in &summary.violations {
        println!(
            "SEED={seed} cargo test -p tidegate-tests --test simulation -- --exact --nocapture \
             no_schedule_loses_or_repeats_a_record\n    {violation}"
        );
    }
    assert!(summary.violations.is_empty(), "{} seeds fail", summary.violations.len());
}

#[test]
fn a_seed_is_the_same_schedule_each_time() {
    for seed in 0..40 {
        let (one, other) = (schedule::run(seed, false), schedule::run(seed, false));
        assert_eq!((one.digest, one.steps), (other.digest, other.steps), "seed {seed}");
    }
}
