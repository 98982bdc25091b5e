//! A histogram of durations that one thread fills while others read.
//!
//! Logarithmic buckets with 32 steps an octave (3 % resolution) from 1 ns to 9 minutes. Recording is a relaxed addition.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Steps in an octave, as a power of two.
const STEP_BITS: u32 = 5;
/// Octaves above the first `1 << STEP_BITS` nanoseconds.
const OCTAVES: u32 = 35;
const BUCKETS: usize = ((OCTAVES + 1) << STEP_BITS) as usize;

/// The histogram.
#[derive(Debug)]
pub struct LatencyHistogram {
    buckets: Box<[AtomicU64]>,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl LatencyHistogram {
    /// Counts a duration.
    pub fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds what was counted so far to `into`, in nanoseconds.
    pub fn add_to(&self, into: &mut LatencySnapshot) {
        for (index, count) in self.buckets.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let recorded = into.0.record_n(lowest(index), count);
                recorded.expect("the histogram grows with the greatest value");
            }
        }
    }
}

/// Durations counted by any number of histograms.
#[derive(Clone, PartialEq)]
pub struct LatencySnapshot(Histogram<u64>);

impl fmt::Debug for LatencySnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencySnapshot")
            .field("count", &self.count())
            .field("median", &self.quantile(0.5))
            .field("max", &self.max())
            .finish()
    }
}

impl Default for LatencySnapshot {
    fn default() -> Self {
        Self(Histogram::new(3).expect("three digits are a valid precision"))
    }
}

impl LatencySnapshot {
    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The duration that the given share (0 to 1) did not exceed; zero if nothing was counted.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share))
    }

    /// The longest; zero if nothing was counted.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }
}

fn bucket(nanos: u64) -> usize {
    let octave = (63 - (nanos | 1).leading_zeros()).saturating_sub(STEP_BITS - 1);
    if octave == 0 {
        return nanos as usize;
    }
    let octave = octave.min(OCTAVES);
    let step = (nanos >> (octave - 1)).min((2 << STEP_BITS) - 1) as usize;
    ((octave as usize) << STEP_BITS) + step - (1 << STEP_BITS)
}

fn lowest(index: usize) -> u64 {
    let octave = index >> STEP_BITS;
    if octave == 0 {
        return index as u64;
    }
    let step = (index & ((1 << STEP_BITS) - 1)) + (1 << STEP_BITS);
    (step as u64) << (octave - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_values_within_four_percent() {
        for nanos in
            (0..70).chain((6..39).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 7]))
        {
            let low = lowest(bucket(nanos));
            assert!(low <= nanos && nanos - low <= nanos / 31, "{nanos}: {low}");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles_come_out_as_counted() {
        let histogram = LatencyHistogram::default();
        for micros in 1..=100 {
            histogram.record(Duration::from_micros(micros));
        }
        let mut all = LatencySnapshot::default();
        histogram.add_to(&mut all);
        assert_eq!(all.count(), 100);
        let p50 = all.quantile(0.5).as_nanos();
        assert!((48_000..=51_000).contains(&p50), "{p50}");
    }
}
