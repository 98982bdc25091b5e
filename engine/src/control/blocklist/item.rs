//! The blocklisted item of FLIP-224, and how two items of one key become one.
//!
//! `join` is commutative, associative and idempotent, so copies agree whatever order and number of deliveries.
//! Versions order all items that were ever made: `(timestamp, origin, seq)`, and one origin never makes two equal ones.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::cause::Cause;
use crate::clock::EpochMillis;
use crate::control::identity::{InvalidIdentifier, JobId, NodeId, ResourceId};

/// The most older causes an item keeps.
pub const PREVIOUS_CAUSES_MAX: usize = 8;

/// What an item is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemType {
    /// One incarnation of a task manager. Its successor is another.
    TaskManager,
    /// A machine, and so every task manager on it, present or future.
    Node,
}

impl ItemType {
    /// How the type is written outside.
    pub const fn wire_name(self) -> &'static str {
        match self {
            Self::TaskManager => "TASK_MANAGER",
            Self::Node => "NODE",
        }
    }
}

/// What happens to a blocklisted resource; the second is the stronger (FLIP-224, blocklisted item, 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlocklistAction {
    /// No slot is taken from it any more; slots in use stay.
    #[default]
    MarkBlocklisted,
    /// As well, all tasks on it restart elsewhere.
    MarkAndEvacuate,
}

impl BlocklistAction {
    /// Both names as written outside, weaker first.
    pub const WIRE_NAMES: [&'static str; 2] =
        ["MARK_BLOCKLISTED", "MARK_BLOCKLISTED_AND_EVACUATE_TASKS"];

    /// How the action is written outside.
    pub const fn wire_name(self) -> &'static str {
        match self {
            Self::MarkBlocklisted => Self::WIRE_NAMES[0],
            Self::MarkAndEvacuate => Self::WIRE_NAMES[1],
        }
    }

    /// The action written `name` outside.
    pub fn from_wire_name(name: &str) -> Option<Self> {
        [Self::MarkBlocklisted, Self::MarkAndEvacuate].into_iter().find(|a| a.wire_name() == name)
    }
}

/// Which resource an item is about. Two items of one key are one entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemKey {
    /// A task manager.
    TaskManager(ResourceId),
    /// A node.
    Node(NodeId),
}

impl ItemKey {
    /// The resource of type `item_type` spelled `id`.
    ///
    /// # Errors
    /// If `id` can't be an identifier.
    pub fn new(item_type: ItemType, id: &str) -> Result<Self, InvalidIdentifier> {
        Ok(match item_type {
            ItemType::TaskManager => Self::TaskManager(ResourceId::new(id)?),
            ItemType::Node => Self::Node(NodeId::new(id)?),
        })
    }

    /// What it is about.
    pub const fn item_type(&self) -> ItemType {
        match self {
            Self::TaskManager(_) => ItemType::TaskManager,
            Self::Node(_) => ItemType::Node,
        }
    }

    /// How the resource is spelled.
    pub fn identifier(&self) -> &str {
        match self {
            Self::TaskManager(id) => id.as_str(),
            Self::Node(id) => id.as_str(),
        }
    }

    /// The node, if it is one.
    pub const fn node(&self) -> Option<&NodeId> {
        match self {
            Self::TaskManager(_) => None,
            Self::Node(id) => Some(id),
        }
    }
}

impl fmt::Display for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TaskManager(id) => write!(f, "task manager {id}"),
            Self::Node(id) => write!(f, "node {id}"),
        }
    }
}

/// The place of an item among all items ever made for its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Wall clock of its maker, raised above every version its maker knew of the key.
    pub timestamp: i64,
    /// Its maker.
    pub origin_id: u64,
    /// Which of its maker's items.
    pub seq: u64,
}

/// Who made an item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// A strategy of a job.
    Strategy {
        /// The job whose task failed.
        job: JobId,
        /// The strategy, or the rule of it.
        rule: String,
    },
    /// Another component, which did not say.
    Remote,
    /// The external resource manager's own health signal.
    External {
        /// The condition it reports.
        condition: String,
    },
    /// A person or program, over REST.
    Rest {
        /// Who, as far as the REST server knows.
        principal: String,
    },
}

impl Origin {
    /// Whether a machine decided it, so that caps hold for it.
    pub const fn is_automatic(&self) -> bool {
        match self {
            Self::Strategy { .. } | Self::External { .. } => true,
            Self::Rest { .. } | Self::Remote => false,
        }
    }

    /// One word for counters and listings.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Strategy { .. } => "strategy",
            Self::Remote => "remote",
            Self::External { .. } => "external",
            Self::Rest { .. } => "rest",
        }
    }
}

/// An older cause of an item, and the version it came with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreviousCause {
    /// The version of the item that had it.
    pub version: Version,
    /// The cause.
    pub cause: Cause,
}

/// A record of the blocklist (FLIP-224, blocklisted item), with its end, version and origin.
#[derive(Clone, Debug)]
pub struct BlocklistedItem {
    /// Type and identifier.
    pub key: ItemKey,
    /// When it was made, by its maker's wall clock.
    pub timestamp: EpochMillis,
    /// Why.
    pub cause: Cause,
    /// What happens to the resource.
    pub action: BlocklistAction,
    /// When it ends, inclusive; `None` until it is first stored, [`EpochMillis::MAX`] if never.
    pub end_timestamp: Option<EpochMillis>,
    /// Its place among all items of its key.
    pub version: Version,
    /// Who made it.
    pub origin: Origin,
    /// Older causes, newest first, at most [`PREVIOUS_CAUSES_MAX`]. No part of equality.
    pub previous_causes: Vec<PreviousCause>,
}

impl BlocklistedItem {
    /// An item of the FLIP's five fields; its version is its timestamp's.
    pub fn new(
        key: ItemKey,
        timestamp: EpochMillis,
        cause: Cause,
        action: BlocklistAction,
    ) -> Self {
        Self {
            key,
            timestamp,
            cause,
            action,
            end_timestamp: None,
            version: Version { timestamp: timestamp.0, ..Version::default() },
            origin: Origin::Remote,
            previous_causes: Vec::new(),
        }
    }

    /// Says when it ends.
    #[must_use]
    pub fn ending_at(mut self, end: EpochMillis) -> Self {
        self.end_timestamp = Some(end);
        self
    }

    /// The end; never, if it was not stored yet.
    pub fn end(&self) -> EpochMillis {
        self.end_timestamp.unwrap_or(EpochMillis::MAX)
    }

    /// Whether `self` adds nothing to `other`: not newer, not stronger, not longer.
    pub fn is_covered_by(&self, other: &Self) -> bool {
        self.recency() <= other.recency()
            && self.action <= other.action
            && self.end() <= other.end()
    }

    /// Both items as one: stronger action, later end, the newer one's version, timestamp and cause.
    ///
    /// # Panics
    /// If the keys differ.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        assert_eq!(self.key, other.key, "items of different keys don't join");
        let (newer, older) =
            if self.recency() >= other.recency() { (self, other) } else { (other, self) };
        let mut joined = newer.clone();
        joined.action = self.action.max(other.action);
        joined.end_timestamp = Some(self.end().max(other.end()));
        joined.remember(older.previous_causes.iter().cloned());
        joined.remember([PreviousCause { version: older.version, cause: older.cause.clone() }]);
        joined
    }

    /// Adds older causes, keeping the newest distinct ones.
    pub(crate) fn remember(&mut self, causes: impl IntoIterator<Item = PreviousCause>) {
        let all = &mut self.previous_causes;
        all.extend(causes);
        all.sort_by(|a, b| b.cmp(a));
        let mut distinct: Vec<PreviousCause> = Vec::new();
        for past in all.drain(..) {
            let known = past.cause == self.cause || distinct.iter().any(|d| d.cause == past.cause);
            if !known && distinct.len() < PREVIOUS_CAUSES_MAX {
                distinct.push(past);
            }
        }
        *all = distinct;
    }

    /// What decides which of two items is the newer.
    pub(crate) fn recency(&self) -> (Version, EpochMillis, &Cause, &Origin) {
        (self.version, self.timestamp, &self.cause, &self.origin)
    }
}

/// All five fields of the FLIP, the end and the version.
impl PartialEq for BlocklistedItem {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
            && self.timestamp == other.timestamp
            && self.cause == other.cause
            && self.action == other.action
            && self.end_timestamp == other.end_timestamp
            && self.version == other.version
    }
}

impl Eq for BlocklistedItem {}

impl Hash for BlocklistedItem {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { key, timestamp, cause, action, end_timestamp, version, .. } = self;
        (key, timestamp, cause, action, end_timestamp, version).hash(state);
    }
}

/// A blocklisted item that is about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlocklistedNode(BlocklistedItem);

/// A blocklisted item that is about a task manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlocklistedTaskManager(BlocklistedItem);

impl BlocklistedNode {
    /// The item, if it is about a node.
    pub fn from_item(item: BlocklistedItem) -> Option<Self> {
        (item.key.item_type() == ItemType::Node).then_some(Self(item))
    }

    /// The item.
    pub fn item(&self) -> &BlocklistedItem {
        &self.0
    }
}

impl BlocklistedTaskManager {
    /// The item, if it is about a task manager.
    pub fn from_item(item: BlocklistedItem) -> Option<Self> {
        (item.key.item_type() == ItemType::TaskManager).then_some(Self(item))
    }

    /// The item.
    pub fn item(&self) -> &BlocklistedItem {
        &self.0
    }
}

/// An item somebody wants, before it has a version: what strategies and REST requests make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewItem {
    /// Which resource.
    pub key: ItemKey,
    /// What to do with it.
    pub action: BlocklistAction,
    /// Why.
    pub cause: Cause,
    /// When it ends; `None` for the configured timeout.
    pub end_timestamp: Option<EpochMillis>,
    /// Who wants it.
    pub origin: Origin,
}
