//! What goes wrong in a schedule: failures, crashes, and that all heals in the end.

use std::path::Path;
use std::sync::atomic::Ordering;

use tidegate::id::CheckpointId;
use tidegate::runtime::simulation::Simulation;
use tidegate::state::memory::{Fault, Survivors};
use tidegate::{JobState, SavepointStop};

use super::beginning::SAVEPOINTS;
use super::{Fate, Schedule, lock};
use crate::simulation::plan::Ending;
use crate::simulation::reach::Race;

/// So often a stop with a savepoint is asked for at the most.
const STOPS_MAX: u64 = 20;

impl Schedule {
    /// From here on nothing fails.
    pub(super) fn heal(&mut self, sim: &mut Simulation) {
        self.tell(|| "all is healed".to_owned());
        self.healed_at = Some(self.steps);
        self.store.heal();
        self.fail_in.store(0, Ordering::Relaxed);
        let mut world = lock(&self.world);
        world.prepare_faults = 0;
        world.commit_faults = 0;
        drop(world);
        // Whoever waits for a savepoint doesn't ask for another one.
        let waits = self.is_stopping && self.plan.ending != Ending::Stopped;
        if self.plan.ending != Ending::Exhausted && !self.has_stopped && !waits {
            self.stop(sim);
        }
    }

    pub(super) fn stop(&mut self, sim: &mut Simulation) {
        self.tell(|| "asked to stop".to_owned());
        self.is_stopping = true;
        self.stops += 1;
        let is_pending = !self.seen.borrow().pending.is_empty();
        self.met_if(is_pending, Race::StopWhilePending);
        if let Ending::Savepoint { drain } = self.plan.ending {
            self.is_drained = drain;
            sim.request_stop_with_savepoint(Path::new(SAVEPOINTS), drain);
        } else {
            sim.request_stop();
        }
    }

    /// What came of savepoints that were asked for.
    pub(super) fn hear_of_savepoints(&mut self, sim: &mut Simulation) {
        if self.plan.savepoints > 0 {
            for outcome in sim.take_savepoints() {
                match outcome {
                    Ok(folder) => {
                        self.met(Race::Savepoint);
                        self.savepoints.push(folder);
                    }
                    Err(_) => self.met(Race::SavepointFails),
                }
            }
        }
        if self.is_stopping
            && let Ending::Savepoint { .. } = self.plan.ending
            && let Some(outcome) = sim.take_stop()
        {
            self.tell(|| format!("the stop: {outcome:?}"));
            self.stop_outcome = Some(outcome);
            let is_over = matches!(
                &self.stop_outcome,
                Some(Ok(SavepointStop::Stopped { .. } | SavepointStop::SideEffectsPending { .. }))
            );
            if !is_over {
                self.stop_outcome = None;
                self.is_drained = false;
                self.is_stopping = false;
                self.met(Race::StopFails);
            }
        }
        // What could not be stopped while it was restarting is asked again.
        if self.healed_at.is_some()
            && !self.is_stopping
            && !self.has_stopped
            && self.stops < STOPS_MAX
            && let Ending::Savepoint { .. } = self.plan.ending
            && sim.status_state() == JobState::Running
        {
            self.stop(sim);
        }
    }

    /// What a job that is over, and was stopped with a savepoint, leaves to do. Without a mark that it has ended it is gone on with
    /// from the savepoint.
    pub(super) fn stopped(&mut self, sim: &mut Simulation, is_marked: bool) -> Option<Fate> {
        self.hear_of_savepoints(sim);
        let (folder, is_pending) = match self.stop_outcome.take()? {
            Ok(SavepointStop::Stopped { savepoint }) => (savepoint, false),
            Ok(SavepointStop::SideEffectsPending { savepoint }) => (savepoint, true),
            Ok(_) | Err(_) => return None,
        };
        let drained = std::mem::take(&mut self.is_drained);
        self.has_stopped = true;
        self.met_if(drained && !is_pending, Race::Drained);
        self.met_if(!drained && !is_pending, Race::StoppedWithSavepoint);
        if drained {
            self.world().end_here();
        } else {
            let more = self.dice.below(8);
            self.world().end_all(more);
        }
        if drained && !is_pending && is_marked {
            return Some(Fate::Ended);
        }
        self.go_from(&folder);
        Some(Fate::Gone)
    }

    /// Lets something fail. Whether the process dies at once.
    pub(super) fn trouble(&mut self, sim: &mut Simulation) -> bool {
        let unkindness = self.plan.unkindness;
        let may_stop = match self.plan.ending {
            Ending::Exhausted => false,
            Ending::Stopped => true,
            Ending::Savepoint { .. } => !self.has_stopped && self.stops < STOPS_MAX,
        };
        if may_stop && !self.is_stopping && self.process > 0 && self.dice.chance(1, 400) {
            self.stop(sim);
        }
        if self.dice.chance(1, 300) && self.plan.config.checkpoint.interval.is_none() {
            sim.request_checkpoint();
        }
        if self.plan.savepoints > 0
            && !self.is_stopping
            && self.dice.chance(self.plan.savepoints, 10_000)
        {
            self.tell(|| "asked for a savepoint".to_owned());
            sim.request_savepoint(Path::new(SAVEPOINTS));
        }
        if self.troubles >= unkindness.most {
            return false;
        }
        let mut roll = self.dice.below(10_000);
        let mut is = |chance: u64| {
            let hits = roll < chance;
            roll = if hits { u64::MAX } else { roll.saturating_sub(chance) };
            hits
        };
        if is(unkindness.crash) {
            self.troubles += 1;
            return true;
        }
        if is(unkindness.disk) {
            self.troubles += 1;
            self.crashes += 1;
            self.faults += 1;
            let fault = self.dice.pick(&[Fault::NoSpace, Fault::Broken, Fault::Torn]);
            let at = self.store.operations() + self.dice.below(24);
            for more in 0..self.dice.within(1, 3) {
                self.store.fail_at(at + more, fault);
            }
            self.tell(|| format!("{fault:?} at disk operation {at}"));
        } else if is(unkindness.disk_crash) {
            self.troubles += 1;
            self.faults += 1;
            let at = self.store.operations() + self.dice.below(24);
            self.store.fail_at(at, Fault::Crash);
            self.tell(|| format!("the process will die at disk operation {at}"));
        } else if is(unkindness.user) {
            self.troubles += 1;
            self.failures += 1;
            self.fail_in.store(self.dice.within(1, 30), Ordering::Relaxed);
        } else if is(unkindness.sink) {
            self.troubles += 1;
            self.failures += 1;
            let is_commit = self.dice.chance(1, 2);
            self.met(if is_commit { Race::CommitCut } else { Race::PrepareFails });
            let mut world = self.world();
            if is_commit {
                world.commit_faults += 1;
            } else {
                world.prepare_faults += 1;
            }
        }
        false
    }

    /// The process dies; the next one finds what is left on the disk.
    pub(super) fn crash(&mut self, sim: Option<&Simulation>) {
        self.crashes += 1;
        let survivors =
            self.dice.pick(&[Survivors::Everything, Survivors::Durable, Survivors::Torn]);
        self.tell(|| format!("the process dies; {survivors:?} stays"));
        self.met_if(survivors == Survivors::Durable, Race::CrashLosesUnsynced);
        self.met_if(survivors == Survivors::Torn, Race::CrashTears);
        if let Some(sim) = sim {
            let status = sim.status();
            self.met_if(status.state == JobState::Restarting, Race::CrashWhileRestarting);
            self.met_if(sim.requests() > 0, Race::CrashWhileWriting);
            let last = self.last_manifest();
            let told = status.checkpoints.last().map(|stats| stats.id);
            self.met_if(last > told && last.is_some(), Race::CrashBeforeTold);
            let has_mail = (0..sim.workers()).any(|worker| sim.mail(worker) > 0);
            self.met_if(has_mail && told.is_some() && last == told, Race::CrashBeforeNotice);
        }
        self.store = self.store.after_crash(survivors);
        self.faults = 0;
        self.fail_in.store(0, Ordering::Relaxed);
        self.seen.borrow_mut().crashed();
        self.frozen = None;
        self.idle_tasks.clear();
        self.stop_outcome = None;
    }

    /// The latest checkpoint whose manifest is in place.
    pub(super) fn last_manifest(&self) -> Option<CheckpointId> {
        let names = self.store.names();
        let ids = names.iter().filter_map(|name| {
            let id = name.as_str().strip_prefix("chk-")?.strip_suffix("/MANIFEST")?;
            id.parse().ok().map(CheckpointId)
        });
        ids.max()
    }
}
