//! What stands between a task and its channels: result partitions at one end, input channels at the other.

pub mod capture;
pub mod event;
pub mod input;
pub mod options;
pub mod partition;

#[cfg(test)]
mod tests;
