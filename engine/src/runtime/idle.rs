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

/// How long a worker has been without work, in rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ladder {
    spins: u32,
    yields: u32,
    rounds: u32,
}

impl Ladder {
    /// `is_crowded`: there are more threads than CPUs, so a spinning one keeps another from running.
    pub(super) fn new(strategy: IdleStrategy, is_crowded: bool) -> Self {
        let (spins, yields) = match strategy {
            // A crowded spinner yields: it still never sleeps.
            IdleStrategy::Spin if is_crowded => (0, u32::MAX),
            IdleStrategy::Spin => (u32::MAX, 0),
            IdleStrategy::Backoff if is_crowded => (0, 4),
            // About 10 µs, the cost of being woken, then a few system calls.
            IdleStrategy::Backoff => (200, 20),
            IdleStrategy::Park => (0, 0),
        };
        Self { spins, yields, rounds: 0 }
    }

    pub(super) fn was_busy(&mut self) {
        self.rounds = 0;
    }

    pub(super) fn next(&mut self) -> Rest {
        let round = self.rounds;
        self.rounds = self.rounds.saturating_add(1);
        if round < self.spins {
            Rest::Spin
        } else if round < self.spins.saturating_add(self.yields) {
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
    fn a_crowded_worker_never_spins_and_a_parking_one_parks_at_once() {
        let mut crowded = Ladder::new(IdleStrategy::Backoff, true);
        assert!((0..100).all(|_| crowded.next() != Rest::Spin));
        assert_eq!(crowded.next(), Rest::Park);
        assert_eq!(Ladder::new(IdleStrategy::Park, false).next(), Rest::Park);
        let mut spinner = Ladder::new(IdleStrategy::Spin, true);
        assert!((0..1000).all(|_| spinner.next() == Rest::Yield));
    }
}
