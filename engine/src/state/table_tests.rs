//! Tables against a `BTreeMap`: under random operations, with snapshots written by another thread meanwhile.
#![allow(clippy::disallowed_methods, reason = "a test starts the thread that writes a snapshot")]

use std::collections::BTreeMap;
use std::thread;

use proptest::prelude::*;

use super::{Blob, Table, TableOptions, TableSnapshot, Value};
use crate::error::ErrorKind;
use crate::record::Key;
use crate::record::key_group::{KeyGroupRange, KeyGroups};

type Blocks = Vec<(KeyGroupRange, Vec<u8>)>;
type Model<K> = BTreeMap<K, (u64, u64)>;

fn options() -> TableOptions {
    TableOptions { initial_slots: 8, ..TableOptions::new(KeyGroups::at_least(128)) }
}

fn all() -> KeyGroupRange {
    KeyGroupRange { first: 0, end: 128 }
}

fn blocks<K: Key, V: Value>(snapshot: TableSnapshot<K, V>) -> Blocks {
    let mut blocks = Blocks::new();
    let mut keep = |range, bytes: &[u8]| {
        blocks.push((range, bytes.to_vec()));
        Ok(())
    };
    snapshot.write(&mut keep).expect("nothing refuses a block");
    blocks
}

fn content<K: Key + Ord>(table: &Table<K, (u64, u64)>) -> Model<K> {
    table.iter().map(|(key, value)| (K::own(key), *value)).collect()
}

fn restored<K: Key + Ord>(blocks: &Blocks, parallelism: u32) -> Model<K> {
    let groups = options().groups;
    let mut all = Model::new();
    for index in 0..parallelism {
        let range = groups.range(index, parallelism);
        let mut table = Table::<K, (u64, u64)>::new(options(), (0, 0));
        for (of, block) in blocks.iter().filter(|(of, _)| of.intersects(range)) {
            table.restore(block, range).expect("the block is whole");
            assert!(of.first < of.end);
        }
        for (key, value) in content(&table) {
            let group = groups.of(Table::<K, (u64, u64)>::hash(key.view()));
            assert!(range.contains(group));
            assert!(all.insert(key, value).is_none(), "a key has one owner");
        }
    }
    all
}

#[derive(Clone, Debug)]
enum Step<K> {
    Add(K),
    Remove(K),
    Snapshot,
    Join,
    Clear,
}

fn steps<K: std::fmt::Debug + Clone>(
    key: impl Strategy<Value = K> + Clone,
) -> impl Strategy<Value = Vec<Step<K>>> {
    let step = prop_oneof![
        600 => key.clone().prop_map(Step::Add),
        300 => key.prop_map(Step::Remove),
        6 => Just(Step::Snapshot),
        4 => Just(Step::Join),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(step, 1..4000)
}

/// Runs the steps on a table and on a map; each snapshot is written by a thread of its own while the steps go on.
fn run<K: Key + Ord + Clone + std::fmt::Debug + Sync>(steps: Vec<Step<K>>) {
    let mut table = Table::<K, (u64, u64)>::new(options(), (0, 7));
    let mut model = Model::<K>::new();
    let mut writers = Vec::new();
    let check = |(writer, expected): (thread::JoinHandle<Blocks>, Model<K>), parallelism| {
        let blocks = writer.join().expect("writing does not panic");
        assert_eq!(restored::<K>(&blocks, parallelism), expected);
    };
    for (n, step) in steps.into_iter().enumerate() {
        match step {
            Step::Add(key) => {
                let hash = Table::<K, (u64, u64)>::hash(key.view());
                let value = match n % 2 {
                    0 => table.entry(hash, key.view()),
                    _ => table.entry_prefetched(hash, key.view()),
                };
                value.0 += n as u64;
                model.entry(key).or_insert((0, 7)).0 += n as u64;
            }
            Step::Remove(key) => {
                let hash = Table::<K, (u64, u64)>::hash(key.view());
                assert_eq!(table.remove(hash, key.view()), model.remove(&key));
            }
            Step::Snapshot => {
                let snapshot = table.snapshot();
                assert_eq!(snapshot.len(), model.len());
                writers.push((thread::spawn(move || blocks(snapshot)), model.clone()));
            }
            Step::Join => writers.drain(..).for_each(|writer| check(writer, 1)),
            Step::Clear => {
                table.clear_keep_memory();
                model.clear();
            }
        }
        assert_eq!(table.len(), model.len());
    }
    assert_eq!(content(&table), model);
    for (index, writer) in writers.into_iter().enumerate() {
        check(writer, [1, 2, 3, 5][index % 4]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_table_of_numbers_equals_its_model_and_so_does_every_snapshot(
        steps in steps(0u64..1500)
    ) {
        run(steps);
    }

    #[test]
    fn a_table_of_strings_equals_its_model_and_so_does_every_snapshot(
        steps in steps("[ab]{0,3}|long key of more than fifteen bytes [0-9]{0,2}")
    ) {
        run(steps);
    }

    #[test]
    fn a_truncated_or_changed_block_is_an_error_or_another_state_but_no_panic(
        keys in prop::collection::vec("[a-z]{0,30}", 1..50), at in any::<prop::sample::Index>(), flip in 1u8..
    ) {
        let mut table = Table::<String, (u64, u64)>::new(options(), (0, 0));
        for key in &keys {
            table.entry(Table::<String, (u64, u64)>::hash(key), key).0 += 1;
        }
        let mut block = blocks(table.snapshot()).remove(0).1;
        let fresh = || Table::<String, (u64, u64)>::new(options(), (0, 0));
        let at = at.index(block.len());
        if let Err(error) = fresh().restore(&block[..at], all()) {
            prop_assert_eq!(error.kind(), ErrorKind::Checkpoint);
        }
        block[at] ^= flip;
        if let Err(error) = fresh().restore(&block, all()) {
            prop_assert_eq!(error.kind(), ErrorKind::Checkpoint);
        }
    }
}

#[test]
fn a_table_that_has_grown_over_many_segments_keeps_every_key() {
    let mut table = Table::<u64, (u64, u64)>::new(options(), (0, 0));
    for round in 0..2 {
        for key in 0..300_000u64 {
            let value = table.entry(Table::<u64, (u64, u64)>::hash(key), key);
            *value = (value.0 + 1, key);
            assert_eq!(value.0, round + 1);
        }
    }
    assert_eq!(table.len(), 300_000);
    let blocks = blocks(table.snapshot());
    assert!(blocks.iter().all(|(_, block)| block.len() <= super::BLOCK_BYTES_MAX));
    for parallelism in [1, 2, 3, 5] {
        assert_eq!(restored::<u64>(&blocks, parallelism), content(&table));
    }
    let mut reserved = Table::<u64, (u64, u64)>::new(options(), (0, 0));
    reserved.reserve(300_000, all());
    let bytes = reserved.bytes();
    for (_, block) in &blocks {
        reserved.restore(block, all()).expect("the block is whole");
    }
    assert_eq!(content(&reserved), content(&table));
    assert_eq!(reserved.bytes(), bytes, "nothing had to grow");
    let mut ahead = Table::<u64, (u64, u64)>::new(options(), (0, 0));
    let mut behind = blocks[1..].iter().map(|(_, block)| block.len() as u64).sum::<u64>();
    let mut grown = Vec::new();
    for (_, block) in &blocks {
        ahead.restore_first(block, all(), std::mem::take(&mut behind)).expect("is whole");
        grown.push(ahead.bytes());
    }
    assert_eq!(content(&ahead), content(&table));
    assert_eq!(grown.first(), grown.last(), "nothing had to grow after the first block");
}

#[test]
fn a_first_block_of_short_entries_does_not_make_room_for_more_than_the_others_can_hold() {
    let mut table = Table::<String, (u64, u64)>::new(options(), (0, 0));
    for key in (0..100).map(|n| n.to_string()) {
        table.entry(Table::<String, (u64, u64)>::hash(&key), &key);
    }
    let blocks = blocks(table.snapshot());
    let behind = 64 << 20;
    let mut restored = Table::<String, (u64, u64)>::new(options(), (0, 0));
    restored.restore_first(&blocks[0].1, all(), behind).expect("the block is whole");
    assert!((behind as usize..10 * behind as usize).contains(&restored.bytes()));
}

#[test]
fn a_snapshot_is_exact_while_the_table_splits_and_shrinks_under_it() {
    let hash = Table::<u64, (u64, u64)>::hash;
    let mut table = Table::<u64, (u64, u64)>::new(options(), (0, 0));
    let mut model = Model::new();
    let mut writers = Vec::new();
    for round in 0..5u64 {
        for key in round * 15_000..round * 15_000 + 30_000 {
            table.entry(hash(key), key).0 += round + 1;
            model.entry(key).or_insert((0, 0)).0 += round + 1;
        }
        let snapshot = table.snapshot();
        writers.push((thread::spawn(move || blocks(snapshot)), model.clone()));
        for key in (round * 15_000..).step_by(3).take(5_000) {
            assert_eq!(table.remove(hash(key), key), model.remove(&key));
        }
    }
    for (n, (writer, expected)) in writers.into_iter().enumerate() {
        let blocks = writer.join().expect("writing does not panic");
        assert!(restored::<u64>(&blocks, [1, 2, 3, 5][n % 4]) == expected, "snapshot {n}");
    }
    assert!(content(&table) == model);
}

#[test]
fn a_snapshot_of_long_values_is_exact_while_they_are_replaced_and_their_segments_split() {
    let hash = Table::<u64, Blob>::hash;
    let value =
        |key: u64, round: u64| vec![(key + round) as u8; 5_000 + (key * 37 % 9_000) as usize];
    let mut table = Table::<u64, Blob>::new(options(), Blob::default());
    let mut writers = Vec::new();
    for round in 0..4 {
        for key in 0..200 + 100 * round {
            table.set_bytes(hash(key), key, &value(key, round));
        }
        let snapshot = table.snapshot();
        writers.push(thread::spawn(move || blocks(snapshot)));
        for key in 0..100 {
            table.append_bytes(hash(key), key, b"appended while it is written");
        }
    }
    assert!(table.snapshot().changed_since(0).len() > 4, "the arenas were split");
    for (round, writer) in (0..).zip(writers) {
        let mut restored = Table::<u64, Blob>::new(options(), Blob::default());
        for (_, block) in writer.join().expect("writing does not panic") {
            restored.restore(&block, all()).expect("the block is whole");
        }
        assert_eq!(restored.len() as u64, 200 + 100 * round);
        for key in 0..200 + 100 * round {
            assert_eq!(restored.bytes_of(hash(key), key), Some(&value(key, round)[..]));
        }
    }
}

#[test]
fn a_cancelled_snapshot_leaves_the_next_one_exact() {
    let hash = Table::<u64, (u64, u64)>::hash;
    let mut table = Table::<u64, (u64, u64)>::new(options(), (0, 0));
    for key in 0..1000 {
        table.entry(hash(key), key).0 = 1;
    }
    let (cancelled, kept) = (table.snapshot(), table.snapshot());
    for key in 0..1000 {
        table.entry(hash(key), key).0 = 2;
    }
    drop(cancelled);
    let last = table.snapshot();
    for key in 0..1000 {
        table.entry(hash(key), key).0 = 3;
    }
    assert!(restored::<u64>(&blocks(last), 1).values().all(|value| value.0 == 2));
    assert!(restored::<u64>(&blocks(kept), 1).values().all(|value| value.0 == 1));
    assert!(content(&table).values().all(|value| value.0 == 3));
}

#[test]
fn a_part_that_was_not_written_since_a_snapshot_is_not_reported_as_changed() {
    let mut table = Table::<u64, (u64, u64)>::new(options(), (0, 0));
    for key in 0..100_000 {
        table.entry(Table::<u64, (u64, u64)>::hash(key), key).0 = 1;
    }
    let first = table.snapshot();
    assert!(first.changed_since(0).iter().all(|part| part.has_changed));
    drop(first);
    table.entry(Table::<u64, (u64, u64)>::hash(5), 5).0 = 2;
    let second = table.snapshot();
    table.entry(Table::<u64, (u64, u64)>::hash(6), 6).0 = 2;
    let parts = second.changed_since(1);
    assert!(parts.len() > 8);
    assert_eq!(parts.iter().filter(|part| part.has_changed).count(), 1);
    let mut written = 0;
    let mut count = |part: super::Part, bytes: &[u8]| {
        assert!(part.has_changed);
        written += bytes.len() / 24;
        Ok(())
    };
    second.write_since(1, &mut count).expect("nothing refuses a block");
    assert!(written > 0 && written < 10_000);
    let third = table.snapshot();
    assert_eq!(third.changed_since(2).iter().filter(|part| part.has_changed).count(), 1);
    assert!((1..=2).contains(&third.changed_since(1).iter().filter(|p| p.has_changed).count()));
}
