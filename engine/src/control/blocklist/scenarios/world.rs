//! A recorder of what handlers do, and a network between one resource manager and several job masters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::control::blocklist::caps::Caps;
use crate::control::blocklist::context::BlocklistContext;
use crate::control::blocklist::item::BlocklistedItem;
use crate::control::blocklist::job_master::{JobMasterBlocklistHandler, ResourceManagerPeer};
use crate::control::blocklist::listeners::{BlocklistListeners, BlocklistMessage, BlocklistOutbox};
use crate::control::blocklist::resource_manager::ResourceManagerBlocklistHandler;
use crate::control::blocklist::runner::{StrategyMode, StrategyRunner};
use crate::control::blocklist::strategy::{BlocklistStrategy, ClusterView, FailureEvent};
use crate::control::identity::LeaderId;

pub(super) const RESEND: Duration = Duration::from_secs(30);

/// What a handler did, in order. Peer 0 is the resource manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Told(u64, Vec<String>),
    ToldRemoved(u64, Vec<String>),
    Blocked(Vec<String>),
    Unblocked(Vec<String>),
}

#[derive(Debug, Default)]
pub(super) struct Recorder {
    pub(super) deeds: Vec<Deed>,
    pub(super) deaf: BTreeSet<JobId>,
    unacknowledged: Vec<(JobId, u64)>,
}

impl Recorder {
    pub(super) fn take(&mut self) -> Vec<Deed> {
        std::mem::take(&mut self.deeds)
    }

    pub(super) fn unacknowledged(&mut self) -> Vec<(JobId, u64)> {
        std::mem::take(&mut self.unacknowledged)
    }

    fn tell(&mut self, to: JobId, message: BlocklistMessage) {
        let BlocklistMessage::Notify(notice) = message else { return };
        if self.deaf.contains(&to) {
            return;
        }
        self.unacknowledged.push((to, notice.seq));
        if !notice.items.is_empty() {
            self.deeds.push(Deed::Told(to.0, names(&notice.items)));
        }
        if !notice.tombstones.is_empty() {
            let ids = notice.tombstones.iter().map(|t| t.key.identifier().to_owned());
            self.deeds.push(Deed::ToldRemoved(to.0, ids.collect()));
        }
    }
}

fn names(items: &[BlocklistedItem]) -> Vec<String> {
    items.iter().map(|item| item.key.identifier().to_owned()).collect()
}

impl BlocklistContext for Recorder {
    fn blocklist_resources(&mut self, items: &[BlocklistedItem]) {
        self.deeds.push(Deed::Blocked(names(items)));
    }

    fn unblocklist_resources(&mut self, removed: &[BlocklistedItem]) {
        self.deeds.push(Deed::Unblocked(names(removed)));
    }
}

impl BlocklistOutbox<JobId> for Recorder {
    fn send(&mut self, to: &JobId, message: BlocklistMessage) {
        self.tell(*to, message);
    }
}

impl BlocklistOutbox<ResourceManagerPeer> for Recorder {
    fn send(&mut self, _to: &ResourceManagerPeer, message: BlocklistMessage) {
        self.tell(JobId(0), message);
    }
}

pub(super) fn failure(class: &str, locations: &[TaskManagerLocation]) -> FailureEvent {
    FailureEvent {
        now: at(0),
        job: JobId(1),
        attempt: None,
        locations: locations.to_vec(),
        cause: Cause::new(class, "it failed"),
        chain: Vec::new(),
        cluster: ClusterView::default(),
    }
}

pub(super) fn job_master(
    strategies: Vec<Box<dyn BlocklistStrategy>>,
    mode: StrategyMode,
) -> JobMasterBlocklistHandler {
    let mut jm = new_job_master(1, strategies, mode);
    jm.start(at(0)).expect("it is new");
    jm
}

/// A job master's handler, not started.
pub(super) fn new_job_master(
    job: u64,
    strategies: Vec<Box<dyn BlocklistStrategy>>,
    mode: StrategyMode,
) -> JobMasterBlocklistHandler {
    JobMasterBlocklistHandler::new(
        new_tracker(job),
        StrategyRunner::new(strategies, mode),
        Caps::default(),
        BlocklistListeners::new(LeaderId(job), RESEND),
    )
}

pub(super) fn resource_manager() -> ResourceManagerBlocklistHandler {
    resource_manager_of_term(100)
}

pub(super) fn resource_manager_of_term(term: u64) -> ResourceManagerBlocklistHandler {
    let listeners = BlocklistListeners::new(LeaderId(term), RESEND);
    let mut rm =
        ResourceManagerBlocklistHandler::new(new_tracker(term), Caps::default(), listeners);
    rm.start(at(0)).expect("it is new");
    rm
}

/// One message under way.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    /// The job master at the other end.
    pub(super) job: JobId,
    pub(super) to_resource_manager: bool,
    pub(super) message: BlocklistMessage,
}

/// What one handler wants sent, and what it did to its context.
#[derive(Debug, Default)]
struct Outgoing {
    from: Option<JobId>,
    letters: Vec<Letter>,
    blocked: usize,
    unblocked: usize,
}

impl BlocklistContext for Outgoing {
    fn blocklist_resources(&mut self, items: &[BlocklistedItem]) {
        self.blocked += items.len();
    }

    fn unblocklist_resources(&mut self, removed: &[BlocklistedItem]) {
        self.unblocked += removed.len();
    }
}

impl BlocklistOutbox<JobId> for Outgoing {
    fn send(&mut self, to: &JobId, message: BlocklistMessage) {
        self.letters.push(Letter { job: *to, to_resource_manager: false, message });
    }
}

impl BlocklistOutbox<ResourceManagerPeer> for Outgoing {
    fn send(&mut self, _to: &ResourceManagerPeer, message: BlocklistMessage) {
        let job = self.from.expect("a job master sends this");
        self.letters.push(Letter { job, to_resource_manager: true, message });
    }
}

/// One resource manager, its job masters, and the letters between them.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: u64,
    pub(super) rm: ResourceManagerBlocklistHandler,
    pub(super) rm_term: u64,
    pub(super) jms: BTreeMap<JobId, JobMasterBlocklistHandler>,
    pub(super) letters: Vec<Letter>,
    /// Notices (not receipts) ever sent.
    pub(super) notices: Vec<Letter>,
    pub(super) context_calls: (usize, usize),
}

impl World {
    /// `jobs` job masters, all connected.
    pub(super) fn new(jobs: u64) -> Self {
        let mut world = Self {
            now: 0,
            rm: resource_manager_of_term(100),
            rm_term: 100,
            jms: BTreeMap::new(),
            letters: Vec::new(),
            notices: Vec::new(),
            context_calls: (0, 0),
        };
        for job in 1..=jobs {
            let mut jm = new_job_master(job, Vec::new(), StrategyMode::Enforce);
            jm.start(at(0)).expect("it is new");
            world.jms.insert(JobId(job), jm);
            world.connect(job);
        }
        world
    }

    pub(super) fn on_rm<R>(
        &mut self,
        act: impl FnOnce(
            &mut ResourceManagerBlocklistHandler,
            Moment,
            &mut dyn super::super::resource_manager::ResourceManagerBlocklistActions,
        ) -> R,
    ) -> R {
        let mut out = Outgoing::default();
        let result = act(&mut self.rm, at(self.now), &mut out);
        self.post(out);
        result
    }

    pub(super) fn on_jm<R>(
        &mut self,
        job: u64,
        act: impl FnOnce(
            &mut JobMasterBlocklistHandler,
            Moment,
            &mut dyn super::super::job_master::JobMasterBlocklistActions,
        ) -> R,
    ) -> R {
        let mut out = Outgoing { from: Some(JobId(job)), ..Outgoing::default() };
        let jm = self.jms.get_mut(&JobId(job)).expect("the test knows its job masters");
        let result = act(jm, at(self.now), &mut out);
        self.post(out);
        result
    }

    fn post(&mut self, out: Outgoing) {
        let notice = |letter: &&Letter| matches!(letter.message, BlocklistMessage::Notify(_));
        self.notices.extend(out.letters.iter().filter(notice).cloned());
        self.letters.extend(out.letters);
        self.context_calls.0 += out.blocked;
        self.context_calls.1 += out.unblocked;
    }

    pub(super) fn connect(&mut self, job: u64) {
        let term = self.rm_term;
        self.on_jm(job, |jm, now, out| jm.connect_to_resource_manager(now, LeaderId(term), out));
        self.on_rm(|rm, now, out| {
            rm.register_blocklist_listener(now, JobId(job), LeaderId(job), out);
        });
    }

    /// Both sides notice, and what is under way is lost.
    pub(super) fn disconnect(&mut self, job: u64) {
        self.jms.get_mut(&JobId(job)).expect("known").disconnect_resource_manager();
        self.rm.deregister_blocklist_listener(JobId(job));
        self.letters.retain(|letter| letter.job != JobId(job));
    }

    /// A new resource manager that knows nothing; nobody is connected to it.
    pub(super) fn fail_over(&mut self) {
        for jm in self.jms.values_mut() {
            jm.disconnect_resource_manager();
        }
        self.rm_term += 1;
        self.rm = resource_manager_of_term(self.rm_term);
    }

    pub(super) fn deliver(&mut self, letter: Letter) {
        let job = letter.job;
        if letter.to_resource_manager {
            self.on_rm(|rm, now, out| rm.handle_message(now, job, letter.message, out));
        } else {
            self.on_jm(job.0, |jm, now, out| jm.handle_message(now, letter.message, out));
        }
    }

    /// Delivers in order until nothing is under way; at most `most` letters.
    pub(super) fn settle(&mut self, most: usize) {
        for _ in 0..most {
            if self.letters.is_empty() {
                return;
            }
            let letter = self.letters.remove(0);
            self.deliver(letter);
        }
        panic!("still {} letters under way after {most}", self.letters.len());
    }

    pub(super) fn tick_all(&mut self) {
        self.on_rm(|rm, now, out| rm.tick(now, out));
        for job in self.jms.keys().copied().collect::<Vec<_>>() {
            self.on_jm(job.0, |jm, now, out| jm.tick(now, out));
        }
    }

    /// The items of the resource manager, then those of each job master.
    pub(super) fn copies(&self) -> Vec<Vec<BlocklistedItem>> {
        let jms = self.jms.values().map(JobMasterBlocklistHandler::get_all_items);
        std::iter::once(self.rm.get_all_items()).chain(jms).collect()
    }

    /// The identifiers that everybody holds; they must agree.
    pub(super) fn agreed(&self) -> Vec<String> {
        let copies = self.copies();
        for copy in &copies {
            assert_eq!(copy, &copies[0], "all copies agree");
        }
        names(&copies[0])
    }
}
