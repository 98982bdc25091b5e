//! The job master's blocklist (FLIP-224, JobMasterBlocklistHandler): strategy, tracker, synchronisation, context.
//!
//! The FLIP's four steps in their order: generate, track, tell the resource manager, act. Telling comes before acting,
//! because acting frees slots that the resource manager would hand out again if it did not know. Items from the
//! resource manager enter at the second step and are not sent back. Called by `control::job_master`.

use std::sync::Arc;

use super::added::AddResult;
use super::caps::{CapExceeded, Caps};
use super::checker::BlocklistedTaskManagerChecker;
use super::context::BlocklistContext;
use super::counters::BlocklistCounters;
use super::item::{BlocklistedItem, ItemKey, NewItem};
use super::listeners::{BlocklistListeners, BlocklistMessage, BlocklistOutbox};
use super::runner::StrategyRunner;
use super::snapshot::BlocklistSnapshot;
use super::strategy::{ClusterView, FailureEvent, ProgressEvent, RemovalReason};
use super::tracker::{AlreadyStarted, BlocklistTracker};
use crate::clock::Timestamp;
use crate::control::identity::{LeaderId, NodeId, ResourceId, TaskManagerLocation};
use crate::control::moment::Moment;

/// The one peer of a job master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceManagerPeer;

/// What a job master's handler acts through: the slot pool and the way to the resource manager.
pub trait JobMasterBlocklistActions:
    BlocklistContext + BlocklistOutbox<ResourceManagerPeer>
{
}

impl<T: BlocklistContext + BlocklistOutbox<ResourceManagerPeer>> JobMasterBlocklistActions for T {}

/// Generates and manages the blocklisted items of one job.
#[derive(Debug)]
#[cfg_attr(feature = "simulation", derive(Clone))]
pub struct JobMasterBlocklistHandler {
    tracker: BlocklistTracker,
    strategies: StrategyRunner,
    caps: Caps,
    listeners: BlocklistListeners<ResourceManagerPeer>,
    counters: BlocklistCounters,
}

impl JobMasterBlocklistHandler {
    /// A handler; until it is started it is switched off: it ignores everything and blocks nothing.
    pub fn new(
        tracker: BlocklistTracker,
        strategies: StrategyRunner,
        caps: Caps,
        listeners: BlocklistListeners<ResourceManagerPeer>,
    ) -> Self {
        Self { tracker, strategies, caps, listeners, counters: BlocklistCounters::default() }
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

    /// A failed execution; call once each, before the restart is decided (FLIP-224, notifyException).
    ///
    /// Failures that the control plane caused itself blame nobody. Returns what the caps refused.
    pub fn notify_exception(
        &mut self,
        failure: &FailureEvent,
        actions: &mut dyn JobMasterBlocklistActions,
    ) -> Vec<CapExceeded> {
        if !self.tracker.is_running() || failure.causes().any(|cause| cause.is_induced()) {
            return Vec::new();
        }
        self.expire(failure.now, actions);
        let items = self.strategies.generate_blocklisted_items(failure);
        self.add_automatic(failure.now, items, actions)
    }

    /// A checkpoint completed on these task managers.
    pub fn notify_success(&mut self, progress: &ProgressEvent) {
        self.strategies.on_success(progress);
    }

    /// Adds items of this component's own: step two onwards.
    pub fn add_new_blocklisted_items(
        &mut self,
        now: Moment,
        items: impl IntoIterator<Item = BlocklistedItem>,
        actions: &mut dyn JobMasterBlocklistActions,
    ) -> AddResult {
        self.expire(now, actions);
        let result = self.tracker.add_new_blocklisted_items(now, items);
        for key in &result.changed {
            self.listeners.changed(key, None);
        }
        self.listeners.flush(now.mono, &self.tracker, actions);
        self.act(&result, actions);
        result
    }

    /// The resource manager of term `session` was found. It is told everything, before it sees requirements.
    pub fn connect_to_resource_manager(
        &mut self,
        now: Moment,
        session: LeaderId,
        actions: &mut dyn JobMasterBlocklistActions,
    ) {
        if self.tracker.is_running() {
            self.expire(now, actions);
            self.listeners.register(ResourceManagerPeer, session, &self.tracker);
            self.listeners.flush(now.mono, &self.tracker, actions);
        }
    }

    /// The resource manager is gone; it is told nothing more.
    pub fn disconnect_resource_manager(&mut self) {
        self.listeners.deregister(&ResourceManagerPeer);
    }

    /// A message of the resource manager.
    pub fn handle_message(
        &mut self,
        now: Moment,
        message: BlocklistMessage,
        actions: &mut dyn JobMasterBlocklistActions,
    ) {
        if !self.tracker.is_running() {
            self.counters.ignored_while_disabled += 1;
            return;
        }
        if !self.listeners.is_current(&ResourceManagerPeer, message.session()) {
            self.counters.stale_messages += 1;
            return;
        }
        self.expire(now, actions);
        match message {
            BlocklistMessage::Acknowledge { notice_session, seq, .. } => {
                self.listeners.acknowledged(&ResourceManagerPeer, notice_session, seq);
            }
            BlocklistMessage::Notify(notice) => {
                let receipt = self.listeners.acknowledgement(&notice);
                let (removed, _) = self.tracker.apply_tombstones(now, &notice.tombstones);
                let result = self.tracker.add_new_blocklisted_items(now, notice.items.clone());
                for key in self.tracker.more_than_told(&notice.items, &notice.tombstones) {
                    // The resource manager's copy of what joined here may have ended before ours arrives there.
                    self.listeners.changed(&key, None);
                }
                actions.send(&ResourceManagerPeer, receipt);
                self.act(&result, actions);
                self.gone(now, &removed, RemovalReason::Removed, actions);
            }
        }
        self.listeners.flush(now.mono, &self.tracker, actions);
    }

    /// Lets time pass: ends items, repeats lost notices, asks strategies what is due.
    pub fn tick(&mut self, now: Moment, actions: &mut dyn JobMasterBlocklistActions) {
        if !self.tracker.is_running() {
            return;
        }
        self.expire(now, actions);
        let due = self.strategies.tick(now);
        self.add_automatic(now, due, actions);
        self.listeners.flush(now.mono, &self.tracker, actions);
    }

    /// When [`JobMasterBlocklistHandler::tick`] is due next.
    pub fn deadline(&self) -> Option<Timestamp> {
        let ends = self.tracker.deadline()?;
        let others = [self.listeners.deadline(), self.strategies.deadline()];
        others.into_iter().flatten().chain([ends]).min()
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

    /// The task managers that this job knows, and how much of them is blocklisted.
    pub fn cluster(&self) -> ClusterView {
        self.tracker.fleet().view()
    }

    /// Nodes with a live item.
    pub fn get_blocklisted_nodes(&self) -> std::collections::BTreeSet<NodeId> {
        self.tracker.get_blocklisted_nodes()
    }

    /// All live items.
    pub fn get_all_items(&self) -> Vec<BlocklistedItem> {
        self.tracker.get_all_items()
    }

    /// The live item of `key`.
    pub fn item(&self, key: &ItemKey) -> Option<&BlocklistedItem> {
        self.tracker.item(key)
    }

    /// What other threads may see.
    pub fn snapshot(&mut self) -> Arc<BlocklistSnapshot> {
        self.tracker.snapshot()
    }

    /// Whether a notice is under way of which no resource manager has said that it arrived.
    pub fn is_awaiting_acknowledgement(&self) -> bool {
        self.listeners.deadline().is_some()
    }

    /// What happened since the start.
    pub fn counters(&self) -> &BlocklistCounters {
        &self.counters
    }

    /// The strategies and what they did.
    pub fn strategies(&self) -> &StrategyRunner {
        &self.strategies
    }

    fn add_automatic(
        &mut self,
        now: Moment,
        items: Vec<NewItem>,
        actions: &mut dyn JobMasterBlocklistActions,
    ) -> Vec<CapExceeded> {
        if items.is_empty() {
            return Vec::new();
        }
        let (items, refused) = self.caps.admit(self.tracker.fleet(), items);
        self.counters.refused_by_cap += refused.len() as u64;
        let items: Vec<_> = items.into_iter().map(|new| self.tracker.issue(now, new)).collect();
        self.add_new_blocklisted_items(now, items, actions);
        refused
    }

    /// Step four, for what is new or stronger: a later end must not touch slots.
    fn act(&mut self, result: &AddResult, actions: &mut dyn JobMasterBlocklistActions) {
        self.counters.count(result);
        let news: Vec<_> = result.added.iter().chain(&result.strengthened).cloned().collect();
        if !news.is_empty() {
            actions.blocklist_resources(&news);
        }
    }

    fn expire(&mut self, now: Moment, actions: &mut dyn JobMasterBlocklistActions) {
        let removed = self.tracker.remove_timed_out(now);
        self.gone(now, &removed, RemovalReason::Expired, actions);
    }

    fn gone(
        &mut self,
        now: Moment,
        removed: &[BlocklistedItem],
        why: RemovalReason,
        actions: &mut dyn JobMasterBlocklistActions,
    ) {
        if removed.is_empty() {
            return;
        }
        match why {
            RemovalReason::Expired => self.counters.expired += removed.len() as u64,
            RemovalReason::Removed => self.counters.removed += removed.len() as u64,
        }
        for item in removed {
            self.strategies.on_item_removed(now, &item.key, why);
        }
        actions.unblocklist_resources(removed);
    }
}

/// What decides what it does next, if it has no strategies.
#[cfg(feature = "simulation")]
impl std::hash::Hash for JobMasterBlocklistHandler {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.tracker, &self.listeners).hash(state);
    }
}

impl BlocklistedTaskManagerChecker for JobMasterBlocklistHandler {
    fn is_blocklisted_task_manager(&self, id: &ResourceId) -> bool {
        self.tracker.is_blocklisted_task_manager(id)
    }
}
