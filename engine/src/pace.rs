//! A fixed rate as a schedule, shared out over subtasks.
//!
//! Record `k` of subtask `w` of `p` is due at `start + (k*p + w) / rate`: the subtasks' records interleave evenly, and
//! the schedule does not shift when somebody is late. What is overdue is caught up at about twice the rate in short
//! bursts instead of all at once. Pure: told the time by sources and sinks.

use std::time::Duration;

use crate::clock::Timestamp;

/// A burst is at most twice what is due in this time.
const WINDOW: Duration = Duration::from_millis(2);
const SECOND: u128 = 1_000_000_000;

/// One subtask's schedule.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    rate: u128,
    subtask: u128,
    parallelism: u128,
    /// When it was first asked.
    start: Option<Timestamp>,
    done: u128,
    /// What was done since the window began.
    window: Timestamp,
    in_window: u128,
    in_window_max: u128,
}

impl Pace {
    /// The share of `subtask` in `rate` records a second over all subtasks; the rate is at least 1.
    pub(crate) fn new(rate: u64, subtask: u32, parallelism: u32) -> Self {
        let (rate, parallelism) = (u128::from(rate.max(1)), u128::from(parallelism.max(1)));
        Self {
            rate,
            subtask: subtask.into(),
            parallelism,
            start: None,
            done: 0,
            window: Timestamp::ZERO,
            in_window: 0,
            in_window_max: (2 * rate * WINDOW.as_nanos()).div_ceil(SECOND * parallelism),
        }
    }

    /// How many records may come, 1 to `limit`; or when to ask again.
    pub(crate) fn due(&mut self, now: Timestamp, limit: usize) -> Result<usize, Timestamp> {
        let start = *self.start.get_or_insert(now);
        let slots = now.since(start).as_nanos() * self.rate / SECOND;
        let due = match slots.checked_sub(self.subtask) {
            Some(slots) => slots / self.parallelism + 1,
            None => 0,
        };
        if due <= self.done {
            let slot = self.done * self.parallelism + self.subtask;
            let nanos = (slot * SECOND).div_ceil(self.rate);
            return Err(start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
        }
        if now.since(self.window) >= WINDOW {
            (self.window, self.in_window) = (now, 0);
        }
        let most = self.in_window_max.saturating_sub(self.in_window);
        if most == 0 {
            return Err(self.window + WINDOW);
        }
        let n = most.min(due - self.done).min(limit.max(1) as u128);
        // At most `limit`, so it fits.
        Ok(n as usize)
    }

    /// Notes that `n` records came.
    pub(crate) fn took(&mut self, n: usize) {
        self.done += n as u128;
        self.in_window += n as u128;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When each of the first records comes if the subtask is asked whenever it may be.
    fn times(mut pace: Pace, start: Timestamp, records: usize) -> Vec<u64> {
        let (mut now, mut times) = (start, Vec::new());
        while times.len() < records {
            match pace.due(now, 256) {
                Ok(n) => {
                    times.extend(std::iter::repeat_n(now.since(start).as_nanos() as u64, n));
                    pace.took(n);
                }
                Err(until) => {
                    assert!(until > now, "time goes on");
                    now = until;
                }
            }
        }
        times
    }

    #[test]
    fn the_records_of_all_subtasks_interleave_evenly() {
        let start = Timestamp::from_millis(5);
        assert_eq!(times(Pace::new(10, 0, 1), start, 3), [0, 100_000_000, 200_000_000]);
        assert_eq!(times(Pace::new(10, 0, 2), start, 2), [0, 200_000_000]);
        assert_eq!(times(Pace::new(10, 1, 2), start, 2), [100_000_000, 300_000_000]);
        assert_eq!(times(Pace::new(3, 0, 1), start, 3), [0, 333_333_334, 666_666_667]);
    }

    #[test]
    fn after_a_pause_the_schedule_is_reached_again_without_a_burst_of_more_than_some_milliseconds()
    {
        let mut pace = Pace::new(1_000_000, 0, 1);
        assert_eq!(pace.due(Timestamp::ZERO, 256), Ok(1));
        let resumed = Timestamp::from_millis(1000);
        let (mut now, mut done, mut burst) = (resumed, 0, 0);
        while let Ok(n) = pace.due(now, usize::MAX) {
            burst = burst.max(n);
            done += n;
            pace.took(n);
            now = match pace.due(now, 1) {
                Err(until) => until,
                Ok(_) => now,
            };
            if now.since(resumed) > Duration::from_millis(2500) {
                break;
            }
        }
        assert!(burst <= 4000, "{burst} at once");
        let ideal = now.as_nanos() / 1000;
        assert!((ideal - 4000..=ideal + 1).contains(&(done as u64)), "{done} of {ideal}");
    }

    #[test]
    fn extreme_rates_neither_overflow_nor_stop() {
        let mut fast = Pace::new(u64::MAX, 0, 1);
        assert_eq!(fast.due(Timestamp::ZERO, 256), Ok(1));
        assert_eq!(fast.due(Timestamp::from_nanos(u64::MAX), 256), Ok(256));
        let mut slow = Pace::new(0, 7, 8);
        assert_eq!(slow.due(Timestamp::ZERO, 256), Err(Timestamp::from_millis(7000)));
    }
}
