//! Records through a keyed exchange between two workers: 16 bytes of fixed size, and short strings.
//!
//! Whole jobs, clocked from the first record emitted to the last one taken in.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate::Job;
use tidegate::config::{Config, Origin};
use tidegate::sink::fold;
use tidegate::source::generate;
use tidegate_bench::clocked::{Clocked, Span};
use tidegate_bench::event::{Event, event, key};

const RECORDS: u64 = 2_000_000;
const KEYS: u64 = 1000;

/// Runs a job on two workers; how long its records took.
fn run(write_down: impl Fn(&Job, &Span)) -> Duration {
    let mut config = Config::default();
    for (key, value) in
        [("taskmanager.slots", "2"), ("parallelism.default", "2"), ("checkpoint.interval", "never")]
    {
        config.set(key, value, Origin::Code).expect("the value is right");
    }
    let (job, span) = (Job::with_config("bench", config), Span::default());
    write_down(&job, &span);
    job.run().expect("the job runs");
    Duration::from_secs_f64(span.seconds())
}

/// 16 bytes a record.
fn pairs(job: &Job, span: &Span) {
    let (sink, _) = fold::<(u64, Event), u64, _>(0, |sum: &mut u64, (_, (_, value))| {
        *sum = sum.wrapping_add(value);
    });
    job.source("pairs", Clocked::new(generate(RECORDS, |i| event(i, KEYS)), span))
        .key_by(|(key, _)| key)
        .fold("last", (0, 0), |last: &mut Event, event| *last = event)
        .sink("sum", Clocked::new(sink, span));
}

/// About nine characters a record.
fn strings(job: &Job, span: &Span) {
    const NAMES: [&str; 8] =
        ["harbour", "tidal gate", "mole", "breakwater", "lock", "sluice", "quay wall", "pier"];
    let (sink, _) = fold::<(String, u64), u64, _>(0, |sum: &mut u64, (_, count)| {
        *sum = sum.wrapping_add(count)
    });
    job.source("names", Clocked::new(generate(RECORDS, |i| key(i, 8)), span))
        .flat_map::<String, _>(|i, out| out.emit_ref(NAMES[i as usize]))
        .key_by_ref::<String>(|name| *name)
        .count("counts")
        .sink("sum", Clocked::new(sink, span));
}

fn exchange(c: &mut Criterion) {
    let mut group = c.benchmark_group("exchange");
    group.throughput(Throughput::Elements(RECORDS)).sample_size(10);
    group.bench_function("16 bytes", |b| b.iter_custom(|n| (0..n).map(|_| run(pairs)).sum()));
    group.bench_function("strings", |b| b.iter_custom(|n| (0..n).map(|_| run(strings)).sum()));
    group.finish();
}

criterion_group!(benches, exchange);
criterion_main!(benches);
