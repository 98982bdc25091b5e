//! Tidegate: typed stream-processing jobs on pinned threads, exactly-once.

// The derive macros write `::tidegate::…`, in this crate too.
extern crate self as tidegate;

pub mod barrier;
pub mod channel;
pub mod clock;
pub mod config;
pub mod control;
pub mod error;
pub mod graph;
pub mod id;
pub mod metrics;
pub mod operator;
pub mod record;
pub mod runtime;
pub mod sink;
pub mod source;
pub mod state;
pub mod task;
pub mod testing;
pub mod text;
pub mod time;
pub mod topology;
