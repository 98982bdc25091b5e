//! The resource manager of the simulated cluster, which fails over, and its driver.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate::control::blocklist::caps::Caps;
use tidegate::control::blocklist::cause::Cause;
use tidegate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use tidegate::control::blocklist::item::{BlocklistAction, ItemKey, NewItem, Origin, Version};
use tidegate::control::blocklist::listeners::{BlocklistListeners, BlocklistMessage};
use tidegate::control::blocklist::resource_manager::ResourceManagerBlocklistHandler;
use tidegate::control::blocklist::tracker::{BlocklistTracker, TrackerConfig};
use tidegate::control::driver::{BlocklistedNodeRetriever, DriverCommand, DriverEvent, WorkerSpec};
use tidegate::control::identity::{
    AllocationId, JobId, LeaderId, NodeId, ResourceId, TaskManagerLocation,
};
use tidegate::control::resource_manager::{
    ResourceManager, ResourceManagerInput, ResourceManagerOutput, ResourceManagerPeer,
};
use tidegate::control::slots::manager::{SlotManager, SlotManagerConfig, SlotManagerOutput};
use tidegate::control::slots::profile::ResourceProfile;
use tidegate::control::slots::task_slots::SlotStatus;

use super::job::{CHECK_INTERVAL, HEARTBEATS, RESEND};
use super::message::{Event, Message, Who};
use super::net::{Net, SessionId};
use super::plan::Plan;
use super::reach::Race;
use super::task_manager::job_id;

/// The resource manager of the moment, if there is one, and the driver.
#[derive(Debug)]
pub struct Cluster {
    /// The machine.
    pub manager: Option<ResourceManager>,
    /// Nodes the driver avoids.
    pub avoided: BTreeSet<NodeId>,
    /// Task managers the driver was asked for and has not started.
    pub ordered: u32,
    /// Task managers to be ended.
    pub ended: Vec<ResourceId>,
    term: u64,
    jobs: BTreeMap<JobId, SessionId>,
    task_managers: BTreeMap<ResourceId, SessionId>,
    /// When a person removed something last.
    removed_at: Option<u64>,
    /// What persons removed, up to which version.
    pub removed: BTreeMap<ItemKey, Version>,
    /// Grants that are under way, and to whom.
    granting: BTreeMap<AllocationId, ResourceId>,
}

impl Cluster {
    /// The first resource manager.
    pub fn new(net: &mut Net, plan: &Plan) -> Self {
        let mut cluster = Self {
            manager: None,
            avoided: BTreeSet::new(),
            ordered: 0,
            ended: Vec::new(),
            term: 100,
            jobs: BTreeMap::new(),
            task_managers: BTreeMap::new(),
            removed_at: None,
            removed: BTreeMap::new(),
            granting: BTreeMap::new(),
        };
        cluster.start(net, plan);
        cluster
    }

    /// A resource manager with an empty memory and a new term.
    pub fn start(&mut self, net: &mut Net, plan: &Plan) {
        if self.manager.is_some() {
            return;
        }
        self.term += 1;
        let term = LeaderId(self.term);
        let tracker = BlocklistTracker::new(TrackerConfig {
            item_timeout: Some(plan.item_timeout),
            check_interval: CHECK_INTERVAL,
            origin_id: term.0,
        });
        let caps = Caps { max_blocked_ratio: 0.7, max_blocked_nodes: plan.blocked_max };
        let listeners = BlocklistListeners::new(term, RESEND);
        let mut blocklist = ResourceManagerBlocklistHandler::new(tracker, caps, listeners);
        blocklist.start(net.moment()).expect("it is new");
        let slots = SlotManager::new(SlotManagerConfig {
            worker: WorkerSpec { slots: plan.slots, profile: ResourceProfile::default() },
            can_request: plan.can_request,
            idle_timeout: Duration::from_secs(30),
            slots_max: plan.slots_max,
            blocked_exceed_limit: true,
            term,
        });
        self.avoided.clear();
        self.ordered = 0;
        self.manager = Some(ResourceManager::new(blocklist, slots, HEARTBEATS));
        if self.term > 101 {
            net.meet(Race::ClusterFailsOver);
        }
        self.wait(net);
    }

    /// The resource manager is gone, with all it knew.
    pub fn crash(&mut self, net: &mut Net) {
        if self.manager.take().is_none() {
            return;
        }
        if net.has_notice_flying() {
            net.meet(Race::ClusterLostBeforeSync);
        }
        net.drop_flying();
        // Nobody may have heard of what it removed.
        self.removed_at = None;
        self.removed.clear();
        self.granting.clear();
        let jobs = std::mem::take(&mut self.jobs).into_values();
        for session in jobs.chain(std::mem::take(&mut self.task_managers).into_values()) {
            net.cut(session);
        }
        net.within(100, 10_000, Event::Successor);
    }

    /// The blocklist as it is held here.
    pub fn blocklist(&self) -> Option<&ResourceManagerBlocklistHandler> {
        self.manager.as_ref().map(ResourceManager::blocklist)
    }

    /// A session is over.
    pub fn closed(&mut self, net: &mut Net, session: SessionId) {
        if let Some(peer) = self.peer_of(session) {
            let input = match peer {
                ResourceManagerPeer::JobMaster(job) => {
                    self.jobs.remove(&job);
                    ResourceManagerInput::JobMasterLost(job)
                }
                ResourceManagerPeer::TaskManager(id) => {
                    self.task_managers.remove(&id);
                    ResourceManagerInput::TaskManagerLost(id)
                }
            };
            self.handle(net, input);
        }
    }

    /// A message could not be delivered.
    pub fn undeliverable(&mut self, net: &mut Net, session: SessionId) {
        if let Some(peer) = self.peer_of(session) {
            self.handle(net, ResourceManagerInput::Undeliverable(peer));
        }
    }

    fn peer_of(&self, session: SessionId) -> Option<ResourceManagerPeer> {
        let job = self.jobs.iter().find(|(_, held)| **held == session);
        let task_manager = || self.task_managers.iter().find(|(_, held)| **held == session);
        job.map(|(job, _)| ResourceManagerPeer::JobMaster(*job))
            .or_else(|| Some(ResourceManagerPeer::TaskManager(task_manager()?.0.clone())))
    }

    /// A message of a job master.
    pub fn told_by_job(&mut self, net: &mut Net, session: SessionId, job: usize, message: Message) {
        let (index, job) = (job, job_id(job));
        if self.manager.is_none() {
            return;
        }
        if let Message::Register = message {
            self.jobs.insert(job, session);
            let term = LeaderId(self.term);
            net.send(session, Who::Cluster, Message::Accepted(term));
            let registered = ResourceManagerInput::JobMasterRegistered(job, LeaderId(job.0));
            return self.handle(net, registered);
        }
        if self.jobs.get(&job) != Some(&session) {
            return;
        }
        let input = match message {
            Message::Declare(needs) => ResourceManagerInput::RequirementsDeclared(job, needs),
            Message::Alive => ResourceManagerInput::Heartbeat(ResourceManagerPeer::JobMaster(job)),
            Message::Blocklist(said) => {
                self.note_notice(net, index, &said);
                ResourceManagerInput::Blocklist(job, said)
            }
            _ => return net.violate(|| format!("{job} sends the resource manager {message:?}")),
        };
        self.handle(net, input);
    }

    fn note_notice(&self, net: &mut Net, job: usize, said: &BlocklistMessage) {
        let BlocklistMessage::Notify(notice) = said else { return };
        for item in &notice.items {
            let held = self.blocklist().and_then(|blocklist| blocklist.item(&item.key));
            let Some(held) = held else { continue };
            let is_others = match &held.origin {
                Origin::Strategy { job: other, .. } => *other != job_id(job),
                _ => false,
            };
            if is_others
                && matches!(item.origin, Origin::Strategy { .. })
                && held.action != item.action
            {
                net.meet(Race::TwoJobsConflict);
            }
        }
    }

    /// A message of a task manager.
    pub fn from_task_manager(
        &mut self,
        net: &mut Net,
        session: SessionId,
        location: &TaskManagerLocation,
        slots: Vec<SlotStatus>,
        message: Message,
    ) {
        let id = location.resource_id.clone();
        if self.manager.is_none() {
            return;
        }
        if let Message::Register = message {
            self.task_managers.insert(id, session);
            net.send(session, Who::Cluster, Message::Accepted(LeaderId(self.term)));
            let registered = ResourceManagerInput::TaskManagerRegistered {
                location: location.clone(),
                profile: ResourceProfile::default(),
                report: slots,
            };
            return self.handle(net, registered);
        }
        if self.task_managers.get(&id) != Some(&session) {
            return;
        }
        let input = match message {
            Message::Slots(report, is_quiet) => {
                ResourceManagerInput::SlotReport { id, report, is_quiet }
            }
            Message::Granted(allocation, is_granted) => {
                if self.granting.remove(&allocation).is_some_and(|id| self.is_blocked(&id)) {
                    net.meet(Race::PendingOnBlocked);
                }
                ResourceManagerInput::SlotAnswered { id, allocation, is_granted }
            }
            Message::Freed(allocation) => ResourceManagerInput::SlotFreed { id, allocation },
            _ => return net.violate(|| format!("{id} sends the resource manager {message:?}")),
        };
        self.handle(net, input);
    }

    /// The driver tells something.
    pub fn driver(&mut self, net: &mut Net, event: DriverEvent) {
        if self.manager.is_some() {
            self.handle(net, ResourceManagerInput::Driver(event));
        }
    }

    /// Time passes.
    pub fn tick(&mut self, net: &mut Net) {
        if self.manager.is_none() {
            return;
        }
        if self.removed_at.is_some_and(|at| at + 600_000 <= net.now) {
            self.removed_at = None;
            net.meet(Race::TombstoneForgotten);
        }
        self.handle(net, ResourceManagerInput::Tick);
        net.check_deadline(Who::Cluster, self.manager.as_ref().and_then(ResourceManager::deadline));
    }

    /// A person blocks something.
    pub fn add(&mut self, net: &mut Net, items: Vec<NewItem>) {
        let Some(manager) = &mut self.manager else { return };
        let held = |new: &NewItem| {
            manager.blocklist().item(&new.key).map(|item| item.action)
                == Some(BlocklistAction::MarkBlocklisted)
        };
        let upgraded = |new: &NewItem| new.action == BlocklistAction::MarkAndEvacuate && held(new);
        if items.iter().any(upgraded) {
            net.meet(Race::Upgraded);
        }
        net.tell(|| format!("a person blocks {items:?}"));
        let mut out = Vec::new();
        manager.add_items(net.moment(), items, &mut out);
        self.apply(net, out, None);
    }

    /// A person takes something back; whether it was there.
    pub fn remove(&mut self, net: &mut Net, key: &ItemKey) -> bool {
        let Some(manager) = &mut self.manager else { return false };
        net.tell(|| format!("a person removes {key}"));
        let mut out = Vec::new();
        let gone = manager.remove_items(net.moment(), std::slice::from_ref(key), &mut out);
        self.apply(net, out, None);
        for item in &gone {
            self.removed_at = Some(net.now);
            let known = self.removed.entry(item.key.clone()).or_default();
            *known = item.version.max(*known);
        }
        !gone.is_empty()
    }

    fn handle(&mut self, net: &mut Net, input: ResourceManagerInput) {
        let Some(manager) = &mut self.manager else { return };
        let news = match &input {
            ResourceManagerInput::Blocklist(job, BlocklistMessage::Notify(notice)) => {
                Some((*job, notice.items.first().map(|item| item.key.clone())))
            }
            _ => None,
        };
        let refused = manager.blocklist().counters().refused_by_cap;
        net.tell(|| format!("the resource manager is told {input:?}"));
        let mut out = Vec::new();
        manager.handle(net.moment(), input, &mut out);
        if manager.blocklist().counters().refused_by_cap > refused {
            net.meet(Race::TakenBackByCap);
        }
        self.apply(net, out, news);
    }

    fn apply(
        &mut self,
        net: &mut Net,
        out: Vec<ResourceManagerOutput>,
        news: Option<(JobId, Option<ItemKey>)>,
    ) {
        if let Some((from, Some(key))) = news {
            let told = |to: &JobId, said: &BlocklistMessage| match said {
                BlocklistMessage::Notify(n) => {
                    (n.items.iter().any(|item| item.key == key)).then_some(*to)
                }
                BlocklistMessage::Acknowledge { .. } => None,
            };
            let told: Vec<_> = out
                .iter()
                .filter_map(|output| match output {
                    ResourceManagerOutput::Blocklist(to, said) => told(to, said),
                    _ => None,
                })
                .collect();
            if !told.is_empty() && !told.contains(&from) {
                net.meet(Race::EchoSuppressed);
            }
        }
        for output in out {
            net.tell(|| format!("the resource manager wants {output:?}"));
            match output {
                ResourceManagerOutput::Blocklist(job, said) => {
                    if let Some(session) = self.jobs.get(&job) {
                        net.send(*session, Who::Cluster, Message::Blocklist(said));
                    }
                }
                ResourceManagerOutput::Slots(wanted) => self.slots(net, wanted),
                ResourceManagerOutput::RejectTaskManager(id) => {
                    if let Some(session) = self.task_managers.remove(&id) {
                        net.send(session, Who::Cluster, Message::Reject);
                    }
                }
                ResourceManagerOutput::RequestHeartbeat(peer) => {
                    let session = match &peer {
                        ResourceManagerPeer::JobMaster(job) => self.jobs.get(job),
                        ResourceManagerPeer::TaskManager(id) => self.task_managers.get(id),
                    };
                    if let Some(session) = session {
                        net.send(*session, Who::Cluster, Message::Beat(Vec::new()));
                    }
                }
                ResourceManagerOutput::Disconnect(peer) => {
                    let session = match &peer {
                        ResourceManagerPeer::JobMaster(job) => self.jobs.remove(job),
                        ResourceManagerPeer::TaskManager(id) => self.task_managers.remove(id),
                    };
                    if let Some(session) = session {
                        net.cut(session);
                    }
                }
            }
        }
        self.wait(net);
    }

    fn slots(&mut self, net: &mut Net, wanted: SlotManagerOutput) {
        match wanted {
            SlotManagerOutput::RequestSlot { task_manager, index, job, allocation } => {
                if self.is_blocked(&task_manager) {
                    net.violate(|| {
                        format!("a slot of {task_manager} is granted, which is blocked")
                    });
                }
                self.granting.insert(allocation, task_manager.clone());
                if let Some(session) = self.task_managers.get(&task_manager) {
                    let grant = Message::Grant(index, job.0 as usize - 1, allocation);
                    net.send(*session, Who::Cluster, grant);
                }
            }
            SlotManagerOutput::Driver(command) => self.command(net, command),
            SlotManagerOutput::NotEnoughSlots { blocklisted, .. } => {
                net.meet(Race::NoCapacity);
                // Those that are idle were ended in the same breath.
                let is_here = |id: &&ResourceId| self.is_registered(id);
                if !blocklisted.iter().filter(is_here).all(|id| self.is_blocked(id)) {
                    net.violate(|| format!("not all of {blocklisted:?} are blocked"));
                }
            }
        }
    }

    fn command(&mut self, net: &mut Net, command: DriverCommand) {
        match command {
            DriverCommand::RequestWorker(_) => {
                net.meet(Race::WorkerRequested);
                self.ordered += 1;
                net.within(200, 5_000, Event::WorkerStarts);
            }
            // One that has started by now registers, and is ended when nobody uses it.
            DriverCommand::CancelRequest(_) => self.ordered = self.ordered.saturating_sub(1),
            DriverCommand::ReleaseWorker(id) => {
                net.meet(Race::WorkerReleased);
                self.task_managers.remove(&id);
                self.ended.push(id);
            }
            DriverCommand::BlocklistChanged => {
                self.avoided =
                    self.blocklist().map(|b| b.get_blocklisted_nodes()).unwrap_or_default();
            }
        }
    }

    fn is_registered(&self, id: &ResourceId) -> bool {
        self.manager.as_ref().is_some_and(|manager| manager.task_managers().contains_key(id))
    }

    fn is_blocked(&self, id: &ResourceId) -> bool {
        self.blocklist().is_some_and(|blocklist| blocklist.is_blocklisted_task_manager(id))
    }

    fn wait(&self, net: &mut Net) {
        net.tick_at(Who::Cluster, self.manager.as_ref().and_then(ResourceManager::deadline));
    }
}

/// A person's wish.
pub fn wish(net: &mut Net, key: ItemKey, action: BlocklistAction, lasts: Option<u64>) -> NewItem {
    let end = lasts.map(|lasts| net.moment().wall_after(Duration::from_millis(lasts)));
    NewItem {
        key,
        action,
        cause: Cause::new("Maintenance", "by hand"),
        end_timestamp: end,
        origin: Origin::Rest { principal: "operator".into() },
    }
}
