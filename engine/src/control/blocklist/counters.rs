//! What the blocklist counted since the start. Read by `/metrics`; written by the handlers.

use std::collections::BTreeMap;

/// Counters of one handler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlocklistCounters {
    /// Items added, by the name of their origin.
    pub added: BTreeMap<&'static str, u64>,
    /// Items updated, by the name of their origin.
    pub updated: BTreeMap<&'static str, u64>,
    /// Items that ended.
    pub expired: u64,
    /// Items removed by order.
    pub removed: u64,
    /// Automatic items refused because too much was blocklisted.
    pub refused_by_cap: u64,
    /// Messages dropped because their term was over.
    pub stale_messages: u64,
    /// Messages ignored because the blocklist is off here.
    pub ignored_while_disabled: u64,
}

impl BlocklistCounters {
    /// Counts the outcome of an addition.
    pub(crate) fn count(&mut self, result: &super::added::AddResult) {
        for item in &result.added {
            *self.added.entry(item.origin.name()).or_default() += 1;
        }
        for item in &result.updated {
            *self.updated.entry(item.origin.name()).or_default() += 1;
        }
    }
}
