//! Tidegate: typed stream-processing jobs on pinned threads, exactly-once.

// The derive macros write `::tidegate::…`, in this crate too.
extern crate self as tidegate;

pub mod barrier;
pub mod channel;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod decoders;
pub mod error;
pub mod graph;
pub mod id;
mod job;
pub mod metrics;
pub mod operator;
pub(crate) mod pace;
#[doc(hidden)]
pub mod probe;
pub mod record;
#[cfg(feature = "rest")]
pub mod rest;
pub mod runtime;
pub mod sink;
pub mod source;
pub mod state;
pub mod task;
pub mod testing;
pub mod text;
pub mod time;
pub mod topology;

pub use config::Config;
pub use error::{BoxError, Error, ErrorKind, Result};
pub use graph::{BoxStream, KeyedStream, Stream};
pub use job::{Job, JobHandle, JobStepper};
pub use operator::{Chain, OnError};
pub use record::{AsData, Data, Key, Output};
pub use runtime::{CheckpointStats, JobMetrics, JobState, JobStatus, SavepointStop, TaskStatus};
