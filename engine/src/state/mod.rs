//! Keyed state, snapshots and their storage.

pub mod block;
pub mod block_io;
pub mod directory;
pub mod manifest;
mod manifest_codec;
pub mod memory;
mod owner;
pub mod part;
mod snapshot_reader;
mod snapshot_writer;
pub mod snapshots;
pub mod spill;
mod spill_pool;
pub mod store;
mod survey;
pub mod verify;
