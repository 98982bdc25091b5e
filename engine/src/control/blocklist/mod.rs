//! The blocklist (FLIP-224): keeps work off task managers and nodes that are known to be bad.
//!
//! Each job master and the resource manager hold a copy; copies are joins, so they agree whatever happens to the
//! messages between them. Start reading at `item.rs`, then `tracker.rs`, then the two handlers.

pub mod added;
pub mod caps;
pub mod cause;
pub mod checker;
pub mod context;
pub mod counters;
mod entry;
pub mod fleet;
pub mod health;
pub mod item;
pub mod job_master;
pub mod listeners;
pub mod options;
pub mod pattern;
pub mod plugin;
pub mod registry;
pub mod resource_manager;
#[cfg(feature = "rest")]
pub mod rest;
pub mod rules;
pub mod runner;
pub mod snapshot;
pub mod strategy;
pub mod tracker;

#[cfg(test)]
mod scenarios;

pub use entry::Tombstone;
