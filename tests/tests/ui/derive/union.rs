//! Which field of a union is live isn't known.
use tidegate::record::Data;

#[derive(Clone, Copy, Data)]
union Bits {
    float: f32,
    integer: u32,
}

fn main() {}
