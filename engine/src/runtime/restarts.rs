//! Whether and when a failed job is started again.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::config::{RestartStrategy, RestartType};

/// Counts failures by the configured strategy. The first restart has no delay.
#[derive(Clone, Debug)]
pub(super) struct Restarts {
    strategy: RestartStrategy,
    /// Restarts since the beginning, or since the delay was reset.
    restarts: u32,
    recent: Vec<Timestamp>,
    last: Option<Timestamp>,
    backoff: Duration,
}

impl Restarts {
    pub(super) fn new(strategy: RestartStrategy) -> Self {
        let backoff = strategy.exponential_initial;
        Self { strategy, restarts: 0, recent: Vec::new(), last: None, backoff }
    }

    /// The delay before the next restart; `None` if there is none.
    pub(super) fn failed(&mut self, now: Timestamp) -> Option<Duration> {
        let is_first = self.restarts == 0;
        self.restarts += 1;
        let quiet = self.last.map(|last| now.since(last));
        self.last = Some(now);
        let strategy = &self.strategy;
        let delay = match strategy.kind {
            RestartType::None => return None,
            RestartType::FixedDelay => {
                if self.restarts > strategy.fixed_delay_attempts {
                    return None;
                }
                strategy.fixed_delay_delay
            }
            RestartType::FailureRate => {
                let interval = strategy.failure_rate_interval;
                self.recent.retain(|at| now.since(*at) < interval);
                self.recent.push(now);
                if self.recent.len() > strategy.failure_rate_max_failures as usize {
                    return None;
                }
                strategy.failure_rate_delay
            }
            RestartType::ExponentialDelay => {
                if quiet.is_some_and(|quiet| quiet >= strategy.exponential_reset) {
                    self.restarts = 1;
                    self.backoff = strategy.exponential_initial;
                }
                if strategy.exponential_attempts.is_some_and(|most| self.restarts > most) {
                    return None;
                }
                let delay = self.backoff;
                if !is_first {
                    let grown = self.backoff.mul_f64(strategy.exponential_multiplier);
                    self.backoff = grown.min(strategy.exponential_max);
                }
                delay
            }
        };
        Some(if is_first { Duration::ZERO } else { delay })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_restart_has_no_delay_and_later_ones_grow() {
        let mut restarts = Restarts::new(RestartStrategy::default());
        let delays: Vec<_> =
            (0..4).map(|n| restarts.failed(Timestamp::from_millis(n)).expect("always")).collect();
        assert_eq!(delays[0], Duration::ZERO);
        assert_eq!(delays[1], Duration::from_secs(1));
        assert!(delays[2] > delays[1] && delays[3] > delays[2]);
    }

    #[test]
    fn a_fixed_number_of_restarts_is_not_exceeded() {
        let strategy = RestartStrategy {
            kind: RestartType::FixedDelay,
            fixed_delay_attempts: 2,
            ..RestartStrategy::default()
        };
        let mut restarts = Restarts::new(strategy);
        assert_eq!(restarts.failed(Timestamp::ZERO), Some(Duration::ZERO));
        assert_eq!(restarts.failed(Timestamp::ZERO), Some(Duration::from_secs(1)));
        assert_eq!(restarts.failed(Timestamp::ZERO), None);
    }
}
