//! Brings the barriers of a checkpoint together at one task.
//!
//! [`Machine`] is told what the task's input loop meets in its channels and says when to block a channel, what of it to
//! capture, and when to take the snapshot. It covers aligned, unaligned and aligned-with-timeout checkpoints, the
//! at-least-once tracker, and the barriers that stand right before EndOfPartition (FLIP-147, extend the task barrier
//! alignment). [`capture::Capture`] is the cursor with which the task carries out its capture outputs.
//!
//! Nothing here has a thread, clock, file or socket. Called by `task` only.

pub mod capture;
mod channel;
mod channel_set;
mod exact;
mod machine;
mod message;
mod report;
mod taken;
#[cfg(test)]
mod tests;
mod tracker;

pub use channel_set::ChannelSet;
pub use machine::{Config, Guarantee, Machine};
pub use message::{AbortReason, Input, Output, Outputs};
pub use report::AlignmentReport;
