//! Issue: three copies with add, update, remove, expire and reconnect in any order always converge.
//!
//! Nothing of a configuration can go on for ever: adds, removals, broken connections and passing time have a budget, and
//! what heals (delivering, noticing, connecting, sending again) ends once everybody has been told. That the exploration
//! ends shows that no two copies tell each other the same thing for ever.

use stateright::{Model, Property};
use tidegate::control::blocklist::item::BlocklistAction;

use super::cluster::{Cluster, LONG, SHORT};
use crate::explore::explore;

const MARK: BlocklistAction = BlocklistAction::MarkBlocklisted;
const EVACUATE: BlocklistAction = BlocklistAction::MarkAndEvacuate;

/// What a job master or a person may still do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Deed {
    /// Job master, action, end.
    AddAtJobMaster(usize, BlocklistAction, i64),
    AddAtResourceManager(BlocklistAction, i64),
    Remove,
    Break(usize),
    FailOver,
    /// Until the next end of an item.
    PassTime,
}

/// One configuration: what may happen, each once, in any order.
struct Convergence {
    deeds: Vec<Deed>,
    /// Whether both job masters are connected and have heard everything at the beginning.
    begins_connected: bool,
}

#[derive(Clone, Debug, PartialEq, Hash)]
struct State {
    cluster: Cluster,
    left: Vec<Deed>,
    broken: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    Do(usize),
    ToResourceManager(usize),
    ToJobMaster(usize),
    JobMasterNotices(usize),
    ResourceManagerNotices(usize),
    Connect(usize),
    TickResourceManager,
    TickJobMaster(usize),
    /// Nothing is under way, and a notice that was lost waits for its time.
    SendAgain,
}

impl State {
    fn is_quiet(&self) -> bool {
        let links = &self.cluster.links;
        links.iter().all(|link| {
            link.to_resource_manager.is_empty()
                && link.to_job_master.is_empty()
                && link.job_master_is_connected
                && link.resource_manager_is_connected
                && !link.is_broken
        }) && !self.cluster.waits_for_an_acknowledgement()
            && !self.is_anything_due()
    }

    fn is_anything_due(&self) -> bool {
        self.cluster.is_resource_manager_due()
            || (0..self.cluster.links.len()).any(|at| self.cluster.is_job_master_due(at))
    }
}

impl Model for Convergence {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut cluster = Cluster::new(2);
        if self.begins_connected {
            cluster.connect(0);
            cluster.connect(1);
        }
        vec![State { cluster, left: self.deeds.clone(), broken: None }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for (which, deed) in state.left.iter().enumerate() {
            let link = |at: usize| &state.cluster.links[at];
            let can = match *deed {
                Deed::Break(at) => !link(at).is_broken && link(at).job_master_is_connected,
                Deed::PassTime => state.cluster.next_deadline().is_some(),
                _ => true,
            };
            // Equal deeds are interchangeable.
            if can && !state.left[..which].contains(deed) {
                actions.push(Action::Do(which));
            }
        }
        for (at, link) in state.cluster.links.iter().enumerate() {
            if !link.to_resource_manager.is_empty() {
                actions.push(Action::ToResourceManager(at));
            }
            if !link.to_job_master.is_empty() {
                actions.push(Action::ToJobMaster(at));
            }
            if link.is_broken && link.job_master_is_connected {
                actions.push(Action::JobMasterNotices(at));
            }
            if link.is_broken && link.resource_manager_is_connected {
                actions.push(Action::ResourceManagerNotices(at));
            }
            if !link.job_master_is_connected {
                actions.push(Action::Connect(at));
            }
            if state.cluster.is_job_master_due(at) {
                actions.push(Action::TickJobMaster(at));
            }
        }
        if state.cluster.is_resource_manager_due() {
            actions.push(Action::TickResourceManager);
        }
        let under_way = |link: &super::cluster::Link| {
            !link.to_resource_manager.is_empty()
                || !link.to_job_master.is_empty()
                || !link.job_master_is_connected
                || link.is_broken
        };
        if !state.cluster.links.iter().any(under_way)
            && state.cluster.waits_for_an_acknowledgement()
            && !state.is_anything_due()
        {
            actions.push(Action::SendAgain);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let step = std::panic::AssertUnwindSafe(|| {
            let cluster = &mut state.cluster;
            match action {
                Action::Do(which) => match state.left.remove(which) {
                    Deed::AddAtJobMaster(at, action, end) => {
                        cluster.add_at_job_master(at, action, end);
                    }
                    Deed::AddAtResourceManager(action, end) => {
                        cluster.add_at_resource_manager(action, end);
                    }
                    Deed::Remove => cluster.remove(),
                    Deed::Break(at) => cluster.break_link(at),
                    Deed::FailOver => cluster.fail_over(),
                    Deed::PassTime => cluster.pass_time(),
                },
                Action::ToResourceManager(at) => cluster.deliver_to_resource_manager(at),
                Action::ToJobMaster(at) => cluster.deliver_to_job_master(at),
                Action::JobMasterNotices(at) => cluster.job_master_notices(at),
                Action::ResourceManagerNotices(at) => cluster.resource_manager_notices(at),
                Action::Connect(at) => cluster.connect(at),
                Action::TickResourceManager => cluster.tick_resource_manager(),
                Action::TickJobMaster(at) => cluster.tick_job_master(at),
                Action::SendAgain => cluster.pass_time(),
            }
        });
        if std::panic::catch_unwind(step).is_err() {
            state = last.clone();
            state.broken = Some(format!("{action:?}"));
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no handler breaks its own invariant", |_, state: &State| {
                state.broken.is_none()
            }),
            Property::always("copies agree once everybody has been told", |_, state: &State| {
                let copies = state.cluster.copies();
                !state.is_quiet() || copies.iter().all(|copy| *copy == copies[0])
            }),
            Property::always("what stops has come to rest", |model: &Self, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty() || state.is_quiet() || state.broken.is_some()
            }),
            Property::always("few messages do", |_, state: &State| state.cluster.sent <= 60),
            Property::sometimes("copies agree on something", |_, state: &State| {
                state.left.is_empty() && state.is_quiet() && !state.cluster.copies()[0].is_empty()
            }),
            Property::sometimes("copies differ", |_, state: &State| {
                let copies = state.cluster.copies();
                copies.iter().any(|copy| *copy != copies[0])
            }),
        ]
    }
}

/// All of `deeds` in any order; at least `at_least` states must differ, or the model has lost something.
fn explore_all(name: &str, begins_connected: bool, deeds: &[Deed], at_least: usize) {
    let unique = explore(name, Convergence { deeds: deeds.to_vec(), begins_connected });
    assert!(unique >= at_least, "{name}: only {unique} states");
}

#[test]
fn copies_converge_after_crossing_updates_and_a_removal() {
    let deeds = [
        Deed::AddAtJobMaster(0, MARK, LONG),
        Deed::AddAtJobMaster(1, EVACUATE, LONG),
        Deed::AddAtResourceManager(MARK, 2 * LONG),
        Deed::Remove,
    ];
    explore_all("crossing updates", true, &deeds, 10_000);
}

#[test]
fn copies_converge_after_lost_connections() {
    let deeds = [
        Deed::AddAtJobMaster(0, MARK, LONG),
        Deed::AddAtResourceManager(EVACUATE, LONG),
        Deed::Remove,
        Deed::Break(0),
    ];
    explore_all("lost connections", true, &deeds, 10_000);
}

#[test]
fn copies_converge_when_items_end_and_others_last() {
    let deeds = [
        Deed::AddAtJobMaster(0, EVACUATE, SHORT),
        Deed::AddAtJobMaster(1, MARK, LONG),
        Deed::Break(1),
        Deed::PassTime,
    ];
    explore_all("ends", true, &deeds, 250_000);
}

#[test]
fn copies_converge_when_a_removal_meets_an_end() {
    let deeds = [
        Deed::AddAtJobMaster(0, MARK, SHORT),
        Deed::AddAtResourceManager(MARK, LONG),
        Deed::Remove,
        Deed::PassTime,
    ];
    explore_all("removal and end", true, &deeds, 9_000);
}

#[test]
fn copies_converge_after_a_resource_manager_that_forgot_everything() {
    let deeds = [
        Deed::AddAtJobMaster(0, MARK, LONG),
        Deed::AddAtResourceManager(EVACUATE, LONG),
        Deed::Remove,
        Deed::FailOver,
    ];
    explore_all("forgetful resource manager", true, &deeds, 10_000);
}

#[test]
fn copies_converge_when_job_masters_come_late() {
    let deeds = [
        Deed::AddAtJobMaster(0, MARK, LONG),
        Deed::AddAtJobMaster(1, EVACUATE, LONG),
        Deed::AddAtResourceManager(MARK, LONG),
        Deed::Remove,
    ];
    explore_all("late job masters", false, &deeds, 30_000);
}
