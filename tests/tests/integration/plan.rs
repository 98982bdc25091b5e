//! What `Job::build` refuses before anything starts, and what `Job::plan` shows.

use tidegate::config::Origin;
use tidegate::{Config, ErrorKind, Job, sink, source};

use crate::rig::{job, set};

fn count<T: tidegate::Data>()
-> sink::Fold<T, u64, impl for<'a> FnMut(&mut u64, T::Ref<'a>) + Clone + Send> {
    sink::fold::<T, _, _>(0u64, |n: &mut u64, _: T::Ref<'_>| *n += 1).0
}

/// Builds a job that is wrong and checks that the error says so.
fn refused(what: &str, write: impl Fn(&mut Job)) {
    let mut job = job("wrong", 2);
    write(&mut job);
    let error = job.build().expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains(what), "{error}");
    assert!(job.spawn().is_err(), "nothing is started");
}

#[test]
fn names_are_unique_and_are_names() {
    refused("the name 'x' is used twice", |job| {
        job.source("x", source::range(0..1)).sink("x", count());
    });
    refused("the name 'a' is used twice", |job| {
        job.source("a", source::range(0..1)).sink("b", count());
        job.source("a", source::range(0..1)).sink("c", count());
    });
    refused("\"\" is no name", |job| {
        job.source("", source::range(0..1)).sink("b", count());
    });
    let error = Job::new("").build().expect_err("a job has a name");
    assert!(error.to_string().contains("1 to 200 characters"), "{error}");
}

#[test]
fn streams_end_somewhere() {
    refused("the job has no sink", |_| {});
    refused("the stream behind 'source 'a'", |job| {
        let _ = job.source("a", source::range(0..1)).rebalance();
    });
    refused("a side output ends nowhere", |job| {
        let (main, _side) = job.source("a", source::range(0..1)).split(|n, main, side| {
            main.emit(n);
            side.emit(n);
        });
        main.sink("b", count());
    });
    refused("the stream that fills it ends nowhere", |job| {
        let (_main, side) = job.source("a", source::range(0..1)).split(|n, main, side| {
            main.emit(n);
            side.emit(n);
        });
        side.sink("b", count());
    });
}

#[test]
fn parallelism_is_possible_and_does_not_contradict_itself() {
    refused("different parallelisms are asked for: {2, 3}", |job| {
        let a = job.source("a", source::range(0..1)).with_parallelism(2);
        let b = job.source("b", source::range(0..1)).with_parallelism(3);
        a.union(b).sink("c", count());
    });
    for (parallelism, what) in [(0, "is 0; it is at least 1"), (10_000, "allows 128")] {
        refused(what, |job| {
            let a = job.source("a", source::range(0..1)).with_parallelism(parallelism);
            a.sink("b", count());
        });
    }
    refused("parallelism.default", |job| {
        set(job, "parallelism.default", "10000");
        job.source("a", source::range(0..1)).sink("b", count());
    });
}

#[test]
fn options_are_known_and_make_sense() {
    refused("checkpoint.interval", |job| {
        set(job, "checkpoint.interval", "0");
        job.source("a", source::range(0..1)).sink("b", count());
    });
    refused("record.max-bytes", |job| {
        set(job, "record.max-bytes", "1KiB");
        job.source("a", source::range(0..1)).sink("b", count());
    });
    let unknown = Config::default().set("checkpoint.intervall", "1s", Origin::Code);
    let text = unknown.expect_err("there is none").to_string();
    assert!(
        text.contains("checkpoint.intervall") && text.contains("checkpoint.interval"),
        "{text}"
    );
    let none = Config::default().set("parallelism.default", "0", Origin::Code);
    assert!(none.expect_err("0 is no parallelism").to_string().contains("parallelism.default"));
}

#[test]
fn windows_have_a_size() {
    use tidegate::time::Windows;
    refused("a window's size", |job| {
        let windows = Windows::tumbling(std::time::Duration::ZERO);
        job.source("a", source::range(0..1))
            .key_by(|n| n)
            .window(windows, |n| n as i64)
            .count("w")
            .sink("b", count());
    });
}

#[test]
fn a_plan_shows_chains_edges_and_parallelism() {
    let job = job("plan", 2);
    let (good, bad) = job
        .source("lines", source::text_str("1\n"))
        .with_parallelism(1)
        .filter(|line| !line.is_empty())
        .try_map_split(|line| Ok(line.parse::<u64>()?));
    bad.sink("bad \"lines\"", count());
    let numbers = job.source("numbers", source::range(0..9)).map(|n| n + 1).rebalance();
    let counted = good.key_by(|n| n).count("per number").map(|(n, _)| n);
    counted.union(numbers).sink("out", count());
    job.build().expect("the job is right");
    let plan = job.plan().expect("the job is right");
    let text = "\
v0 x1: side output > sink 'bad \"lines\"' > source 'lines' > filter > split
  -> v2 (key_by)
v1 x2: source 'numbers' > map
  -> v2 (rebalance)
v2 x2: count 'per number' > map > union > sink 'out'
";
    let dot = "\
digraph job {
  rankdir=LR;
  node [shape=box];
  v0 [label=\"side output > sink 'bad \\\"lines\\\"' > source 'lines' > filter > split x1\"];
  v1 [label=\"source 'numbers' > map x2\"];
  v2 [label=\"count 'per number' > map > union > sink 'out' x2\"];
  v1 -> v2 [label=\"rebalance\"];
  v0 -> v2 [label=\"key_by\"];
}
";
    assert_eq!((plan.to_string().as_str(), plan.dot().as_str()), (text, dot));
}
