//! An input channel: the consuming end of one lane with what its task knows of it.
//!
//! The read position is a buffer and the offset of its next unread record. Recovered entries come before the lane's.
//! While a checkpoint captures the channel, a cursor runs ahead of the read position: what it has passed was taken by
//! reference and is read as usual later. Owned by one task; the alignment machine decides when it is blocked.

use std::collections::VecDeque;

use tidegate_netstack::buffer::Buffer;
use tidegate_netstack::lane::{Consumer, Next, Priority, Slot};

use super::capture::{CapturedChannel, CapturedSlot, Restores};
use super::event::{Event, Position};
use crate::clock::EpochMillis;
use crate::id::CheckpointId;
use crate::probe::{Fault, is_broken};

/// The consuming end of one lane.
#[derive(Debug)]
pub struct InputChannel {
    consumer: Option<Consumer<Event>>,
    /// What was in flight when the restored checkpoint was taken; read first.
    recovered: VecDeque<(Restores, Slot<Event>)>,
    reading: Option<Reading>,
    /// Events that a born-ended channel yields by itself when its recovered entries are read.
    born_ended: VecDeque<Event>,
    /// Which edge and which producer, for what is captured.
    pub(crate) edge: usize,
    /// The producing subtask's index.
    pub(crate) producer: u32,
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
    /// Memory for what the next capture takes.
    room: Vec<(Restores, CapturedSlot)>,
    /// How many entries the last capture has.
    captured_count: usize,
}

/// A buffer that is being read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The buffer.
    pub(crate) buffer: Buffer,
    /// Offset of the next unread record.
    pub(crate) offset: usize,
    place: Place,
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// The lane: its position there.
    Lane(u64),
    /// What was in flight in the restored checkpoint.
    Recovered(Restores),
}

/// What comes next in a channel.
#[derive(Debug)]
pub(crate) enum Read {
    /// A priority entry.
    Priority(Priority<Event>),
    /// A buffer is being read: [`InputChannel::reading`].
    Buffer,
    /// An event in band.
    Event(Event),
    /// The end of the partition.
    End,
    /// Nothing at the moment.
    Empty,
    /// The producer is gone without an end: its failure is being dealt with elsewhere.
    Broken,
}

/// What a channel begins with.
#[derive(Debug, Default)]
pub struct Recovered {
    /// What was in flight, in order; entries with more restores come first.
    pub slots: VecDeque<(Restores, Slot<Event>)>,
    /// The watermark at the read position.
    pub watermark: Option<EpochMillis>,
    /// Whether the channel was idle there.
    pub is_idle: bool,
}

impl InputChannel {
    /// Channel `producer` of edge `edge`: a lane's consuming end, or, without one, a channel whose producer had finished in
    /// the restored checkpoint. That one is born ended: behind what was in flight it yields its own MAX watermark, end of data
    /// and end of partition (FLIP-147; no task is deployed for the producer).
    pub(crate) fn new(
        edge: usize,
        producer: u32,
        consumer: Option<Consumer<Event>>,
        recovered: Recovered,
    ) -> Self {
        let mut born_ended = VecDeque::new();
        if consumer.is_none() {
            born_ended.extend([
                Event::Watermark(EpochMillis::MAX),
                Event::EndOfData { drain: true },
                Event::EndOfPartition,
            ]);
        }
        Self {
            consumer,
            recovered: recovered.slots,
            reading: None,
            born_ended,
            edge,
            producer,
            is_blocked: false,
            is_data_ended: false,
            is_ended: false,
            watermark: recovered.watermark.unwrap_or(EpochMillis::MIN),
            is_idle: recovered.is_idle,
            room: Vec::new(),
            captured_count: 0,
        }
    }

    /// Entries of the lane that wait, as far as they have been seen.
    pub(crate) fn queued(&self) -> u64 {
        self.consumer.as_ref().map_or(0, |consumer| consumer.loaded_tail() - consumer.head())
    }

    /// Whether its producer had finished before.
    pub(crate) fn is_born_ended(&self) -> bool {
        self.consumer.is_none()
    }

    /// How many restores the next entry that was in flight when the restored checkpoint was taken has been through; none if none is
    /// left to be read.
    pub(crate) fn next_recovered(&self) -> Option<Restores> {
        match &self.reading {
            Some(Reading { place: Place::Recovered(restores), .. }) => Some(*restores),
            Some(_) | None => self.recovered.front().map(|(restores, _)| *restores),
        }
    }

    /// Looks for new entries. To be called before [`poll_priority`](Self::poll_priority): every priority entry that belongs before
    /// what is seen here is seen there.
    #[inline]
    pub(crate) fn load(&mut self) {
        if let Some(consumer) = &mut self.consumer {
            consumer.refresh_tail();
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

    /// Reads on: a half-read buffer, then recovered entries, then those of the lane that [`load`](Self::load) has seen. What
    /// comes later must not be read before a capture has grown over it.
    pub(crate) fn read(&mut self) -> Read {
        if self.is_ended {
            return Read::Empty;
        }
        if self.reading.is_some() {
            return Read::Buffer;
        }
        if let Some((restores, slot)) = self.recovered.pop_front() {
            return self.take(slot, Place::Recovered(restores));
        }
        let Some(consumer) = &mut self.consumer else {
            return match self.born_ended.pop_front() {
                Some(Event::EndOfPartition) => Read::End,
                Some(event) => Read::Event(event),
                None => Read::Empty,
            };
        };
        match consumer.next_seen() {
            Next::Priority(entry) => Read::Priority(entry),
            Next::Slot { position, slot } => self.take(slot, Place::Lane(position)),
            Next::End { .. } => Read::End,
            Next::Empty if consumer.is_closed() && consumer.backlog() == 0 => Read::Broken,
            Next::Empty => Read::Empty,
        }
    }

    fn take(&mut self, slot: Slot<Event>, place: Place) -> Read {
        match slot {
            Slot::Buffer(buffer) => {
                self.reading = Some(Reading { buffer, offset: 0, place });
                Read::Buffer
            }
            Slot::Event(event) => Read::Event(event),
        }
    }

    /// The position of the first entry of the lane with an unread record.
    pub(crate) fn read_position(&self) -> Position {
        Position(match self.reading {
            Some(Reading { place: Place::Lane(position), .. }) => position,
            Some(_) | None => self.consumer.as_ref().map_or(0, Consumer::head),
        })
    }

    /// Up to where entries are known to be in the lane.
    pub(crate) fn loaded(&self) -> Position {
        Position(self.consumer.as_ref().map_or(0, Consumer::loaded_tail))
    }

    /// Bytes of records that are queued and not read, up to the barrier of `checkpoint` if that is there.
    pub(crate) fn bytes_before(&mut self, checkpoint: CheckpointId) -> u64 {
        let mut bytes = 0;
        if let Some(reading) = &self.reading {
            bytes += (reading.buffer.len() - reading.offset) as u64;
        }
        let mut has_barrier = false;
        let mut count = |slot: &Slot<Event>| match slot {
            Slot::Buffer(buffer) if !has_barrier => bytes += buffer.len() as u64,
            Slot::Event(Event::Barrier(barrier)) => has_barrier |= barrier.checkpoint == checkpoint,
            Slot::Buffer(_) | Slot::Event(_) => {}
        };
        for (_, slot) in &self.recovered {
            count(slot);
        }
        if let Some(consumer) = &mut self.consumer {
            let tail = consumer.loaded_tail();
            consumer.peek_until(tail, |_, slot| count(slot));
        }
        bytes
    }

    /// Begins a capture at the read position: takes what is left of earlier recovered entries.
    pub(crate) fn begin_capture(&mut self) -> CapturedChannel {
        let mut captured = CapturedChannel::new(self.edge, self.producer);
        captured.slots = std::mem::take(&mut self.room);
        captured.watermark = self.watermark;
        captured.is_idle = self.is_idle;
        if let Some(Reading { buffer, offset, place: Place::Recovered(restores) }) = &self.reading {
            captured.push_buffer(*restores, buffer.clone(), *offset);
        }
        for (restores, slot) in &self.recovered {
            captured.push(*restores, slot.clone());
        }
        captured
    }

    /// Where the first barrier of `checkpoint` or a later one stands in band among the lane's entries at `from..to`.
    pub(crate) fn barrier_in_band(
        &mut self,
        from: u64,
        to: u64,
        checkpoint: CheckpointId,
    ) -> Option<Position> {
        let mut found = None;
        if from < to
            && let Some(consumer) = &mut self.consumer
        {
            consumer.peek_until(to, |position, slot| {
                if position >= from
                    && found.is_none()
                    && let Slot::Event(Event::Barrier(barrier)) = slot
                    && barrier.checkpoint >= checkpoint
                {
                    found = Some(Position(position));
                }
            });
        }
        found
    }

    /// Takes references to the entries at `from..to` of the lane; the first may be the half-read buffer.
    pub(crate) fn capture(&mut self, from: u64, to: u64, into: &mut CapturedChannel) {
        if let Some(Reading { buffer, offset, place: Place::Lane(position) }) = &self.reading
            && (from..to).contains(position)
        {
            let offset = if is_broken(Fault::HalfReadWhole) { 0 } else { *offset };
            into.push_buffer(Restores(0), buffer.clone(), offset);
        }
        into.slots.reserve(usize::try_from(to.saturating_sub(from)).unwrap_or(0));
        if let Some(consumer) = &mut self.consumer {
            consumer.share(from..to, |_, slot| into.push(Restores(0), slot));
        }
        self.captured_count = into.slots.len();
    }

    /// Makes room for a capture as large as the last. Asking for memory takes longer than the references to what is in flight (bench
    /// `overtake`); to be called when no barrier waits.
    pub(crate) fn make_room(&mut self) {
        self.room.reserve_exact(self.captured_count);
    }
}

impl CapturedChannel {
    fn push(&mut self, restores: Restores, slot: Slot<Event>) {
        match slot {
            Slot::Buffer(buffer) => self.push_buffer(restores, buffer, 0),
            Slot::Event(event) if event.is_captured() => {
                self.slots.push((restores, CapturedSlot::Event(event)));
            }
            Slot::Event(_) => {}
        }
    }

    fn push_buffer(&mut self, restores: Restores, buffer: Buffer, offset: usize) {
        if offset < buffer.len() {
            self.bytes += (buffer.len() - offset) as u64;
            self.slots.push((restores, CapturedSlot::Buffer { buffer, offset }));
        }
    }
}
