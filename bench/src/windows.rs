//! What something costs a job, seen within its run: its throughput in windows of time with it and without it, taking turns.
//!
//! Two runs of the same job differ by more than most things cost, as their memory lies elsewhere.

use std::thread;
use std::time::{Duration, Instant};

use tidegate::{ErrorKind, JobHandle};

use crate::failure::Failure;

/// A job that has just begun is slower.
const WARMING: Duration = Duration::from_millis(500);

/// Lets a job run for so many times four windows. `switch` is told at the beginning of each whether this is one with it.
///
/// Records a second in each window: without, with, with, without, and again.
///
/// # Errors
/// Those of `switch`.
pub fn rates(
    handle: &JobHandle,
    fours: u64,
    window: Duration,
    mut switch: impl FnMut(bool) -> Result<(), Failure>,
) -> Result<Vec<f64>, Failure> {
    thread::sleep(WARMING);
    let (mut rates, mut before) = (Vec::new(), (Instant::now(), records(handle)));
    for number in 0..fours * 4 {
        let end = before.0 + window;
        switch(matches!(number % 4, 1 | 2))?;
        thread::sleep(end.saturating_duration_since(Instant::now()));
        let now = (Instant::now(), records(handle));
        rates.push(now.1.saturating_sub(before.1) as f64 / (now.0 - before.0).as_secs_f64());
        before = now;
    }
    Ok(rates)
}

/// Throughput with to that without, of each four windows. What drifts evenly is in both.
pub fn shares(rates: &[f64]) -> impl Iterator<Item = f64> {
    rates.chunks_exact(4).map(|rate| (rate[1] + rate[2]) / (rate[0] + rate[3]))
}

/// Ends a job that would go on.
///
/// # Errors
/// Why it failed, or that it had come to its end before.
pub fn end(handle: JobHandle) -> Result<(), Failure> {
    match handle.cancel() {
        Err(error) if error.kind() == ErrorKind::Cancelled => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Failure::Other("the job had come to its end".to_owned())),
    }
}

/// Records that its tasks have taken by now.
fn records(handle: &JobHandle) -> u64 {
    handle.metrics().tasks.iter().map(|task| task.figures.records_in).sum()
}

/// Figures in ascending order.
#[derive(Debug)]
pub struct Sorted(Vec<f64>);

impl FromIterator<f64> for Sorted {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Self {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        Self(figures)
    }
}

impl Sorted {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The one in the middle; none if there are no figures.
    pub fn median(&self) -> Option<f64> {
        self.bound(0.0)
    }

    /// Between those of -1 and 1 lies the median of all that could have been seen, with a probability of 95 %.
    pub fn bound(&self, side: f64) -> Option<f64> {
        let count = self.0.len() as f64;
        let rank = (count + side * 1.96 * count.sqrt()) / 2.0;
        self.0.get(rank.clamp(0.0, (count - 1.0).max(0.0)) as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_leaves_out_what_drifts() {
        let rates = [100.0, 99.0, 108.0, 130.0, 10.0, 10.0, 10.0, 10.0, 7.0];
        assert_eq!(shares(&rates).collect::<Vec<_>>(), [0.9, 1.0]);
    }

    #[test]
    fn bounds_lie_about_the_median() {
        let sorted: Sorted = (0..100).rev().map(f64::from).collect();
        assert_eq!([sorted.bound(-1.0), sorted.median()], [Some(40.0), Some(50.0)]);
        assert_eq!([sorted.bound(1.0), sorted.bound(1000.0)], [Some(59.0), Some(99.0)]);
        let nothing: Sorted = [].into_iter().collect();
        assert_eq!((nothing.count(), nothing.median(), nothing.bound(-1.0)), (0, None, None));
    }
}
