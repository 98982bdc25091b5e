//! A barrier among full buffers: how long until the consumer has it, ahead of them and in band.
//!
//! One lane between two threads. The producer fills it and then sends an event that carries the moment; the consumer
//! reads what it meets, 8 bytes a record into sums of a million keys, which takes it longer than writing takes the
//! producer, as in a job. Each thread has a CPU of its own, if there are two. An event that overtakes names the buffers it has
//! overtaken; a reference to each is taken, as a snapshot does, into memory that was asked for after the one before.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use tidegate::topology::{allowed_cpus, pin};
use tidegate_netstack::buffer::Buffer;
use tidegate_netstack::lane::{Consumer, LaneOptions, Next, Priority, Producer, Slot, channel};
use tidegate_netstack::pool::PoolOptions;

use crate::args::{Args, Command, opt};
use crate::failure::Failure;
use crate::json::Line;
use crate::quantile::Quantiles;

/// The command.
pub const COMMAND: Command = Command {
    name: "overtake",
    about: "how long a barrier takes past full buffers, and in band behind them",
    options: &[
        opt("count", "N", "so many barriers of each sort; 2,000 if not given"),
        opt("buffers", "N", "full buffers in the lane; 64 if not given"),
    ],
};

const SEGMENT_BYTES: usize = 32 << 10;
const KEYS: usize = 1 << 20;
/// A task looks for what has overtaken after each batch, and has at most so many records in one.
const BATCH_RECORDS: usize = 256;
/// Where the consumer keeps pace all the same, the lane is as full as it gets after so many times its length.
const FILLS: usize = 16;

/// What the lane carries besides buffers: when an event was sent, in nanoseconds since the beginning; or the end.
type Sent = u64;
const LAST: Sent = u64::MAX;

/// What the consumer saw.
#[derive(Default)]
struct Seen {
    /// From sending to having.
    arrivals: Vec<Duration>,
    /// Taking the references, and how many.
    references: Vec<Duration>,
    overtaken: usize,
    /// Memory for the next ones.
    room: Vec<Buffer>,
    sums: u64,
}

impl Seen {
    /// Has a barrier, and takes the references.
    fn barrier(
        &mut self,
        barrier: &Priority<Sent>,
        after: Duration,
        consumer: &mut Consumer<Sent>,
    ) {
        self.arrivals.push(after);
        let begun = Instant::now();
        let overtaken = barrier.position - consumer.head();
        let mut references = std::mem::take(&mut self.room);
        references.reserve(overtaken as usize);
        consumer.share(0..barrier.position, |_, slot| {
            if let Slot::Buffer(buffer) = slot {
                references.push(buffer);
            }
        });
        self.references.push(begun.elapsed());
        self.overtaken += references.len();
        self.room = Vec::with_capacity(references.len());
        // Given back when a snapshot has been written.
        drop(black_box(references));
    }
}

/// Runs the command.
///
/// # Errors
/// What is wrong with an option.
pub fn overtake(args: Args) -> Result<(), Failure> {
    let count = args.number("count", 2000)?;
    let buffers = args.number("buffers", 64)?;
    if !(1..=4096).contains(&buffers) {
        return Err(Failure::Usage("--buffers: from 1 to 4096".to_owned()));
    }
    let ahead = run(count, buffers as usize, true);
    let in_band = run(count, buffers as usize, false);
    let (times, behind) =
        (ahead.arrivals.into_iter().collect(), in_band.arrivals.into_iter().collect());
    let (times, behind): (Quantiles, Quantiles) = (times, behind);
    let references: Quantiles = ahead.references.into_iter().collect();
    let ratio = match (times.micros(0.999), behind.micros(0.999)) {
        (Some(ahead), Some(behind)) => Some(behind / ahead.max(1e-3)),
        (None, _) | (_, None) => None,
    };
    let line = Line::new()
        .text("peer", "tidegate")
        .text("workload", COMMAND.name)
        .text("params", &format!("buffers={buffers} bytes={SEGMENT_BYTES}"))
        .raw("barriers", times.count())
        .decimals("us_p50", times.micros(0.5), 2)
        .decimals("us_p99", times.micros(0.99), 2)
        .decimals("us_p999", times.micros(0.999), 2)
        .decimals("in_band_us_p50", behind.micros(0.5), 2)
        .decimals("in_band_us_p999", behind.micros(0.999), 2)
        .decimals("in_band_to_ahead_p999", ratio, 1)
        .decimals("overtaken_mean", Some(ahead.overtaken as f64 / count.max(1) as f64), 1)
        .decimals("references_us_p50", references.micros(0.5), 3)
        .decimals("references_us_p99", references.micros(0.99), 3)
        .raw("sums", ahead.sums ^ in_band.sums);
    println!("{}", line.end());
    Ok(())
}

/// Sends `count` events, each when the lane is full.
fn run(count: u64, buffers: usize, is_priority: bool) -> Seen {
    let pool =
        PoolOptions { segment_bytes: SEGMENT_BYTES, segments: buffers, ..PoolOptions::default() };
    let (mut producer, consumer) = channel(LaneOptions { pool, ..LaneOptions::default() });
    let beginning = Instant::now();
    let cpus = allowed_cpus();
    let consuming = thread::spawn(move || {
        pin(cpus[cpus.len() - 1]);
        consume(consumer, beginning)
    });
    // Where that can't be, the figures are those of threads that move.
    pin(cpus[0]);
    let records: Vec<u8> = (0..SEGMENT_BYTES as u64 / 8).flat_map(u64::to_le_bytes).collect();
    for _ in 0..count {
        // The lane drains a little behind each event, so that it is full again for the next.
        for _ in 0..2 * buffers {
            wait_until_ready(&mut producer);
            producer.write(&records).expect("there is a free segment");
            producer.flush();
        }
        for _ in 0..FILLS * buffers {
            if !producer.is_ready() {
                break;
            }
            producer.write(&records).expect("there is a free segment");
            producer.flush();
        }
        let now = u64::try_from(beginning.elapsed().as_nanos()).unwrap_or(LAST - 1);
        if is_priority {
            producer.push_priority(now);
        } else {
            producer.push_event(now);
        }
    }
    producer.push_event(LAST);
    consuming.join().expect("the consumer doesn't panic")
}

fn wait_until_ready(producer: &mut Producer<Sent>) {
    while !producer.is_ready() {
        thread::yield_now();
    }
}

fn consume(mut consumer: Consumer<Sent>, beginning: Instant) -> Seen {
    let mut seen = Seen::default();
    let (mut table, mut hash) = (vec![0u64; KEYS], 1);
    let since = |sent: Sent| beginning.elapsed().saturating_sub(Duration::from_nanos(sent));
    loop {
        match consumer.next() {
            Next::Slot { slot: Slot::Event(LAST), .. } | Next::End { .. } => break,
            Next::Slot { slot: Slot::Event(sent), .. } => seen.arrivals.push(since(sent)),
            Next::Slot { slot: Slot::Buffer(buffer), .. } => {
                for batch in buffer.as_slice().chunks(BATCH_RECORDS * 8) {
                    read(batch, &mut table, &mut hash);
                    if let Some(barrier) = consumer.poll_priority() {
                        seen.barrier(&barrier, since(barrier.event), &mut consumer);
                    }
                }
            }
            Next::Priority(barrier) => {
                seen.barrier(&barrier, since(barrier.event), &mut consumer);
            }
            Next::Empty => thread::yield_now(),
        }
    }
    seen.sums = table.iter().fold(0, |all, sum| all.wrapping_add(*sum));
    seen
}

/// Adds up the records by the hash of each with those before it.
fn read(bytes: &[u8], table: &mut [u64], hash: &mut u64) {
    for record in bytes.as_chunks::<8>().0 {
        let record = u64::from_le_bytes(*record);
        *hash = (*hash ^ record).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let sum = &mut table[(*hash >> 44) as usize];
        *sum = sum.wrapping_add(record);
    }
}
