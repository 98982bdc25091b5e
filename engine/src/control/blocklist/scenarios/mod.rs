//! The blocklist's scenarios: each test begins with the id of the scenario it shows.

mod handlers;
mod items;
mod pools;
mod strategies;
mod synchronisation;
mod world;

use super::cause::Cause;
use super::item::{BlocklistAction, BlocklistedItem, ItemKey, ItemType, NewItem, Origin};
use super::tracker::{BlocklistTracker, TrackerConfig};
use crate::clock::EpochMillis;
use crate::control::identity::{JobId, NodeId, ResourceId, TaskManagerLocation};
use crate::control::moment::Moment;
use std::time::Duration;

pub(super) const M: BlocklistAction = BlocklistAction::MarkBlocklisted;
pub(super) const E: BlocklistAction = BlocklistAction::MarkAndEvacuate;

pub(super) fn node(id: &str) -> ItemKey {
    ItemKey::new(ItemType::Node, id).expect("short")
}

pub(super) fn tm(id: &str) -> ItemKey {
    ItemKey::new(ItemType::TaskManager, id).expect("short")
}

pub(super) fn rid(id: &str) -> ResourceId {
    ResourceId::new(id).expect("short")
}

pub(super) fn at(millis: u64) -> Moment {
    Moment::at_millis(millis)
}

/// An item of `key` made at time 0 that ends at `end`.
pub(super) fn item(key: ItemKey, action: BlocklistAction, end: i64) -> BlocklistedItem {
    item_of(key, action, end, "cause")
}

pub(super) fn item_of(
    key: ItemKey,
    action: BlocklistAction,
    end: i64,
    cause: &str,
) -> BlocklistedItem {
    BlocklistedItem::new(key, EpochMillis(0), Cause::new("Test", cause), action)
        .ending_at(EpochMillis(end))
}

pub(super) fn wish(key: ItemKey, action: BlocklistAction, end: i64) -> NewItem {
    NewItem {
        key,
        action,
        cause: Cause::new("Test", "wish"),
        end_timestamp: Some(EpochMillis(end)),
        origin: Origin::Rest { principal: "test".into() },
    }
}

pub(super) fn automatic(key: ItemKey, action: BlocklistAction, end: i64) -> NewItem {
    NewItem {
        origin: Origin::Strategy { job: JobId(1), rule: "test".into() },
        ..wish(key, action, end)
    }
}

pub(super) fn location(tm: &str, node: &str) -> TaskManagerLocation {
    TaskManagerLocation::new(rid(tm), NodeId::new(node).ok(), "127.0.0.1", 0).expect("short")
}

pub(super) fn new_tracker(origin_id: u64) -> BlocklistTracker {
    BlocklistTracker::new(TrackerConfig {
        item_timeout: Some(Duration::from_millis(50)),
        check_interval: Duration::from_millis(100),
        origin_id,
    })
}

/// A tracker started at time 0.
pub(super) fn tracker() -> BlocklistTracker {
    let mut tracker = new_tracker(1);
    tracker.start(at(0)).expect("it is new");
    tracker
}
