//! Where the registered task managers are, and how much of each node pool is known and how much is blocklisted.
//!
//! A node is in the pool that its task managers say, the last to register if they disagree. That is remembered while
//! one is there, and for as long as the node is blocklisted: else the next node of a small pool would count as its
//! first. A node of which nobody told is in the default pool. Kept by the tracker; read by caps, strategies and
//! snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use super::item::ItemKey;
use super::strategy::{ClusterView, PoolView};
use crate::control::identity::{NodeId, NodePool, ResourceId, TaskManagerLocation};

/// A node or task manager that is known, or blocklisted, or both.
#[derive(Clone, Debug, Default)]
struct Member {
    pool: NodePool,
    is_known: bool,
    is_blocklisted: bool,
}

/// The fleet, as one tracker knows it.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    locations: BTreeMap<ResourceId, NodeId>,
    on_node: BTreeMap<NodeId, BTreeSet<ResourceId>>,
    members: BTreeMap<ItemKey, Member>,
    /// The members counted, without pools that have none.
    pools: BTreeMap<NodePool, PoolView>,
}

impl Fleet {
    /// A task manager registered. Whether that is news.
    pub(crate) fn register(&mut self, location: &TaskManagerLocation) -> bool {
        let (id, node, pool) = (&location.resource_id, &location.node_id, &location.pool);
        let keys = [ItemKey::TaskManager(id.clone()), ItemKey::Node(node.clone())];
        if self.node_of(id) == Some(node) && keys.iter().all(|key| self.pool_of(key) == *pool) {
            return false;
        }
        self.deregister(id);
        self.locations.insert(id.clone(), node.clone());
        self.on_node.entry(node.clone()).or_default().insert(id.clone());
        for key in keys {
            self.change(key, |member| (member.pool, member.is_known) = (pool.clone(), true));
        }
        true
    }

    /// A task manager is gone. Whether it was there.
    pub(crate) fn deregister(&mut self, id: &ResourceId) -> bool {
        let Some(node) = self.locations.remove(id) else { return false };
        self.change(ItemKey::TaskManager(id.clone()), |member| member.is_known = false);
        if let Some(there) = self.on_node.get_mut(&node) {
            there.remove(id);
            if there.is_empty() {
                self.on_node.remove(&node);
                self.change(ItemKey::Node(node), |member| member.is_known = false);
            }
        }
        true
    }

    /// An item of `key` came to life, or went.
    pub(crate) fn note_blocklisted(&mut self, key: &ItemKey, is_blocklisted: bool) {
        self.change(key.clone(), |member| member.is_blocklisted = is_blocklisted);
    }

    /// Where the registered task managers are.
    pub fn locations(&self) -> &BTreeMap<ResourceId, NodeId> {
        &self.locations
    }

    /// The node of a registered task manager.
    pub fn node_of(&self, id: &ResourceId) -> Option<&NodeId> {
        self.locations.get(id)
    }

    /// The task managers that are registered on a node.
    pub fn on_node(&self, node: &NodeId) -> impl Iterator<Item = &ResourceId> {
        self.on_node.get(node).into_iter().flatten()
    }

    /// How many nodes registered task managers are on; 0 if the fleet is not known yet.
    pub fn known_node_count(&self) -> usize {
        self.on_node.len()
    }

    /// The pool of a node or task manager.
    pub fn pool_of(&self, key: &ItemKey) -> NodePool {
        self.members.get(key).map(|member| member.pool.clone()).unwrap_or_default()
    }

    /// Whether there is a live item of `key`.
    pub fn is_blocklisted(&self, key: &ItemKey) -> bool {
        self.members.get(key).is_some_and(|member| member.is_blocklisted)
    }

    /// The figures of each pool.
    pub fn pools(&self) -> &BTreeMap<NodePool, PoolView> {
        &self.pools
    }

    /// What strategies are told of the fleet.
    pub fn view(&self) -> ClusterView {
        ClusterView::new(self.pools.clone())
    }

    /// The figures are those of the members, and who is known is registered or has somebody registered there.
    pub(crate) fn check(&self) {
        let mut pools: BTreeMap<NodePool, PoolView> = BTreeMap::new();
        for (key, member) in &self.members {
            let view = pools.entry(member.pool.clone()).or_default();
            let (known, blocklisted) = view.of_mut(key.item_type());
            *known += usize::from(member.is_known);
            *blocklisted += usize::from(member.is_blocklisted);
            let is_known = match key {
                ItemKey::TaskManager(id) => self.locations.contains_key(id),
                ItemKey::Node(node) => self.on_node.contains_key(node),
            };
            assert_eq!(member.is_known, is_known, "{key}");
        }
        assert_eq!(pools, self.pools);
    }

    /// Changes a member, and the figures with it.
    fn change(&mut self, key: ItemKey, change: impl FnOnce(&mut Member)) {
        let mut member = self.members.remove(&key).unwrap_or_default();
        let (known, blocklisted) = self.figures(&key, &member.pool);
        *known -= usize::from(member.is_known);
        *blocklisted -= usize::from(member.is_blocklisted);
        let before = member.pool.clone();
        change(&mut member);
        let (known, blocklisted) = self.figures(&key, &member.pool);
        *known += usize::from(member.is_known);
        *blocklisted += usize::from(member.is_blocklisted);
        for pool in [&before, &member.pool] {
            if self.pools.get(pool).is_some_and(|view| *view == PoolView::default()) {
                self.pools.remove(pool);
            }
        }
        if member.is_known || member.is_blocklisted {
            self.members.insert(key, member);
        }
    }

    /// How many of the kind of `key` in `pool` are known, and how many are blocklisted.
    fn figures(&mut self, key: &ItemKey, pool: &NodePool) -> (&mut usize, &mut usize) {
        self.pools.entry(pool.clone()).or_default().of_mut(key.item_type())
    }
}

/// What decides; the members are what is registered and blocklisted, but for their pools.
impl Hash for Fleet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.locations.hash(state);
        let told = self.members.iter().filter(|(_, member)| !member.pool.is_default());
        told.for_each(|(key, member)| (key, &member.pool).hash(state));
    }
}
