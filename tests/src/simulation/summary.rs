//! Many schedules, on some threads, and what came of them.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::probe::{Fault, break_rule};

use super::reach::{Race, Reach};
use super::report::Report;
use super::schedule;

/// What came of many schedules.
#[derive(Debug, Default)]
pub struct Summary {
    /// How many were run.
    pub schedules: u64,
    /// How long it took.
    pub took: Duration,
    /// Seeds and what was wrong with them.
    pub violations: Vec<(u64, String)>,
    /// The races met.
    pub reach: Reach,
    tasks: Vec<u64>,
    steps: Vec<u64>,
    checkpoints: Vec<u64>,
    /// Schedules with a crash or a failure of the disk.
    pub with_crash: u64,
    /// Schedules with any failure.
    pub with_failure: u64,
    /// Schedules that end by finite sources at different times.
    pub ending_apart: u64,
    /// Tasks of all schedules together, and so on.
    digest: u64,
}

impl Summary {
    fn take(&mut self, seed: u64, report: Report) {
        self.schedules += 1;
        self.tasks.push(report.tasks as u64);
        self.steps.push(report.steps);
        self.checkpoints.push(report.checkpoints);
        self.with_crash += u64::from(report.crashes > 0);
        self.with_failure += u64::from(report.crashes + report.failures > 0);
        self.ending_apart += u64::from(report.ends_apart);
        self.digest ^= report.digest.wrapping_mul(seed | 1);
        self.reach.add(&report.reach);
        if let Some(violation) = report.violation {
            self.violations.push((seed, violation));
        }
    }

    fn add(&mut self, mut other: Self) {
        self.schedules += other.schedules;
        self.violations.append(&mut other.violations);
        self.reach.add(&other.reach);
        self.tasks.append(&mut other.tasks);
        self.steps.append(&mut other.steps);
        self.checkpoints.append(&mut other.checkpoints);
        self.with_crash += other.with_crash;
        self.with_failure += other.with_failure;
        self.ending_apart += other.ending_apart;
        self.digest ^= other.digest;
    }

    /// Median tasks of a schedule.
    pub fn median_tasks(&self) -> u64 {
        median(&self.tasks)
    }

    /// Median steps of a schedule.
    pub fn median_steps(&self) -> u64 {
        median(&self.steps)
    }

    /// Median checkpoints completed in a schedule.
    pub fn median_checkpoints(&self) -> u64 {
        median(&self.checkpoints)
    }

    /// A line of JSON.
    pub fn json(&self) -> String {
        let seconds = self.took.as_secs_f64().max(1e-9);
        let share = |n: u64| n as f64 / self.schedules.max(1) as f64;
        let mut text = format!(
            "{{\"schedules\":{},\"schedules_per_s\":{:.1},\"violations\":{},\"median_tasks\":{},\
             \"median_steps\":{},\"median_checkpoints\":{},\"share_with_crash_or_disk_fault\":{:.3},\
             \"share_with_failure\":{:.3},\"share_ending_apart\":{:.3},\"digest\":\"{:016x}\",\"reach\":{{",
            self.schedules,
            self.schedules as f64 / seconds,
            self.violations.len(),
            self.median_tasks(),
            self.median_steps(),
            self.median_checkpoints(),
            share(self.with_crash),
            share(self.with_failure),
            share(self.ending_apart),
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

fn median(of: &[u64]) -> u64 {
    let mut sorted = of.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

/// How many schedules to run, and how.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub seeds: u64,
    /// On how many threads.
    pub threads: u64,
    /// Not longer than that.
    pub most: Option<Duration>,
    /// Stops after so many violations.
    pub violations_max: u64,
    /// A rule that the engine breaks.
    pub fault: Option<Fault>,
}

impl Batch {
    /// What a test runs: `seeds` of them, or fewer if the machine is slow. With one CPU it is the lane that looks for threads that
    /// wait for each other, of which a schedule has none.
    pub fn of_test(seeds: u64) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
        let most = Duration::from_secs(if threads == 1 { 30 } else { 180 });
        Self { first: 0, seeds, threads, most: Some(most), violations_max: 8, fault: None }
    }
}

/// Runs a batch.
pub fn run(batch: Batch) -> Summary {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let found = AtomicU64::new(0);
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..batch.threads.max(1))
            .map(|_| {
                scope.spawn(|| {
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
                        if report.violation.is_some() {
                            let found = found.fetch_add(1, Ordering::Relaxed) + 1;
                            is_over.fetch_or(found >= batch.violations_max, Ordering::Relaxed);
                        }
                        mine.take(seed, report);
                        let is_late = batch.most.is_some_and(|most| started.elapsed() > most);
                        is_over.fetch_or(is_late, Ordering::Relaxed);
                    }
                    mine
                })
            })
            .collect();
        for thread in threads {
            summary.add(thread.join().expect("a schedule's panic is caught"));
        }
    });
    summary.took = started.elapsed();
    summary.violations.sort();
    summary
}

/// Panics on this thread are reported with their seeds, not printed.
pub fn quietly() {
    use std::cell::Cell;
    use std::sync::Once;
    thread_local! {
        static IS_QUIET: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                before(info);
            }
        }));
    });
    IS_QUIET.set(true);
}
