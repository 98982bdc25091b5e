//! Both clocks at one moment, as a machine is told them.
//!
//! Whatever must happen after a while is computed on the monotonic clock; the wall clock only labels things for
//! people and crosses processes. Used by every control machine whose messages carry wall-clock times.

use std::time::Duration;

use crate::clock::{EpochMillis, Timestamp};

/// What both clocks show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The monotonic clock of this process.
    pub mono: Timestamp,
    /// The wall clock.
    pub wall: EpochMillis,
}

impl Moment {
    /// The moment at which the monotonic clock shows `mono` and the wall clock `wall`.
    pub const fn new(mono: Timestamp, wall: EpochMillis) -> Self {
        Self { mono, wall }
    }

    /// Both clocks at `millis`, for simulations whose clocks agree.
    pub const fn at_millis(millis: u64) -> Self {
        Self { mono: Timestamp::from_millis(millis), wall: EpochMillis(millis as i64) }
    }

    /// When the monotonic clock will show what the wall clock calls `end`; this moment if that has passed.
    pub fn until(self, end: EpochMillis) -> Timestamp {
        if end == EpochMillis::MAX {
            return Timestamp::MAX;
        }
        let millis = u64::try_from(end.0.saturating_sub(self.wall.0)).unwrap_or(0);
        self.mono.saturating_add(Duration::from_millis(millis))
    }

    /// The wall clock `wait` later; [`EpochMillis::MAX`] if that can't be told.
    pub fn wall_after(self, wait: Duration) -> EpochMillis {
        after(self.wall, wait)
    }
}

/// `wait` after `start`, at most [`EpochMillis::MAX`].
pub fn after(start: EpochMillis, wait: Duration) -> EpochMillis {
    EpochMillis(start.0.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX)))
}
