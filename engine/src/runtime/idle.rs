//! What a worker without work does: spin, yield, park.

use crate::config::IdleStrategy;

/// One step down the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Look again at once.
    Spin,
    /// Let other threads run and look again.
    Yield,
    /// Sleep until woken.
    Park,
}

/// How long a worker has been without work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ladder {
    spin_nanos: u64,
    yields: u32,
    /// When work was lacking first.
    since: Option<u64>,
    yielded: u32,
}

impl Ladder {
    /// `is_crowded`: there are more threads than CPUs, so a spinning one keeps another from running.
    pub(super) fn new(strategy: IdleStrategy, is_crowded: bool) -> Self {
        let (spin_nanos, yields) = match strategy {
            // A crowded spinner yields: it still never sleeps.
            IdleStrategy::Spin if is_crowded => (0, u32::MAX),
            IdleStrategy::Spin => (u64::MAX, 0),
            IdleStrategy::Backoff if is_crowded => (0, 4),
            // The cost of being woken, then a few system calls. Not counted in rounds: those of many tasks are long, and a worker
            // that is due every 100 us would never sleep, nor leave its CPU to the writer of snapshots (bench `checkpoint`).
            IdleStrategy::Backoff => (10_000, 20),
            IdleStrategy::Park => (0, 0),
        };
        Self { spin_nanos, yields, since: None, yielded: 0 }
    }

    pub(super) fn was_busy(&mut self) {
        (self.since, self.yielded) = (None, 0);
    }

    /// What to do at the moment `now`, in nanoseconds.
    pub(super) fn next(&mut self, now: u64) -> Rest {
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) < self.spin_nanos {
            Rest::Spin
        } else if self.yielded < self.yields {
            self.yielded = self.yielded.saturating_add(1);
            Rest::Yield
        } else {
            Rest::Park
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_spins_for_a_time_then_yields_then_parks_and_begins_again_after_work() {
        let mut ladder = Ladder::new(IdleStrategy::Backoff, false);
        for from in [0, 1_000_000] {
            assert_eq!(ladder.next(from), Rest::Spin);
            assert_eq!(ladder.next(from + 9_999), Rest::Spin);
            assert!((0..20).all(|_| ladder.next(from + 10_000) == Rest::Yield));
            assert_eq!(ladder.next(from + 10_000), Rest::Park);
            ladder.was_busy();
        }
    }

    #[test]
    fn a_crowded_worker_never_spins_and_a_parking_one_parks_at_once() {
        let mut crowded = Ladder::new(IdleStrategy::Backoff, true);
        assert!((0..100).all(|now| crowded.next(now) != Rest::Spin));
        assert_eq!(crowded.next(100), Rest::Park);
        assert_eq!(Ladder::new(IdleStrategy::Park, false).next(0), Rest::Park);
        let mut spinner = Ladder::new(IdleStrategy::Spin, true);
        assert!((0..1000).all(|now| spinner.next(now) == Rest::Yield));
        let mut spinner = Ladder::new(IdleStrategy::Spin, false);
        assert!((0..1000).all(|now| spinner.next(now * 1_000_000) == Rest::Spin));
    }
}
