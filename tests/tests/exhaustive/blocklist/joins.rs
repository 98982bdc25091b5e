//! What a copy is told joins: order and repetition don't matter.
//!
//! The items and removals of one node that can differ in anything that counts (version, action, end) are told to a
//! production tracker in every order, with repetitions; it must hold the same at the end.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::{Model, Property};
use tidegate::clock::EpochMillis;
use tidegate::control::blocklist::Tombstone;
use tidegate::control::blocklist::cause::Cause;
use tidegate::control::blocklist::item::{BlocklistAction, BlocklistedItem};
use tidegate::control::blocklist::tracker::BlocklistTracker;
use tidegate::control::moment::Moment;

use super::cluster::{node, tracker};
use crate::explore::explore;

/// One thing that is told.
#[derive(Clone, Debug, PartialEq, Hash)]
enum Word {
    Item(BlocklistedItem),
    Removal(Tombstone),
}

/// Tells a set of words in every order, and up to `repetitions` of them once more.
struct Telling {
    words: Vec<Word>,
    repetitions: usize,
    /// What a tracker holds that was told them in the order in which they stand.
    outcome: u64,
}

#[derive(Clone, Debug)]
struct Told {
    tracker: BlocklistTracker,
    told: BTreeSet<usize>,
    repeated: usize,
}

impl Hash for Told {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.tracker, &self.told, self.repeated).hash(state);
    }
}

impl PartialEq for Told {
    fn eq(&self, other: &Self) -> bool {
        digest(&self.tracker) == digest(&other.tracker)
            && (&self.told, self.repeated) == (&other.told, other.repeated)
    }
}

impl Model for Telling {
    type State = Told;
    type Action = usize;

    fn init_states(&self) -> Vec<Told> {
        vec![Told { tracker: started(), told: BTreeSet::new(), repeated: 0 }]
    }

    fn actions(&self, state: &Told, actions: &mut Vec<usize>) {
        let may_repeat = state.repeated < self.repetitions;
        actions.extend((0..self.words.len()).filter(|at| may_repeat || !state.told.contains(at)));
    }

    fn next_state(&self, last: &Told, word: usize) -> Option<Told> {
        let mut state = last.clone();
        tell(&mut state.tracker, &self.words[word]);
        state.repeated += usize::from(!state.told.insert(word));
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("the order does not matter", |model: &Self, state: &Told| {
            state.told.len() < model.words.len() || digest(&state.tracker) == model.outcome
        })]
    }
}

fn started() -> BlocklistTracker {
    let mut tracker = tracker(1);
    tracker.start(Moment::at_millis(0)).unwrap();
    tracker
}

fn tell(tracker: &mut BlocklistTracker, word: &Word) {
    let now = Moment::at_millis(0);
    match word {
        Word::Item(item) => drop(tracker.add_new_blocklisted_items(now, [item.clone()])),
        Word::Removal(removal) => {
            drop(tracker.apply_tombstones(now, std::slice::from_ref(removal)))
        }
    }
}

fn digest(tracker: &BlocklistTracker) -> u64 {
    let mut hasher = DefaultHasher::new();
    tracker.hash(&mut hasher);
    hasher.finish()
}

/// An item that differs from the others in nothing but these.
fn item(version: i64, action: BlocklistAction, end: i64) -> BlocklistedItem {
    let cause = Cause::new("Test", &format!("cause {version}"));
    BlocklistedItem::new(node(), EpochMillis(version), cause, action).ending_at(EpochMillis(end))
}

/// All items of these versions.
fn items(versions: std::ops::Range<i64>) -> Vec<BlocklistedItem> {
    let mut all = Vec::new();
    for version in versions {
        for action in [BlocklistAction::MarkBlocklisted, BlocklistAction::MarkAndEvacuate] {
            all.extend([100, 200].map(|end| item(version, action, end)));
        }
    }
    all
}

fn removal(version: i64, keep_until: i64) -> Word {
    let version = item(version, BlocklistAction::MarkBlocklisted, 100).version;
    Word::Removal(Tombstone { key: node(), version, keep_until: EpochMillis(keep_until) })
}

#[test]
fn any_order_of_items_and_removals_leaves_the_same() {
    let mut unique = 0;
    let all = items(0..3);
    // Each choice of three items that differ, with two removals between them.
    for first in 0..all.len() {
        for second in first + 1..all.len() {
            for third in second + 1..all.len() {
                let mut words: Vec<_> =
                    [first, second, third].map(|at| Word::Item(all[at].clone())).into();
                words.extend([removal(0, 1000), removal(1, 500)]);
                let mut tracker = started();
                words.iter().for_each(|word| tell(&mut tracker, word));
                let outcome = digest(&tracker);
                unique += crate::explore::count(Telling { words, repetitions: 1, outcome });
            }
        }
    }
    println!("joins: {unique} unique states");
    assert!(unique > 10_000, "{unique}");
}

#[test]
fn many_items_of_one_node_join_in_any_order() {
    let words: Vec<_> = items(0..2).into_iter().map(Word::Item).collect();
    let mut tracker = started();
    words.iter().for_each(|word| tell(&mut tracker, word));
    let outcome = digest(&tracker);
    let unique = explore("many items", Telling { words, repetitions: 0, outcome });
    assert!(unique > 250, "{unique}");
}

#[test]
fn joining_two_items_is_commutative_associative_and_idempotent() {
    let all = items(0..3);
    for a in &all {
        assert_eq!(a.join(a), *a);
        for b in &all {
            assert_eq!(a.join(b), b.join(a));
            for c in &all {
                assert_eq!(a.join(b).join(c), a.join(&b.join(c)));
            }
        }
    }
}
