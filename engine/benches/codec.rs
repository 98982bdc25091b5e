//! Writing records as frames and reading them in place: 16 bytes of fixed size, and a number with a short string.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate::Data;
use tidegate::record::codec::round_trip;

const RECORDS: u64 = 1000;
/// A buffer of a channel.
const ROOM: usize = 64 << 10;

fn through<T: Data>(
    criterion: &mut Criterion,
    name: &str,
    records: &[T],
    value: impl Fn(T::Ref<'_>) -> u64 + Copy,
) {
    let mut room = vec![0; ROOM];
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Elements(RECORDS));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let mut sum = 0u64;
            let count = round_trip(black_box(records), &mut room, |record| {
                sum = sum.wrapping_add(value(record));
            });
            assert_eq!(count, records.len(), "all fit the buffer");
            sum
        });
    });
    group.finish();
}

fn codec(criterion: &mut Criterion) {
    const NAMES: [&str; 8] =
        ["harbour", "tidal gate", "mole", "breakwater", "lock", "sluice", "quay wall", "pier"];
    let pairs: Vec<(u64, u64)> = (0..RECORDS).map(|i| (i, i * i)).collect();
    through(criterion, "16 bytes", &pairs, |(a, b)| a ^ b);
    let named = |i: u64| (NAMES[(i * 7 % 8) as usize].to_owned(), i);
    let named: Vec<(String, u64)> = (0..RECORDS).map(named).collect();
    through(criterion, "a string and 8 bytes", &named, |(name, n)| name.len() as u64 + n);
    // As usual in Rust: each record owns its string.
    let mut group = criterion.benchmark_group("codec");
    group.throughput(Throughput::Elements(RECORDS));
    group.bench_function("a string and 8 bytes, cloned", |bencher| {
        bencher.iter(|| {
            let clones: Vec<(String, u64)> = black_box(&named).clone();
            clones.iter().fold(0u64, |sum, (name, n)| sum.wrapping_add(name.len() as u64 + n))
        });
    });
    group.finish();
}

criterion_group!(benches, codec);
criterion_main!(benches);
