//! Everything between two Tidegate tasks: memory, buffers and channels.
//!
//! This crate knows bytes, channels, priority entries with a position, and back-pressure. It knows nothing of
//! records, operators, jobs or checkpoints. Read it in this order: `segment` (ref-counted memory), `pool` (a
//! lane's share of segments; having none free *is* back-pressure), `buffer` (one writer, then readers), `ring`
//! (single producer, single consumer), `lane` (ring plus priority side), `parker` (how a thread sleeps and is woken).
//!
//! ```
//! use tidegate_netstack::lane::{LaneOptions, Next, Slot, channel};
//!
//! let (mut producer, mut consumer) = channel::<char>(LaneOptions::default());
//! producer.write(b"a record")?;
//! let position = producer.push_priority('!'); // overtakes the record
//!
//! let Next::Priority(overtaking) = consumer.next() else { panic!() };
//! assert_eq!((overtaking.event, overtaking.position), ('!', position));
//! let Next::Slot { slot: Slot::Buffer(buffer), .. } = consumer.next() else { panic!() };
//! assert_eq!(buffer.as_slice(), b"a record");
//! # Ok::<(), tidegate_netstack::pool::PoolExhausted>(())
//! ```

pub mod buffer;
pub mod lane;
pub mod parker;
pub mod pool;
mod ring;
pub mod segment;
mod sync;

#[cfg(all(test, loom))]
mod models;
