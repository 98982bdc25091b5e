//! The deterministic simulator: whole jobs on one thread, with a clock, a disk and an outside world of its own.
//!
//! A seed draws a [`plan::Plan`] (topology, sources, options, faults), and a [`schedule`] runs it: it chooses whose step comes
//! next among the real tasks, the real writer of snapshots and the real control, lets processes crash and disks fail, then
//! heals everything and wants the job to end. What the sinks have committed to the [`world::World`] is the oracle.

pub mod dice;
mod drawing;
pub mod mutants;
pub mod operators;
pub mod plan;
pub mod reach;
pub mod report;
pub mod schedule;
pub mod sink;
pub mod source;
pub mod summary;
pub mod world;

/// What flows: origin (source and split), sequence number in the origin, key, and how many records the key had.
pub type Record = (u64, u64, u64, u64);

/// The origin of split `split` of source number `source`.
pub fn origin(source: usize, split: usize) -> u64 {
    (source as u64) << 8 | split as u64
}
