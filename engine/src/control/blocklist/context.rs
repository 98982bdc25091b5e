//! What a handler does to resources when items come and go (FLIP-224, BlocklistContext).

use super::item::BlocklistedItem;

/// Performs blocklist actions on the resources of one component.
pub trait BlocklistContext {
    /// Acts on items that are new, or whose action became stronger. A later end alone is not told.
    fn blocklist_resources(&mut self, newly_added_or_strengthened: &[BlocklistedItem]);

    /// Acts on items that ended or were removed; once a batch.
    fn unblocklist_resources(&mut self, removed: &[BlocklistedItem]);
}
