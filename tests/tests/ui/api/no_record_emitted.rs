//! A type that is no record, emitted.
use tidegate::{Job, sink, source};

struct Bid {
    price: u64,
}

fn main() {
    let job = Job::new("job");
    job.source("numbers", source::range(0..9))
        .flat_map(|price, out| out.emit(Bid { price }))
        .sink("out", sink::discard());
}
