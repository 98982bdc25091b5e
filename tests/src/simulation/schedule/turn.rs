//! Whose turn it is in a schedule: mail, a task, the writer of snapshots, control, or the clock.

use tidegate::JobState;
use tidegate::clock::Timestamp;
use tidegate::id::AttemptId;
use tidegate::runtime::simulation::{Asked, ReportName, Simulation, Told};
use tidegate::task::Progress;

use super::{Schedule, name};
use crate::simulation::reach::{Race, Seen};

/// So often in a row a task that has nothing to do is asked before it is left alone: the first time it may still have sent what it
/// had buffered.
const IDLE_MAX: u8 = 2;

/// Tasks that have nothing to do, until something happens.
#[derive(Debug, Default)]
pub(super) struct IdleTasks(Vec<(usize, usize, u8, Timestamp)>);

impl IdleTasks {
    /// Whether a task is to be left alone.
    fn is_idle(&self, worker: usize, task: usize, now: u64) -> bool {
        self.0.iter().any(|&(w, t, times, until)| {
            (w, t) == (worker, task) && times >= IDLE_MAX && until.as_nanos() > now
        })
    }

    fn note(&mut self, worker: usize, task: usize, wake: Timestamp) {
        match self.0.iter_mut().find(|(w, t, ..)| (*w, *t) == (worker, task)) {
            Some((.., times, until)) => {
                *times = times.saturating_add(1);
                *until = wake;
            }
            None => self.0.push((worker, task, 1, wake)),
        }
    }

    /// Something has happened.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Schedule {
    /// One step of one piece. Whether it found nothing to do.
    pub(super) fn act(&mut self, sim: &mut Simulation) -> bool {
        let weights = self.plan.weights;
        let workers = sim.workers();
        let tasks: usize = (0..workers).map(|worker| self.busy_tasks(sim, worker).count()).sum();
        let mails = (0..workers).filter(|&worker| sim.mail(worker) > 0).count();
        let choices = [
            weights.mail * mails as u64,
            weights.io * u64::from(sim.requests() > 0),
            weights.event * u64::from(sim.events() > 0),
            weights.task * tasks as u64,
            weights.clock,
        ];
        let mut roll = self.dice.below(choices.iter().sum());
        let mut choice = 0;
        if self.plan.skips_idle && choices[..4].iter().all(|&weight| weight == 0) {
            // All rest: only the clock can make a difference.
            self.rests = true;
        }
        while roll >= choices[choice] {
            roll -= choices[choice];
            choice += 1;
        }
        self.note(choice as u64 + 1);
        match choice {
            0 => {
                self.idle_tasks.clear();
                let mut nth = (roll / weights.mail) as usize;
                for worker in 0..workers {
                    if sim.mail(worker) == 0 {
                        continue;
                    }
                    if nth == 0 {
                        self.tell(|| format!("worker {worker} takes mail"));
                        sim.take_mail(worker);
                        break;
                    }
                    nth -= 1;
                }
                false
            }
            1 => {
                self.request(sim);
                false
            }
            2 => {
                self.event(sim);
                false
            }
            3 => {
                let nth = (roll / weights.task) as usize;
                let place = (0..workers)
                    .flat_map(|worker| self.busy_tasks(sim, worker).map(move |task| (worker, task)))
                    .nth(nth);
                let (worker, task) = place.expect("they were just counted");
                self.step(sim, worker, task)
            }
            _ => {
                if self.dice.chance(1, 8) {
                    self.now += self.dice.below(40) * self.plan.tick;
                    self.set_clock();
                }
                if sim.deadline().is_some_and(|at| at.as_nanos() <= self.now) {
                    self.tell(|| "tick".to_owned());
                    self.idle_tasks.clear();
                    sim.tick();
                    return false;
                }
                true
            }
        }
    }

    /// The tasks of a worker that are not left alone.
    fn busy_tasks(&self, sim: &Simulation, worker: usize) -> impl Iterator<Item = usize> {
        let is_left = move |task: usize| {
            self.plan.skips_idle && self.idle_tasks.is_idle(worker, task, self.now)
        };
        (0..sim.tasks(worker).len()).filter(move |&task| !is_left(task))
    }

    fn step(&mut self, sim: &mut Simulation, worker: usize, task: usize) -> bool {
        // A task may be kept waiting for a while, as if its worker had much else to do.
        match self.frozen {
            Some((w, t, until)) if (w, t) == (worker, task) && self.steps < until => return true,
            Some((_, _, until)) if self.steps >= until => self.frozen = None,
            Some(_) => {}
            None if self.dice.chance(1, 120) => {
                self.frozen = Some((worker, task, self.steps + self.dice.within(10, 90)));
            }
            None => {}
        }
        let attempt = sim.tasks(worker).nth(task);
        let progress = sim.step(worker, task);
        self.note(match progress {
            Progress::Busy => 11,
            Progress::Done => 12,
            Progress::Idle(_) => 13,
        });
        if let Progress::Idle(until) = progress {
            self.idle_tasks.note(worker, task, until);
            return true;
        }
        self.idle_tasks.clear();
        self.tell(|| format!("{} {progress:?}", name(attempt)));
        false
    }

    fn request(&self, sim: &mut Simulation) {
        let Some(asked) = sim.serve_request() else { return };
        self.tell(|| format!("io: {asked:?}"));
        if let Asked::Store(_, checkpoint, captured) = asked {
            let mut seen = self.seen.borrow_mut();
            seen.reach.met_if(captured.half_read > 0, Race::HalfRead);
            seen.reach.met_if(captured.events > 0, Race::WatermarkCaptured);
            seen.reach.met_if(captured.channels > 1, Race::ManyChannelsCaptured);
            if captured.buffers > 0 {
                seen.captured.insert(checkpoint);
            }
        }
    }

    fn event(&self, sim: &mut Simulation) {
        let is_cancelling = sim.status_state() == JobState::Restarting && sim.deadline().is_none();
        let Some(told) = sim.serve_event() else { return };
        self.tell(|| format!("control: {told:?}"));
        let is_disk = matches!(
            told,
            Told::NotStored(..)
                | Told::Finalized(_, Err(_))
                | Told::Discarded(_, false)
                | Told::Reserved(false)
        );
        if is_disk && self.faults == 0 {
            let why = sim.status().last_checkpoint_failure;
            self.world().violate(format!("the disk is fine, but {told:?}: {why:?}"));
        }
        let mut seen = self.seen.borrow_mut();
        let is_zombie =
            |seen: &Seen, of: AttemptId| seen.attempt(of.subtask).is_some_and(|a| a != of);
        match told {
            Told::Stored(attempt, _) => {
                let is_met = is_zombie(&seen, attempt);
                seen.reach.met_if(is_met, Race::ZombieAck);
            }
            Told::NotStored(..) => seen.reach.met(Race::DiskFailsState),
            Told::Finalized(_, Err(true)) => seen.reach.met(Race::DiskFailsManifest),
            Told::Finalized(_, Err(false)) => seen.reach.met(Race::DiskFailsUnknown),
            Told::Discarded(_, false) => seen.reach.met(Race::DiskFailsRemove),
            Told::Reserved(false) => seen.reach.met(Race::DiskFailsReserve),
            Told::Report(_, name) => {
                let is_failure = name == ReportName::Failed;
                seen.reach.met_if(is_cancelling && is_failure, Race::FailureWhileCancelling);
                seen.reach.met_if(is_cancelling && !is_failure, Race::ReportWhileCancelling);
            }
            Told::Finalized(_, Ok(()))
            | Told::Discarded(..)
            | Told::Reserved(_)
            | Told::Cancelled
            | Told::Request => {}
        }
    }

    /// Nothing seems to be left to do: steps everything once more, then lets time pass until something is due.
    pub(super) fn wait(&mut self, sim: &mut Simulation) -> Option<String> {
        let mut wake = sim.deadline().unwrap_or(Timestamp::MAX);
        self.idle_tasks.clear();
        for worker in 0..sim.workers() {
            if sim.mail(worker) > 0 {
                return None;
            }
            let mut task = 0;
            while task < sim.tasks(worker).len() {
                match sim.step(worker, task) {
                    Progress::Busy => {
                        self.note(21);
                        return None;
                    }
                    Progress::Done => {
                        self.note(22);
                        return None;
                    }
                    Progress::Idle(until) => wake = wake.min(until),
                }
                task += 1;
            }
        }
        if sim.requests() > 0 || sim.events() > 0 {
            return None;
        }
        if wake == Timestamp::MAX {
            let situation = self.situation(sim);
            return Some(format!("nothing is left to do, but the job has not ended: {situation}"));
        }
        self.now = self.now.max(wake.as_nanos());
        self.set_clock();
        if sim.deadline().is_some_and(|at| at.as_nanos() <= self.now) {
            sim.tick();
        }
        self.frozen = None;
        self.note(23);
        None
    }
}
