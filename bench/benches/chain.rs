//! What the chain of one worker costs beside a loop without an engine, and whether the compiler still makes one loop of it.
//!
//! A ratio that has become too small is a warning with the figure, not a failure: figures depend on the machine.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate::Job;
use tidegate::config::{Config, Origin};
use tidegate::sink::fold;
use tidegate::source::generate;
use tidegate_bench::clocked::{Clocked, Span};
use tidegate_bench::event::{Event, event, w1_keep, w1_map};
use tidegate_bench::throughput::Tally;
use tidegate_bench::w1;

const RECORDS: u64 = 10_000_000;
/// The best of so many counts for a ratio.
const ROUNDS: usize = 7;

/// Runs a job on one worker; how long its records took.
fn run(write_down: impl Fn(&Job, &Span)) -> Duration {
    let mut config = Config::default();
    for (key, value) in
        [("taskmanager.slots", "1"), ("parallelism.default", "1"), ("checkpoint.interval", "never")]
    {
        config.set(key, value, Origin::Code).expect("the value is right");
    }
    let (job, span) = (Job::with_config("bench", config), Span::default());
    write_down(&job, &span);
    job.run().expect("the job runs");
    Duration::from_secs_f64(span.seconds())
}

fn chain(job: &Job, span: &Span) {
    drop(w1::write_down(job, RECORDS, span));
}

/// W1 with `flat_map` where it has `map`.
fn chain_of_flat_map(job: &Job, span: &Span) {
    let (sink, _) = fold::<Event, Tally, _>((0, 0), |(count, sum): &mut Tally, (_, value)| {
        (*count, *sum) = (*count + 1, sum.wrapping_add(value));
    });
    job.source("events", Clocked::new(generate(RECORDS, |i| event(i, w1::KEYS)), span))
        .flat_map::<Event, _>(|event, out| out.emit(w1_map(event)))
        .filter(w1_keep)
        .sink("sum", Clocked::new(sink, span));
}

/// W1 without an engine.
fn plain_loop() -> Duration {
    let begun = Instant::now();
    let mut tally = (0u64, 0u64);
    for i in 0..black_box(RECORDS) {
        let event = w1_map(event(i, w1::KEYS));
        let kept = u64::from(w1_keep(event));
        tally.0 += kept;
        tally.1 = tally.1.wrapping_add(event.1.wrapping_mul(kept));
    }
    black_box(tally);
    begun.elapsed()
}

fn best(mut run: impl FnMut() -> Duration) -> f64 {
    let times = (0..ROUNDS).map(|_| run());
    times.min().expect("there are rounds").as_secs_f64()
}

/// Prints a rate as a share of another, and a warning if it is too small.
fn guard(what: &str, share: f64, least: f64) {
    println!("{what}: {share:.2}, expected at least {least}");
    if share < least {
        println!("WARNING: {what} is {share:.2} times as fast, expected at least {least}");
    }
}

fn benches_and_guards(c: &mut Criterion) {
    let mut group = c.benchmark_group("chain");
    group.throughput(Throughput::Elements(RECORDS)).sample_size(10);
    group.bench_function("map", |b| b.iter_custom(|n| (0..n).map(|_| run(chain)).sum()));
    group.bench_function("flat_map", |b| {
        b.iter_custom(|n| (0..n).map(|_| run(chain_of_flat_map)).sum());
    });
    group.bench_function("loop", |b| b.iter_custom(|n| (0..n).map(|_| plain_loop()).sum()));
    group.finish();
    let map = best(|| run(chain));
    guard("flat_map against map", map / best(|| run(chain_of_flat_map)), 0.9);
    guard("w1 against a loop without an engine", best(plain_loop) / map, 0.7);
}

criterion_group!(benches, benches_and_guards);
criterion_main!(benches);
