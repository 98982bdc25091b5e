//! A task: one attempt of one subtask, stepped by its worker.
//!
//! `driver` is the task and its step, `reading` takes from channels and sources, `checkpointing` and `ending` carry out what the
//! machines say: alignment (`barrier`), [`snapshot`] and [`finish`]. Nothing here blocks, sleeps, starts a thread or reads a clock by itself.

mod checkpointing;
mod driver;
mod ending;
pub mod finish;
#[cfg(test)]
mod finish_tests;
mod inputs;
mod message;
mod pace;
mod reading;
pub mod snapshot;

pub use driver::{Progress, StepContext, Task, TaskOptions};
pub use inputs::TaskInput;
pub use message::{AwaitedBarrier, Mail, Report, ReportKind};
