//! What a lane promises, on one thread where the order matters and on two where the race does.

use super::*;
use crate::parker::{Parker, parker};
use std::{collections::VecDeque, thread};

const BARRIER: u32 = 1000;

fn options(segments: usize) -> LaneOptions {
    LaneOptions {
        pool: PoolOptions { segment_bytes: 64, segments, emission_bytes_max: 64 * 64 },
        events_max: 2,
        priority_max: 1,
        ..LaneOptions::default()
    }
}

/// A lane's next entry, in a form that compares well.
#[derive(Debug, PartialEq)]
enum Seen {
    Records(u64, Vec<u8>),
    Event(u64, u32),
    Priority(u32, u64),
    End(u64, u32),
}

fn next(consumer: &mut Consumer<u32>) -> Option<Seen> {
    Some(match consumer.next() {
        Next::Priority(Priority { event, position }) => Seen::Priority(event, position),
        Next::Slot { position, slot: Slot::Event(event) } => Seen::Event(position, event),
        Next::Slot { position, slot: Slot::Buffer(buffer) } => {
            assert_eq!(buffer.number(), position);
            Seen::Records(position, buffer.as_slice().to_vec())
        }
        Next::End { position, event } => Seen::End(position, event),
        Next::Empty => return None,
    })
}

fn all(consumer: &mut Consumer<u32>) -> Vec<Seen> {
    std::iter::from_fn(|| next(consumer)).collect()
}

fn records(position: u64, bytes: &[u8]) -> Seen {
    Seen::Records(position, bytes.to_vec())
}

#[test]
fn records_and_events_keep_their_order() {
    let (mut producer, mut consumer) = channel(options(4));
    producer.write(b"ab").unwrap();
    producer.write(b"c").unwrap();
    assert!(producer.has_open());
    assert_eq!(next(&mut consumer), None, "an open buffer is not published");
    assert_eq!(producer.push_event(1), 1, "an event publishes the buffer before it");
    assert!(!producer.has_open());
    producer.write(b"d").unwrap();
    producer.flush();
    producer.flush();
    assert_eq!(producer.position(), 3);
    assert_eq!((producer.buffers(), producer.bytes()), (2, 4));
    assert_eq!(consumer.backlog(), 3);
    assert_eq!(all(&mut consumer), [records(0, b"abc"), Seen::Event(1, 1), records(2, b"d")]);
    assert_eq!((consumer.head(), consumer.loaded_tail()), (3, 3));
    assert!(producer.is_idle());
}

#[test]
fn a_record_never_spans_buffers() {
    let (mut producer, mut consumer) = channel(options(4));
    producer.write(&[1; 40]).unwrap();
    producer.write(&[2; 40]).unwrap();
    producer.write(&[3; 24]).unwrap();
    producer.write(&[4; 104]).unwrap();
    producer.write(&[5; 1]).unwrap();
    producer.flush();
    let second = [[2; 40].as_slice(), &[3; 24]].concat();
    let expected =
        [records(0, &[1; 40]), records(1, &second), records(2, &[4; 104]), records(3, &[5])];
    assert_eq!(all(&mut consumer), expected);
    assert!(producer.is_idle());
}

#[test]
fn a_record_is_read_where_it_was_written() {
    let (mut producer, mut consumer) = channel::<u32>(options(2));
    let first = producer.reserve(8).unwrap();
    producer.advance(8);
    let second = producer.reserve(16).unwrap();
    producer.advance(16);
    producer.flush();
    let Next::Slot { slot: Slot::Buffer(buffer), .. } = consumer.next() else { panic!() };
    assert_eq!(buffer.as_slice().as_ptr(), first.as_ptr());
    assert_eq!(buffer.as_slice()[8..].as_ptr(), second.as_ptr());
    assert_eq!(buffer.len(), 24);
}

#[test]
fn no_free_segment_is_back_pressure() {
    let (mut producer, mut consumer) = channel::<u32>(options(2));
    for _ in 0..2 {
        assert!(producer.is_ready());
        producer.write(&[0; 64]).unwrap();
    }
    assert!(!producer.is_ready());
    producer.flush();
    assert!(!producer.is_ready());
    let held = consumer.next();
    assert!(!producer.is_ready(), "taken, but not released");
    drop(held);
    assert!(producer.is_ready());
}

#[test]
fn a_priority_entry_comes_before_the_data_it_overtakes_and_names_its_cut() {
    let (mut producer, mut consumer) = channel(options(4));
    producer.write(b"a").unwrap();
    producer.flush();
    producer.push_event(1);
    producer.write(b"b").unwrap();
    assert_eq!(producer.push_priority(BARRIER), 3);
    producer.write(b"c").unwrap();
    producer.flush();
    assert_eq!(next(&mut consumer), Some(Seen::Priority(BARRIER, 3)));
    for _ in 0..2 {
        let mut overtaken = Vec::new();
        consumer.peek_until(3, |position, slot| {
            overtaken.push(match slot {
                Slot::Buffer(buffer) => records(position, buffer.as_slice()),
                Slot::Event(event) => Seen::Event(position, *event),
            });
        });
        let expected = [records(0, b"a"), Seen::Event(1, 1), records(2, b"b")];
        assert_eq!(overtaken, expected, "peeking takes nothing");
    }
    assert_eq!(all(&mut consumer).len(), 4);
}

#[test]
fn overtaken_buffers_are_lent_to_another_thread_by_reference() {
    let (mut producer, mut consumer) = channel(options(2));
    producer.write(b"a").unwrap();
    let position = producer.push_priority(BARRIER);
    let mut overtaken = Vec::new();
    consumer.share(0..position, |_, slot| {
        if let Slot::Buffer(buffer) = slot {
            overtaken.push(buffer);
        }
    });
    assert_eq!(all(&mut consumer), [Seen::Priority(BARRIER, 1), records(0, b"a")]);
    assert!(!producer.is_idle());
    let bytes = thread::spawn(move || overtaken.pop().unwrap().into_bytes()).join().unwrap();
    assert_eq!(&bytes[..], b"a");
    drop(bytes);
    assert!(producer.is_idle());
}

#[test]
fn only_published_entries_that_were_not_taken_are_shared() {
    let (mut producer, mut consumer) = channel(options(4));
    for event in 0..4 {
        producer.push_event(event);
    }
    assert_eq!(next(&mut consumer), Some(Seen::Event(0, 0)));
    let mut shared = |positions| {
        let mut shared = Vec::new();
        consumer.share(positions, |position, slot| match slot {
            Slot::Event(event) => shared.push((position, event)),
            Slot::Buffer(_) => unreachable!("none was sent"),
        });
        shared
    };
    assert_eq!(shared(0..u64::MAX), [(1, 1), (2, 2), (3, 3)]);
    assert_eq!(shared(2..3), [(2, 2)]);
    assert_eq!(shared(4..9), []);
    assert_eq!(shared(0..1), []);
    assert_eq!(all(&mut consumer).len(), 3);
}

#[test]
fn an_in_band_entry_is_promoted_by_a_priority_entry_with_its_position() {
    let (mut producer, mut consumer) = channel(options(2));
    producer.write(b"a").unwrap();
    let position = producer.push_event(BARRIER);
    producer.write(b"b").unwrap();
    producer.flush();
    producer.push_priority_at(BARRIER, position);
    let expected =
        [Seen::Priority(BARRIER, 1), records(0, b"a"), Seen::Event(1, BARRIER), records(2, b"b")];
    assert_eq!(all(&mut consumer), expected);
}

#[test]
fn the_end_is_announced_and_last() {
    let (mut producer, mut consumer) = channel(options(2));
    producer.write(b"a").unwrap();
    assert_eq!(producer.finish(8, 9), 1);
    assert!(producer.is_finished());
    let expected = [Seen::Priority(8, 1), records(0, b"a"), Seen::End(1, 9)];
    assert_eq!(all(&mut consumer), expected);
}

#[test]
fn p08_what_a_consumer_must_be_told_needs_no_credit() {
    // With every buffer out, a sender that needed one to say so waited for a receiver that waited for its word.
    let (mut producer, mut consumer) = channel(options(2));
    for byte in 0..2 {
        producer.write(&[byte; 64]).unwrap();
        producer.flush();
    }
    assert!(!producer.is_ready(), "no segment is free");
    assert_eq!(producer.push_priority(BARRIER), 2);
    assert_eq!(producer.push_event(7), 2);
    assert_eq!(next(&mut consumer), Some(Seen::Priority(BARRIER, 2)), "told with nothing read");
    assert_eq!(producer.finish(8, 9), 3);
    assert_eq!(next(&mut consumer), Some(Seen::Priority(8, 3)));
    let rest = [records(0, &[0; 64]), records(1, &[1; 64]), Seen::Event(2, 7), Seen::End(3, 9)];
    assert_eq!(all(&mut consumer), rest);
}

#[test]
fn nothing_follows_the_end() {
    type Push = fn(&mut Producer<u32>);
    let pushes: [Push; 5] = [
        |producer| _ = producer.write(b"a"),
        |producer| _ = producer.push_event(1),
        |producer| _ = producer.push_priority(1),
        |producer| producer.push_priority_at(1, 0),
        |producer| _ = producer.finish(1, 1),
    ];
    for push in pushes {
        let (mut producer, mut consumer) = channel(options(2));
        producer.finish(8, 9);
        let pushing = std::panic::AssertUnwindSafe(|| push(&mut producer));
        assert!(std::panic::catch_unwind(pushing).is_err());
        assert_eq!(all(&mut consumer), [Seen::Priority(8, 0), Seen::End(0, 9)]);
    }
}

#[test]
fn the_end_is_not_lent() {
    let (mut producer, mut consumer) = channel(options(2));
    producer.push_event(1);
    producer.finish(8, 9);
    let mut positions = Vec::new();
    consumer.peek_until(2, |position, _| positions.push(position));
    assert_eq!(positions, [0]);
}

#[test]
fn droppable_events_are_refused_when_enough_are_queued() {
    let (mut producer, mut consumer) = channel(options(2));
    assert_eq!(producer.free_event_slots(), 2);
    assert_eq!(producer.try_push_event(1), Some(0));
    assert_eq!(producer.try_push_event(2), Some(1));
    assert_eq!(producer.try_push_event(3), None);
    assert_eq!(producer.push_event(4), 2, "one that can't be dropped goes in all the same");
    assert_eq!(producer.free_event_slots(), 0);
    next(&mut consumer);
    next(&mut consumer);
    assert_eq!(producer.free_event_slots(), 1);
    assert_eq!(producer.try_push_event(5), Some(3));
    assert_eq!(all(&mut consumer), [Seen::Event(2, 4), Seen::Event(3, 5)]);
}

#[test]
fn what_has_no_room_waits_in_order_and_makes_the_lane_not_ready() {
    let (mut producer, mut consumer) = channel(options(1));
    for byte in 0..20 {
        producer.write(&[byte; 64]).unwrap();
    }
    producer.flush();
    assert!(producer.backlog() > 0 && !producer.is_ready());
    let cut = producer.push_priority(BARRIER);
    assert_eq!((cut, producer.position()), (20, 20));
    assert_eq!(producer.push_event(7), 20);
    let mut expected = VecDeque::from_iter((0..20).map(|byte| records(byte, &[byte as u8; 64])));
    expected.push_back(Seen::Event(20, 7));
    let mut has_cut = false;
    while let Some(seen) = next(&mut consumer) {
        if seen == Seen::Priority(BARRIER, cut) {
            let mut overtaken = consumer.head();
            consumer.peek_until(cut, |position, _| {
                assert_eq!(position, overtaken);
                overtaken += 1;
            });
            assert_eq!(overtaken, cut, "all before the cut is published when it comes");
            has_cut = true;
        } else {
            assert_eq!(Some(seen), expected.pop_front());
        }
        producer.is_ready();
    }
    assert!(has_cut && expected.is_empty());
    assert!(producer.is_ready() && producer.is_idle());
    assert_eq!(producer.backlog(), 0);
}

#[test]
fn priority_entries_beyond_the_room_wait_in_order() {
    let (mut producer, mut consumer) = channel(options(1));
    for event in 0..9 {
        producer.push_priority(event);
    }
    producer.push_priority_at(9, 0);
    assert!(!producer.is_ready());
    let mut seen = Vec::new();
    while let Some(Priority { event, .. }) = consumer.poll_priority() {
        seen.push(event);
        producer.is_ready();
    }
    assert_eq!(seen, Vec::from_iter(0..10));
    assert!(producer.is_ready());
}

#[test]
fn a_promotion_does_not_wait_for_later_cuts() {
    let (mut producer, mut consumer) = channel(options(1));
    let position = producer.push_event(BARRIER);
    for byte in 0..20 {
        producer.write(&[byte; 64]).unwrap();
    }
    producer.push_priority(BARRIER + 1);
    assert_eq!(next(&mut consumer), Some(Seen::Event(0, BARRIER)), "the later cut waits");
    producer.push_priority_at(BARRIER, position);
    assert_eq!(next(&mut consumer), Some(Seen::Priority(BARRIER, 0)));
}

#[test]
fn an_emission_has_a_limit() {
    let (mut producer, _consumer) = channel::<u32>(options(2));
    let error = (0..1000).find_map(|_| producer.write(&[0; 64]).err()).expect("it has a limit");
    assert_eq!(error.limit, 64 * 64);
    assert_eq!(producer.overdraft_bytes(), 64 * 64);
}

#[test]
fn a_gone_consumer_makes_pushes_harmless_and_the_lane_ready() {
    let (mut producer, consumer) = channel::<u32>(options(2));
    producer.write(&[0; 64]).unwrap();
    producer.write(&[0; 64]).unwrap();
    producer.flush();
    assert!(!producer.is_ready() && !producer.is_closed());
    drop(consumer);
    assert!(producer.is_closed());
    for _ in 0..100 {
        assert!(producer.is_ready());
        producer.write(&[0; 64]).unwrap();
        producer.push_event(1);
        producer.push_priority(1);
    }
    producer.finish(8, 9);
    assert!(producer.is_idle());
}

#[test]
fn a_gone_producer_leaves_what_it_published() {
    let (mut producer, mut consumer) = channel(options(2));
    producer.write(b"a").unwrap();
    producer.flush();
    producer.write(b"lost").unwrap();
    drop(producer);
    assert!(consumer.is_closed());
    assert_eq!(all(&mut consumer), [records(0, b"a")]);
}

/// What was written, in order: a record by its number, an event by its number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Written {
    Record(u32),
    Event(u32),
}

fn append(seen: &mut Vec<Written>, slot: &Slot<u32>) {
    match slot {
        Slot::Event(event) => seen.push(Written::Event(*event)),
        Slot::Buffer(buffer) => {
            // A record is its number, repeated.
            let words =
                buffer.as_slice().as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
            let mut numbers = Vec::from_iter(words);
            numbers.dedup();
            seen.extend(numbers.into_iter().map(Written::Record));
        }
    }
}

/// Random steps of both ends, with readers that hold on to buffers, far into the backlog and back.
#[test]
fn random_steps_keep_the_order_and_every_cut_exact() {
    for seed in 1..=200_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        let (mut producer, mut consumer) = channel::<u32>(options(1 + seed as usize % 3));
        let (mut written, mut seen, mut cuts) = (Vec::new(), Vec::new(), VecDeque::new());
        let mut held = VecDeque::new();
        let (mut is_ended, pace) = (false, random(8));
        for step in 0..2_000_u32 {
            let is_last = step >= 500;
            match if is_last { 7 } else { random(8 + pace) } {
                0 | 1 => {
                    let bytes = step.to_le_bytes().repeat(1 + random(30) as usize);
                    if producer.overdraft_bytes() < 32 * 64 {
                        producer.write(&bytes).unwrap();
                        written.push(Written::Record(step));
                    }
                }
                2 => producer.flush(),
                3 => {
                    producer.push_event(step);
                    written.push(Written::Event(step));
                }
                4 if producer.try_push_event(step).is_some() => {
                    written.push(Written::Event(step));
                }
                5 => {
                    producer.push_priority(step);
                    cuts.push_back((step, written.clone()));
                }
                6 => drop(held.pop_front()),
                _ => {
                    if is_last && !producer.is_finished() {
                        producer.finish(u32::MAX, 0);
                        cuts.push_back((u32::MAX, written.clone()));
                    }
                    if is_last || random(2) == 0 {
                        producer.is_ready();
                    }
                    match consumer.next() {
                        Next::Priority(Priority { event, position }) => {
                            let mut cut = seen.clone();
                            consumer.peek_until(position, |_, slot| append(&mut cut, slot));
                            assert_eq!(Some((event, cut)), cuts.pop_front(), "seed {seed}");
                        }
                        Next::Slot { slot, .. } => {
                            append(&mut seen, &slot);
                            held.push_back(slot);
                            held.truncate(random(4) as usize);
                        }
                        Next::End { .. } => is_ended = true,
                        Next::Empty => {}
                    }
                }
            }
            // No entry behind a cut comes before its priority entry.
            assert!(cuts.front().is_none_or(|(_, cut)| seen.len() <= cut.len()), "seed {seed}");
        }
        held.clear();
        assert!(is_ended && cuts.is_empty(), "seed {seed}");
        assert_eq!(seen, written, "seed {seed}");
        assert!(producer.is_ready() && producer.is_idle(), "seed {seed}");
    }
}

/// Both threads park whenever they can't go on, so this also shows that no wake-up is missing, on one core too.
#[test]
fn two_threads_hand_over_all_records_in_order() {
    const RECORDS: u64 = 200_000;
    let (producing, wake_producer) = parker();
    let (consuming, wake_consumer) = parker();
    let (mut producer, mut consumer) = channel::<u32>(LaneOptions {
        producer: wake_producer,
        consumer: wake_consumer,
        ..options(2)
    });
    let thread = thread::spawn(move || {
        for record in 0..RECORDS {
            wait_until_ready(&producing, &mut producer);
            producer.write(&record.to_le_bytes()).unwrap();
            if record % 1000 == 0 {
                producer.push_event(record as u32);
            }
            if record % 5000 == 0 {
                producer.push_priority(BARRIER);
            }
        }
        producer.finish(8, 9);
        while producer.backlog() > 0 {
            wait_until_ready(&producing, &mut producer);
        }
    });
    let (mut expected, mut events, mut barriers) = (0, 0, 0);
    loop {
        match consumer.next() {
            Next::Priority(Priority { event: BARRIER, position }) => {
                barriers += 1;
                let mut overtaken = consumer.head().min(position);
                consumer.peek_until(position, |_, _| overtaken += 1);
                assert_eq!(overtaken, position);
            }
            Next::Priority(notice) => assert_eq!(notice.event, 8),
            Next::Slot { slot: Slot::Event(_), .. } => events += 1,
            Next::Slot { slot: Slot::Buffer(buffer), .. } => {
                for record in buffer.as_slice().chunks_exact(8) {
                    assert_eq!(record, u64::to_le_bytes(expected));
                    expected += 1;
                }
            }
            Next::End { .. } => break,
            Next::Empty => consuming.park(None, || consumer.backlog() > 0),
        }
    }
    thread.join().unwrap();
    assert_eq!((expected, events, barriers), (RECORDS, 200, 40));
}

fn wait_until_ready(parker: &Parker, producer: &mut Producer<u32>) {
    while !producer.is_ready() {
        producer.flush();
        parker.park(None, || producer.is_ready());
    }
}
