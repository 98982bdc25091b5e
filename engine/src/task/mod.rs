//! A task: one attempt of one subtask, stepped by its worker.
//!
//! `driver` reads channels and sources, drives the chain and carries out what the alignment machine says; `lifecycle`
//! decides when it may finish and leave. Nothing here blocks, sleeps, starts a thread or reads a clock by itself.

mod driver;
pub mod finish;
#[cfg(test)]
mod finish_tests;
mod inputs;
mod lifecycle;
mod message;
mod pace;
pub mod snapshot;

pub use driver::{Progress, StepContext, Task, TaskOptions};
pub use inputs::TaskInput;
pub use message::{Mail, Report, ReportKind};
