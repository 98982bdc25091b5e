//! Runs one seed: chooses whose step comes next, lets things fail, heals them, and wants the job to end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::clock::Timestamp;
use tidegate::error::Error;
use tidegate::id::{AttemptId, CheckpointId};
use tidegate::runtime::simulation::{Simulation, observe, set_clock};
use tidegate::state::memory::MemoryStore;
use tidegate::{JobState, SavepointStop};

use super::dice::Dice;
use super::plan::{Edition, Plan};
use super::reach::{Race, Seen, observer};
use super::report::Report;
use super::world::World;
use beginning::Origin;
use turn::IdleTasks;

mod beginning;
mod trouble;
mod turn;

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
    /// In which size checkpoints and savepoints were taken.
    sizes: BTreeMap<CheckpointId, usize>,
    /// Whether another size was refused.
    is_refused: bool,
    has_stopped: bool,
    is_stopping: bool,
    digest: u64,
    is_told: bool,
    frozen: Option<(usize, usize, u64)>,
    idle_tasks: IdleTasks,
    /// Whether nothing is left to do before some moment.
    rests: bool,
    /// Savepoints that are complete.
    savepoints: Vec<PathBuf>,
    origin: Option<Origin>,
    /// Whether a stop was asked for that drains, and nobody knows what came of it.
    is_drained: bool,
    /// How often a stop was asked for.
    stops: u64,
    /// What came of it.
    stop_outcome: Option<tidegate::Result<SavepointStop>>,
}

/// Runs `seed`. With `is_told`, each step is printed.
pub fn run(seed: u64, is_told: bool) -> Report {
    run_edition(seed, Edition::Second, is_told)
}

/// Runs what `seed` meant in that edition.
pub fn run_edition(seed: u64, edition: Edition, is_told: bool) -> Report {
    let mut dice = Dice::new(seed);
    let plan = Plan::draw(&mut dice, edition);
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
        store: MemoryStore::whole_disk(),
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
        sizes: BTreeMap::new(),
        is_refused: false,
        has_stopped: false,
        is_stopping: false,
        digest: 0xCBF2_9CE4_8422_2325,
        is_told,
        frozen: None,
        idle_tasks: IdleTasks::default(),
        rests: false,
        savepoints: Vec::new(),
        origin: None,
        is_drained: false,
        stops: 0,
        stop_outcome: None,
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

    /// Steps one process to its end.
    fn drive(&mut self, mut sim: Simulation) -> Fate {
        let mut idle = 0;
        loop {
            self.steps += 1;
            self.now += self.plan.tick;
            self.set_clock();
            if self.healed_at.is_none() && self.steps >= self.plan.safety_steps {
                self.heal(&mut sim);
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
            if self.healed_at.is_none() && self.trouble(&mut sim) {
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
                return self.ended(&mut sim, outcome);
            }
            self.hear_of_savepoints(&mut sim);
            idle = if is_quiet { idle + 1 } else { 0 };
            if idle > 6 || std::mem::take(&mut self.rests) {
                idle = 0;
                if let Some(wrong) = self.wait(&mut sim) {
                    return Fate::Wrong(wrong);
                }
            }
        }
    }

    fn ended(&mut self, sim: &mut Simulation, outcome: tidegate::Result<()>) -> Fate {
        let state = sim.status_state();
        self.tell(|| format!("the job is over: {state:?} {outcome:?}"));
        if let Some(fate) = self.stopped(sim, outcome.is_ok()) {
            return fate;
        }
        let readers = self.world().readers;
        let no_source = outcome.is_ok() && self.seen.borrow().readers == Some(readers);
        self.met_if(no_source, Race::AllSourcesFinished);
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
}

fn name(attempt: Option<AttemptId>) -> String {
    attempt.map_or_else(String::new, |attempt| {
        format!("task {}/{}#{}", attempt.subtask.vertex.0, attempt.subtask.index, attempt.attempt.0)
    })
}
