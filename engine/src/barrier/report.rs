//! The figures of one checkpoint's alignment at one task.

use std::time::Duration;

use crate::channel::event::Barrier;
use crate::clock::Timestamp;
use crate::id::CheckpointId;

/// How the alignment of one checkpoint went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AlignmentReport {
    /// Which checkpoint.
    pub checkpoint: CheckpointId,
    /// From the trigger to the first barrier here.
    pub start_delay: Duration,
    /// From the first barrier to the last.
    pub alignment: Duration,
    /// Bytes handed to the operators meanwhile.
    pub bytes_processed: u64,
    /// Bytes captured as channel state.
    pub bytes_persisted: u64,
}

impl AlignmentReport {
    /// Whether it counts as unaligned: something in flight became part of it, whatever its options said.
    pub fn unaligned(&self) -> bool {
        self.bytes_persisted > 0
    }
}

/// Runs while barriers are coming in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct AlignmentClock {
    began: Option<Timestamp>,
    ended: bool,
    report: AlignmentReport,
}

impl AlignmentClock {
    pub(super) fn new(checkpoint: CheckpointId) -> Self {
        let report = AlignmentReport {
            checkpoint,
            start_delay: Duration::ZERO,
            alignment: Duration::ZERO,
            bytes_processed: 0,
            bytes_persisted: 0,
        };
        Self { began: None, ended: false, report }
    }

    /// The first barrier, or what counts as one, is here.
    pub(super) fn begin(&mut self, now: Timestamp, barrier: &Barrier) {
        if self.began.is_none() {
            self.began = Some(now);
            self.report.start_delay = now.since(barrier.timestamp);
        }
    }

    /// The last one is here.
    pub(super) fn end(&mut self, now: Timestamp) {
        let began = self.began.expect("the last barrier is also the first or comes after it");
        self.report.alignment = now.since(began);
        self.ended = true;
    }

    pub(super) fn processed(&mut self, bytes: u64) {
        if self.is_running() {
            self.report.bytes_processed += bytes;
        }
    }

    pub(super) fn captured(&mut self, checkpoint: CheckpointId, bytes: u64) {
        if self.report.checkpoint == checkpoint {
            self.report.bytes_persisted += bytes;
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.began.is_some() && !self.ended
    }

    pub(super) fn report(&self) -> AlignmentReport {
        self.report
    }
}
