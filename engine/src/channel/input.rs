//! An input channel: the consuming end of one lane with what its task knows of it.
//!
//! The read position is a buffer and the offset of its next unread record. Recovered entries come before the lane's. Owned by one
//! task; the alignment machine decides when it is blocked.

use std::collections::VecDeque;

use tidegate_netstack::buffer::Buffer;
use tidegate_netstack::lane::{Consumer, Next, Priority, Slot};

use super::event::Event;
use crate::clock::EpochMillis;

/// The consuming end of one lane.
#[derive(Debug)]
pub struct InputChannel {
    consumer: Option<Consumer<Event>>,
    /// What was in flight when the restored checkpoint was taken; read first.
    recovered: VecDeque<Slot<Event>>,
    reading: Option<Reading>,
    /// Events that a born-ended channel yields by itself when its recovered entries are read.
    born_ended: VecDeque<Event>,
    /// Whether only its priority side is read.
    pub(crate) is_blocked: bool,
    /// Whether the end of data has been read.
    pub(crate) is_data_ended: bool,
    /// Whether the end of the partition has been read.
    pub(crate) is_ended: bool,
    /// The channel's watermark at the read position.
    pub(crate) watermark: EpochMillis,
    /// Whether the channel's watermark doesn't count.
    pub(crate) is_idle: bool,
}

/// A buffer that is being read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The buffer.
    pub(crate) buffer: Buffer,
    /// Offset of the next unread record.
    pub(crate) offset: usize,
    /// The buffer's position in the lane; `None` if it was recovered.
    pub(crate) position: Option<u64>,
}

/// What comes next in a channel.
#[derive(Debug)]
pub(crate) enum Read {
    /// A priority entry.
    Priority(Priority<Event>),
    /// A buffer is being read: [`InputChannel::reading`].
    Buffer,
    /// An event in band, with its position; `None` if it was recovered or made here.
    Event(Event, Option<u64>),
    /// The end of the partition.
    End,
    /// Nothing at the moment.
    Empty,
    /// The producer is gone without an end: its failure is being dealt with elsewhere.
    Broken,
}

impl InputChannel {
    /// The channel of a lane's consuming end, with what is recovered before it.
    pub(crate) fn new(consumer: Consumer<Event>, recovered: VecDeque<Slot<Event>>) -> Self {
        Self {
            consumer: Some(consumer),
            recovered,
            reading: None,
            born_ended: VecDeque::new(),
            is_blocked: false,
            is_data_ended: false,
            is_ended: false,
            watermark: EpochMillis::MIN,
            is_idle: false,
        }
    }

    /// A channel whose producer had finished in the restored checkpoint: it yields what was in flight, then its own
    /// MAX watermark, end of data and end of partition (FLIP-147; no task is deployed for the producer).
    pub(crate) fn born_ended(recovered: VecDeque<Slot<Event>>) -> Self {
        Self {
            consumer: None,
            recovered,
            reading: None,
            born_ended: VecDeque::from([
                Event::Watermark(EpochMillis::MAX),
                Event::EndOfData { drain: true },
                Event::EndOfPartition,
            ]),
            is_blocked: false,
            is_data_ended: false,
            is_ended: false,
            watermark: EpochMillis::MIN,
            is_idle: false,
        }
    }

    /// The next priority entry, if one has come.
    #[inline]
    pub(crate) fn poll_priority(&mut self) -> Option<Priority<Event>> {
        self.consumer.as_mut()?.poll_priority()
    }

    /// The buffer being read.
    #[inline]
    pub(crate) fn reading(&mut self) -> Option<&mut Reading> {
        self.reading.as_mut()
    }

    /// Gives the buffer that has been read to its end back to its pool.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.reading = None;
    }

    /// Reads on: a half-read buffer, then recovered entries, then the lane.
    pub(crate) fn read(&mut self) -> Read {
        if self.is_ended {
            return Read::Empty;
        }
        if self.reading.is_some() {
            return Read::Buffer;
        }
        if let Some(slot) = self.recovered.pop_front() {
            return self.take(slot, None);
        }
        let Some(consumer) = &mut self.consumer else {
            return match self.born_ended.pop_front() {
                Some(Event::EndOfPartition) => Read::End,
                Some(event) => Read::Event(event, None),
                None => Read::Empty,
            };
        };
        match consumer.next() {
            Next::Priority(entry) => Read::Priority(entry),
            Next::Slot { position, slot } => self.take(slot, Some(position)),
            Next::End { .. } => Read::End,
            Next::Empty if consumer.is_closed() && consumer.backlog() == 0 => Read::Broken,
            Next::Empty => Read::Empty,
        }
    }

    fn take(&mut self, slot: Slot<Event>, position: Option<u64>) -> Read {
        match slot {
            Slot::Buffer(buffer) => {
                self.reading = Some(Reading { buffer, offset: 0, position });
                Read::Buffer
            }
            Slot::Event(event) => Read::Event(event, position),
        }
    }
}
