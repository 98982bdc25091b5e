//! Three copies of the blocklist converge whatever happens between them, and what is told joins in any order.

mod cluster;
mod convergence;
mod joins;
