//! A result partition: the output of one subtask on one edge, one subpartition (a lane) for each consumer.
//!
//! Knows which events go to all lanes and in which order; what a lane does with them is `netstack`'s. Written by the
//! ends of chains; its task asks it whether consumers have taken the end of data.

use tidegate_netstack::lane::Producer;

use super::event::{Barrier, Event, Position};
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{Error, ErrorKind};
use crate::id::{CheckpointId, SubtaskId};
use crate::record::Data;
use crate::record::codec::{self, frame_len};

/// The output of one subtask on one edge.
#[derive(Debug)]
pub struct ResultPartition {
    lanes: Vec<Subpartition>,
    /// Whether barriers may overtake data on this edge.
    supports_unaligned: bool,
    record_bytes_max: usize,
    segment_bytes: usize,
    /// The highest watermark sent or still to be sent.
    watermark: EpochMillis,
    /// One more than the highest barrier sent.
    next_checkpoint: CheckpointId,
}

/// One lane.
#[derive(Debug)]
struct Subpartition {
    lane: Producer<Event>,
    /// A watermark that found no room; the next one takes its place.
    pending_watermark: Option<EpochMillis>,
    /// Where the end of data stands, once it has been sent.
    end_of_data: Option<u64>,
}

/// Limits of a result partition.
#[derive(Clone, Copy, Debug)]
pub struct PartitionOptions {
    /// Whether barriers may overtake data on this edge.
    pub supports_unaligned: bool,
    /// The largest record.
    pub record_bytes_max: usize,
    /// The size of the lanes' segments.
    pub segment_bytes: usize,
}

impl ResultPartition {
    pub(crate) fn new(lanes: Vec<Producer<Event>>, options: PartitionOptions) -> Self {
        let lanes = lanes
            .into_iter()
            .map(|lane| Subpartition { lane, pending_watermark: None, end_of_data: None })
            .collect();
        Self {
            lanes,
            supports_unaligned: options.supports_unaligned,
            record_bytes_max: options.record_bytes_max,
            segment_bytes: options.segment_bytes,
            watermark: EpochMillis::MIN,
            next_checkpoint: CheckpointId(0),
        }
    }

    /// How many subpartitions there are.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Whether a batch may be written: each lane has a free buffer.
    #[inline]
    pub(crate) fn is_ready(&mut self) -> bool {
        // All lanes are asked, so that each arranges to be woken.
        self.lanes.iter_mut().fold(true, |ready, sub| sub.lane.is_ready() & ready)
    }

    /// Writes a record to subpartition `index`.
    ///
    /// Fails the task if the record is larger than `record.max-bytes` or the emission larger than its bound.
    #[inline(always)]
    pub(crate) fn write<T: Data>(&mut self, index: usize, hash: u64, record: T::Ref<'_>) {
        if codec::prefix::<T>() > 0 {
            let bytes = frame_len::<T>(record);
            if bytes > self.segment_bytes && bytes > self.record_bytes_max {
                too_large(bytes, self.record_bytes_max);
            }
        }
        if let Err(exhausted) =
            codec::put_in_lane::<T, _>(&mut self.lanes[index].lane, hash, record)
        {
            let message = format!("one emission exceeds emission.max-bytes: {exhausted}");
            std::panic::resume_unwind(Box::new(Error::new(ErrorKind::Record, message)));
        }
    }

    /// Publishes what is buffered.
    pub(crate) fn flush(&mut self) {
        for sub in &mut self.lanes {
            sub.lane.flush();
            sub.send_pending_watermark();
        }
    }

    /// Sends a watermark where there is room; elsewhere it waits, and a later one takes its place.
    pub(crate) fn watermark(&mut self, watermark: EpochMillis) {
        self.watermark = watermark;
        for sub in &mut self.lanes {
            sub.pending_watermark = Some(watermark);
            if watermark == EpochMillis::MAX {
                sub.pending_watermark = None;
                sub.lane.push_event(Event::Watermark(watermark));
            } else {
                sub.send_pending_watermark();
            }
        }
    }

    /// Says that the stream's watermark doesn't count, or counts again.
    pub(crate) fn idle(&mut self, is_idle: bool) {
        for sub in &mut self.lanes {
            // A watermark that came behind would make the channel count again.
            if let Some(watermark) = sub.pending_watermark.take() {
                sub.lane.push_event(Event::Watermark(watermark));
            }
            sub.lane.push_event(if is_idle { Event::Idle } else { Event::Active });
        }
    }

    /// Sends a barrier: ahead of all data if it is unaligned and the edge allows it, else in band.
    pub(crate) fn barrier(&mut self, mut barrier: Barrier) {
        if !self.supports_unaligned {
            barrier.options = barrier.options.forced_aligned();
        }
        for sub in &mut self.lanes {
            if barrier.options.is_unaligned() {
                sub.lane.push_priority(Event::Barrier(barrier));
            } else {
                let position = sub.lane.push_event(Event::Barrier(barrier));
                if barrier.options.timeout().is_some() {
                    let announced = Position(position);
                    sub.lane.push_priority_at(
                        Event::Announcement { barrier, position: announced },
                        position,
                    );
                }
            }
        }
        self.next_checkpoint = CheckpointId(barrier.checkpoint.0 + 1);
    }

    /// Tells consumers not to wait for a checkpoint's barrier.
    pub(crate) fn cancel(&mut self, checkpoint: CheckpointId) {
        for sub in &mut self.lanes {
            sub.lane.push_event(Event::Cancel { checkpoint });
        }
        self.next_checkpoint = self.next_checkpoint.max(CheckpointId(checkpoint.0 + 1));
    }

    /// Says that no record follows. Once on each lane.
    pub(crate) fn end_of_data(&mut self, drain: bool) {
        for sub in &mut self.lanes {
            if sub.end_of_data.is_none() {
                if let Some(watermark) = sub.pending_watermark.take() {
                    sub.lane.push_event(Event::Watermark(watermark));
                }
                sub.end_of_data = Some(sub.lane.push_event(Event::EndOfData { drain }));
            }
        }
    }

    /// Whether every consumer has taken the end of data, or is gone.
    pub(crate) fn is_end_of_data_taken(&mut self) -> bool {
        self.lanes.iter_mut().all(|sub| {
            sub.lane.is_closed()
                || sub.end_of_data.is_some_and(|position| sub.lane.taken() > position)
        })
    }

    /// Whether nothing waits in the producer for room in the ring.
    pub(crate) fn is_flushed(&mut self) -> bool {
        self.lanes.iter_mut().all(|sub| {
            let _ = sub.lane.is_ready();
            sub.lane.is_closed() || sub.lane.backlog() == 0
        })
    }

    /// Ends all lanes: the notice that lets a consumer put barriers right before the end, then the end.
    pub(crate) fn end_of_partition(&mut self) {
        let next = self.next_checkpoint;
        for sub in &mut self.lanes {
            if !sub.lane.is_finished() {
                sub.lane.finish(Event::FinishNotice { next }, Event::EndOfPartition);
            }
        }
    }

    /// Sends a latency marker where there is room.
    pub(crate) fn latency_marker(&mut self, emitted_at: Timestamp, source: SubtaskId) {
        for sub in &mut self.lanes {
            let _ = sub.lane.try_push_event(Event::LatencyMarker { emitted_at, source });
        }
    }
}

impl Subpartition {
    fn send_pending_watermark(&mut self) {
        if let Some(watermark) = self.pending_watermark
            && self.lane.try_push_event(Event::Watermark(watermark)).is_some()
        {
            self.pending_watermark = None;
        }
    }
}

#[cold]
fn too_large(bytes: usize, limit: usize) -> ! {
    let message = format!("a record of {bytes} bytes is larger than record.max-bytes, {limit}");
    std::panic::resume_unwind(Box::new(Error::new(ErrorKind::Record, message)))
}

#[cfg(test)]
mod tests {
    use tidegate_netstack::lane::{LaneOptions, Next, Slot, channel};

    use super::*;

    #[test]
    fn an_idle_stream_stays_idle_though_a_watermark_had_found_no_room() {
        let lane = LaneOptions { events_max: 1, ..LaneOptions::default() };
        let (producer, mut consumer) = channel::<Event>(lane);
        let options = PartitionOptions {
            supports_unaligned: true,
            record_bytes_max: 1024,
            segment_bytes: 1024,
        };
        let mut partition = ResultPartition::new(vec![producer], options);
        for millis in 1..=3 {
            partition.watermark(EpochMillis(millis));
        }
        partition.idle(true);
        partition.flush();
        let mut events = Vec::new();
        let mut polls = 0;
        while polls < 5 {
            if let Next::Slot { slot: Slot::Event(event), .. } = consumer.next() {
                events.push(event);
            } else {
                partition.flush();
                polls += 1;
            }
        }
        let [first, last] = [1, 3].map(|millis| Event::Watermark(EpochMillis(millis)));
        assert_eq!(events, [first, last, Event::Idle], "the newest took the second one's place");
    }
}
