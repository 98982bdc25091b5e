//! State and its storage: keyed tables, the typed state on top of them, snapshots, and where they are kept.

mod arena;
pub mod block;
pub mod block_io;
mod blob;
mod chunk;
pub mod directory;
mod grow;
pub mod manifest;
mod manifest_codec;
pub mod memory;
mod owner;
pub mod part;
mod keyed;
mod list;
mod map;
mod nested;
mod operator_state;
mod places;
mod pool;
mod reduce;
mod restore;
mod running;
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
mod timers;
mod value;

#[cfg(test)]
mod keyed_tests;
#[cfg(test)]
mod table_tests;
mod value;
pub mod verify;

pub use keyed::{AtKey, KeyedSnapshot, KeyedStates, StateInfo, StateOut};
pub use list::{ListAt, ListState};
pub use map::{MapAt, MapState};
pub use operator_state::{BroadcastState, OperatorList, Redistribution};
pub use reduce::{Aggregate, AggregatingAt, AggregatingState, ReducingAt, ReducingState};
pub use single::{ValueAt, ValueState};
pub use snapshot::{BLOCK_BYTES_MAX, Part, TableSnapshot};
pub use table::{Table, TableOptions};
pub use timers::{TimerAt, TimerDomain};
pub use value::{Blob, Value};
