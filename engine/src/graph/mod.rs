//! From streams to an execution graph.
//!
//! [`Stream`] and [`KeyedStream`] are what users write with; each end of a chain adds a stage to the [`Graph`]. `logical`
//! joins stages into vertices and checks the whole; `plan` prints it.

mod execution;
mod keyed_stream;
pub(crate) mod logical;
mod plan;
mod processed;
mod stages;
mod stream;
mod windowed;

pub use execution::{Check, EdgePlan, ExecutionGraph, Retract, SplitsOf, VertexPlan};
pub use keyed_stream::KeyedStream;
pub use plan::Plan;
pub use stages::Graph;
pub use stream::{BoxStream, Stream};
pub use windowed::Windowed;
