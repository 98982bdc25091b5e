//! One schedule: a seed's cluster in trouble, then in peace.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate::control::blocklist::item::{ItemKey, ItemType};
use tidegate::control::driver::DriverEvent;
use tidegate::control::identity::{NodeId, ResourceId};

use super::checks;
use super::cluster::{Cluster, wish};
use super::job::Job;
use super::message::{Event, Message, Who};
use super::net::{Net, SessionId};
use super::plan::{HEALED, Plan, TOMBSTONES, action};
use super::reach::{Race, Reach};
use super::task_manager::TaskManager;
use crate::simulation::dice::Dice;

/// The most events of a schedule.
const STEPS_MAX: u64 = 200_000;

/// What became of a schedule.
#[derive(Debug)]
pub struct Report {
    /// What was wrong, if anything was.
    pub violation: Option<String>,
    /// Events.
    pub steps: u64,
    /// A digest of all of them.
    pub digest: u64,
    /// The races met.
    pub reach: Reach,
}

struct World {
    plan: Plan,
    net: Net,
    cluster: Cluster,
    jobs: Vec<Job>,
    task_managers: Vec<TaskManager>,
}

/// Runs the schedule of `seed`; `is_loud` tells each step.
pub fn run(seed: u64, is_loud: bool) -> Report {
    let mut dice = Dice::new(seed);
    let plan = Plan::draw(&mut dice);
    let mut net = Net::new(dice, is_loud);
    net.tell(|| format!("{plan:#?}"));
    let cluster = Cluster::new(&mut net, &plan);
    let jobs = (0..plan.jobs.len()).map(|index| Job::new(&mut net, index, &plan)).collect();
    let mut world = World { plan, net, cluster, jobs, task_managers: Vec::new() };
    let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(panic) = ran {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|| "no text".into());
        world.net.violate(|| format!("a machine panicked: {text}"));
    }
    let Net { violation, steps, digest, reach, .. } = world.net;
    Report { violation, steps, digest, reach }
}

impl World {
    fn run(&mut self) {
        for node in self.plan.task_managers.clone() {
            self.add_task_manager(node);
        }
        for job in 0..self.jobs.len() {
            self.net.within(0, 500, Event::Connect(Who::Job(job), Who::Cluster));
        }
        self.net.within(500, self.plan.pause, Event::Trouble);
        self.net.later(self.plan.trouble, Event::Heal);
        let peace = if self.plan.is_long { TOMBSTONES } else { HEALED };
        let end = self.plan.trouble + peace;
        // Nobody asked for slots before this who would have got them only in trouble.
        let settled = self.plan.trouble + 30_000;
        let mut over = self.ended();
        while let Some(event) = self.net.next(end) {
            self.net.record(&event);
            self.happen(event);
            let ended = self.ended();
            if ended != over && self.net.now > settled {
                for job in self.jobs.iter().filter(|job| !over.contains(&job.index)) {
                    checks::check_no_resources(&mut self.net, job, &self.cluster);
                }
            }
            over = ended;
            if self.net.steps > STEPS_MAX {
                return self.net.violate(|| "it never comes to rest".into());
            }
        }
        if self.net.violation.is_none() {
            checks::check(&mut self.net, &self.jobs, &self.cluster, &self.task_managers);
        }
    }

    fn ended(&self) -> Vec<usize> {
        let ended = self.jobs.iter().filter(|job| job.outcome.is_some());
        ended.map(|job| job.index).collect()
    }

    fn add_task_manager(&mut self, node: u64) {
        let index = self.task_managers.len();
        self.task_managers.push(TaskManager::new(index, node, self.plan.slots));
        self.net.within(0, 500, Event::Connect(Who::TaskManager(index), Who::Cluster));
    }

    fn happen(&mut self, event: Event) {
        let net = &mut self.net;
        match event {
            Event::Deliver { session, to, message } => self.deliver(session, to, message),
            Event::Closed(session, who) => match who {
                Who::Cluster => self.cluster.closed(net, session),
                Who::Job(job) => self.jobs[job].closed(net, session),
                Who::TaskManager(index) => self.task_managers[index].closed(net, session),
            },
            Event::Undeliverable(session, who) => match who {
                Who::Cluster => self.cluster.undeliverable(net, session),
                Who::Job(job) => self.jobs[job].undeliverable(net, session),
                Who::TaskManager(_) => {}
            },
            Event::Tick(who) if net.take_tick(who) => match who {
                Who::Cluster => self.cluster.tick(net),
                Who::Job(job) => self.jobs[job].tick(net),
                Who::TaskManager(index) => self.task_managers[index].tick(net),
            },
            Event::Tick(_) => {}
            Event::Connect(from, to) => match from {
                Who::Job(job) => self.jobs[job].connect(net),
                Who::TaskManager(index) => self.task_managers[index].connect(net, to),
                Who::Cluster => {}
            },
            Event::Lane { job, from, to, what } => {
                let Some((attempt, id)) = self.jobs[job].lane_end(from, to) else { return };
                let index = index_of(&id);
                let is_there = self.task_managers[index].running.contains_key(&(job, attempt));
                if is_there {
                    self.task_managers[index].lane(net, job, attempt, from.subtask, what);
                } else if self.task_managers[index].is_alive && net.is_healed {
                    net.later(50, Event::Lane { job, from, to, what });
                } else if self.task_managers[index].is_alive {
                    // Its consumer is on the way; the producer waits for it with what it has to send.
                    net.later(20, Event::Lane { job, from, to, what });
                }
            }
            Event::Attempt(index, job, attempt, step) => {
                self.task_managers[index].step(net, job, attempt, step);
            }
            Event::Store(job, stored) => self.jobs[job].stored(net, stored),
            Event::WorkerStarts => self.start_worker(),
            Event::Restart(node) => self.add_task_manager(node),
            Event::Successor => self.cluster.start(net, &self.plan),
            Event::Trouble if net.is_healed => {}
            Event::Trouble => {
                self.trouble();
                let pause = self.net.dice.within(100, self.plan.pause);
                self.net.later(pause, Event::Trouble);
            }
            Event::Heal => net.heal(),
        }
        for id in std::mem::take(&mut self.cluster.ended) {
            let index = index_of(&id);
            self.task_managers[index].die(&mut self.net);
        }
    }

    fn deliver(&mut self, session: SessionId, to: Who, message: Message) {
        let net = &mut self.net;
        let from = net.peer(session, to);
        if let Message::Blocklist(said) = &message {
            net.landed(from, said);
        }
        if !net.is_alive(session) {
            return;
        }
        match (from, to) {
            (Who::Job(job), Who::Cluster) => self.cluster.told_by_job(net, session, job, message),
            (Who::TaskManager(index), Who::Cluster) => {
                let tm = &self.task_managers[index];
                let report = tm.slots.report();
                self.cluster.from_task_manager(net, session, &tm.location, report, message);
            }
            (Who::Cluster, Who::Job(job)) => self.jobs[job].told_by_cluster(net, session, message),
            (Who::TaskManager(index), Who::Job(job)) => {
                let location = &self.task_managers[index].location;
                self.jobs[job].from_task_manager(net, session, location, message);
            }
            (_, Who::TaskManager(index)) => {
                self.task_managers[index].receive(net, session, message);
            }
            (from, to) => net.violate(|| format!("{from:?} sends {to:?} something")),
        }
    }

    fn start_worker(&mut self) {
        if self.cluster.ordered == 0 {
            return;
        }
        let net = &mut self.net;
        let nodes = (1..=self.plan.nodes).filter(|node| {
            let id = NodeId::new(&format!("n{node}")).expect("short");
            !self.cluster.avoided.contains(&id)
        });
        let nodes: Vec<_> = nodes.collect();
        if nodes.is_empty() {
            return net.later(2000, Event::WorkerStarts);
        }
        let node = net.dice.pick(&nodes);
        self.cluster.ordered -= 1;
        if !net.is_healed && net.dice.chance(1, 6) {
            net.meet(Race::LaunchFailed);
            let node = Some(NodeId::new(&format!("n{node}")).expect("short"));
            let failed = DriverEvent::RequestFailed { node, message: "no room".into() };
            return self.cluster.driver(net, failed);
        }
        self.add_task_manager(node);
    }

    fn trouble(&mut self) {
        match self.net.dice.below(20) {
            0..=5 => self.block(),
            6..=8 => self.unblock(),
            9..=11 => self.fail_a_task(),
            12 => self.lose_a_slot(),
            13 | 14 => self.kill_a_task_manager(),
            15..=17 => {
                if let Some(session) = self.net.any_session() {
                    self.net.cut(session);
                }
            }
            18 => self.cluster.crash(&mut self.net),
            _ => {
                // A silence in which things settle.
                self.net.within(1000, 3000, Event::Trouble);
            }
        }
    }

    fn block(&mut self) {
        let net = &mut self.net;
        let key = if net.dice.chance(2, 3) {
            let node = 1 + net.dice.below(self.plan.nodes);
            ItemKey::new(ItemType::Node, &format!("n{node}"))
        } else {
            let index = net.dice.below(self.task_managers.len() as u64);
            ItemKey::new(ItemType::TaskManager, &format!("tm{index}"))
        };
        let lasts = match net.dice.below(8) {
            0 | 1 => None,
            2..=6 => Some(net.dice.within(1_000, 30_000)),
            _ => Some(net.dice.within(30_000, 400_000)),
        };
        let action = action(&mut net.dice);
        let item = wish(net, key.expect("short"), action, lasts);
        self.cluster.add(net, vec![item]);
    }

    fn unblock(&mut self) {
        let held = self.cluster.blocklist().map(|blocklist| blocklist.get_all_items());
        let held = held.unwrap_or_default();
        if held.is_empty() {
            return;
        }
        let key = held[self.net.dice.below(held.len() as u64) as usize].key.clone();
        if self.cluster.remove(&mut self.net, &key) {
            for job in &mut self.jobs {
                job.note_removed(&mut self.net, &key);
            }
        }
    }

    /// A task manager that runs something, and what.
    fn somebody(&mut self) -> Option<(usize, usize, tidegate::id::AttemptId)> {
        let all = self.task_managers.iter().flat_map(|tm| {
            let running = tm.running.iter().filter(|(_, running)| !running.is_stopping);
            running.map(|((job, attempt), _)| (tm.index, *job, *attempt))
        });
        let all: Vec<_> = all.collect();
        (!all.is_empty()).then(|| self.net.dice.pick(&all))
    }

    fn fail_a_task(&mut self) {
        let Some((index, job, attempt)) = self.somebody() else { return };
        let peer = self.net.dice.below(4 * self.task_managers.len() as u64) as usize;
        let peer = self.task_managers.get(peer).map(|tm| tm.id().clone());
        self.task_managers[index].fail(&mut self.net, job, attempt, peer);
    }

    fn lose_a_slot(&mut self) {
        let Some((index, job, attempt)) = self.somebody() else { return };
        let slot = self.task_managers[index].running[&(job, attempt)].slot;
        self.task_managers[index].lose_slot(&mut self.net, job, slot);
    }

    fn kill_a_task_manager(&mut self) {
        let alive: Vec<_> =
            self.task_managers.iter().filter(|tm| tm.is_alive).map(|tm| tm.index).collect();
        if alive.is_empty() {
            return;
        }
        let index = self.net.dice.pick(&alive);
        let tm = &mut self.task_managers[index];
        tm.die(&mut self.net);
        let id = tm.id().clone();
        if self.plan.can_request {
            if self.net.dice.chance(1, 2) {
                let message = "it ended".into();
                let event = DriverEvent::WorkerTerminated { id, message };
                self.cluster.driver(&mut self.net, event);
            }
        } else {
            let node = tm.location.node_id.as_str()[1..].parse().expect("nodes are numbered");
            self.net.within(500, 5000, Event::Restart(node));
        }
    }
}

/// The place of a task manager among all.
fn index_of(id: &ResourceId) -> usize {
    id.as_str()[2..].parse().expect("task managers are numbered")
}
