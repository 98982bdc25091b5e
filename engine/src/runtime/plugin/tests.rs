//! Programs that behave and programs that don't. The strategy's clock is the test's; only the program's own doing is waited for.

use std::time::{Duration, Instant};

use super::*;
use crate::clock::EpochMillis;
use crate::control::blocklist::item::{BlocklistAction, ItemKey, ItemType};
use crate::control::blocklist::strategy::{ClusterView, PoolView};
use crate::control::identity::{NodeId, NodePool, ResourceId, TaskManagerLocation};

fn at(millis: u64) -> Moment {
    Moment::new(Timestamp::from_millis(millis), EpochMillis(1_000_000 + millis as i64))
}

fn failure(millis: u64, message: &str) -> FailureEvent {
    let id = ResourceId::new("tm1").expect("short");
    let location = TaskManagerLocation::new(id, NodeId::new("n1").ok(), "10.0.0.1", 7);
    let pool = PoolView { nodes: 3, task_managers: 6, blocklisted_nodes: 1, ..PoolView::default() };
    FailureEvent {
        now: at(millis),
        job: JobId(7),
        attempt: None,
        locations: vec![location.expect("short")],
        cause: Cause::new("IoError", message).with_label("type", "SYSTEM"),
        chain: vec![Cause::new("Root", "\"quoted\"\nand broken")],
        cluster: ClusterView::new(BTreeMap::from([(NodePool::default(), pool)])),
    }
}

fn shell(script: &str) -> PluginStrategy {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    PluginStrategy::new(command, PluginConfig::default())
}

/// Waits for what another process does.
#[expect(clippy::disallowed_methods, reason = "a program is waited for, with a deadline")]
fn wait<T>(mut done: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(result) = done() {
            return result;
        }
        assert!(Instant::now() < deadline, "nothing came of it");
        std::thread::yield_now();
    }
}

/// Lets the program run until something comes of it; the strategy's own clock stands at `millis`.
fn until<T>(
    plugin: &mut PluginStrategy,
    millis: u64,
    mut done: impl FnMut(&mut PluginStrategy, Vec<NewItem>) -> Option<T>,
) -> T {
    wait(|| {
        let items = plugin.tick(at(millis));
        done(plugin, items)
    })
}

fn problem(plugin: &mut PluginStrategy, millis: u64) -> String {
    until(plugin, millis, |plugin, _| plugin.take_problems().into_iter().next())
}

fn items(plugin: &mut PluginStrategy, millis: u64) -> Vec<NewItem> {
    until(plugin, millis, |_, items| (!items.is_empty()).then_some(items))
}

const ANSWER: &str = r#"read line; echo '{"id":1,"items":[{"node":"n1","timeoutMs":5000,"cause":"why"}]}'; cat >/dev/null"#;

#[test]
fn a_program_is_told_of_node_pools() {
    let mut failure = failure(0, "disk full");
    let gpu = NodePool::new("gpu").expect("short");
    let view = PoolView { nodes: 2, task_managers: 2, blocklisted_nodes: 2, ..PoolView::default() };
    failure.locations[0].pool = gpu.clone();
    failure.cluster.pools.insert(gpu, view);
    failure.cluster = ClusterView::new(failure.cluster.pools);
    let line: serde_json::Value = serde_json::from_str(&wire::request(1, &failure)).expect("JSON");
    assert_eq!(line["locations"][0]["pool"], "gpu");
    let told = |nodes: usize, task_managers: usize, blocklisted: usize| {
        serde_json::json!({
            "nodes": nodes, "taskManagers": task_managers, "blocklistedNodes": blocklisted,
        })
    };
    let mut all = told(5, 8, 3);
    all["pools"] = serde_json::json!({ "default": told(3, 6, 1), "gpu": told(2, 2, 2) });
    assert_eq!(line["cluster"], all);
}

#[test]
fn a_program_is_asked_and_its_items_are_taken() {
    let mut plugin = shell(ANSWER);
    assert!(plugin.generate_blocklisted_items(&failure(10, "disk")).is_empty(), "not at once");
    assert!(plugin.deadline() <= Some(Timestamp::from_millis(30)), "it is looked at soon");
    let items = items(&mut plugin, 20);
    let [item] = &items[..] else { panic!("one item: {items:?}") };
    assert_eq!(item.key, ItemKey::new(ItemType::Node, "n1").expect("short"));
    assert_eq!(item.action, BlocklistAction::MarkBlocklisted);
    assert_eq!(item.end_timestamp, Some(EpochMillis(1_000_000 + 20 + 5000)));
    assert_eq!(item.cause.message(), "why");
    assert!(
        matches!(&item.origin, Origin::Strategy { job: JobId(7), rule } if rule == "plugin:sh")
    );
    assert_eq!(plugin.deadline(), None, "nothing is expected of it");
}

#[test]
fn a_program_that_sleeps_is_killed_at_the_deadline() {
    let mut plugin = shell("sleep 1000");
    plugin.generate_blocklisted_items(&failure(0, "disk"));
    until(&mut plugin, 1, |plugin, _| plugin.asked.is_some().then_some(()));
    assert!(plugin.tick(at(900)).is_empty() && plugin.take_problems().is_empty());
    assert!(plugin.tick(at(1001)).is_empty());
    assert!(plugin.child.is_none(), "it is killed");
    assert_eq!(plugin.take_problems(), ["plugin:sh: no answer in time"]);
}

#[test]
fn a_program_that_dies_is_counted_and_started_again_and_left_alone_after_three_times() {
    let mut plugin = shell("read line; exit 3");
    let mut millis = 0;
    for _ in 0..3 {
        assert!(!plugin.is_open());
        plugin.generate_blocklisted_items(&failure(millis, "disk"));
        assert_eq!(problem(&mut plugin, millis), "plugin:sh: its process ended");
        millis += 500;
        plugin.tick(at(millis));
    }
    assert!(plugin.is_open());
    plugin.generate_blocklisted_items(&failure(millis, "disk"));
    assert_eq!(plugin.dropped(), 1);
}

#[test]
fn a_program_that_talks_nonsense_is_killed() {
    for (script, expected) in [
        ("read line; echo nonsense; sleep 1000", "no JSON"),
        (r#"read line; echo '{"id":1}'; sleep 1000"#, "'items' is not a list"),
        (r#"read line; echo '{"id":1,"items":[],"x":1}'; sleep 1000"#, "unknown field 'x'"),
        (r#"read line; echo '{"id":1,"items":[{"node":"a b"}]}'; sleep 1000"#, "white space"),
        (
            r#"read line; echo '{"id":1,"items":[{"node":"a","action":"x"}]}'; sleep 1000"#,
            "neither",
        ),
        (r#"read line; echo '{"id":9,"items":[]}'; sleep 1000"#, "which was not asked"),
        (r"read line; printf '\377\376\n'; sleep 1000", "no JSON"),
        ("read line; printf unfinished", "it ended within a line"),
        ("read line; head -c 2000000 /dev/zero; sleep 1000", "more than 1048576 bytes"),
        ("read line; yes '[' | head -c 500000 | tr -d '\\n'; echo; sleep 1000", "no JSON"),
    ] {
        let mut plugin = shell(script);
        plugin.generate_blocklisted_items(&failure(0, "disk"));
        let problem = problem(&mut plugin, 1);
        assert!(problem.contains(expected), "{script}: {problem}");
        assert!(plugin.child.is_none(), "{script}");
    }
}

#[test]
fn a_program_that_floods_is_killed_and_adds_nothing() {
    let mut plugin = shell(r#"read line; yes '{"id":77,"items":[]}'"#);
    plugin.generate_blocklisted_items(&failure(0, "disk"));
    let problem = problem(&mut plugin, 1);
    assert!(problem.contains("not asked") || problem.contains("more than 64 lines"), "{problem}");
    assert!(plugin.child.is_none());
}

#[test]
fn a_program_that_does_not_read_does_not_hold_the_control_thread_up() {
    let mut plugin = shell("sleep 1000");
    let long = "x".repeat(4000);
    for millis in 0..200 {
        plugin.generate_blocklisted_items(&failure(millis, &long));
    }
    assert!(plugin.dropped() >= 200 - 65 - 1, "{}", plugin.dropped());
}

#[test]
fn a_program_that_is_not_there_is_a_problem_and_not_more() {
    let mut plugin = PluginStrategy::new(vec!["/no/such/program".into()], PluginConfig::default());
    plugin.generate_blocklisted_items(&failure(0, "disk"));
    assert!(problem(&mut plugin, 1).contains("'/no/such/program' can't be started"));
}

/// A program's own children were not killed with it, and held its output open.
#[cfg(target_os = "linux")]
#[test]
fn what_a_program_starts_is_killed_with_it() {
    let mut plugin = shell("sleep 1000 & echo nonsense; wait");
    plugin.generate_blocklisted_items(&failure(0, "disk"));
    let group = wait(|| plugin.child.as_ref()?.group());
    wait(|| (alive_in(group) == 2).then_some(()));
    assert!(problem(&mut plugin, 1).contains("no JSON"));
    wait(|| (alive_in(group) == 0).then_some(()));
}

/// How many processes of a group run; those that nobody has buried don't count.
#[cfg(target_os = "linux")]
fn alive_in(group: rustix::process::Pid) -> usize {
    let group = group.as_raw_nonzero().to_string();
    let entries = std::fs::read_dir("/proc").expect("Linux has it").filter_map(Result::ok);
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let alive = stats.filter(|stat| {
        // The name in parentheses may hold anything; state, parent and group follow.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
        let fields: Vec<&str> = fields.into_iter().flatten().take(3).collect();
        fields.get(2) == Some(&group.as_str()) && !["Z", "X"].contains(&fields[0])
    });
    alive.count()
}

#[test]
fn options_make_a_plugin_and_name_what_is_wrong() {
    let make = |pairs: &[(&str, &str)]| {
        let options = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        PluginFactory.create(&options).map(|strategy| strategy.name().to_owned())
    };
    assert_eq!(make(&[("plugin", "/bin/x --flag"), ("rules", "a")]), Ok("plugin:/bin/x".into()));
    for (pairs, expected) in [
        (&[][..], "'' is not a program"),
        (&[("plugin", "x"), ("plugin.queue-max", "0")], "a number above 0"),
        (&[("plugin", "x"), ("plugin.answer-timeout", "soon")], "a duration"),
        (&[("plugin", "x"), ("plugin.open-four", "1 s")], "did you mean"),
    ] {
        let error = make(pairs).expect_err("it is wrong").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// The example in Python, as the guide tells to run it.
#[test]
fn the_example_in_python_marks_the_node_of_a_disk_that_is_full() {
    let found = std::process::Command::new("python3").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: there is no python3");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/blocklist_plugin.py");
    let command = vec!["python3".to_owned(), script.to_owned()];
    let config =
        PluginConfig { answer_timeout: Duration::from_secs(3600), ..PluginConfig::default() };
    let mut plugin = PluginStrategy::new(command, config);
    plugin.generate_blocklisted_items(&failure(0, "bad input in line 7"));
    plugin.generate_blocklisted_items(&failure(1, "No space left on device"));
    let items = items(&mut plugin, 2);
    let [item] = &items[..] else { panic!("one item: {items:?}") };
    assert_eq!(item.key.identifier(), "n1");
    assert_eq!(item.action, BlocklistAction::MarkAndEvacuate);
    assert_eq!(plugin.take_problems(), Vec::<String>::new());
}
