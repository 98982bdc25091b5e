//! What goes wrong in a schedule: failures, crashes, and that all heals in the end.

use std::sync::atomic::Ordering;

use tidegate::JobState;
use tidegate::id::CheckpointId;
use tidegate::runtime::simulation::Simulation;
use tidegate::state::memory::{Fault, Survivors};

use super::{Schedule, lock};
use crate::simulation::plan::Ending;
use crate::simulation::reach::Race;

impl Schedule {
    /// From here on nothing fails.
    pub(super) fn heal(&mut self, sim: &Simulation) {
        self.tell(|| "all is healed".to_owned());
        self.healed_at = Some(self.steps);
        self.store.heal();
        self.fail_in.store(0, Ordering::Relaxed);
        let mut world = lock(&self.world);
        world.prepare_faults = 0;
        world.commit_faults = 0;
        drop(world);
        if self.plan.ending == Ending::Stopped && !self.has_stopped {
            self.stop(sim);
        }
    }

    pub(super) fn stop(&mut self, sim: &Simulation) {
        self.tell(|| "asked to stop".to_owned());
        self.is_stopping = true;
        let is_pending = !self.seen.borrow().pending.is_empty();
        self.met_if(is_pending, Race::StopWhilePending);
        sim.request_stop();
    }

    /// Lets something fail. Whether the process dies at once.
    pub(super) fn trouble(&mut self, sim: &Simulation) -> bool {
        let unkindness = self.plan.unkindness;
        if self.plan.ending == Ending::Stopped
            && !self.is_stopping
            && self.process > 0
            && self.dice.chance(1, 400)
        {
            self.stop(sim);
        }
        if self.dice.chance(1, 300) && self.plan.config.checkpoint.interval.is_none() {
            sim.request_checkpoint();
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
