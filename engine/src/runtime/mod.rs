//! The threads: workers that step tasks, one that writes snapshots, and one that controls.
//!
//! Only this folder starts threads, pins, parks and reads the clock; what is decided is decided by machines elsewhere. The same
//! three parts can be driven by one thread ([`Parts::step`]), which is how a job is stepped by its host.

mod clock;
mod cluster;
mod control;
mod control_loop;
mod control_queue;
mod crew;
mod deployment;
mod endpoint;
mod idle;
mod in_flight;
mod incremental;
mod parts;
#[cfg(feature = "plugin")]
pub mod plugin;
mod request;
mod restore;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod snapshot_io;
mod spiller;
mod starting;
mod status;
#[cfg(feature = "tracing")]
mod trace;
mod worker;

pub use cluster::{ClusterEvent, ClusterFact, ClusterOptions, EVENTS_MAX};
pub use control::SavepointStop;
#[cfg(feature = "rest")]
pub(crate) use control_loop::{ControlHost, ControlLoop};
pub use endpoint::JobEndpoint;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use in_flight::event_again;
pub use parts::{Parts, RuntimeOptions};
#[cfg(feature = "rest")]
pub use request::BlocklistCall;
#[cfg(feature = "rest")]
pub(crate) use request::Reply;
pub(crate) use request::Request;
pub use request::{BlocklistFigures, TaskManagerStatus};
pub use starting::Begin;
pub(crate) use starting::{Wish, begin};
pub use status::{
    CHECKPOINTS_MAX, CheckpointStats, JobMetrics, JobState, JobStatus, Shared, TaskStatus,
};
