//! The deciding machines of the control thread. None of them has a thread, clock, file, socket or randomness.

pub mod blocklist;
pub mod checkpoint;
pub mod driver;
pub mod identity;
pub mod moment;
pub mod slots;
