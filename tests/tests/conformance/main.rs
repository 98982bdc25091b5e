//! Scenarios of whole jobs, each a test that begins with its id: what stands in `tests/scenarios`.

mod ending;
mod failed;
mod flips;
mod killed;
mod pipelines;
mod recovery;
mod reports;
mod rescale;
mod rig;
mod time;
