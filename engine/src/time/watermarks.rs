//! Watermarks made from the records that pass: how far event time has come.
//!
//! They are made of what is read, before any filter behind, so an input of which nothing gets through still moves time on.

use std::time::Duration;

use crate::clock::{EpochMillis, Timestamp};
use crate::error::Result;
use crate::operator::{Build, Chain, Op, Signal, Stage};
use crate::record::{Data, Feed};
use crate::sink::Readiness;

/// How watermarks follow from event times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    bound: i64,
    idle_after: Option<Duration>,
}

impl Watermarks {
    /// Event times never go back.
    pub const fn ascending() -> Self {
        Self { bound: 0, idle_after: None }
    }

    /// Event times go back by at most `bound`.
    pub fn bounded_out_of_orderness(bound: Duration) -> Self {
        let bound = i64::try_from(bound.as_millis()).unwrap_or(i64::MAX);
        Self { bound, idle_after: None }
    }

    /// A subtask without a record for that long doesn't hold back the others.
    #[must_use]
    pub const fn idle_after(mut self, idle: Duration) -> Self {
        self.idle_after = Some(idle);
        self
    }
}

/// The recipe of an operator that makes watermarks.
#[derive(Clone, Debug)]
pub struct AssignWatermarks<C, E> {
    pub(crate) up: C,
    pub(crate) time: E,
    pub(crate) watermarks: Watermarks,
}

impl<C: Chain, E> Chain for AssignWatermarks<C, E>
where
    E: for<'a> Fn(<C::Out as Data>::Ref<'a>) -> i64 + Clone + Send + 'static,
{
    type Out = C::Out;

    fn attach<D: Op<C::Out>>(self, down: D, build: &mut Build) -> Result<()> {
        let op = AssignOp {
            time: self.time,
            watermarks: self.watermarks,
            greatest: i64::MIN,
            sent: EpochMillis::MIN,
            batches: 0,
            seen_at: None,
            has_records: false,
            is_idle: false,
            down,
        };
        self.up.attach(op, build)
    }

    fn describe(&self, stage: &mut Stage) {
        self.up.describe(stage);
        stage.operators.push("watermarks".into());
    }
}

struct AssignOp<E, D> {
    time: E,
    watermarks: Watermarks,
    greatest: i64,
    sent: EpochMillis,
    batches: u32,
    /// When it was last asked and there had been records, or no room for some.
    seen_at: Option<Timestamp>,
    /// Whether there have been since.
    has_records: bool,
    is_idle: bool,
    down: D,
}

impl<E, D> AssignOp<E, D> {
    fn send<T: Data>(&mut self) -> Result<()>
    where
        D: Op<T>,
    {
        self.batches = 0;
        if self.greatest == i64::MIN {
            return Ok(());
        }
        // One less than the greatest: more records of that very moment may come.
        let bound = self.watermarks.bound.saturating_add(1);
        let watermark = EpochMillis(self.greatest.saturating_sub(bound));
        if watermark <= self.sent {
            return Ok(());
        }
        self.sent = watermark;
        self.down.signal(&mut Signal::Watermark(watermark))
    }

    fn set_idle<T: Data>(&mut self, is_idle: bool) -> Result<()>
    where
        D: Op<T>,
    {
        if self.is_idle == is_idle {
            return Ok(());
        }
        self.is_idle = is_idle;
        self.down.signal(&mut Signal::Idle(is_idle))
    }

    /// Judges whether records have stopped coming, and says when to judge again.
    fn judge<T: Data>(&mut self, now: Timestamp, again: &mut Timestamp) -> Result<()>
    where
        D: Op<T>,
    {
        let Some(after) = self.watermarks.idle_after else { return Ok(()) };
        if std::mem::take(&mut self.has_records) || self.seen_at.is_none() {
            self.seen_at = Some(now);
        }
        let seen = self.seen_at.unwrap_or(now);
        if now.since(seen) >= after {
            return self.set_idle::<T>(true);
        }
        *again = (*again).min(seen + after);
        Ok(())
    }
}

struct AssignFeed<'f, S, E> {
    up: S,
    time: &'f E,
    greatest: &'f mut i64,
    has_records: &'f mut bool,
}

impl<T: Data, S: Feed<T>, E: for<'a> Fn(T::Ref<'a>) -> i64> Feed<T> for AssignFeed<'_, S, E> {
    #[inline(always)]
    fn each<G: for<'x> FnMut(T::Ref<'x>)>(self, mut g: G) {
        let mut greatest = *self.greatest;
        let mut has_records = *self.has_records;
        let time = self.time;
        self.up.each(|record| {
            greatest = greatest.max(time(record));
            has_records = true;
            g(record);
        });
        *self.greatest = greatest;
        *self.has_records = has_records;
    }
}

/// Batches after which a watermark is sent although nobody asked: windows are not kept open longer than need be.
const BATCHES: u32 = 32;

impl<T: Data, E, D: Op<T>> Op<T> for AssignOp<E, D>
where
    E: for<'a> Fn(T::Ref<'a>) -> i64 + 'static,
{
    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, up: S) {
        let before = self.greatest;
        self.down.batch(AssignFeed {
            up,
            time: &self.time,
            greatest: &mut self.greatest,
            has_records: &mut self.has_records,
        });
        self.batches += 1;
        // An idle one was asked when it became so: what it has seen came in this batch.
        if self.batches >= BATCHES && self.greatest > before || self.is_idle && self.has_records {
            let sent = self.set_idle::<T>(false).and_then(|()| self.send::<T>());
            if let Err(error) = sent {
                crate::operator::fail(error);
            }
        }
    }

    fn ready(&mut self, now: Timestamp) -> Readiness {
        let readiness = self.down.ready(now);
        // Who is held up isn't idle.
        self.has_records |= readiness != Readiness::Ready && !self.is_idle;
        readiness
    }

    fn batch_max(&self) -> usize {
        self.down.batch_max()
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        match signal {
            Signal::EmitWatermark { now, again } => {
                self.send::<T>()?;
                self.judge::<T>(*now, again)?;
                self.down.signal(signal)
            }
            Signal::Watermark(watermark) => {
                // MAX at the end of the input is passed on; another one from further up is replaced by ours.
                if *watermark == EpochMillis::MAX {
                    // Asked again while other inputs of the task go on, it would take that back.
                    self.sent = EpochMillis::MAX;
                    self.set_idle::<T>(false)?;
                    self.down.signal(signal)
                } else {
                    Ok(())
                }
            }
            Signal::Idle(_)
            | Signal::Flush
            | Signal::Barrier(_)
            | Signal::Snapshot(_)
            | Signal::Complete(_)
            | Signal::Aborted(..)
            | Signal::QuiesceTimers
            | Signal::Finish { .. }
            | Signal::EndOfData { .. }
            | Signal::EndOfPartition
            | Signal::LatencyMarker { .. }
            | Signal::EndOfDataTaken(_)
            | Signal::Flushed(_) => self.down.signal(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the watermarks that come.
    struct Heard(Vec<EpochMillis>);

    impl Op<u64> for Heard {
        fn batch<S: Feed<u64>>(&mut self, feed: S) {
            feed.each(|_| {});
        }
        fn ready(&mut self, _: Timestamp) -> Readiness {
            Readiness::Ready
        }
        fn batch_max(&self) -> usize {
            usize::MAX
        }
        fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
            if let Signal::Watermark(watermark) = signal {
                self.0.push(*watermark);
            }
            Ok(())
        }
    }

    /// A generator that was asked behind the end of its input took MAX back. In a union that held back the other branch for ever: at
    /// the end its windows did not fire, and what they had was lost.
    #[test]
    fn the_end_of_the_input_is_not_taken_back() -> Result<()> {
        let mut op = AssignOp {
            time: |n: u64| n as i64,
            watermarks: Watermarks::ascending(),
            greatest: 7,
            sent: EpochMillis::MIN,
            batches: 0,
            seen_at: None,
            has_records: false,
            is_idle: false,
            down: Heard(Vec::new()),
        };
        Op::<u64>::signal(&mut op, &mut Signal::Watermark(EpochMillis::MAX))?;
        let (now, mut again) = (Timestamp::ZERO, Timestamp::MAX);
        Op::<u64>::signal(&mut op, &mut Signal::EmitWatermark { now, again: &mut again })?;
        assert_eq!(op.down.0, [EpochMillis::MAX]);
        Ok(())
    }
}
