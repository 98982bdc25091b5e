//! The blocklist at one moment, for readers on other threads: gauges, REST queries, drivers.
//!
//! Never changes once made; the control thread publishes a newer one. Made by the tracker, at most once per change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::checker::BlocklistedTaskManagerChecker;
use super::item::{BlocklistedItem, ItemKey};
use crate::control::identity::{NodeId, ResourceId};

/// All live items and what follows from them.
#[derive(Clone, Debug, Default)]
pub struct BlocklistSnapshot {
    /// Grows with every change.
    pub generation: u64,
    items: Vec<Arc<BlocklistedItem>>,
    nodes: BTreeSet<NodeId>,
    task_managers: BTreeSet<ResourceId>,
    on_node: BTreeMap<NodeId, Vec<ResourceId>>,
}

impl BlocklistSnapshot {
    pub(crate) fn new(
        generation: u64,
        items: Vec<Arc<BlocklistedItem>>,
        locations: &BTreeMap<ResourceId, NodeId>,
    ) -> Self {
        // Items are sorted, so both sets are built in one go.
        let nodes: BTreeSet<NodeId> =
            items.iter().filter_map(|item| item.key.node().cloned()).collect();
        let own = items.iter().filter_map(|item| match &item.key {
            ItemKey::TaskManager(id) => Some(id.clone()),
            ItemKey::Node(_) => None,
        });
        let mut task_managers: BTreeSet<ResourceId> = own.collect();
        let mut on_node: BTreeMap<NodeId, Vec<ResourceId>> = BTreeMap::new();
        for (id, node) in locations.iter().filter(|(_, node)| nodes.contains(*node)) {
            task_managers.insert(id.clone());
            on_node.entry(node.clone()).or_default().push(id.clone());
        }
        Self { generation, items, nodes, task_managers, on_node }
    }

    /// All live items: task managers, then nodes, each by id.
    pub fn items(&self) -> &[Arc<BlocklistedItem>] {
        &self.items
    }

    /// Nodes with a live item.
    pub fn nodes(&self) -> &BTreeSet<NodeId> {
        &self.nodes
    }

    /// Registered task managers on a blocklisted node, by id.
    pub fn task_managers_on(&self, node: &NodeId) -> &[ResourceId] {
        self.on_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// The gauge `numBlocklistedNodes`.
    pub fn blocklisted_node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The gauge `numBlocklistedTaskManagers`: distinct task managers that are blocklisted themselves, or
    /// registered on a blocklisted node.
    pub fn blocklisted_task_manager_count(&self) -> usize {
        self.task_managers.len()
    }
}

impl BlocklistedTaskManagerChecker for BlocklistSnapshot {
    fn is_blocklisted_task_manager(&self, id: &ResourceId) -> bool {
        self.task_managers.contains(id)
    }
}
