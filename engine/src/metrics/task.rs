//! The counters of one task: its worker alone writes them.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::latency::{LatencyHistogram, LatencySnapshot};
use crate::clock::EpochMillis;

/// Counters of one task, on cache lines of their own.
#[derive(Debug)]
#[repr(align(128))]
pub struct TaskMetrics {
    records_in: AtomicU64,
    bytes_in: AtomicU64,
    buffers_in: AtomicU64,
    busy_nanos: AtomicU64,
    idle_nanos: AtomicU64,
    back_pressured_nanos: AtomicU64,
    late_records: AtomicU64,
    queued: AtomicU64,
    watermark: AtomicI64,
    snapshot_steps: LatencyHistogram,
    latency: LatencyHistogram,
}

impl Default for TaskMetrics {
    fn default() -> Self {
        Self {
            records_in: AtomicU64::default(),
            bytes_in: AtomicU64::default(),
            buffers_in: AtomicU64::default(),
            busy_nanos: AtomicU64::default(),
            idle_nanos: AtomicU64::default(),
            back_pressured_nanos: AtomicU64::default(),
            late_records: AtomicU64::default(),
            queued: AtomicU64::default(),
            watermark: AtomicI64::new(EpochMillis::MIN.0),
            snapshot_steps: LatencyHistogram::default(),
            latency: LatencyHistogram::default(),
        }
    }
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
    /// Time in which it had nothing to do.
    pub idle: Duration,
    /// Time in which it had something to do, and no room for what would come of it.
    pub back_pressured: Duration,
    /// Records dropped because their windows had closed.
    pub late_records: u64,
    /// Entries that waited in its channels, when it looked last: several times a second.
    pub queued: u64,
    /// The lowest watermark of its inputs that come from other tasks; none before the first and after the last.
    pub watermark: Option<EpochMillis>,
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

    pub(crate) fn was_idle(&self, idle: Duration) {
        bump(&self.idle_nanos, u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn was_back_pressured(&self, waited: Duration) {
        bump(&self.back_pressured_nanos, u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn queue(&self, entries: u64) {
        self.queued.store(entries, Relaxed);
    }

    pub(crate) fn watermark(&self, watermark: EpochMillis) {
        self.watermark.store(watermark.0, Relaxed);
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
            idle: Duration::from_nanos(self.idle_nanos.load(Relaxed)),
            back_pressured: Duration::from_nanos(self.back_pressured_nanos.load(Relaxed)),
            late_records: self.late_records.load(Relaxed),
            queued: self.queued.load(Relaxed),
            watermark: Some(EpochMillis(self.watermark.load(Relaxed)))
                .filter(|at| *at != EpochMillis::MIN && *at != EpochMillis::MAX),
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
