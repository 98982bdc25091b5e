//! The small jobs, and how many states of each are visited at least: more than a million together.

use tidegate::control::checkpoint::topology::EdgeKind;
use tidegate::probe::Fault;

use super::node::Role;
use super::world::{Budget, Plan};
use crate::explore::{explore, violation};

/// A line of vertices, one record, nothing that goes wrong.
fn plan(vertices: &[(Role, u32)]) -> Plan {
    Plan {
        vertices: vertices.to_vec(),
        rescaled: None,
        edges: EdgeKind::AllToAll,
        splits: vec![1],
        has_slow_steps: false,
        has_drain_hold: true,
        max_concurrent: 1,
        budget: Budget::default(),
        fault: None,
    }
}

/// All states of `plan`; there are at least `at_least`, or the model has lost something.
fn explore_all(name: &str, plan: Plan, at_least: usize) {
    let unique = explore(name, plan);
    assert!(unique >= at_least, "{name}: only {unique} states");
}

#[test]
fn a_source_that_ends_while_a_checkpoint_is_triggered() {
    let plan = Plan {
        has_slow_steps: true,
        budget: Budget { requests: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 1), (Role::Commits, 1)])
    };
    explore_all("1 x 1, end during trigger", plan, 5_000);
}

#[test]
fn two_sources_of_which_either_ends_first() {
    let plan = Plan {
        splits: vec![1, 1],
        budget: Budget { requests: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 2), (Role::Commits, 1)])
    };
    explore_all("2 x 1, end of partition on either", plan, 200_000);
}

#[test]
fn producers_that_leave_before_their_end_is_read() {
    let plan = Plan {
        splits: vec![1, 1],
        has_drain_hold: false,
        budget: Budget { requests: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 2), (Role::Commits, 1)])
    };
    explore_all("2 x 1, without drain hold", plan, 100_000);
}

#[test]
fn two_commit_stages_at_the_end() {
    let plan = Plan {
        budget: Budget { requests: 1, io_faults: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 1), (Role::EmitsOnCommit, 1), (Role::Commits, 1)])
    };
    explore_all("two commit stages, a failing disk", plan, 450_000);
}

#[test]
fn a_task_that_crashes() {
    let plan = Plan {
        splits: vec![2],
        budget: Budget { requests: 1, crashes: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 1), (Role::Commits, 1)])
    };
    explore_all("1 x 1, a crash", plan, 20_000);
}

#[test]
fn a_coordinator_that_is_lost_and_another_parallelism_afterwards() {
    let plan = Plan {
        splits: vec![1, 1],
        rescaled: Some(vec![1, 2]),
        budget: Budget { requests: 1, losses: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 2), (Role::Commits, 1)])
    };
    explore_all("2 x 1, then 1 x 2", plan, 350_000);
}

#[test]
fn a_savepoint_that_stops_a_job_whose_data_ends() {
    let plan = Plan {
        splits: vec![2],
        budget: Budget { requests: 1, stops: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 1), (Role::Commits, 1)])
    };
    explore_all("1 x 1, stop with savepoint", plan, 70_000);
}

#[test]
fn two_checkpoints_at_once() {
    let plan = Plan {
        max_concurrent: 2,
        budget: Budget { requests: 2, ..Budget::default() },
        ..plan(&[(Role::Source, 1), (Role::Commits, 1)])
    };
    explore_all("1 x 1, two checkpoints at once", plan, 1_000);
}

#[test]
fn a_task_without_state_in_the_middle() {
    let plan = Plan {
        budget: Budget { requests: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 1), (Role::Pass, 1), (Role::Commits, 1)])
    };
    explore_all("1 x 1 x 1", plan, 10_000);
}

/// Each breaks one rule of the protocol in the machines; a model that does not find that would show nothing.
#[test]
fn broken_rules_are_found() {
    let two = Plan {
        splits: vec![1, 1],
        budget: Budget { requests: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 2), (Role::Commits, 1)])
    };
    let two_restarted =
        Plan { budget: Budget { requests: 1, crashes: 1, ..Budget::default() }, ..two.clone() };
    let restarted = Plan {
        budget: Budget { requests: 1, crashes: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 1), (Role::Commits, 1)])
    };
    let faults = [
        (Fault::PermitTooEarly, &two),
        (Fault::UncommittedIsFinished, &restarted),
        (Fault::OneBarrierEarly, &two_restarted),
    ];
    for (fault, plan) in faults {
        let found = violation(Plan { fault: Some(fault), ..plan.clone() });
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "{fault:?} is not found");
    }
}

#[test]
fn a_crash_of_two_sources_and_their_sink() {
    let plan = Plan {
        splits: vec![1, 1],
        budget: Budget { crashes: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 2), (Role::Commits, 1)])
    };
    explore_all("2 x 1, a crash", plan, 12_000);
}

#[test]
fn a_checkpoint_of_two_sources_that_is_given_up() {
    let plan = Plan {
        splits: vec![1, 1],
        budget: Budget { expiries: 1, ..Budget::default() },
        ..plan(&[(Role::Source, 2), (Role::Commits, 1)])
    };
    explore_all("2 x 1, an expired checkpoint", plan, 25_000);
}
