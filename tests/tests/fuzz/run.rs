//! Runs each target.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use tidegate_tests::fuzz::mutate::{Dice, mutate};
use tidegate_tests::fuzz::{TARGETS, Target, accepted, corpus};

use crate::counting;

/// How many mutations of each corpus are run, unless `FUZZ_MUTATIONS` says otherwise.
const MUTATIONS: u64 = 4000;

fn mutations() -> u64 {
    let wanted = std::env::var("FUZZ_MUTATIONS").ok();
    wanted.and_then(|number| number.parse().ok()).unwrap_or(MUTATIONS)
}

/// What a decoder may hold at once, beyond a few times its input.
const MEMORY_MAX: u64 = 8 << 20;

/// Runs one input; says which it was if it breaks something.
fn run(target: &Target, what: &str, bytes: &[u8]) {
    counting::forget_peak();
    let before = counting::peak();
    if let Err(cause) = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))) {
        eprintln!("{} breaks on {what}: {bytes:?}", target.name);
        std::panic::resume_unwind(cause);
    }
    let held = counting::peak() - before;
    let most = MEMORY_MAX + 64 * bytes.len() as u64;
    assert!(held <= most, "{} holds {held} bytes for {what}: {bytes:?}", target.name);
}

#[test]
fn every_input_that_is_kept_is_handled() {
    for target in TARGETS {
        let inputs =
            corpus::read(target).unwrap_or_else(|error| panic!("{}: {error}", target.name));
        for (name, bytes) in inputs {
            run(target, &name, &bytes);
            for end in 0..bytes.len().min(512) {
                run(target, &name, &bytes[..end]);
            }
        }
    }
}

#[test]
fn mutations_of_the_corpus_are_handled() {
    let begin = Instant::now();
    for target in TARGETS {
        let inputs =
            corpus::read(target).unwrap_or_else(|error| panic!("{}: {error}", target.name));
        let inputs: Vec<_> = inputs.into_iter().map(|(_, bytes)| bytes).collect();
        let before = accepted();
        for seed in 0..mutations() {
            let mut bytes = mutate(&inputs, &mut Dice::new(seed));
            run(target, &format!("mutation {seed}"), &bytes);
            if let Some(repair) = target.repair {
                repair(&mut bytes);
                run(target, &format!("mutation {seed}, repaired"), &bytes);
            }
        }
        let taken = accepted() - before;
        println!("{}: {taken} accepted", target.name);
        // One that takes nothing is not looked behind its first check.
        assert!(taken * 200 >= mutations(), "{} takes {taken} of its mutations", target.name);
    }
    println!(
        "{} mutations, {:.1} s",
        TARGETS.len() as u64 * mutations(),
        begin.elapsed().as_secs_f32()
    );
}

#[test]
fn the_seeds_are_those_that_the_encoders_make() {
    for target in TARGETS {
        let kept = corpus::read(target).unwrap_or_else(|error| panic!("{}: {error}", target.name));
        for (name, bytes) in (target.seeds)() {
            let is_kept = kept.contains(&(format!("seed-{name}"), bytes));
            let command = "cargo run -p tidegate-tests -- corpus";
            assert!(is_kept, "{}: seed-{name} is not what is made; run `{command}`", target.name);
        }
    }
}

#[test]
fn the_corpora_are_small() {
    let all = TARGETS.iter().flat_map(|target| corpus::read(target).unwrap_or_default());
    let bytes: usize = all.map(|(_, bytes)| bytes.len()).sum();
    assert!(bytes < 300 << 10, "{bytes} bytes");
}
