//! The integration tests, one binary: what users see, and what must hold for the repository as a whole.

mod api;
mod bad_input;
mod blocklist;
mod blocklist_rig;
mod cli;
mod derive;
mod incremental;
mod lifecycle;
mod operators;
mod plan;
mod process;
mod records;
mod recovery;
mod resume;
mod rig;
mod savepoints;
mod scenarios;
mod script;
mod serde;
mod sinks;
mod tidy;
mod tracing;
mod ui;
mod unaligned;
mod windows;
mod workers;
