//! Operators of simulated jobs that need code of their own: one that holds records back with timers, and what windows add up.

use std::time::Duration;

use tidegate::clock::EpochMillis;
use tidegate::operator::{Context, Process, States, Timer};
use tidegate::state::ListState;
use tidegate::{BoxError, Output, Result};

use super::Record;

/// A moment of event time that only the end of all input reaches.
const END: EpochMillis = EpochMillis(1 << 40);

/// Holds each record until a timer fires.
#[derive(Debug)]
pub struct Delay {
    held: ListState<Record>,
    /// How long by the wall clock; none for event time.
    wait: Option<Duration>,
}

impl Delay {
    /// By event time, or for so long.
    ///
    /// # Errors
    /// As declaring a state.
    pub fn new(states: &mut States<'_, u64>, wait: Option<Duration>) -> Result<Self> {
        Ok(Self { held: states.list("held")?, wait })
    }

    /// When a record goes on by event time.
    fn due(sequence: u64) -> i64 {
        (sequence as i64 / 10 + 1) * 10
    }
}

impl Process<u64, Record> for Delay {
    type Out = Record;

    fn process(
        &mut self,
        record: Record,
        cx: &mut Context<'_, u64>,
        out: &mut Output<'_, Record>,
    ) -> Result<(), BoxError> {
        match self.wait {
            Some(wait) => {
                let now = cx.processing_time();
                cx.set_processing_timer(EpochMillis(now.0 + wait.as_millis() as i64));
                // No timer of the wall clock fires behind the end of the input.
                cx.set_event_timer(END);
            }
            None => {
                let due = Self::due(record.1);
                if due <= cx.watermark().0 {
                    out.emit(record);
                    return Ok(());
                }
                cx.set_event_timer(EpochMillis(due));
            }
        }
        cx.list(&self.held).add(record);
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        cx: &mut Context<'_, u64>,
        out: &mut Output<'_, Record>,
    ) -> Result<(), BoxError> {
        let upto = if self.wait.is_none() { timer.time.0 } else { i64::MAX };
        let mut held = cx.list(&self.held);
        let all: Vec<Record> = held.iter().collect();
        let (due, later): (Vec<Record>, Vec<Record>) =
            all.into_iter().partition(|record| Self::due(record.1) <= upto);
        held.set(later);
        for record in due {
            out.emit(record);
        }
        Ok(())
    }
}

/// How a windowed aggregation is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPlan {
    /// How long its windows are.
    pub size: u64,
    /// By how much records may come too late for the watermark.
    pub bound: u64,
    /// How long a window is kept behind its end.
    pub lateness: u64,
    /// Whether each fires once, if it isn't kept.
    pub fires_once: bool,
}

/// No record of any source comes later than that.
pub const BOUND_OF_ALL: u64 = 1000;

impl WindowPlan {
    /// The window and key of a record, as (end, key).
    pub fn place(self, sequence: u64) -> (u64, u64) {
        ((sequence / self.size + 1) * self.size, window_key(sequence))
    }
}

/// The key of a record for windows: one that no exchange on the way changes.
pub fn window_key(sequence: u64) -> u64 {
    sequence % 3
}

/// How many records there were, and a sum over all of them in which each one counts.
pub fn add(total: &mut (u64, u64), origin: u64, sequence: u64) {
    total.0 += 1;
    total.1 = total.1.wrapping_add(mark(origin, sequence));
}

/// A number that stands for a record in sums.
pub fn mark(origin: u64, sequence: u64) -> u64 {
    let z = (origin << 32 ^ sequence).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 32)
}
