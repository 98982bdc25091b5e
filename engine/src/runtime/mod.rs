//! The threads: workers that step tasks, one that writes snapshots, and one that controls.
//!
//! Only this folder starts threads, pins, parks and reads the clock; what is decided is decided by machines elsewhere. The same
//! three parts can be driven by one thread ([`Parts::step`]), which is how a job is stepped by its host.

mod clock;
mod control;
mod deployment;
mod idle;
mod in_flight;
mod incremental;
mod parts;
mod restarts;
mod restore;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod snapshot_io;
mod starting;
mod status;
mod worker;

pub(crate) use control::Request;
pub use control::SavepointStop;
pub use parts::{Parts, RuntimeOptions};
pub use starting::Begin;
pub(crate) use starting::{Wish, begin};
pub use status::{CHECKPOINTS_MAX, CheckpointStats, JobState, JobStatus, Shared, TaskStatus};
