//! A stream is used once; `split` reads it twice.
use tidegate::{Job, sink, source};

fn main() {
    let job = Job::new("job");
    let numbers = job.source("numbers", source::range(0..9));
    numbers.filter(|n| n > 3).sink("large", sink::discard());
    numbers.sink("all", sink::discard());
}
