//! W3: word count of a text in memory: split lines into words, partition by word, running counts.
//!
//! Words are maximal runs of ASCII letters, lower-cased. `how=plain` splits with the closure that people write first,
//! which makes a `String` of each word; `how=words` with `tidegate::text::words`.

use bytes::Bytes;
use tidegate::operator::Chain;
use tidegate::sink::{Folded, fold};
use tidegate::source::text_bytes;
use tidegate::text::words;
use tidegate::{Job, Stream};

use crate::args::{Args, Command, opt};
use crate::clocked::{Clocked, Span};
use crate::event::w3_check;
use crate::failure::Failure;
use crate::throughput::{CHECKPOINTED, RUNS, Tally, Throughput, WORKERS};

/// The command.
pub const COMMAND: Command = Command {
    name: "w3",
    about: "throughput of word count: running counts of the words of a text in memory",
    options: &[
        opt("text", "FILE", "the text; text.txt if not given"),
        opt("how", "plain|words", "splits by a closure, or by text::words; plain if not given"),
        WORKERS,
        RUNS,
        CHECKPOINTED,
    ],
};

/// How lines are split into words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By a closure.
    Plain,
    /// By `text::words`.
    Words,
}

/// Writes the job down.
pub fn write_down(job: &Job, text: Bytes, how: How, span: &Span) -> Folded<Tally> {
    let lines = job.source("lines", Clocked::new(text_bytes(text), span));
    match how {
        How::Plain => count(
            lines.flat_map::<String, _>(|line, out| {
                let runs = line.split(|c: char| !c.is_ascii_alphabetic());
                for word in runs.filter(|run| !run.is_empty()) {
                    out.emit(word.to_ascii_lowercase());
                }
            }),
            span,
        ),
        How::Words => count(
            lines.flat_map::<String, _>(|line, out| words(line, |word| out.emit_ref(word))),
            span,
        ),
    }
}

fn count<C: Chain<Out = String>>(words: Stream<String, C>, span: &Span) -> Folded<Tally> {
    let (sink, folded) =
        fold::<(String, u64), Tally, _>((0, 0), |(updates, check): &mut Tally, (word, count)| {
            *updates += 1;
            *check = check.wrapping_add(w3_check(word, count));
        });
    words
        .key_by_ref::<String>(|word| *word)
        .count("counts")
        .sink("check", Clocked::new(sink, span));
    folded
}

/// Runs the command.
///
/// # Errors
/// What is wrong with an option, the text can't be read, or why the job failed.
pub fn w3(args: Args) -> Result<(), Failure> {
    let how = match args.text("how") {
        None | Some("plain") => How::Plain,
        Some("words") => How::Words,
        Some(other) => {
            return Err(Failure::Usage(format!("--how: plain or words, not '{other}'")));
        }
    };
    let path = args.text("text").unwrap_or("text.txt");
    let text = std::fs::read(path).map_err(|error| Failure::Other(format!("{path}: {error}")))?;
    let text = Bytes::from(text);
    let params = match how {
        How::Plain => String::new(),
        How::Words => " how=words".to_owned(),
    };
    let workload = Throughput { name: COMMAND.name, params, events: None };
    workload.run(args, |job, span| write_down(job, text.clone(), how, span))
}
