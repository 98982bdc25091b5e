//! A type that is no record.
use std::collections::BTreeMap;

use tidegate::{Job, sink, source};

fn main() {
    let job = Job::new("job");
    let maps = job.source("numbers", source::range(0..9)).map(|n| BTreeMap::from([(n, n)]));
    maps.sink("out", sink::discard());
}
