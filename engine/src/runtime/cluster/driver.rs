//! The resource manager's driver in one process: starts task managers of a fixed list when slots run short.
//!
//! Each place of the list holds one task manager at a time. A request that no place can serve, because all are taken or on
//! nodes to avoid, stays open until one can; a cluster without places beyond those it began with is a standalone one.

use std::collections::BTreeSet;

use crate::config::TaskManagerSpec;
use crate::control::driver::{BlocklistedNodeRetriever, ResourceManagerDriver, WorkerSpec};
use crate::control::identity::{NodeId, ResourceId};

/// A place for a task manager.
#[derive(Debug)]
struct Place {
    spec: TaskManagerSpec,
    taken: Option<ResourceId>,
}

/// Something the cluster has to do for the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Start the task manager of a place, under this name.
    Start(ResourceId, TaskManagerSpec),
    /// End a task manager.
    End(ResourceId),
}

/// The driver.
#[derive(Debug)]
pub(super) struct InProcessDriver {
    places: Vec<Place>,
    can_request: bool,
    /// Requests that no place could serve yet.
    open: u32,
    /// Up to date while requests are open.
    avoided: BTreeSet<NodeId>,
    started: u32,
    deeds: Vec<Deed>,
}

impl InProcessDriver {
    /// A driver whose `first` places are taken at once, and the others on request.
    pub(super) fn new(first: &[TaskManagerSpec], on_request: &[TaskManagerSpec]) -> Self {
        let place = |spec: &TaskManagerSpec| Place { spec: spec.clone(), taken: None };
        let mut driver = Self {
            places: first.iter().map(place).collect(),
            can_request: !on_request.is_empty(),
            open: 0,
            avoided: BTreeSet::new(),
            started: 0,
            deeds: Vec::new(),
        };
        for at in 0..driver.places.len() {
            driver.start(at);
        }
        driver.places.extend(on_request.iter().map(place));
        driver
    }

    /// What is to be done.
    pub(super) fn take_deeds(&mut self) -> Vec<Deed> {
        std::mem::take(&mut self.deeds)
    }

    /// A task manager is gone, for whatever reason.
    pub(super) fn ended(&mut self, id: &ResourceId) {
        for place in self.places.iter_mut().filter(|place| place.taken.as_ref() == Some(id)) {
            place.taken = None;
        }
        self.serve();
    }

    fn start(&mut self, at: usize) {
        self.started += 1;
        let id = ResourceId::new(&format!("tm-{}", self.started)).expect("it is short");
        self.places[at].taken = Some(id.clone());
        self.deeds.push(Deed::Start(id, self.places[at].spec.clone()));
    }

    /// Serves open requests as far as there are places.
    fn serve(&mut self) {
        while self.open > 0 && self.can_request {
            let is_usable = |place: &Place| {
                let is_avoided = self.avoided.iter().any(|node| node.as_str() == place.spec.node);
                place.taken.is_none() && !is_avoided
            };
            let Some(at) = self.places.iter().position(is_usable) else { return };
            self.open -= 1;
            self.start(at);
        }
    }
}

impl ResourceManagerDriver for InProcessDriver {
    fn can_request(&self) -> bool {
        self.can_request
    }

    fn initialize(&mut self, _retriever: &dyn BlocklistedNodeRetriever) {}

    fn request_worker(&mut self, _spec: &WorkerSpec, retriever: &dyn BlocklistedNodeRetriever) {
        self.avoided = retriever.get_blocklisted_nodes();
        self.open += 1;
        self.serve();
    }

    fn cancel_request(&mut self, _spec: &WorkerSpec) {
        self.open = self.open.saturating_sub(1);
    }

    fn release_worker(&mut self, id: &ResourceId) {
        self.deeds.push(Deed::End(id.clone()));
    }

    fn on_blocklist_changed(&mut self, retriever: &dyn BlocklistedNodeRetriever) {
        if self.open > 0 {
            self.avoided = retriever.get_blocklisted_nodes();
            self.serve();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::slots::profile::ResourceProfile;

    fn specs(nodes: &[&str]) -> Vec<TaskManagerSpec> {
        let spec = |node: &&str| TaskManagerSpec { node: (*node).to_owned(), slots: 1, pool: None };
        nodes.iter().map(spec).collect()
    }

    struct Avoided(BTreeSet<NodeId>);

    impl BlocklistedNodeRetriever for Avoided {
        fn get_blocklisted_nodes(&self) -> BTreeSet<NodeId> {
            self.0.clone()
        }
    }

    fn avoided(nodes: &[&str]) -> Avoided {
        Avoided(nodes.iter().map(|node| NodeId::new(node).expect("short")).collect())
    }

    fn started(driver: &mut InProcessDriver) -> Vec<String> {
        let name = |deed| match deed {
            Deed::Start(id, spec) => format!("{id}@{}", spec.node),
            Deed::End(id) => format!("end {id}"),
        };
        driver.take_deeds().into_iter().map(name).collect()
    }

    #[test]
    fn a_request_takes_a_place_on_a_node_that_is_not_avoided() {
        let worker = WorkerSpec { slots: 1, profile: ResourceProfile::default() };
        let mut driver = InProcessDriver::new(&specs(&["n1"]), &specs(&["n1", "n2"]));
        assert_eq!(started(&mut driver), ["tm-1@n1"]);
        driver.request_worker(&worker, &avoided(&["n1"]));
        assert_eq!(started(&mut driver), ["tm-2@n2"]);
        driver.request_worker(&worker, &avoided(&["n1"]));
        assert!(started(&mut driver).is_empty(), "the place left is to be avoided");
        driver.on_blocklist_changed(&avoided(&[]));
        assert_eq!(started(&mut driver), ["tm-3@n1"]);
    }

    #[test]
    fn a_place_is_used_again_once_its_task_manager_is_gone() {
        let worker = WorkerSpec { slots: 1, profile: ResourceProfile::default() };
        let mut driver = InProcessDriver::new(&specs(&["n1"]), &specs(&["n2"]));
        driver.request_worker(&worker, &avoided(&[]));
        driver.request_worker(&worker, &avoided(&[]));
        assert_eq!(started(&mut driver), ["tm-1@n1", "tm-2@n2"]);
        driver.ended(&ResourceId::new("tm-1").expect("short"));
        assert_eq!(started(&mut driver), ["tm-3@n1"], "the open request is served");
        assert!(!InProcessDriver::new(&specs(&["n1"]), &[]).can_request());
    }
}
