//! Snapshots of a keyed table: the trigger, writing, restoring, and what updates cost meanwhile.
//!
//! Values have 128 bytes. `TIDEGATE_BENCH_STATE_MIB` sets the size of the state; 64 MiB unless it is set.
#![allow(
    clippy::disallowed_methods,
    reason = "a bench measures time and starts the writing thread"
)]

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tidegate::record::key_group::{KeyGroupRange, KeyGroups};
use tidegate::state::{Table, TableOptions};

type Wide = Table<u64, [u64; 16]>;

fn entries() -> u64 {
    let mib = std::env::var("TIDEGATE_BENCH_STATE_MIB").ok().and_then(|mib| mib.parse().ok());
    mib.unwrap_or(64u64) * (1 << 20) / 136
}

fn empty() -> Wide {
    Wide::new(TableOptions::new(KeyGroups::at_least(128)), [0; 16])
}

fn snapshots(c: &mut Criterion) {
    let n = entries();
    let mut table = empty();
    for key in 0..n {
        table.entry(Wide::hash(key), key)[0] = key;
    }
    let mut group = c.benchmark_group("snapshot");
    group.sample_size(10).warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(1));

    group.bench_function("trigger", |b| {
        b.iter_custom(|rounds| {
            let mut spent = Duration::ZERO;
            for _ in 0..rounds {
                let start = Instant::now();
                let snapshot = table.snapshot();
                spent += start.elapsed();
                drop(snapshot);
            }
            spent
        });
    });

    group.throughput(Throughput::Bytes(n * 136));
    group.bench_function("write", |b| {
        b.iter_batched(
            || table.snapshot(),
            |snapshot| {
                let mut bytes = 0;
                let mut count = |_: KeyGroupRange, block: &[u8]| {
                    bytes += black_box(block).len();
                    Ok(())
                };
                snapshot.write(&mut count).expect("nothing refuses a block");
                bytes
            },
            BatchSize::PerIteration,
        );
    });

    let mut blocks = Vec::new();
    let mut keep = |_: KeyGroupRange, block: &[u8]| {
        blocks.push(block.to_vec());
        Ok(())
    };
    table.snapshot().write(&mut keep).expect("nothing refuses a block");
    let all = KeyGroupRange { first: 0, end: 128 };
    group.bench_function("restore", |b| {
        b.iter(|| {
            let mut restored = empty();
            restored.reserve(n as usize, all);
            for block in &blocks {
                restored.restore(block, all).expect("the block is whole");
            }
            restored.len()
        });
    });

    group.throughput(Throughput::Elements(1 << 16));
    let mut key = 1u64;
    let mut update = |table: &mut Wide| {
        for _ in 0..1 << 16 {
            key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (key >> 33) % n;
            table.entry(Wide::hash(key), key)[1] += 1;
        }
    };
    group.bench_function("update-idle", |b| b.iter(|| update(&mut table)));
    group.bench_function("update-while-written", |b| {
        b.iter_batched(
            || (),
            |()| {
                let snapshot = table.snapshot();
                let writer = thread::spawn(move || snapshot.write(&mut |_, _| Ok(())));
                update(&mut table);
                writer.join().expect("writing does not panic").expect("nothing refuses a block");
            },
            BatchSize::PerIteration,
        );
    });
}

criterion_group!(benches, snapshots);
criterion_main!(benches);
