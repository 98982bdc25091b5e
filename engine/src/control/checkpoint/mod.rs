//! Checkpoint coordination.
