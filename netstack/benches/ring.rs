//! How fast a lane hands over buffers, how long a hop takes, and what overtaking saves.
//!
//! Ratios are what counts: absolute times are the machine's. Threads yield when they find nothing, so that the
//! bench also ends when both share a core.
#![expect(unsafe_code, reason = "writes records in place, as a codec does")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};
use tidegate_netstack::{
    lane::{Consumer, LaneOptions, Next, Producer, Slot, channel},
    pool::PoolOptions,
};

const LAST: u64 = u64::MAX;
const BATCH: u64 = 256;

fn lane(segment_bytes: usize, segments: usize) -> (Producer<u64>, Consumer<u64>) {
    let pool = PoolOptions { segment_bytes, segments, ..PoolOptions::default() };
    channel(LaneOptions { pool, ..LaneOptions::default() })
}

fn wait_until_ready(producer: &mut Producer<u64>) {
    while !producer.is_ready() {
        producer.flush();
        thread::yield_now();
    }
}

#[inline(always)]
fn write(producer: &mut Producer<u64>, record: u64) {
    let place = producer.reserve(8).expect("a batch needs little overdraft").cast::<u64>();
    // SAFETY: 8 bytes were reserved, 8-byte aligned because all records are 8 bytes.
    unsafe { place.write(record) };
    producer.advance(8);
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).sum()
}

/// Consumes until the event `LAST`.
fn drain(mut consumer: Consumer<u64>) -> u64 {
    let mut total = 0;
    loop {
        match consumer.next() {
            Next::Slot { slot: Slot::Event(LAST), .. } | Next::End { .. } => return total,
            Next::Slot { slot: Slot::Buffer(buffer), .. } => total += sum(buffer.as_slice()),
            Next::Slot { slot: Slot::Event(_), .. } | Next::Priority(_) => {}
            Next::Empty => thread::yield_now(),
        }
    }
}

fn hand_over(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hand_over");
    group.throughput(Throughput::Elements(1));
    for (name, flush_each) in [("buffer_of_one_u64", true), ("u64_in_full_buffers", false)] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let (mut producer, consumer) = lane(32 << 10, 16);
                let consuming = thread::spawn(move || drain(consumer));
                let start = Instant::now();
                for record in 0..iterations {
                    if flush_each || record % BATCH == 0 {
                        wait_until_ready(&mut producer);
                    }
                    write(&mut producer, record);
                    if flush_each {
                        producer.flush();
                    }
                }
                producer.push_event(LAST);
                black_box(consuming.join().expect("the consumer doesn't panic"));
                start.elapsed()
            });
        });
    }
    group.bench_function("u64_on_one_thread", |bencher| {
        let (mut producer, mut consumer) = lane(32 << 10, 16);
        bencher.iter_custom(|iterations| {
            let start = Instant::now();
            for batch in 0..iterations.div_ceil(BATCH) {
                if !producer.is_ready() {
                    producer.flush();
                    black_box(read_until_event(&mut consumer));
                }
                for record in batch * BATCH..(batch + 1) * BATCH {
                    write(&mut producer, record);
                }
            }
            start.elapsed()
        });
    });
    group.finish();
}

/// There and back over two lanes.
fn hop(criterion: &mut Criterion) {
    criterion.bench_function("hop_round_trip", |bencher| {
        bencher.iter_custom(|iterations| {
            let (mut request, mut requests) = lane(64, 2);
            let (mut reply, mut replies) = lane(64, 2);
            let echoing = thread::spawn(move || {
                while let Some(event) = wait_for_event(&mut requests) {
                    reply.push_event(event);
                }
            });
            let start = Instant::now();
            for event in 0..iterations {
                request.push_event(event);
                assert_eq!(wait_for_event(&mut replies), Some(event));
            }
            let elapsed = start.elapsed();
            request.push_event(LAST);
            echoing.join().expect("the echo doesn't panic");
            elapsed
        });
    });
}

fn wait_for_event(consumer: &mut Consumer<u64>) -> Option<u64> {
    const SPINS: u32 = 2_000;
    let mut spins = 0;
    loop {
        match consumer.next() {
            Next::Slot { slot: Slot::Event(LAST), .. } | Next::End { .. } => return None,
            Next::Slot { slot: Slot::Event(event), .. } => return Some(event),
            Next::Slot { slot: Slot::Buffer(_), .. } | Next::Priority(_) => {}
            Next::Empty if spins < SPINS => {
                spins += 1;
                std::hint::spin_loop();
            }
            Next::Empty => thread::yield_now(),
        }
    }
}

/// From pushing an event behind 64 full buffers until the consumer, which reads all it meets, has it.
fn overtake(criterion: &mut Criterion) {
    const BUFFERS: usize = 64;
    const BYTES: usize = 32 << 10;
    let record = vec![1; BYTES];
    let mut group = criterion.benchmark_group("event_behind_64_full_buffers");
    for (name, is_priority) in [("priority", true), ("in_band", false)] {
        group.bench_function(name, |bencher| {
            let (mut producer, mut consumer) = lane(BYTES, BUFFERS);
            bencher.iter_custom(|iterations| {
                let mut elapsed = Duration::ZERO;
                for _ in 0..iterations {
                    for _ in 0..BUFFERS {
                        wait_until_ready(&mut producer);
                        producer.write(&record).expect("a free segment needs no overdraft");
                    }
                    producer.flush();
                    let start = Instant::now();
                    if is_priority {
                        producer.push_priority(LAST);
                    } else {
                        producer.push_event(LAST);
                    }
                    black_box(read_until_event(&mut consumer));
                    elapsed += start.elapsed();
                    while !matches!(consumer.next(), Next::Empty) {}
                }
                elapsed
            });
        });
    }
    group.finish();
}

fn read_until_event(consumer: &mut Consumer<u64>) -> u64 {
    let mut total = 0;
    loop {
        match consumer.next() {
            Next::Slot { slot: Slot::Buffer(buffer), .. } => total += sum(buffer.as_slice()),
            Next::Slot { slot: Slot::Event(_), .. } | Next::End { .. } | Next::Empty => {
                return total;
            }
            Next::Priority(barrier) => {
                // What a snapshot does with the overtaken: one more reference to each.
                let mut overtaken = 0;
                consumer.share(0..barrier.position, |_, slot| {
                    overtaken += u64::from(matches!(black_box(slot), Slot::Buffer(_)));
                });
                return overtaken;
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = hand_over, hop, overtake
}
criterion_main!(benches);
