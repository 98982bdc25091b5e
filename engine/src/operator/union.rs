//! `union`: two chains into one end, as two heads of one task.

use std::cell::RefCell;
use std::rc::Rc;

use super::{Build, Chain, Op, Signal, Stage};
use crate::clock::{EpochMillis, Timestamp};
use crate::error::Result;
use crate::record::{Data, Feed};
use crate::sink::Readiness;
use crate::time::CombinedTime;

/// The recipe of a `union`.
#[derive(Clone, Debug)]
pub struct Union<A, B>(pub(crate) A, pub(crate) B);

impl<A: Chain, B: Chain<Out = A::Out>> Chain for Union<A, B> {
    type Out = A::Out;

    fn attach<D: Op<A::Out>>(self, end: D, build: &mut Build) -> Result<()> {
        let joint = Rc::new(RefCell::new(Joint {
            end,
            branches: [Branch::default(), Branch::default()],
            watermark: EpochMillis::MIN,
            is_idle: false,
            arrived: 0,
        }));
        self.0.attach(Side { joint: joint.clone(), branch: 0 }, build)?;
        self.1.attach(Side { joint, branch: 1 }, build)
    }

    fn describe(&self, stage: &mut Stage) {
        self.0.describe(stage);
        self.1.describe(stage);
        stage.operators.push("union".into());
    }
}

#[derive(Clone, Copy)]
struct Branch {
    watermark: EpochMillis,
    is_idle: bool,
}

impl Default for Branch {
    fn default() -> Self {
        Self { watermark: EpochMillis::MIN, is_idle: false }
    }
}

/// The end that both branches share. A worker runs one task at a time, so no two hold it at once.
struct Joint<D> {
    end: D,
    branches: [Branch; 2],
    watermark: EpochMillis,
    is_idle: bool,
    /// Branches that have passed on the signal that goes to every head of the task in turn.
    arrived: usize,
}

impl<D> Joint<D> {
    /// Passes on the least watermark of the branches that count, and whether any does.
    fn advance<T: Data>(&mut self) -> Result<()>
    where
        D: Op<T>,
    {
        let time = CombinedTime::of(self.branches.iter().map(|b| (b.watermark, b.is_idle)));
        let becomes_idle = time.is_idle && !self.is_idle;
        if self.is_idle && !time.is_idle {
            self.end.signal(&mut Signal::Idle(false))?;
        }
        self.is_idle = time.is_idle;
        if time.watermark > self.watermark {
            self.watermark = time.watermark;
            self.end.signal(&mut Signal::Watermark(time.watermark))?;
        }
        if becomes_idle { self.end.signal(&mut Signal::Idle(true)) } else { Ok(()) }
    }
}

struct Side<D> {
    joint: Rc<RefCell<Joint<D>>>,
    branch: usize,
}

impl<T: Data, D: Op<T>> Op<T> for Side<D> {
    fn batch<S: Feed<T>>(&mut self, feed: S) {
        self.joint.borrow_mut().end.batch(feed);
    }

    fn ready(&mut self, now: Timestamp) -> Readiness {
        self.joint.borrow_mut().end.ready(now)
    }

    fn batch_max(&self) -> usize {
        self.joint.borrow().end.batch_max()
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        let joint = &mut *self.joint.borrow_mut();
        match signal {
            Signal::Watermark(watermark) => {
                joint.branches[self.branch].watermark = *watermark;
                joint.advance::<T>()
            }
            Signal::Idle(is_idle) => {
                joint.branches[self.branch].is_idle = *is_idle;
                joint.advance::<T>()
            }
            Signal::LatencyMarker { .. }
            | Signal::Flush
            | Signal::EmitWatermark { .. }
            | Signal::EndOfDataTaken(_)
            | Signal::Flushed(_) => joint.end.signal(signal),
            // The task sends these to all its heads in turn: the last one to come through takes it on.
            Signal::Barrier(_)
            | Signal::Snapshot(_)
            | Signal::Complete(_)
            | Signal::Aborted(..)
            | Signal::QuiesceTimers
            | Signal::Finish { .. }
            | Signal::EndOfData { .. }
            | Signal::EndOfPartition => {
                joint.arrived += 1;
                if joint.arrived < joint.branches.len() {
                    return Ok(());
                }
                joint.arrived = 0;
                joint.end.signal(signal)
            }
        }
    }
}
