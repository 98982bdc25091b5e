//! Whether and when failed tasks run again: the restart strategies.
//!
//! Failures that the control plane caused itself are not told to a strategy. The first restart of a region waits
//! for nothing; the strategy's delays hold from the second on. Randomness (jitter) is an argument. Asked by
//! `control::failover`.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::clock::Timestamp;

/// The strategies, with their options.
#[derive(Clone, Debug, PartialEq)]
pub enum RestartConfig {
    /// The first failure fails the job.
    None,
    /// So many restarts, each after a fixed delay.
    FixedDelay {
        /// How many restarts.
        attempts: u32,
        /// How long each waits.
        delay: Duration,
    },
    /// Restarts as long as failures are rare enough.
    FailureRate {
        /// The most failures in an interval that are forgiven.
        max_failures_per_interval: u32,
        /// The interval.
        interval: Duration,
        /// How long each restart waits.
        delay: Duration,
    },
    /// Restarts that wait longer each time, until the job is stable for a while.
    ExponentialDelay {
        /// The first wait.
        initial_backoff: Duration,
        /// The longest wait.
        max_backoff: Duration,
        /// By what each wait is longer.
        multiplier: f64,
        /// After how long without failure the wait starts over.
        reset_threshold: Duration,
        /// By which share each wait varies, 0 to 1.
        jitter_factor: f64,
        /// After how many restarts without a reset the job fails; `None` never.
        attempts_before_reset: Option<u32>,
    },
}

impl Default for RestartConfig {
    fn default() -> Self {
        Self::ExponentialDelay {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(60),
            multiplier: 1.5,
            reset_threshold: Duration::from_secs(3600),
            jitter_factor: 0.1,
            attempts_before_reset: None,
        }
    }
}

/// What is done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartDecision {
    /// Restart after this wait.
    After(Duration),
    /// The job fails.
    Fail,
}

#[derive(Debug)]
enum State {
    Count(u32),
    Rate(VecDeque<Timestamp>),
    /// Of `attempt` restarts so many were `free`: they waited for nothing, and later ones don't wait longer for them.
    Exponential {
        attempt: u32,
        free: u32,
        next: Option<Timestamp>,
    },
}

/// A restart strategy at work.
#[derive(Debug)]
pub struct RestartStrategy {
    config: RestartConfig,
    state: State,
    /// Until when further failures belong to the restart that is already decided.
    merged_until: Option<Timestamp>,
    restarted_regions: BTreeSet<usize>,
}

impl RestartStrategy {
    /// Nothing has failed yet.
    pub fn new(config: RestartConfig) -> Self {
        let state = match config {
            RestartConfig::None | RestartConfig::FixedDelay { .. } => State::Count(0),
            RestartConfig::FailureRate { .. } => State::Rate(VecDeque::new()),
            RestartConfig::ExponentialDelay { .. } => {
                State::Exponential { attempt: 0, free: 0, next: None }
            }
        };
        Self { config, state, merged_until: None, restarted_regions: BTreeSet::new() }
    }

    /// A failure. `jitter` is a random number from -1 to 1.
    ///
    /// Returns whether it is an attempt of its own; one that falls into the wait of the last is not (FLIP-364).
    pub fn notify_failure(&mut self, now: Timestamp, jitter: f64) -> bool {
        let is_merged = match &self.state {
            State::Exponential { next, .. } => next.is_some_and(|next| now <= next),
            State::Count(_) | State::Rate(_) => self.merged_until.is_some_and(|until| now <= until),
        };
        if is_merged {
            return false;
        }
        match (&mut self.state, &self.config) {
            (State::Rate(times), RestartConfig::FailureRate { max_failures_per_interval, .. }) => {
                times.push_back(now);
                while times.len() > *max_failures_per_interval as usize + 1 {
                    times.pop_front();
                }
            }
            (
                State::Exponential { attempt, free, next },
                RestartConfig::ExponentialDelay {
                    initial_backoff,
                    max_backoff,
                    multiplier,
                    reset_threshold,
                    jitter_factor,
                    ..
                },
            ) => {
                if next.is_some_and(|next| now.since(next) >= *reset_threshold) {
                    (*attempt, *free) = (0, 0);
                }
                let exponent = i32::try_from(*attempt - *free).unwrap_or(i32::MAX);
                let plain = initial_backoff.as_secs_f64() * multiplier.powi(exponent);
                let plain = plain.min(max_backoff.as_secs_f64());
                let varied = plain * (1.0 + jitter_factor * jitter.clamp(-1.0, 1.0));
                let wait = varied.clamp(initial_backoff.as_secs_f64(), max_backoff.as_secs_f64());
                *next = Some(now + Duration::from_secs_f64(wait));
                *attempt = attempt.saturating_add(1);
            }
            (State::Count(count), _) => *count = count.saturating_add(1),
            (State::Rate(_) | State::Exponential { .. }, _) => {}
        }
        self.merged_until = Some(now + self.backoff(now));
        true
    }

    /// Whether the job may restart after the failures so far.
    pub fn can_restart(&self, now: Timestamp) -> bool {
        match (&self.config, &self.state) {
            (RestartConfig::FixedDelay { attempts, .. }, State::Count(count)) => count <= attempts,
            (
                RestartConfig::FailureRate { max_failures_per_interval, interval, .. },
                State::Rate(times),
            ) => {
                let recent = times.iter().filter(|at| now.since(**at) <= *interval).count();
                recent <= *max_failures_per_interval as usize
            }
            (
                RestartConfig::ExponentialDelay { attempts_before_reset, .. },
                State::Exponential { attempt, .. },
            ) => attempts_before_reset.is_none_or(|most| *attempt <= most),
            (
                RestartConfig::None
                | RestartConfig::FixedDelay { .. }
                | RestartConfig::FailureRate { .. }
                | RestartConfig::ExponentialDelay { .. },
                _,
            ) => false,
        }
    }

    /// How long the restart waits.
    pub fn backoff(&self, now: Timestamp) -> Duration {
        match (&self.config, &self.state) {
            (
                RestartConfig::FixedDelay { delay, .. } | RestartConfig::FailureRate { delay, .. },
                _,
            ) => *delay,
            (
                RestartConfig::ExponentialDelay { .. },
                State::Exponential { next: Some(next), .. },
            ) => next.since(now),
            (RestartConfig::None | RestartConfig::ExponentialDelay { .. }, _) => Duration::ZERO,
        }
    }

    /// A failure of a region: counts it and decides. The first restart of a region waits for nothing, so a failure after it is
    /// one of its own, however soon it comes.
    pub fn decide(&mut self, now: Timestamp, region: usize, jitter: f64) -> RestartDecision {
        let is_counted = self.notify_failure(now, jitter);
        if !self.can_restart(now) {
            return RestartDecision::Fail;
        }
        if self.restarted_regions.insert(region) {
            self.merged_until = Some(now);
            if let State::Exponential { free, next, .. } = &mut self.state {
                *free += u32::from(is_counted);
                *next = Some(now);
            }
            return RestartDecision::After(Duration::ZERO);
        }
        RestartDecision::After(self.backoff(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn exponential(attempts: Option<u32>) -> RestartStrategy {
        RestartStrategy::new(RestartConfig::ExponentialDelay {
            initial_backoff: secs(1),
            max_backoff: secs(8),
            multiplier: 2.0,
            reset_threshold: secs(3600),
            jitter_factor: 0.5,
            attempts_before_reset: attempts,
        })
    }

    #[test]
    fn none_never_restarts() {
        let mut strategy = RestartStrategy::new(RestartConfig::None);
        assert_eq!(strategy.decide(at(0), 0, 0.0), RestartDecision::Fail);
    }

    #[test]
    fn fixed_delay_restarts_so_often() {
        let config = RestartConfig::FixedDelay { attempts: 2, delay: secs(1) };
        let mut strategy = RestartStrategy::new(config);
        let decisions = [0, 10, 20].map(|s| strategy.decide(at(s), 0, 0.0));
        let expected = [
            RestartDecision::After(Duration::ZERO),
            RestartDecision::After(secs(1)),
            RestartDecision::Fail,
        ];
        assert_eq!(decisions, expected);
    }

    #[test]
    fn failure_rate_forgives_what_is_long_ago() {
        let config = RestartConfig::FailureRate {
            max_failures_per_interval: 2,
            interval: secs(60),
            delay: secs(1),
        };
        let mut strategy = RestartStrategy::new(config);
        let can = [0, 10, 70, 100, 105].map(|s| {
            strategy.notify_failure(at(s), 0.0);
            strategy.can_restart(at(s))
        });
        assert_eq!(can, [true, true, true, true, false]);
    }

    #[test]
    fn exponential_delay_grows_is_bounded_and_starts_over() {
        let mut strategy = exponential(None);
        let mut now = at(0);
        let mut waits = Vec::new();
        for _ in 0..6 {
            assert!(strategy.notify_failure(now, 0.0));
            waits.push(strategy.backoff(now).as_secs());
            now = now + strategy.backoff(now) + secs(1);
        }
        assert_eq!(waits, [1, 2, 4, 8, 8, 8]);
        now = now + secs(3600);
        strategy.notify_failure(now, 0.0);
        assert_eq!(strategy.backoff(now), secs(1));
    }

    #[test]
    fn jitter_stays_within_its_share_and_the_bounds() {
        for (jitter, expected) in [(-1.0, 1.0), (1.0, 3.0), (0.5, 2.5)] {
            let mut strategy = exponential(None);
            strategy.notify_failure(at(0), 0.0);
            strategy.notify_failure(at(100), jitter);
            assert!((strategy.backoff(at(100)).as_secs_f64() - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn f06_failures_within_one_backoff_are_one_attempt() {
        let mut strategy = exponential(Some(2));
        assert!(strategy.notify_failure(at(0), 0.0));
        for _ in 0..100 {
            assert!(!strategy.notify_failure(at(1), 0.0), "the wait ends at 1 s, inclusive");
        }
        assert!(strategy.can_restart(at(1)));
        assert!(strategy.notify_failure(at(2), 0.0) && strategy.can_restart(at(2)));
        assert!(strategy.notify_failure(at(10), 0.0) && !strategy.can_restart(at(10)));
        let mut fixed =
            RestartStrategy::new(RestartConfig::FixedDelay { attempts: 1, delay: secs(5) });
        assert!(fixed.notify_failure(at(0), 0.0) && !fixed.notify_failure(at(3), 0.0));
        assert!(fixed.can_restart(at(3)));
    }

    #[test]
    fn the_first_restart_of_each_region_waits_for_nothing() {
        let mut strategy = exponential(None);
        assert_eq!(strategy.decide(at(0), 0, 0.0), RestartDecision::After(Duration::ZERO));
        assert_eq!(strategy.decide(at(10), 1, 0.0), RestartDecision::After(Duration::ZERO));
        assert_eq!(strategy.decide(at(20), 0, 0.0), RestartDecision::After(secs(1)));
        assert_eq!(strategy.decide(at(30), 1, 0.0), RestartDecision::After(secs(2)));
    }
    #[test]
    fn a_failure_right_after_a_restart_that_waited_for_nothing_counts() {
        let config = RestartConfig::FixedDelay { attempts: 2, delay: secs(10) };
        let mut strategy = RestartStrategy::new(config);
        let decisions = [0, 1, 12].map(|s| strategy.decide(at(s), 0, 0.0));
        let expected = [
            RestartDecision::After(Duration::ZERO),
            RestartDecision::After(secs(10)),
            RestartDecision::Fail,
        ];
        assert_eq!(decisions, expected);
        let mut strategy = exponential(None);
        let delays = [0, 1].map(|s| strategy.decide(at(s), 0, 0.0));
        assert_eq!(delays, [Duration::ZERO, secs(1)].map(RestartDecision::After));
    }
}
