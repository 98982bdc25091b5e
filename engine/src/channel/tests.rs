//! What lanes and channels give to a checkpoint, on real lanes: OS, CH and the faults known of them.

use std::time::Duration;

use tidegate_netstack::lane::{Consumer, LaneOptions, Producer, Slot, channel};
use tidegate_netstack::parker::Waker;
use tidegate_netstack::pool::{Pool, PoolOptions};

use super::capture::{CapturedChannel, CapturedSlot, Restores};
use super::event::{Barrier, Event, Position};
use super::input::{InputChannel, Read, Recovered};
use super::options::{Alignment, CheckpointOptions};
use super::partition::{PartitionOptions, ResultPartition};
use crate::clock::{EpochMillis, Timestamp};
use crate::id::CheckpointId;

fn lane() -> (Producer<Event>, Consumer<Event>) {
    let pool = PoolOptions { segment_bytes: 64, segments: 4, emission_bytes_max: 0 };
    channel(LaneOptions { pool, ..LaneOptions::default() })
}

fn barrier(n: u64, options: CheckpointOptions) -> Barrier {
    Barrier { checkpoint: CheckpointId(n), timestamp: Timestamp::ZERO, options }
}

/// Writes one buffer of that many bytes.
fn buffer(producer: &mut Producer<Event>, bytes: usize) {
    producer.write(&vec![bytes as u8; bytes]).expect("a segment is free");
    producer.flush();
}

/// A buffer with memory of its own, as recovered ones are.
fn recovered(bytes: &[u8]) -> (Restores, Slot<Event>) {
    let options = PoolOptions { segment_bytes: 64, segments: 1, emission_bytes_max: 0 };
    let mut builder = Pool::new(options, Waker::noop()).take(bytes.len()).expect("it is free");
    builder.unfilled_mut()[..bytes.len()].copy_from_slice(bytes);
    builder.advance(bytes.len());
    (Restores(1), Slot::Buffer(builder.seal(0).expect("it isn't empty")))
}

/// What was captured: buffers by their bytes, events by their name.
fn shown(captured: &CapturedChannel) -> Vec<String> {
    let show = |slot: &CapturedSlot| match slot {
        CapturedSlot::Buffer { buffer, offset } => format!("{:?}", &buffer.as_slice()[*offset..]),
        CapturedSlot::Copied(bytes) => format!("{bytes:?}"),
        CapturedSlot::Event(event) => format!("{event:?}"),
    };
    captured.slots.iter().map(|(_, slot)| show(slot)).collect()
}

/// Reads a channel to where it is empty; buffers whole.
fn read_all(channel: &mut InputChannel) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        channel.load();
        match channel.read() {
            Read::Buffer => {
                let reading = channel.reading().expect("a buffer is being read");
                seen.push(format!("{:?}", &reading.buffer.as_slice()[reading.offset..]));
                channel.release();
            }
            Read::Event(event) => seen.push(format!("{event:?}")),
            Read::Priority(entry) => seen.push(format!("{:?} at {}", entry.event, entry.position)),
            Read::End => {
                channel.is_ended = true;
                seen.push("end".to_owned());
            }
            Read::Empty | Read::Broken => return seen,
        }
    }
}

#[test]
fn os_01_an_overtaking_barrier_closes_the_open_buffer_and_comes_before_all_of_them() {
    let (mut producer, consumer) = lane();
    buffer(&mut producer, 1);
    buffer(&mut producer, 2);
    producer.push_event(Event::Idle);
    producer.write(&[4; 4]).expect("a segment is free");
    assert!(producer.has_open(), "the last one is not sent yet");
    let overtaking = barrier(1, CheckpointOptions::unaligned());
    let position = producer.push_priority(Event::Barrier(overtaking));
    let mut channel = InputChannel::new(0, 0, Some(consumer), Recovered::default());
    channel.load();
    let entry = channel.poll_priority().expect("it overtakes");
    assert_eq!((entry.event, entry.position), (Event::Barrier(overtaking), position));
    assert!(channel.poll_priority().is_none(), "one barrier is one entry");
    let mut captured = channel.begin_capture();
    channel.capture(channel.read_position().0, position, &mut captured);
    assert_eq!(shown(&captured), ["[1]", "[2, 2]", "Idle", "[4, 4, 4, 4]"]);
    assert_eq!(captured.bytes, 1 + 2 + 4);
    assert_eq!(read_all(&mut channel), shown(&captured), "and all are read as usual");
    channel.make_room();
    let next = channel.begin_capture();
    assert!(next.slots.is_empty() && next.slots.capacity() >= captured.slots.len());
    assert_eq!(channel.begin_capture().slots.capacity(), 0, "it is for one capture");
}

#[test]
fn what_comes_after_a_look_is_left_to_the_next_one() {
    // Or a task would read it between the growth of a capture and the next, and it would be in neither state nor capture.
    let (mut producer, consumer) = lane();
    let mut channel = InputChannel::new(0, 0, Some(consumer), Recovered::default());
    channel.load();
    let mut captured = channel.begin_capture();
    channel.capture(0, channel.loaded().0, &mut captured);
    buffer(&mut producer, 1);
    assert!(matches!(channel.read(), Read::Empty));
    channel.load();
    channel.capture(0, channel.loaded().0, &mut captured);
    assert!(matches!(channel.read(), Read::Buffer));
    assert_eq!(shown(&captured), ["[1]"]);
}

#[test]
fn os_08_an_edge_that_must_not_be_overtaken_sends_every_barrier_in_band_and_forced_aligned() {
    let timeout = Duration::from_millis(5);
    for (options, forced) in [
        (CheckpointOptions::unaligned(), Some(None)),
        (CheckpointOptions::aligned_with_timeout(timeout), Some(Some(timeout))),
        (CheckpointOptions::aligned(), None),
        (CheckpointOptions::savepoint(), None),
    ] {
        let (mut producer, consumer) = lane();
        buffer(&mut producer, 3);
        let limits =
            PartitionOptions { supports_unaligned: false, record_bytes_max: 64, segment_bytes: 64 };
        ResultPartition::new(vec![producer], limits).barrier(barrier(1, options));
        let mut channel = InputChannel::new(0, 0, Some(consumer), Recovered::default());
        channel.load();
        assert!(channel.poll_priority().is_none(), "{options:?} overtakes nothing");
        assert!(matches!(channel.read(), Read::Buffer));
        channel.release();
        let Read::Event(Event::Barrier(sent)) = channel.read() else {
            panic!("the barrier stands behind the buffer")
        };
        let alignment = forced
            .map_or_else(|| options.alignment(), |timeout| Alignment::ForcedAligned { timeout });
        assert_eq!(sent.options.alignment(), alignment);
        assert_eq!(sent.options.original(), options, "the receiver gets the original back");
    }
}

#[test]
fn ch_12_a_checkpoint_during_recovery_takes_what_is_left_of_the_recovered_once() {
    let (mut producer, consumer) = lane();
    buffer(&mut producer, 9);
    producer.push_priority(Event::Barrier(barrier(1, CheckpointOptions::unaligned())));
    let watermark = Event::Watermark(EpochMillis(7));
    let slots = [recovered(&[1, 2, 3]), (Restores(1), Slot::Event(watermark)), recovered(&[4])];
    let slots = Recovered { slots: slots.into(), ..Recovered::default() };
    let mut channel = InputChannel::new(0, 0, Some(consumer), slots);
    // One record of the first is read.
    assert!(matches!(channel.read(), Read::Buffer));
    channel.reading().expect("a buffer is being read").offset = 1;
    assert_eq!(channel.next_recovered(), Some(Restores(1)));
    channel.load();
    let entry = channel.poll_priority().expect("it overtakes the recovered ones too");
    let mut captured = channel.begin_capture();
    channel.capture(channel.read_position().0, entry.position, &mut captured);
    let expected = ["[2, 3]", &format!("{watermark:?}"), "[4]", &format!("{:?}", [9; 9])];
    assert_eq!(shown(&captured), expected);
    let ages: Vec<u32> = captured.slots.iter().map(|(Restores(age), _)| *age).collect();
    assert_eq!(ages, [1, 1, 1, 0], "the recovered ones stay older");
    assert_eq!(read_all(&mut channel), expected);
    assert_eq!(channel.next_recovered(), None);
    // What was read is not taken again.
    let mut next = channel.begin_capture();
    channel.capture(channel.read_position().0, channel.loaded().0, &mut next);
    assert_eq!(shown(&next), [""; 0]);
}

#[test]
fn ft_10_a_channel_without_a_producer_yields_the_recovered_one_watermark_and_both_ends() {
    let slots = Recovered { slots: [recovered(&[5])].into(), ..Recovered::default() };
    let mut channel = InputChannel::new(0, 0, None, slots);
    assert!(channel.is_born_ended());
    let max = format!("{:?}", Event::Watermark(EpochMillis::MAX));
    let end = format!("{:?}", Event::EndOfData { drain: true });
    assert_eq!(read_all(&mut channel), ["[5]", &max, &end, "end"]);
    assert_eq!(read_all(&mut channel), [""; 0], "once");
}

#[test]
fn k19_an_ended_channel_yields_nothing_any_more() {
    // A released channel stayed in the queue of those to be read; the error of reading it hid another one's end.
    let (mut producer, consumer) = lane();
    buffer(&mut producer, 1);
    let position =
        producer.finish(Event::FinishNotice { next: CheckpointId(1) }, Event::EndOfPartition);
    let mut channel = InputChannel::new(0, 0, Some(consumer), Recovered::default());
    let notice = format!("{:?} at {position}", Event::FinishNotice { next: CheckpointId(1) });
    assert_eq!(read_all(&mut channel), [&notice, "[1]", "end"]);
    drop(producer);
    for _ in 0..3 {
        channel.load();
        assert!(matches!(channel.read(), Read::Empty), "neither an end again nor an error");
        assert!(channel.poll_priority().is_none());
    }
    assert_eq!(channel.read_position(), Position(position + 1));
}

#[test]
fn p07_empty_buffers_are_neither_sent_nor_captured() {
    // Buffers without bytes were spilled and counted, the count was wrong, and the job hung.
    let (mut producer, consumer) = lane();
    let mut channel = InputChannel::new(0, 0, Some(consumer), Recovered::default());
    producer.flush();
    producer.reserve(8).expect("a segment is free");
    producer.flush();
    assert_eq!((producer.position(), producer.buffers()), (0, 0), "an empty buffer is not sent");
    producer.write(&[3]).expect("a segment is free");
    producer.flush();
    assert_eq!((producer.position(), producer.bytes()), (1, 1));
    channel.load();
    assert_eq!(channel.bytes_before(CheckpointId(1)), 1);
    assert!(matches!(channel.read(), Read::Buffer));
    // Read to its end, and not yet given back.
    channel.reading().expect("a buffer is being read").offset = 1;
    let mut captured = channel.begin_capture();
    channel.capture(channel.read_position().0, channel.loaded().0, &mut captured);
    assert_eq!((shown(&captured).len(), captured.bytes), (0, 0));
    assert_eq!(channel.bytes_before(CheckpointId(1)), 0);
}

#[test]
fn k35_recovered_buffers_take_nothing_of_the_lanes_memory() {
    // One pool for what is read back and for what is sent deadlocked the recovery.
    let (mut producer, consumer) = lane();
    let slots: Vec<_> = (0..100u8).map(|n| recovered(&[n])).collect();
    let slots = Recovered { slots: slots.into(), ..Recovered::default() };
    let mut channel = InputChannel::new(0, 0, Some(consumer), slots);
    assert!(producer.is_idle(), "a hundred are held, and every segment is at home");
    for bytes in 1..=4 {
        buffer(&mut producer, bytes);
    }
    assert!(!producer.is_ready(), "the lane is full of its own");
    let read = read_all(&mut channel);
    let expected: Vec<_> = (0..100u8)
        .map(|n| format!("{:?}", [n]))
        .chain((1..=4usize).map(|bytes| format!("{:?}", vec![bytes as u8; bytes])))
        .collect();
    assert_eq!(read, expected);
    assert!(producer.is_ready());
}
