//! Runs one seed: chooses whose step comes next, lets things fail, heals them, and wants the job to end.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::JobState;
use tidegate::clock::Timestamp;
use tidegate::error::Error;
use tidegate::id::AttemptId;
use tidegate::runtime::simulation::{Asked, ReportName, Simulation, Told, observe, set_clock};
use tidegate::state::memory::MemoryStore;
use tidegate::task::Progress;

use super::dice::Dice;
use super::plan::{Ending, Plan};
use super::reach::{Race, Seen, observer};
use super::report::Report;
use super::world::World;

mod trouble;

/// After so many steps behind the healing a job that has not ended is taken never to end.
const LIVENESS_STEPS: u64 = 100_000;
/// So many processes are started at the most.
const PROCESSES_MAX: u64 = 40;

/// How a process ended.
enum Fate {
    /// The job has ended.
    Ended,
    /// It was stopped; its sources have more.
    Stopped,
    /// It failed for good, or the process died.
    Gone,
    /// Something is wrong.
    Wrong(String),
}

struct Schedule {
    dice: Dice,
    plan: Plan,
    world: Arc<Mutex<World>>,
    fail_in: Arc<AtomicU64>,
    store: MemoryStore,
    seen: Rc<RefCell<Seen>>,
    now: u64,
    steps: u64,
    process: u64,
    healed_at: Option<u64>,
    troubles: u64,
    crashes: u64,
    failures: u64,
    /// Faults of this process's disk.
    faults: u64,
    /// Which of the plan's sizes the job has.
    size: usize,
    /// Whether another size was refused.
    is_refused: bool,
    has_stopped: bool,
    is_stopping: bool,
    digest: u64,
    is_told: bool,
    frozen: Option<(usize, usize, u64)>,
}

/// Runs `seed`. With `is_told`, each step is printed.
pub fn run(seed: u64, is_told: bool) -> Report {
    let mut dice = Dice::new(seed);
    let plan = Plan::draw(&mut dice);
    let ends = plan.sources.iter().map(|source| source.ends.clone()).collect();
    let is_exact = plan.config.checkpoint.mode == tidegate::config::Mode::ExactlyOnce;
    let world = Arc::new(Mutex::new(World::new(ends, plan.sinks.clone(), is_exact)));
    let seen = Rc::new(RefCell::new(Seen::default()));
    let now = dice.below(1_000_000);
    if is_told {
        println!("{plan:#?}");
    }
    let mut schedule = Schedule {
        dice,
        plan,
        world,
        fail_in: Arc::default(),
        store: MemoryStore::new(),
        seen,
        now,
        steps: 0,
        process: 0,
        healed_at: None,
        troubles: 0,
        crashes: 0,
        failures: 0,
        faults: 0,
        size: 0,
        is_refused: false,
        has_stopped: false,
        is_stopping: false,
        digest: 0xCBF2_9CE4_8422_2325,
        is_told,
        frozen: None,
    };
    schedule.world().is_told = is_told;
    schedule.seen.borrow_mut().is_told = is_told;
    set_clock(Some(Timestamp::from_nanos(now)));
    observe(Some(observer(&schedule.seen, &schedule.world)));
    let outcome = catch_unwind(AssertUnwindSafe(|| schedule.run()));
    observe(None);
    set_clock(None);
    let mut violation = schedule.world().violation.take();
    match outcome {
        Ok(found) => violation = violation.or(found),
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .or_else(|| panic.downcast_ref::<Error>().map(Error::to_string))
                .unwrap_or_else(|| "something".to_owned());
            violation = violation.or(Some(format!("panicked outside of any task: {text}")));
        }
    }
    schedule.report(violation)
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Schedule {
    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    fn met(&self, race: Race) {
        self.seen.borrow_mut().reach.met(race);
    }

    fn met_if(&self, is_met: bool, race: Race) {
        self.seen.borrow_mut().reach.met_if(is_met, race);
    }

    fn note(&mut self, what: u64) {
        self.digest = (self.digest ^ what).wrapping_mul(0x0100_0000_01B3).rotate_left(5);
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_told {
            println!("{:>6} {:>9} {}", self.steps, self.now / 1000, what());
        }
    }

    fn report(self, violation: Option<String>) -> Report {
        let mut seen = self.seen.borrow_mut();
        let world = lock(&self.world);
        seen.reach.met_if(world.repeated_commits > 0, Race::CommitRepeated);
        Report {
            violation,
            steps: self.steps,
            tasks: seen.tasks,
            checkpoints: seen.completed,
            crashes: self.crashes,
            failures: self.failures,
            ends_apart: self.plan.ends_apart(),
            digest: self.digest ^ seen.digest ^ world.digest,
            reach: seen.reach.clone(),
        }
    }

    /// All processes, one after the other. What is wrong.
    fn run(&mut self) -> Option<String> {
        loop {
            if self.process >= PROCESSES_MAX {
                return Some(format!("has not ended after {PROCESSES_MAX} processes"));
            }
            match self.process() {
                Fate::Ended => break,
                Fate::Stopped => {
                    self.has_stopped = true;
                    let more = self.dice.below(8);
                    self.world().end_all(more);
                }
                Fate::Gone => {}
                Fate::Wrong(what) => return Some(what),
            }
            self.process += 1;
        }
        self.world().check_end();
        self.store.heal();
        if self.store.is_dead() {
            self.crash(None);
        }
        let again = self
            .plan
            .job((self.process as usize, self.size), &self.world, &self.fail_in)
            .simulate(Arc::new(self.store.clone()), |options| self.plan.tune(options));
        match again {
            Ok(None) => self.met(Race::EndedAgain),
            Ok(Some(_)) => return Some("a job that has ended starts again".to_owned()),
            Err(error) => return Some(format!("a job that has ended can't be asked: {error}")),
        }
        None
    }

    fn process(&mut self) -> Fate {
        self.world().process = self.process;
        let before = self.size;
        if !self.is_refused {
            self.size = self.process as usize;
        }
        let last = self.plan.parallelism.len() - 1;
        let nth = |at: usize| self.plan.parallelism[at.min(last)];
        self.seen.borrow_mut().is_rescaled = self.process > 0 && nth(before) != nth(self.size);
        self.is_stopping = false;
        if self.healed_at.is_some() && self.plan.ending == Ending::Stopped && !self.has_stopped {
            // The stop has failed; the job goes on to its end.
            self.has_stopped = true;
            self.world().end_all(3);
        }
        self.tell(|| format!("process {} starts", self.process));
        let plan = &self.plan;
        let job = plan.job((self.process as usize, self.size), &self.world, &self.fail_in);
        let sim = match job.simulate(Arc::new(self.store.clone()), |options| plan.tune(options)) {
            Ok(Some(sim)) => sim,
            Ok(None) => return Fate::Ended,
            Err(error) => {
                let is_disk = error.kind() == tidegate::ErrorKind::Io;
                if is_disk && self.healed_at.is_none() {
                    self.met(Race::DiskFailsStart);
                    if self.store.is_dead() {
                        self.crash(None);
                    }
                    return Fate::Gone;
                }
                return Fate::Wrong(format!("the job does not start: {error}"));
            }
        };
        let fate = self.drive(sim);
        if self.is_refused {
            // Records in flight on an edge without keys: the job goes on in the size it had.
            self.size = before;
        }
        fate
    }

    /// Steps one process to its end.
    fn drive(&mut self, mut sim: Simulation) -> Fate {
        let mut idle = 0;
        loop {
            self.steps += 1;
            self.now += self.plan.tick;
            self.set_clock();
            if self.healed_at.is_none() && self.steps >= self.plan.safety_steps {
                self.heal(&sim);
                if self.process == 0 && self.plan.is_impatient() {
                    self.crash(Some(&sim));
                    return Fate::Gone;
                }
            }
            if let Some(healed_at) = self.healed_at
                && self.steps > healed_at + LIVENESS_STEPS
            {
                return Fate::Wrong(format!("does not end: {}", self.situation(&sim)));
            }
            if self.healed_at.is_none() && self.trouble(&sim) {
                self.crash(Some(&sim));
                return Fate::Gone;
            }
            let is_quiet = self.act(&mut sim);
            if self.store.is_dead() {
                self.met(Race::CrashInDisk);
                self.crash(Some(&sim));
                return Fate::Gone;
            }
            for failure in sim.take_failures() {
                if !failure.contains("injected") && !failure.contains("which was to end the job") {
                    return Fate::Wrong(format!("a task failed: {failure}"));
                }
            }
            let is_patient = self.process > 0 || !self.plan.is_impatient();
            if std::mem::take(&mut self.seen.borrow_mut().has_expired) && is_patient {
                return Fate::Wrong(format!("a checkpoint hung: {}", self.situation(&sim)));
            }
            if self.world().violation.is_some() {
                return Fate::Wrong(String::new());
            }
            if let Some(outcome) = sim.take_outcome() {
                return self.ended(&sim, outcome);
            }
            idle = if is_quiet { idle + 1 } else { 0 };
            if idle > 6 {
                idle = 0;
                if let Some(wrong) = self.wait(&mut sim) {
                    return Fate::Wrong(wrong);
                }
            }
        }
    }

    fn ended(&mut self, sim: &Simulation, outcome: tidegate::Result<()>) -> Fate {
        let state = sim.status().state;
        self.tell(|| format!("the job is over: {state:?} {outcome:?}"));
        match outcome {
            Ok(()) if state == JobState::Cancelled => Fate::Stopped,
            Ok(()) => Fate::Ended,
            Err(_) if state == JobState::Finished => {
                self.met(Race::FinishedUnmarked);
                Fate::Gone
            }
            Err(error) => match error.kind() {
                tidegate::ErrorKind::Checkpoint
                    if error.to_string().contains("the parallelism at both ends") =>
                {
                    self.met(Race::RescaleRefused);
                    self.is_refused = true;
                    Fate::Gone
                }
                tidegate::ErrorKind::Internal | tidegate::ErrorKind::Config => {
                    Fate::Wrong(format!("the job failed: {error}"))
                }
                _ => Fate::Gone,
            },
        }
    }

    fn situation(&self, sim: &Simulation) -> String {
        let status = sim.status();
        let tasks: Vec<String> = (0..sim.workers())
            .flat_map(|worker| sim.tasks(worker).map(|a| name(Some(a))))
            .collect();
        format!(
            "{:?}, {} checkpoints completed, {} failed ({:?}), under way {:?}, tasks {tasks:?}",
            status.state,
            status.checkpoints_completed,
            status.checkpoints_failed,
            status.last_checkpoint_failure,
            status.checkpoint_under_way,
        )
    }

    fn set_clock(&self) {
        let now = Timestamp::from_nanos(self.now);
        set_clock(Some(now));
        self.seen.borrow_mut().now = now;
    }

    /// One step of one piece. Whether it found nothing to do.
    fn act(&mut self, sim: &mut Simulation) -> bool {
        let weights = self.plan.weights;
        let workers = sim.workers();
        let tasks: usize = (0..workers).map(|worker| sim.tasks(worker).len()).sum();
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
        while roll >= choices[choice] {
            roll -= choices[choice];
            choice += 1;
        }
        self.note(choice as u64 + 1);
        match choice {
            0 => {
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
                let mut nth = (roll / weights.task) as usize;
                let mut worker = 0;
                while nth >= sim.tasks(worker).len() {
                    nth -= sim.tasks(worker).len();
                    worker += 1;
                }
                self.step(sim, worker, nth)
            }
            _ => {
                if self.dice.chance(1, 8) {
                    self.now += self.dice.below(40) * self.plan.tick;
                    self.set_clock();
                }
                if sim.deadline().is_some_and(|at| at.as_nanos() <= self.now) {
                    self.tell(|| "tick".to_owned());
                    sim.tick();
                    return false;
                }
                true
            }
        }
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
        if !matches!(progress, Progress::Idle(_)) {
            self.tell(|| format!("{} {progress:?}", name(attempt)));
        }
        matches!(progress, Progress::Idle(_))
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
    fn wait(&mut self, sim: &mut Simulation) -> Option<String> {
        let mut wake = sim.deadline().unwrap_or(Timestamp::MAX);
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

fn name(attempt: Option<AttemptId>) -> String {
    attempt.map_or_else(String::new, |attempt| {
        format!("task {}/{}#{}", attempt.subtask.vertex.0, attempt.subtask.index, attempt.attempt.0)
    })
}
