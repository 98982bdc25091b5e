//! The deciding machines of the control thread. None of them has a thread, clock, file, socket or randomness.

pub mod blocklist;
pub mod checkpoint;
pub mod driver;
pub mod evacuation;
pub mod execution;
pub mod heartbeat;
pub mod identity;
pub mod job_master;
pub mod moment;
pub mod region;
pub mod resource_manager;
pub mod restart;
pub mod slots;
