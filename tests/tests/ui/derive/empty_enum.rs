//! An enum without variants has no values.
use tidegate::record::Data;

#[derive(Clone, Data)]
enum Nothing {}

fn main() {}
