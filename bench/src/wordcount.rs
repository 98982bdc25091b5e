//! Counts the words of text files: lines `word,count`, one a word, in any order.
//!
//! Words are maximal runs of ASCII letters, lower-cased. A count is written when the input has ended: all text is one
//! window, which the last watermark closes. Stopped before that, the job writes nothing and goes on with `--resume`.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tidegate::Job;
use tidegate::sink::exactly_once_files;
use tidegate::source::{Source, text_files};
use tidegate::text::words;
use tidegate::time::{Window, Windows};

use crate::args::{Args, Command, opt};
use crate::failure::Failure;
use crate::folders::Folders;
use crate::report::Report;
use crate::run::{Watch, run};

/// The command.
pub const COMMAND: Command = Command {
    name: "wordcount",
    about: "how often each word occurs in text files, written when the input has ended",
    options: &[
        opt("input", "GLOB", "text files, plain, .gz or .zst"),
        opt("output", "DIR", "where the results go; a new folder under out/ if not given"),
        opt("checkpoints", "DIR", "where checkpoints go; a new folder under out/ if not given"),
        opt("workers", "N", "threads; as many as there are CPUs if not given"),
        opt("checkpoint-interval", "TIME", "time between checkpoints; 200ms if not given"),
        opt("rate", "LINES", "read so many lines a second; as fast as possible if not given"),
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

/// Longer than any text takes.
const ALL_TIME: Duration = Duration::from_secs(3600);

/// Writes the job down.
pub fn write_down<S: Source<Out = String>>(job: &Job, lines: S, output: PathBuf) {
    job.source("lines", lines)
        .flat_map::<String, _>(|line, out| words(line, |word| out.emit_ref(word)))
        .key_by_ref::<String>(|word| *word)
        .window(Windows::tumbling(ALL_TIME), |_| 0)
        .count("counts")
        .sink(
            "files",
            exactly_once_files(output).extension("csv").format::<(String, Window, u64), _>(
                |(word, _, count), line| write!(line, "{word},{count}"),
            ),
        );
}

/// Runs the command.
///
/// # Errors
/// What is wrong with it, or why the job failed.
pub fn wordcount(mut args: Args) -> Result<(), Failure> {
    args.default("checkpoint.interval", "200ms");
    let folders = Folders::of(&mut args)?;
    let Some(input) = args.text("input") else {
        return Err(Failure::Usage("wordcount: --input is missing".to_owned()));
    };
    let mut job = Job::with_config("wordcount", args.config.clone());
    args.begin(&mut job)?;
    let source = text_files(input);
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
