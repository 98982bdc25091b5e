//! The task managers of one process, the resource manager over them, and the job master, on the control thread.
//!
//! A task manager here is a resource id, a node id and slots; a slot is a worker. What a network will carry between resource
//! manager, job master and task managers goes through one queue here, in the order of sending; what they want of the runtime
//! comes out as orders. Between two events of the control thread the queue is empty.

mod driver;
mod event_log;
mod figures;
mod letter;
mod machines;
mod options;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use driver::{Deed, InProcessDriver};
use event_log::EventLog;
pub use event_log::{ClusterEvent, ClusterFact, EVENTS_MAX};
use figures::Tally;
use letter::{Letter, TaskManagerInput};
pub(super) use letter::{Order, Spot};
use machines::{JOB, JOB_MASTER, RESOURCE_MANAGER};
pub use options::ClusterOptions;

use super::clock::Clock;
use super::crew::Crew;
use crate::clock::Timestamp;
use crate::config::{RestartStrategy, TaskManagerSpec};
use crate::control::blocklist::cause::Cause;
use crate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use crate::control::blocklist::item::{BlocklistedItem, ItemKey};
use crate::control::driver::{DriverEvent, ResourceManagerDriver};
use crate::control::execution::TaskReport;
use crate::control::identity::{AllocationId, ResourceId, TaskManagerLocation};
use crate::control::job_master::{
    JobMaster, JobMasterInput, JobMasterOutput, JobMasterPeer, ToResourceManager,
};
use crate::control::moment::Moment;
use crate::control::region::Regions;
use crate::control::resource_manager::{
    ResourceManager, ResourceManagerInput, ResourceManagerOutput, ResourceManagerPeer,
};
use crate::control::slots::manager::SlotManagerOutput;
use crate::control::slots::profile::ResourceProfile;
use crate::control::slots::task_slots::{TaskSlots, TaskSlotsOutput};
use crate::error::{Error, Result};
use crate::graph::ExecutionGraph;
use crate::id::{AttemptId, SubtaskId};

/// After how long a slot that was offered and not taken is free again.
const OFFER_TIMEOUT: Duration = Duration::from_secs(10);

/// So many letters are delivered at once.
const LETTERS_MAX: usize = 1_000;
/// The pause after that.
const LETTERS_PAUSE: Duration = Duration::from_millis(1);

/// One task manager.
#[derive(Debug)]
struct TaskManager {
    location: TaskManagerLocation,
    slots: TaskSlots,
    /// Its workers; slots are dealt out to them.
    workers: Vec<usize>,
}

/// What a cluster is made with.
pub(super) struct ClusterParts<'a> {
    pub(super) clock: Clock,
    pub(super) options: &'a ClusterOptions,
    pub(super) restart: &'a RestartStrategy,
    pub(super) is_checkpointed: bool,
    pub(super) graph: &'a ExecutionGraph,
    pub(super) crew: Crew,
    pub(super) seed: u64,
}

/// The cluster of one job.
#[derive(Debug)]
pub(super) struct Cluster {
    clock: Clock,
    crew: Crew,
    resource_manager: ResourceManager,
    job_master: JobMaster,
    regions: Regions,
    driver: InProcessDriver,
    task_managers: BTreeMap<ResourceId, TaskManager>,
    letters: VecDeque<Letter>,
    /// When the letters that are left are delivered.
    letters_due: Option<Timestamp>,
    orders: Vec<Order>,
    /// At least so many slots has a task manager that deals them out.
    slots_min: u32,
    #[cfg(feature = "rest")]
    max_timeout: Duration,
    log: EventLog,
    tally: Tally,
    seen: BTreeMap<ItemKey, BlocklistedItem>,
}

impl Cluster {
    /// All task managers of the options, registered, and a job master that needs slots.
    ///
    /// # Errors
    /// `Config` if a machine's name can't be one, a strategy's option is wrong, or the job needs more slots than there can be.
    pub(super) fn new(parts: ClusterParts<'_>) -> Result<Self> {
        let ClusterParts { clock, options, restart, is_checkpointed, graph, crew, seed } = parts;
        let now = moment(clock);
        let needed = graph.vertices.iter().map(|v| v.parallelism).max().unwrap_or(0);
        let all = options.task_managers.iter().chain(&options.on_request);
        let most: u32 = all.map(|spec| spec.slots).sum();
        if options.is_listed && needed > most {
            return Err(Error::config(format!(
                "the job needs {needed} slots, the largest parallelism in it, but 'taskmanager.list' has {most}"
            )));
        }
        let mut resource_manager = machines::resource_manager(now, options);
        // Nothing yet; what is touched from here on is written down.
        resource_manager.blocklist_mut().take_touched();
        let mut driver = InProcessDriver::new(&options.task_managers, &options.on_request);
        driver.initialize(resource_manager.blocklist());
        let mut cluster = Self {
            clock,
            crew,
            resource_manager,
            job_master: machines::job_master(now, options, restart, is_checkpointed, graph, seed)?,
            regions: machines::regions(graph),
            driver,
            task_managers: BTreeMap::new(),
            letters: VecDeque::new(),
            letters_due: None,
            orders: Vec::new(),
            slots_min: if options.is_listed { 0 } else { needed },
            #[cfg(feature = "rest")]
            max_timeout: options.blocklist.max_timeout,
            log: EventLog::default(),
            tally: Tally::default(),
            seen: BTreeMap::new(),
        };
        cluster.do_deeds();
        cluster.write(ResourceManagerInput::JobMasterRegistered(JOB, JOB_MASTER));
        cluster.tell(JobMasterInput::ResourceManagerFound(RESOURCE_MANAGER));
        Ok(cluster)
    }

    /// Delivers all letters, or so many that time has to pass before the rest; what the runtime has to do for it, in order.
    ///
    /// While resource manager and job master know different things of the blocklist, a slot can be granted and refused again and
    /// again. What ends that is an answer or an expiry, and neither comes while this goes on.
    pub(super) fn deliver(&mut self) -> Vec<Order> {
        self.letters_due = None;
        for _ in 0..LETTERS_MAX {
            let Some(letter) = self.letters.pop_front() else { break };
            let now = moment(self.clock);
            match letter {
                Letter::ResourceManager(input) => {
                    let mut out = Vec::new();
                    self.resource_manager.handle(now, input, &mut out);
                    self.obey_resource_manager(now, out);
                }
                Letter::JobMaster(input) => {
                    let mut out = Vec::new();
                    self.job_master.handle(now, input, &mut out);
                    self.obey_job_master(now, out);
                }
                Letter::TaskManager(id, input) => self.task_manager(now, &id, input),
            }
        }
        if !self.letters.is_empty() {
            self.letters_due = Some(self.clock.now() + LETTERS_PAUSE);
        }
        std::mem::take(&mut self.orders)
    }

    /// When [`tick`](Self::tick) is due.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let slots = self.task_managers.values().filter_map(|tm| tm.slots.deadline()).min();
        let machines = [self.resource_manager.deadline(), self.job_master.deadline(), slots];
        let all = machines.into_iter().chain([self.letters_due]);
        all.flatten().min().filter(|at| *at != Timestamp::MAX)
    }

    /// Lets time pass.
    pub(super) fn tick(&mut self) {
        let now = self.clock.now();
        let is_due = |deadline: Option<Timestamp>| deadline.is_some_and(|at| at <= now);
        if is_due(self.resource_manager.deadline()) {
            self.write(ResourceManagerInput::Tick);
        }
        if is_due(self.job_master.deadline()) {
            self.tell(JobMasterInput::Tick);
        }
        let due = self.task_managers.iter().filter(|(_, tm)| is_due(tm.slots.deadline()));
        let due = due.map(|(id, _)| Letter::TaskManager(id.clone(), TaskManagerInput::Tick));
        self.letters.extend(due);
    }

    /// A task reports.
    pub(super) fn report(&mut self, attempt: AttemptId, report: TaskReport) {
        self.tell(JobMasterInput::Task { attempt, report });
    }

    /// A checkpoint that a restart would use is complete; `finished` would be left out then.
    pub(super) fn checkpoint_completed(&mut self, finished: BTreeSet<SubtaskId>) {
        self.tell(JobMasterInput::CheckpointCompleted { finished });
    }

    /// The checkpoint that was ordered will not be.
    pub(super) fn checkpoint_failed(&mut self) {
        self.tell(JobMasterInput::CheckpointFailed);
    }

    /// A task manager is gone all of a sudden, and all that runs on it. Whether there was one of that name.
    pub(super) fn lose(&mut self, id: &str, cause: Cause) -> bool {
        let known = self.task_managers.keys().find(|known| known.as_str() == id).cloned();
        let Some(id) = known else { return false };
        let message = cause.message().to_owned();
        self.end(&id, cause);
        self.write(ResourceManagerInput::Driver(DriverEvent::WorkerTerminated { id, message }));
        true
    }

    /// Whether all tasks have a place or have finished.
    pub(super) fn is_placed(&self) -> bool {
        let executions = self.job_master.executions();
        executions.waiting().is_empty() && executions.canceling().is_empty()
    }

    /// Whether a task manager may get no work at this moment: it is blocklisted, or gone.
    pub(super) fn is_closed(&self, id: &ResourceId) -> bool {
        !self.task_managers.contains_key(id)
            || self.resource_manager.blocklist().is_blocklisted_task_manager(id)
            || self.job_master.blocklist().is_blocklisted_task_manager(id)
    }

    /// Everybody who would restart with one of these.
    pub(super) fn region_of(
        &self,
        subtasks: impl IntoIterator<Item = SubtaskId>,
    ) -> BTreeSet<SubtaskId> {
        self.regions.tasks_to_restart(subtasks, |_| false)
    }

    /// The workers, to be changed.
    pub(super) fn crew_mut(&mut self) -> &mut Crew {
        &mut self.crew
    }

    /// The workers.
    pub(super) fn crew(&self) -> &Crew {
        &self.crew
    }

    /// Writes down that an attempt was sent to its place.
    pub(super) fn note_deployed(&mut self, attempt: AttemptId, spot: &Spot) {
        let Some(task_manager) = self.task_managers.get(&spot.task_manager) else { return };
        let node = task_manager.location.node_id.clone();
        let task_manager = spot.task_manager.clone();
        self.note(ClusterFact::Deployed { attempt, task_manager, node });
    }

    /// Writes something down.
    pub(super) fn note(&mut self, fact: ClusterFact) {
        self.log.note(moment(self.clock), fact);
    }

    fn write(&mut self, input: ResourceManagerInput) {
        self.letters.push_back(Letter::ResourceManager(input));
    }

    fn tell(&mut self, input: JobMasterInput) {
        self.letters.push_back(Letter::JobMaster(input));
    }

    fn obey_resource_manager(&mut self, now: Moment, out: Vec<ResourceManagerOutput>) {
        self.note_blocklist(now);
        for output in out {
            match output {
                ResourceManagerOutput::Blocklist(_, message) => {
                    self.tell(JobMasterInput::Blocklist(message));
                }
                ResourceManagerOutput::Slots(SlotManagerOutput::RequestSlot {
                    task_manager,
                    index,
                    job,
                    allocation,
                }) => {
                    let input = TaskManagerInput::Request { index, job, allocation };
                    self.letters.push_back(Letter::TaskManager(task_manager, input));
                }
                ResourceManagerOutput::Slots(SlotManagerOutput::Driver(command)) => {
                    command.perform(&mut self.driver, self.resource_manager.blocklist());
                }
                ResourceManagerOutput::Slots(SlotManagerOutput::NotEnoughSlots {
                    missing, ..
                }) => {
                    self.log.note_change(now, ClusterFact::NotEnoughSlots { missing });
                }
                ResourceManagerOutput::RequestHeartbeat(peer) => {
                    self.write(ResourceManagerInput::Heartbeat(peer));
                }
                ResourceManagerOutput::RejectTaskManager(id)
                | ResourceManagerOutput::Disconnect(ResourceManagerPeer::TaskManager(id)) => {
                    self.end(&id, Cause::induced("TaskManagerDisconnected", id.as_str()));
                }
                ResourceManagerOutput::Disconnect(ResourceManagerPeer::JobMaster(_)) => {}
            }
        }
        self.do_deeds();
    }

    fn obey_job_master(&mut self, now: Moment, out: Vec<JobMasterOutput>) {
        self.tally.note(now, &self.job_master, &out, &mut self.log);
        for output in out {
            match output {
                JobMasterOutput::ToResourceManager(ToResourceManager::Blocklist(message)) => {
                    self.write(ResourceManagerInput::Blocklist(JOB, message));
                }
                JobMasterOutput::ToResourceManager(ToResourceManager::DeclareRequirements(
                    needs,
                )) => self.write(ResourceManagerInput::RequirementsDeclared(JOB, needs)),
                JobMasterOutput::FindResourceManager => {
                    self.write(ResourceManagerInput::JobMasterRegistered(JOB, JOB_MASTER));
                    self.tell(JobMasterInput::ResourceManagerFound(RESOURCE_MANAGER));
                }
                JobMasterOutput::RequestHeartbeat(peer) => {
                    let is_there = match &peer {
                        JobMasterPeer::ResourceManager => true,
                        JobMasterPeer::TaskManager(id) => self.task_managers.contains_key(id),
                    };
                    if is_there {
                        self.tell(JobMasterInput::Heartbeat(peer));
                    }
                }
                JobMasterOutput::AnswerOffer { task_manager, offered, accepted } => {
                    let input = TaskManagerInput::Answer { offered, accepted };
                    self.letters.push_back(Letter::TaskManager(task_manager, input));
                }
                JobMasterOutput::FreeSlot { task_manager, slot, .. } => {
                    let input = TaskManagerInput::Free(slot);
                    self.letters.push_back(Letter::TaskManager(task_manager, input));
                }
                JobMasterOutput::NoSlotsLeft(_) | JobMasterOutput::BlocklistingRefused { .. } => {}
                JobMasterOutput::AbortCheckpoints(tasks) => {
                    self.orders.push(Order::AbortCheckpoints(tasks));
                }
                JobMasterOutput::TriggerCheckpoint => self.orders.push(Order::TriggerCheckpoint),
                JobMasterOutput::Cancel { attempt, .. } => self.orders.push(Order::Cancel(attempt)),
                JobMasterOutput::Restore(_) => self.orders.push(Order::Deploy(BTreeMap::new())),
                JobMasterOutput::Deploy { attempt, task_manager, slot } => {
                    self.deploy(attempt, task_manager, slot);
                }
                JobMasterOutput::EvacuationStuck(_) => {}
                JobMasterOutput::JobFinished => self.orders.push(Order::Finished),
                JobMasterOutput::JobFailed(cause) => self.orders.push(Order::Failed(cause)),
            }
        }
    }

    /// An attempt of the restore that was ordered last has its place.
    fn deploy(&mut self, attempt: AttemptId, id: ResourceId, slot: AllocationId) {
        let index = self.job_master.pool().slot(slot).map_or(0, |slot| slot.index as usize);
        // One that is gone meanwhile is closed, which is seen before anything is sent there.
        let workers = self.task_managers.get(&id).map_or(&[][..], |tm| &tm.workers);
        let worker = workers.get(index % workers.len().max(1)).copied().unwrap_or(0);
        if let Some(Order::Deploy(spots)) = self.orders.last_mut() {
            spots.insert(attempt, Spot { task_manager: id, worker });
        }
    }

    fn task_manager(&mut self, now: Moment, id: &ResourceId, input: TaskManagerInput) {
        let Some(task_manager) = self.task_managers.get_mut(id) else { return };
        let (slots, mut out) = (&mut task_manager.slots, Vec::new());
        match input {
            TaskManagerInput::Request { index, job, allocation } => {
                let is_granted = slots.grant(now.mono, index, job, allocation, &mut out);
                let id = id.clone();
                self.write(ResourceManagerInput::SlotAnswered { id, allocation, is_granted });
            }
            TaskManagerInput::Answer { offered, accepted } => {
                self.tally.offers_rejected += (offered.len() - accepted.len()) as u64;
                slots.answered(JOB, &offered, &accepted, &mut out);
            }
            TaskManagerInput::Free(allocation) => slots.free(allocation, &mut out),
            TaskManagerInput::Tick => slots.tick(now.mono, &mut out),
        }
        for output in out {
            match output {
                TaskSlotsOutput::Offer(_, offers) => {
                    let task_manager = id.clone();
                    self.tell(JobMasterInput::SlotsOffered { task_manager, offers });
                }
                TaskSlotsOutput::Gone(_, slot) => {
                    let cause = Cause::induced("SlotGone", "it was freed before it was accepted");
                    let task_manager = id.clone();
                    self.tell(JobMasterInput::SlotFailed { task_manager, slot, cause });
                }
                TaskSlotsOutput::Freed { allocation, .. } => {
                    self.write(ResourceManagerInput::SlotFreed { id: id.clone(), allocation });
                }
            }
        }
    }

    /// Does what the driver wants.
    fn do_deeds(&mut self) {
        for deed in self.driver.take_deeds() {
            match deed {
                Deed::Start(id, spec) => self.start(id, &spec),
                Deed::End(id) => {
                    let cause = Cause::induced("TaskManagerReleased", id.as_str());
                    self.end(&id, cause);
                }
            }
        }
    }

    fn start(&mut self, id: ResourceId, spec: &TaskManagerSpec) {
        let (node, pool) = options::place(spec).expect("checked with the options");
        let location = TaskManagerLocation::new(id.clone(), Some(node.clone()), "127.0.0.1", 0)
            .expect("the node's name is given")
            .in_pool(pool);
        let profile = ResourceProfile::default();
        let slots = TaskSlots::new(spec.slots.max(self.slots_min), profile, OFFER_TIMEOUT);
        let report = slots.report();
        let workers = (0..spec.slots).map(|_| self.crew.hire()).collect();
        let task_manager = TaskManager { location: location.clone(), slots, workers };
        self.task_managers.insert(id.clone(), task_manager);
        self.note(ClusterFact::TaskManagerStarted { task_manager: id, node });
        self.tell(JobMasterInput::TaskManagerRegistered(location.clone()));
        self.write(ResourceManagerInput::TaskManagerRegistered { location, profile, report });
    }

    /// Takes a task manager out: its workers are to end, and the job master loses what it had there.
    fn end(&mut self, id: &ResourceId, cause: Cause) {
        let Some(task_manager) = self.task_managers.remove(id) else { return };
        self.note(ClusterFact::TaskManagerEnded { task_manager: id.clone() });
        self.orders.push(Order::End(task_manager.workers));
        self.tell(JobMasterInput::TaskManagerLost { id: id.clone(), cause });
        self.driver.ended(id);
        self.do_deeds();
    }

    /// Writes down what has changed in the blocklist.
    fn note_blocklist(&mut self, now: Moment) {
        let touched = self.resource_manager.blocklist_mut().take_touched();
        if touched.is_empty() {
            return;
        }
        let blocklist = self.resource_manager.blocklist();
        let mut changes = Vec::with_capacity(touched.len());
        for key in touched {
            let after = blocklist.item(&key).cloned();
            let before = match &after {
                Some(item) => self.seen.insert(key, item.clone()),
                None => self.seen.remove(&key),
            };
            changes.push((before, after));
        }
        self.log.note_items(now, &changes, blocklist.counters().expired);
    }
}

/// Both clocks now.
fn moment(clock: Clock) -> Moment {
    Moment::new(clock.now(), Clock::wall())
}
