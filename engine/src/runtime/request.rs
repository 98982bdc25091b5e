//! What the host, or a server in its name, asks the control thread, and what it is answered.
//!
//! Each request carries the way back; an answer that nobody waits for is dropped. Sent through
//! [`JobEndpoint`](super::JobEndpoint).

use std::collections::BTreeMap;
use std::path::PathBuf;

use crossbeam::channel::Sender;

use super::cluster::ClusterEvent;
use super::control::SavepointStop;
use crate::control::blocklist::item::BlocklistAction;
#[cfg(feature = "rest")]
use crate::control::blocklist::rest::{RestRequest, RestResponse};
use crate::error::Result;
use crate::id::{CheckpointId, SubtaskId};
use crate::metrics::LatencySnapshot;

/// What the host asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// Take a checkpoint; its id or why there is none is sent.
    Checkpoint(Sender<Result<CheckpointId>>),
    /// Take a savepoint into a folder of its own in this one, which is sent.
    Savepoint(PathBuf, Sender<Result<PathBuf>>),
    /// The same as the job's end; `true`: as if the sources were exhausted.
    StopWithSavepoint(PathBuf, bool, Sender<Result<SavepointStop>>),
    /// Let the sources end here, with a last checkpoint, and end.
    Stop,
    /// End at once.
    Cancel,
    /// Answer a request of the REST interface under `/blocklist`.
    #[cfg(feature = "rest")]
    Blocklist(BlocklistCall, Reply<RestResponse>),
    /// Tell of all registered task managers, by resource id.
    TaskManagers(Reply<Vec<TaskManagerStatus>>),
    /// Tell the figures of the blocklist.
    BlocklistCounters(Reply<BlocklistFigures>),
    /// Tell what happened in the cluster after the event of this number, oldest first.
    Events(u64, Reply<Vec<ClusterEvent>>),
    /// Lose the task manager of this name all of a sudden; whether there was one.
    LoseTaskManager(String, Reply<bool>),
}

/// The way back of what the control thread answers at once.
#[derive(Debug)]
pub(crate) enum Reply<T> {
    /// To a thread that waits.
    Thread(Sender<T>),
    /// To the server, whose thread waits for clients too.
    #[cfg(feature = "rest")]
    Server(tokio::sync::oneshot::Sender<T>),
}

impl<T> Reply<T> {
    /// Answers; nobody may be waiting any more.
    pub(crate) fn send(self, answer: T) {
        match self {
            Self::Thread(to) => drop(to.send(answer)),
            #[cfg(feature = "rest")]
            Self::Server(to) => drop(to.send(answer)),
        }
    }
}

/// A request of the REST interface under `/blocklist`, as it travels to the control thread.
#[cfg(feature = "rest")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlocklistCall {
    /// `GET`, `POST`, …
    pub method: String,
    /// The path, percent-decoded by nobody.
    pub path: String,
    /// What follows the question mark.
    pub query: String,
    /// The header, if there is one.
    pub content_type: Option<String>,
    /// The body.
    pub body: Vec<u8>,
    /// Who asks.
    pub principal: String,
}

#[cfg(feature = "rest")]
impl BlocklistCall {
    /// The same in the terms of the machine that answers.
    pub(super) fn as_rest(&self) -> RestRequest<'_> {
        RestRequest {
            method: &self.method,
            path: &self.path,
            query: &self.query,
            content_type: self.content_type.as_deref(),
            body: &self.body,
            principal: &self.principal,
        }
    }
}

/// A registered task manager.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskManagerStatus {
    /// Its name, new for each incarnation.
    pub resource_id: String,
    /// The machine it is on.
    pub node_id: String,
    /// The pool that the machine is in.
    pub node_pool: String,
    /// How many slots it has.
    pub slots: u32,
    /// How many of them no job has.
    pub free_slots: u32,
    /// The action of what blocklists it, itself or by its node; the stronger of both.
    pub blocklisted: Option<BlocklistAction>,
    /// The subtasks that run there.
    pub subtasks: Vec<SubtaskId>,
}

/// What the blocklist counted since the job started, and its gauges (FLIP-224, metrics).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BlocklistFigures {
    /// Whether the mechanism is on; if not, all else is 0.
    pub is_enabled: bool,
    /// The gauge `numBlocklistedNodes`.
    pub blocklisted_nodes: u64,
    /// The gauge `numBlocklistedTaskManagers`.
    pub blocklisted_task_managers: u64,
    /// Items added, by the name of their origin.
    pub items_added: BTreeMap<&'static str, u64>,
    /// Items updated, by the name of their origin.
    pub items_updated: BTreeMap<&'static str, u64>,
    /// Items that ended.
    pub items_expired: u64,
    /// Items that were removed.
    pub items_removed: u64,
    /// Slots that were offered and not taken, since their task manager was blocklisted or they were not needed.
    pub offers_rejected: u64,
    /// Free slots that were given back since their task manager was blocklisted.
    pub free_slots_released: u64,
    /// Slots with tasks that were given back by an evacuation.
    pub slots_evacuated: u64,
    /// Subtasks that an evacuation moved.
    pub tasks_evacuated: u64,
    /// From the order to blocklist to each slot given back because of it, free or with tasks; milliseconds are told apart.
    pub released_after: LatencySnapshot,
    /// How often strategies panicked or said too much.
    pub strategy_errors: u64,
    /// Items of strategies that were refused since too much was blocklisted.
    pub refused_by_cap: u64,
    /// Notices between job master and resource manager that were sent again.
    pub sync_resends: u64,
}
