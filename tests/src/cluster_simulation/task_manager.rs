//! A task manager of the simulated cluster: its slots are the engine's machine, its attempts a model that keeps the checkpoint
//! protocol: barriers along lanes, snapshots, end of data, final checkpoint, permit, end of partition.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate::clock::Timestamp;
use tidegate::control::blocklist::cause::Cause;
use tidegate::control::execution::TaskReport;
use tidegate::control::identity::{AllocationId, JobId, NodeId, ResourceId, TaskManagerLocation};
use tidegate::control::slots::profile::ResourceProfile;
use tidegate::control::slots::task_slots::{TaskSlots, TaskSlotsOutput};
use tidegate::id::{AttemptId, CheckpointId, SubtaskId};

use super::message::{Event, Lane, Message, Order, Progress, Step, Who, Wiring};
use super::net::{Net, SessionId};
use super::reach::Race;

/// After how long without a word a task manager gives a component up, in ms.
const SILENCE: u64 = 50_000;
/// How long a lane takes; the same for all, so that what is sent in order arrives in order.
const LANE: u64 = 2;

#[derive(Clone, Copy, Debug)]
struct Link {
    session: SessionId,
    is_accepted: bool,
    heard: u64,
}

#[derive(Clone, Debug, Default)]
struct Snapshot {
    is_triggered: bool,
    barriers: BTreeSet<SubtaskId>,
    is_taken: bool,
}

/// An attempt that runs, or starts or stops.
#[derive(Clone, Debug)]
pub struct Running {
    /// In which slot.
    pub slot: AllocationId,
    /// Whether it was told to stop.
    pub is_stopping: bool,
    wiring: Wiring,
    is_started: bool,
    is_at_end: bool,
    is_going: bool,
    asked_to_leave: bool,
    snapshots: BTreeMap<CheckpointId, Snapshot>,
    data_ended: BTreeSet<SubtaskId>,
    ended: BTreeSet<SubtaskId>,
    finals: BTreeSet<CheckpointId>,
}

/// One task manager.
#[derive(Debug)]
pub struct TaskManager {
    /// Its place among all.
    pub index: usize,
    /// Where it is.
    pub location: TaskManagerLocation,
    /// Its slots.
    pub slots: TaskSlots,
    /// Whether the process runs.
    pub is_alive: bool,
    /// Its attempts by job.
    pub running: BTreeMap<(usize, AttemptId), Running>,
    cluster: Option<Link>,
    jobs: BTreeMap<usize, Link>,
}

/// The job of this number.
pub fn job_id(job: usize) -> JobId {
    JobId(job as u64 + 1)
}

impl TaskManager {
    /// A task manager on node `node` that has not registered yet.
    pub fn new(index: usize, node: u64, slots: u32) -> Self {
        let id = ResourceId::new(&format!("tm{index}")).expect("short");
        let node = NodeId::new(&format!("n{node}")).expect("short");
        Self {
            index,
            location: TaskManagerLocation::new(id, Some(node), "127.0.0.1", 0).expect("short"),
            slots: TaskSlots::new(slots, ResourceProfile::default(), Duration::from_secs(10)),
            is_alive: true,
            running: BTreeMap::new(),
            cluster: None,
            jobs: BTreeMap::new(),
        }
    }

    const fn who(&self) -> Who {
        Who::TaskManager(self.index)
    }

    /// Its name.
    pub fn id(&self) -> &ResourceId {
        &self.location.resource_id
    }

    /// Tries to reach a component.
    pub fn connect(&mut self, net: &mut Net, to: Who) {
        if !self.is_alive {
            return;
        }
        let has_slots = |job: usize| {
            self.slots.report().iter().any(|s| s.holder.is_some_and(|(j, _)| j == job_id(job)))
        };
        let known = match to {
            Who::Cluster => self.cluster,
            Who::Job(job) if has_slots(job) => self.jobs.get(&job).copied(),
            Who::Job(_) | Who::TaskManager(_) => return,
        };
        if known.is_some_and(|link| link.is_accepted) {
            return;
        }
        if let Some(given_up) = known {
            net.cut(given_up.session);
        }
        let session = net.open(self.who(), to);
        let link = Link { session, is_accepted: false, heard: net.now };
        match to {
            Who::Cluster => self.cluster = Some(link),
            Who::Job(job) => _ = self.jobs.insert(job, link),
            Who::TaskManager(_) => {}
        }
        net.send(session, self.who(), Message::Register);
        net.within(1000, 3000, Event::Connect(self.who(), to));
    }

    /// A session is over.
    pub fn closed(&mut self, net: &mut Net, session: SessionId) {
        if !self.is_alive {
            return;
        }
        if self.cluster.is_some_and(|link| link.session == session) {
            self.cluster = None;
            net.within(100, 1000, Event::Connect(self.who(), Who::Cluster));
        }
        let job = self.jobs.iter().find(|(_, link)| link.session == session).map(|(job, _)| *job);
        if let Some(job) = job {
            self.lose_job(net, job);
        }
    }

    /// Its job master is gone: what it ran here ends, and its slots are kept for a while.
    fn lose_job(&mut self, net: &mut Net, job: usize) {
        self.jobs.remove(&job);
        self.running.retain(|(of, _), _| *of != job);
        self.slots.job_master_lost(net.moment().mono, job_id(job));
        net.within(100, 2000, Event::Connect(self.who(), Who::Job(job)));
        self.wait(net);
    }

    /// The process ends.
    pub fn die(&mut self, net: &mut Net) {
        self.is_alive = false;
        self.running.clear();
        for link in
            self.cluster.take().into_iter().chain(std::mem::take(&mut self.jobs).into_values())
        {
            net.cut(link.session);
        }
    }

    /// A message arrives.
    pub fn receive(&mut self, net: &mut Net, session: SessionId, message: Message) {
        if !self.is_alive {
            return;
        }
        let now = net.now;
        if let Some(link) = self.cluster.as_mut().filter(|link| link.session == session) {
            link.heard = now;
            return self.told_by_cluster(net, session, message);
        }
        let job = self.jobs.iter_mut().find(|(_, link)| link.session == session);
        if let Some((&job, link)) = job {
            link.heard = now;
            self.told_by_job(net, session, job, message);
        }
    }

    fn told_by_cluster(&mut self, net: &mut Net, session: SessionId, message: Message) {
        match message {
            Message::Accepted(_) => {
                if let Some(link) = &mut self.cluster {
                    link.is_accepted = true;
                }
            }
            Message::Reject => self.die(net),
            Message::Beat(_) => {
                let is_quiet = net.is_healed || net.dice.chance(7, 8);
                let report = Message::Slots(self.slots.report(), is_quiet);
                net.send(session, self.who(), report);
            }
            Message::Grant(index, job, allocation) => {
                let mut out = Vec::new();
                let now = net.moment().mono;
                let is_granted = self.slots.grant(now, index, job_id(job), allocation, &mut out);
                net.send(session, self.who(), Message::Granted(allocation, is_granted));
                self.apply(net, out);
            }
            _ => net.violate(|| format!("the resource manager sends a task manager {message:?}")),
        }
        self.wait(net);
    }

    fn told_by_job(&mut self, net: &mut Net, session: SessionId, job: usize, message: Message) {
        let mut out = Vec::new();
        match message {
            Message::Accepted(_) => {
                if let Some(link) = self.jobs.get_mut(&job) {
                    link.is_accepted = true;
                }
                self.slots.job_master_connected(job_id(job), &mut out);
            }
            Message::Beat(held) => {
                net.send(session, self.who(), Message::Alive);
                self.slots.reconcile(job_id(job), &held.into_iter().collect(), &mut out);
            }
            Message::Answer(offered, accepted) => {
                self.slots.answered(job_id(job), &offered, &accepted, &mut out);
            }
            Message::Free(slot) => self.slots.free(slot, &mut out),
            Message::Deploy(attempt, slot, wiring) => {
                self.deploy(net, session, job, attempt, slot, *wiring);
            }
            Message::Cancel(attempt) => {
                if let Some(running) = self.running.get_mut(&(job, attempt)) {
                    running.is_stopping = true;
                    let most = if net.dice.chance(1, 8) { 4000 } else { 100 };
                    let stopped = Event::Attempt(self.index, job, attempt, Step::Stopped);
                    net.within(1, most, stopped);
                }
            }
            Message::Order(attempt, order) => self.order(net, job, attempt, order),
            _ => net.violate(|| format!("job {job} sends a task manager {message:?}")),
        }
        self.apply(net, out);
        self.wait(net);
    }

    /// Does what its slots want.
    fn apply(&mut self, net: &mut Net, out: Vec<TaskSlotsOutput>) {
        for output in out {
            match output {
                TaskSlotsOutput::Offer(job, offers) => {
                    let job = job.0 as usize - 1;
                    match self.jobs.get(&job) {
                        Some(link) if link.is_accepted => {
                            net.send(link.session, self.who(), Message::Offer(offers));
                        }
                        Some(_) => {}
                        None => net.later(0, Event::Connect(self.who(), Who::Job(job))),
                    }
                }
                TaskSlotsOutput::Gone(job, slot) => {
                    net.meet(Race::AcceptedAfterFreed);
                    if let Some(link) = self.jobs.get(&(job.0 as usize - 1)) {
                        net.send(link.session, self.who(), Message::Gone(slot));
                    }
                }
                TaskSlotsOutput::Freed { allocation, .. } => {
                    self.running.retain(|_, running| running.slot != allocation);
                    if let Some(link) = self.cluster {
                        net.send(link.session, self.who(), Message::Freed(allocation));
                    }
                }
            }
        }
    }

    /// Time passes.
    pub fn tick(&mut self, net: &mut Net) {
        if !self.is_alive {
            return;
        }
        let mut out = Vec::new();
        self.slots.tick(net.moment().mono, &mut out);
        self.apply(net, out);
        let is_silent = |link: &Link| link.heard + SILENCE <= net.now;
        let silent: Vec<_> = self
            .cluster
            .iter()
            .chain(self.jobs.values())
            .filter(|l| is_silent(l))
            .copied()
            .collect();
        for link in silent {
            net.cut(link.session);
            self.closed(net, link.session);
        }
        self.wait(net);
    }

    fn wait(&self, net: &mut Net) {
        let heard = self.cluster.iter().chain(self.jobs.values()).map(|link| link.heard).min();
        let silent = heard.map(|heard| Timestamp::from_millis(heard + SILENCE));
        let deadline = self.slots.deadline().into_iter().chain(silent).min();
        net.tick_at(self.who(), deadline);
    }

    fn deploy(
        &mut self,
        net: &mut Net,
        session: SessionId,
        job: usize,
        attempt: AttemptId,
        slot: AllocationId,
        wiring: Wiring,
    ) {
        let is_held = |s: &tidegate::control::slots::task_slots::SlotStatus| {
            s.holder == Some((job_id(job), slot))
        };
        if !self.slots.report().iter().any(is_held) {
            net.meet(Race::DeployedIntoNothing);
            let cause = Cause::induced("SlotGone", &format!("{slot} is not this job's"));
            let report = TaskReport::Failed { cause, chain: Vec::new(), peer: None };
            return net.send(session, self.who(), Message::Task(attempt, report));
        }
        let rival = self.running.iter().find(|((of, other), running)| {
            *of == job && other.subtask == attempt.subtask && !running.is_stopping
        });
        if let Some(((_, rival), _)) = rival {
            net.violate(|| format!("{attempt:?} is deployed beside {rival:?}, which runs"));
        }
        let ended: BTreeSet<_> = wiring.ended.iter().copied().collect();
        let running = Running {
            slot,
            is_stopping: false,
            wiring,
            is_started: false,
            is_at_end: false,
            is_going: false,
            asked_to_leave: false,
            snapshots: BTreeMap::new(),
            data_ended: ended.clone(),
            ended,
            finals: BTreeSet::new(),
        };
        self.running.insert((job, attempt), running);
        net.within(5, 200, Event::Attempt(self.index, job, attempt, Step::Started));
    }

    /// An attempt fails by itself.
    pub fn fail(
        &mut self,
        net: &mut Net,
        job: usize,
        attempt: AttemptId,
        peer: Option<ResourceId>,
    ) {
        if self.running.remove(&(job, attempt)).is_some()
            && let Some(link) = self.jobs.get(&job)
        {
            let cause = Cause::new("IoError", "the disk is broken");
            let report = TaskReport::Failed { cause, chain: Vec::new(), peer };
            net.send(link.session, self.who(), Message::Task(attempt, report));
        }
    }

    /// Loses a slot by itself, with what runs in it.
    pub fn lose_slot(&mut self, net: &mut Net, job: usize, slot: AllocationId) {
        let mut out = Vec::new();
        self.slots.free(slot, &mut out);
        if let Some(link) = self.jobs.get(&job) {
            net.send(link.session, self.who(), Message::Gone(slot));
        }
        self.apply(net, out);
    }

    /// Something happens within an attempt.
    pub fn step(&mut self, net: &mut Net, job: usize, attempt: AttemptId, step: Step) {
        let who = self.who();
        let Some(link) = self.jobs.get(&job).copied() else { return };
        let Some(running) = self.running.get_mut(&(job, attempt)) else { return };
        match step {
            Step::Stopped => {
                self.running.remove(&(job, attempt));
                let report = Message::Task(attempt, TaskReport::Canceled);
                return net.send(link.session, who, report);
            }
            _ if running.is_stopping => return,
            Step::Started => {
                running.is_started = true;
                net.send(link.session, who, Message::Progress(attempt, Progress::Running));
                if let Some(ends_at) = running.wiring.ends_at {
                    let wait = ends_at.saturating_sub(net.now) + 20;
                    net.later(wait, Event::Attempt(self.index, job, attempt, Step::NoMore));
                }
            }
            Step::NoMore => running.data_ended = running.wiring.inputs.iter().copied().collect(),
            Step::Stored(checkpoint) => {
                let is_last = running.is_at_end;
                let is_open = running.wiring.needs_final && !running.is_going;
                let stored = Progress::Stored(checkpoint, is_last, is_last && is_open);
                net.send(link.session, who, Message::Progress(attempt, stored));
            }
        }
        let no_more = step == Step::NoMore;
        self.go_on(net, job, attempt, no_more);
    }

    /// Takes the snapshots that are complete, and the next step towards the end.
    fn go_on(&mut self, net: &mut Net, job: usize, attempt: AttemptId, no_more: bool) {
        let who = self.who();
        let Some(session) = self.jobs.get(&job).map(|link| link.session) else { return };
        let Some(running) = self.running.get_mut(&(job, attempt)) else { return };
        if !running.is_started || running.is_stopping {
            return;
        }
        let inputs = &running.wiring.inputs;
        for (&checkpoint, snapshot) in &mut running.snapshots {
            let has = |input| snapshot.barriers.contains(input) || running.ended.contains(input);
            let may = if inputs.is_empty() {
                snapshot.is_triggered
            } else {
                inputs.iter().all(has) && (snapshot.is_triggered || !snapshot.barriers.is_empty())
            };
            if may && !snapshot.is_taken {
                snapshot.is_taken = true;
                if !net.is_healed && net.dice.chance(1, 16) {
                    let declined = Progress::Declined(checkpoint);
                    net.send(session, who, Message::Progress(attempt, declined));
                    continue;
                }
                if running.is_at_end {
                    running.finals.insert(checkpoint);
                }
                for &to in &running.wiring.outputs {
                    let what = Lane::Barrier(checkpoint);
                    net.later(LANE, Event::Lane { job, from: attempt, to, what });
                }
                let stored = Event::Attempt(self.index, job, attempt, Step::Stored(checkpoint));
                net.within(1, 300, stored);
            }
        }
        let all_data = inputs.iter().all(|input| running.data_ended.contains(input));
        let may_end = if inputs.is_empty() { no_more } else { all_data };
        if may_end && !running.is_at_end {
            running.is_at_end = true;
            for &to in &running.wiring.outputs {
                net.later(LANE, Event::Lane { job, from: attempt, to, what: Lane::EndOfData });
            }
            net.send(session, who, Message::Progress(attempt, Progress::AtEnd));
            if running.wiring.needs_final {
                net.send(session, who, Message::Progress(attempt, Progress::Awaits));
            } else {
                running.is_going = true;
            }
        }
        let all_ended = inputs.iter().all(|input| running.ended.contains(input));
        if running.is_going && all_ended && !running.asked_to_leave {
            running.asked_to_leave = true;
            net.send(session, who, Message::Progress(attempt, Progress::Leaves));
        }
    }

    fn order(&mut self, net: &mut Net, job: usize, attempt: AttemptId, order: Order) {
        let who = self.who();
        let Some(session) = self.jobs.get(&job).map(|link| link.session) else { return };
        let Some(running) = self.running.get_mut(&(job, attempt)) else { return };
        if running.is_stopping {
            return;
        }
        match order {
            Order::Trigger(checkpoint) => {
                running.snapshots.entry(checkpoint).or_default().is_triggered = true;
            }
            Order::Aborted(checkpoint) => _ = running.snapshots.remove(&checkpoint),
            Order::Complete(checkpoint) => {
                let will_do = running.finals.range(..=checkpoint).next().is_some();
                if running.is_at_end && !running.is_going && will_do {
                    running.is_going = true;
                    net.send(session, who, Message::Progress(attempt, Progress::Goes));
                }
            }
            Order::Permit => {
                for &to in &running.wiring.outputs {
                    net.later(LANE, Event::Lane { job, from: attempt, to, what: Lane::End });
                }
                self.running.remove(&(job, attempt));
                let report = Message::Task(attempt, TaskReport::Finished);
                return net.send(session, who, report);
            }
        }
        self.go_on(net, job, attempt, false);
    }

    /// Something arrives on a lane to one of its attempts.
    pub fn lane(&mut self, net: &mut Net, job: usize, to: AttemptId, from: SubtaskId, what: Lane) {
        let Some(running) = self.running.get_mut(&(job, to)) else { return };
        match what {
            Lane::Barrier(checkpoint) => {
                running.snapshots.entry(checkpoint).or_default().barriers.insert(from);
            }
            Lane::EndOfData => _ = running.data_ended.insert(from),
            Lane::End => {
                running.data_ended.insert(from);
                running.ended.insert(from);
            }
        }
        self.go_on(net, job, to, false);
    }
}
