//! Tracks blocklisted items and removes them when they end (FLIP-224, BlocklistTracker).
//!
//! An item's end is told in wall-clock time once, when it is first stored here, and from then on kept on the
//! monotonic clock: a jump of the wall clock neither ends items early nor keeps them for ever. Readers on other
//! threads use [`BlocklistTracker::snapshot`]; the tracker itself belongs to the control thread. Called by both handlers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::added::AddResult;
use super::checker::BlocklistedTaskManagerChecker;
use super::entry::{Entry, Tombstone};
use super::fleet::Fleet;
use super::item::{BlocklistedItem, ItemKey, NewItem, Version};
use super::snapshot::BlocklistSnapshot;
use crate::clock::{EpochMillis, Timestamp};
use crate::control::identity::{NodeId, ResourceId, TaskManagerLocation};
use crate::control::moment::{Moment, after};
use crate::probe::{Fault, is_broken};

/// How long a removal is remembered at least.
pub const TOMBSTONE_KEPT: Duration = Duration::from_secs(600);

/// What a tracker needs to know.
#[derive(Clone, Copy, Debug)]
pub struct TrackerConfig {
    /// How long an item without an end lasts; `None` for ever.
    pub item_timeout: Option<Duration>,
    /// At least how often ended items are looked for.
    pub check_interval: Duration,
    /// Tells the versions made here from those made elsewhere.
    pub origin_id: u64,
}

/// A tracker was started twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyStarted;

impl fmt::Display for AlreadyStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the blocklist tracker was started before")
    }
}

impl std::error::Error for AlreadyStarted {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    New,
    Running { next_check: Timestamp },
    Closed,
}

#[derive(Clone, Debug, Default, Hash)]
struct Held {
    entry: Entry,
    /// `entry` as readers see it.
    visible: Option<Arc<BlocklistedItem>>,
    /// When `visible` ends.
    ends: Option<Timestamp>,
    /// When the tombstone may be forgotten.
    forget: Option<Timestamp>,
}

/// All blocklisted items of one component.
#[derive(Clone, Debug)]
pub struct BlocklistTracker {
    config: TrackerConfig,
    life: Life,
    held: BTreeMap<ItemKey, Held>,
    /// `Held::visible` of all keys. What is listed is seldom much, and what was removed is held for long.
    live: BTreeMap<ItemKey, Arc<BlocklistedItem>>,
    /// `Held::ends` and `Held::forget` of all keys.
    deadlines: BTreeSet<(Timestamp, ItemKey)>,
    fleet: Fleet,
    /// Task managers with a live item, or registered on a node with one: asked for each slot, so kept ready.
    blocked: BTreeSet<ResourceId>,
    seq: u64,
    generation: u64,
    snapshot: Arc<BlocklistSnapshot>,
    /// Keys whose live item may be another since somebody took them; `None` if nobody ever did.
    touched: Option<BTreeSet<ItemKey>>,
}

impl BlocklistTracker {
    /// An empty tracker; until it is started it ignores everything.
    pub fn new(config: TrackerConfig) -> Self {
        Self {
            config,
            life: Life::New,
            held: BTreeMap::new(),
            live: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            fleet: Fleet::default(),
            blocked: BTreeSet::new(),
            seq: 0,
            generation: 0,
            snapshot: Arc::default(),
            touched: None,
        }
    }

    /// Starts the tracker.
    ///
    /// # Errors
    /// If it was started before.
    pub fn start(&mut self, now: Moment) -> Result<(), AlreadyStarted> {
        if self.life != Life::New {
            return Err(AlreadyStarted);
        }
        self.life = Life::Running { next_check: now.mono + self.config.check_interval };
        Ok(())
    }

    /// Makes an item of what somebody wants, newer than everything known of its key.
    pub fn issue(&mut self, now: Moment, new: NewItem) -> BlocklistedItem {
        self.seq += 1;
        let known = self.held.get(&new.key).and_then(|held| held.entry.highest_version());
        let mut version =
            Version { timestamp: now.wall.0, origin_id: self.config.origin_id, seq: self.seq };
        if known.is_some_and(|known| known >= version) {
            version.timestamp = known.map_or(0, |known| known.timestamp.saturating_add(1));
        }
        let end = new.end_timestamp.unwrap_or_else(|| self.default_end(now.wall));
        let mut item =
            BlocklistedItem::new(new.key, now.wall, new.cause, new.action).ending_at(end);
        item.version = version;
        item.origin = new.origin;
        item
    }

    /// Adds items or updates those held; tells what changed.
    ///
    /// An item that has ended is not added, unless it joins one that has not.
    pub fn add_new_blocklisted_items(
        &mut self,
        now: Moment,
        items: impl IntoIterator<Item = BlocklistedItem>,
    ) -> AddResult {
        let mut result = AddResult::default();
        if !self.is_running() {
            return result;
        }
        self.forget_tombstones(now);
        let mut by_key: BTreeMap<ItemKey, Vec<BlocklistedItem>> = BTreeMap::new();
        for mut item in items {
            let end = item.end_timestamp.unwrap_or_else(|| self.default_end(item.timestamp));
            item.end_timestamp = Some(end);
            by_key.entry(item.key.clone()).or_default().push(item);
        }
        for (key, items) in by_key {
            self.add_of_key(now, key, items, &mut result);
        }
        if !result.is_empty() {
            self.generation += 1;
        }
        self.check();
        result
    }

    /// Removes items by order of somebody; returns them, and what keeps them removed everywhere.
    pub fn remove_items<'a>(
        &mut self,
        now: Moment,
        keys: impl IntoIterator<Item = &'a ItemKey>,
    ) -> (Vec<BlocklistedItem>, Vec<Tombstone>) {
        let keep = now.wall_after(TOMBSTONE_KEPT);
        let mut tombstones = Vec::new();
        for key in keys {
            let Some(held) = self.held.get(key) else { continue };
            let (Some(item), Some(version)) = (&held.visible, held.entry.highest_version()) else {
                continue;
            };
            let keep_until = item.end().max(keep);
            tombstones.push(Tombstone { key: key.clone(), version, keep_until });
        }
        let (removed, _) = self.apply_tombstones(now, &tombstones);
        if is_broken(Fault::RemovalForgotten) {
            for tombstone in &tombstones {
                let held = self.held.get_mut(&tombstone.key).expect("it was just buried");
                held.entry.tombstone = None;
                if let Some(at) = held.forget.take() {
                    self.deadlines.remove(&(at, tombstone.key.clone()));
                }
                self.drop_if_empty(&tombstone.key);
            }
        }
        (removed, tombstones)
    }

    /// Applies removals made elsewhere; returns the items that are gone and the keys of which anything changed.
    pub fn apply_tombstones(
        &mut self,
        now: Moment,
        tombstones: &[Tombstone],
    ) -> (Vec<BlocklistedItem>, Vec<ItemKey>) {
        let (mut removed, mut changed) = (Vec::new(), Vec::new());
        if !self.is_running() {
            return (removed, changed);
        }
        self.forget_tombstones(now);
        for tombstone in tombstones.iter().filter(|t| t.keep_until > now.wall) {
            let held = self.held.entry(tombstone.key.clone()).or_default();
            let (before, item) = (held.entry.clone(), held.visible.clone());
            held.entry.bury(tombstone);
            if held.entry.visible().is_some_and(|item| item.end() <= now.wall) {
                held.entry.expire(); // What is left lived on only because of what was removed.
            }
            if held.entry == before {
                continue;
            }
            changed.push(tombstone.key.clone());
            if let Some(at) = held.forget.take()
                && held.ends != Some(at)
            {
                self.deadlines.remove(&(at, tombstone.key.clone()));
            }
            let keep = held.entry.tombstone.as_ref().expect("it was just buried").keep_until;
            let forget = now.until(keep);
            held.forget = Some(forget);
            if forget != Timestamp::MAX {
                self.deadlines.insert((forget, tombstone.key.clone()));
            }
            self.show(now, &tombstone.key);
            if let Some(item) = item
                && self.item(&tombstone.key).is_none()
            {
                removed.push(Arc::unwrap_or_clone(item));
            }
        }
        if !changed.is_empty() {
            self.generation += 1;
        }
        self.check();
        (removed, changed)
    }

    /// Removes every item whose end has come, inclusive.
    pub fn remove_timed_out(&mut self, now: Moment) -> Vec<BlocklistedItem> {
        let mut removed = Vec::new();
        let Life::Running { next_check } = &mut self.life else { return removed };
        if *next_check <= now.mono {
            *next_check = now.mono + self.config.check_interval;
        }
        while let Some((at, key)) = self.deadlines.first().cloned()
            && at <= now.mono
            && !(at == now.mono && is_broken(Fault::EndExclusive))
        {
            self.deadlines.pop_first();
            let held = self.held.get_mut(&key).expect("a deadline belongs to a held key");
            if held.forget == Some(at) {
                held.forget = None;
                held.entry.tombstone = None;
            }
            if held.ends == Some(at) {
                held.ends = None;
                held.entry.expire();
                let item = held.visible.take().expect("what ends is visible");
                self.live.remove(&key);
                removed.push(Arc::unwrap_or_clone(item));
                self.count(&key, true, false);
                self.touch(&key);
            }
            self.drop_if_empty(&key);
        }
        if !removed.is_empty() {
            self.generation += 1;
        }
        self.check();
        removed
    }

    /// Stops the tracker for good. What it held is gone; later calls change nothing.
    pub fn close(&mut self) {
        self.life = Life::Closed;
        let held = std::mem::take(&mut self.held);
        for key in held.keys() {
            self.fleet.note_blocklisted(key, false);
            self.touch(key);
        }
        self.live.clear();
        self.deadlines.clear();
        self.blocked.clear();
        self.generation += 1;
    }

    /// Tells on which node a task manager runs, and in which pool that is.
    pub fn register_task_manager(&mut self, location: &TaskManagerLocation) {
        if self.fleet.register(location) {
            self.note_blocked(&location.resource_id);
            self.generation += 1;
        }
    }

    /// Forgets where a task manager was.
    pub fn deregister_task_manager(&mut self, id: &ResourceId) {
        if self.fleet.deregister(id) {
            self.note_blocked(id);
            self.generation += 1;
        }
    }

    /// All nodes with a live item.
    pub fn get_blocklisted_nodes(&self) -> BTreeSet<NodeId> {
        self.live().filter_map(|item| item.key.node().cloned()).collect()
    }

    /// All live items, by key.
    pub fn get_all_items(&self) -> Vec<BlocklistedItem> {
        self.live().map(|item| (**item).clone()).collect()
    }

    /// The live item of `key`.
    pub fn item(&self, key: &ItemKey) -> Option<&BlocklistedItem> {
        self.held.get(key)?.visible.as_deref()
    }

    /// Whether the tracker was started and not closed.
    pub fn is_running(&self) -> bool {
        matches!(self.life, Life::Running { .. })
    }

    /// Where the registered task managers are, and how much of each pool is blocklisted.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// When [`BlocklistTracker::remove_timed_out`] is due next.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.life {
            Life::Running { next_check } => {
                Some(self.deadlines.first().map_or(next_check, |(at, _)| next_check.min(*at)))
            }
            Life::New | Life::Closed => None,
        }
    }

    /// What readers on other threads may see; the same value until something changes.
    pub fn snapshot(&mut self) -> Arc<BlocklistSnapshot> {
        if self.snapshot.generation != self.generation {
            let items = self.live().cloned().collect();
            self.snapshot =
                Arc::new(BlocklistSnapshot::new(self.generation, items, self.fleet.locations()));
        }
        self.snapshot.clone()
    }

    /// The keys whose live item may be another than when this was last called. The first call is told of none: from then on
    /// they are kept.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<ItemKey> {
        self.touched.replace(BTreeSet::new()).unwrap_or_default()
    }

    /// Every key of which there is something to tell others.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ItemKey> {
        self.held.keys()
    }

    /// What others must be told of `key`.
    pub(crate) fn told(&self, key: &ItemKey) -> (&[BlocklistedItem], Option<&Tombstone>) {
        self.held
            .get(key)
            .map_or((&[], None), |held| (held.entry.parts(), held.entry.tombstone.as_ref()))
    }

    /// The keys of `items` of which more is known than `items` and `tombstones` say.
    pub(crate) fn more_than_told(
        &self,
        items: &[BlocklistedItem],
        tombstones: &[Tombstone],
    ) -> BTreeSet<ItemKey> {
        let mut keys: BTreeSet<_> = items.iter().map(|item| item.key.clone()).collect();
        keys.retain(|key| {
            let (parts, tombstone) = self.told(key);
            let theirs = tombstones.iter().find(|tombstone| tombstone.key == *key);
            parts.iter().any(|part| !items.contains(part)) || tombstone != theirs
        });
        keys
    }

    fn live(&self) -> impl Iterator<Item = &Arc<BlocklistedItem>> {
        self.live.values()
    }

    fn default_end(&self, start: EpochMillis) -> EpochMillis {
        self.config.item_timeout.map_or(EpochMillis::MAX, |timeout| after(start, timeout))
    }

    fn add_of_key(
        &mut self,
        now: Moment,
        key: ItemKey,
        items: Vec<BlocklistedItem>,
        result: &mut AddResult,
    ) {
        let held = self.held.entry(key.clone()).or_default();
        if held.ends.is_some_and(|ends| ends <= now.mono) {
            // Its end has come, though nobody has looked: what arrives does not join it.
            held.entry.expire();
            self.show(now, &key);
        }
        let held = self.held.entry(key.clone()).or_default();
        let before = held.visible.clone();
        let parts = held.entry.parts().to_vec();
        for item in items {
            held.entry.add(item);
        }
        let is_changed = held.entry.parts() != parts;
        let after = held.entry.visible();
        let alive = match (&before, &after) {
            (_, None) => false,
            (Some(_), Some(_)) => true,
            (None, Some(item)) => item.end() > now.wall,
        };
        if !alive {
            held.entry.expire();
        }
        self.show(now, &key);
        if alive && is_changed {
            result.changed.insert(key.clone());
        }
        let Some(item) = self.item(&key) else { return self.drop_if_empty(&key) };
        match before {
            None => result.added.push(item.clone()),
            Some(before) if *before != *item => {
                if before.action < item.action {
                    result.strengthened.push(item.clone());
                }
                result.updated.push(item.clone());
            }
            Some(_) => {}
        }
    }

    /// Brings what readers see, and when it ends, up to the entry of `key`.
    fn show(&mut self, now: Moment, key: &ItemKey) {
        let held = self.held.get_mut(key).expect("only held keys are shown");
        let visible = held.entry.visible();
        let end = |item: &BlocklistedItem| item.end();
        if held.visible.as_deref().map(end) != visible.as_ref().map(end) {
            if let Some(at) = held.ends.take()
                && held.forget != Some(at)
            {
                self.deadlines.remove(&(at, key.clone()));
            }
            held.ends = visible.as_ref().map(|item| now.until(item.end()));
            if let Some(at) = held.ends
                && at != Timestamp::MAX
            {
                self.deadlines.insert((at, key.clone()));
            }
        }
        let (was, is) = (held.visible.is_some(), visible.is_some());
        held.visible = visible.map(Arc::new);
        match &held.visible {
            Some(item) => drop(self.live.insert(key.clone(), item.clone())),
            None => drop(self.live.remove(key)),
        }
        self.count(key, was, is);
        self.touch(key);
    }

    fn touch(&mut self, key: &ItemKey) {
        if let Some(touched) = &mut self.touched {
            touched.insert(key.clone());
        }
    }

    fn count(&mut self, key: &ItemKey, was_live: bool, is_live: bool) {
        if was_live == is_live {
            return;
        }
        self.fleet.note_blocklisted(key, is_live);
        match key {
            ItemKey::TaskManager(id) => self.note_blocked(id),
            ItemKey::Node(node) => {
                for id in self.fleet.on_node(node).cloned().collect::<Vec<_>>() {
                    self.note_blocked(&id);
                }
            }
        }
    }

    /// Brings `blocked` up to what is held of a task manager and its node.
    fn note_blocked(&mut self, id: &ResourceId) {
        let live = |key| self.item(&key).is_some();
        let is_blocked = live(ItemKey::TaskManager(id.clone()))
            || self.fleet.node_of(id).is_some_and(|node| live(ItemKey::Node(node.clone())));
        if is_blocked {
            self.blocked.insert(id.clone());
        } else {
            self.blocked.remove(id);
        }
    }

    fn forget_tombstones(&mut self, now: Moment) {
        let due: Vec<ItemKey> = self
            .deadlines
            .iter()
            .take_while(|(at, _)| *at <= now.mono)
            .map(|(_, key)| key.clone())
            .collect();
        for key in due {
            let held = self.held.get_mut(&key).expect("a deadline belongs to a held key");
            if let Some(at) = held.forget
                && at <= now.mono
            {
                held.forget = None;
                held.entry.tombstone = None;
                if held.ends != Some(at) {
                    self.deadlines.remove(&(at, key.clone()));
                }
                self.drop_if_empty(&key);
            }
        }
    }

    /// Every end and every tombstone has its deadline, and nothing else has.
    fn check(&self) {
        if cfg!(debug_assertions) {
            for (key, held) in &self.held {
                let due = |at: Timestamp| {
                    at == Timestamp::MAX || self.deadlines.contains(&(at, key.clone()))
                };
                assert_eq!(held.ends.is_some(), held.visible.is_some(), "{key}: what is seen ends");
                assert_eq!(self.live.get(key), held.visible.as_ref(), "{key}");
                assert!(held.ends.is_none_or(due) && held.forget.is_none_or(due), "{key}");
                assert_eq!(held.forget.is_some(), held.entry.tombstone.is_some(), "{key}");
                assert_eq!(self.fleet.is_blocklisted(key), held.visible.is_some(), "{key}");
            }
            assert!(
                self.live.keys().all(|key| self.held.contains_key(key)),
                "all that lives is held"
            );
            self.fleet.check();
            for (at, key) in &self.deadlines {
                let held = &self.held[key];
                assert!(held.ends == Some(*at) || held.forget == Some(*at), "{key}");
            }
            for (id, node) in self.fleet.locations() {
                let items = [ItemKey::TaskManager(id.clone()), ItemKey::Node(node.clone())];
                let is_blocked = items.iter().any(|key| self.item(key).is_some());
                assert_eq!(self.blocked.contains(id), is_blocked, "{id}");
            }
        }
    }

    fn drop_if_empty(&mut self, key: &ItemKey) {
        if self.held.get(key).is_some_and(|h| h.visible.is_none() && h.entry.tombstone.is_none()) {
            self.held.remove(key);
        }
    }
}

/// What decides what it does next; not what follows from that, nor what only its readers see.
impl Hash for BlocklistTracker {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { life, held, fleet, seq, .. } = self;
        (life, held, fleet, seq).hash(state);
    }
}

impl BlocklistedTaskManagerChecker for BlocklistTracker {
    fn is_blocklisted_task_manager(&self, id: &ResourceId) -> bool {
        self.blocked.contains(id)
    }
}
