//! segment
pub const SPARE: usize = 16;
