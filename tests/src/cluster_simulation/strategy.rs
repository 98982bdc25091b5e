//! A strategy that blames the place of every failure.

use tidegate::control::blocklist::item::{BlocklistAction, ItemKey, NewItem, Origin};
use tidegate::control::blocklist::strategy::{BlocklistStrategy, FailureEvent};
use tidegate::control::identity::TaskManagerLocation;

/// Blames the node, or else the task manager.
#[derive(Clone, Copy, Debug)]
pub struct Blame {
    /// What becomes of it.
    pub action: BlocklistAction,
    /// Whether it is the node.
    pub is_node: bool,
}

impl BlocklistStrategy for Blame {
    fn name(&self) -> &'static str {
        "blame"
    }

    fn generate_blocklisted_items(&mut self, failure: &FailureEvent) -> Vec<NewItem> {
        let key = |location: &TaskManagerLocation| match self.is_node {
            true => ItemKey::Node(location.node_id.clone()),
            false => ItemKey::TaskManager(location.resource_id.clone()),
        };
        let new = |location: &TaskManagerLocation| NewItem {
            key: key(location),
            action: self.action,
            cause: failure.cause.clone(),
            end_timestamp: None,
            origin: Origin::Strategy { job: failure.job, rule: "blame".into() },
        };
        failure.locations.iter().map(new).collect()
    }
}
