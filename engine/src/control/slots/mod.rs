//! Slots: what a job needs, what it holds, and who gives them out.
//!
//! `pool` is the job master's side, `manager` the resource manager's, `task_slots` the task manager's.

pub mod choice;
pub mod manager;
pub mod pool;
pub mod profile;
pub mod sharing;
pub mod task_slots;

#[cfg(test)]
mod manager_scenarios;
#[cfg(test)]
mod scenarios;
