//! The one question the slot pool and the slot manager ask of the blocklist.

use std::collections::BTreeSet;

use crate::control::identity::ResourceId;

/// Tells blocklisted task managers (FLIP-224, SlotPool).
pub trait BlocklistedTaskManagerChecker {
    /// Whether the task manager is blocklisted, itself or by its node. `false` for one that nobody knows.
    fn is_blocklisted_task_manager(&self, id: &ResourceId) -> bool;
}

/// The checker of a cluster whose blocklist is off.
#[derive(Clone, Copy, Debug, Default)]
pub struct NothingBlocklisted;

impl BlocklistedTaskManagerChecker for NothingBlocklisted {
    fn is_blocklisted_task_manager(&self, _id: &ResourceId) -> bool {
        false
    }
}

impl BlocklistedTaskManagerChecker for BTreeSet<ResourceId> {
    fn is_blocklisted_task_manager(&self, id: &ResourceId) -> bool {
        self.contains(id)
    }
}
