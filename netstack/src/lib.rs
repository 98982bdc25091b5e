//! Everything between two Tidegate tasks: memory, buffers and channels.
//!
//! This crate knows bytes, channels, priority entries with a position, and back-pressure. It knows nothing of
//! records, operators, jobs or checkpoints. Read it in this order: `segment` (ref-counted memory), `pool` (a
//! lane's share of segments; having none free *is* back-pressure), `buffer` (one writer, then readers), `ring`
//! (single producer, single consumer), `lane` (ring plus priority side), `parker` (how a thread sleeps and is woken).

pub mod buffer;
pub mod lane;
pub mod parker;
pub mod pool;
pub mod ring;
pub mod segment;
mod sync;

#[cfg(all(test, loom))]
mod models;
