//! Quantiles of measured times.

use std::time::Duration;

/// Times in ascending order.
#[derive(Clone, Debug, Default)]
pub struct Quantiles(Vec<Duration>);

impl FromIterator<Duration> for Quantiles {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_unstable();
        Self(times)
    }
}

impl Quantiles {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The least time that at least this share (0 to 1) of them does not exceed; none if there are no times.
    pub fn at(&self, share: f64) -> Option<Duration> {
        let rank = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(rank.clamp(1, self.0.len().max(1)) - 1).copied()
    }

    /// The same in milliseconds.
    pub fn millis(&self, share: f64) -> Option<f64> {
        self.at(share).map(|time| time.as_secs_f64() * 1e3)
    }

    /// The same in microseconds.
    pub fn micros(&self, share: f64) -> Option<f64> {
        self.at(share).map(|time| time.as_secs_f64() * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_times_does_not_exceed_its_quantile() {
        let times: Quantiles = (1..=100).rev().map(Duration::from_millis).collect();
        for (share, millis) in [(0.0, 1.0), (0.5, 50.0), (0.501, 51.0), (0.99, 99.0), (1.0, 100.0)]
        {
            assert_eq!(times.millis(share), Some(millis), "{share}");
        }
        assert_eq!((times.count(), times.micros(0.5)), (100, Some(50_000.0)));
        let one: Quantiles = [Duration::from_millis(7)].into_iter().collect();
        assert_eq!((one.millis(0.001), one.millis(0.5)), (Some(7.0), Some(7.0)));
        assert_eq!(Quantiles::default().at(0.5), None);
    }
}
