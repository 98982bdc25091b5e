//! The integration tests, one binary: what users see, and what must hold for the repository as a whole.

mod api;
mod derive;
mod lifecycle;
mod operators;
mod plan;
mod process;
mod records;
mod recovery;
mod resume;
mod rig;
mod cli;
mod incremental;
mod savepoints;
mod unaligned;
mod tidy;
mod ui;
mod unaligned;
