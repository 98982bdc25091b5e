//! Another parallelism with records in flight: they follow their keys, and exchanges decide by themselves.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tidegate::{ErrorKind, Job, sink};

use crate::rig::{
    Numbered, Oracle, Streams, Valve, cancel, check_all, checkpoint, durable, ended, in_order,
    kept, wait_full, wait_until,
};

/// How a job of these streams is written down before its sink.
type Written = fn(&Job, &[Streams], &Oracle, u32, sink::Collect<Numbered>, &Valve);

/// Takes a checkpoint of a job that stands before a closed sink, and goes on from it with another width. The narrower
/// vertices, if there are any, have these widths too.
fn rescaled(written: Written, sources: &[Streams], from: u32, to: u32, default: Option<u32>) {
    let what = format!("{from} to {to}");
    let dir = tempfile::tempdir().expect("a folder");
    let (oracle, valve) = (Oracle::default(), Valve::closed());
    let (sink, collected) = kept();
    let first = durable("rescale", default.unwrap_or(from), dir.path(), &[]);
    written(&first, sources, &oracle, from, sink.clone(), &valve);
    let handle = first.spawn().expect("it starts");
    wait_full(&sources[0], &handle);
    let id = checkpoint(&handle, &what);
    cancel(handle);
    let spilled = spilled_bytes(dir.path(), id.0);
    assert!(spilled > 0, "{what}: nothing was in flight");

    valve.open();
    let mut second = durable("rescale", default.unwrap_or(to), dir.path(), &[]);
    written(&second, sources, &oracle, to, sink, &valve);
    second.resume(true);
    ended(second.spawn().unwrap_or_else(|error| panic!("{what}: {error}")), &what);
    oracle.check(&what);
    let mut expected: Vec<_> = sources.iter().flat_map(Streams::all).collect();
    expected.sort_unstable();
    check_all(collected.take(), &expected, &what);
}

/// How large the spill file of a checkpoint is.
fn spilled_bytes(dir: &Path, id: u64) -> u64 {
    fs::metadata(dir.join(format!("chk-{id}/spill-0"))).map_or(0, |metadata| metadata.len())
}

#[test]
fn it_03_records_in_flight_follow_their_keys_to_another_parallelism() {
    let chain: Written = |job, sources, oracle, _, sink, valve| {
        let first = in_order(job.source("numbers", sources[0].clone()), "first", oracle);
        in_order(first, "second", oracle).sink("kept", valve.before(sink));
    };
    for (from, to) in
        [(1, 2), (2, 3), (3, 7), (4, 8), (20, 21), (2, 1), (3, 2), (7, 3), (8, 4), (21, 20), (3, 3)]
    {
        rescaled(chain, &[Streams::even(24, 300)], from, to, None);
    }
    let several: Written = |job, sources, oracle, _, sink, valve| {
        let a = in_order(job.source("a", sources[0].clone()), "of a", oracle);
        let b = in_order(job.source("b", sources[1].clone()), "of b", oracle);
        in_order(a.union(b), "both", oracle).sink("kept", valve.before(sink));
    };
    let united: Written = |job, sources, oracle, _, sink, valve| {
        let sources = [("a", &sources[0]), ("b", &sources[1])];
        let [a, b] = sources.map(|(name, source)| job.source(name, source.clone()));
        in_order(a.union(b), "both", oracle).sink("kept", valve.before(sink));
    };
    for (from, to) in [(2, 3), (3, 2), (4, 7)] {
        let sources = [Streams::even(12, 200), Streams::even(12, 200).named_from(100)];
        rescaled(several, &sources, from, to, None);
        rescaled(united, &sources, from, to, None);
    }
}

#[test]
fn it_04_vertices_of_other_widths_than_their_producers_are_rescaled() {
    let of_width: Written = |job, sources, oracle, width, sink, valve| {
        let first = in_order(job.source("numbers", sources[0].clone()), "first", oracle);
        in_order(first, "second", oracle).with_parallelism(width).sink("kept", valve.before(sink));
    };
    for (from, to) in [(12, 7), (7, 12), (5, 3), (3, 5)] {
        rescaled(of_width, &[Streams::even(24, 300)], from, to, Some(4));
        // With little in flight: the source waits.
        let little = Streams::even(24, 300);
        little.limit(3);
        rescaled_while_waiting(of_width, &little, from, to);
    }
    for (from, to) in [(7, 2), (2, 7), (5, 2), (2, 5), (3, 2)] {
        rescaled_with_copies(from, to);
    }
}

/// As [`rescaled`], but the sources give a few records at first and all later.
fn rescaled_while_waiting(written: Written, streams: &Streams, from: u32, to: u32) {
    let what = format!("{from} to {to} with little in flight");
    let dir = tempfile::tempdir().expect("a folder");
    let (oracle, valve) = (Oracle::default(), Valve::closed());
    let (sink, collected) = kept();
    let first = durable("rescale", 4, dir.path(), &[]);
    written(&first, std::slice::from_ref(streams), &oracle, from, sink.clone(), &valve);
    let handle = first.spawn().expect("it starts");
    wait_full(streams, &handle);
    checkpoint(&handle, &what);
    cancel(handle);
    valve.open();
    streams.limit(u64::MAX);
    let mut second = durable("rescale", 4, dir.path(), &[]);
    written(&second, std::slice::from_ref(streams), &oracle, to, sink, &valve);
    second.resume(true);
    ended(second.spawn().unwrap_or_else(|error| panic!("{what}: {error}")), &what);
    oracle.check(&what);
    check_all(collected.take(), &streams.all(), &what);
}

/// A keyed and a rebalanced input beside a broadcast one, whose records come as often as there are subtasks.
fn rescaled_with_copies(from: u32, to: u32) {
    let what = format!("{from} to {to} with copies");
    let dir = tempfile::tempdir().expect("a folder");
    let oracle = Oracle::default();
    let (sink, collected) = kept();
    let data = Streams::even(12, 400);
    let control = Streams::even(3, 100).named_from(900);
    control.limit(50);
    data.limit(200);
    let write = |job: &Job, width| {
        let keyed = in_order(job.source("data", data.clone()), "of data", &oracle);
        keyed
            .rebalance()
            .union(job.source("control", control.clone()).broadcast())
            .with_parallelism(width)
            .sink("kept", sink::paced(sink.clone(), 100_000));
    };
    let first = durable("copies", 3, dir.path(), &[]);
    write(&first, from);
    let handle = first.spawn().expect("it starts");
    checkpoint(&handle, &what);
    cancel(handle);
    data.limit(u64::MAX);
    control.limit(u64::MAX);
    let mut second = durable("copies", 3, dir.path(), &[]);
    write(&second, to);
    second.resume(true);
    ended(second.spawn().unwrap_or_else(|error| panic!("{what}: {error}")), &what);
    oracle.check(&what);

    let (copies, data_found): (Vec<_>, Vec<_>) =
        collected.take().into_iter().partition(|(stream, _, _)| *stream >= 900);
    check_all(data_found, &data.all(), &what);
    let mut counts: BTreeMap<Numbered, u32> = BTreeMap::new();
    for record in copies {
        *counts.entry(record).or_default() += 1;
    }
    assert_eq!(counts.len(), control.all().len(), "{what}");
    for stream in 900..903 {
        let of_stream = counts.iter().filter(|((of, _, _), _)| *of == stream);
        let widths: Vec<u32> = of_stream.map(|(_, count)| *count).collect();
        let before = widths.iter().take_while(|width| **width == from).count();
        let are_whole = widths[before..].iter().all(|width| *width == to);
        assert!(are_whole, "{what}: copies of stream {stream}: {widths:?}");
    }
}

#[test]
fn it_11_a_task_with_inputs_that_can_be_overtaken_beside_others_is_rescaled() {
    // Restoring evaluated what an exchange without records in flight could not do, and refused.
    for (from, to) in [(2, 3), (3, 2), (3, 3), (1, 4)] {
        let what = format!("{from} to {to}");
        let dir = tempfile::tempdir().expect("a folder");
        let oracle = Oracle::default();
        let (sink, collected) = kept();
        let (keyed, spread) = (Streams::even(12, 400), Streams::even(12, 400).named_from(100));
        let write = |job: &Job| {
            // One vertex with a keyed and a rebalanced input; in front of it an edge that is overtaken.
            let first = in_order(job.source("keyed", keyed.clone()), "first", &oracle);
            let second = in_order(first, "second", &oracle);
            second
                .union(job.source("spread", spread.clone()).rebalance())
                .sink("kept", sink::paced(sink.clone(), 20_000));
        };
        let first = durable("mixed", from, dir.path(), &[]);
        write(&first);
        let handle = first.spawn().expect("it starts");
        let id = checkpoint(&handle, &what);
        cancel(handle);
        let folder = dir.path().join(format!("chk-{}", id.0));
        assert!(folder.join("MANIFEST").exists(), "{what}");
        let mut second = durable("mixed", to, dir.path(), &[]);
        write(&second);
        second.resume(true);
        ended(second.spawn().unwrap_or_else(|error| panic!("{what}: {error}")), &what);
        oracle.check(&what);
        let expected = [keyed.all(), spread.all()].concat();
        check_all(collected.take(), &expected, &what);
    }
}

#[test]
fn k33_each_exchange_decides_by_itself_whether_what_was_in_flight_can_be_dealt_out() {
    // A task without state between two keyed exchanges; on one of the edges records can't be dealt out by key.
    let write = |job: &Job, streams: &Streams, oracle: &Oracle, sink: _, valve: &Valve| {
        let first = in_order(job.source("numbers", streams.clone()), "first", oracle);
        let spread = first.rebalance().map(|record| record);
        spread.key_by(|(stream, _, _)| stream).count("counts").sink("kept", valve.before(sink));
    };
    for (any_edge, to, is_refused) in [("false", 3, false), ("true", 2, false), ("true", 3, true)] {
        let what = format!("any edge: {any_edge}, 2 to {to}");
        let dir = tempfile::tempdir().expect("a folder");
        let (oracle, valve) = (Oracle::default(), Valve::closed());
        let streams = Streams::even(12, 300);
        // The last numbers come after the rescale, or the job may end before its checkpoint.
        streams.limit(299);
        let (sink, collected) = sink::collect::<(u64, u64)>();
        let options = [("checkpoint.unaligned.any-edge", any_edge)];
        let first = durable("per exchange", 2, dir.path(), &options);
        write(&first, &streams, &oracle, sink.clone(), &valve);
        let handle = first.spawn().expect("it starts");
        wait_full(&streams, &handle);
        if any_edge == "false" {
            // The edge that must not be overtaken brings its barrier when its records have been read.
            valve.open();
        }
        checkpoint(&handle, &what);
        cancel(handle);
        valve.open();
        streams.limit(u64::MAX);
        let mut second = durable("per exchange", to, dir.path(), &options);
        write(&second, &streams, &oracle, sink, &valve);
        second.resume(true);
        if is_refused {
            let handle = second.spawn().expect("it starts");
            wait_until("the refusal", &handle, || handle.state().is_over());
            let error = handle.join().expect_err("records in flight can't be dealt out");
            assert_eq!(error.kind(), ErrorKind::Checkpoint, "{what}: {error}");
            assert!(error.to_string().contains("first"), "{what} names the edge: {error}");
            continue;
        }
        ended(second.spawn().unwrap_or_else(|error| panic!("{what}: {error}")), &what);
        oracle.check(&what);
        let mut found = collected.take();
        found.sort_unstable();
        let expected: Vec<_> =
            (0..12).flat_map(|stream| (1..=300).map(move |count| (stream, count))).collect();
        let missing: Vec<_> = expected.iter().filter(|record| !found.contains(record)).collect();
        assert!(found == expected, "{what}: {} records, without {missing:?}", found.len());
    }
}
