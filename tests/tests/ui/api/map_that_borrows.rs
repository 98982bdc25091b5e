//! A result that borrows from the record is for `map_ref`.
use tidegate::{Job, sink, source};

fn main() {
    let job = Job::new("job");
    job.source("lines", source::text_str("a\nb\n")).map(|line| line.trim()).sink("out", sink::discard());
}
