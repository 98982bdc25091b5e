//! Many schedules of the cluster, on some threads, and what came of them.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tidegate::probe::break_rule;

use super::reach::{Race, Reach};
use super::schedule;
use crate::simulation::summary::{Batch, quietly};

/// What came of many schedules.
#[derive(Debug, Default)]
pub struct Summary {
    /// How many were run.
    pub schedules: u64,
    /// Events of all of them.
    pub steps: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Seeds and what was wrong with them.
    pub violations: Vec<(u64, String)>,
    /// The races met.
    pub reach: Reach,
    digest: u64,
}

impl Summary {
    fn add(&mut self, mut other: Self) {
        self.schedules += other.schedules;
        self.steps += other.steps;
        self.violations.append(&mut other.violations);
        self.reach.add(&other.reach);
        self.digest ^= other.digest;
    }

    /// A line of JSON.
    pub fn json(&self) -> String {
        let mut text = format!(
            "{{\"schedules\":{},\"schedules_per_s\":{:.1},\"steps_per_schedule\":{:.1},\
             \"violations\":{},\"digest\":\"{:016x}\",\"reach\":{{",
            self.schedules,
            self.schedules as f64 / self.seconds.max(1e-9),
            self.steps as f64 / self.schedules.max(1) as f64,
            self.violations.len(),
            self.digest,
        );
        for (at, &race) in Race::ALL.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(text, "{comma}\"{}\":{}", race.name(), self.reach.count(race));
        }
        text.push_str("}}");
        text
    }
}

/// Runs a batch.
pub fn run(batch: Batch) -> Summary {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let found = AtomicU64::new(0);
    let work = || {
        quietly();
        break_rule(batch.fault);
        let mut mine = Summary::default();
        while !is_over.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= batch.seeds {
                break;
            }
            let seed = batch.first + at;
            let report = schedule::run(seed, false);
            mine.schedules += 1;
            mine.steps += report.steps;
            mine.digest ^= report.digest.wrapping_mul(seed | 1);
            mine.reach.add(&report.reach);
            if let Some(violation) = report.violation {
                mine.violations.push((seed, violation));
                let found = found.fetch_add(1, Ordering::Relaxed) + 1;
                is_over.fetch_or(found >= batch.violations_max, Ordering::Relaxed);
            }
            let is_late = batch.most.is_some_and(|most| started.elapsed() > most);
            is_over.fetch_or(is_late, Ordering::Relaxed);
        }
        mine
    };
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..batch.threads.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            summary.add(thread.join().expect("a schedule's panic is caught"));
        }
    });
    summary.seconds = started.elapsed().as_secs_f64();
    summary.violations.sort();
    summary
}
