//! Between two threads a lane allocates nothing once it is warm, however many records cross it.
#![expect(unsafe_code, reason = "a global allocator that counts")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};
use tidegate_netstack::{
    lane::{LaneOptions, Next, Slot, channel},
    parker::parker,
    pool::PoolOptions,
};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and the memory came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_million_records_cross_a_lane_without_an_allocation() {
    const WARM_UP: u64 = 50_000;
    const RECORDS: u64 = 1_000_000;
    let (producing, wake_producer) = parker();
    let (consuming, wake_consumer) = parker();
    let (mut producer, mut consumer) = channel::<u64>(LaneOptions {
        pool: PoolOptions { segment_bytes: 4096, segments: 4, ..PoolOptions::default() },
        producer: wake_producer,
        consumer: wake_consumer,
        ..LaneOptions::default()
    });
    let thread = thread::spawn(move || {
        let mut before = 0;
        for record in 0..WARM_UP + RECORDS {
            if record == WARM_UP {
                before = ALLOCATIONS.load(Relaxed);
            }
            while !producer.is_ready() {
                producer.flush();
                producing.park(None, || producer.is_ready());
            }
            producer.write(&record.to_le_bytes()).expect("no overdraft is needed");
            if record % 1024 == 0 {
                producer.try_push_event(record);
                producer.push_priority(record);
            }
        }
        producer.flush();
        (producer, before)
    });
    let mut expected = 0;
    while expected < WARM_UP + RECORDS {
        match consumer.next() {
            Next::Slot { slot: Slot::Buffer(buffer), .. } => {
                for record in buffer.as_slice().chunks_exact(8) {
                    assert_eq!(record, expected.to_le_bytes());
                    expected += 1;
                }
            }
            Next::Slot { slot: Slot::Event(_), .. } | Next::Priority(_) => {}
            Next::End { .. } => unreachable!("the lane isn't ended"),
            Next::Empty => consuming.park(None, || consumer.backlog() > 0),
        }
    }
    let after = ALLOCATIONS.load(Relaxed);
    let (mut producer, before) = thread.join().expect("no panic");
    assert!(before > 0, "what was allocated at the start was counted");
    // Joining and the count itself come after the last record.
    assert_eq!(after - before, 0);
    assert!(producer.is_ready());
}
