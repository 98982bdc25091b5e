//! Explores one configuration to its end.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

/// Visits every state that can be reached, and says how many; returns how many differ.
///
/// # Panics
/// If a property does not hold, or something that should be possible is not.
pub(crate) fn explore<M>(name: &str, model: M) -> usize
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let begin = Instant::now();
    let (unique, all, depth) = visit(model);
    let took = begin.elapsed().as_secs_f32();
    println!("{name}: {unique} unique states of {all}, {depth} steps at most, {took:.1} s");
    unique
}

/// As [`explore`], without a word.
pub(crate) fn count<M>(model: M) -> usize
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    visit(model).0
}

/// The first property found that does not hold, if there is one.
pub(crate) fn violation<M>(model: M) -> Option<&'static str>
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let is_failure =
        |name: &&str| checker.discovery_classification(name).to_string() == "counterexample";
    checker.discoveries().into_keys().find(|name| is_failure(name))
}

/// Unique states, transitions, longest path. Depth first, since the states still to be visited are then few; each
/// configuration ends, so all are visited.
fn visit<M>(model: M) -> (usize, usize, usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    for (property, path) in checker.discoveries() {
        if checker.discovery_classification(property).to_string() == "counterexample" {
            let end = format!("{:?}", path.last_state());
            let steps: Vec<_> = path.into_actions().iter().map(|it| format!("{it:?}")).collect();
            panic!("'{property}' does not hold after\n{}\n{end}", steps.join("\n"));
        }
    }
    checker.assert_properties();
    (checker.unique_state_count(), checker.state_count(), checker.max_depth())
}
