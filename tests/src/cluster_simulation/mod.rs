//! The simulator of the cluster's machines: real job masters with real checkpoint coordinators and a real resource manager that
//! fails over, on a virtual clock, with task managers, a driver and a network of its own.
//!
//! A seed draws a [`plan::Plan`], and [`schedule::run`] runs it: trouble first, then everything heals and the jobs must run, end
//! or say that there are no resources. What must hold meanwhile is checked where it happens ([`job`], [`cluster`]); what must
//! hold at the end, in [`checks`].
//!
//! The network between two components is a chain of sessions, as a transport gives them. Within one, messages arrive in order
//! or not at all: it can be cut at any moment, which its ends notice late or only by missing heartbeats. Only the blocklist's
//! notices and receipts are lost, doubled and reordered within a session; their protocol claims to stand it.

pub mod checks;
pub mod cluster;
pub mod job;
pub mod message;
pub mod net;
pub mod plan;
pub mod reach;
pub mod schedule;
pub mod strategy;
pub mod summary;
pub mod task_manager;
