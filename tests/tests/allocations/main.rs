//! Records of a job that is under way cost no allocation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::config::{Config, Origin};
use tidegate::{Job, sink, source};

mod counting;

use counting::{Counting, allocations};

#[global_allocator]
static COUNTING: Counting = Counting;

/// What the worker had allocated at the first and after the last record that is looked at.
#[derive(Default)]
struct Marks([AtomicU64; 2]);

impl Marks {
    fn allocated(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed) - self.0[0].load(Ordering::Relaxed)
    }
}

/// Runs a job on one worker: both ends of its exchange, and whatever the engine does between two records, are on that thread.
/// `allocates` is a box for each record.
fn run(allocates: bool) -> u64 {
    const WARM: u64 = 1_000_000;
    const LOOKED_AT: u64 = 1_000_000;
    let mut config = Config::default();
    config.set("taskmanager.slots", "1", Origin::Code).expect("the option exists");
    config.set("parallelism.default", "1", Origin::Code).expect("the option exists");
    let job = Job::with_config("allocations", config);
    let marks = Arc::new(Marks::default());
    let seen = marks.clone();
    let mut records = 0;
    job.source("numbers", source::range(0..WARM + LOOKED_AT + 100_000))
        .map(|n| (n % 10_000, n))
        .filter(|(_, n)| n != u64::MAX)
        .key_by(|(key, _)| key)
        .fold("sums", 0u64, |sum: &mut u64, (_, n)| *sum = sum.wrapping_add(n))
        .inspect(move |_| {
            records += 1;
            if allocates {
                std::hint::black_box(Box::new(records));
            }
            if records == WARM {
                seen.0[0].store(allocations(), Ordering::Relaxed);
            } else if records == WARM + LOOKED_AT {
                seen.0[1].store(allocations(), Ordering::Relaxed);
            }
        })
        .sink("nowhere", sink::discard());
    job.run().expect("the job ends");
    marks.allocated()
}

#[test]
fn a_million_records_across_an_exchange_into_keyed_state_allocate_nothing() {
    assert_eq!(run(false), 0);
}

#[test]
fn an_allocation_for_each_record_is_counted() {
    assert!(run(true) >= 1_000_000);
}
