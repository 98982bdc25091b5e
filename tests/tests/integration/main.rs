//! The integration tests, one binary: what users see, and what must hold for the repository as a whole.

mod derive;
mod unaligned;
mod process;
mod tidy;
mod ui;
