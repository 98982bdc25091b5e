//! A running reduction keeps records of a fixed size; `fold` and `process` keep others.
use tidegate::{Job, sink, source};

fn main() {
    let job = Job::new("job");
    job.source("words", source::text_str("a\nb\n"))
        .key_by(|word| word.len() as u64)
        .reduce("longest", |a, b| if a.len() > b.len() { a } else { b })
        .sink("out", sink::discard());
}
