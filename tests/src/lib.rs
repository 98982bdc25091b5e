//! Shared parts of the test suites.

#![allow(missing_docs, reason = "nothing outside this workspace sees these")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at the few variants it is about")]

pub mod cluster_simulation;
pub mod fuzz;
pub mod records;
pub mod simulation;
