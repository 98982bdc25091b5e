//! Shared parts of the test suites.

pub mod records;
pub mod simulation;
