//! When the interval asks for the next checkpoint.
//!
//! Fixed rate: each planned time is the previous one plus the interval, however late the previous
//! was served; missed ones are skipped. The first is a random time after the start, so that jobs
//! don't move in step.

use std::time::Duration;

use crate::clock::Timestamp;

/// The periodic schedule of one job.
#[derive(Clone, Debug, Hash)]
pub struct Schedule {
    /// None: never.
    interval: Option<Duration>,
    min_pause: Duration,
    /// Decides the first delay.
    random: u64,
    next: Option<Timestamp>,
}

impl Schedule {
    /// A schedule that is off. `random` decides the first delay, in [min_pause, interval].
    pub fn new(interval: Option<Duration>, min_pause: Duration, random: u64) -> Self {
        let interval =
            interval.map(|interval| interval.max(min_pause).max(Duration::from_nanos(1)));
        Self { interval, min_pause, random, next: None }
    }

    /// Switches it on.
    pub fn start(&mut self, now: Timestamp) {
        let Some(interval) = self.interval else { return };
        let range = interval.saturating_sub(self.min_pause).as_nanos() + 1;
        let extra = u64::try_from(u128::from(self.random) % range).unwrap_or(u64::MAX);
        let delay = self.min_pause.saturating_add(Duration::from_nanos(extra));
        // Not at this very moment: what is due is served with the next input.
        self.next = Some(now.saturating_add(delay.max(Duration::from_nanos(1))));
    }

    /// Switches it off.
    pub fn stop(&mut self) {
        self.next = None;
    }

    /// It is on.
    pub fn is_on(&self) -> bool {
        self.next.is_some()
    }

    /// The next planned time.
    pub fn next(&self) -> Option<Timestamp> {
        self.next
    }

    /// True once for each planned time that has come.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        let (Some(next), Some(interval)) = (self.next, self.interval) else { return false };
        if next > now {
            return false;
        }
        let missed = now.since(next).as_nanos() / interval.as_nanos();
        let steps = u32::try_from(missed + 1).unwrap_or(u32::MAX);
        self.next = Some(next.saturating_add(interval.saturating_mul(steps)));
        true
    }

    /// The planned time that came was too early: the next is `at`.
    pub fn postpone(&mut self, at: Timestamp) {
        if self.is_on() {
            self.next = Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_delay_is_random_and_then_the_rate_is_fixed() {
        let seconds = Duration::from_secs;
        let mut schedule = Schedule::new(Some(seconds(10)), seconds(2), 3_000_000_000);
        schedule.start(Timestamp::ZERO);
        assert_eq!(schedule.next(), Some(Timestamp::from_millis(5_000)));
        assert!(!schedule.is_due(Timestamp::from_millis(4_999)));
        assert!(schedule.is_due(Timestamp::from_millis(5_700)));
        assert_eq!(schedule.next(), Some(Timestamp::from_millis(15_000)));
        assert!(schedule.is_due(Timestamp::from_millis(36_000)), "late: missed ones are skipped");
        assert_eq!(schedule.next(), Some(Timestamp::from_millis(45_000)));
        assert!(!schedule.is_due(Timestamp::from_millis(36_000)));
    }

    #[test]
    fn the_first_delay_lies_between_pause_and_interval() {
        for random in [0, 1, u64::MAX / 3, u64::MAX] {
            let (pause, interval) = (Duration::from_millis(7), Duration::from_millis(9));
            let mut schedule = Schedule::new(Some(interval), pause, random);
            schedule.start(Timestamp::ZERO);
            let delay = schedule.next().map(|at| at.since(Timestamp::ZERO));
            assert!(delay >= Some(pause) && delay <= Some(interval), "{delay:?}");
        }
    }
}
