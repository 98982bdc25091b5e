//! Updating a keyed table, record by record and with the hashes of a batch prefetched, against a flat table of fixed size.
//!
//! The flat table has no directory, no snapshots and no growth: it is the bound. Ratios count, not times.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use tidegate::record::key_group::KeyGroups;
use tidegate::state::{Table, TableOptions};

type Counts = Table<u64, (u64, u64)>;

const RECORDS: usize = 1 << 20;
/// Records whose hashes are made in a pass of their own.
const BATCH: usize = 2048;
/// So far ahead a line is loaded.
const AHEAD: usize = 32;

#[derive(Clone, Copy, Default)]
struct Entry {
    tag: u64,
    key: u64,
    value: (u64, u64),
}

struct Flat(Vec<Entry>);

impl Flat {
    fn new(keys: u64) -> Self {
        Self(vec![Entry::default(); keys.max(4096) as usize * 2])
    }

    #[inline(always)]
    fn entry(&mut self, hash: u64, key: u64) -> &mut (u64, u64) {
        let (n, tag) = (self.0.len(), hash >> 30 | 1);
        let mut slot = (((hash & 0xFFFF_FFFF) * n as u64) >> 32) as usize;
        while self.0[slot].tag != 0 && (self.0[slot].tag != tag || self.0[slot].key != key) {
            slot = if slot + 1 == n { 0 } else { slot + 1 };
        }
        let entry = &mut self.0[slot];
        (entry.tag, entry.key) = (tag, key);
        &mut entry.value
    }
}

#[inline(always)]
fn add(value: &mut (u64, u64), key: u64) {
    *value = (value.0 + 1, value.1 + key);
}

fn random_keys(count: u64) -> Vec<u64> {
    let mut x = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % count
    };
    (0..RECORDS).map(|_| next()).collect()
}

fn filled(keys: u64) -> Counts {
    let mut table = Counts::new(TableOptions::new(KeyGroups::at_least(128)), (0, 0));
    for key in 0..keys {
        table.entry(Counts::hash(key), key);
    }
    table
}

fn group<'c>(
    c: &'c mut Criterion,
    name: &str,
) -> BenchmarkGroup<'c, criterion::measurement::WallTime> {
    let mut group = c.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1)).throughput(Throughput::Elements(RECORDS as u64));
    group
}

fn update(c: &mut Criterion) {
    for count in [1000, 1_000_000] {
        let keys = random_keys(count);
        let mut group = group(c, &format!("update/{count}-keys"));
        let mut flat = Flat::new(count);
        group.bench_function("flat", |b| {
            b.iter(|| keys.iter().for_each(|&key| add(flat.entry(Counts::hash(key), key), key)));
        });
        let mut table = filled(count);
        group.bench_function("table", |b| {
            b.iter(|| keys.iter().for_each(|&key| add(table.entry(Counts::hash(key), key), key)));
        });
        let mut hashes = [0; BATCH];
        group.bench_function("table-prefetched", |b| {
            b.iter(|| {
                for batch in keys.chunks(BATCH) {
                    for (hash, &key) in hashes.iter_mut().zip(batch) {
                        *hash = Counts::hash(key);
                    }
                    for (index, &key) in batch.iter().enumerate() {
                        if let Some(&hash) = hashes.get(index + AHEAD) {
                            table.prefetch(hash);
                        }
                        add(table.entry_prefetched(hashes[index], key), key);
                    }
                }
            });
        });
        black_box((flat.0.len(), table.len()));
    }
}

fn grow(c: &mut Criterion) {
    let mut group = group(c, "grow");
    group.throughput(Throughput::Elements(300_000));
    group.bench_function("300000-keys", |b| b.iter(|| filled(300_000).len()));
}

criterion_group!(benches, update, grow);
criterion_main!(benches);
