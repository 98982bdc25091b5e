//! The flights job: how many flights leave each airport in each hour, and how late they are.
//!
//! Input is CSV with the columns `date`, `delay` (minutes, negative if early) and `origin`, in the order of `date`; rows
//! hold no line breaks, so a plain file is shared out over the workers. Output are lines
//! `origin,window_start,count,delay_sum,delay_max`, one for each airport and hour that has flights, in any order.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use tidegate::clock::EpochMillis;
use tidegate::sink::exactly_once_files;
use tidegate::source::csv_row::CsvRow;
use tidegate::source::{Source, csv_files};
use tidegate::time::{Watermarks, Window, Windows};
use tidegate::{Data, Job};

use crate::args::{Args, Command, opt};
use crate::failure::Failure;
use crate::folders::Folders;
use crate::report::Report;
use crate::run::{Watch, run};

/// The command.
pub const COMMAND: Command = Command {
    name: "flights",
    about: "flights and their delays by airport and hour, of CSV files",
    options: &[
        opt("input", "GLOB", "CSV files, plain, .gz or .zst; the data that ships if not given"),
        opt("output", "DIR", "where the results go; a new folder under out/ if not given"),
        opt("checkpoints", "DIR", "where checkpoints go; a new folder under out/ if not given"),
        opt("workers", "N", "threads; as many as there are CPUs if not given"),
        opt("checkpoint-interval", "TIME", "time between checkpoints; 200ms if not given"),
        opt("rate", "ROWS", "read so many rows a second; as fast as possible if not given"),
        opt("resume", "", "go on from the last checkpoint"),
        opt(
            "restore-from",
            "ID|DIR",
            "begin from that checkpoint, or from the savepoint in that folder",
        ),
        opt(
            "parallelism",
            "N",
            "subtasks of each operator; as many as there are workers if not given",
        ),
        opt(
            "task-managers",
            "LIST",
            "task managers as NODE:SLOTS[:POOL],…; --workers in one if not given",
        ),
        opt("rest", "ADDRESS", "serve the job there while it runs, like 127.0.0.1:8081"),
        opt("json", "", "print the figures as JSON in the last line"),
        opt("events", "FILE", "log checkpoints as they happen, JSON lines"),
        opt("quiet", "", "show no progress"),
    ],
};

/// What the job reads of a row.
#[derive(Clone, Debug, Data, CsvRow)]
pub struct Flight {
    /// Scheduled departure.
    pub date: EpochMillis,
    /// Minutes.
    pub delay: i32,
    /// The airport it leaves.
    pub origin: String,
}

/// Flights, the sum of their delays, the greatest delay.
type Delays = (u64, i64, i64);

/// Writes the job down.
pub fn write_down<S: Source<Out = Flight>>(job: &Job, flights: S, output: PathBuf) {
    job.source("flights", flights)
        .watermarks(Watermarks::ascending(), |flight| flight.date.0)
        .key_by_ref::<String>(|flight| flight.origin)
        .window(Windows::tumbling(Duration::from_secs(3600)), |flight| flight.date.0)
        .fold("delays", (0, 0, i64::MIN), |(count, sum, max): &mut Delays, flight| {
            let delay = i64::from(flight.delay);
            (*count, *sum, *max) = (*count + 1, *sum + delay, (*max).max(delay));
        })
        .sink(
            "files",
            exactly_once_files(output).extension("csv").format::<(String, Window, Delays), _>(
                |(origin, window, (count, sum, max)), line| {
                    write!(line, "{origin},")?;
                    write_minute(window.start, line)?;
                    write!(line, ",{count},{sum},{max}")
                },
            ),
        );
}

/// Runs the command.
///
/// # Errors
/// What is wrong with it, or why the job failed.
pub fn flights(mut args: Args) -> Result<(), Failure> {
    args.default("checkpoint.interval", "200ms");
    let folders = Folders::of(&mut args)?;
    let input = args.text("input").map_or_else(shipped, str::to_owned);
    let mut job = Job::with_config("flights", args.config.clone());
    args.begin(&mut job)?;
    let source = csv_files::<Flight>(input).with_quoted_breaks(false);
    match args.text("rate") {
        Some(_) => {
            let source = source.rate(args.number("rate", 0)?);
            write_down(&job, source, folders.output.clone());
        }
        None => write_down(&job, source, folders.output.clone()),
    }
    let watch =
        Watch { events: args.text("events").map(PathBuf::from), is_quiet: args.flag("quiet")? };
    let outcome = run(job, &watch)?;
    Report {
        workload: COMMAND.name,
        outcome: &outcome,
        output: &folders.output,
        checkpoints: &folders.checkpoints,
    }
    .print(args.flag("json")?);
    Ok(())
}

/// The data that ships: beside the working directory's sources, else where the program was built.
pub fn shipped() -> String {
    const FILE: &str = "bench/data/flights-200k.csv.zst";
    if std::path::Path::new(FILE).exists() {
        return FILE.to_owned();
    }
    format!("{}/data/flights-200k.csv.zst", env!("CARGO_MANIFEST_DIR"))
}

/// `2001-01-01T05:00`, of a moment in UTC.
fn write_minute(time: EpochMillis, to: &mut Vec<u8>) -> io::Result<()> {
    const DAY_MINUTES: i64 = 24 * 60;
    let minutes = time.0.div_euclid(60_000);
    let (days, minute) = (minutes.div_euclid(DAY_MINUTES), minutes.rem_euclid(DAY_MINUTES));
    let (year, month, day) = civil(days);
    write!(to, "{year:04}-{month:02}-{day:02}T{:02}:{:02}", minute / 60, minute % 60)
}

/// The date that is so many days after 1970-01-01, in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Counted from 1 March of year 0, so that the leap day is a year's last; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (400 * era + year + next, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_dates() {
        for (millis, text) in [
            (0, "1970-01-01T00:00"),
            (978_307_260_000, "2001-01-01T00:01"),
            (951_782_400_000, "2000-02-29T00:00"),
            (951_868_799_999, "2000-02-29T23:59"),
            (951_868_800_000, "2000-03-01T00:00"),
            (4_107_542_400_000, "2100-03-01T00:00"),
            (-1, "1969-12-31T23:59"),
        ] {
            let mut line = Vec::new();
            write_minute(EpochMillis(millis), &mut line).expect("a vector takes all");
            assert_eq!(String::from_utf8_lossy(&line), text);
        }
    }
}
