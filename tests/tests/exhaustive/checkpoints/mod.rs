//! Checkpoints of small jobs that end, in every order of what tasks, store and coordinator do.
//!
//! The production coordinator, restore, and the three machines of a task (finishing, alignment, snapshot order) are
//! put together as the runtime does it; only records, operators and the store are simple ones. Read `world.rs` first.

mod configurations;
mod job;
mod model;
mod node;
mod tasks;
mod world;
