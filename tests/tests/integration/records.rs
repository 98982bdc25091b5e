//! Records of all shapes through exchanges, up to the largest that is allowed.

use bytes::Bytes;
use tidegate::{Data, ErrorKind, sink, source};

use crate::rig::{fragile, job, set, sorted};

#[derive(Clone, Copy, Data, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point(i32, i32);

#[derive(Clone, Data, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    Empty,
    Named(String),
    Line { from: Point, to: Point },
    Path(Vec<Point>, Option<u8>),
}

fn shape(i: u64) -> Shape {
    let point = Point(i as i32, -(i as i32));
    match i % 4 {
        0 => Shape::Empty,
        1 => Shape::Named("n".repeat(i as usize % 100)),
        2 => Shape::Line { from: point, to: Point(0, 0) },
        _ => Shape::Path(vec![point; i as usize % 20], i.is_multiple_of(3).then_some(7)),
    }
}

#[derive(Clone, Data, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Everything {
    id: u64,
    maybe: Option<String>,
    bytes: Bytes,
    shape: Shape,
    list: Vec<u32>,
    pair: (bool, (char8::Letter, u16)),
}

mod char8 {
    use tidegate::Data;

    /// A record of another module.
    #[derive(Clone, Copy, Data, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum Letter {
        A,
        B,
    }
}

fn everything(id: u64) -> Everything {
    use char8::Letter;
    Everything {
        id,
        maybe: id.is_multiple_of(2).then(|| format!("even {id}")),
        bytes: Bytes::from(vec![id as u8; id as usize % 50]),
        shape: shape(id),
        list: (0..id as u32 % 10).collect(),
        pair: (
            id.is_multiple_of(5),
            (if id.is_multiple_of(3) { Letter::A } else { Letter::B }, id as u16),
        ),
    }
}

#[test]
fn derived_records_of_all_shapes_cross_every_kind_of_exchange_unchanged() {
    const N: u64 = 3000;
    for parallelism in 1..=3 {
        let job = job("case", parallelism);
        let (sink, collected) = sink::collect::<Everything>();
        job.source("all", source::generate(N, everything))
            .rebalance()
            .boxed()
            .rebalance()
            .sink("out", sink);
        job.run().expect("the job runs");
        assert_eq!(sorted(collected.take()), (0..N).map(everything).collect::<Vec<_>>());
    }
}

#[test]
fn derived_records_cross_a_keyed_exchange_unchanged() {
    /// The length of its text: what differs shows.
    fn length(record: impl std::fmt::Debug) -> u64 {
        format!("{record:?}").len() as u64
    }
    for parallelism in 1..=3 {
        let job = job("case", parallelism);
        let (sink, collected) = sink::collect::<(u64, u64)>();
        job.source("all", source::generate(3000, everything))
            .key_by(|record| record.id)
            .fold("length", 0u64, |sum, record| *sum += length(Everything::own(record)))
            .sink("out", sink);
        job.run().expect("the job runs");
        let expected: Vec<_> = (0..3000).map(|id| (id, length(everything(id)))).collect();
        assert_eq!(sorted(collected.take()), expected);
    }
}

#[test]
fn p07_records_without_bytes_count_as_records() {
    let job = job("case", 2);
    let (count, counts) = sink::fold::<(), _, _>(0u64, |count, ()| *count += 1);
    job.source("units", source::generate(10_000, |_| ())).rebalance().sink("count", count);
    job.run().expect("the job runs");
    assert_eq!(counts.take().iter().sum::<u64>(), 10_000);
}

#[test]
fn records_longer_than_a_segment_arrive_whole() {
    for parallelism in 1..=3 {
        let mut job = job("case", parallelism);
        set(&mut job, "buffer.segment-bytes", "4KiB");
        let (sink, collected) = sink::collect::<(String, u64)>();
        let text = |i: u64| "x".repeat(100_000 + i as usize);
        job.source("long", source::generate(40, text))
            .key_by_ref::<String>(|text| *text)
            .count("n")
            .sink("out", sink);
        job.run().expect("the job runs");
        let out = sorted(collected.take());
        assert!(out.iter().all(|(text, n)| *n == 1 && text.bytes().all(|b| b == b'x')));
        let lengths: Vec<_> = out.iter().map(|(text, _)| text.len()).collect();
        assert_eq!(lengths, (100_000..100_040).collect::<Vec<_>>());
    }
}

#[test]
fn p09_a_record_beyond_the_limit_fails_the_task_naming_size_limit_and_operator() {
    for (bytes, fits) in [(60_000, true), (70_000, false)] {
        let mut job = fragile("case", 2);
        set(&mut job, "record.max-bytes", "64KiB");
        set(&mut job, "buffer.segment-bytes", "8KiB");
        let (count, counts) = sink::fold::<String, _, _>(0u64, |count, _| *count += 1);
        let text = move |i: u64| "y".repeat(if i == 7 { bytes } else { 10 });
        job.source("texts", source::generate(20, text)).rebalance().sink("count", count);
        let outcome = job.run();
        if fits {
            outcome.expect("it fits");
            assert_eq!(counts.take().iter().sum::<u64>(), 20);
            continue;
        }
        let error = outcome.expect_err("it is too large");
        assert_eq!(error.kind(), ErrorKind::Record);
        let text = error.to_string();
        assert!(text.contains("source 'texts'") && text.contains("65536"), "{text}");
        assert!(text.contains("a record of 700"), "{text}");
    }
}

#[test]
fn an_emission_beyond_its_limit_fails_the_task() {
    let mut job = fragile("case", 1);
    set(&mut job, "emission.max-bytes", "1MiB");
    let (count, _) = sink::fold::<u64, _, _>(0u64, |count, _| *count += 1);
    job.source("one", source::range(0..1))
        .flat_map(|_, out| {
            for n in 0..10_000_000u64 {
                out.emit(n);
            }
        })
        .rebalance()
        .sink("count", count);
    let error = job.run().expect_err("80 MB are more than 1 MiB");
    assert_eq!(error.kind(), ErrorKind::Record);
    assert!(error.to_string().contains("emission.max-bytes"), "{error}");
}

/// Sends 200 records through two exchanges and into a state of their type, and compares what comes out of it.
fn crosses<T: Data + Ord + std::fmt::Debug>(make: impl Fn(u64) -> T + Clone + Send + 'static) {
    const N: u64 = 200;
    let job = job("shape", 2);
    let (sink, collected) = sink::collect::<(u64, T)>();
    let of = make.clone();
    job.source("all", source::generate(N, move |i| (i, of(i))))
        .rebalance()
        .key_by(|(i, _)| i)
        .process_each(
            "kept",
            |states| states.value::<T>("last"),
            |last, (i, record), cx, out| {
                cx.value(last).set(record);
                if let Some(kept) = cx.value(last).get() {
                    out.emit_ref((i, kept));
                }
                Ok(())
            },
        )
        .sink("out", sink);
    job.run().expect("the job runs");
    let expected: Vec<_> = (0..N).map(|i| (i, make(i))).collect();
    assert_eq!(sorted(collected.take()), expected);
}

#[test]
fn every_shape_of_a_record_crosses_exchanges_and_state_unchanged() {
    let text = |i: u64| "é".repeat(i as usize % 40);
    crosses(|i| i as u8);
    crosses(|i| -(i as i64));
    crosses(|i| i.is_multiple_of(3));
    crosses(|i| char::from_u32(0x1F300 + i as u32).unwrap_or('?'));
    crosses(|_| ());
    crosses(text);
    crosses(move |i| Bytes::from(text(i)));
    crosses(|i| i.is_multiple_of(2).then_some(i as u16));
    crosses(move |i| i.is_multiple_of(2).then(|| text(i)));
    crosses(|i| (0..i % 9).map(|n| n as i32 - 4).collect::<Vec<i32>>());
    crosses(|i| vec![Point(i as i32, 1); i as usize % 5]);
    crosses(|i| vec![(i, 1u8)]);
    crosses(move |i| (text(i),));
    crosses(move |i| (i, text(i)));
    crosses(move |i| (text(i), i as u8, text(i + 1)));
    crosses(move |i| (i as u8, text(i), i as u16, Some(text(i))));
    crosses(move |i| (1u8, 2u16, text(i), i, ()));
    crosses(move |i| (1u8, 2u16, text(i), i, true, 'x'));
    crosses(move |i| (text(i), text(i), text(i), i, true, 'x', -1i8));
    crosses(move |i| ((text(i), 1u8), text(i), vec![i; 3], i, true, 'x', -1i8, Some((i, text(i)))));
    crosses(shape);
    crosses(everything);
}
