//! Checkpoint coordination: the deciding half of FLIP-147 on the control thread.
//!
//! [`coordinator::Coordinator`] is the machine; the other files are the nouns it is made of. Tasks
//! talk to it by [`message::Input`], it answers with [`message::Output`]. [`restore`] and
//! [`legality`] turn the metadata of a checkpoint into what each task of a new deployment gets.

pub mod config;
pub mod coordinator;
pub mod decider;
mod ending;
pub mod failure;
pub mod final_checkpoint;
pub mod finalize;
pub mod ids;
mod interruption;
pub mod legality;
pub mod message;
pub mod metadata;
pub mod options;
pub mod pending;
pub mod permit;
pub mod plan;
pub mod request;
pub mod restore;
pub mod retained;
pub mod schedule;
mod starting;
pub mod stop;
pub mod tasks;
pub mod topology;

#[cfg(test)]
mod tests;
