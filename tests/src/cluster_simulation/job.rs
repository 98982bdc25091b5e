//! A job of the simulated cluster: the real job master and the real coordinator, each told what the other wants, and checked at
//! every step.

mod checkpoints;
mod watched;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tidegate::control::blocklist::caps::Caps;
use tidegate::control::blocklist::cause::Cause;
use tidegate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use tidegate::control::blocklist::item::ItemKey;
use tidegate::control::blocklist::job_master::JobMasterBlocklistHandler;
use tidegate::control::blocklist::listeners::BlocklistListeners;
use tidegate::control::blocklist::runner::{StrategyMode, StrategyRunner};
use tidegate::control::blocklist::strategy::BlocklistStrategy;
use tidegate::control::blocklist::tracker::{BlocklistTracker, TrackerConfig};
use tidegate::control::checkpoint::config::CoordinatorConfig;
use tidegate::control::checkpoint::coordinator::Coordinator;
use tidegate::control::checkpoint::message::Input;
use tidegate::control::checkpoint::metadata::{Metadata, StateKinds, StateSummary};
use tidegate::control::checkpoint::options::SnapshotKind;
use tidegate::control::checkpoint::request::RequestId;
use tidegate::control::checkpoint::restore::Restoration;
use tidegate::control::checkpoint::tasks::TaskState;
use tidegate::control::checkpoint::topology::{self, EdgeKind, Topology, Vertex};
use tidegate::control::execution::{ExecutionState, TaskReport};
use tidegate::control::heartbeat::HeartbeatConfig;
use tidegate::control::identity::{AllocationId, LeaderId, ResourceId};
use tidegate::control::job_master::{
    JobMaster, JobMasterConfig, JobMasterInput, JobMasterOutput, JobMasterPeer, ToResourceManager,
};
use tidegate::control::region::{Edge, Exchange, FailoverStrategy, Regions};
use tidegate::control::slots::profile::ResourceProfile;
use tidegate::id::{AttemptId, CheckpointId, SubtaskId};

use super::message::{Event, Message, Who};
use super::net::{Net, SessionId};
use super::plan::{JobPlan, Plan};
use super::reach::Race;
use super::strategy::Blame;
use super::task_manager::job_id;

/// How heartbeats are set in the simulated cluster.
pub const HEARTBEATS: HeartbeatConfig = HeartbeatConfig {
    interval: Duration::from_secs(20),
    timeout: Duration::from_secs(45),
    failure_threshold: Some(2),
};

/// After how long a blocklist notice is repeated.
pub const RESEND: Duration = Duration::from_secs(5);

/// At least how often ended items are looked for: seldom, for their own deadlines are what is to be tried.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The state of an operator, which has no content here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle;

impl StateSummary for Handle {
    fn kinds(&self) -> StateKinds {
        StateKinds { keyed: true, ..StateKinds::default() }
    }

    fn union_part(&self) -> Option<Self> {
        None
    }
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All tasks finished.
    Finished,
    /// For good.
    Failed(Cause),
}

/// Where the job master believes an attempt to run.
#[derive(Clone, Debug)]
struct Believed {
    task_manager: ResourceId,
    slot: AllocationId,
    /// Since when its task manager is to be evacuated.
    covered_since: Option<u64>,
}

enum Work {
    Master(JobMasterInput),
    Coordinator(Input<Handle>),
}

/// One job.
#[derive(Debug)]
pub struct Job {
    /// Its number.
    pub index: usize,
    /// What was drawn for it.
    pub plan: JobPlan,
    /// Its master.
    pub master: JobMaster,
    /// How it ended.
    pub outcome: Option<Outcome>,
    coordinator: Coordinator<Handle>,
    topology: Topology,
    cluster: Option<SessionId>,
    is_registered: bool,
    task_managers: BTreeMap<ResourceId, SessionId>,
    finalizing: BTreeMap<CheckpointId, Metadata<Handle>>,
    restoration: Option<Restoration<Handle>>,
    believed: BTreeMap<AttemptId, Believed>,
    deployed: BTreeMap<SubtaskId, (AttemptId, ResourceId)>,
    failing: BTreeSet<SubtaskId>,
    /// Keys it holds that were removed while it was apart.
    removed_while_apart: BTreeSet<ItemKey>,
    requests: u64,
}

impl Job {
    /// A job whose master has not reached the resource manager.
    pub fn new(net: &mut Net, index: usize, plan: &Plan) -> Self {
        let job = plan.jobs[index].clone();
        let (topology, regions) = graph(&job);
        let term = LeaderId(index as u64 + 1);
        let tracker = BlocklistTracker::new(TrackerConfig {
            item_timeout: Some(plan.item_timeout),
            check_interval: CHECK_INTERVAL,
            origin_id: term.0,
        });
        let blame =
            |(action, is_node)| Box::new(Blame { action, is_node }) as Box<dyn BlocklistStrategy>;
        let strategies: Vec<_> = job.blame.map(blame).into_iter().collect();
        let caps = Caps { max_blocked_ratio: 0.7, max_blocked_nodes: plan.blocked_max };
        let mut blocklist = JobMasterBlocklistHandler::new(
            tracker,
            StrategyRunner::new(strategies, StrategyMode::Enforce),
            caps,
            BlocklistListeners::new(term, RESEND),
        );
        blocklist.start(net.moment()).expect("it is new");
        let config = JobMasterConfig {
            job: job_id(index),
            term,
            profile: ResourceProfile::default(),
            slot_idle_timeout: Duration::from_secs(20),
            slot_request_timeout: Duration::from_secs(20),
            restart: job.restart.clone(),
            evacuation: job.evacuation,
            heartbeat: HEARTBEATS,
            jitter_seed: net.dice.next(),
        };
        let master = JobMaster::new(config, blocklist, topology.subtasks(), regions);
        let config = CoordinatorConfig {
            interval: Some(job.interval),
            timeout: Duration::from_secs(10),
            ..CoordinatorConfig::default()
        };
        let random = net.dice.next();
        let coordinator =
            Coordinator::new(config, topology.clone(), CheckpointId(1), Vec::new(), random);
        Self {
            index,
            plan: job,
            master,
            outcome: None,
            coordinator,
            topology,
            cluster: None,
            is_registered: false,
            task_managers: BTreeMap::new(),
            finalizing: BTreeMap::new(),
            restoration: None,
            believed: BTreeMap::new(),
            deployed: BTreeMap::new(),
            failing: BTreeSet::new(),
            removed_while_apart: BTreeSet::new(),
            requests: 0,
        }
    }

    const fn who(&self) -> Who {
        Who::Job(self.index)
    }

    /// Tries to reach the resource manager.
    pub fn connect(&mut self, net: &mut Net) {
        if self.outcome.is_some() || (self.cluster.is_some() && self.is_registered) {
            return;
        }
        if let Some(given_up) = self.cluster {
            net.cut(given_up);
        }
        let session = net.open(self.who(), Who::Cluster);
        self.cluster = Some(session);
        net.send(session, self.who(), Message::Register);
        net.within(1000, 3000, Event::Connect(self.who(), Who::Cluster));
    }

    /// A session is over.
    pub fn closed(&mut self, net: &mut Net, session: SessionId) {
        if self.cluster == Some(session) {
            self.cluster = None;
            if std::mem::take(&mut self.is_registered) {
                self.run(net, Work::Master(JobMasterInput::ResourceManagerLost));
            }
            net.within(100, 1000, Event::Connect(self.who(), Who::Cluster));
        }
        if let Some(id) = self.task_manager_of(session) {
            let cause = Cause::new("TaskManagerLost", &format!("{id}: the connection ended"));
            self.run(net, Work::Master(JobMasterInput::TaskManagerLost { id, cause }));
        }
    }

    /// A message could not be delivered.
    pub fn undeliverable(&mut self, net: &mut Net, session: SessionId) {
        let peer = match self.task_manager_of(session) {
            Some(id) => JobMasterPeer::TaskManager(id),
            None if self.cluster == Some(session) && self.is_registered => {
                JobMasterPeer::ResourceManager
            }
            None => return,
        };
        self.run(net, Work::Master(JobMasterInput::Undeliverable(peer)));
    }

    fn task_manager_of(&self, session: SessionId) -> Option<ResourceId> {
        self.task_managers.iter().find(|(_, held)| **held == session).map(|(id, _)| id.clone())
    }

    /// A message of the resource manager.
    pub fn told_by_cluster(&mut self, net: &mut Net, session: SessionId, message: Message) {
        if self.cluster != Some(session) {
            return;
        }
        match message {
            Message::Accepted(term) => {
                self.is_registered = true;
                for key in std::mem::take(&mut self.removed_while_apart) {
                    if self.master.blocklist().item(&key).is_some() {
                        net.meet(Race::RemovalAgainstReconnect);
                    }
                }
                self.run(net, Work::Master(JobMasterInput::ResourceManagerFound(term)));
            }
            Message::Blocklist(said) => {
                self.run(net, Work::Master(JobMasterInput::Blocklist(said)))
            }
            Message::Beat(_) => {
                net.send(session, self.who(), Message::Alive);
                let alive = JobMasterInput::Heartbeat(JobMasterPeer::ResourceManager);
                self.run(net, Work::Master(alive));
            }
            _ => net.violate(|| format!("the resource manager sends a job {message:?}")),
        }
    }

    /// A message of a task manager; `place` is where it is if it registers.
    pub fn from_task_manager(
        &mut self,
        net: &mut Net,
        session: SessionId,
        location: &tidegate::control::identity::TaskManagerLocation,
        message: Message,
    ) {
        let id = location.resource_id.clone();
        if self.outcome.is_some() {
            return;
        }
        if let Message::Register = message {
            if self.task_managers.insert(id.clone(), session).is_some() {
                net.meet(Race::RegistersAgain);
                self.believed.retain(|_, believed| believed.task_manager != id);
            }
            self.run(net, Work::Master(JobMasterInput::TaskManagerRegistered(location.clone())));
            return net.send(session, self.who(), Message::Accepted(LeaderId(0)));
        }
        if self.task_managers.get(&id) != Some(&session) {
            return;
        }
        match message {
            Message::Offer(offers) => {
                let input = JobMasterInput::SlotsOffered { task_manager: id, offers };
                self.run(net, Work::Master(input));
            }
            Message::Gone(slot) => {
                self.believed.retain(|_, believed| believed.slot != slot);
                let cause = Cause::new("SlotLost", &format!("{id} has no {slot}"));
                let input = JobMasterInput::SlotFailed { task_manager: id, slot, cause };
                self.run(net, Work::Master(input));
            }
            Message::Alive => {
                let alive = JobMasterInput::Heartbeat(JobMasterPeer::TaskManager(id));
                self.run(net, Work::Master(alive));
            }
            Message::Task(attempt, report) => self.task(net, attempt, report),
            Message::Progress(attempt, progress) => self.progress(net, attempt, progress),
            _ => net.violate(|| format!("a task manager sends a job {message:?}")),
        }
    }

    fn task(&mut self, net: &mut Net, attempt: AttemptId, report: TaskReport) {
        let mut todo = VecDeque::new();
        let before = self.believed.remove(&attempt);
        if let Some(execution) = self.master.executions().current(attempt) {
            let state = match (&report, &execution.state) {
                (TaskReport::Finished, ExecutionState::Running(_)) => Some(TaskState::Finished),
                (TaskReport::Failed { .. }, _) => Some(TaskState::Failed),
                _ => None,
            };
            if report == TaskReport::Finished && before.is_some_and(|b| b.covered_since.is_some()) {
                net.meet(Race::FinishDuringEvacuation);
            }
            if let Some(state) = state {
                todo.push_back(Work::Coordinator(Input::TaskState { task: attempt, state }));
            }
        }
        todo.push_back(Work::Master(JobMasterInput::Task { attempt, report }));
        self.run_all(net, todo);
    }

    /// Time passes.
    pub fn tick(&mut self, net: &mut Net) {
        self.run(net, Work::Master(JobMasterInput::Tick));
        if self.outcome.is_none() {
            net.check_deadline(self.who(), self.master.deadline());
            self.run(net, Work::Coordinator(Input::Tick));
        }
    }

    /// A strategy's or a person's item is removed by the resource manager.
    pub fn note_removed(&mut self, net: &mut Net, key: &ItemKey) {
        if !self.is_registered && self.master.blocklist().item(key).is_some() {
            net.meet(Race::RemovedWhileApart);
            self.removed_while_apart.insert(key.clone());
        }
    }

    /// Where an attempt that something on a lane is for runs, if both ends are of one deployment.
    pub fn lane_end(&self, from: AttemptId, to: SubtaskId) -> Option<(AttemptId, ResourceId)> {
        let sender = self.deployed.get(&from.subtask)?;
        (sender.0 == from).then(|| self.deployed.get(&to).cloned())?
    }

    /// Whether a task manager holds a session of this job that both believe in.
    pub fn session_with(&self, id: &ResourceId) -> Option<SessionId> {
        self.task_managers.get(id).copied()
    }

    fn run(&mut self, net: &mut Net, work: Work) {
        self.run_all(net, VecDeque::from([work]));
    }

    fn run_all(&mut self, net: &mut Net, mut todo: VecDeque<Work>) {
        while let Some(work) = todo.pop_front() {
            if self.outcome.is_some() {
                return;
            }
            match work {
                Work::Master(input) => self.master(net, input, &mut todo),
                Work::Coordinator(input) => self.coordinator(net, input, &mut todo),
            }
        }
        self.note_covered(net);
        let ours = self.master.pool().task_managers();
        let gone = self.task_managers.keys().filter(|id| !ours.contains_key(*id));
        for id in gone.cloned().collect::<Vec<_>>() {
            self.believed.retain(|_, believed| believed.task_manager != id);
            if let Some(session) = self.task_managers.remove(&id) {
                net.cut(session);
            }
        }
        let deadlines = self.master.deadline().into_iter().chain(self.coordinator.deadline());
        net.tick_at(self.who(), deadlines.min());
    }

    fn master(&mut self, net: &mut Net, input: JobMasterInput, todo: &mut VecDeque<Work>) {
        let is_strict = match &input {
            JobMasterInput::Blocklist(_)
            | JobMasterInput::SlotsOffered { .. }
            | JobMasterInput::CheckpointCompleted { .. }
            | JobMasterInput::CheckpointFailed
            | JobMasterInput::ResourceManagerFound(_)
            | JobMasterInput::ResourceManagerLost
            | JobMasterInput::Heartbeat(_) => true,
            JobMasterInput::TaskManagerRegistered(_)
            | JobMasterInput::TaskManagerLost { .. }
            | JobMasterInput::SlotFailed { .. }
            | JobMasterInput::Task { .. }
            | JobMasterInput::Undeliverable(_)
            | JobMasterInput::Tick => false,
        };
        if let JobMasterInput::TaskManagerLost { id, .. } = &input {
            let on = |b: &&Believed| b.task_manager == *id && b.covered_since.is_some();
            if self.believed.values().any(|believed| on(&believed)) {
                net.meet(Race::LostDuringEvacuation);
            }
            self.believed.retain(|_, believed| believed.task_manager != *id);
        }
        let slots = self.master.pool().slots();
        let held: Vec<_> = slots.map(|s| (s.allocation, s.task_manager.clone())).collect();
        let stale = self.master.blocklist().counters().stale_messages;
        net.tell(|| format!("job {} is told {input:?}", self.index));
        let mut out = Vec::new();
        self.master.handle(net.moment(), input, &mut out);
        if self.master.blocklist().counters().stale_messages > stale {
            net.meet(Race::StaleTerm);
        }
        let moves = out.iter().any(|o| matches!(o, JobMasterOutput::Cancel { .. }));
        if is_strict && moves {
            let may = held.iter().any(|(_, id)| self.is_to_leave(id));
            if !may {
                net.violate(|| format!("job {} moves tasks that nothing evacuates", self.index));
            }
        }
        for output in out {
            net.tell(|| format!("job {} wants {output:?}", self.index));
            self.apply(net, output, &held, todo);
        }
    }

    fn apply(
        &mut self,
        net: &mut Net,
        output: JobMasterOutput,
        held: &[(AllocationId, ResourceId)],
        todo: &mut VecDeque<Work>,
    ) {
        match output {
            JobMasterOutput::ToResourceManager(message) => {
                let message = match message {
                    ToResourceManager::Blocklist(said) => Message::Blocklist(said),
                    ToResourceManager::DeclareRequirements(needs) => Message::Declare(needs),
                };
                if let Some(session) = self.cluster.filter(|_| self.is_registered) {
                    net.send(session, self.who(), message);
                }
            }
            JobMasterOutput::FindResourceManager => {
                if let Some(session) = self.cluster.take() {
                    net.cut(session);
                }
                self.is_registered = false;
                net.within(100, 1000, Event::Connect(self.who(), Who::Cluster));
            }
            JobMasterOutput::RequestHeartbeat(JobMasterPeer::ResourceManager) => {}
            JobMasterOutput::RequestHeartbeat(JobMasterPeer::TaskManager(id)) => {
                let mine = self.master.pool().slots().filter(|slot| slot.task_manager == id);
                let slots = mine.map(|slot| slot.allocation).collect();
                self.send(net, &id, Message::Beat(slots));
            }
            JobMasterOutput::AnswerOffer { task_manager, offered, accepted } => {
                self.check_answer(net, &task_manager, &offered, &accepted, held);
                self.send(net, &task_manager, Message::Answer(offered, accepted));
            }
            JobMasterOutput::FreeSlot { task_manager, slot, .. } => {
                if self.master.blocklist().is_blocklisted_task_manager(&task_manager) {
                    net.meet(Race::FreedOnBlocked);
                }
                let is_here = |b: &&Believed| b.slot == slot;
                if let Some(believed) = self.believed.values().find(is_here)
                    && self.is_to_leave(&task_manager)
                {
                    self.note_moved(net, believed.covered_since.unwrap_or(net.now));
                }
                self.believed.retain(|_, believed| believed.slot != slot);
                self.send(net, &task_manager, Message::Free(slot));
            }
            JobMasterOutput::NoSlotsLeft(_) => {}
            JobMasterOutput::AbortCheckpoints(tasks) => {
                let covered = self.believed.values().any(|b| b.covered_since.is_some());
                if covered && self.coordinator.pending().next().is_some() {
                    net.meet(Race::CheckpointAbortedByMove);
                }
                self.failing.extend(&tasks);
                let tasks = tasks.into_iter().collect();
                todo.push_back(Work::Coordinator(Input::Failover { tasks }));
            }
            JobMasterOutput::TriggerCheckpoint => {
                self.requests += 1;
                let request = RequestId(self.requests);
                let kind = SnapshotKind::Checkpoint;
                todo.push_back(Work::Coordinator(Input::Request { request, kind }));
            }
            JobMasterOutput::Cancel { attempt, task_manager } => {
                match self.believed.remove(&attempt) {
                    Some(Believed { covered_since: Some(since), .. }) => {
                        self.note_moved(net, since);
                    }
                    Some(_) if self.is_to_leave(&task_manager) => self.note_moved(net, net.now),
                    Some(_) | None => {}
                }
                self.send(net, &task_manager, Message::Cancel(attempt));
            }
            JobMasterOutput::Restore(attempts) => self.restore(net, attempts, todo),
            JobMasterOutput::Deploy { attempt, task_manager, slot } => {
                self.deploy(net, attempt, task_manager, slot);
            }
            JobMasterOutput::EvacuationStuck(victims) => {
                net.meet(Race::EvacuationStuck);
                let stuck = |victim: &AttemptId| {
                    let believed = self.believed.get(victim);
                    // One that is told to stop for another reason is one until it has stopped.
                    believed.is_none_or(|b| self.is_to_leave(&b.task_manager))
                };
                if !victims.iter().all(stuck) {
                    net.violate(|| format!("an alarm for {victims:?}, which nothing evacuates"));
                }
            }
            JobMasterOutput::BlocklistingRefused { .. } => net.meet(Race::RefusedByCap),
            JobMasterOutput::JobFinished => self.end(net, Outcome::Finished),
            JobMasterOutput::JobFailed(cause) => self.end(net, Outcome::Failed(cause)),
        }
    }

    fn end(&mut self, net: &mut Net, outcome: Outcome) {
        match &outcome {
            Outcome::Finished => net.meet(Race::JobFinished),
            Outcome::Failed(cause) if cause.class() == "NoResourceAvailable" => {
                net.meet(Race::SaysNoResources);
            }
            Outcome::Failed(_) => net.meet(Race::GivenUp),
        }
        self.outcome = Some(outcome);
        self.believed.clear();
        for session in self
            .cluster
            .take()
            .into_iter()
            .chain(std::mem::take(&mut self.task_managers).into_values())
        {
            net.cut(session);
        }
    }

    fn send(&self, net: &mut Net, to: &ResourceId, message: Message) {
        if let Some(session) = self.task_managers.get(to) {
            net.send(*session, self.who(), message);
        }
    }
}

fn graph(job: &JobPlan) -> (Topology, Regions) {
    let kind = if job.is_pointwise { EdgeKind::Pointwise } else { EdgeKind::AllToAll };
    let vertices = (0..2).map(|id| Vertex::new(id, job.parallelism)).collect();
    let topology =
        Topology::new(vertices, vec![topology::Edge::new(0, 1, kind)]).expect("two vertices");
    let mut edges = Vec::new();
    for consumer in topology.subtasks() {
        for (_, producer) in topology.channels(consumer) {
            edges.push(Edge { producer, consumer, exchange: Exchange::Pipelined });
        }
    }
    let regions = Regions::new(topology.subtasks(), &edges, FailoverStrategy::Region);
    (topology, regions)
}
