//! loom models of every race in this crate, and for each memory ordering a control that must fail without it.
//!
//! `RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=target/loom cargo test -p tidegate-netstack --release --lib loom_`
//!
//! A model takes the site to weaken. The test with `None` must pass under all interleavings; each
//! `…_is_needed` weakens one site and must panic under some: a racing cell, a wrong value, a leak or a deadlock.

use crate::{
    buffer::Buffer,
    lane::{Consumer, LaneOptions, Next, Slot, channel},
    parker::{Waker, parker},
    pool::{Pool, PoolOptions},
    ring::ring,
    sync::{Arc, AtomicBool, Ordering::*, Site, thread, weakening},
};
use std::mem::ManuallyDrop;

/// Explores all interleavings.
fn explore(weakened: Option<Site>, model: impl Fn() + Send + Sync + 'static) {
    weakening::set(weakened);
    loom::model(model);
}

/// Explores those with at most three preemptions, for the one model that has too many.
fn explore_bounded(weakened: Option<Site>, model: impl Fn() + Send + Sync + 'static) {
    weakening::set(weakened);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Declares for a model one test that must pass and one for each site that must not.
macro_rules! models {
    ($($model:ident: $passes:ident, [$($site:ident $fails:ident $with:literal),* $(,)?];)*) => {$(
        #[test]
        fn $passes() {
            $model(None);
        }
        $(
            #[test]
            #[should_panic(expected = $with)]
            fn $fails() {
                $model(Some(Site::$site));
            }
        )*
    )*};
}

models! {
    data_slots: loom_data_slots_are_handed_over_and_back, [
        TailStore loom_release_of_tail_is_needed "Causality violation",
        TailLoad loom_acquire_of_tail_is_needed "Causality violation",
        HeadStore loom_release_of_head_is_needed "Causality violation",
        HeadLoad loom_acquire_of_head_is_needed "Causality violation",
    ];
    priority_slots: loom_priority_slots_are_handed_over_and_back, [
        PriorityTailStore loom_release_of_priority_tail_is_needed "Causality violation",
        PriorityTailLoad loom_acquire_of_priority_tail_is_needed "Causality violation",
        PriorityHeadStore loom_release_of_priority_head_is_needed "Causality violation",
        PriorityHeadLoad loom_acquire_of_priority_head_is_needed "Causality violation",
    ];
    consumer_leaves: loom_a_consumer_leaves_its_side_to_the_producer, [
        ConsumerGoneStore loom_release_of_consumer_gone_is_needed "Causality violation",
        ConsumerGoneLoad loom_acquire_of_consumer_gone_is_needed "Causality violation",
    ];
    producer_leaves: loom_all_of_a_gone_producer_is_visible, [
        ProducerGoneStore loom_release_of_producer_gone_is_needed "what it pushed is visible",
        ProducerGoneLoad loom_acquire_of_producer_gone_is_needed "what it pushed is visible",
    ];
    lane_consumer_leaves: loom_no_segment_stays_with_a_consumer_that_left, [];
    cut: loom_a_priority_entry_cuts_exactly, [
        TailBeforePriorityTail loom_tail_before_priority_tail_is_needed "data behind the barrier came first",
        TailStore loom_release_of_tail_is_needed_for_a_cut "Causality violation",
        PriorityTailLoad loom_acquire_of_priority_tail_is_needed_for_a_cut "Causality violation",
    ];
    end_notice: loom_the_end_is_known_before_it_is_met, [
        TailBeforePriorityTail loom_tail_before_priority_tail_is_needed_for_the_notice "the notice came first",
    ];
    following: loom_a_consumer_that_captures_takes_what_it_has_captured, [
        TakenWereSeen loom_taking_only_what_was_seen_is_needed "taken before it was captured",
    ];
    recycling: loom_a_segment_is_reused_after_its_last_reader, [
        RefsRelease loom_release_of_a_reference_is_needed "Causality violation",
        RefsAcquire loom_acquire_of_the_last_reference_is_needed "Causality violation",
        ReturnedPush loom_release_of_a_returned_segment_is_needed "Causality violation",
        ReturnedTake loom_acquire_of_returned_segments_is_needed "Causality violation",
    ];
    pool_leaves: loom_a_pool_may_go_while_its_segments_come_home, [
        ReturnedClose loom_acquire_of_the_last_returned_segments_is_needed "leaked",
    ];
    parking: loom_no_wake_up_of_a_consumer_is_lost, [
        WakeFence loom_fence_of_a_waker_is_needed "deadlock",
        ParkFence loom_fence_of_a_parker_is_needed "deadlock",
    ];
    waiting: loom_no_wake_up_of_a_producer_is_lost, [
        NotifyFence loom_fence_of_a_notifier_is_needed "deadlock",
        DeclareFence loom_fence_of_a_declaration_is_needed "deadlock",
    ];
}

fn data_slots(weakened: Option<Site>) {
    explore(weakened, || {
        let (mut producer, mut consumer) = ring::<u64, u64>(1, 1);
        let pushing = thread::spawn(move || {
            producer.push(1).expect("the ring is empty");
            let is_full = producer.push(2).is_err();
            (producer, is_full)
        });
        let mut seen = Vec::new();
        for _ in 0..2 {
            consumer.refresh();
            seen.extend(consumer.pop());
        }
        let (mut producer, mut is_full) = pushing.join().expect("no panic");
        while seen.len() < 2 {
            is_full = is_full && producer.push(2).is_err();
            consumer.refresh();
            seen.extend(consumer.pop());
        }
        assert_eq!(seen, [1, 2]);
    });
}

fn priority_slots(weakened: Option<Site>) {
    explore(weakened, || {
        let (mut producer, mut consumer) = ring::<u64, u64>(1, 1);
        let pushing = thread::spawn(move || {
            producer.push_priority(1).expect("the priority side is empty");
            let is_full = producer.push_priority(2).is_err();
            (producer, is_full)
        });
        let mut seen = Vec::new();
        for _ in 0..2 {
            consumer.refresh();
            seen.extend(consumer.pop_priority());
        }
        let (mut producer, mut is_full) = pushing.join().expect("no panic");
        while seen.len() < 2 {
            is_full = is_full && producer.push_priority(2).is_err();
            consumer.refresh();
            seen.extend(consumer.pop_priority());
        }
        assert_eq!(seen, [1, 2]);
    });
}

/// The values are `Arc`s, so that loom reports one that is lost or dropped twice.
fn consumer_leaves(weakened: Option<Site>) {
    explore(weakened, || {
        let (mut producer, mut consumer) = ring::<Arc<u64>, u64>(2, 1);
        let taking = thread::spawn(move || {
            consumer.refresh();
            drop(consumer.pop());
        });
        producer.push(Arc::new(1)).expect("the ring is empty");
        producer.push(Arc::new(2)).expect("the ring has room");
        producer.take_over();
        if producer.is_closed() {
            producer.push(Arc::new(3)).expect("a ring without consumer takes everything");
        }
        taking.join().expect("no panic");
    });
}

fn producer_leaves(weakened: Option<Site>) {
    explore(weakened, || {
        let (mut producer, mut consumer) = ring::<u64, u64>(1, 1);
        let pushing = thread::spawn(move || producer.push(1).expect("the ring is empty"));
        if consumer.is_closed() {
            consumer.refresh();
            assert_eq!(consumer.pop(), Some(1), "what it pushed is visible");
        }
        pushing.join().expect("no panic");
    });
}

fn small_lane() -> LaneOptions {
    LaneOptions {
        pool: PoolOptions { segment_bytes: 8, segments: 1, emission_bytes_max: 0 },
        events_max: 4,
        priority_max: 1,
        producer: Waker::noop(),
        consumer: Waker::noop(),
    }
}

/// The only segment is pushed while the consumer goes: one of the two must release it.
fn lane_consumer_leaves(weakened: Option<Site>) {
    explore(weakened, || {
        let (mut producer, consumer) = channel::<u64>(small_lane());
        producer.write(&[1]).expect("a segment is free");
        let leaving = thread::spawn(move || drop(consumer));
        producer.flush();
        leaving.join().expect("no panic");
        assert!(producer.is_ready());
    });
}

const BARRIER: u64 = 7;
const NOTICE: u64 = 8;
const END: u64 = 9;

/// Takes up to `steps` entries; at the barrier the cut is what was taken and what was overtaken.
fn take(consumer: &mut Consumer<u64>, steps: usize, seen: &mut Vec<u64>, cut: &mut Vec<u64>) {
    for _ in 0..steps {
        match consumer.next() {
            Next::Priority(barrier) => {
                assert_eq!((barrier.event, barrier.position), (BARRIER, 2));
                cut.clone_from(seen);
                consumer.peek_until(barrier.position, |_, slot| cut.push(event(slot)));
                assert_eq!(*cut, [1, 2], "the cut is what was pushed before the barrier");
            }
            Next::Slot { slot, .. } => seen.push(event(&slot)),
            Next::End { .. } => unreachable!("the lane isn't ended"),
            Next::Empty => thread::yield_now(),
        }
        assert!(!seen.contains(&3) || !cut.is_empty(), "data behind the barrier came first");
    }
}

fn event(slot: &Slot<u64>) -> u64 {
    match slot {
        Slot::Event(event) => *event,
        Slot::Buffer(_) => unreachable!("no records were written"),
    }
}

fn cut(weakened: Option<Site>) {
    explore(weakened, || {
        let (mut producer, mut consumer) = channel::<u64>(small_lane());
        let pushing = thread::spawn(move || {
            producer.push_event(1);
            producer.push_event(2);
            producer.push_priority(BARRIER);
            producer.push_event(3);
        });
        let (mut seen, mut cut) = (Vec::new(), Vec::new());
        take(&mut consumer, 3, &mut seen, &mut cut);
        pushing.join().expect("no panic");
        take(&mut consumer, 5, &mut seen, &mut cut);
        assert_eq!((seen, cut), (vec![1, 2, 3], vec![1, 2]));
    });
}

/// A trigger comes to the consumer while the end is being pushed: once the consumer knows the end's position it
/// cuts right before it, and it never meets an end that it wasn't told of.
fn end_notice(weakened: Option<Site>) {
    explore(weakened, || {
        let (mut producer, mut consumer) = channel::<u64>(small_lane());
        let is_triggered = Arc::new(AtomicBool::new(false));
        let trigger = {
            let is_triggered = Arc::clone(&is_triggered);
            thread::spawn(move || is_triggered.store(true, Release))
        };
        let pushing = thread::spawn(move || {
            producer.push_event(1);
            assert_eq!(producer.finish(NOTICE, END), 1);
        });
        let (mut seen, mut end, mut cut, mut is_over) = (Vec::new(), None, None, false);
        let mut step = || {
            match consumer.next() {
                Next::Priority(notice) => {
                    assert_eq!(notice.event, NOTICE);
                    end = Some(notice.position);
                }
                Next::Slot { slot, .. } => seen.push(event(&slot)),
                Next::End { position, event } => {
                    assert_eq!((event, end), (END, Some(position)), "the notice came first");
                    is_over = true;
                }
                Next::Empty => thread::yield_now(),
            }
            if let (Some(end), None, true) = (end, &cut, is_triggered.load(Acquire)) {
                let mut taken_and_overtaken = seen.clone();
                consumer.peek_until(end, |_, slot| taken_and_overtaken.push(event(slot)));
                cut = Some(taken_and_overtaken);
            }
        };
        step();
        step();
        trigger.join().expect("no panic");
        pushing.join().expect("no panic");
        (0..3).for_each(|_| step());
        assert!(is_over);
        assert_eq!((seen, cut), (vec![1], Some(vec![1])));
    });
}

/// A consumer follows a producer whose barrier it awaits: it captures all it sees, then takes an entry.
fn following(weakened: Option<Site>) {
    explore(weakened, || {
        let (mut producer, mut consumer) = channel::<u64>(small_lane());
        let pushing = thread::spawn(move || {
            producer.push_event(1);
            producer.push_event(2);
        });
        let (mut captured, mut captured_to) = (Vec::new(), 0);
        let mut step = || {
            let tail = consumer.refresh_tail();
            consumer.peek_until(tail, |position, slot| {
                if position >= captured_to {
                    captured.push(event(slot));
                }
            });
            captured_to = tail;
            match consumer.next_seen() {
                Next::Slot { slot, .. } => {
                    assert!(captured.contains(&event(&slot)), "taken before it was captured");
                }
                Next::Empty => thread::yield_now(),
                Next::Priority(_) | Next::End { .. } => unreachable!("neither was pushed"),
            }
        };
        step();
        step();
        pushing.join().expect("no panic");
        step();
        step();
        assert_eq!(captured, [1, 2]);
    });
}

/// EP-18: a producer comes to its end while its consumer learns of a checkpoint. Whoever learns first sees to the
/// channel's barrier: the producer in band, with a notice that says so, or the consumer right before the end.
#[test]
fn ep_18_loom_one_barrier_a_channel_before_its_end_and_no_wake_up_lost() {
    explore(None, || {
        let (mut producer, mut consumer) = channel::<u64>(small_lane());
        let is_triggered = Arc::new(AtomicBool::new(false));
        let [by_producer, by_trigger] = [Arc::clone(&is_triggered), Arc::clone(&is_triggered)];
        let trigger = thread::spawn(move || by_trigger.store(true, Release));
        let pushing = thread::spawn(move || {
            producer.push_event(1);
            let takes_part = by_producer.load(Acquire);
            if takes_part {
                producer.push_event(BARRIER);
            }
            producer.finish(NOTICE + u64::from(takes_part) * SENT, END);
            takes_part
        });
        let mut channel = Ending::default();
        channel.step(&mut consumer, &is_triggered);
        channel.step(&mut consumer, &is_triggered);
        trigger.join().expect("no panic");
        let takes_part = pushing.join().expect("no panic");
        (0..4).for_each(|_| channel.step(&mut consumer, &is_triggered));
        assert!(channel.is_over);
        let is_owed = takes_part || channel.is_known_before_end;
        assert_eq!(
            channel.delivered,
            [&[1][..], &[BARRIER][..usize::from(is_owed)], &[END]].concat()
        );
    });
    explore(None, || {
        let (parker, waker) = parker();
        let (mut producer, consumer) =
            channel::<u64>(LaneOptions { consumer: waker, ..small_lane() });
        let mut ends = ManuallyDrop::new((parker, consumer));
        let taking = thread::spawn(move || {
            let (parker, consumer) = &mut *ends;
            let (mut is_told, mut is_over) = (false, false);
            while !is_over {
                match consumer.next() {
                    Next::Priority(_) => is_told = true,
                    Next::End { .. } => is_over = true,
                    Next::Slot { .. } => unreachable!("nothing else was pushed"),
                    Next::Empty => parker.park(None, || consumer.backlog() > 0),
                }
            }
            assert!(is_told, "the notice came first");
            drop(ManuallyDrop::into_inner(ends));
        });
        producer.finish(NOTICE, END);
        let producer = ManuallyDrop::new(producer);
        taking.join().expect("no panic");
        drop(ManuallyDrop::into_inner(producer));
    });
}

/// What a notice has more if the producer sent the barrier itself.
const SENT: u64 = 100;

/// A consumer that puts the barrier right before an end that it knows of.
#[derive(Default)]
struct Ending {
    delivered: Vec<u64>,
    /// The notice has come: the producer's end stands in the ring.
    is_noticed: bool,
    /// The producer has sent the barrier.
    is_sent: bool,
    is_known_before_end: bool,
    is_over: bool,
}

impl Ending {
    fn step(&mut self, consumer: &mut Consumer<u64>, is_triggered: &AtomicBool) {
        // As a task does: the trigger is in its mailbox, which it looks into before it reads.
        self.is_known_before_end |= !self.is_over && is_triggered.load(Acquire);
        match consumer.next() {
            Next::Priority(notice) => {
                self.is_noticed = true;
                self.is_sent = notice.event == NOTICE + SENT;
            }
            Next::Slot { slot, .. } => self.delivered.push(event(&slot)),
            Next::End { event, .. } => {
                assert!(self.is_noticed, "the notice came first");
                if self.is_known_before_end && !self.is_sent {
                    self.delivered.push(BARRIER);
                }
                self.delivered.push(event);
                self.is_over = true;
            }
            Next::Empty => thread::yield_now(),
        }
    }
}

fn pool(segments: usize, owner: Waker) -> Pool {
    Pool::new(PoolOptions { segment_bytes: 8, segments, emission_bytes_max: 0 }, owner)
}

fn fill(pool: &mut Pool, byte: u8) -> Buffer {
    let mut builder = pool.take(1).expect("a segment is free");
    builder.unfilled_mut()[0] = byte;
    builder.advance(1);
    builder.seal(u64::from(byte)).expect("it isn't empty")
}

/// Two readers, say a task and the writer of a snapshot, and the owner that waits for the segment.
fn recycling(weakened: Option<Site>) {
    explore(weakened, || {
        let mut pool = pool(1, Waker::noop());
        let mut first = fill(&mut pool, 5);
        let second = first.share();
        let readers = [first, second].map(|buffer| {
            thread::spawn(move || assert_eq!((buffer.as_slice(), buffer.number()), (&[5][..], 5)))
        });
        if pool.is_available() {
            assert_eq!(fill(&mut pool, 6).as_slice(), [6]);
        }
        for reader in readers {
            reader.join().expect("no panic");
        }
        assert!(pool.is_available());
    });
}

/// loom reports a share of the pool's memory that is dropped twice or never.
fn pool_leaves(weakened: Option<Site>) {
    explore_bounded(weakened, || {
        let mut pool = pool(2, Waker::noop());
        let buffers = [fill(&mut pool, 1), fill(&mut pool, 2)];
        let readers = buffers.map(|buffer| thread::spawn(move || drop(buffer)));
        drop(pool);
        for reader in readers {
            reader.join().expect("no panic");
        }
    });
}

/// A lost wake-up is a deadlock, which loom reports. The sleeper has a thread of its own that waits for nothing
/// else, because loom takes any `unpark` for the end of any wait.
fn parking(weakened: Option<Site>) {
    explore(weakened, || {
        let (parker, waker) = parker();
        let (mut producer, consumer) =
            channel::<u64>(LaneOptions { consumer: waker, ..small_lane() });
        // Not dropped while loom unwinds a deadlock: its atomics are gone then.
        let mut ends = ManuallyDrop::new((parker, consumer));
        let taking = thread::spawn(move || {
            let (parker, consumer) = &mut *ends;
            while matches!(consumer.next(), Next::Empty) {
                parker.park(None, || consumer.backlog() > 0);
            }
            drop(ManuallyDrop::into_inner(ends));
        });
        producer.push_event(1);
        // Neither is the producer, nor before the other has seen the event: its drop wakes as well.
        let producer = ManuallyDrop::new(producer);
        taking.join().expect("no panic");
        drop(ManuallyDrop::into_inner(producer));
    });
}

fn waiting(weakened: Option<Site>) {
    explore(weakened, || {
        let (parker, waker) = parker();
        let mut pool = pool(1, waker);
        let buffer = fill(&mut pool, 1);
        let mut ends = ManuallyDrop::new((parker, pool));
        let waiting = thread::spawn(move || {
            let (parker, pool) = &mut *ends;
            let mut is_available = false;
            while !is_available {
                parker.park(None, || {
                    is_available = pool.is_available();
                    is_available
                });
            }
            drop(ManuallyDrop::into_inner(ends));
        });
        drop(buffer);
        waiting.join().expect("no panic");
    });
}
