//! Slots: what a job needs, what it holds, and who gives them out.

pub mod profile;
