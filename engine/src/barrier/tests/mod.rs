//! Scenarios of the alignment machine, by the letters of their ids, and random interleavings with an exact oracle.

mod aligned;
mod capture;
mod ending;
mod known;
mod rig;
mod simulation;
mod timeout;
mod tracker;
mod unaligned;
