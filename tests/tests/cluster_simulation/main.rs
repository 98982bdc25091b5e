//! The cluster simulator's run: schedules over seeds, faults put into the machines that it must find, and seeds that once failed.
//!
//! A failing seed is told step by step with `SEED=… cargo test -p tidegate-tests --test cluster_simulation -- --exact --nocapture
//! no_schedule_breaks_a_rule_of_the_cluster`.

use tidegate::probe::Fault;
use tidegate_tests::cluster_simulation::{schedule, summary};
use tidegate_tests::simulation::summary::Batch;

/// So many schedules are run.
const SEEDS: u64 = 100_000;
/// In so many schedules each race is met.
const SEEDS_OF_RACES: u64 = 5_000;
/// A fault of a machine is found in so many schedules.
const SEEDS_OF_FAULT: u64 = 10_000;

#[test]
fn no_schedule_breaks_a_rule_of_the_cluster() {
    if let Ok(seed) = std::env::var("SEED") {
        let report = schedule::run(seed.parse().expect("SEED is a number"), true);
        println!("{report:?}");
        assert_eq!(report.violation, None);
        return;
    }
    let summary = summary::run(Batch::of_test(SEEDS));
    println!("{}", summary.json());
    for (seed, violation) in &summary.violations {
        println!(
            "SEED={seed} cargo test -p tidegate-tests --test cluster_simulation -- --exact --nocapture \
             no_schedule_breaks_a_rule_of_the_cluster\n    {violation}"
        );
    }
    assert!(summary.violations.is_empty(), "{} seeds fail", summary.violations.len());
    // A slow machine runs too few to meet the rarest.
    if summary.schedules >= SEEDS_OF_RACES {
        assert_eq!(summary.reach.missing(), Vec::<&str>::new(), "races that were not met");
    }
}

/// One notice removed the order to leave a place and brought another: the evacuation began again, with a new grace.
#[test]
fn seeds_9795_25334_29742_an_order_that_takes_the_place_of_another_goes_on_with_its_evacuation() {
    for seed in [9_795, 25_334, 29_742] {
        assert_eq!(schedule::run(seed, false).violation, None, "seed {seed}");
    }
}

/// A failure that fell into the wait of another was not counted, but its free restart was.
#[test]
fn seed_3665_a_free_restart_is_counted_only_with_its_failure() {
    assert_eq!(schedule::run(3_665, false).violation, None);
}

#[test]
fn a_seed_is_the_same_schedule_each_time() {
    for seed in 0..20 {
        let (one, other) = (schedule::run(seed, false), schedule::run(seed, false));
        assert_eq!((one.digest, one.steps), (other.digest, other.steps), "seed {seed}");
    }
}

#[test]
fn every_broken_rule_of_the_cluster_is_found() {
    let mut missed = Vec::new();
    for &fault in Fault::CLUSTER {
        let summary = summary::run(Batch {
            first: 0,
            seeds: SEEDS_OF_FAULT,
            threads: 2,
            most: None,
            violations_max: 1,
            fault: Some(fault),
        });
        match summary.violations.first() {
            Some((seed, violation)) => {
                let violation: String = violation.chars().take(120).collect();
                println!(
                    "{fault:?}: found after {} by seed {seed}: {violation}",
                    summary.schedules
                );
            }
            None => missed.push(fault),
        }
    }
    assert_eq!(missed, [], "not found in {SEEDS_OF_FAULT} schedules each");
}
