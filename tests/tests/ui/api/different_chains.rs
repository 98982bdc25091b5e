//! Two streams of one record type have different types, until they are boxed.
use tidegate::{Job, sink, source};

fn main() {
    let job = Job::new("job");
    let numbers = job.source("numbers", source::range(0..9));
    let numbers = if job.plan().is_ok() { numbers.filter(|n| n > 3) } else { numbers.map(|n| n + 1) };
    numbers.sink("out", sink::discard());
}
