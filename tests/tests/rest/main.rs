//! The REST interface of running jobs: a real client, a real server on a port that the system chooses, a real job.

mod blocklist;
mod cli;
mod control;
mod guards;
mod jobs;
mod limits;
mod metrics;
mod rig;
mod storm;
