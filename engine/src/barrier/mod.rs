//! Brings the barriers of a checkpoint together at one task.
//!
//! [`Machine`] is told what the task's input loop meets in its channels and says when to block a channel, what of it to
//! capture, and when to take the snapshot. It covers aligned, unaligned and aligned-with-timeout checkpoints, the
//! at-least-once tracker, and the barriers that stand right before EndOfPartition (FLIP-147, extend the task barrier
//! alignment). [`capture::Capture`] is the cursor with which the task carries out its capture outputs.
//!
//! A step of a task goes: serve the mailbox; load each channel's tail, then serve its priority side until that is empty;
//! send [`Input::Tick`] if [`Machine::deadline`] has come; extend every capture; read one buffer or event of a channel that
//! isn't blocked. After each input the outputs are carried out in order before the next is given. A channel born ended
//! gets its [`Input::FinishNotice`] before the first step.
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
