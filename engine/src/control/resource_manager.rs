//! The resource manager: task managers, slots and the cluster's blocklist, as one machine.
//!
//! Job masters register, declare what they need, and are told of the blocklist; task managers register and report;
//! the driver starts and ends task managers. Driven by the control thread; the REST interface calls `add_items` and
//! `remove_items` on it.

use std::collections::BTreeMap;

use super::blocklist::added::AddResult;
use super::blocklist::cause::Cause;
use super::blocklist::context::BlocklistContext;
use super::blocklist::item::{BlocklistAction, BlocklistedItem, ItemKey, NewItem, Origin};
use super::blocklist::listeners::{BlocklistMessage, BlocklistOutbox};
use super::blocklist::resource_manager::{
    ResourceManagerBlocklistActions, ResourceManagerBlocklistHandler,
};
use super::driver::{DriverCommand, DriverEvent};
use super::heartbeat::{HeartbeatConfig, HeartbeatOutput, Heartbeats};
use super::identity::{AllocationId, JobId, LeaderId, NodeId, ResourceId, TaskManagerLocation};
use super::moment::Moment;
use super::slots::manager::{ResourceOverview, SlotManager, SlotManagerOutput};
use super::slots::profile::{ResourceCounter, ResourceProfile};
use super::slots::task_slots::SlotStatus;
use crate::clock::Timestamp;

/// After how many failed starts in a row a node is blocklisted.
pub const LAUNCH_FAILURES_MAX: u32 = 3;

/// Whom the resource manager watches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceManagerPeer {
    /// A job master.
    JobMaster(JobId),
    /// A task manager.
    TaskManager(ResourceId),
}

/// One thing that happened to the resource manager.
#[derive(Clone, Debug)]
pub enum ResourceManagerInput {
    /// A job master of this term registered.
    JobMasterRegistered(JobId, LeaderId),
    /// A job master is gone; its job needs nothing more.
    JobMasterLost(JobId),
    /// A job master's blocklist said something.
    Blocklist(JobId, BlocklistMessage),
    /// A job says what it needs in all.
    RequirementsDeclared(JobId, ResourceCounter),
    /// A task manager registered.
    TaskManagerRegistered {
        /// Where it is.
        location: TaskManagerLocation,
        /// What each of its slots provides.
        profile: ResourceProfile,
        /// Its slots.
        report: Vec<SlotStatus>,
    },
    /// A task manager's heartbeat.
    SlotReport {
        /// Which.
        id: ResourceId,
        /// Its slots.
        report: Vec<SlotStatus>,
        /// Whether its network has sent everything.
        is_quiet: bool,
    },
    /// A task manager took, or could not take, a grant.
    SlotAnswered {
        /// Which.
        id: ResourceId,
        /// The grant.
        allocation: AllocationId,
        /// Whether it took it.
        is_granted: bool,
    },
    /// A task manager's slot is free again.
    SlotFreed {
        /// Which.
        id: ResourceId,
        /// The grant that ended.
        allocation: AllocationId,
    },
    /// A task manager is gone.
    TaskManagerLost(ResourceId),
    /// The driver says something.
    Driver(DriverEvent),
    /// A sign of life.
    Heartbeat(ResourceManagerPeer),
    /// A message could not be delivered.
    Undeliverable(ResourceManagerPeer),
    /// Time passes.
    Tick,
}

/// One thing the resource manager wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceManagerOutput {
    /// Send to a job master's blocklist.
    Blocklist(JobId, BlocklistMessage),
    /// Do for a slot: ask a task manager or the driver, or tell of a lack.
    Slots(SlotManagerOutput),
    /// Refuse a task manager that was ended before.
    RejectTaskManager(ResourceId),
    /// Ask for a sign of life.
    RequestHeartbeat(ResourceManagerPeer),
    /// A task manager or job master is gone.
    Disconnect(ResourceManagerPeer),
}

/// The decisions about the cluster.
#[derive(Debug)]
pub struct ResourceManager {
    blocklist: ResourceManagerBlocklistHandler,
    slots: SlotManager,
    heartbeats: Heartbeats<ResourceManagerPeer>,
    nodes: BTreeMap<ResourceId, NodeId>,
    launch_failures: BTreeMap<NodeId, u32>,
}

impl ResourceManager {
    /// A resource manager that knows nobody.
    pub fn new(
        blocklist: ResourceManagerBlocklistHandler,
        slots: SlotManager,
        heartbeat: HeartbeatConfig,
    ) -> Self {
        Self {
            blocklist,
            slots,
            heartbeats: Heartbeats::new(heartbeat),
            nodes: BTreeMap::new(),
            launch_failures: BTreeMap::new(),
        }
    }

    /// Takes one thing that happened; what is to be done is added to `out`, in the order in which to do it.
    pub fn handle(
        &mut self,
        now: Moment,
        input: ResourceManagerInput,
        out: &mut Vec<ResourceManagerOutput>,
    ) {
        match input {
            ResourceManagerInput::JobMasterRegistered(job, session) => {
                self.heartbeats.watch(now.mono, ResourceManagerPeer::JobMaster(job));
                self.on_blocklist(out, |blocklist, actions| {
                    blocklist.register_blocklist_listener(now, job, session, actions);
                });
            }
            ResourceManagerInput::JobMasterLost(job) => {
                self.lose(ResourceManagerPeer::JobMaster(job), out);
            }
            ResourceManagerInput::Blocklist(job, message) => {
                self.on_blocklist(out, |blocklist, actions| {
                    blocklist.handle_message(now, job, message, actions);
                });
            }
            ResourceManagerInput::RequirementsDeclared(job, needs) => {
                self.slots.declare_requirements(job, needs);
                self.check_requirements(out);
            }
            ResourceManagerInput::TaskManagerRegistered { location, profile, report } => {
                self.register(now, &location, profile, &report, out);
            }
            ResourceManagerInput::SlotReport { id, report, is_quiet } => {
                let peer = ResourceManagerPeer::TaskManager(id.clone());
                self.heartbeats.alive(now.mono, &peer);
                self.slots.slot_report(now.mono, &id, &report, is_quiet);
                self.check_requirements(out);
            }
            ResourceManagerInput::SlotAnswered { id, allocation, is_granted } => {
                self.slots.slot_request_answered(now.mono, &id, allocation, is_granted);
                if !is_granted {
                    self.check_requirements(out);
                }
            }
            ResourceManagerInput::SlotFreed { id, allocation } => {
                self.slots.slot_freed(now.mono, &id, allocation);
                self.check_requirements(out);
            }
            ResourceManagerInput::TaskManagerLost(id) => {
                self.lose(ResourceManagerPeer::TaskManager(id), out);
            }
            ResourceManagerInput::Driver(event) => self.driver(now, event, out),
            ResourceManagerInput::Heartbeat(peer) => self.heartbeats.alive(now.mono, &peer),
            ResourceManagerInput::Undeliverable(peer) => {
                let mut beats = Vec::new();
                self.heartbeats.undeliverable(&peer, &mut beats);
                self.apply_heartbeats(beats, out);
            }
            ResourceManagerInput::Tick => {
                self.on_blocklist(out, |blocklist, actions| blocklist.tick(now, actions));
                let mut beats = Vec::new();
                self.heartbeats.tick(now.mono, &mut beats);
                self.apply_heartbeats(beats, out);
            }
        }
        self.release_idle(now, out);
    }

    /// When a [`ResourceManagerInput::Tick`] is due.
    pub fn deadline(&self) -> Option<Timestamp> {
        let all = [self.blocklist.deadline(), self.slots.deadline(), self.heartbeats.deadline()];
        all.into_iter().flatten().min()
    }

    /// Blocklists what somebody other than a job master wants.
    pub fn add_items(
        &mut self,
        now: Moment,
        items: Vec<NewItem>,
        out: &mut Vec<ResourceManagerOutput>,
    ) -> AddResult {
        let result = self.on_blocklist(out, |blocklist, actions| {
            blocklist.add_new_blocklisted_items(now, items, actions)
        });
        self.release_idle(now, out);
        result
    }

    /// Takes items back, everywhere.
    pub fn remove_items(
        &mut self,
        now: Moment,
        keys: &[ItemKey],
        out: &mut Vec<ResourceManagerOutput>,
    ) -> Vec<BlocklistedItem> {
        self.on_blocklist(out, |blocklist, actions| blocklist.remove_items(now, keys, actions))
    }

    /// The cluster's blocklist.
    pub fn blocklist(&self) -> &ResourceManagerBlocklistHandler {
        &self.blocklist
    }

    /// The cluster's blocklist, to publish its snapshot.
    pub fn blocklist_mut(&mut self) -> &mut ResourceManagerBlocklistHandler {
        &mut self.blocklist
    }

    /// The numbers of the cluster.
    pub fn overview(&self) -> ResourceOverview {
        self.slots.overview(&self.blocklist)
    }

    /// Registered task managers and their nodes.
    pub fn task_managers(&self) -> &BTreeMap<ResourceId, NodeId> {
        &self.nodes
    }

    fn register(
        &mut self,
        now: Moment,
        location: &TaskManagerLocation,
        profile: ResourceProfile,
        report: &[SlotStatus],
        out: &mut Vec<ResourceManagerOutput>,
    ) {
        let id = &location.resource_id;
        if !self.slots.register_task_manager(now.mono, id, profile, report) {
            out.push(ResourceManagerOutput::RejectTaskManager(id.clone()));
            return;
        }
        self.launch_failures.remove(&location.node_id);
        self.nodes.insert(id.clone(), location.node_id.clone());
        self.heartbeats.watch(now.mono, ResourceManagerPeer::TaskManager(id.clone()));
        self.blocklist.register_task_manager(location);
        self.check_requirements(out);
    }

    fn lose(&mut self, peer: ResourceManagerPeer, out: &mut Vec<ResourceManagerOutput>) {
        self.heartbeats.unwatch(&peer);
        match &peer {
            ResourceManagerPeer::JobMaster(job) => {
                self.blocklist.deregister_blocklist_listener(*job);
                self.slots.declare_requirements(*job, ResourceCounter::default());
            }
            ResourceManagerPeer::TaskManager(id) => {
                self.slots.deregister_task_manager(id);
                self.blocklist.deregister_task_manager(id);
                self.nodes.remove(id);
            }
        }
        self.check_requirements(out);
    }

    fn driver(&mut self, now: Moment, event: DriverEvent, out: &mut Vec<ResourceManagerOutput>) {
        match event {
            DriverEvent::WorkerTerminated { id, .. } => {
                self.lose(ResourceManagerPeer::TaskManager(id), out);
            }
            DriverEvent::RequestFailed { node, message } => {
                self.slots.worker_request_failed();
                if let Some(node) = node {
                    self.launch_failed(now, node, &message, out);
                }
                self.check_requirements(out);
            }
        }
    }

    /// A node that can't start workers is avoided like one whose tasks fail (SPARK-16630).
    fn launch_failed(
        &mut self,
        now: Moment,
        node: NodeId,
        message: &str,
        out: &mut Vec<ResourceManagerOutput>,
    ) {
        let failures = self.launch_failures.entry(node.clone()).or_default();
        *failures += 1;
        let key = ItemKey::Node(node.clone());
        if *failures < LAUNCH_FAILURES_MAX || self.blocklist.room().take(&key).is_err() {
            return;
        }
        self.launch_failures.remove(&node);
        let item = NewItem {
            key,
            action: BlocklistAction::MarkBlocklisted,
            cause: Cause::new("WorkerLaunchFailed", message),
            end_timestamp: None,
            origin: Origin::External { condition: "LaunchFailed".into() },
        };
        self.add_items(now, vec![item], out);
    }

    fn check_requirements(&mut self, out: &mut Vec<ResourceManagerOutput>) {
        let mut wanted = Vec::new();
        self.slots.check_resource_requirements(&self.blocklist, &mut wanted);
        out.extend(wanted.into_iter().map(ResourceManagerOutput::Slots));
    }

    fn release_idle(&mut self, now: Moment, out: &mut Vec<ResourceManagerOutput>) {
        let mut wanted = Vec::new();
        self.slots.release_idle(now.mono, &self.blocklist, &mut wanted);
        for output in &wanted {
            if let SlotManagerOutput::Driver(DriverCommand::ReleaseWorker(id)) = output {
                self.heartbeats.unwatch(&ResourceManagerPeer::TaskManager(id.clone()));
                self.blocklist.deregister_task_manager(id);
                self.nodes.remove(id);
            }
        }
        out.extend(wanted.into_iter().map(ResourceManagerOutput::Slots));
    }

    fn apply_heartbeats(
        &mut self,
        beats: Vec<HeartbeatOutput<ResourceManagerPeer>>,
        out: &mut Vec<ResourceManagerOutput>,
    ) {
        for beat in beats {
            match beat {
                HeartbeatOutput::Request(peer) => {
                    out.push(ResourceManagerOutput::RequestHeartbeat(peer));
                }
                HeartbeatOutput::Lost(peer, _) => {
                    self.lose(peer.clone(), out);
                    out.push(ResourceManagerOutput::Disconnect(peer));
                }
            }
        }
    }

    /// Lets the blocklist act, then tells the driver of changed nodes and looks at what waits.
    fn on_blocklist<R>(
        &mut self,
        out: &mut Vec<ResourceManagerOutput>,
        act: impl FnOnce(
            &mut ResourceManagerBlocklistHandler,
            &mut dyn ResourceManagerBlocklistActions,
        ) -> R,
    ) -> R {
        let mut context = Context { out, changed: false, nodes_changed: false };
        let result = act(&mut self.blocklist, &mut context);
        let Context { changed, nodes_changed, .. } = context;
        if nodes_changed {
            let command = DriverCommand::BlocklistChanged;
            out.push(ResourceManagerOutput::Slots(SlotManagerOutput::Driver(command)));
        }
        if changed {
            self.check_requirements(out);
        }
        result
    }
}

/// What the handler acts through while the resource manager is borrowed.
struct Context<'a> {
    out: &'a mut Vec<ResourceManagerOutput>,
    changed: bool,
    nodes_changed: bool,
}

impl Context<'_> {
    fn note(&mut self, items: &[BlocklistedItem]) {
        self.changed = true;
        self.nodes_changed |= items.iter().any(|item| item.key.node().is_some());
    }
}

impl BlocklistContext for Context<'_> {
    fn blocklist_resources(&mut self, items: &[BlocklistedItem]) {
        self.note(items);
    }

    fn unblocklist_resources(&mut self, removed: &[BlocklistedItem]) {
        self.note(removed);
    }
}

impl BlocklistOutbox<JobId> for Context<'_> {
    fn send(&mut self, to: &JobId, message: BlocklistMessage) {
        self.out.push(ResourceManagerOutput::Blocklist(*to, message));
    }
}

#[cfg(test)]
#[path = "resource_manager_scenarios.rs"]
pub(crate) mod scenarios;
