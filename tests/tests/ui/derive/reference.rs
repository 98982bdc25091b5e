//! A record owns its fields.
use tidegate::record::Data;

#[derive(Clone, Data)]
struct Line {
    number: u64,
    text: Option<&'static str>,
}

fn main() {}
