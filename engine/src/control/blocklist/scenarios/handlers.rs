//! H01 to H18: both handlers, seen from their listeners and contexts.

use super::world::{Deed, Recorder, failure, job_master, resource_manager};
use super::*;
use crate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use crate::control::blocklist::runner::{PANICS_MAX, StrategyMode, StrategyRunner};
use crate::control::blocklist::strategy::{BlocklistStrategy, FailureEvent};
use crate::control::identity::LeaderId;

const JM1: JobId = JobId(1);
const JM2: JobId = JobId(2);

/// A resource manager's handler with job master 1 registered.
fn registered() -> (super::super::resource_manager::ResourceManagerBlocklistHandler, Recorder) {
    let (mut rm, mut seen) = (resource_manager(), Recorder::default());
    rm.register_blocklist_listener(at(0), JM1, LeaderId(1), &mut seen);
    (rm, seen)
}

fn acknowledge(
    rm: &mut super::super::resource_manager::ResourceManagerBlocklistHandler,
    seen: &mut Recorder,
) {
    for (job, seq) in seen.unacknowledged() {
        let receipt = crate::control::blocklist::listeners::BlocklistMessage::Acknowledge {
            session: LeaderId(job.0),
            notice_session: LeaderId(100),
            seq,
        };
        rm.handle_message(at(0), job, receipt, seen);
    }
}

#[test]
fn h01_registering_with_nothing_held_tells_nothing() {
    let (_, seen) = registered();
    assert!(seen.deeds.is_empty());
}

#[test]
fn h02_two_new_items_are_one_notice_and_one_act() {
    let (mut rm, mut seen) = registered();
    let wishes = vec![wish(node("n1"), M, 100), wish(node("n2"), M, 100)];
    rm.add_new_blocklisted_items(at(0), wishes, &mut seen);
    let told = Deed::Told(1, vec!["n1".into(), "n2".into()]);
    assert_eq!(seen.take(), [told, Deed::Blocked(vec!["n1".into(), "n2".into()])]);
}

#[test]
fn h03_the_same_items_again_tell_and_do_nothing() {
    let mut seen = Recorder::default();
    let mut jm = job_master(Vec::new(), StrategyMode::Enforce);
    jm.connect_to_resource_manager(at(0), LeaderId(9), &mut seen);
    jm.add_new_blocklisted_items(at(0), [item(node("n1"), M, 100)], &mut seen);
    assert_eq!(seen.take().len(), 2);
    jm.add_new_blocklisted_items(at(0), [item(node("n1"), M, 100)], &mut seen);
    assert!(seen.deeds.is_empty());
}

#[test]
fn h04_a_later_end_is_told_but_touches_no_slot() {
    let (mut rm, mut seen) = registered();
    let wishes = vec![wish(node("n1"), M, 100), wish(node("n2"), M, 100)];
    rm.add_new_blocklisted_items(at(0), wishes, &mut seen);
    acknowledge(&mut rm, &mut seen);
    seen.take();
    rm.add_new_blocklisted_items(at(0), vec![wish(node("n2"), M, 200)], &mut seen);
    assert_eq!(seen.take(), [Deed::Told(1, vec!["n2".into()])]);
}

#[test]
fn h05_a_stronger_action_is_told_and_done() {
    let (mut rm, mut seen) = registered();
    rm.add_new_blocklisted_items(at(0), vec![wish(node("n2"), M, 100)], &mut seen);
    acknowledge(&mut rm, &mut seen);
    seen.take();
    rm.add_new_blocklisted_items(at(0), vec![wish(node("n2"), E, 100)], &mut seen);
    assert_eq!(seen.take(), [Deed::Told(1, vec!["n2".into()]), Deed::Blocked(vec!["n2".into()])]);
}

#[test]
fn h06_a_later_listener_gets_everything_in_one_notice() {
    let (mut rm, mut seen) = registered();
    let wishes = vec![wish(node("n1"), M, 100), wish(tm("t1"), M, 100)];
    rm.add_new_blocklisted_items(at(0), wishes, &mut seen);
    acknowledge(&mut rm, &mut seen);
    seen.take();
    rm.register_blocklist_listener(at(0), JM2, LeaderId(2), &mut seen);
    assert_eq!(seen.take(), [Deed::Told(2, vec!["t1".into(), "n1".into()])]);
}

#[test]
fn h07_registering_twice_tells_nothing_the_second_time() {
    let (mut rm, mut seen) = registered();
    rm.add_new_blocklisted_items(at(0), vec![wish(node("n1"), M, 100)], &mut seen);
    acknowledge(&mut rm, &mut seen);
    seen.take();
    rm.register_blocklist_listener(at(0), JM1, LeaderId(1), &mut seen);
    assert!(seen.deeds.is_empty());
    rm.register_blocklist_listener(at(0), JM1, LeaderId(5), &mut seen);
    assert_eq!(seen.take(), [Deed::Told(1, vec!["n1".into()])], "a new leader is a new listener");
}

#[test]
fn h08_a_deregistered_listener_hears_nothing_more() {
    let (mut rm, mut seen) = registered();
    rm.deregister_blocklist_listener(JM1);
    rm.add_new_blocklisted_items(at(0), vec![wish(node("n1"), M, 100)], &mut seen);
    assert_eq!(seen.take(), [Deed::Blocked(vec!["n1".into()])]);
}

#[test]
fn h09_an_ended_item_is_unblocked_once() {
    let (mut rm, mut seen) = (resource_manager(), Recorder::default());
    rm.add_new_blocklisted_items(at(0), vec![wish(node("n1"), M, 1000)], &mut seen);
    seen.take();
    let mut ticks = 0;
    while rm.item(&node("n1")).is_some() {
        ticks += 1;
        let due = rm.deadline().expect("it runs").as_nanos() / 1_000_000;
        assert!(due <= 1100, "it is looked for at least once a check interval");
        rm.tick(at(due), &mut seen);
    }
    assert_eq!(ticks, 10, "every 100 ms");
    assert_eq!(seen.take(), [Deed::Unblocked(vec!["n1".into()])]);
    rm.tick(at(5000), &mut seen);
    assert!(seen.deeds.is_empty());
}

#[test]
fn h10_a_node_covers_the_task_managers_on_it() {
    let (mut rm, mut seen) = (resource_manager(), Recorder::default());
    for (tm, node) in [("tm1", "n1"), ("tm2", "n1"), ("tm3", "n2")] {
        assert!(!rm.register_task_manager(&location(tm, node)));
    }
    rm.add_new_blocklisted_items(at(0), vec![wish(node("n1"), M, 100)], &mut seen);
    let blocked = ["tm1", "tm2", "tm3"].map(|tm| rm.is_blocklisted_task_manager(&rid(tm)));
    assert_eq!(blocked, [true, true, false]);
    assert!(rm.register_task_manager(&location("tm4", "n1")), "a later one as well");
    let snapshot = rm.snapshot();
    assert_eq!(snapshot.blocklisted_task_manager_count(), 3);
    assert!(snapshot.is_blocklisted_task_manager(&rid("tm4")));
}

#[test]
fn h11_a_task_manager_item_covers_only_itself() {
    let (mut rm, mut seen) = (resource_manager(), Recorder::default());
    rm.register_task_manager(&location("tm3", "n2"));
    rm.register_task_manager(&location("tm4", "n2"));
    rm.add_new_blocklisted_items(at(0), vec![wish(tm("tm3"), M, 100)], &mut seen);
    assert!(rm.is_blocklisted_task_manager(&rid("tm3")));
    assert!(!rm.is_blocklisted_task_manager(&rid("tm4")));
    assert_eq!(rm.fleet().view().blocklisted_nodes, 0);
    assert!(rm.snapshot().nodes().is_empty());
}

/// Blames the node of every failure.
#[derive(Debug)]
pub(super) struct BlameNode;

impl BlocklistStrategy for BlameNode {
    fn name(&self) -> &'static str {
        "blame-node"
    }

    fn generate_blocklisted_items(&mut self, failure: &FailureEvent) -> Vec<NewItem> {
        let keys = failure.locations.iter().map(|l| ItemKey::Node(l.node_id.clone()));
        keys.map(|key| automatic(key, M, 1_000_000)).collect()
    }
}

#[derive(Debug)]
struct Panics;

impl BlocklistStrategy for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn generate_blocklisted_items(&mut self, _failure: &FailureEvent) -> Vec<NewItem> {
        panic!("a strategy that panics, as this test wants");
    }
}

#[test]
fn h12_the_resource_manager_is_told_before_slots_are_released() {
    let mut seen = Recorder::default();
    let mut jm = job_master(vec![Box::new(BlameNode)], StrategyMode::Enforce);
    jm.connect_to_resource_manager(at(0), LeaderId(9), &mut seen);
    jm.notify_exception(&failure("IoError", &[location("tm1", "n1")]), &mut seen);
    assert_eq!(seen.take(), [Deed::Told(0, vec!["n1".into()]), Deed::Blocked(vec!["n1".into()])]);
}

#[test]
fn h13_a_closed_handler_unblocks_nothing() {
    let (mut rm, mut seen) = (resource_manager(), Recorder::default());
    rm.add_new_blocklisted_items(at(0), vec![wish(node("n1"), M, 1000)], &mut seen);
    seen.take();
    rm.close();
    rm.close();
    assert_eq!(rm.deadline(), None);
    rm.tick(at(2000), &mut seen);
    assert!(seen.deeds.is_empty());
}

#[test]
fn h14_a_handler_needs_exclusive_access_so_only_one_thread_can_change_it() {
    // Every change takes `&mut self`, so a second thread can't make one: what the control thread shares is the
    // snapshot, which has no method that changes it.
    fn shared<T: Send + Sync>(_: &T) {}
    let mut rm = resource_manager();
    let snapshot = rm.snapshot();
    shared(&snapshot);
    rm.add_new_blocklisted_items(at(0), vec![wish(node("n1"), M, 9)], &mut Recorder::default());
    assert!(snapshot.items().is_empty() && rm.snapshot().items().len() == 1);
}

#[test]
fn h15_a_listener_that_hears_nothing_stops_neither_others_nor_the_context() {
    let (mut rm, mut seen) = registered();
    rm.register_blocklist_listener(at(0), JM2, LeaderId(2), &mut seen);
    seen.deaf.insert(JM1);
    rm.add_new_blocklisted_items(at(0), vec![wish(node("n1"), M, 100_000)], &mut seen);
    let n1 = || vec!["n1".to_owned()];
    assert_eq!(seen.take(), [Deed::Told(2, n1()), Deed::Blocked(n1())]);
    seen.deaf.clear();
    rm.tick(at(60_000), &mut seen);
    assert!(seen.take().contains(&Deed::Told(1, n1())), "it is told when it hears again");
}

#[test]
fn h16_a_strategy_that_blames_nobody_ends_the_matter() {
    let mut seen = Recorder::default();
    let mut jm = job_master(Vec::new(), StrategyMode::Enforce);
    jm.connect_to_resource_manager(at(0), LeaderId(9), &mut seen);
    jm.notify_exception(&failure("IoError", &[location("tm1", "n1")]), &mut seen);
    assert!(seen.deeds.is_empty());
}

#[test]
fn h17_a_strategy_that_panics_is_counted_and_finally_switched_off() {
    let mut seen = Recorder::default();
    let mut jm = job_master(vec![Box::new(Panics), Box::new(BlameNode)], StrategyMode::Enforce);
    for n in 0..5 {
        let place = location("tm1", &format!("n{n}"));
        jm.notify_exception(&failure("IoError", &[place]), &mut seen);
    }
    assert_eq!(jm.get_all_items().len(), 5, "the other strategy's items are all there");
    assert_eq!(jm.strategies().errors(), u64::from(PANICS_MAX));
    assert_eq!(jm.strategies().switched_off().collect::<Vec<_>>(), ["panics"]);
}

#[test]
fn b23_one_bad_strategy_loses_no_other_ones_items() {
    let mut runner =
        StrategyRunner::new(vec![Box::new(Panics), Box::new(BlameNode)], StrategyMode::Enforce);
    let place = location("tm1", "n1");
    assert_eq!(runner.generate_blocklisted_items(&failure("IoError", &[place])).len(), 1);
}

#[test]
fn h18_induced_failures_blame_nobody() {
    let mut seen = Recorder::default();
    let mut jm = job_master(vec![Box::new(BlameNode)], StrategyMode::Enforce);
    let mut event = failure("ResourceEvacuated", &[location("tm1", "n1")]);
    event.cause = Cause::induced("ResourceEvacuated", "n1");
    jm.notify_exception(&event, &mut seen);
    assert!(jm.get_all_items().is_empty());
}

#[test]
fn b06_deliberate_kills_are_no_failures() {
    let mut jm = job_master(vec![Box::new(BlameNode)], StrategyMode::Enforce);
    let mut event = failure("TaskManagerLost", &[location("tm1", "n1")]);
    event.chain = vec![Cause::induced("WorkerReleased", "idle")];
    jm.notify_exception(&event, &mut Recorder::default());
    assert!(jm.get_all_items().is_empty(), "the induced cause may be anywhere in the chain");
}

#[test]
fn shadow_mode_keeps_what_it_would_have_done() {
    let mut seen = Recorder::default();
    let mut jm = job_master(vec![Box::new(BlameNode)], StrategyMode::Shadow);
    jm.notify_exception(&failure("IoError", &[location("tm1", "n1")]), &mut seen);
    assert!(jm.get_all_items().is_empty() && seen.deeds.is_empty());
    let shadow: Vec<_> = jm.strategies().shadow().map(|new| new.key.clone()).collect();
    assert_eq!(shadow, [node("n1")]);
}

#[test]
fn r08_the_cap_refuses_a_second_automatic_node_of_three() {
    let mut seen = Recorder::default();
    let mut jm = job_master(vec![Box::new(BlameNode)], StrategyMode::Enforce);
    for (tm, node) in [("tm1", "n1"), ("tm2", "n2"), ("tm3", "n3")] {
        jm.register_task_manager(&location(tm, node));
    }
    let mut event = failure("IoError", &[location("tm1", "n1")]);
    assert!(jm.notify_exception(&event, &mut seen).is_empty());
    event.locations = vec![location("tm2", "n2")];
    let refused = jm.notify_exception(&event, &mut seen);
    assert_eq!(refused.iter().map(|r| (&r.key, r.allowed)).collect::<Vec<_>>(), [(&node("n2"), 1)]);
    assert_eq!((jm.get_all_items().len(), jm.counters().refused_by_cap), (1, 1));

    let mut rm = resource_manager();
    for (tm, node) in [("tm1", "n1"), ("tm2", "n2"), ("tm3", "n3")] {
        rm.register_task_manager(&location(tm, node));
    }
    rm.add_new_blocklisted_items(at(0), vec![wish(node("n1"), M, 100)], &mut seen);
    let forced = rm.add_new_blocklisted_items(at(0), vec![wish(node("n2"), M, 100)], &mut seen);
    assert_eq!(forced.added.len(), 1, "what people want is not capped here");
}

#[test]
fn b10_an_unknown_fleet_size_is_not_a_ratio_of_one() {
    let mut jm = job_master(vec![Box::new(BlameNode)], StrategyMode::Enforce);
    for n in ["n1", "n2", "n3"] {
        jm.notify_exception(&failure("IoError", &[location("tm", n)]), &mut Recorder::default());
    }
    assert_eq!(jm.get_all_items().len(), 3, "the cluster's size is 0, that is unknown");
}

#[test]
fn b16_every_item_ends_unless_somebody_says_otherwise() {
    let mut tracker = tracker();
    let unlimited = NewItem { end_timestamp: None, ..wish(node("n"), M, 0) };
    let issued = tracker.issue(at(7), unlimited);
    assert_eq!(issued.end_timestamp, Some(EpochMillis(57)), "the configured timeout");
}

#[test]
fn b22_an_item_goes_only_by_its_end_or_an_order() {
    let (mut rm, mut seen) = (resource_manager(), Recorder::default());
    rm.register_task_manager(&location("tm1", "n1"));
    rm.add_new_blocklisted_items(at(0), vec![wish(tm("tm1"), M, 1000)], &mut seen);
    rm.deregister_task_manager(&rid("tm1"));
    rm.register_task_manager(&location("tm1", "n1"));
    assert!(rm.is_blocklisted_task_manager(&rid("tm1")), "registering again is no pardon");
}
