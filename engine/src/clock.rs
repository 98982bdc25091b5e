//! Time as a value. Machines and tasks are told what time it is; only `runtime` reads a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment on the process's monotonic clock, in nanoseconds since the clock was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment the clock was made.
    pub const ZERO: Self = Self(0);
    /// Later than every moment that comes.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the clock was made.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment `millis` milliseconds after the clock was made.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Nanoseconds since the clock was made.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment plus `wait`, at most [`Timestamp::MAX`].
    pub fn saturating_add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        self.saturating_add(wait)
    }
}

impl Sub for Timestamp {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// A moment of the wall clock or of event time: milliseconds since 1970-01-01T00:00:00Z, negative before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EpochMillis(pub i64);

impl EpochMillis {
    /// Earlier than every event: the watermark before anything is known.
    pub const MIN: Self = Self(i64::MIN);
    /// Later than every event: the watermark at the end of a finite input.
    pub const MAX: Self = Self(i64::MAX);

    /// What the wall clock shows at `at`, if this is what it showed at [`Timestamp::ZERO`].
    pub const fn wall(self, at: Timestamp) -> Self {
        Self(self.0.saturating_add_unsigned(at.0 / 1_000_000))
    }

    /// When the wall clock shows this moment, if `zero` is what it showed at [`Timestamp::ZERO`].
    pub const fn moment(self, zero: Self) -> Timestamp {
        let wait = self.0.saturating_sub(zero.0);
        if wait <= 0 {
            return Timestamp::ZERO;
        }
        Timestamp(wait.cast_unsigned().saturating_mul(1_000_000))
    }
}

impl fmt::Display for EpochMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MIN => f.write_str("MIN"),
            Self::MAX => f.write_str("MAX"),
            Self(ms) => write!(f, "{ms}ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_shows_a_moment_from_its_timestamp_on_and_not_before() {
        let zero = EpochMillis(1_000_000);
        let at = EpochMillis(1_000_250);
        let moment = at.moment(zero);
        assert_eq!(zero.wall(moment), at);
        let before = Timestamp::from_nanos(moment.as_nanos() - 1);
        assert_eq!(zero.wall(before), EpochMillis(1_000_249));
        assert_eq!(EpochMillis::MIN.moment(zero), Timestamp::ZERO);
        assert_eq!(EpochMillis::MAX.moment(EpochMillis(-5)), Timestamp::MAX);
    }
}
