//! What came of adding items to a tracker.
//!
//! Made by the tracker, and read by the handlers and whoever counts.

use std::collections::BTreeSet;

use super::item::{BlocklistedItem, ItemKey};

/// What adding changed. Each key appears once, with its final value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddResult {
    /// Items of keys that had none.
    pub added: Vec<BlocklistedItem>,
    /// Items that differ from what was held.
    pub updated: Vec<BlocklistedItem>,
    /// Those of `updated` whose action became stronger.
    pub strengthened: Vec<BlocklistedItem>,
    /// Keys of which others must be told. More than the above: an item that is not seen behind a longer one is
    /// seen again if that is removed.
    pub changed: BTreeSet<ItemKey>,
}

impl AddResult {
    /// Newly added or updated items: what the FLIP's method returns.
    pub fn all(&self) -> impl Iterator<Item = &BlocklistedItem> {
        self.added.iter().chain(&self.updated)
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.updated.is_empty()
    }
}
