//! known
