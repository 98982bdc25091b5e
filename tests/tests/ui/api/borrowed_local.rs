//! A closure lives as long as the job: it owns what it uses.
use tidegate::{Job, sink, source};

fn main() {
    let job = Job::new("job");
    let least = 3;
    job.source("numbers", source::range(0..9)).filter(|n| n > least).sink("out", sink::discard());
}
