//! channel

pub mod event;
pub mod options;
