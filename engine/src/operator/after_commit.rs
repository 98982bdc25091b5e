//! `after_commit`: records that go on when the checkpoint that covers them is complete.
//!
//! What comes between two barriers is kept until the checkpoint of the second one is complete; then it goes on at once, with the
//! watermark that came behind it. Until then it is part of every checkpoint. What a restored checkpoint holds goes on before
//! anything else: that checkpoint is complete, and what went on after it is in none of the states behind.
//!
//! The task delays its end of data until the last records are out, and barriers don't overtake on its outputs: a consumer must
//! have read what a commit emits before the next checkpoint can be complete (FLIP-147, final checkpoints of cascaded commits).

use std::collections::VecDeque;
use std::rc::Rc;

use super::boxed::BatchFeed;
use super::{Build, Chain, Op, Signal, Stage};
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::CheckpointId;
use crate::record::batch::Batch;
use crate::record::{Data, Feed};
use crate::sink::Readiness;
use crate::state::part::{PartKind, encode_list};

/// The recipe of an `after_commit`.
#[derive(Clone, Debug)]
pub struct AfterCommit<C> {
    pub(crate) up: C,
    pub(crate) name: String,
}

impl<C: Chain> Chain for AfterCommit<C> {
    type Out = C::Out;

    fn attach<D: Op<C::Out>>(self, down: D, build: &mut Build) -> Result<()> {
        let mut held = VecDeque::new();
        for part in build.restored_parts(&self.name) {
            if part.kind != PartKind::Committables {
                continue;
            }
            for frames in part.list()? {
                let records = Batch::of(frames).map_err(|bad| {
                    let message = format!("the records that were held are damaged: {bad}");
                    Error::new(ErrorKind::Checkpoint, message).in_operator(&self.name)
                })?;
                held.push_back(Held { upto: CheckpointId(0), records, watermark: None });
            }
        }
        let op = AfterCommitOp {
            name: self.name.as_str().into(),
            down,
            is_restored: !held.is_empty(),
            held,
            open: Batch::new(),
            watermark: None,
            is_idle: false,
            was_idle: false,
        };
        self.up.attach(op, build)
    }

    fn describe(&self, stage: &mut Stage) {
        self.up.describe(stage);
        stage.operators.push(format!("after commit '{}'", self.name));
        stage.names.push(self.name.clone());
        stage.has_state = true;
        stage.emits_on_commit += 1;
    }
}

/// Records that wait for one checkpoint.
struct Held<T> {
    upto: CheckpointId,
    records: Batch<T>,
    /// The last watermark that came behind them, ahead of the barrier.
    watermark: Option<EpochMillis>,
}

struct AfterCommitOp<T, D> {
    name: Rc<str>,
    down: D,
    /// Whether what is held was restored: it goes on before anything else happens.
    is_restored: bool,
    /// By checkpoint, the oldest first; none is empty.
    held: VecDeque<Held<T>>,
    /// What came since the last snapshot.
    open: Batch<T>,
    /// The last watermark behind that.
    watermark: Option<EpochMillis>,
    is_idle: bool,
    /// What those behind know of that.
    was_idle: bool,
}

impl<T: Data, D: Op<T>> AfterCommitOp<T, D> {
    fn holds(&self) -> bool {
        !self.held.is_empty() || !self.open.is_empty()
    }

    /// Lets everything held go on that waits for `checkpoint` or an earlier one.
    fn release(&mut self, checkpoint: CheckpointId) -> Result<()> {
        while let Some(held) = self.held.front()
            && held.upto <= checkpoint
        {
            self.down.batch(BatchFeed(&held.records));
            let watermark = held.watermark;
            self.held.pop_front();
            if let Some(watermark) = watermark {
                self.down.signal(&mut Signal::Watermark(watermark))?;
            }
        }
        self.tell_idle()
    }

    fn release_restored(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_restored) { self.release(CheckpointId(0)) } else { Ok(()) }
    }

    /// Closes what is open: it waits for `checkpoint`.
    fn close(&mut self, checkpoint: CheckpointId) {
        if !self.open.is_empty() {
            let records = std::mem::replace(&mut self.open, Batch::new());
            let watermark = self.watermark.take();
            self.held.push_back(Held { upto: checkpoint, records, watermark });
        }
    }

    /// A stream with something held is not idle, whatever its inputs are: its time counts until that is out.
    fn tell_idle(&mut self) -> Result<()> {
        let is_idle = self.is_idle && !self.holds();
        if is_idle == std::mem::replace(&mut self.was_idle, is_idle) {
            return Ok(());
        }
        self.down.signal(&mut Signal::Idle(is_idle))
    }
}

impl<T: Data, D: Op<T>> Op<T> for AfterCommitOp<T, D> {
    fn batch<S: Feed<T>>(&mut self, feed: S) {
        if let Err(error) = self.release_restored() {
            super::fail(error);
        }
        let open = &mut self.open;
        feed.each(|record| open.push(record));
    }

    fn ready(&mut self, now: Timestamp) -> Readiness {
        self.down.ready(now)
    }

    fn batch_max(&self) -> usize {
        self.down.batch_max()
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        self.release_restored()?;
        match signal {
            Signal::Watermark(watermark) if self.holds() => {
                let behind = match self.held.back_mut() {
                    Some(held) if self.open.is_empty() => &mut held.watermark,
                    Some(_) | None => &mut self.watermark,
                };
                // A generator that is asked behind the end of the input may say less than the end did.
                *behind = (*behind).max(Some(*watermark));
                return Ok(());
            }
            Signal::Idle(is_idle) => {
                self.is_idle = *is_idle;
                return self.tell_idle();
            }
            Signal::Snapshot(snapshot) => {
                self.close(snapshot.checkpoint());
                // One item: dealt out on a rescale, a subtask's records stay in order.
                let frames: Vec<u8> =
                    self.held.iter().flat_map(|held| held.records.bytes()).copied().collect();
                let items = (!frames.is_empty()).then_some(frames.as_slice());
                let bytes = encode_list(items.into_iter());
                snapshot.inline(&self.name, PartKind::Committables, "held", bytes);
            }
            Signal::Complete(checkpoint) => self.release(*checkpoint)?,
            Signal::Finish { checkpointed: false } => {
                self.close(CheckpointId(0));
                self.release(CheckpointId(u64::MAX))?;
            }
            Signal::Watermark(_)
            | Signal::EmitWatermark { .. }
            | Signal::Flush
            | Signal::Barrier(_)
            | Signal::Aborted(..)
            | Signal::QuiesceTimers
            | Signal::Finish { checkpointed: true }
            | Signal::EndOfData { .. }
            | Signal::EndOfPartition
            | Signal::LatencyMarker { .. }
            | Signal::EndOfDataTaken(_)
            | Signal::Flushed(_) => {}
        }
        self.down.signal(signal)
    }
}

#[cfg(test)]
mod tests {
    use crate::{ErrorKind, Job, sink, source};

    #[test]
    fn what_goes_on_after_a_commit_is_not_committed_in_the_same_task() {
        let job = Job::new("same task");
        let (written, _) = sink::collect();
        job.source("numbers", source::range(0..3)).after_commit("held").sink("written", written);
        let error = job.build().expect_err("a second commit needs an exchange");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("put an exchange between"), "{error}");
    }

    #[test]
    fn without_checkpoints_records_go_on_at_the_end() {
        let job = Job::new("no checkpoints");
        let (written, found) = sink::collect();
        job.source("numbers", source::range(0..300))
            .after_commit("held")
            .rebalance()
            .sink("written", written);
        job.run().expect("the job runs");
        assert_eq!(found.take().len(), 300);
    }
}
