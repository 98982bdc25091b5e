//! Typed state under a current key against a model, its restore to other parallelisms, and timers.
#![allow(clippy::disallowed_methods, reason = "a test starts the thread that writes a snapshot")]

use std::collections::BTreeMap;
use std::thread;

use proptest::prelude::*;

use super::{Aggregate, KeyedSnapshot, KeyedStates, ListState, MapState, TimerDomain, ValueState};
use crate::clock::EpochMillis;
use crate::error::{ErrorKind, Result};
use crate::id::KeyGroup;
use crate::record::key::hash;
use crate::record::key_group::{KeyGroupRange, KeyGroups};
use crate::state::StateInfo;

type Blocks = Vec<(StateInfo, KeyGroupRange, Vec<u8>)>;

fn groups() -> KeyGroups {
    KeyGroups::at_least(16)
}

fn blocks(snapshot: KeyedSnapshot) -> Blocks {
    let infos = snapshot.infos().to_vec();
    let mut blocks = Blocks::new();
    let mut keep = |index: usize, range, bytes: &[u8]| {
        blocks.push((infos[index].clone(), range, bytes.to_vec()));
        Ok(())
    };
    snapshot.write(&mut keep).expect("nothing refuses a block");
    blocks
}

fn restore<K: crate::record::Key>(
    states: &mut KeyedStates<K>,
    blocks: &Blocks,
    range: KeyGroupRange,
) -> Result<()> {
    blocks.iter().try_for_each(|(info, _, bytes)| states.restore(info, bytes, range, 0))
}

/// An operator with one state of each kind that has a form of its own.
struct Operator {
    states: KeyedStates<u64>,
    value: ValueState<String>,
    list: ListState<(u32, String)>,
    map: MapState<String, u64>,
}

impl Operator {
    fn new() -> Self {
        let mut states = KeyedStates::new(groups());
        let value = states.value("value").expect("the name is new");
        let list = states.list("list").expect("the name is new");
        let map = states.map("map").expect("the name is new");
        Self { states, value, list, map }
    }

    fn content(&mut self, key: u64) -> PerKey {
        let mut at = self.states.at(hash::<u64>(key), key);
        let list = at.list(&self.list).iter().map(|(n, s)| (n, s.to_owned())).collect();
        let map: BTreeMap<_, _> =
            at.map(&self.map).iter().map(|(k, v)| (k.to_owned(), v)).collect();
        assert_eq!(at.map(&self.map).iter().count(), map.len(), "no map key comes twice");
        assert_eq!(at.map(&self.map).len(), map.len());
        PerKey { value: at.value(&self.value).get().map(str::to_owned), list, map }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct PerKey {
    value: Option<String>,
    list: Vec<(u32, String)>,
    map: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
enum Step {
    Set(String),
    Unset,
    Add(u32, String),
    SetList(Vec<String>),
    ClearList,
    Insert(String, u64),
    Remove(String),
    ClearMap,
    Snapshot,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => "[a-z]{0,40}".prop_map(Step::Set),
        2 => Just(Step::Unset),
        8 => (any::<u32>(), "[a-z]{0,20}").prop_map(|(n, s)| Step::Add(n, s)),
        1 => prop::collection::vec("[a-z]{0,20}", 0..4).prop_map(Step::SetList),
        1 => Just(Step::ClearList),
        12 => ("[a-f]{1,2}", any::<u64>()).prop_map(|(k, v)| Step::Insert(k, v)),
        8 => "[a-f]{1,2}".prop_map(Step::Remove),
        1 => Just(Step::ClearMap),
        1 => Just(Step::Snapshot),
    ]
}

const KEYS: u64 = 12;

fn apply(operator: &mut Operator, model: &mut PerKey, key: u64, step: Step) {
    let Operator { states, value, list, map } = operator;
    let mut at = states.at(hash::<u64>(key), key);
    match step {
        Step::Set(text) => {
            at.value(value).set(text.as_str());
            model.value = Some(text);
        }
        Step::Unset => {
            at.value(value).clear();
            model.value = None;
        }
        Step::Add(n, text) => {
            at.list(list).add((n, text.as_str()));
            model.list.push((n, text));
        }
        Step::SetList(texts) => {
            model.list = texts.into_iter().map(|text| (7, text)).collect();
            at.list(list).set(model.list.iter().map(|(n, text)| (*n, text.as_str())));
        }
        Step::ClearList => {
            at.list(list).clear();
            model.list.clear();
        }
        Step::Insert(k, v) => {
            at.map(map).insert(&k, v);
            assert_eq!(at.map(map).get(&k), Some(v));
            model.map.insert(k, v);
        }
        Step::Remove(k) => {
            assert_eq!(at.map(map).contains(&k), model.map.contains_key(&k));
            at.map(map).remove(&k);
            model.map.remove(&k);
        }
        Step::ClearMap => {
            at.map(map).clear();
            assert!(at.map(map).is_empty());
            model.map.clear();
        }
        Step::Snapshot => unreachable!("the caller takes it"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn typed_state_equals_its_model_and_so_does_every_snapshot(
        steps in prop::collection::vec((0..KEYS, step()), 1..1500)
    ) {
        let mut operator = Operator::new();
        let mut model = vec![PerKey::default(); KEYS as usize];
        let mut writers = Vec::new();
        for (key, step) in steps {
            if matches!(step, Step::Snapshot) {
                let snapshot = operator.states.snapshot();
                writers.push((thread::spawn(move || blocks(snapshot)), model.clone()));
            } else {
                apply(&mut operator, &mut model[key as usize], key, step);
            }
        }
        for key in 0..KEYS {
            prop_assert_eq!(&operator.content(key), &model[key as usize]);
        }
        for (n, (writer, expected)) in writers.into_iter().enumerate() {
            let blocks = writer.join().expect("writing does not panic");
            let parallelism = [1, 2, 3, 5][n % 4];
            for index in 0..parallelism {
                let range = groups().range(index, parallelism);
                let mut operator = Operator::new();
                restore(&mut operator.states, &blocks, range).expect("the blocks are whole");
                for key in 0..KEYS {
                    let is_owner = range.contains(groups().of(hash::<u64>(key)));
                    let expected = if is_owner { expected[key as usize].clone() } else { PerKey::default() };
                    prop_assert_eq!(operator.content(key), expected);
                }
            }
        }
    }

    #[test]
    fn a_changed_block_of_typed_state_never_panics(
        at in any::<prop::sample::Index>(), which in any::<prop::sample::Index>(), flip in 1u8.., cut in any::<bool>()
    ) {
        let mut operator = Operator::new();
        for key in 0..KEYS {
            let mut model = PerKey::default();
            for step in [
                Step::Set("text".into()), Step::Add(1, "one".into()), Step::Add(2, "two".into()),
                Step::Insert("k".into(), key),
            ] {
                apply(&mut operator, &mut model, key, step);
            }
            operator.states.at(hash::<u64>(key), key).timers(TimerDomain::Event).set(EpochMillis(5));
        }
        let mut blocks = blocks(operator.states.snapshot());
        let (info, _, bytes) = &mut blocks[which.index(4)];
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if cut {
            bytes.truncate(at);
        }
        let name = info.name.clone();
        let mut fresh = Operator::new();
        match restore(&mut fresh.states, &blocks, KeyGroupRange { first: 0, end: 16 }) {
            Ok(()) => (0..KEYS).for_each(|key| drop(fresh.content(key))),
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::Checkpoint);
                prop_assert_eq!(error.field(), Some(name.as_str()));
            }
        }
    }
}

#[test]
fn a_state_that_has_changed_its_type_is_refused_by_name() {
    let mut states = KeyedStates::<u64>::new(groups());
    let count = states.value::<u64>("count").expect("the name is new");
    states.at(hash::<u64>(1), 1).value(&count).set(5u64);
    let blocks = blocks(states.snapshot());
    let all = KeyGroupRange { first: 0, end: 16 };

    let mut other = KeyedStates::<u64>::new(groups());
    other.value::<String>("count").expect("the name is new");
    let error = restore(&mut other, &blocks, all).expect_err("it is refused");
    assert_eq!((error.kind(), error.field()), (ErrorKind::Checkpoint, Some("count")));
    assert!(error.to_string().contains("another type"), "{error}");

    let mut other = KeyedStates::<u64>::new(groups());
    other.list::<u64>("count").expect("the name is new");
    assert!(restore(&mut other, &blocks, all).is_err());

    let mut other = KeyedStates::<u64>::new(groups());
    let error = restore(&mut other, &blocks, all).expect_err("it is refused");
    assert!(error.to_string().contains("doesn't declare"), "{error}");
}

#[test]
fn two_states_of_one_name_are_refused() {
    let mut states = KeyedStates::<u64>::new(groups());
    states.value::<u64>("twice").expect("the name is new");
    assert_eq!(states.list::<u64>("twice").expect_err("it is refused").kind(), ErrorKind::Config);
    assert_eq!(
        states.value::<u64>("timers.event").expect_err("it is refused").kind(),
        ErrorKind::Config
    );
}

struct Mean;

impl Aggregate for Mean {
    type Input = u64;
    type Accumulator = (u64, u64);
    type Output = u64;

    fn create(&self) -> (u64, u64) {
        (0, 0)
    }
    fn add(&mut self, (count, sum): (u64, u64), value: u64) -> (u64, u64) {
        (count + 1, sum + value)
    }
    fn result(&self, (count, sum): (u64, u64)) -> u64 {
        sum / count
    }
}

#[test]
fn reducing_and_aggregating_state_combine_what_is_added() {
    let mut states = KeyedStates::<String>::new(groups());
    let mut longest = states
        .reducing("longest", |a: String, b: String| if b.len() > a.len() { b } else { a })
        .expect("it is accepted");
    let mut mean = states.aggregating("mean", Mean).expect("it is accepted");
    for (key, text) in [("a", "x"), ("b", "yy"), ("a", "xxx"), ("a", "xx")] {
        let mut at = states.at(hash::<String>(key), key);
        at.reducing(&mut longest).add(text);
        at.aggregating(&mut mean).add(text.len() as u64);
    }
    let mut at = states.at(hash::<String>("a"), "a");
    assert_eq!(at.reducing(&mut longest).get(), Some("xxx"));
    assert_eq!(at.aggregating(&mut mean).get(), Some(2));
    at.reducing(&mut longest).clear();
    assert_eq!(at.reducing(&mut longest).get(), None);
    assert_eq!(states.at(hash::<String>("b"), "b").aggregating(&mut mean).get(), Some(2));
}

#[test]
fn a_timer_set_twice_fires_once_and_a_removed_one_never() {
    let mut states = KeyedStates::<u64>::new(groups());
    let domain = TimerDomain::Event;
    for key in [3, 1, 2] {
        let mut at = states.at(hash::<u64>(key), key);
        for time in [30, 10, 30, 20] {
            at.timers(domain).set(EpochMillis(time));
        }
        at.timers(domain).remove(EpochMillis(20));
    }
    assert_eq!(states.next_due(domain), Some(EpochMillis(10)));
    assert_eq!(states.pop_due(domain, EpochMillis(9)), None);
    assert_eq!(states.pop_due(TimerDomain::Processing, EpochMillis::MAX), None);
    let fired: Vec<_> = std::iter::from_fn(|| states.pop_due(domain, EpochMillis(30))).collect();
    let times: Vec<_> = fired.iter().map(|(_, time)| time.0).collect();
    assert_eq!(times, [10, 10, 10, 30, 30, 30]);
    assert_eq!(states.next_due(domain), None);
    states.at(hash::<u64>(3), 3).timers(domain).set(EpochMillis(5));
    assert_eq!(states.pop_due(domain, EpochMillis(30)), Some((3, EpochMillis(5))));
}

#[test]
fn timers_that_are_moved_again_and_again_leave_nothing_behind() {
    let mut states = KeyedStates::<u64>::new(groups());
    for time in 0..10_000 {
        let mut at = states.at(hash::<u64>(1), 1);
        at.timers(TimerDomain::Event).set(EpochMillis(time + 1));
        at.timers(TimerDomain::Event).remove(EpochMillis(time));
    }
    assert!(states.bytes() < 100_000);
    assert_eq!(
        states.pop_due(TimerDomain::Event, EpochMillis::MAX),
        Some((1, EpochMillis(10_000)))
    );
    assert_eq!(states.pop_due(TimerDomain::Event, EpochMillis::MAX), None);
}

/// A state restored by another key's group loses its timers: each has to come back with its own key, once.
#[test]
fn p21_timers_pending_in_each_key_group_fire_once_after_rescaling_2_3_2() {
    let mut pending = BTreeMap::new();
    for key in 0..500u64 {
        pending.entry(groups().of(hash::<u64>(key))).or_insert_with(Vec::new).push(key);
    }
    assert_eq!(pending.len(), 16, "each key group has timers");
    let subtasks = |parallelism: u32| {
        (0..parallelism).map(move |index| {
            (groups().range(index, parallelism), KeyedStates::<u64>::new(groups()))
        })
    };
    let mut running: Vec<_> = subtasks(2).collect();
    for &key in pending.values().flatten() {
        let owner = groups().subtask(hash::<u64>(key), 2) as usize;
        let mut at = running[owner].1.at(hash::<u64>(key), key);
        at.timers(TimerDomain::Event).set(EpochMillis(1000 - key as i64));
        at.timers(TimerDomain::Processing).set(EpochMillis(key as i64));
    }
    for parallelism in [3, 2] {
        let written: Vec<_> =
            running.iter_mut().map(|(_, states)| blocks(states.snapshot())).collect();
        running = subtasks(parallelism).collect();
        for (range, states) in &mut running {
            for blocks in &written {
                restore(states, blocks, *range).expect("it is accepted");
            }
        }
    }
    let mut fired: BTreeMap<KeyGroup, Vec<u64>> = BTreeMap::new();
    for (range, states) in &mut running {
        let mut last = EpochMillis::MIN;
        while let Some((key, time)) = states.pop_due(TimerDomain::Event, EpochMillis::MAX) {
            let group = groups().of(hash::<u64>(key));
            assert!(range.contains(group), "a timer fires where its key's state is");
            assert!(time >= last && time == EpochMillis(1000 - key as i64));
            last = time;
            fired.entry(group).or_default().push(key);
        }
        let mut count = 0;
        while states.pop_due(TimerDomain::Processing, EpochMillis::MAX).is_some() {
            count += 1;
        }
        assert!(count > 0);
    }
    fired.values_mut().for_each(|keys| keys.sort_unstable());
    assert_eq!(fired, pending);
}
