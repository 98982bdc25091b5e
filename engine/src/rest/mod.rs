//! The REST interface of a running job: one server, on the control thread, or on a thread of its own for who opens one more.
//!
//! A request passes `guard` (who may ask, and how much), finds its row in `routes`, which is the one table that the
//! router and the description are made from, and is answered by the file of its noun. What only the control thread
//! knows is asked of it by message, with a deadline; the control thread never waits for a client, however slow.
//!
//! Paths and fields are Flink's where they mean the same. Where they differ:
//!
//! - there is one job to a server. Its `jid` is made of its name, so that it stays the same when the program starts
//!   again; wherever a path takes the id, it takes the name too;
//! - a job's `start-time` is that of this process, and it has no `timestamps`; a vertex has `read-buffers`, `late-records`
//!   and `queued-entries`, no `write-…` (those are the `read-…` of its consumers), and its `id` is that of the plan (`v0`);
//! - `POST /jobs/{job}/stop` answers with `outcome`: a job that was stopped, or whose savepoint is whole while
//!   what it has prepared isn't visible yet, are different things. `targetDirectory` is an absolute path, and may be
//!   left out: then the last checkpoint stays among the job's own;
//! - `GET /config` lists the options with their values and where those come from; secrets are masked;
//! - lists take `offset` and `limit`, and tell how long they are in `total`;
//! - unknown fields and unknown query parameters are errors; errors are `{"errors": […]}` with one sentence each;
//! - cancelling is `PATCH /jobs/{job}?mode=cancel`; a plain `stop` mode is `POST /jobs/{job}/stop`;
//! - `/blocklist` is FLIP-224's, which Flink never had; nor has it `/events`.

mod answer;
mod ask;
mod audit;
mod auth;
mod blocklist;
mod checkpoints;
mod config;
mod desk;
mod dispatch;
mod events;
mod guard;
mod health;
mod jobs;
mod metrics;
mod openapi;
mod query;
mod routes;
mod schemas;
mod seats;
mod server;
mod task_managers;
mod triggers;

pub use audit::AuditSink;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use query::query_decoded;
pub use server::RestServer;
pub(crate) use server::Serving;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::Config;
use crate::error::{Error, Result};

/// How a job is served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RestOptions {
    /// Where to listen; port 0 for one that the system chooses. Any but a loopback address needs `token_file`.
    pub address: SocketAddr,
    /// A file that holds the token which each request must bear (`Authorization: Bearer …`). Nobody but its owner
    /// may read or write it.
    pub token_file: Option<PathBuf>,
    /// Names that a request's `Host` may have, besides the address itself; on a loopback address also `localhost`.
    /// Names of other machines can be given to this one by whoever serves their DNS, so browsers must not be believed.
    pub hosts: Vec<String>,
    /// Where each change leaves a line of JSON.
    pub audit: AuditSink,
    /// The control thread has so long for an answer; then it is 504.
    pub control_timeout: Duration,
    /// A client has so long for the head of a request, or until it begins the next.
    pub header_timeout: Duration,
    /// A client has so long for the body of a request.
    pub body_timeout: Duration,
    /// So many connections are served at a time; beyond, the one that has been idle longest is closed.
    pub connections_max: usize,
}

impl Default for RestOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            token_file: None,
            hosts: Vec::new(),
            audit: AuditSink::None,
            control_timeout: Duration::from_secs(5),
            header_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(10),
            connections_max: 256,
        }
    }
}

impl RestOptions {
    /// Served at `address`, otherwise as by default.
    pub fn at(address: SocketAddr) -> Self {
        Self { address, ..Self::default() }
    }

    /// What `rest.address`, `rest.token-file` and `rest.audit-file` say; `None` without an address.
    ///
    /// # Errors
    /// `Config`: the address is no `IP:PORT`.
    pub fn from_config(config: &Config) -> Result<Option<Self>> {
        let Some(address) = &config.rest.address else { return Ok(None) };
        let address = address.parse().map_err(|_| {
            Error::config(format!(
                "option 'rest.address': expected an address like 127.0.0.1:8081, found '{address}'"
            ))
        })?;
        Ok(Some(Self {
            token_file: config.rest.token_file.clone(),
            audit: config.rest.audit_file.clone().map_or(AuditSink::None, AuditSink::File),
            ..Self::at(address)
        }))
    }
}
