//! The simulator's run: schedules over seeds, faults put into the engine that it must find, and that a seed is one schedule.
//!
//! A failing seed is run again, and told step by step, with `SEED=… cargo test -p tidegate-tests --test simulation -- --exact
//! --nocapture no_schedule_loses_or_repeats_a_record`.

use tidegate_tests::simulation::plan::Edition;
use tidegate_tests::simulation::summary::{self, Batch};
use tidegate_tests::simulation::{mutants, schedule};

/// So many schedules are run.
const SEEDS: u64 = 100_000;
/// In so many schedules each race is met.
const SEEDS_OF_RACES: u64 = 30_000;
/// A fault of the engine is found in so many schedules.
const SEEDS_OF_FAULT: u64 = 30_000;

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
    let summary = summary::run(Batch::of_test(SEEDS));
    println!("{}", summary.json());
    for (seed, violation) in &summary.violations {
        println!(
            "SEED={seed} cargo test -p tidegate-tests --test simulation -- --exact --nocapture \
             no_schedule_loses_or_repeats_a_record\n    {violation}"
        );
    }
    assert!(summary.violations.is_empty(), "{} seeds fail", summary.violations.len());
    assert!(summary.median_tasks() >= 4, "median tasks: {}", summary.median_tasks());
    assert!(summary.median_steps() >= 300, "median steps: {}", summary.median_steps());
    let checkpoints = summary.median_checkpoints();
    assert!(checkpoints >= 2, "median checkpoints: {checkpoints}");
    assert!(2 * summary.with_crash >= summary.schedules, "{} with a crash", summary.with_crash);
    assert!(5 * summary.ending_apart >= summary.schedules, "{} apart", summary.ending_apart);
    // A slow machine runs too few to meet the rarest.
    if summary.schedules >= SEEDS_OF_RACES {
        assert_eq!(summary.reach.missing(), Vec::<&str>::new(), "races that were not met");
    }
}

/// Three declined checkpoints had captured all of a source's buffers, and nobody gave them back.
#[test]
fn seed_29200_what_was_captured_for_a_declined_checkpoint_goes_home() {
    assert_eq!(schedule::run_edition(29_200, Edition::First, false).violation, None);
}

/// A task that was restored as finished and took a snapshot before it had sent the end of its data again awaited another one, which
/// the coordinator held to be needless.
#[test]
fn seed_256640_a_snapshot_of_finished_operators_is_the_last_that_is_needed() {
    assert_eq!(schedule::run_edition(256_640, Edition::First, false).violation, None);
}

/// A checkpoint taken while restored records were read had them beside newer ones of the same keys in other channels. Restored once
/// more, with another parallelism, the newer ones were read first.
#[test]
fn seed_259159_what_was_in_flight_through_more_restores_is_read_first() {
    assert_eq!(schedule::run_edition(259_159, Edition::First, false).violation, None);
}

/// A checkpoint whose folder could not be synced was found by the next process, which committed what it covers; then the power went,
/// and the checkpoint with it.
#[test]
fn seed_4425_a_checkpoint_is_made_durable_before_the_next_process_relies_on_it() {
    assert_eq!(schedule::run(4_425, false).violation, None);
}

/// A task that heard that a checkpoint was given up took none of the older ones any more, whose barriers were still to come: at least
/// once several are followed at a time.
#[test]
fn seeds_135305_and_215196_what_is_given_up_ends_nothing_older() {
    for seed in [135_305, 215_196] {
        assert_eq!(schedule::run(seed, false).violation, None, "seed {seed}");
    }
}

/// Two regions had failed; one was deployed, and the other one had finished in the checkpoint: the coordinator never heard that it was
/// left out.
#[test]
fn seed_312380_a_finished_region_is_left_out_when_another_one_is_deployed() {
    assert_eq!(schedule::run(312_380, false).violation, None);
}

/// The simulator's own fault: a process that was about to be refused for its size died, and the next ones went on in that size, which
/// no checkpoint was of.
#[test]
fn seed_976929_a_job_whose_size_is_refused_goes_on_in_the_size_of_its_checkpoint() {
    assert_eq!(schedule::run(976_929, false).violation, None);
}

#[test]
fn a_seed_is_the_same_schedule_each_time() {
    for seed in 0..40 {
        let (one, other) = (schedule::run(seed, false), schedule::run(seed, false));
        assert_eq!((one.digest, one.steps), (other.digest, other.steps), "seed {seed}");
    }
}

#[test]
fn every_broken_rule_is_found() {
    let mut missed = Vec::new();
    for mutant in mutants::run(SEEDS_OF_FAULT, 2) {
        println!("{mutant}");
        if mutant.found.is_none() {
            missed.push(mutant.fault);
        }
    }
    assert_eq!(missed, [], "not found in {SEEDS_OF_FAULT} schedules each");
}
