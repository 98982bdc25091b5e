//! How much of the fleet strategies may blocklist.
//!
//! People may do more (with `force`); a machine that decides on its own must not strangle the job. While the size of
//! the fleet is unknown no share can be told, and only the absolute bound holds. Asked by both handlers.

use super::item::{ItemKey, NewItem};
use super::strategy::ClusterView;

/// Bounds for items made automatically.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// The largest share of the known nodes that may be blocklisted, 0 to 1.
    pub max_blocked_ratio: f64,
    /// The most nodes that may be blocklisted.
    pub max_blocked_nodes: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self { max_blocked_ratio: 0.33, max_blocked_nodes: 10 }
    }
}

/// An item was refused, because too much is blocklisted already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapExceeded {
    /// The resource that stays in use.
    pub key: ItemKey,
    /// How many of its kind are blocklisted.
    pub blocklisted: usize,
    /// How many may be.
    pub allowed: usize,
}

impl std::fmt::Display for CapExceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key, blocklisted, allowed } = self;
        write!(f, "{key} is not blocklisted: {blocklisted} are already, at most {allowed} may be")
    }
}

impl Caps {
    /// How many of `known` may be blocklisted; never less than one.
    pub fn allowed(&self, known: usize) -> usize {
        if known == 0 {
            return self.max_blocked_nodes.max(1);
        }
        let share = (known as f64 * self.max_blocked_ratio.clamp(0.0, 1.0)).floor() as usize;
        share.min(self.max_blocked_nodes).max(1)
    }

    /// Takes of `items` those that fit, given what is blocklisted; tells of the others why not.
    pub fn admit(
        &self,
        view: &ClusterView,
        blocklisted_task_managers: usize,
        is_held: impl Fn(&ItemKey) -> bool,
        items: Vec<NewItem>,
    ) -> (Vec<NewItem>, Vec<CapExceeded>) {
        let (mut nodes, mut task_managers) = (view.blocklisted_nodes, blocklisted_task_managers);
        let (mut admitted, mut refused) = (Vec::new(), Vec::new());
        for item in items {
            let (count, known) = match item.key {
                ItemKey::Node(_) => (&mut nodes, view.nodes),
                ItemKey::TaskManager(_) => (&mut task_managers, view.task_managers),
            };
            let allowed = self.allowed(known);
            if is_held(&item.key) || !item.origin.is_automatic() {
                admitted.push(item);
            } else if *count < allowed {
                *count += 1;
                admitted.push(item);
            } else {
                refused.push(CapExceeded { key: item.key, blocklisted: *count, allowed });
            }
        }
        (admitted, refused)
    }
}
