//! A generic type has no one format.
use tidegate::record::Data;

#[derive(Clone, Data)]
struct Pair<T> {
    left: T,
    right: T,
}

fn main() {}
