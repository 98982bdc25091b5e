//! The producer's side of an exchange: ends that spread records over the subtasks behind an edge.

use std::marker::PhantomData;

use super::key::KeyFn;
use super::{Build, EdgeKind, End, Op, Signal, Stage};
use crate::channel::partition::ResultPartition;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::record::key::hash;
use crate::record::key_group::KeyGroups;
use crate::record::{Data, Feed};
use crate::sink::Readiness;

/// By the key's hash: key group, then the subtask that owns it.
#[derive(Clone, Debug)]
pub struct PartitionByKey<F> {
    pub(crate) edge: usize,
    pub(crate) key: F,
}

impl<T: Data, F: KeyFn<T>> End<T> for PartitionByKey<F> {
    type Op = PartitionByKeyOp<T, F>;

    fn make(self, build: &mut Build) -> Result<Self::Op> {
        let out = build.output(self.edge)?;
        Ok(PartitionByKeyOp { key: self.key, out, key_groups: build.key_groups, of: PhantomData })
    }

    fn describe(&self, stage: &mut Stage) {
        stage.writes.push((self.edge, EdgeKind::Keyed));
    }
}

/// The operator of [`PartitionByKey`].
#[derive(Debug)]
pub struct PartitionByKeyOp<T, F> {
    key: F,
    out: ResultPartition,
    key_groups: KeyGroups,
    of: PhantomData<fn() -> T>,
}

/// What the three ends have in common.
macro_rules! result_partition {
    () => {
        #[inline]
        fn ready(&mut self, _: Timestamp) -> Readiness {
            if self.out.is_ready() { Readiness::Ready } else { Readiness::Busy(Timestamp::MAX) }
        }

        fn batch_max(&self) -> usize {
            usize::MAX
        }

        fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
            match signal {
                Signal::EndOfDataTaken(taken) => **taken &= self.out.is_end_of_data_taken(),
                Signal::Flushed(flushed) => **flushed &= self.out.is_flushed(),
                Signal::Watermark(watermark) => self.out.watermark(*watermark),
                Signal::Idle(is_idle) => self.out.idle(*is_idle),
                Signal::Flush => self.out.flush(),
                Signal::Barrier(barrier) => self.out.barrier(*barrier),
                Signal::Aborted(checkpoint, true) => self.out.cancel(*checkpoint),
                Signal::EndOfData { drain } => self.out.end_of_data(*drain),
                Signal::EndOfPartition => self.out.end_of_partition(),
                Signal::LatencyMarker { emitted_at, source, .. } => {
                    self.out.latency_marker(*emitted_at, *source);
                }
                Signal::EmitWatermark { .. }
                | Signal::Snapshot(_)
                | Signal::Complete(_)
                | Signal::Aborted(_, false)
                | Signal::QuiesceTimers
                | Signal::Finish { .. } => {}
            }
            Ok(())
        }
    };
}

impl<T: Data, F: KeyFn<T>> Op<T> for PartitionByKeyOp<T, F> {
    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, feed: S) {
        let Self { key, out, key_groups, .. } = self;
        let parallelism = out.len() as u32;
        if parallelism == 1 {
            feed.each(|record| {
                let hash = key.with(record, hash::<F::Key>);
                out.write::<T>(0, hash, record);
            });
            return;
        }
        feed.each(|record| {
            let hash = key.with(record, hash::<F::Key>);
            out.write::<T>(key_groups.subtask(hash, parallelism) as usize, hash, record);
        });
    }

    result_partition!();
}

/// In turn: a buffer to each subtask after the other.
#[derive(Clone, Debug)]
pub struct Rebalance {
    pub(crate) edge: usize,
}

impl<T: Data> End<T> for Rebalance {
    type Op = RebalanceOp<T>;

    fn make(self, build: &mut Build) -> Result<Self::Op> {
        let out = build.output(self.edge)?;
        // Producers begin at different subtasks, so that few records still reach all.
        let next = build.subtask() as usize % out.len();
        Ok(RebalanceOp { out, next, of: PhantomData })
    }

    fn describe(&self, stage: &mut Stage) {
        stage.writes.push((self.edge, EdgeKind::Rebalance));
    }
}

/// The operator of [`Rebalance`].
#[derive(Debug)]
pub struct RebalanceOp<T> {
    out: ResultPartition,
    next: usize,
    of: PhantomData<fn() -> T>,
}

impl<T: Data> Op<T> for RebalanceOp<T> {
    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, feed: S) {
        let Self { out, next, .. } = self;
        let len = out.len();
        feed.each(|record| {
            out.write::<T>(*next, 0, record);
            *next = if *next + 1 == len { 0 } else { *next + 1 };
        });
    }

    result_partition!();
}

/// Each record to all.
#[derive(Clone, Debug)]
pub struct Broadcast {
    pub(crate) edge: usize,
}

impl<T: Data> End<T> for Broadcast {
    type Op = BroadcastOp<T>;

    fn make(self, build: &mut Build) -> Result<Self::Op> {
        Ok(BroadcastOp { out: build.output(self.edge)?, of: PhantomData })
    }

    fn describe(&self, stage: &mut Stage) {
        stage.writes.push((self.edge, EdgeKind::Broadcast));
    }
}

/// The operator of [`Broadcast`].
#[derive(Debug)]
pub struct BroadcastOp<T> {
    out: ResultPartition,
    of: PhantomData<fn() -> T>,
}

impl<T: Data> Op<T> for BroadcastOp<T> {
    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, feed: S) {
        let out = &mut self.out;
        feed.each(|record| {
            for subtask in 0..out.len() {
                out.write::<T>(subtask, 0, record);
            }
        });
    }

    result_partition!();
}

/// The consumer's side of an exchange that carries no keys: the recipe of a chain that begins at a gate.
#[derive(Debug)]
pub struct Exchange<T> {
    pub(crate) edge: usize,
    of: PhantomData<fn() -> T>,
}

impl<T> Exchange<T> {
    pub(crate) fn new(edge: usize) -> Self {
        Self { edge, of: PhantomData }
    }
}

impl<T> Clone for Exchange<T> {
    fn clone(&self) -> Self {
        Self::new(self.edge)
    }
}
