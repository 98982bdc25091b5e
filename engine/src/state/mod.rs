//! State and its storage: keyed tables, the typed state on top of them, snapshots, and where they are kept.

mod arena;
mod blob;
pub mod block;
pub mod block_io;
mod chunk;
mod direct;
pub mod directory;
mod grow;
mod keyed;
#[cfg(test)]
mod keyed_tests;
mod list;
pub mod manifest;
mod manifest_codec;
mod map;
pub mod memory;
mod nested;
mod operator_state;
mod owner;
pub mod part;
mod places;
mod pool;
mod reduce;
mod restore;
mod running;
mod scratch;
mod segment;
mod single;
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
mod timers;
mod value;
pub mod verify;
mod writeback;

pub use keyed::{AtKey, KeyedSnapshot, KeyedStates, StateInfo, StateOut};
pub use list::{ListAt, ListState};
pub use map::{MapAt, MapState};
pub use operator_state::{BroadcastState, OperatorList, Redistribution};
#[cfg(feature = "simulation")]
pub(crate) use owner::again as small_file_again;
pub use reduce::{Aggregate, AggregatingAt, AggregatingState, ReducingAt, ReducingState};
pub use single::{ValueAt, ValueState};
pub use snapshot::{BLOCK_BYTES_MAX, Part, TableSnapshot};
pub use table::{Table, TableOptions};
pub use timers::{TimerAt, TimerDomain};
pub use value::{Blob, Value};
