//! What is printed when a job has run: a table, and with `--json` one line for programs.

use std::path::Path;
use std::time::Duration;

use crate::json::Line;
use crate::run::Outcome;
use crate::usage::peak_rss_bytes;

/// The figures of a run.
#[derive(Debug)]
pub struct Report<'a> {
    /// Which workload.
    pub workload: &'a str,
    /// What came of it.
    pub outcome: &'a Outcome,
    /// Where its results are.
    pub output: &'a Path,
    /// What resuming needs.
    pub checkpoints: &'a Path,
}

impl Report<'_> {
    /// Prints the table, and the line if `as_json`.
    pub fn print(&self, as_json: bool) {
        print!("{}", self.table());
        if as_json {
            println!("{}", self.json());
        }
    }

    /// Durations of completed checkpoints, ascending.
    fn durations(&self) -> Vec<Duration> {
        let mut all: Vec<_> =
            self.outcome.status.checkpoints.iter().map(|done| done.duration).collect();
        all.sort_unstable();
        all
    }

    fn per_second(&self) -> f64 {
        self.outcome.records as f64 / self.outcome.elapsed.as_secs_f64().max(1e-9)
    }

    fn table(&self) -> String {
        let Outcome { status, elapsed, records, is_stopped } = self.outcome;
        if status.already_ended {
            return "the job has ended before; nothing was done\n".to_owned();
        }
        let mut rows = vec![
            ("records", records.to_string()),
            ("records/s", format!("{:.0}", self.per_second())),
            ("seconds", format!("{:.3}", elapsed.as_secs_f64())),
            ("checkpoints", status.checkpoints_completed.to_string()),
        ];
        let durations = self.durations();
        if let (Some(median), Some(max)) = (median(&durations), durations.last()) {
            rows.push(("  duration", format!("median {}, longest {}", ms(median), ms(*max))));
            let sizes = status.checkpoints.iter().map(|done| done.bytes);
            let (least, greatest) = (sizes.clone().min(), sizes.max());
            let (least, greatest) = (least.unwrap_or(0), greatest.unwrap_or(0));
            rows.push(("  size", format!("{} to {}", bytes(least), bytes(greatest))));
        }
        if status.restarts > 0 {
            rows.push(("restarts", status.restarts.to_string()));
        }
        if status.latency.count() > 0 {
            let at = |share| ms(status.latency.quantile(share));
            let (p50, p99, p999) = (at(0.5), at(0.99), at(0.999));
            let max = ms(status.latency.max());
            rows.push(("latency", format!("p50 {p50}, p99 {p99}, p99.9 {p999}, longest {max}")));
        }
        rows.push(("peak memory", bytes(peak_rss_bytes())));
        rows.push(("output", self.output.display().to_string()));
        if *is_stopped {
            let dir = self.checkpoints.display();
            rows.push(("stopped", format!("go on with --resume, checkpoints in {dir}")));
        }
        rows.iter().map(|(name, value)| format!("{name:<14} {value}\n")).collect()
    }

    fn json(&self) -> String {
        let durations = self.durations();
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        Line::new()
            .text("workload", self.workload)
            .raw("events", self.outcome.records)
            .decimals("seconds", Some(self.outcome.elapsed.as_secs_f64()), 4)
            .decimals("events_per_s", Some(self.per_second()), 0)
            .raw("checkpoints", self.outcome.status.checkpoints_completed)
            .decimals("checkpoint_ms_median", median(&durations).map(millis), 3)
            .decimals("checkpoint_ms_max", durations.last().copied().map(millis), 3)
            .raw("restarts", self.outcome.status.restarts)
            .raw("peak_rss_bytes", peak_rss_bytes())
            .end()
    }
}

/// The middle of ascending durations.
pub fn median(ascending: &[Duration]) -> Option<Duration> {
    ascending.get(ascending.len() / 2).copied()
}

fn ms(duration: Duration) -> String {
    match duration.as_micros() {
        0..1000 => format!("{:.1} us", duration.as_secs_f64() * 1e6),
        _ => format!("{:.2} ms", duration.as_secs_f64() * 1e3),
    }
}

fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{n} B"),
        10_000..10_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        _ => format!("{:.1} MB", n as f64 / 1e6),
    }
}
