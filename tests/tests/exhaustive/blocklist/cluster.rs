//! Two job masters' handlers and a resource manager's, and the links between them.
//!
//! A link is a connection: what is sent along it arrives in order, or is lost with the connection. Each end notices a
//! lost connection by itself, and the job master makes the next one, as in production.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;

use tidegate::clock::{EpochMillis, Timestamp};
use tidegate::control::blocklist::caps::Caps;
use tidegate::control::blocklist::cause::Cause;
use tidegate::control::blocklist::context::BlocklistContext;
use tidegate::control::blocklist::item::{
    BlocklistAction, BlocklistedItem, ItemKey, ItemType, NewItem, Origin,
};
use tidegate::control::blocklist::job_master::{JobMasterBlocklistHandler, ResourceManagerPeer};
use tidegate::control::blocklist::listeners::{
    BlocklistListeners, BlocklistMessage, BlocklistOutbox,
};
use tidegate::control::blocklist::resource_manager::ResourceManagerBlocklistHandler;
use tidegate::control::blocklist::runner::{StrategyMode, StrategyRunner};
use tidegate::control::blocklist::tracker::{BlocklistTracker, TrackerConfig};
use tidegate::control::identity::{JobId, LeaderId};
use tidegate::control::moment::Moment;

/// After how many milliseconds a notice is sent again.
pub(crate) const RESEND: u64 = 1000;

/// The end of items that last.
pub(crate) const LONG: i64 = 1_000_000;

/// The end of items that end soon.
pub(crate) const SHORT: i64 = 10;

/// One connection between a job master and the resource manager.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Link {
    pub(crate) to_resource_manager: VecDeque<BlocklistMessage>,
    pub(crate) to_job_master: VecDeque<BlocklistMessage>,
    /// What each end believes.
    pub(crate) job_master_is_connected: bool,
    pub(crate) resource_manager_is_connected: bool,
    /// It broke; ends that believe in it will notice.
    pub(crate) is_broken: bool,
}

/// All copies of the blocklist.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) now: u64,
    resource_manager: ResourceManagerBlocklistHandler,
    job_masters: Vec<JobMaster>,
    pub(crate) links: Vec<Link>,
    /// Terms of the resource manager so far.
    term: u64,
    /// Messages ever sent.
    pub(crate) sent: usize,
    made: u64,
}

/// A job master's handler. Its strategies, of which it has none, needn't be shared between threads; states must be.
#[derive(Debug)]
struct JobMaster(Mutex<JobMasterBlocklistHandler>);

impl JobMaster {
    fn ask<R>(&self, question: impl FnOnce(&JobMasterBlocklistHandler) -> R) -> R {
        question(&self.0.lock().unwrap())
    }

    fn get_mut(&mut self) -> &mut JobMasterBlocklistHandler {
        self.0.get_mut().unwrap()
    }
}

impl Clone for JobMaster {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.ask(Clone::clone)))
    }
}

impl Hash for JobMaster {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ask(|handler| handler.hash(state));
    }
}

/// What one handler sends while it handles one thing.
#[derive(Default)]
struct Outgoing {
    to_resource_manager: Vec<BlocklistMessage>,
    to_job_masters: Vec<(JobId, BlocklistMessage)>,
}

impl BlocklistContext for Outgoing {
    fn blocklist_resources(&mut self, items: &[BlocklistedItem]) {
        assert!(!items.is_empty(), "acting on nothing");
    }

    fn unblocklist_resources(&mut self, removed: &[BlocklistedItem]) {
        assert!(!removed.is_empty(), "acting on nothing");
    }
}

impl BlocklistOutbox<JobId> for Outgoing {
    fn send(&mut self, to: &JobId, message: BlocklistMessage) {
        self.to_job_masters.push((*to, message));
    }
}

impl BlocklistOutbox<ResourceManagerPeer> for Outgoing {
    fn send(&mut self, _to: &ResourceManagerPeer, message: BlocklistMessage) {
        self.to_resource_manager.push(message);
    }
}

impl Cluster {
    /// `jobs` job masters that are not connected.
    pub(crate) fn new(jobs: usize) -> Self {
        let handler = |job| {
            let mut handler = JobMasterBlocklistHandler::new(
                tracker(job),
                StrategyRunner::new(Vec::new(), StrategyMode::Enforce),
                Caps::default(),
                BlocklistListeners::new(LeaderId(job), Duration::from_millis(RESEND)),
            );
            handler.start(Moment::at_millis(0)).unwrap();
            JobMaster(Mutex::new(handler))
        };
        Self {
            now: 0,
            resource_manager: resource_manager(1),
            job_masters: (1..=jobs as u64).map(handler).collect(),
            links: vec![Link::default(); jobs],
            term: 1,
            sent: 0,
            made: 0,
        }
    }

    /// Both ends of job master `at` know each other, as after a registration.
    pub(crate) fn connect(&mut self, at: usize) {
        self.links[at].is_broken = false;
        self.links[at].to_resource_manager.clear();
        self.links[at].to_job_master.clear();
        self.links[at].job_master_is_connected = true;
        self.links[at].resource_manager_is_connected = true;
        let session = LeaderId(100 + self.term);
        self.on_job_master(at, |handler, now, out| {
            handler.connect_to_resource_manager(now, session, out);
        });
        let (job, session) = (JobId(at as u64 + 1), LeaderId(at as u64 + 1));
        self.on_resource_manager(|handler, now, out| {
            handler.register_blocklist_listener(now, job, session, out);
        });
    }

    /// The connection breaks; what is under way is lost.
    pub(crate) fn break_link(&mut self, at: usize) {
        self.links[at].is_broken = true;
        self.links[at].to_resource_manager.clear();
        self.links[at].to_job_master.clear();
    }

    /// The job master sees that its connection is broken.
    pub(crate) fn job_master_notices(&mut self, at: usize) {
        self.links[at].job_master_is_connected = false;
        self.job_masters[at].get_mut().disconnect_resource_manager();
    }

    /// The resource manager sees that the connection is broken.
    pub(crate) fn resource_manager_notices(&mut self, at: usize) {
        self.links[at].resource_manager_is_connected = false;
        self.resource_manager.deregister_blocklist_listener(JobId(at as u64 + 1));
    }

    /// A new resource manager, which knows nothing, takes the place of the old one.
    pub(crate) fn fail_over(&mut self) {
        self.term += 1;
        self.resource_manager = resource_manager(self.term);
        for at in 0..self.links.len() {
            self.break_link(at);
            self.links[at].resource_manager_is_connected = false;
        }
    }

    /// The job master's own component blocklists a node.
    pub(crate) fn add_at_job_master(&mut self, at: usize, action: BlocklistAction, end: i64) {
        self.made += 1;
        let mut item = BlocklistedItem::new(
            node(),
            EpochMillis(self.now as i64),
            Cause::new("Test", "job master"),
            action,
        )
        .ending_at(EpochMillis(end));
        item.version.origin_id = at as u64 + 1;
        item.version.seq = self.made;
        self.on_job_master(at, |handler, now, out| {
            handler.add_new_blocklisted_items(now, [item], out);
        });
    }

    /// A person blocklists a node.
    pub(crate) fn add_at_resource_manager(&mut self, action: BlocklistAction, end: i64) {
        let wish = NewItem {
            key: node(),
            action,
            cause: Cause::new("Test", "person"),
            end_timestamp: Some(EpochMillis(end)),
            origin: Origin::Rest { principal: "test".into() },
        };
        self.on_resource_manager(|handler, now, out| {
            handler.add_new_blocklisted_items(now, vec![wish], out);
        });
    }

    /// A person takes it back.
    pub(crate) fn remove(&mut self) {
        self.on_resource_manager(|handler, now, out| {
            handler.remove_items(now, &[node()], out);
        });
    }

    pub(crate) fn deliver_to_resource_manager(&mut self, at: usize) {
        let message = self.links[at].to_resource_manager.pop_front().unwrap();
        let job = JobId(at as u64 + 1);
        self.on_resource_manager(|handler, now, out| {
            handler.handle_message(now, job, message, out);
        });
    }

    pub(crate) fn deliver_to_job_master(&mut self, at: usize) {
        let message = self.links[at].to_job_master.pop_front().unwrap();
        self.on_job_master(at, |handler, now, out| handler.handle_message(now, message, out));
    }

    /// Time passes until the next thing that somebody waits for; who looks at the clock then is open.
    pub(crate) fn pass_time(&mut self) {
        self.now = self.next_deadline().unwrap();
    }

    pub(crate) fn tick_resource_manager(&mut self) {
        self.on_resource_manager(|handler, now, out| handler.tick(now, out));
    }

    pub(crate) fn tick_job_master(&mut self, at: usize) {
        self.on_job_master(at, |handler, now, out| handler.tick(now, out));
    }

    /// When somebody next waits for the clock, beyond now.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let job_masters =
            self.job_masters.iter().map(|it| it.ask(JobMasterBlocklistHandler::deadline));
        let all = job_masters.chain([self.resource_manager.deadline()]).flatten();
        let millis = all.map(|at| at.since(Moment::at_millis(0).mono).as_millis() as u64);
        millis.filter(|&at| at > self.now).min()
    }

    /// Whether job master `at` has something to do at this moment.
    pub(crate) fn is_job_master_due(&self, at: usize) -> bool {
        self.is_over(self.job_masters[at].ask(JobMasterBlocklistHandler::deadline))
    }

    /// Whether the resource manager has something to do at this moment.
    pub(crate) fn is_resource_manager_due(&self) -> bool {
        self.is_over(self.resource_manager.deadline())
    }

    /// Whether a notice is under way whose arrival nobody has confirmed.
    pub(crate) fn waits_for_an_acknowledgement(&self) -> bool {
        let waits = JobMasterBlocklistHandler::is_awaiting_acknowledgement;
        self.resource_manager.is_awaiting_acknowledgement()
            || self.job_masters.iter().any(|it| it.ask(waits))
    }

    /// The live items of each copy, the resource manager's first.
    pub(crate) fn copies(&self) -> Vec<Vec<BlocklistedItem>> {
        let job_masters =
            self.job_masters.iter().map(|it| it.ask(JobMasterBlocklistHandler::get_all_items));
        std::iter::once(self.resource_manager.get_all_items()).chain(job_masters).collect()
    }

    fn is_over(&self, deadline: Option<Timestamp>) -> bool {
        deadline.is_some_and(|at| at <= Moment::at_millis(self.now).mono)
    }

    fn on_resource_manager(
        &mut self,
        act: impl FnOnce(&mut ResourceManagerBlocklistHandler, Moment, &mut Outgoing),
    ) {
        let mut out = Outgoing::default();
        act(&mut self.resource_manager, Moment::at_millis(self.now), &mut out);
        for (job, message) in out.to_job_masters {
            self.sent += 1;
            let link = &mut self.links[job.0 as usize - 1];
            // One that was replaced meanwhile has no connection.
            if !link.is_broken {
                link.to_job_master.push_back(message);
            }
        }
    }

    fn on_job_master(
        &mut self,
        at: usize,
        act: impl FnOnce(&mut JobMasterBlocklistHandler, Moment, &mut Outgoing),
    ) {
        let mut out = Outgoing::default();
        act(self.job_masters[at].get_mut(), Moment::at_millis(self.now), &mut out);
        for message in out.to_resource_manager {
            self.sent += 1;
            if !self.links[at].is_broken {
                self.links[at].to_resource_manager.push_back(message);
            }
        }
    }
}

impl Hash for Cluster {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { now, resource_manager, job_masters, links, term, sent: _, made } = self;
        (now, resource_manager, job_masters, links, term, made).hash(state);
    }
}

/// Told apart by their digests, as the checker does.
impl PartialEq for Cluster {
    fn eq(&self, other: &Self) -> bool {
        let digest = |cluster: &Self| {
            let mut hasher = DefaultHasher::new();
            cluster.hash(&mut hasher);
            hasher.finish()
        };
        digest(self) == digest(other)
    }
}

/// The one node everybody quarrels about.
pub(crate) fn node() -> ItemKey {
    ItemKey::new(ItemType::Node, "n").unwrap()
}

/// A tracker that looks at the clock only when something ends.
pub(crate) fn tracker(origin_id: u64) -> BlocklistTracker {
    BlocklistTracker::new(TrackerConfig {
        item_timeout: None,
        check_interval: Duration::from_secs(100 * 365 * 24 * 3600),
        origin_id,
    })
}

fn resource_manager(term: u64) -> ResourceManagerBlocklistHandler {
    let session = LeaderId(100 + term);
    let listeners = BlocklistListeners::new(session, Duration::from_millis(RESEND));
    let mut handler =
        ResourceManagerBlocklistHandler::new(tracker(session.0), Caps::default(), listeners);
    handler.start(Moment::at_millis(0)).unwrap();
    handler
}
