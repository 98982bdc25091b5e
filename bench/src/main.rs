//! Runs Tidegate's workloads.
fn main() {}
