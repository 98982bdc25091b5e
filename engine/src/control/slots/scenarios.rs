//! S01 to S18 and what others got wrong about holding slots: each test begins with its scenario's id.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::choice::{Wishes, choose_slot};
use super::pool::{SlotOffer, SlotPool, SlotPoolOutput, SlotUse};
use super::profile::{ResourceCounter, ResourceProfile};
use super::sharing::SlotSharing;
use super::task_slots::{TaskSlots, TaskSlotsOutput};
use crate::clock::Timestamp;
use crate::control::blocklist::cause::Cause;
use crate::control::blocklist::checker::NothingBlocklisted;
use crate::control::identity::{AllocationId, JobId, NodeId, ResourceId, TaskManagerLocation};
use crate::id::SubtaskId;

const NOW: Timestamp = Timestamp::ZERO;

fn rid(id: &str) -> ResourceId {
    ResourceId::new(id).expect("short")
}

fn profile() -> ResourceProfile {
    ResourceProfile::default()
}

fn needs(count: u32) -> ResourceCounter {
    ResourceCounter::of(profile(), count)
}

fn offers(allocations: impl IntoIterator<Item = u64>) -> Vec<SlotOffer> {
    let offer =
        |a: u64| SlotOffer { allocation: AllocationId(a), index: a as u32, profile: profile() };
    allocations.into_iter().map(offer).collect()
}

fn blocked(ids: &[&str]) -> BTreeSet<ResourceId> {
    ids.iter().map(|id| rid(id)).collect()
}

fn cause() -> Cause {
    Cause::induced("Test", "the test says so")
}

fn location(tm: &str) -> TaskManagerLocation {
    TaskManagerLocation::new(rid(tm), NodeId::new("n").ok(), "127.0.0.1", 0).expect("short")
}

/// A pool that needs `count` slots, with task manager `tm`.
fn pool(count: u32) -> (SlotPool, Vec<SlotPoolOutput>) {
    let (mut pool, mut out) = (SlotPool::new(Duration::from_secs(50)), Vec::new());
    pool.register_task_manager(&location("tm"));
    pool.set_requirements(needs(count), &mut out);
    out.clear();
    (pool, out)
}

fn offer(pool: &mut SlotPool, allocations: &[u64], out: &mut Vec<SlotPoolOutput>) -> Vec<u64> {
    offer_to(pool, allocations, &BTreeSet::new(), out)
}

fn offer_to(
    pool: &mut SlotPool,
    allocations: &[u64],
    blocked: &BTreeSet<ResourceId>,
    out: &mut Vec<SlotPoolOutput>,
) -> Vec<u64> {
    let offers = offers(allocations.iter().copied());
    let accepted = pool.offer_slots(NOW, &rid("tm"), &offers, blocked, out);
    pool.check(blocked);
    accepted.into_iter().map(|a| a.0).collect()
}

fn reserve(pool: &mut SlotPool, allocation: u64) {
    pool.reserve_free_slot(AllocationId(allocation), profile()).expect("it is free");
}

fn freed(out: &[SlotPoolOutput]) -> Vec<u64> {
    let freed = out.iter().filter_map(|o| match o {
        SlotPoolOutput::FreeSlot { allocation, .. } => Some(allocation.0),
        SlotPoolOutput::DeclareRequirements(_)
        | SlotPoolOutput::NewSlots(_)
        | SlotPoolOutput::PayloadFailed { .. } => None,
    });
    freed.collect()
}

fn failed(out: &[SlotPoolOutput]) -> Vec<u64> {
    let failed = out.iter().filter_map(|o| match o {
        SlotPoolOutput::PayloadFailed { allocation, cause } if cause.is_induced() => {
            Some(allocation.0)
        }
        SlotPoolOutput::DeclareRequirements(_)
        | SlotPoolOutput::NewSlots(_)
        | SlotPoolOutput::PayloadFailed { .. }
        | SlotPoolOutput::FreeSlot { .. } => None,
    });
    failed.collect()
}

#[test]
fn s01_a_blocklisted_task_managers_offers_are_refused() {
    let (mut pool, mut out) = pool(2);
    assert!(offer_to(&mut pool, &[1, 2], &blocked(&["tm"]), &mut out).is_empty());
    assert!(out.is_empty() && pool.slots().count() == 0);
}

#[test]
fn s02_another_task_managers_offers_are_accepted() {
    let (mut pool, mut out) = pool(2);
    assert_eq!(offer(&mut pool, &[1, 2], &mut out), [1, 2]);
    assert_eq!(out, [SlotPoolOutput::NewSlots(vec![AllocationId(1), AllocationId(2)])]);
    let slots: Vec<_> = pool.slots().map(|s| (s.allocation.0, s.index, s.profile)).collect();
    assert_eq!(slots, [(1, 1, profile()), (2, 2, profile())]);
}

#[test]
fn s03_a_repeated_offer_of_a_held_slot_is_accepted_even_then() {
    let (mut pool, mut out) = pool(2);
    offer(&mut pool, &[1], &mut out);
    reserve(&mut pool, 1);
    out.clear();
    assert_eq!(offer_to(&mut pool, &[1, 2], &blocked(&["tm"]), &mut out), [1]);
    assert!(out.is_empty());
}

#[test]
fn b02_a_slot_in_use_survives_its_own_second_offer() {
    let (mut pool, mut out) = pool(1);
    offer(&mut pool, &[1], &mut out);
    reserve(&mut pool, 1);
    out.clear();
    offer_to(&mut pool, &[1], &blocked(&["tm"]), &mut out);
    assert_eq!(pool.slot(AllocationId(1)).map(|s| s.state), Some(SlotUse::Reserved));
    assert!(failed(&out).is_empty() && freed(&out).is_empty());
}

#[test]
fn p18_reoffers_after_a_block_keep_what_is_held_and_refuse_only_what_is_new() {
    let (mut pool, mut out) = pool(3);
    offer(&mut pool, &[1, 2], &mut out);
    reserve(&mut pool, 1);
    pool.release_free_slots_on_task_manager(&rid("tm"), &cause(), &mut out);
    assert_eq!(freed(&out), [2], "the free one is released");
    out.clear();
    assert_eq!(offer_to(&mut pool, &[1, 2, 3], &blocked(&["tm"]), &mut out), [1]);
    assert!(out.is_empty(), "the running task is not touched");
}

fn register(pool: &mut SlotPool, allocations: std::ops::Range<u64>, is_blocked: bool) -> usize {
    let checker = if is_blocked { blocked(&["tm"]) } else { BTreeSet::new() };
    let taken =
        pool.register_slots(NOW, &rid("tm"), &offers(allocations), &checker, &mut Vec::new());
    pool.check(&checker);
    taken.len()
}

#[test]
fn s04_registering_slots_of_a_blocklisted_task_manager_takes_none() {
    assert_eq!(register(&mut pool(0).0, 0..10, true), 0);
}

#[test]
fn s05_registering_slots_takes_all_without_requirements() {
    let (mut pool, _) = pool(0);
    assert_eq!(register(&mut pool, 0..10, false), 10);
    assert!(pool.slots().all(|slot| slot.matched.is_none()));
}

#[test]
fn s06_registering_again_after_a_block_keeps_what_is_held() {
    let (mut pool, _) = pool(0);
    register(&mut pool, 0..1, false);
    reserve(&mut pool, 0);
    assert_eq!(register(&mut pool, 0..2, true), 1);
}

#[test]
fn s07_a_slot_that_becomes_free_on_a_blocklisted_task_manager_is_given_back() {
    let (mut pool, mut out) = pool(1);
    offer(&mut pool, &[1], &mut out);
    reserve(&mut pool, 1);
    out.clear();
    let checker = blocked(&["tm"]);
    let returned = pool.free_reserved_slot(NOW, AllocationId(1), None, &checker, &mut out);
    assert_eq!(returned, needs(1));
    assert_eq!(freed(&out), [1]);
    assert_eq!((out.len(), pool.slots().count()), (1, 0), "nobody is told of a new slot");
}

#[test]
fn s08_otherwise_it_is_free_again() {
    let (mut pool, mut out) = pool(1);
    offer(&mut pool, &[1], &mut out);
    reserve(&mut pool, 1);
    out.clear();
    pool.free_reserved_slot(NOW, AllocationId(1), None, &NothingBlocklisted, &mut out);
    assert_eq!(out, [SlotPoolOutput::NewSlots(vec![AllocationId(1)])]);
    assert_eq!(pool.free_slots().count(), 1);
}

#[test]
fn s09_mark_releases_only_free_slots() {
    let (mut pool, mut out) = pool(2);
    offer(&mut pool, &[1, 2], &mut out);
    reserve(&mut pool, 1);
    out.clear();
    pool.release_free_slots_on_task_manager(&rid("tm"), &cause(), &mut out);
    assert_eq!((freed(&out), failed(&out)), (vec![2], vec![]));
    assert!(pool.slot(AllocationId(1)).is_some());
}

#[test]
fn s10_evacuate_releases_all_slots() {
    let (mut pool, mut out) = pool(2);
    offer(&mut pool, &[1, 2], &mut out);
    reserve(&mut pool, 1);
    out.clear();
    pool.release_slots_on_task_manager(&rid("tm"), &cause(), &mut out);
    assert_eq!((freed(&out), failed(&out)), (vec![1, 2], vec![1]));
}

#[test]
fn s11_a_free_slot_returns_no_requirement_and_a_reserved_one_returns_its_own() {
    let (mut pool, mut out) = pool(2);
    offer(&mut pool, &[1, 2], &mut out);
    reserve(&mut pool, 1);
    let free = pool.release_free_slots_on_task_manager(&rid("tm"), &cause(), &mut out);
    let used = pool.release_slots_on_task_manager(&rid("tm"), &cause(), &mut out);
    assert_eq!((free, used), (ResourceCounter::default(), needs(1)));
    assert_eq!(pool.requirements(), &needs(2), "a block lowers no requirement");
    assert_eq!(offer(&mut pool, &[3, 4], &mut out), [3, 4], "so both are replaced");
}

#[test]
fn b04_releasing_a_free_slot_does_not_lower_the_requirement_twice() {
    let (mut pool, mut out) = pool(1);
    offer(&mut pool, &[1], &mut out);
    reserve(&mut pool, 1);
    let first = pool.free_reserved_slot(NOW, AllocationId(1), None, &NothingBlocklisted, &mut out);
    let second = pool.release_free_slots_on_task_manager(&rid("tm"), &cause(), &mut out);
    assert_eq!((first, second), (needs(1), ResourceCounter::default()));
}

#[test]
fn s12_blocking_a_task_manager_without_slots_changes_nothing() {
    let (mut pool, mut out) = pool(2);
    for tm in ["tm", "nobody"] {
        pool.release_slots_on_task_manager(&rid(tm), &cause(), &mut out);
        pool.release_free_slots_on_task_manager(&rid(tm), &cause(), &mut out);
    }
    assert!(out.is_empty());
}

#[test]
fn s14_after_the_block_later_offers_are_accepted() {
    let (mut pool, mut out) = pool(1);
    assert!(offer_to(&mut pool, &[1], &blocked(&["tm"]), &mut out).is_empty());
    assert_eq!(offer(&mut pool, &[1], &mut out), [1]);
}

#[test]
fn s15_the_last_task_to_finish_during_a_block_gives_the_slot_back() {
    let (mut pool, mut out) = pool(1);
    offer(&mut pool, &[1], &mut out);
    reserve(&mut pool, 1);
    let checker = blocked(&["tm"]);
    pool.check(&checker);
    pool.free_reserved_slot(NOW, AllocationId(1), None, &checker, &mut out);
    pool.check(&checker);
    assert_eq!(pool.slots().count(), 0);
}

#[test]
fn s17_a_shared_slot_is_given_back_with_its_last_subtask() {
    let mut sharing = SlotSharing::default();
    let subtasks = [SubtaskId::new(0, 0), SubtaskId::new(1, 0), SubtaskId::new(2, 0)];
    for subtask in subtasks {
        sharing.assign(subtask, AllocationId(1));
    }
    assert_eq!(sharing.release(subtasks[0]), None);
    assert_eq!(sharing.release(subtasks[1]), None);
    assert_eq!(sharing.release(subtasks[2]), Some(AllocationId(1)));
    assert_eq!(SlotSharing::slots_needed([1, 4, 2]), 4);
}

#[test]
fn s18_an_offer_under_way_when_the_block_came_is_refused_and_freed() {
    let mut task_slots = TaskSlots::new(1, profile(), Duration::from_secs(10));
    let mut out = Vec::new();
    assert!(task_slots.grant(NOW, 0, JobId(1), AllocationId(1), &mut out));
    let TaskSlotsOutput::Offer(job, offers) = out.remove(0) else { panic!("an offer: {out:?}") };
    let (mut pool, mut pool_out) = pool(1);
    let checker = blocked(&["tm"]);
    let accepted = pool.offer_slots(NOW, &rid("tm"), &offers, &checker, &mut pool_out);
    task_slots.answered(job, &[AllocationId(1)], &accepted, &mut out);
    assert_eq!(out, [TaskSlotsOutput::Freed { index: 0, allocation: AllocationId(1) }]);
    assert!(task_slots.is_idle());
}

#[test]
fn b24_a_freed_slot_keeps_what_it_was_matched_to() {
    let (mut pool, mut out) = pool(1);
    offer(&mut pool, &[1], &mut out);
    reserve(&mut pool, 1);
    pool.free_reserved_slot(NOW, AllocationId(1), None, &NothingBlocklisted, &mut out);
    assert!(offer(&mut pool, &[2], &mut out).is_empty(), "the requirement is still fulfilled");
    assert_eq!(pool.slot(AllocationId(1)).and_then(|s| s.matched), Some(profile()));
}

#[test]
fn an_unregistered_task_managers_offers_are_ignored() {
    let (mut pool, mut out) = pool(1);
    let taken = pool.offer_slots(NOW, &rid("x"), &offers([1]), &NothingBlocklisted, &mut out);
    assert!(taken.is_empty() && out.is_empty());
}

#[test]
fn idle_slots_beyond_need_go_back_after_the_idle_timeout() {
    let (mut pool, mut out) = pool(2);
    offer(&mut pool, &[1, 2], &mut out);
    pool.set_requirements(needs(1), &mut out);
    out.clear();
    let due = Timestamp::from_millis(50_000);
    assert_eq!(pool.deadline(), Some(due));
    pool.release_idle_slots(Timestamp::from_millis(49_999), &mut out);
    assert!(out.is_empty());
    pool.release_idle_slots(due, &mut out);
    assert_eq!((freed(&out).len(), pool.slots().count(), pool.deadline()), (1, 1, None));
}

#[test]
fn a_subtask_prefers_its_former_slot_unless_it_failed_there() {
    let (mut pool, mut out) = pool(3);
    pool.register_task_manager(&location("tm2"));
    offer(&mut pool, &[1, 2], &mut out);
    pool.offer_slots(NOW, &rid("tm2"), &offers([3]), &NothingBlocklisted, &mut out);
    let mut wishes = Wishes { previous: Some(AllocationId(2)), ..Wishes::default() };
    assert_eq!(choose_slot(pool.slots(), &wishes), Some(AllocationId(2)));
    wishes.avoid_slots.insert(AllocationId(2));
    assert_eq!(choose_slot(pool.slots(), &wishes), Some(AllocationId(1)));
    wishes.avoid_task_managers.insert(rid("tm"));
    assert_eq!(choose_slot(pool.slots(), &wishes), Some(AllocationId(3)));
    reserve(&mut pool, 1);
    let spread = choose_slot(pool.slots(), &Wishes::default());
    assert_eq!(spread, Some(AllocationId(3)), "the task manager with fewer tasks");
    wishes = Wishes { on_probation: blocked(&["tm2"]), ..Wishes::default() };
    assert_eq!(choose_slot(pool.slots(), &wishes), Some(AllocationId(2)));
}

#[derive(Clone, Debug)]
enum Step {
    Offer(u8, Vec<u8>),
    Reserve(u8),
    Free(u8),
    Block(u8, bool),
    Unblock(u8),
    Lose(u8),
    Need(u8),
    Idle(u8),
    Fail(u8),
}

fn arbitrary_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3u8, prop::collection::vec(0..12u8, 0..4)).prop_map(|(tm, a)| Step::Offer(tm, a)),
        (0..12u8).prop_map(Step::Reserve),
        (0..12u8).prop_map(Step::Free),
        (0..3u8, prop::bool::ANY).prop_map(|(tm, all)| Step::Block(tm, all)),
        (0..3u8).prop_map(Step::Unblock),
        (0..3u8).prop_map(Step::Lose),
        (0..8u8).prop_map(Step::Need),
        (0..120u8).prop_map(Step::Idle),
        (0..12u8).prop_map(Step::Fail),
    ]
}

proptest! {
    #[test]
    fn s16_no_slot_is_ever_free_and_blocklisted_and_none_is_lost(
        steps in prop::collection::vec(arbitrary_step(), 1..80)
    ) {
        let (mut pool, mut out) = (SlotPool::new(Duration::from_secs(50)), Vec::new());
        let mut checker = BTreeSet::new();
        let (mut accepted, mut ended, mut lost) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let tm = |n: u8| rid(&format!("tm{n}"));
        for n in 0..3 {
            pool.register_task_manager(&location(&format!("tm{n}")));
        }
        for (time, step) in steps.into_iter().enumerate() {
            let now = Timestamp::from_millis(time as u64 * 1000);
            match step {
                Step::Offer(n, wanted) => {
                    // A grant belongs to one task manager and is never used twice.
                    let mine = wanted.into_iter().filter(|a| a % 3 == n).map(u64::from);
                    let fresh: Vec<u64> = mine.filter(|a| !ended.contains(a)).collect();
                    let taken = pool.offer_slots(now, &tm(n), &offers(fresh), &checker, &mut out);
                    accepted.extend(taken.iter().map(|a| a.0));
                }
                Step::Reserve(a) => {
                    let _ = pool.reserve_free_slot(AllocationId(a.into()), profile());
                }
                Step::Free(a) => {
                    pool.free_reserved_slot(now, AllocationId(a.into()), None, &checker, &mut out);
                }
                Step::Block(n, all) => {
                    checker.insert(tm(n));
                    if all {
                        pool.release_slots_on_task_manager(&tm(n), &cause(), &mut out);
                    } else {
                        pool.release_free_slots_on_task_manager(&tm(n), &cause(), &mut out);
                    }
                }
                Step::Unblock(n) => drop(checker.remove(&tm(n))),
                Step::Lose(n) => {
                    pool.deregister_task_manager(&tm(n), &cause(), &mut out);
                    pool.register_task_manager(&location(&format!("tm{n}")));
                }
                Step::Need(n) => pool.set_requirements(needs(n.into()), &mut out),
                Step::Idle(n) => {
                    pool.release_idle_slots(now + Duration::from_secs(n.into()), &mut out);
                }
                Step::Fail(a) => {
                    let id = AllocationId(a.into());
                    if pool.slot(id).is_some() {
                        lost.insert(u64::from(a));
                    }
                    pool.fail_allocation(&tm(a % 3), id, &cause(), &mut out);
                }
            }
            pool.check(&checker);
            ended.extend(freed(&out));
            ended.extend(&lost);
            let held: BTreeSet<u64> = pool.slots().map(|slot| slot.allocation.0).collect();
            prop_assert!(held.is_disjoint(&ended), "held and given back");
            prop_assert!(held.union(&ended).copied().collect::<BTreeSet<_>>() == accepted);
        }
    }
}
