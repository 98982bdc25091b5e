//! Counters that workers bump and others read. Nothing here locks, allocates or reads a clock.

mod latency;
mod task;

pub use latency::{LatencyHistogram, LatencySnapshot};
pub use task::{TaskFigures, TaskMetrics};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter shared between a program and its job: clones count together.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// A counter at 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
