//! Floats are records, but no keys.
use tidegate::{Job, sink, source};

fn main() {
    let job = Job::new("job");
    let halves = job.source("numbers", source::generate(9, |n| n as f64 / 2.0));
    halves.key_by(|half| half).count("counts").sink("out", sink::discard());
}
