//! The cluster's blocklist (FLIP-224, ResourceManagerBlocklistHandler): tracker, context, all job masters as listeners.
//!
//! Everything that changes is told to every registered job master; the one it came from is told only if the result
//! differs from what it sent. Removals are decided here and travel as tombstones. Called by
//! `control::resource_manager`.

use std::sync::Arc;

use super::added::AddResult;
use super::caps::{Caps, Room};
use super::checker::BlocklistedTaskManagerChecker;
use super::context::BlocklistContext;
use super::counters::BlocklistCounters;
use super::fleet::Fleet;
use super::item::{BlocklistedItem, ItemKey, NewItem};
use super::listeners::{BlocklistListeners, BlocklistMessage, BlocklistNotice, BlocklistOutbox};
use super::snapshot::BlocklistSnapshot;
use super::tracker::{AlreadyStarted, BlocklistTracker};
use crate::clock::Timestamp;
use crate::control::driver::BlocklistedNodeRetriever;
use crate::control::identity::{JobId, LeaderId, NodeId, ResourceId, TaskManagerLocation};
use crate::control::moment::Moment;
use crate::probe::{Fault, is_broken};

/// What the resource manager's handler acts through: the slot manager, the driver, and the way to the job masters.
pub trait ResourceManagerBlocklistActions: BlocklistContext + BlocklistOutbox<JobId> {}

impl<T: BlocklistContext + BlocklistOutbox<JobId>> ResourceManagerBlocklistActions for T {}

/// Manages the blocklisted items of the cluster.
#[derive(Clone, Debug)]
pub struct ResourceManagerBlocklistHandler {
    tracker: BlocklistTracker,
    caps: Caps,
    listeners: BlocklistListeners<JobId>,
    counters: BlocklistCounters,
}

impl ResourceManagerBlocklistHandler {
    /// A handler; until it is started it is switched off: it ignores everything and blocks nothing.
    pub fn new(
        tracker: BlocklistTracker,
        caps: Caps,
        listeners: BlocklistListeners<JobId>,
    ) -> Self {
        Self { tracker, caps, listeners, counters: BlocklistCounters::default() }
    }

    /// Starts the handler. One that is never started is the mechanism switched off.
    ///
    /// # Errors
    /// If it was started before.
    pub fn start(&mut self, now: Moment) -> Result<(), AlreadyStarted> {
        self.tracker.start(now)
    }

    /// Stops the handler for good.
    pub fn close(&mut self) {
        self.tracker.close();
    }

    /// Registers a job master, which is told everything at once. One of another term replaces the former one.
    pub fn register_blocklist_listener(
        &mut self,
        now: Moment,
        job: JobId,
        session: LeaderId,
        actions: &mut dyn ResourceManagerBlocklistActions,
    ) {
        if self.tracker.is_running() {
            self.expire(now, actions);
            self.listeners.register(job, session, &self.tracker);
            self.listeners.flush(now.mono, &self.tracker, actions);
        }
    }

    /// Tells a job master nothing more.
    pub fn deregister_blocklist_listener(&mut self, job: JobId) {
        self.listeners.deregister(&job);
    }

    /// Adds items that somebody other than a job master wants.
    pub fn add_new_blocklisted_items(
        &mut self,
        now: Moment,
        items: Vec<NewItem>,
        actions: &mut dyn ResourceManagerBlocklistActions,
    ) -> AddResult {
        if !self.tracker.is_running() {
            return AddResult::default();
        }
        self.expire(now, actions);
        let items: Vec<_> = items.into_iter().map(|new| self.tracker.issue(now, new)).collect();
        let result = self.tracker.add_new_blocklisted_items(now, items);
        for key in &result.changed {
            self.listeners.changed(key, None);
        }
        self.listeners.flush(now.mono, &self.tracker, actions);
        self.act(&result, actions);
        result
    }

    /// Removes items everywhere; returns those that were there.
    pub fn remove_items(
        &mut self,
        now: Moment,
        keys: &[ItemKey],
        actions: &mut dyn ResourceManagerBlocklistActions,
    ) -> Vec<BlocklistedItem> {
        self.expire(now, actions);
        let (removed, tombstones) = self.tracker.remove_items(now, keys);
        for tombstone in &tombstones {
            self.listeners.changed(&tombstone.key, None);
        }
        self.counters.removed += removed.len() as u64;
        self.listeners.flush(now.mono, &self.tracker, actions);
        if !removed.is_empty() {
            actions.unblocklist_resources(&removed);
        }
        removed
    }

    /// A message of a job master.
    pub fn handle_message(
        &mut self,
        now: Moment,
        from: JobId,
        message: BlocklistMessage,
        actions: &mut dyn ResourceManagerBlocklistActions,
    ) {
        if !self.tracker.is_running() {
            self.counters.ignored_while_disabled += 1;
            return;
        }
        if !self.listeners.is_current(&from, message.session()) {
            self.counters.stale_messages += 1;
            return;
        }
        self.expire(now, actions);
        match message {
            BlocklistMessage::Acknowledge { notice_session, seq, .. } => {
                self.listeners.acknowledged(&from, notice_session, seq);
            }
            BlocklistMessage::Notify(notice) => self.merge(now, from, notice, actions),
        }
        self.listeners.flush(now.mono, &self.tracker, actions);
    }

    /// Lets time pass: ends items, repeats lost notices.
    pub fn tick(&mut self, now: Moment, actions: &mut dyn ResourceManagerBlocklistActions) {
        self.expire(now, actions);
        self.listeners.flush(now.mono, &self.tracker, actions);
    }

    /// When [`ResourceManagerBlocklistHandler::tick`] is due next.
    pub fn deadline(&self) -> Option<Timestamp> {
        let ends = self.tracker.deadline()?;
        Some(self.listeners.deadline().map_or(ends, |resend| resend.min(ends)))
    }

    /// A task manager registered; whether it is blocklisted already.
    pub fn register_task_manager(&mut self, location: &TaskManagerLocation) -> bool {
        self.tracker.register_task_manager(location);
        self.is_blocklisted_task_manager(&location.resource_id)
    }

    /// A task manager is gone.
    pub fn deregister_task_manager(&mut self, id: &ResourceId) {
        self.tracker.deregister_task_manager(id);
    }

    /// All live items.
    pub fn get_all_items(&self) -> Vec<BlocklistedItem> {
        self.tracker.get_all_items()
    }

    /// The live item of `key`.
    pub fn item(&self, key: &ItemKey) -> Option<&BlocklistedItem> {
        self.tracker.item(key)
    }

    /// Whether the mechanism is on.
    pub fn is_enabled(&self) -> bool {
        self.tracker.is_running()
    }

    /// Where the registered task managers are, and how much of each pool is blocklisted.
    pub fn fleet(&self) -> &Fleet {
        self.tracker.fleet()
    }

    /// The room that the bounds for automatic items leave.
    pub fn room(&self) -> Room<'_> {
        self.caps.room(self.fleet())
    }

    /// What other threads may see: the source of gauges and queries.
    pub fn snapshot(&mut self) -> Arc<BlocklistSnapshot> {
        self.tracker.snapshot()
    }

    /// The keys whose live item may be another than when this was last called. The first call is told of none.
    pub(crate) fn take_touched(&mut self) -> std::collections::BTreeSet<ItemKey> {
        self.tracker.take_touched()
    }

    /// Whether a notice is under way of which no job master has said that it arrived.
    pub fn is_awaiting_acknowledgement(&self) -> bool {
        self.listeners.deadline().is_some()
    }

    /// What happened since the start.
    pub fn counters(&self) -> &BlocklistCounters {
        &self.counters
    }

    /// How many notices were sent again.
    pub fn resends(&self) -> u64 {
        self.listeners.resends()
    }

    fn merge(
        &mut self,
        now: Moment,
        from: JobId,
        notice: BlocklistNotice,
        actions: &mut dyn ResourceManagerBlocklistActions,
    ) {
        let receipt = self.listeners.acknowledgement(&notice);
        let (mut removed, changed) = self.tracker.apply_tombstones(now, &notice.tombstones);
        let refused = if notice.is_full { Vec::new() } else { self.over_the_cap(&notice.items) };
        let sent = notice.items.clone();
        let mut result = self.tracker.add_new_blocklisted_items(now, notice.items);
        let (taken_back, tombstones) = self.tracker.remove_items(now, &refused);
        self.counters.refused_by_cap += refused.len() as u64;
        result.added.retain(|item| !refused.contains(&item.key));
        removed.extend(taken_back.into_iter().filter(|item| !refused.contains(&item.key)));

        for key in tombstones.iter().map(|t| &t.key) {
            self.listeners.changed(key, None);
        }
        for key in changed.iter().chain(&result.changed) {
            if is_broken(Fault::OthersNotTold) {
                break;
            }
            self.listeners.changed(key, Some(&from));
        }
        // Its sender must hear of what it does not have: a removal, or more than it sent.
        for key in self.tracker.more_than_told(&sent, &notice.tombstones) {
            self.listeners.changed_for(&key, &from);
        }
        actions.send(&from, receipt);
        self.listeners.flush(now.mono, &self.tracker, actions);
        self.act(&result, actions);
        self.counters.removed += removed.len() as u64;
        if !removed.is_empty() {
            actions.unblocklist_resources(&removed);
        }
    }

    /// Automatic items of new keys for which there is no room.
    fn over_the_cap(&self, items: &[BlocklistedItem]) -> Vec<ItemKey> {
        let mut room = self.room();
        let mut refused = Vec::new();
        for BlocklistedItem { key, origin, .. } in items {
            let is_bounded = key.node().is_some() && origin.is_automatic();
            if is_bounded && !refused.contains(key) && room.take(key).is_err() {
                refused.push(key.clone());
            }
        }
        refused
    }

    fn act(&mut self, result: &AddResult, actions: &mut dyn ResourceManagerBlocklistActions) {
        self.counters.count(result);
        let news: Vec<_> = result.added.iter().chain(&result.strengthened).cloned().collect();
        if !news.is_empty() {
            actions.blocklist_resources(&news);
        }
    }

    fn expire(&mut self, now: Moment, actions: &mut dyn ResourceManagerBlocklistActions) {
        let removed = self.tracker.remove_timed_out(now);
        self.counters.expired += removed.len() as u64;
        if !removed.is_empty() {
            actions.unblocklist_resources(&removed);
        }
    }
}

/// What decides what it does next.
impl std::hash::Hash for ResourceManagerBlocklistHandler {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.tracker, &self.listeners).hash(state);
    }
}

impl BlocklistedTaskManagerChecker for ResourceManagerBlocklistHandler {
    fn is_blocklisted_task_manager(&self, id: &ResourceId) -> bool {
        self.tracker.is_blocklisted_task_manager(id)
    }
}

impl BlocklistedNodeRetriever for ResourceManagerBlocklistHandler {
    fn get_blocklisted_nodes(&self) -> std::collections::BTreeSet<NodeId> {
        self.tracker.get_blocklisted_nodes()
    }
}
