//! T01 to T18: items and the tracker.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;
use crate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use crate::control::blocklist::entry::Tombstone;
use crate::control::blocklist::item::Version;
use crate::control::blocklist::tracker::AlreadyStarted;

fn keys<'a>(items: impl IntoIterator<Item = &'a BlocklistedItem>) -> Vec<&'a str> {
    items.into_iter().map(|item| item.key.identifier()).collect()
}

#[test]
fn t01_items_are_equal_iff_all_their_fields_are() {
    let one = item(node("n1"), M, 10);
    assert_eq!(one, one.clone());
    let others = [
        item(tm("n1"), M, 10),
        item(node("n2"), M, 10),
        item_of(node("n1"), M, 10, "other"),
        item(node("n1"), E, 10),
        item(node("n1"), M, 11),
        BlocklistedItem { timestamp: EpochMillis(1), ..one.clone() },
    ];
    for other in others {
        assert_ne!(one, other);
    }
}

#[test]
fn t02_three_added_nodes_are_all_new() {
    let mut tracker = tracker();
    let items = ["n1", "n2", "n3"].map(|n| item(node(n), M, 10));
    let result = tracker.add_new_blocklisted_items(at(0), items.clone());
    assert_eq!(result.added, items);
    assert!(result.updated.is_empty());
    let nodes: Vec<_> = tracker.get_blocklisted_nodes().into_iter().collect();
    assert_eq!(nodes.iter().map(NodeId::as_str).collect::<Vec<_>>(), ["n1", "n2", "n3"]);
}

#[test]
fn t03_a_mixed_batch_tells_new_from_updated_from_unchanged() {
    let mut tracker = tracker();
    tracker.add_new_blocklisted_items(at(0), ["n1", "n2", "n3"].map(|n| item(node(n), M, 1)));
    let batch = [item(node("n4"), M, 1), item_of(node("n2"), M, 2, "b"), item(node("n3"), M, 1)];
    let result = tracker.add_new_blocklisted_items(at(0), batch);
    assert_eq!(keys(&result.added), ["n4"]);
    assert_eq!(keys(&result.updated), ["n2"]);
    assert_eq!(result.updated[0].end(), EpochMillis(2));
    let ends: Vec<_> = tracker.get_all_items().iter().map(|i| i.end().0).collect();
    assert_eq!(ends, [1, 2, 1, 1]);
}

#[test]
fn t04_a_tie_is_decided_the_same_way_in_either_order() {
    let [one, two] = ["cause1", "cause2"].map(|cause| item_of(node("n3"), M, 10, cause));
    let mut stored = Vec::new();
    for order in [[&one, &two], [&two, &one]] {
        let mut tracker = tracker();
        tracker.add_new_blocklisted_items(at(0), [order[0].clone()]);
        let second = tracker.add_new_blocklisted_items(at(0), [order[1].clone()]);
        assert!(second.added.is_empty() && second.updated.len() <= 1);
        stored.push(tracker.get_all_items());
        let again = tracker.add_new_blocklisted_items(at(0), [one.clone(), two.clone()]);
        assert!(again.is_empty(), "nothing is left to report");
    }
    assert_eq!(stored[0], stored[1]);
    assert_eq!(stored[0][0].previous_causes, stored[1][0].previous_causes);
}

#[test]
fn t05_a_shorter_end_changes_nothing() {
    let mut tracker = tracker();
    tracker.add_new_blocklisted_items(at(0), [item(node("n"), M, 10)]);
    assert!(tracker.add_new_blocklisted_items(at(0), [item(node("n"), M, 5)]).is_empty());
    assert_eq!(tracker.item(&node("n")).map(BlocklistedItem::end), Some(EpochMillis(10)));
}

#[test]
fn t06_action_upgrade_keeps_the_later_end() {
    let mut tracker = tracker();
    tracker.add_new_blocklisted_items(at(0), [item(node("n"), M, 10)]);
    let result = tracker.add_new_blocklisted_items(at(0), [item(node("n"), E, 5)]);
    assert_eq!(result.updated, [item(node("n"), E, 10)]);
    assert_eq!(result.strengthened, result.updated);
}

#[test]
fn t07_action_never_downgrades() {
    let mut tracker = tracker();
    tracker.add_new_blocklisted_items(at(0), [item(node("n"), E, 10)]);
    let result = tracker.add_new_blocklisted_items(at(0), [item(node("n"), M, 20)]);
    assert_eq!(result.updated, [item(node("n"), E, 20)]);
    assert!(result.strengthened.is_empty());
}

#[test]
fn t08_duplicate_keys_in_one_batch_are_one_item() {
    let mut tracker = tracker();
    let result =
        tracker.add_new_blocklisted_items(at(0), [item(node("n"), M, 1), item(node("n"), M, 3)]);
    assert_eq!(result.added, [item(node("n"), M, 3)]);
    assert!(result.updated.is_empty());
}

#[test]
fn t09_one_id_of_two_types_is_two_items() {
    let mut tracker = tracker();
    tracker.add_new_blocklisted_items(at(0), [item(tm("x"), M, 10), item(node("x"), M, 10)]);
    let (removed, _) = tracker.remove_items(at(0), [&tm("x")]);
    assert_eq!(removed, [item(tm("x"), M, 10)]);
    assert_eq!(tracker.get_all_items(), [item(node("x"), M, 10)]);
}

#[test]
fn t10_expiry_is_inclusive() {
    let mut tracker = tracker();
    let items = [("n1", 1), ("n2", 2), ("n3", 3)].map(|(n, end)| item(node(n), M, end));
    tracker.add_new_blocklisted_items(at(0), items);
    assert_eq!(keys(&tracker.remove_timed_out(at(2))), ["n1", "n2"]);
    assert_eq!(keys(&tracker.get_all_items()), ["n3"]);
}

#[test]
fn t11_a_permanent_item_outlives_every_sweep() {
    let mut tracker = tracker();
    tracker.add_new_blocklisted_items(at(0), [item(node("n"), M, i64::MAX)]);
    let last = Moment::new(Timestamp::from_nanos(u64::MAX - 1), EpochMillis(i64::MAX - 1));
    assert!(tracker.remove_timed_out(last).is_empty());
    assert_eq!(tracker.get_all_items().len(), 1);
}

#[test]
fn t12_an_item_without_an_end_lasts_the_default_timeout() {
    let mut tracker = tracker();
    let five_fields = BlocklistedItem::new(node("n"), EpochMillis(100), Cause::new("Test", "c"), M);
    tracker.add_new_blocklisted_items(at(100), [five_fields]);
    assert!(tracker.remove_timed_out(at(149)).is_empty());
    assert_eq!(tracker.get_all_items().len(), 1);
    assert_eq!(tracker.remove_timed_out(at(150)).len(), 1);
}

#[test]
fn t13_wall_clock_jumps_change_no_end() {
    const DAY: i64 = 86_400_000;
    for jump in [DAY, -DAY] {
        let mut tracker = tracker();
        let wall = |millis: i64| EpochMillis(DAY + millis);
        let start = Moment::new(Timestamp::from_millis(0), wall(0));
        tracker.add_new_blocklisted_items(start, [item(node("n"), M, DAY + 1000)]);
        let later = |ms: u64| Moment::new(Timestamp::from_millis(ms), wall(ms as i64 + jump));
        assert!(tracker.remove_timed_out(later(999)).is_empty(), "jump {jump}");
        assert_eq!(tracker.remove_timed_out(later(1000)).len(), 1, "jump {jump}");
    }
}

#[test]
fn t14_an_item_that_arrives_ended_is_not_added() {
    let mut tracker = tracker();
    let result = tracker.add_new_blocklisted_items(at(10), [item(node("n"), M, 10)]);
    assert!(result.is_empty() && tracker.get_all_items().is_empty());
    assert_eq!(tracker.keys().count(), 0);
}

#[test]
fn t15_an_empty_addition_changes_nothing() {
    let mut tracker = tracker();
    let before = tracker.snapshot();
    assert!(tracker.add_new_blocklisted_items(at(0), []).is_empty());
    assert_eq!(tracker.snapshot().generation, before.generation);
}

#[test]
fn t16_what_was_read_does_not_change() {
    let mut tracker = tracker();
    tracker.add_new_blocklisted_items(at(0), [item(node("n1"), M, 10)]);
    let (nodes, items, snapshot) =
        (tracker.get_blocklisted_nodes(), tracker.get_all_items(), tracker.snapshot());
    tracker.add_new_blocklisted_items(at(0), [item(node("n2"), M, 10)]);
    assert_eq!((nodes.len(), items.len(), snapshot.items().len()), (1, 1, 1));
    assert_eq!(tracker.snapshot().items().len(), 2);
}

#[test]
fn t17_an_unknown_task_manager_is_not_blocklisted() {
    let mut tracker = tracker();
    tracker.add_new_blocklisted_items(at(0), [item(node("n"), M, 10)]);
    assert!(!tracker.is_blocklisted_task_manager(&rid("nobody")));
    assert!(!tracker.snapshot().is_blocklisted_task_manager(&rid("nobody")));
}

#[test]
fn what_is_touched_is_told_once_and_from_the_first_question_on() {
    let mut tracker = tracker();
    tracker.add_new_blocklisted_items(at(0), [item(node("early"), M, 10)]);
    assert!(tracker.take_touched().is_empty());
    tracker.add_new_blocklisted_items(at(0), [item(node("a"), M, 10), item(node("b"), M, 20)]);
    assert_eq!(tracker.take_touched(), BTreeSet::from([node("a"), node("b")]));
    assert!(tracker.take_touched().is_empty());
    tracker.remove_timed_out(at(10));
    tracker.remove_items(at(11), [&node("b")]);
    assert_eq!(tracker.take_touched(), BTreeSet::from([node("early"), node("a"), node("b")]));
}

#[test]
fn the_second_start_is_an_error_and_a_closed_tracker_holds_nothing() {
    let mut tracker = tracker();
    assert_eq!(tracker.start(at(0)), Err(AlreadyStarted));
    tracker.add_new_blocklisted_items(at(0), [item(node("n"), M, 10)]);
    tracker.close();
    tracker.close();
    assert_eq!(tracker.deadline(), None);
    assert!(tracker.add_new_blocklisted_items(at(0), [item(node("n"), M, 10)]).is_empty());
    assert!(tracker.remove_timed_out(at(100)).is_empty() && tracker.get_all_items().is_empty());
}

#[test]
fn an_own_item_is_newer_than_everything_known_of_its_key() {
    let mut tracker = tracker();
    let mut future = item(node("n"), M, 10);
    future.version = Version { timestamp: 5000, origin_id: 9, seq: 3 };
    tracker.add_new_blocklisted_items(at(0), [future.clone()]);
    let (_, tombstones) = tracker.remove_items(at(0), [&node("n")]);
    assert_eq!(tombstones[0].version, future.version);
    let again = tracker.issue(at(1), wish(node("n"), M, 10));
    assert_eq!(tracker.add_new_blocklisted_items(at(1), [again]).added.len(), 1);
    assert!(tracker.add_new_blocklisted_items(at(1), [future]).is_empty(), "it stays removed");
}

fn arbitrary_item() -> impl Strategy<Value = BlocklistedItem> {
    (0..3i64, 0..3u64, 0..3u64, 0..4u8, prop::bool::ANY, 1..6i64).prop_map(
        |(timestamp, origin_id, seq, cause, evacuate, end)| {
            let action = if evacuate { E } else { M };
            let mut item = item_of(node("n"), action, end * 100, &format!("cause{cause}"));
            item.version = Version { timestamp, origin_id, seq };
            item
        },
    )
}

/// An item that ended and its older tombstone, both due in one look, were counted twice.
#[test]
fn an_item_and_its_tombstone_may_end_in_one_look() {
    let mut tracker = tracker();
    tracker.add_new_blocklisted_items(at(0), [item(node("n"), M, 100)]);
    tracker.remove_items(at(1), &[node("n")]);
    let again = tracker.issue(at(2), wish(node("n"), M, 500));
    tracker.add_new_blocklisted_items(at(2), [again]);
    assert_eq!(tracker.fleet().view().blocklisted_nodes, 1);
    assert_eq!(tracker.remove_timed_out(at(1_000_000)).len(), 1);
    assert_eq!(tracker.fleet().view().blocklisted_nodes, 0);
}

proptest! {
    #[test]
    fn t18_join_is_commutative_associative_and_idempotent(
        a in arbitrary_item(), b in arbitrary_item(), c in arbitrary_item()
    ) {
        let same = |x: BlocklistedItem, y: BlocklistedItem| {
            x == y && x.previous_causes.iter().map(|p| &p.cause).collect::<BTreeSet<_>>()
                == y.previous_causes.iter().map(|p| &p.cause).collect::<BTreeSet<_>>()
        };
        prop_assert!(same(a.join(&b), b.join(&a)));
        prop_assert!(same(a.join(&b).join(&c), a.join(&b.join(&c))));
        prop_assert!(a.join(&a).previous_causes.is_empty());
        prop_assert_eq!(a.join(&a), a);
    }

    #[test]
    fn t18_any_order_and_number_of_deliveries_gives_one_state(
        items in prop::collection::vec(arbitrary_item(), 1..7),
        tombstone in prop::option::of((0..3i64, 0..3u64, 0..3u64)),
        order in prop::collection::vec(0..8usize, 0..30),
    ) {
        let tombstone = tombstone.map(|(timestamp, origin_id, seq)| Tombstone {
            key: node("n"),
            version: Version { timestamp, origin_id, seq },
            keep_until: EpochMillis(10_000),
        });
        let deliver = |tracker: &mut BlocklistTracker, which: usize| match items.get(which) {
            Some(item) => drop(tracker.add_new_blocklisted_items(at(0), [item.clone()])),
            None => drop(tracker.apply_tombstones(at(0), tombstone.as_slice())),
        };
        let (mut one, mut two) = (tracker(), tracker());
        for which in order {
            deliver(&mut one, which);
        }
        for which in 0..8 {
            deliver(&mut one, 7 - which);
            deliver(&mut two, which);
        }
        prop_assert_eq!(one.get_all_items(), two.get_all_items());
        prop_assert_eq!(one.told(&node("n")), two.told(&node("n")));
        let past = |t: &BlocklistTracker| t.item(&node("n")).map(|i| i.previous_causes.clone());
        prop_assert_eq!(past(&one), past(&two));
    }
}
