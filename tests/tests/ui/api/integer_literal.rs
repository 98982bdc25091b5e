//! An integer literal without a type is an `i32`.
use tidegate::{Job, sink, source};

fn main() {
    let job = Job::new("job");
    let (counts, _) = sink::collect::<(String, u64)>();
    job.source("words", source::text_str("a\nb\n")).map(|word| (word.to_owned(), 1)).sink("out", counts);
}
