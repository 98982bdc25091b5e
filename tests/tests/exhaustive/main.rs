//! Every order of events, not a sample: stateright explores small configurations of the production machines.
//!
//! A configuration has a few tasks or copies, a budget of things that may go wrong, and messages that are in order
//! along each link and in any order otherwise. A violated property prints the path to it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at the few variants it is about")]

mod blocklist;
mod checkpoints;
mod explore;
