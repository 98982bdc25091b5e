//! A stream that ends nowhere does nothing.
#![deny(unused_must_use)]
use tidegate::{Job, source};

fn main() {
    let job = Job::new("job");
    job.source("numbers", source::range(0..9)).filter(|n| n > 3);
}
