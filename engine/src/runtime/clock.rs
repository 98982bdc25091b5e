//! The process's clocks.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::clock::{EpochMillis, Timestamp};

/// The monotonic clock of one job: all its threads count from one beginning.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// The machine's.
    Real {
        /// When it was made.
        zero: Instant,
        /// What the wall clock showed then.
        wall_at_zero: EpochMillis,
    },
    /// The one that a simulation sets; it is the thread's.
    #[cfg(feature = "simulation")]
    Virtual,
}

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the monotonic clock is read"
    )]
    pub(super) fn new() -> Self {
        #[cfg(feature = "simulation")]
        if virtual_clock::get().is_some() {
            return Self::Virtual;
        }
        Self::Real { zero: Instant::now(), wall_at_zero: Self::wall() }
    }

    #[inline]
    pub(super) fn now(self) -> Timestamp {
        match self {
            Self::Real { zero, .. } => Timestamp::ZERO + zero.elapsed(),
            #[cfg(feature = "simulation")]
            Self::Virtual => virtual_clock::get().unwrap_or_default(),
        }
    }

    /// Nanoseconds since some moment of the process: for differences.
    pub(super) fn nanos() -> u64 {
        static ZERO: LazyLock<Clock> = LazyLock::new(Clock::new);
        ZERO.now().as_nanos()
    }

    /// How long it is until `at`.
    pub(super) fn until(self, at: Timestamp) -> Duration {
        at.since(self.now())
    }

    /// What the wall clock showed at [`Timestamp::ZERO`]. Tasks count from there: their wall clock never goes back.
    pub(super) fn wall_at_zero(self) -> EpochMillis {
        match self {
            Self::Real { wall_at_zero, .. } => wall_at_zero,
            #[cfg(feature = "simulation")]
            Self::Virtual => EpochMillis(0),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where the wall clock is read")]
    pub(super) fn wall() -> EpochMillis {
        #[cfg(feature = "simulation")]
        if let Some(now) = virtual_clock::get() {
            return EpochMillis((now.as_nanos() / 1_000_000) as i64);
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        EpochMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// A number that spreads what many jobs do for the first time; need not be unpredictable.
    pub(super) fn spread(self) -> u64 {
        let seed = match self {
            Self::Real { .. } => u64::from(std::process::id()),
            #[cfg(feature = "simulation")]
            Self::Virtual => self.now().as_nanos(),
        };
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

/// The clock of simulations on this thread.
#[cfg(feature = "simulation")]
pub(super) mod virtual_clock {
    use std::cell::Cell;

    use crate::clock::Timestamp;

    thread_local! {
        static NOW: Cell<Option<Timestamp>> = const { Cell::new(None) };
    }

    pub(in crate::runtime) fn get() -> Option<Timestamp> {
        NOW.get()
    }

    /// Sets the clock that jobs of this thread are made with from here on, or goes back to the machine's.
    pub fn set_clock(now: Option<Timestamp>) {
        NOW.set(now);
    }
}
