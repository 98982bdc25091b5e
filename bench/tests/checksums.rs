//! The throughput workloads come to the checksums that all programs compared come to.

use std::collections::BTreeMap;

use tidegate::Job;
use tidegate::config::Config;
use tidegate::sink::Folded;
use tidegate_bench::clocked::Span;
use tidegate_bench::event::{event, w2_check, w3_check};
use tidegate_bench::throughput::Tally;
use tidegate_bench::w3::How;
use tidegate_bench::{w1, w2, w3};

/// What a job with so many workers comes to.
fn tally(workers: &str, write_down: impl Fn(&Job, &Span) -> Folded<Tally>) -> Tally {
    let mut config = Config::default();
    for (key, value) in [
        ("taskmanager.slots", workers),
        ("parallelism.default", workers),
        ("checkpoint.interval", "never"),
    ] {
        config.set(key, value, tidegate::config::Origin::Code).expect("the value is right");
    }
    let job = Job::with_config("test", config);
    let span = Span::default();
    let folded = write_down(&job, &span);
    job.run().expect("the job runs");
    assert!(span.seconds() > 0.0);
    let parts = folded.take();
    assert_eq!(parts.len().to_string(), workers);
    parts.into_iter().fold((0, 0u64), |all, part| (all.0 + part.0, all.1.wrapping_add(part.1)))
}

#[test]
fn w1_comes_to_the_known_checksum() {
    for workers in ["1", "2"] {
        let tally = tally(workers, |job, span| w1::write_down(job, 50_000_000, span));
        assert_eq!(tally, (25_004_586, 8_324_799_187_172_629_164), "{workers} workers");
    }
}

#[test]
fn w2_comes_to_the_known_checksum() {
    let tally = tally("2", |job, span| w2::write_down(job, 20_000_000, 1_000_000, span));
    assert_eq!(tally, (20_000_000, 11_784_892_554_686_758_902));
}

#[test]
fn w2_comes_to_what_a_loop_comes_to_with_any_number_of_workers() {
    let mut sums = BTreeMap::new();
    let mut check = 0u64;
    for i in 0..100_000 {
        let (key, value) = event(i, 1000);
        let (count, sum) = sums.entry(key).or_insert((0, 0u64));
        (*count, *sum) = (*count + 1, sum.wrapping_add(value));
        check = check.wrapping_add(w2_check(key, *count, *sum));
    }
    for workers in ["1", "3"] {
        let tally = tally(workers, |job, span| w2::write_down(job, 100_000, 1000, span));
        assert_eq!(tally, (100_000, check), "{workers} workers");
    }
}

#[test]
fn w3_comes_to_what_a_loop_comes_to_however_words_are_split() {
    let text = "The tide, the GATE;\nthe tide's end.\n\n2 gates\n".repeat(500);
    let mut counts = BTreeMap::new();
    let mut expected = (0, 0u64);
    for word in text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()) {
        let word = word.to_ascii_lowercase();
        let count = counts.entry(word.clone()).or_insert(0);
        *count += 1;
        expected = (expected.0 + 1, expected.1.wrapping_add(w3_check(&word, *count)));
    }
    for how in [How::Plain, How::Words] {
        let tally = tally("2", |job, span| w3::write_down(job, text.clone().into(), how, span));
        assert_eq!(tally, expected, "{how:?}");
    }
}
