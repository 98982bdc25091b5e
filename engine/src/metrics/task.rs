//! The counters of one task: its worker alone writes them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::latency::{LatencyHistogram, LatencySnapshot};

/// Counters of one task, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct TaskMetrics {
    records_in: AtomicU64,
    bytes_in: AtomicU64,
    buffers_in: AtomicU64,
    busy_nanos: AtomicU64,
    late_records: AtomicU64,
    snapshot_steps: LatencyHistogram,
    latency: LatencyHistogram,
}

/// What [`TaskMetrics`] had counted at some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskFigures {
    /// Records taken from inputs.
    pub records_in: u64,
    /// Bytes taken from channels.
    pub bytes_in: u64,
    /// Buffers taken from channels.
    pub buffers_in: u64,
    /// Time in steps that did something.
    pub busy: Duration,
    /// Records dropped because their windows had closed.
    pub late_records: u64,
}

/// A relaxed addition by the only writer: no locked instruction.
fn bump(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed) + n, Relaxed);
}

impl TaskMetrics {
    pub(crate) fn took_records(&self, records: u64) {
        bump(&self.records_in, records);
    }

    pub(crate) fn took_buffer(&self, bytes: u64) {
        bump(&self.bytes_in, bytes);
        bump(&self.buffers_in, 1);
    }

    pub(crate) fn was_busy(&self, busy: Duration) {
        bump(&self.busy_nanos, u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn dropped_late(&self, records: u64) {
        bump(&self.late_records, records);
    }

    pub(crate) fn latency(&self, latency: Duration) {
        self.latency.record(latency);
    }

    pub(crate) fn snapshot_step(&self, duration: Duration) {
        self.snapshot_steps.record(duration);
    }

    /// What was counted so far.
    pub fn figures(&self) -> TaskFigures {
        TaskFigures {
            records_in: self.records_in.load(Relaxed),
            bytes_in: self.bytes_in.load(Relaxed),
            buffers_in: self.buffers_in.load(Relaxed),
            busy: Duration::from_nanos(self.busy_nanos.load(Relaxed)),
            late_records: self.late_records.load(Relaxed),
        }
    }

    /// Adds the latency markers' durations that sinks of this task saw.
    pub fn add_latency_to(&self, into: &mut LatencySnapshot) {
        self.latency.add_to(into);
    }

    /// Adds the time that each step spent in snapshot code.
    pub fn add_snapshot_steps_to(&self, into: &mut LatencySnapshot) {
        self.snapshot_steps.add_to(into);
    }
}
