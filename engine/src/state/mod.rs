//! State and its storage: keyed tables, the typed state on top of them, snapshots, and where they are kept.

mod arena;
pub mod block;
pub mod block_io;
mod chunk;
pub mod directory;
mod grow;
pub mod manifest;
mod manifest_codec;
pub mod memory;
mod owner;
pub mod part;
mod pool;
mod restore;
mod running;
mod snapshot;
mod snapshot_reader;
mod snapshot_writer;
pub mod snapshots;
pub mod spill;
pub mod spill_pool;
pub mod store;
#[cfg(test)]
mod store_tests;
mod sum;
mod survey;
mod table;
#[cfg(test)]
mod table_tests;
mod value;
pub mod verify;

pub use snapshot::{BLOCK_BYTES_MAX, Part, TableSnapshot};
pub use table::{Table, TableOptions};
pub use value::{Blob, Value};
