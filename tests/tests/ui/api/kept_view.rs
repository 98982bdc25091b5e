//! A view lives as long as the call: what is kept is owned.
use tidegate::{Job, sink, source};

fn main() {
    let job = Job::new("job");
    let mut last = "";
    job.source("lines", source::text_str("a\nb\n"))
        .filter(move |line| std::mem::replace(&mut last, line) != line)
        .sink("out", sink::discard());
}
