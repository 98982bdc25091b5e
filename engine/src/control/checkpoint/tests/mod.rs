//! Scenario tests of the coordinator, by the ids of the conformance list.
#![allow(clippy::wildcard_enum_match_arm, reason = "tests pick single outputs out of many")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod rig;

mod coordination;
mod deciding;
mod ending_jobs;
mod finalization;
mod fuzzing;
mod interleavings;
mod legality;
mod planning;
mod regressions;
mod restoring;
mod stopping;
