//! Keyed state, snapshots and their storage.

pub mod part;
