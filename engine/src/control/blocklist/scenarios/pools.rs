//! B21: the caps hold for each node pool, so that a small one isn't blocklisted as a whole.

use std::collections::BTreeMap;

use super::handlers::BlameNode;
use super::world::{Recorder, World, failure, job_master, resource_manager};
use super::*;
use crate::control::blocklist::caps::{CapExceeded, Caps};
use crate::control::blocklist::job_master::JobMasterBlocklistHandler;
use crate::control::blocklist::resource_manager::ResourceManagerBlocklistHandler;
use crate::control::blocklist::runner::StrategyMode;
use crate::control::blocklist::strategy::PoolView;
use crate::control::identity::NodePool;

const LONG: i64 = 1_000_000;

fn pool(name: &str) -> NodePool {
    NodePool::new(name).expect("short")
}

/// The task manager on a node of pool `gpu`.
fn on_gpu(n: &str) -> TaskManagerLocation {
    location(&format!("tm-{n}"), n).in_pool(pool("gpu"))
}

/// One task manager on each of 20 nodes of the default pool and of two others.
fn fleet() -> Vec<TaskManagerLocation> {
    let default = (1..=20).map(|i| location(&format!("tm-n{i}"), &format!("n{i}")));
    default.chain(["gpu1", "gpu2"].map(on_gpu)).collect()
}

fn master_of(fleet: &[TaskManagerLocation]) -> JobMasterBlocklistHandler {
    let mut jm = job_master(vec![Box::new(BlameNode)], StrategyMode::Enforce);
    for location in fleet {
        jm.register_task_manager(location);
    }
    jm
}

/// What the caps refuse of the nodes that a failure at `locations` blames.
fn blame(
    jm: &mut JobMasterBlocklistHandler,
    locations: &[TaskManagerLocation],
) -> Vec<CapExceeded> {
    jm.notify_exception(&failure("IoError", locations), &mut Recorder::default())
}

#[test]
fn b21_a_small_pool_is_not_blocklisted_as_a_whole() {
    let mut jm = master_of(&fleet());
    assert_eq!(blame(&mut jm, &[on_gpu("gpu1")]), []);
    let refused = blame(&mut jm, &[on_gpu("gpu2")]);
    let exceeded =
        CapExceeded { key: node("gpu2"), pool: Some(pool("gpu")), blocklisted: 1, allowed: 1 };
    assert_eq!(refused, [exceeded], "though 1 of 22 nodes is blocklisted");
    let text = "node gpu2 is not blocklisted: 1 in pool gpu are already, at most 1 may be";
    assert_eq!(refused[0].to_string(), text);
    assert_eq!(blame(&mut jm, &[location("tm-n1", "n1")]), [], "another pool has room");
    assert_eq!(jm.counters().refused_by_cap, 1);
}

#[test]
fn b21_many_small_pools_do_not_add_up_to_more_than_the_fleets_share() {
    let alone =
        |i: usize| location(&format!("tm-n{i}"), &format!("n{i}")).in_pool(pool(&format!("p{i}")));
    let fleet: Vec<_> = (1..=10).map(alone).collect();
    let mut jm = master_of(&fleet);
    for location in &fleet[..3] {
        assert_eq!(blame(&mut jm, std::slice::from_ref(location)), []);
    }
    let exceeded = CapExceeded { key: node("n4"), pool: None, blocklisted: 3, allowed: 3 };
    assert_eq!(blame(&mut jm, &fleet[3..4]), [exceeded]);
}

#[test]
fn b21_the_resource_manager_refuses_what_a_job_master_found_room_for() {
    let mut world = World::new(2);
    for location in fleet() {
        world.rm.register_task_manager(&location);
    }
    // The job masters know no pools, as if their task managers had not registered yet.
    for (job, n) in [(1, "gpu1"), (2, "gpu2"), (1, "n1")] {
        let mut new = item(node(n), M, LONG);
        new.origin = automatic(node(n), M, LONG).origin;
        new.version.origin_id = job;
        world.on_jm(job, |jm, now, out| jm.add_new_blocklisted_items(now, [new], out));
    }
    world.settle(100);
    assert_eq!(world.agreed(), ["gpu1", "n1"]);
    assert_eq!(world.rm.counters().refused_by_cap, 1);
    world.on_rm(|rm, now, out| {
        rm.add_new_blocklisted_items(now, vec![wish(node("gpu2"), M, LONG)], out);
    });
    world.settle(100);
    assert_eq!(world.agreed(), ["gpu1", "gpu2", "n1"], "what people want with force is done");
}

#[test]
fn b21_a_pool_of_one_node_is_like_a_fleet_of_one() {
    let mut jm = master_of(&[&fleet()[..20], &[on_gpu("gpu1")]].concat());
    assert_eq!(blame(&mut jm, &[on_gpu("gpu1")]), [], "never less than one");
    assert_eq!(blame(&mut jm, &[location("tm-n1", "n1")]), []);
    let mut alone = master_of(&[location("tm-n1", "n1")]);
    assert_eq!(blame(&mut alone, &[location("tm-n1", "n1")]), []);
}

#[test]
fn b21_the_bound_in_nodes_holds_for_all_pools_together() {
    let mut tracker = tracker();
    let names: Vec<String> = (0..48).map(|i| format!("n{i}")).collect();
    for (i, n) in names.iter().enumerate() {
        let location = location(&format!("tm-{n}"), n).in_pool(pool(&format!("pool{}", i % 12)));
        tracker.register_task_manager(&location);
    }
    let items = names[..12].iter().map(|n| automatic(node(n), M, LONG)).collect();
    let (admitted, refused) = Caps::default().admit(tracker.fleet(), items);
    assert_eq!((admitted.len(), refused.len()), (10, 2));
    assert_eq!((&refused[0].pool, refused[0].blocklisted, refused[0].allowed), (&None, 10, 10));
    let text = refused[0].to_string();
    assert!(text.ends_with("is not blocklisted: 10 are already, at most 10 may be"), "{text}");
}

#[test]
fn b21_task_managers_are_counted_by_pool_as_well() {
    let mut tracker = tracker();
    fleet().iter().for_each(|location| tracker.register_task_manager(location));
    let items = ["tm-gpu1", "tm-gpu2", "tm-n1"].map(|id| automatic(tm(id), M, LONG)).into();
    let (admitted, refused) = Caps::default().admit(tracker.fleet(), items);
    assert_eq!(
        admitted.iter().map(|new| &new.key).collect::<Vec<_>>(),
        [&tm("tm-gpu1"), &tm("tm-n1")]
    );
    assert_eq!((&refused[0].key, &refused[0].pool), (&tm("tm-gpu2"), &Some(pool("gpu"))));
}

#[test]
fn b21_a_blocklisted_node_stays_in_its_pool_when_its_task_managers_are_gone() {
    let mut jm = master_of(&fleet());
    assert_eq!(blame(&mut jm, &[on_gpu("gpu1")]), []);
    jm.deregister_task_manager(&rid("tm-gpu1"));
    assert_eq!(blame(&mut jm, &[on_gpu("gpu2")]).len(), 1, "it would be all that is left");
    let gpu = PoolView { nodes: 1, task_managers: 1, blocklisted_nodes: 1, ..PoolView::default() };
    assert_eq!(jm.cluster().pool(&pool("gpu")), gpu);
}

#[test]
fn b21_a_node_of_which_nobody_told_the_pool_is_in_the_default_one() {
    let mut rm = resource_manager();
    let ids = ["gpu1", "gpu2"];
    rm.add_new_blocklisted_items(at(0), vec![wish(node("gpu1"), M, 50)], &mut Recorder::default());
    let blocklisted = |rm: &ResourceManagerBlocklistHandler| {
        let view = rm.fleet().view();
        [NodePool::default(), pool("gpu")].map(|pool| view.pool(&pool).blocklisted_nodes)
    };
    assert_eq!(blocklisted(&rm), [1, 0]);
    for n in ids {
        rm.register_task_manager(&on_gpu(n));
    }
    assert_eq!(blocklisted(&rm), [0, 1], "its task manager told where it is");
    assert!(rm.room().take(&node("gpu2")).is_err());
    rm.tick(at(50), &mut Recorder::default());
    assert_eq!(blocklisted(&rm), [0, 0]);
    assert_eq!(rm.room().take(&node("gpu2")), Ok(()));
    for n in ids {
        rm.deregister_task_manager(&rid(&format!("tm-{n}")));
    }
    assert_eq!(rm.fleet().view().pools, BTreeMap::new(), "nothing is kept of who is gone");
}

#[test]
fn b21_a_node_is_in_the_pool_that_was_told_last() {
    let mut tracker = tracker();
    tracker.register_task_manager(&location("tm1", "n1"));
    tracker.register_task_manager(&location("tm2", "n1").in_pool(pool("gpu")));
    let of = |key| tracker.fleet().pool_of(&key);
    assert_eq!([of(node("n1")), of(tm("tm1")), of(tm("tm2"))], ["gpu", "default", "gpu"].map(pool));
    assert_eq!(tracker.fleet().known_node_count(), 1);
}
