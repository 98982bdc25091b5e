//! Records in flight on their way back: from a checkpoint's blocks to the channels of the consumer.
//!
//! What a receiver held is put back at the consumer, ahead of new data, channel by channel and in order. If the parallelism has
//! changed, each new subtask looks through what all old ones held and takes the records whose key groups it owns; a watermark
//! among them then no longer says anything, and the channel begins with the least of the old ones.
//!
//! A checkpoint taken while entries in flight were being read has them beside newer ones. Each part tells how many restores it has
//! been through; what has been through more comes first, and a task reads it first in all its channels.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_netstack::buffer::Buffer;
use tidegate_netstack::lane::Slot;
use tidegate_netstack::parker::Waker;
use tidegate_netstack::pool::{Pool, PoolOptions};

use super::restore::Handle;
use crate::channel::capture::Restores;
use crate::channel::event::Event;
use crate::channel::input::Recovered;
use crate::clock::EpochMillis;
use crate::control::checkpoint::restore::InFlightSource;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::{Head, HeadInput};
use crate::probe::{Fault, is_broken};
use crate::record::key_group::KeyGroupRange;
use crate::state::manifest::{ChannelMeta, StateData};
use crate::state::snapshots::SnapshotReader;

/// The operator number of a block that holds an event in flight.
pub(super) const IN_FLIGHT_EVENT: u32 = 1;

/// An event in flight as bytes: a kind and a number.
pub(super) fn encode_event(event: &Event) -> [u8; 16] {
    let (kind, number) = match *event {
        Event::Watermark(EpochMillis(millis)) => (1u64, millis),
        Event::Idle => (2, 0),
        Event::Active => (3, 0),
        // Not captured; see `Event::is_captured`.
        Event::Barrier(_)
        | Event::Announcement { .. }
        | Event::Cancel { .. }
        | Event::EndOfData { .. }
        | Event::EndOfPartition
        | Event::FinishNotice { .. }
        | Event::LatencyMarker { .. } => (0, 0),
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&kind.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn decode_event(bytes: &[u8]) -> Result<Event> {
    let (Some(kind), Some(number)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) else {
        return Err(corrupt("an event in flight is cut short"));
    };
    match u64::from_le_bytes(*kind) {
        1 => Ok(Event::Watermark(EpochMillis(i64::from_le_bytes(*number)))),
        2 => Ok(Event::Idle),
        3 => Ok(Event::Active),
        other => Err(corrupt(&format!("{other} is no kind of event in flight"))),
    }
}

/// Reads an event and writes it again; for those who feed it bytes from anywhere.
#[cfg(feature = "simulation")]
pub fn event_again(bytes: &[u8]) -> Result<[u8; 16]> {
    decode_event(bytes).map(|event| encode_event(&event))
}

fn corrupt(message: &str) -> Error {
    Error::new(ErrorKind::Checkpoint, message)
}

/// What a subtask's channels begin with.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    reader: Option<Arc<SnapshotReader>>,
    channels: Vec<ChannelMeta>,
    is_rescaled: bool,
}

impl InFlight {
    pub(super) fn of(source: &InFlightSource<Handle>, reader: &Arc<SnapshotReader>) -> Self {
        let (channels, is_rescaled) = match source {
            InFlightSource::Own(own) => {
                (own.iter().flat_map(|handle| handle.channels.iter().cloned()).collect(), false)
            }
            InFlightSource::Rescaled(all) => {
                (all.iter().flat_map(|(_, handle)| handle.channels.iter().cloned()).collect(), true)
            }
        };
        Self { reader: Some(reader.clone()), channels, is_rescaled }
    }

    /// What channel `producer` of `count` on edge `edge` begins with. `head` is what reads it.
    pub(super) fn recover(
        &self,
        edge: usize,
        producer: u32,
        count: usize,
        head: &Head,
        range: KeyGroupRange,
    ) -> Result<Recovered> {
        let Head::Gate { input, .. } = head else { return Ok(Recovered::default()) };
        let Some(reader) = &self.reader else { return Ok(Recovered::default()) };
        if is_broken(Fault::InFlightNotRestored) {
            return Ok(Recovered::default());
        }
        let mut recovered = Recovered::default();
        for channel in self.channels.iter().filter(|channel| channel.gate == edge as u32) {
            if self.is_rescaled {
                // Every old channel may have records for every new subtask; those of one producer stay together.
                let least = recovered.watermark.unwrap_or(channel.watermark);
                recovered.watermark = Some(least.min(channel.watermark));
                if channel.channel as usize % count != producer as usize {
                    continue;
                }
            } else if channel.channel != producer {
                continue;
            } else {
                recovered.watermark = Some(channel.watermark);
                recovered.is_idle = channel.is_idle;
            }
            self.read(channel, reader, &**input, range, &mut recovered.slots)?;
        }
        // Stable: entries of one part stay in order.
        recovered.slots.make_contiguous().sort_by_key(|(restores, _)| Reverse(*restores));
        if is_broken(Fault::InFlightReversed) {
            recovered.slots.make_contiguous().reverse();
        }
        Ok(recovered)
    }

    fn read(
        &self,
        channel: &ChannelMeta,
        reader: &SnapshotReader,
        input: &dyn HeadInput,
        range: KeyGroupRange,
        slots: &mut VecDeque<(Restores, Slot<Event>)>,
    ) -> Result<()> {
        let StateData::Blocks(runs) = &channel.data else { return Ok(()) };
        if runs.len() as u64 != channel.count {
            let name = format!("channel {} of edge {}", channel.channel, channel.gate);
            return Err(corrupt(&format!(
                "{name}: {} buffers are named, but {} are there",
                channel.count,
                runs.len()
            )));
        }
        let restores = Restores(channel.restores.saturating_add(1));
        for run in runs {
            let mut blocks = reader.blocks(run)?;
            let mut frames = Vec::new();
            let mut is_event = false;
            while let Some(block) = blocks.read_block()? {
                is_event = block.head.origin.operator == IN_FLIGHT_EVENT;
                frames.extend_from_slice(block.payload);
            }
            if is_event {
                let event = decode_event(&frames)?;
                if !self.is_rescaled {
                    slots.push_back((restores, Slot::Event(event)));
                }
                continue;
            }
            input.check(&frames)?;
            if self.is_rescaled && !is_broken(Fault::InFlightToAll) {
                frames = input.route(&frames, range).ok_or_else(|| {
                    corrupt("records in flight on an edge without keys can't be rescaled")
                })?;
            }
            if !frames.is_empty() {
                slots.push_back((restores, Slot::Buffer(buffer(&frames)?)));
            }
        }
        Ok(())
    }
}

/// Bytes as a buffer with memory of its own.
fn buffer(bytes: &[u8]) -> Result<Buffer> {
    let options =
        PoolOptions { segment_bytes: bytes.len(), segments: 1, emission_bytes_max: bytes.len() };
    let mut pool = Pool::new(options, Waker::noop());
    let mut builder = pool
        .take(bytes.len())
        .map_err(|full| Error::new(ErrorKind::Internal, format!("a recovered buffer: {full}")))?;
    builder.unfilled_mut()[..bytes.len()].copy_from_slice(bytes);
    builder.advance(bytes.len());
    builder.seal(0).ok_or_else(|| Error::new(ErrorKind::Internal, "a recovered buffer is empty"))
}
