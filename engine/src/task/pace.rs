//! How many records a batch has: so many that it takes about 20 µs, so that a task is back at its mailbox soon.

use std::time::Duration;

/// The most records of a batch: bounds what is emitted after an output has become full.
pub(super) const BATCH_MAX: usize = 256;
const TARGET: Duration = Duration::from_micros(20);

/// Adapts the size of batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    batch: usize,
    max: usize,
}

impl Pace {
    /// Batches of at most `max` records.
    pub(super) fn new(max: usize) -> Self {
        let max = max.clamp(1, BATCH_MAX);
        Self { batch: max.min(16), max }
    }

    /// How many records the next batch may have.
    #[inline]
    pub(super) fn batch(self) -> usize {
        self.batch
    }

    /// Whether batches are so quick that one clock reading for several is enough.
    #[inline]
    pub(super) fn is_quick(self) -> bool {
        self.batch == self.max && self.max > 1
    }

    /// `batches` batches took that long together.
    pub(super) fn took(&mut self, elapsed: Duration, batches: u32) {
        let each = elapsed / batches.max(1);
        if each > 2 * TARGET {
            let shrunk = self.batch as u128 * TARGET.as_nanos() / each.as_nanos();
            self.batch = usize::try_from(shrunk).unwrap_or(1).max(1);
        } else if each < TARGET {
            self.batch = (self.batch * 2).min(self.max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_records_bring_a_batch_down_to_one_and_quick_ones_back_up() {
        let mut pace = Pace::new(usize::MAX);
        for _ in 0..8 {
            pace.took(Duration::from_nanos(300), 1);
        }
        assert_eq!(pace.batch(), BATCH_MAX);
        pace.took(Duration::from_millis(256), 1);
        assert_eq!(pace.batch(), 1);
        pace.took(Duration::from_micros(30), 1);
        assert_eq!(pace.batch(), 1);
        pace.took(Duration::from_micros(1), 1);
        assert_eq!(pace.batch(), 2);
        assert_eq!(Pace::new(1).batch(), 1);
    }
}
