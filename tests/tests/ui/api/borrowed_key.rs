//! A key that borrows from the record is for `key_by_ref`.
use tidegate::{Job, sink, source};

fn main() {
    let job = Job::new("job");
    let words = job.source("words", source::text_str("a\nb\n"));
    words.key_by(|word| *word).count("counts").sink("out", sink::discard());
}
