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
//! Keyed and operator state: tables, their snapshots, and the typed state on top of them.
mod arena;
mod chunk;
mod grow;
mod pool;
mod restore;
mod running;
mod snapshot;
mod table;
mod value;
#[cfg(test)]
mod table_tests;
pub use snapshot::{BLOCK_BYTES_MAX, Part, TableSnapshot};
pub use table::{Table, TableOptions};
pub use value::{Blob, Value};
