//! The seam to whatever provides task managers (FLIP-224, ResourceManagerDriver): a process, Kubernetes, YARN.
//!
//! Only nodes reach a driver, never blocklisted task managers: it could not avoid those, they exist already. The
//! resource manager's decisions are values ([`DriverCommand`]); [`DriverCommand::perform`] is the thin line that acts.

use std::collections::BTreeSet;

use super::identity::{NodeId, ResourceId};
use super::slots::profile::ResourceProfile;

/// Tells a driver which nodes to avoid (FLIP-224, BlocklistedNodeRetriever).
pub trait BlocklistedNodeRetriever {
    /// Nodes with a live item.
    fn get_blocklisted_nodes(&self) -> BTreeSet<NodeId>;
}

/// A task manager to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSpec {
    /// How many slots it offers.
    pub slots: u32,
    /// What each slot provides.
    pub profile: ResourceProfile,
}

/// What a driver does for the resource manager. Results come back as [`DriverEvent`]s.
pub trait ResourceManagerDriver {
    /// Whether it can start task managers. A standalone cluster can't.
    fn can_request(&self) -> bool;

    /// Starts the driver, telling it which nodes to avoid from the beginning.
    fn initialize(&mut self, retriever: &dyn BlocklistedNodeRetriever);

    /// Starts one more task manager, not on a node that `retriever` names.
    fn request_worker(&mut self, spec: &WorkerSpec, retriever: &dyn BlocklistedNodeRetriever);

    /// Takes back a request that was not answered yet.
    fn cancel_request(&mut self, spec: &WorkerSpec);

    /// Ends a task manager.
    fn release_worker(&mut self, id: &ResourceId);

    /// The nodes that `retriever` names changed: requests under way that may land on one are to be replaced. With many nodes
    /// asking for them takes long, so who has no request under way doesn't.
    fn on_blocklist_changed(&mut self, retriever: &dyn BlocklistedNodeRetriever);
}

/// What the resource manager wants of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverCommand {
    /// Start one more task manager.
    RequestWorker(WorkerSpec),
    /// Take back a request.
    CancelRequest(WorkerSpec),
    /// End a task manager.
    ReleaseWorker(ResourceId),
    /// The nodes to avoid are others from now on.
    BlocklistChanged,
}

impl DriverCommand {
    /// Makes `driver` do it.
    pub fn perform(
        &self,
        driver: &mut dyn ResourceManagerDriver,
        retriever: &dyn BlocklistedNodeRetriever,
    ) {
        match self {
            Self::RequestWorker(spec) => driver.request_worker(spec, retriever),
            Self::CancelRequest(spec) => driver.cancel_request(spec),
            Self::ReleaseWorker(id) => driver.release_worker(id),
            Self::BlocklistChanged => driver.on_blocklist_changed(retriever),
        }
    }
}

/// What a driver tells the resource manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverEvent {
    /// A requested task manager could not be started.
    RequestFailed {
        /// The machine it was tried on, if that is known.
        node: Option<NodeId>,
        /// What the provider said.
        message: String,
    },
    /// A task manager ended.
    WorkerTerminated {
        /// Which.
        id: ResourceId,
        /// Why, as the provider says.
        message: String,
    },
}
