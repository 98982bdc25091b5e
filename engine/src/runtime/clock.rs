//! The process's clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::clock::{EpochMillis, Timestamp};

/// The monotonic clock of one job: all its threads count from one beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    zero: Instant,
    /// What the wall clock showed then.
    wall_at_zero: EpochMillis,
}

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the monotonic clock is read"
    )]
    pub(super) fn new() -> Self {
        Self { zero: Instant::now(), wall_at_zero: Self::wall() }
    }

    #[inline]
    pub(super) fn now(self) -> Timestamp {
        Timestamp::ZERO + self.zero.elapsed()
    }

    /// How long it is until `at`.
    pub(super) fn until(self, at: Timestamp) -> Duration {
        at.since(self.now())
    }

    /// What the wall clock showed at [`Timestamp::ZERO`]. Tasks count from there: their wall clock never goes back.
    pub(super) fn wall_at_zero(self) -> EpochMillis {
        self.wall_at_zero
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where the wall clock is read")]
    pub(super) fn wall() -> EpochMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        EpochMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
