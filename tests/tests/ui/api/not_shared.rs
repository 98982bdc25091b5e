//! Closures are sent to the threads of workers.
use std::rc::Rc;

use tidegate::{Job, sink, source};

fn main() {
    let job = Job::new("job");
    let least = Rc::new(3);
    job.source("numbers", source::range(0..9)).filter(move |n| n > *least).sink("out", sink::discard());
}
