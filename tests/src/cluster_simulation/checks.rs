//! What must hold at the end, when the trouble is long over.

use std::collections::{BTreeMap, BTreeSet};

use tidegate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use tidegate::control::blocklist::item::BlocklistedItem;
use tidegate::control::execution::ExecutionState;
use tidegate::control::identity::{AllocationId, JobId, ResourceId};
use tidegate::control::restart::RestartConfig;

use super::cluster::Cluster;
use super::job::{Job, Outcome};
use super::net::Net;
use super::reach::Race;
use super::task_manager::{TaskManager, job_id};

/// Checks everything.
pub fn check(net: &mut Net, jobs: &[Job], cluster: &Cluster, task_managers: &[TaskManager]) {
    let Some(manager) = &cluster.manager else {
        return net.violate(|| "there is no resource manager".into());
    };
    let items = manager.blocklist().get_all_items();
    for item in &items {
        if cluster.removed.get(&item.key).is_some_and(|removed| item.version <= *removed) {
            net.violate(|| format!("{} was removed, and is there again", item.key));
        }
    }
    for job in jobs {
        match &job.outcome {
            None => {
                check_copy(net, job, &items);
                check_running(net, job, task_managers);
                let free = manager.overview().free_slots as usize;
                check_evacuated(net, job, free);
            }
            Some(outcome) => check_outcome(net, job, outcome),
        }
    }
    let alive: Vec<_> = task_managers.iter().filter(|tm| tm.is_alive).collect();
    for tm in &alive {
        check_attempts(net, jobs, tm);
        check_slots(net, jobs, tm);
    }
    let known: BTreeSet<_> = manager.task_managers().keys().collect();
    let there: BTreeSet<_> = alive.iter().map(|tm| tm.id()).collect();
    if known != there {
        net.violate(|| format!("the resource manager knows {known:?}; there are {there:?}"));
    }
    let free = alive.iter().flat_map(|tm| tm.slots.report()).filter(|s| s.holder.is_none()).count();
    let overview = manager.overview();
    if overview.free_slots + overview.blocked_free_slots != free as u32 {
        net.violate(|| format!("{free} slots are free, but the overview is {overview:?}"));
    }
}

fn check_copy(net: &mut Net, job: &Job, items: &[BlocklistedItem]) {
    let copy = job.master.blocklist().get_all_items();
    if copy != items {
        let brief = |items: &[BlocklistedItem]| -> Vec<String> {
            let one = |i: &BlocklistedItem| {
                format!("{} {:?} to {} {:?}", i.key, i.action, i.end(), i.version)
            };
            items.iter().map(one).collect()
        };
        let (mine, theirs) = (brief(&copy), brief(items));
        net.violate(|| format!("job {} holds {mine:?}, the cluster {theirs:?}", job.index));
    }
}

fn check_running(net: &mut Net, job: &Job, task_managers: &[TaskManager]) {
    let mut runs = false;
    for (subtask, execution) in job.master.executions().iter() {
        match &execution.state {
            ExecutionState::Finished => {}
            ExecutionState::Running(place) => {
                runs = true;
                let id = job.master.executions().id(subtask);
                let there = |tm: &TaskManager| {
                    *tm.id() == place.task_manager
                        && tm.running.get(&(job.index, id)).is_some_and(|r| r.slot == place.slot)
                };
                if !task_managers.iter().any(there) {
                    net.violate(|| format!("job {} believes {id:?} to run", job.index));
                }
            }
            state => {
                net.violate(|| format!("job {}: {subtask:?} is {state:?} at the end", job.index));
            }
        }
    }
    if runs {
        net.meet(Race::AllRunning);
    }
}

/// Nobody stays on what is to be left if there is room.
fn check_evacuated(net: &mut Net, job: &Job, free: usize) {
    let mut stay = BTreeSet::new();
    for (_, execution) in job.master.executions().iter() {
        if let ExecutionState::Running(place) = &execution.state
            && job.is_to_leave(&place.task_manager)
        {
            stay.insert(place.slot);
        }
    }
    if !stay.is_empty() && free >= stay.len() {
        net.violate(|| format!("job {} stays in {stay:?} though {free} are free", job.index));
    }
}

fn check_outcome(net: &mut Net, job: &Job, outcome: &Outcome) {
    let Outcome::Failed(cause) = outcome else { return };
    let never_gives_up = match &job.plan.restart {
        RestartConfig::FixedDelay { attempts, .. } => *attempts > 1000,
        RestartConfig::ExponentialDelay { .. } => true,
        RestartConfig::None | RestartConfig::FailureRate { .. } => false,
    };
    if never_gives_up && cause.class() != "NoResourceAvailable" {
        net.violate(|| format!("job {} gives up: {cause:?}", job.index));
    }
}

/// A job that says that there are no resources must be right, long after the trouble.
pub fn check_no_resources(net: &mut Net, job: &Job, cluster: &Cluster) {
    let (Some(Outcome::Failed(cause)), Some(manager)) = (&job.outcome, &cluster.manager) else {
        return;
    };
    let free = manager.overview().free_slots;
    if cause.class() == "NoResourceAvailable" && free > 0 {
        net.violate(|| format!("job {} finds no slot though {free} are free", job.index));
    }
}

/// No attempt runs that its job master doesn't believe in.
fn check_attempts(net: &mut Net, jobs: &[Job], tm: &TaskManager) {
    for ((job, attempt), running) in &tm.running {
        let master = &jobs[*job].master;
        let state = master.executions().current(*attempt).map(|execution| &execution.state);
        let is_believed = match state {
            Some(ExecutionState::Running(place)) => {
                place.task_manager == *tm.id() && place.slot == running.slot
            }
            _ => false,
        };
        if !is_believed || jobs[*job].outcome.is_some() {
            net.violate(|| format!("{attempt:?} of job {job} runs on {}: {state:?}", tm.id()));
        }
    }
}

/// Both sides agree on who holds which slot, and none that is free is blocked.
fn check_slots(net: &mut Net, jobs: &[Job], tm: &TaskManager) {
    let mut held: BTreeMap<JobId, BTreeSet<AllocationId>> = BTreeMap::new();
    for (job, allocation) in tm.slots.report().into_iter().filter_map(|status| status.holder) {
        held.entry(job).or_default().insert(allocation);
    }
    for job in jobs {
        let theirs = held.remove(&job_id(job.index)).unwrap_or_default();
        let is_here = |id: &ResourceId| id == tm.id();
        let mine: BTreeSet<_> = match job.outcome {
            Some(_) => BTreeSet::new(),
            None => {
                let pool = job.master.pool().slots();
                pool.filter(|slot| is_here(&slot.task_manager))
                    .map(|slot| slot.allocation)
                    .collect()
            }
        };
        if mine != theirs {
            net.violate(|| {
                format!("job {} holds {mine:?} of {}, which keeps {theirs:?}", job.index, tm.id())
            });
        }
        let is_blocked = job.master.blocklist().is_blocklisted_task_manager(tm.id());
        let is_both = |id: &ResourceId| is_blocked && is_here(id);
        if job.master.pool().free_slots().any(|slot| is_both(&slot.task_manager)) {
            net.violate(|| {
                format!("job {} has free slots on {}, which is blocked", job.index, tm.id())
            });
        }
    }
}
