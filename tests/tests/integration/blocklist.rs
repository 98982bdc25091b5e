//! Jobs on several task managers: blocklisted ones get no new work, evacuated ones are left, and each record counts once.

use tidegate::runtime::ClusterFact;
use tidegate::{ErrorKind, Job, sink};

use crate::blocklist_rig::{
    assert_kept_off, block, call, events, facts, nodes_in_use, on, places, running, unblock,
    wait_fact,
};
use crate::rig::{Gated, Once, checkpointed, next_checkpoint, set, sorted, wait_until};

const N: u64 = 6000;
const MARK: &str = "MARK_BLOCKLISTED";
const EVACUATE: &str = "MARK_BLOCKLISTED_AND_EVACUATE_TASKS";

/// Counts per key behind an exchange, into memory; each key must come to this.
fn counting(job: &Job, numbers: &Gated, fails: Option<Once>) -> sink::Collected<(u64, u64)> {
    let (sink, collected) = sink::collect::<(u64, u64)>();
    job.source("numbers", numbers.clone())
        .map(move |n| {
            assert!(n < 4000 || !fails.as_ref().is_some_and(Once::take), "as planned");
            n
        })
        .key_by(|n| n % 100)
        .count("per key")
        .sink("counts", sink);
    collected
}

fn assert_exact(collected: &sink::Collected<(u64, u64)>) {
    let expected: Vec<_> = (0..100).flat_map(|key| (1..=N / 100).map(move |n| (key, n))).collect();
    assert_eq!(sorted(collected.take()), expected);
}

#[test]
fn a_marked_node_keeps_its_subtasks_and_gets_none_when_they_restart() {
    let job = on("node1:2,node1:2,node2:2", 2);
    let (numbers, once) = (Gated::new(N), Once::default());
    let collected = counting(&job, &numbers, Some(once.clone()));
    let handle = job.spawn().expect("it starts");
    running(&handle);
    let before = places(&handle);
    let node = before.values().next().expect("there are subtasks").clone();
    block(&handle, &node, MARK);
    numbers.open(3000);
    next_checkpoint(&handle);
    assert_eq!(places(&handle), before, "running subtasks stay");
    let free: u32 = handle
        .endpoint()
        .task_managers()
        .expect("the job runs")
        .iter()
        .filter(|tm| tm.blocklisted.is_some())
        .map(|tm| tm.subtasks.len() as u32)
        .sum();
    assert!(free > 0, "they are shown where they are");
    numbers.open(5000);
    wait_until("the failure", || once.is_taken() && handle.status().restarts == 1);
    running(&handle);
    assert!(!nodes_in_use(&handle).contains(&node), "{:?}", places(&handle));
    assert_kept_off(&events(&handle));
    numbers.open_all();
    handle.join().expect("the job ends");
    assert_exact(&collected);
}

#[test]
fn evacuated_subtasks_move_behind_a_checkpoint_and_each_record_counts_once() {
    let job = on("node1:2,node1:2,node2:2", 2);
    let numbers = Gated::new(N);
    let collected = counting(&job, &numbers, None);
    let handle = job.spawn().expect("it starts");
    numbers.open(3000);
    running(&handle);
    assert_eq!(nodes_in_use(&handle), ["node1"], "task managers with the most free slots, by name");
    block(&handle, "node1", EVACUATE);
    wait_fact(&handle, "the evacuation", |fact| matches!(fact, ClusterFact::Evacuated { .. }));
    wait_until("the new places", || nodes_in_use(&handle) == ["node2"]);
    running(&handle);
    let facts = facts(&handle);
    let at = |is: fn(&ClusterFact) -> bool| facts.iter().position(is);
    let begun = at(|fact| matches!(fact, ClusterFact::EvacuationBegun));
    let done = at(|fact| matches!(fact, ClusterFact::Evacuated { .. }));
    assert!(begun < done, "{facts:?}");
    let figures = handle.endpoint().blocklist_figures().expect("the job runs");
    assert_eq!((figures.blocklisted_nodes, figures.blocklisted_task_managers), (1, 2));
    assert_eq!((figures.slots_evacuated, figures.tasks_evacuated), (2, 4));
    let given_back = figures.slots_evacuated + figures.free_slots_released;
    assert_eq!(figures.released_after.count(), given_back);
    assert_eq!(figures.items_added.get("rest"), Some(&1));
    unblock(&handle, "node1");
    assert_eq!(nodes_in_use(&handle), ["node2"], "nothing moves back");
    let figures = handle.endpoint().blocklist_figures().expect("the job runs");
    assert_eq!((figures.blocklisted_nodes, figures.items_removed), (0, 1));
    assert_kept_off(&events(&handle));
    numbers.open_all();
    let status = handle.join().expect("the job ends");
    assert_eq!(status.restarts, 1);
    assert_exact(&collected);
}

#[test]
fn without_room_elsewhere_subtasks_stay_and_the_log_says_so() {
    let mut job = on("node1:2,node2:1", 2);
    set(&mut job, "cluster.resource-blocklist.evacuation.grace", "20ms");
    let numbers = Gated::new(N);
    let collected = counting(&job, &numbers, None);
    let handle = job.spawn().expect("it starts");
    running(&handle);
    let before = places(&handle);
    block(&handle, "node1", EVACUATE);
    wait_fact(&handle, "the alarm", |fact| matches!(fact, ClusterFact::EvacuationStuck { .. }));
    assert_eq!(places(&handle), before);
    unblock(&handle, "node1");
    numbers.open_all();
    let status = handle.join().expect("the job ends");
    assert_eq!(status.restarts, 0);
    assert_exact(&collected);
}

#[test]
fn the_tasks_of_a_lost_task_manager_restart_on_others() {
    let job = on("node1:2,node1:2,node2:2", 2);
    let numbers = Gated::new(N);
    let collected = counting(&job, &numbers, None);
    let handle = job.spawn().expect("it starts");
    numbers.open(3000);
    running(&handle);
    next_checkpoint(&handle);
    let endpoint = handle.endpoint();
    assert!(!endpoint.lose_task_manager("nobody").expect("the job runs"));
    assert!(endpoint.lose_task_manager("tm-1").expect("the job runs"));
    // The job still counts as running until its job master hears of the loss.
    wait_until("the new places", || {
        let left = endpoint.task_managers().expect("the job runs");
        assert!(left.iter().all(|tm| tm.resource_id != "tm-1"));
        left.iter().map(|tm| tm.subtasks.len()).sum::<usize>() == 4
    });
    running(&handle);
    numbers.open_all();
    let status = handle.join().expect("the job ends");
    assert_eq!(status.restarts, 1);
    assert!(status.last_failure.is_none_or(|why| why.contains("tm-1")));
    assert_exact(&collected);
}

#[test]
fn an_item_ends_by_itself_and_its_node_is_used_again() {
    let mut job = on("node1:1,node2:1", 1);
    set(&mut job, "cluster.resource-blocklist.item.timeout", "50ms");
    set(&mut job, "cluster.resource-blocklist.item.timeout-check-interval", "10ms");
    let numbers = Gated::new(N);
    let collected = counting(&job, &numbers, None);
    let handle = job.spawn().expect("it starts");
    running(&handle);
    block(&handle, "node1", EVACUATE);
    wait_fact(&handle, "the end", |fact| matches!(fact, ClusterFact::ItemExpired { .. }));
    let status = handle.endpoint().task_managers().expect("the job runs");
    assert!(status.iter().all(|tm| tm.blocklisted.is_none()), "{status:?}");
    let figures = handle.endpoint().blocklist_figures().expect("the job runs");
    assert_eq!((figures.blocklisted_nodes, figures.items_expired), (0, 1));
    numbers.open_all();
    handle.join().expect("the job ends");
    assert_exact(&collected);
}

#[test]
fn a_rule_blocklists_the_node_of_a_failure_and_the_retry_avoids_it() {
    let mut job = on("node1:2,node2:2", 1);
    set(&mut job, "cluster.resource-blocklist.strategy", "rules");
    for (key, value) in [
        ("rules", "disk"),
        ("rules.disk.match.message", "as planned"),
        ("rules.disk.target", "NODE"),
    ] {
        set(&mut job, &format!("cluster.resource-blocklist.strategy.{key}"), value);
    }
    let (numbers, once) = (Gated::new(N), Once::default());
    let collected = counting(&job, &numbers, Some(once.clone()));
    let handle = job.spawn().expect("it starts");
    numbers.open(3000);
    running(&handle);
    next_checkpoint(&handle);
    let first = nodes_in_use(&handle);
    numbers.open(5000);
    wait_until("the restart", || once.is_taken() && handle.status().restarts == 1);
    running(&handle);
    let second = nodes_in_use(&handle);
    assert_ne!(first, second);
    let figures = handle.endpoint().blocklist_figures().expect("the job runs");
    assert_eq!(figures.blocklisted_nodes, 1);
    assert_kept_off(&events(&handle));
    numbers.open_all();
    handle.join().expect("the job ends");
    assert_exact(&collected);
}

#[test]
fn a_task_manager_is_started_on_request_when_slots_run_short() {
    let mut job = on("node1:2", 2);
    set(&mut job, "taskmanager.on-request", "node2:2");
    let numbers = Gated::new(N);
    let collected = counting(&job, &numbers, None);
    let handle = job.spawn().expect("it starts");
    numbers.open(3000);
    running(&handle);
    assert_eq!(nodes_in_use(&handle), ["node1"]);
    block(&handle, "node1", EVACUATE);
    wait_until("the new places", || nodes_in_use(&handle) == ["node2"]);
    running(&handle);
    assert_kept_off(&events(&handle));
    numbers.open_all();
    handle.join().expect("the job ends");
    assert_exact(&collected);
}

#[test]
fn switched_off_the_blocklist_answers_that_it_is() {
    let mut job = checkpointed("case", 1);
    set(&mut job, "taskmanager.list", "node1:1,node2:1");
    let numbers = Gated::new(10);
    let (sink, _collected) = sink::collect::<u64>();
    job.source("numbers", numbers.clone()).sink("out", sink);
    let handle = job.spawn().expect("it starts");
    let answer = call(&handle, "GET", "/blocklist", "");
    assert_eq!(answer.status, 404);
    assert!(answer.body.to_string().contains("cluster.resource-blocklist.enabled"));
    assert!(!handle.endpoint().blocklist_figures().expect("the job runs").is_enabled);
    numbers.open_all();
    handle.join().expect("the job ends");
}

#[test]
fn a_machine_is_in_one_node_pool_and_that_has_a_name() {
    let long = "x".repeat(254);
    for (list, on_request, wrong) in [
        ("node1:1,node2:1:gpu,node2:1", "none", "node 'node2' is in the pools 'gpu' and 'default'"),
        ("node1:1", "node1:1:gpu", "'taskmanager.on-request': node 'node1' is in the pools"),
        ("node1:1:a b", "none", "node pool 'a b' of node 'node1': an identifier must not contain"),
        (&format!("node1:1:{long}"), "none", "has at most 253 bytes, this one 254"),
    ] {
        let mut job = on(list, 1);
        set(&mut job, "taskmanager.on-request", on_request);
        let (sink, _collected) = sink::collect::<u64>();
        job.source("numbers", Gated::new(10)).sink("out", sink);
        let error = job.spawn().expect_err("the list is wrong");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(wrong), "{error}");
    }
}

#[test]
fn a_job_that_needs_more_slots_than_the_list_has_is_refused() {
    let job = on("node1:1,node2:1", 3);
    let (sink, _collected) = sink::collect::<u64>();
    job.source("numbers", Gated::new(10)).sink("out", sink);
    let error = job.spawn().expect_err("there are two slots");
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    assert!(text.contains("3 slots") && text.contains("has 2"), "{text}");
}
