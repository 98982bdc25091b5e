//! The end that writes to a sink.

use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use super::chain::RetractSink;
use super::op::{Op, Signal, fail};
use super::{Build, End, Stage};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::CheckpointId;
use crate::metrics::TaskMetrics;
use crate::probe::{Fault, is_broken};
use crate::record::{Data, Feed};
use crate::sink::{Committable, Readiness, Sink, Writer, WriterContext};
use crate::state::part::{PartKind, encode_list};

/// The recipe of a chain's end in a sink.
#[derive(Clone, Debug)]
pub struct IntoSink<K> {
    pub(crate) name: String,
    pub(crate) sink: K,
}

impl<T: Data, K: Sink<T>> End<T> for IntoSink<K> {
    type Op = SinkOp<K::Writer>;

    fn make(self, build: &mut Build) -> Result<Self::Op> {
        let mut prepared = Vec::new();
        for part in build.restored_parts(&self.name) {
            if part.kind == PartKind::Committables {
                prepared.extend(part.list()?.into_iter().map(Committable));
            }
        }
        if is_broken(Fault::PreparedNotCommitted) {
            prepared.clear();
        }
        let context = WriterContext {
            name: &self.name,
            subtask: build.subtask(),
            parallelism: build.parallelism,
            attempt: build.attempt.attempt,
            restored: build.restored_checkpoint(),
        };
        let writer =
            self.sink.open(prepared, context).map_err(|error| error.in_operator(&self.name))?;
        let metrics = build.metrics.clone();
        Ok(SinkOp { name: self.name.into(), writer, pending: Vec::new(), metrics })
    }

    fn describe(&self, stage: &mut Stage) {
        let (sink, name) = (Mutex::new(self.sink.clone()), self.name.clone());
        let check = move || {
            let sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            sink.check().map_err(|error| error.in_operator(&name))
        };
        stage.checks.push((self.name.clone(), Arc::new(check)));
        stage.names.push(self.name.clone());
        stage.operators.push(format!("sink '{}'", self.name));
        if K::Writer::COMMITS {
            let (sink, name) = (Mutex::new(self.sink.clone()), self.name.clone());
            let retract: RetractSink = Arc::new(move |after| {
                let sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                sink.retract(after).map_err(|error| error.in_operator(&name))
            });
            stage.retracts.push((self.name.clone(), K::RETRACTS.then_some(retract)));
            stage.has_state = true;
            stage.commits = true;
        }
    }
}

/// A sink at run time.
#[derive(Debug)]
pub struct SinkOp<W> {
    name: Rc<str>,
    writer: W,
    /// What was prepared and is not committed, by checkpoint: part of each later checkpoint too, since the notice of
    /// an earlier one may get lost.
    pending: Vec<(CheckpointId, Vec<Committable>)>,
    metrics: Arc<TaskMetrics>,
}

impl<T: Data, W: Writer<T>> Op<T> for SinkOp<W> {
    #[inline(always)]
    fn batch<S: Feed<T>>(&mut self, feed: S) {
        if let Err(error) = self.writer.batch(feed) {
            fail(error.in_operator(&*self.name));
        }
    }

    #[inline]
    fn ready(&mut self, now: Timestamp) -> Readiness {
        if W::MAY_BE_BUSY { self.writer.ready(now) } else { Readiness::Ready }
    }

    fn batch_max(&self) -> usize {
        if W::MAY_BE_BUSY { 1 } else { usize::MAX }
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        match signal {
            Signal::Flush => self.writer.flush(),
            Signal::Snapshot(snapshot) => {
                let checkpoint = snapshot.checkpoint();
                self.writer.prepare(checkpoint).map(|prepared| {
                    if is_broken(Fault::PreparedForgotten) {
                        self.pending.clear();
                    }
                    if !prepared.is_empty() {
                        self.pending.push((checkpoint, prepared));
                    }
                    let all = self.pending.iter().flat_map(|(_, prepared)| prepared);
                    let bytes = encode_list(all.map(|committable| committable.0.as_slice()));
                    snapshot.inline(&self.name, PartKind::Committables, "prepared", bytes);
                })
            }
            Signal::Complete(checkpoint) => {
                self.pending.retain(|(prepared, _)| *prepared > *checkpoint);
                self.writer.commit(*checkpoint)
            }
            Signal::Finish { checkpointed } => self.writer.finish(*checkpointed),
            Signal::LatencyMarker { emitted_at, now, .. } => {
                self.metrics.latency(now.since(*emitted_at));
                Ok(())
            }
            Signal::Watermark(_)
            | Signal::EmitWatermark { .. }
            | Signal::Idle(_)
            | Signal::Barrier(_)
            | Signal::Aborted(..)
            | Signal::QuiesceTimers
            | Signal::EndOfData { .. }
            | Signal::EndOfDataTaken(_)
            | Signal::Flushed(_)
            | Signal::EndOfPartition => Ok(()),
        }
        .map_err(|error| error.in_operator(&*self.name))
    }
}
