//! F08 and what others got wrong about blame: the strategies and the plug-in protocol.

use std::collections::BTreeMap;

use super::world::failure;
use super::*;
use crate::clock::Timestamp;
use crate::control::blocklist::health::{HealthOptions, HealthStrategy};
use crate::control::blocklist::pattern::{Pattern, PatternCompiler};
use crate::control::blocklist::plugin::{Plugin, PluginConfig, PluginInput, PluginOutput};
use crate::control::blocklist::rules::RulesStrategy;
use crate::control::blocklist::strategy::{
    BlocklistStrategy, ClusterView, FailureEvent, PoolView, ProgressEvent, RemovalReason,
};
use crate::control::identity::NodePool;
use crate::id::{Attempt, AttemptId, SubtaskId};

/// Alternatives of plain texts, so that these tests need no feature.
#[derive(Debug)]
struct Plain(Vec<String>);

impl Pattern for Plain {
    fn is_match(&self, text: &str) -> bool {
        self.0.iter().any(|part| text.contains(part))
    }
}

struct PlainCompiler;

impl PatternCompiler for PlainCompiler {
    fn compile(&self, source: &str) -> Result<Box<dyn Pattern>, String> {
        if source.contains('(') {
            return Err("an open parenthesis".into());
        }
        Ok(Box::new(Plain(source.split('|').map(str::to_owned).collect())))
    }
}

fn rules(pairs: &[(&str, &str)]) -> RulesStrategy {
    let options = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    RulesStrategy::parse(&options, &PlainCompiler).expect("the test's rules are right")
}

fn event(class: &str, places: &[(&str, &str)], second: u64, attempt: u32) -> FailureEvent {
    let places: Vec<_> = places.iter().map(|(tm, node)| location(tm, node)).collect();
    let mut event = failure(class, &places);
    event.now = at(second * 1000);
    event.attempt = Some(AttemptId { subtask: SubtaskId::new(0, 0), attempt: Attempt(attempt) });
    event.cluster = cluster(&[("default", 10)]);
    event
}

/// A cluster of pools with so many nodes each, one task manager on each.
fn cluster(pools: &[(&str, usize)]) -> ClusterView {
    let view = |&(name, nodes): &(&str, usize)| {
        let pool = NodePool::new(name).expect("short");
        (pool, PoolView { nodes, task_managers: nodes, ..PoolView::default() })
    };
    ClusterView::new(pools.iter().map(view).collect())
}

/// A failure on a node of pool `gpu`, which has `nodes` of 20 + `nodes`.
fn gpu_event(class: &str, n: &str, nodes: usize, attempt: u32) -> FailureEvent {
    let mut event = event(class, &[("tm", n)], 0, attempt);
    event.cluster = cluster(&[("default", 20), ("gpu", nodes)]);
    for location in &mut event.locations {
        location.pool = NodePool::new("gpu").expect("short");
    }
    event
}

fn keys(items: &[NewItem]) -> Vec<&str> {
    items.iter().map(|item| item.key.identifier()).collect()
}

#[test]
fn a_rule_blames_its_target_with_its_action_and_timeout() {
    let mut strategy = rules(&[
        ("rules", "disk"),
        ("rules.disk.match.class", "IoError"),
        ("rules.disk.target", "NODE"),
        ("rules.disk.action", "MARK_BLOCKLISTED_AND_EVACUATE_TASKS"),
        ("rules.disk.timeout", "30 min"),
    ]);
    let items = strategy.generate_blocklisted_items(&event("IoError", &[("tm1", "n1")], 1, 0));
    assert_eq!((items[0].key.clone(), items[0].action), (node("n1"), E));
    assert_eq!(items[0].end_timestamp, Some(EpochMillis(1000 + 1_800_000)));
    assert!(
        strategy.generate_blocklisted_items(&event("Other", &[("tm1", "n1")], 1, 1)).is_empty()
    );
}

#[test]
fn the_first_rule_that_matches_decides_and_none_explains_away() {
    let mut strategy = rules(&[
        ("rules", "user, any"),
        ("rules.user.match.labels.type", "USER"),
        ("rules.user.target", "NONE"),
        ("rules.any.target", "TASK_MANAGER"),
    ]);
    let mut user = event("IoError", &[("tm1", "n1")], 0, 0);
    user.cause = user.cause.with_label("type", "USER");
    assert!(strategy.generate_blocklisted_items(&user).is_empty());
    let other = event("IoError", &[("tm1", "n1")], 0, 0);
    assert_eq!(keys(&strategy.generate_blocklisted_items(&other)), ["tm1"]);
}

#[test]
fn a_threshold_counts_distinct_failures_within_its_window() {
    let mut strategy =
        rules(&[("rules", "r"), ("rules.r.threshold", "2"), ("rules.r.window", "10 s")]);
    let mut hit = |second, attempt| {
        let event = event("X", &[("tm1", "n1")], second, attempt);
        strategy.generate_blocklisted_items(&event).len()
    };
    assert_eq!([hit(0, 0), hit(1, 0), hit(20, 1), hit(29, 2)], [0, 0, 0, 1]);
}

#[test]
fn a_repeat_offender_is_blocked_longer_until_it_behaves() {
    let mut strategy = rules(&[
        ("rules", "r"),
        ("rules.r.timeout", "10 s"),
        ("rules.r.timeout-multiplier", "2"),
        ("rules.r.max-timeout", "30 s"),
        ("rules.r.probation", "100 s"),
    ]);
    let mut lasts = |second: u64, attempt| {
        let event = event("X", &[("tm1", "n1")], second, attempt);
        let items = strategy.generate_blocklisted_items(&event);
        items[0].end_timestamp.map(|end| end.0 / 1000 - second as i64)
    };
    let times = [lasts(0, 0), lasts(20, 1), lasts(50, 2), lasts(300, 3)];
    assert_eq!(times, [Some(10), Some(20), Some(30), Some(10)]);
}

#[test]
fn task_managers_of_one_node_make_the_node_the_target() {
    let mut strategy = rules(&[("rules", "r"), ("rules.r.target", "TASK_MANAGER_THEN_NODE(2)")]);
    let mut blamed = |tm: &str, attempt| {
        let items = strategy.generate_blocklisted_items(&event("X", &[(tm, "n1")], 0, attempt));
        items[0].key.clone()
    };
    assert_eq!([blamed("tm1", 0), blamed("tm2", 1)], [tm("tm1"), node("n1")]);
}

#[test]
fn wrong_rules_name_their_key() {
    for (key, value) in [
        ("rules.r.match.message", "("),
        ("rules.r.target", "MOON"),
        ("rules.r.target", "TASK_MANAGER_THEN_NODE(0)"),
        ("rules.r.action", "mark"),
        ("rules.r.threshold", "0"),
        ("rules.r.timout", "1 s"),
        ("rules.q.target", "NODE"),
        ("rules.r.timeout-multiplier", "0.5"),
    ] {
        let options: BTreeMap<String, String> =
            [("rules", "r"), (key, value)].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let error = RulesStrategy::parse(&options, &PlainCompiler).expect_err(key);
        assert!(error.key().ends_with(key), "{error}");
    }
}

#[cfg(feature = "rules")]
#[test]
fn rules_match_by_regular_expressions() {
    let options: BTreeMap<String, String> =
        [("rules", "disk"), ("rules.disk.match.message", "^No space|it f.iled$")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
    let registry = crate::control::blocklist::registry::StrategyRegistry::builtin();
    let mut made = registry.create(&["rules".into()], &options).expect("it is right");
    let event = event("X", &[("tm1", "n1")], 0, 0);
    assert_eq!(keys(&made[0].generate_blocklisted_items(&event)), ["tm1"]);
    let bad = [("rules", "d"), ("rules.d.match.class", "(")].map(|(k, v)| (k.into(), v.into()));
    assert!(registry.create(&["rules".into()], &bad.into()).is_err());
}

fn health() -> HealthStrategy {
    HealthStrategy::new(HealthOptions::default())
}

#[test]
fn health_blames_the_node_that_stands_out() {
    let mut strategy = health();
    let mut fail = |n: &str, attempt| {
        strategy.generate_blocklisted_items(&event("IoError", &[("tm", n)], 0, attempt)).len()
    };
    assert_eq!([fail("n1", 0), fail("n2", 1), fail("n1", 2)], [0, 0, 1]);
}

#[test]
fn f08_a_cause_seen_on_much_of_the_fleet_blames_nobody() {
    let mut strategy = health();
    for n in ["n1", "n2", "n3"] {
        strategy.generate_blocklisted_items(&event("Bug", &[("tm", n)], 0, 0));
    }
    for attempt in 1..20 {
        let items = strategy.generate_blocklisted_items(&event("Bug", &[("tm", "n1")], 1, attempt));
        assert!(items.is_empty(), "attempt {attempt}");
    }
}

#[test]
fn b19_one_poisoned_task_can_not_quarantine_the_fleet() {
    let mut strategy = health();
    let mut blocked = 0;
    for attempt in 0..30 {
        let n = format!("n{}", attempt % 10);
        let event = event("Poison", &[("tm", &n)], u64::from(attempt), attempt);
        blocked += strategy.generate_blocklisted_items(&event).len();
    }
    assert_eq!(blocked, 0, "what fails everywhere is not the machine");
}

#[test]
fn b21_what_fails_on_much_of_a_pool_is_not_the_machine() {
    let mut strategy = health();
    for n in ["gpu1", "gpu2", "gpu3"] {
        strategy.generate_blocklisted_items(&gpu_event("Driver", n, 5, 0));
    }
    for attempt in 1..20 {
        let items = strategy.generate_blocklisted_items(&gpu_event("Driver", "gpu1", 5, attempt));
        assert!(items.is_empty(), "it was seen on 3 of 5, though on 3 of 25");
    }
}

#[test]
fn b21_a_node_must_stand_out_from_its_own_pool() {
    let options = HealthOptions { min_failures: 4, ..HealthOptions::default() };
    let mut strategy = HealthStrategy::new(options);
    let mut attempt = 0;
    let mut fail = |n: &str| {
        attempt += 1;
        // Causes of many classes, so that none is common.
        let event = gpu_event(&format!("Cause{attempt}"), n, 3, attempt);
        strategy.generate_blocklisted_items(&event).len()
    };
    let before = ["gpu1", "gpu2", "gpu1", "gpu2", "gpu1", "gpu2", "gpu3"].map(&mut fail);
    assert_eq!(before, [0; 7]);
    assert_eq!(fail("gpu1"), 0, "4 failures are many in the fleet, but not beside 3 and 1");
    assert_eq!(fail("gpu1"), 1);
}

#[test]
fn b05_of_two_ends_the_one_that_fails_with_different_peers_is_blamed() {
    let mut strategy = health();
    let mut fail = |a: &str, b: &str, attempt| {
        let event = event(&format!("Net{attempt}"), &[("x", a), ("y", b)], 0, attempt);
        keys(&strategy.generate_blocklisted_items(&event)).join(",")
    };
    let blamed = [fail("n1", "n2", 0), fail("n1", "n2", 1), fail("n1", "n3", 2)];
    assert_eq!(blamed, ["", "", "n1"]);
}

#[test]
fn after_a_block_one_failure_on_probation_blocks_for_twice_as_long() {
    let mut strategy = health();
    for attempt in 0..2 {
        strategy.generate_blocklisted_items(&event("A", &[("tm", "n1")], 0, attempt));
    }
    strategy.on_item_removed(at(600_000), &node("n1"), RemovalReason::Expired);
    let probation: Vec<_> = strategy.on_probation(Timestamp::from_millis(700_000)).collect();
    assert_eq!(probation.len(), 1);
    let items = strategy.generate_blocklisted_items(&event("B", &[("tm", "n1")], 700, 2));
    assert_eq!(items[0].end_timestamp, Some(EpochMillis(700_000 + 1_200_000)));
    strategy.on_item_removed(at(800_000), &node("n1"), RemovalReason::Removed);
    let items = strategy.generate_blocklisted_items(&event("C", &[("tm", "n1")], 900, 3));
    assert!(items.is_empty(), "who was pardoned by hand starts over");
}

#[test]
fn success_speaks_for_a_node() {
    let mut strategy = health();
    strategy.generate_blocklisted_items(&event("A", &[("tm", "n1")], 0, 0));
    let locations = vec![location("tm", "n1")];
    for _ in 0..100 {
        let progress = ProgressEvent { now: at(0), job: JobId(1), locations: locations.clone() };
        strategy.on_success(&progress);
    }
    let items = strategy.generate_blocklisted_items(&event("B", &[("tm", "n1")], 1, 1));
    assert!(items.is_empty());
}

fn plugin_step(plugin: &mut Plugin, millis: u64, input: PluginInput) -> Vec<PluginOutput> {
    let mut out = Vec::new();
    plugin.handle(Timestamp::from_millis(millis), input, &mut out);
    out
}

fn ask() -> PluginInput {
    PluginInput::Failure(Box::new(failure("X", &[])))
}

#[test]
fn a_plugin_is_started_asked_and_believed() {
    let mut plugin = Plugin::new(PluginConfig::default());
    assert!(matches!(plugin_step(&mut plugin, 0, ask())[..], [PluginOutput::Start]));
    let out = plugin_step(&mut plugin, 1, PluginInput::Started);
    assert!(matches!(out[..], [PluginOutput::Ask { id: 1, .. }]), "{out:?}");
    assert!(plugin_step(&mut plugin, 2, ask()).is_empty(), "one at a time");
    let items = vec![wish(node("n1"), M, 10)];
    let out = plugin_step(&mut plugin, 3, PluginInput::Answer { id: 1, items });
    assert!(
        matches!(out[..], [PluginOutput::Items(_), PluginOutput::Ask { id: 2, .. }]),
        "{out:?}"
    );
}

#[test]
fn a_plugin_that_is_late_or_dies_or_talks_nonsense_is_left_alone_for_a_while() {
    let mut plugin = Plugin::new(PluginConfig::default());
    plugin_step(&mut plugin, 0, ask());
    plugin_step(&mut plugin, 0, PluginInput::Started);
    let out = plugin_step(&mut plugin, 1000, PluginInput::Tick);
    assert!(matches!(out[..2], [PluginOutput::Kill, PluginOutput::Mistake(_)]), "{out:?}");
    plugin_step(&mut plugin, 1100, ask());
    plugin_step(&mut plugin, 1100, PluginInput::Started);
    plugin_step(&mut plugin, 1200, PluginInput::Exited);
    plugin_step(&mut plugin, 1400, ask());
    plugin_step(&mut plugin, 1400, PluginInput::Started);
    plugin_step(&mut plugin, 1500, PluginInput::Garbage("not JSON".into()));
    assert!(plugin.is_open());
    plugin_step(&mut plugin, 2000, ask());
    assert_eq!(plugin.dropped(), 1);
    let reopened = plugin.deadline().expect("it is tried again");
    assert_eq!(reopened, Timestamp::from_millis(61_500));
    plugin_step(&mut plugin, 61_500, PluginInput::Tick);
    plugin_step(&mut plugin, 61_500, ask());
    plugin_step(&mut plugin, 61_600, PluginInput::Exited);
    assert!(plugin.is_open(), "one mistake is enough now");
}

#[test]
fn a_plugin_that_is_flooded_keeps_its_bound() {
    let mut plugin = Plugin::new(PluginConfig::default());
    for _ in 0..1000 {
        plugin_step(&mut plugin, 0, ask());
    }
    assert_eq!(plugin.dropped(), 1000 - 64);
}
