//! Sources whose records are known: split `s` of source `i` emits the sequence numbers from 0 to the split's end.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate::clock::Timestamp;
use tidegate::error::Result;
use tidegate::record::Output;
use tidegate::source::{Poll, Reader, ReaderContext, Source, Split};

use super::world::World;
use super::{Record, origin};

/// One source.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// Where the ends are.
    pub world: Arc<Mutex<World>>,
    /// Which source.
    pub source: usize,
    /// How many splits it has.
    pub splits: usize,
    /// How many records it emits at a time.
    pub burst: u64,
    /// How long it rests then.
    pub pause_nanos: u64,
    /// How many keys there are.
    pub keys: u64,
}

impl Source for Numbers {
    type Out = Record;
    type Reader = NumbersReader;

    fn splits(&self, _parallelism: u32) -> Result<Vec<Split>> {
        Ok((0..self.splits).map(|split| split_of(split as u64, 0)).collect())
    }

    fn open(&self, splits: Vec<Split>, _context: ReaderContext<'_>) -> Result<NumbersReader> {
        let positions: Vec<_> = splits.iter().map(parse).collect();
        self.world.lock().unwrap_or_else(PoisonError::into_inner).opened(self.source, &positions);
        Ok(NumbersReader { source: self.clone(), positions, turn: 0 })
    }
}

fn split_of(split: u64, next: u64) -> Split {
    let mut bytes = split.to_le_bytes().to_vec();
    bytes.extend(next.to_le_bytes());
    Split(bytes)
}

fn parse(split: &Split) -> (u64, u64) {
    let number = |at: usize| {
        u64::from_le_bytes(split.0[at..at + 8].try_into().expect("eight bytes were cut out"))
    };
    (number(0), number(8))
}

/// So many records an endless split has until it is given an end; then it has nothing to say.
const ENDLESS_MAX: u64 = 100;

/// Reads some splits of [`Numbers`] in turn.
#[derive(Debug)]
pub struct NumbersReader {
    source: Numbers,
    /// Split and next sequence number.
    positions: Vec<(u64, u64)>,
    turn: usize,
}

impl Reader for NumbersReader {
    type Out = Record;

    fn poll(&mut self, limit: usize, now: Timestamp, out: &mut Output<'_, Record>) -> Result<Poll> {
        let Numbers { world, source, burst, pause_nanos, keys, .. } = &self.source;
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = (*burst).min(limit as u64);
        let mut ended = 0;
        while left > 0 && ended < self.positions.len() {
            self.turn = (self.turn + 1) % self.positions.len();
            let (split, next) = &mut self.positions[self.turn];
            let end = world.end_of(*source, *split as usize).unwrap_or(ENDLESS_MAX);
            if *next >= end {
                ended += 1;
                continue;
            }
            ended = 0;
            let origin = origin(*source, *split as usize);
            let key = (origin.wrapping_mul(31) + *next * 7) % keys;
            out.emit((origin, *next, key, 0u64));
            *next += 1;
            world.emitted(*source, *split as usize, *next);
            left -= 1;
        }
        let is_over = self.positions.iter().all(|(split, next)| {
            world.end_of(*source, *split as usize).is_some_and(|end| *next >= end)
        });
        Ok(if is_over {
            Poll::End
        } else {
            Poll::Busy(Timestamp::from_nanos(now.as_nanos() + pause_nanos))
        })
    }

    fn snapshot(&mut self) -> Vec<Split> {
        self.positions.iter().map(|&(split, next)| split_of(split, next)).collect()
    }
}
