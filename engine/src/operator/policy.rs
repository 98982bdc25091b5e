//! What becomes of a record whose closure returns an error.

use crate::metrics::Counter;

/// The policy of a `try_…` operator.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum OnError {
    /// The task fails, and the job restarts from the last checkpoint.
    #[default]
    Fail,
    /// The record is left out and counted.
    SkipAndCount(Counter),
}
