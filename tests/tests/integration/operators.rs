//! Operators in whole jobs: what comes out of them, and to which subtask it goes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tidegate::metrics::Counter;
use tidegate::{ErrorKind, OnError, sink, source};

use crate::rig::{fragile, job, sorted};

fn parsed(line: &str) -> Result<u64, tidegate::BoxError> {
    Ok(line.parse::<u64>()?)
}

#[test]
fn an_error_in_try_map_fails_the_job_naming_the_chain_and_the_cause() {
    let job = fragile("case", 2);
    let (sum, _) = sink::fold::<u64, _, _>(0u64, |sum, n| *sum += n);
    job.source("lines", source::text_str("1\nx\n")).try_map(parsed).sink("sum", sum);
    let error = job.run().expect_err("x is no number");
    assert_eq!(error.kind(), ErrorKind::User);
    let text = error.to_string();
    assert!(text.contains("source 'lines'") && text.contains("try_map: invalid digit"), "{text}");
    assert!(std::error::Error::source(&error).is_some(), "the cause is kept");
}

#[test]
fn a_policy_skips_and_counts_over_all_subtasks() {
    for parallelism in 1..=3 {
        let job = job("case", parallelism);
        let skipped = Counter::new();
        let policy = OnError::SkipAndCount(skipped.clone());
        let (sink, numbers) = sink::collect::<u64>();
        job.source("lines", source::text_str("1\nx\n2\ny\nz\n3\n"))
            .try_map_or(policy.clone(), parsed)
            .try_filter_or(
                policy.clone(),
                |n| {
                    if n == 2 { Err("not two".into()) } else { Ok(true) }
                },
            )
            .try_flat_map_or(policy, |n, out| {
                out.emit(n);
                if n == 3 { Err("three".into()) } else { Ok(()) }
            })
            .sink("numbers", sink);
        job.run().expect("bad lines are skipped");
        assert_eq!(sorted(numbers.take()), [1, 3]);
        assert_eq!(skipped.get(), 5);
    }
}

#[test]
fn what_try_map_split_refuses_comes_out_with_its_error() {
    for parallelism in 1..=3 {
        let job = job("case", parallelism);
        let (good, bad) = job
            .source("lines", source::text_str("1\nx\n2\n"))
            .map(|line| (line.to_owned(), 1u8))
            .try_map_split(|(line, _)| parsed(line));
        let (good_sink, numbers) = sink::collect::<u64>();
        let (bad_sink, errors) = sink::collect::<((String, u8), String)>();
        good.sink("good", good_sink);
        bad.sink("bad", bad_sink);
        job.run().expect("the job runs");
        assert_eq!(sorted(numbers.take()), [1, 2]);
        let expected = (("x".to_owned(), 1), "invalid digit found in string".to_owned());
        assert_eq!(errors.take(), [expected]);
    }
}

#[test]
fn each_fallible_form_fails_or_sends_what_failed_aside() {
    let three = |n: u64| if n == 3 { Err("three".into()) } else { Ok(n % 2 == 1) };
    let fails = |fail: &dyn Fn(tidegate::BoxStream<u64>)| {
        let job = fragile("case", 2);
        fail(job.source("numbers", source::range(0..6)).boxed());
        job.run().expect_err("three is refused")
    };
    let by_filter = fails(&|numbers| numbers.try_filter(three).sink("out", sink::discard()));
    let by_flat_map = fails(&|numbers| {
        let odd = move |n, out: &mut tidegate::Output<'_, u64>| {
            out.emit(n);
            three(n).map(drop)
        };
        numbers.try_flat_map(odd).sink("out", sink::discard());
    });
    for (error, operator) in [(by_filter, "try_filter"), (by_flat_map, "try_flat_map")] {
        assert_eq!(error.kind(), ErrorKind::User);
        assert!(error.to_string().contains(&format!("{operator}: three")), "{error}");
    }

    for parallelism in 1..=3 {
        let job = job("case", parallelism);
        let (odd, bad) = job.source("a", source::range(0..6)).try_filter_split(three);
        let (doubled, worse) = odd.try_flat_map_split(|n, out| {
            out.emit(n);
            out.emit(if n == 5 { return Err("five".into()) } else { 2 * n });
            Ok(())
        });
        let (out, numbers) = sink::collect::<u64>();
        let (errors_sink, errors) = sink::collect::<(u64, String)>();
        doubled.sink("out", out);
        bad.union(worse).sink("errors", errors_sink);
        job.run().expect("the job runs");
        assert_eq!(sorted(numbers.take()), [1, 2, 5]);
        let expected = [(3, "three"), (5, "five")].map(|(n, error)| (n, error.to_owned()));
        assert_eq!(sorted(errors.take()), expected);
    }
}

#[test]
fn inspect_sees_each_record_once_and_changes_nothing() {
    let job = job("case", 2);
    let seen = Arc::new(AtomicU64::new(0));
    let counted = seen.clone();
    let (sink, numbers) = sink::collect::<u64>();
    job.source("numbers", source::range(0..100))
        .inspect(move |n| {
            counted.fetch_add(n, Ordering::Relaxed);
        })
        .sink("numbers out", sink);
    job.run().expect("the job runs");
    assert_eq!(seen.load(Ordering::Relaxed), 4950);
    assert_eq!(sorted(numbers.take()), (0..100).collect::<Vec<_>>());
}

#[test]
fn rebalance_spreads_the_records_of_one_subtask_over_all() {
    for parallelism in 1..=3 {
        let job = job("case", parallelism);
        let (count, counts) = sink::fold::<u64, _, _>(0u64, |count, _| *count += 1);
        job.source("numbers", source::range(0..3000))
            .with_parallelism(1)
            .rebalance()
            .sink("count", count);
        job.run().expect("the job runs");
        let counts = counts.take();
        assert_eq!(counts, vec![3000 / u64::from(parallelism); parallelism as usize]);
    }
}

#[test]
fn broadcast_sends_each_record_to_every_subtask() {
    for (from, to) in [(1, 3), (2, 2), (3, 1)] {
        let job = job("case", to);
        let (sum, sums) = sink::fold::<u64, _, _>(0u64, |sum, n| *sum += n);
        job.source("numbers", source::range(0..100))
            .with_parallelism(from)
            .broadcast()
            .sink("sum", sum);
        job.run().expect("the job runs");
        assert_eq!(sums.take(), vec![4950; to as usize]);
    }
}

#[test]
fn each_chain_runs_in_as_many_subtasks_as_it_asks_for() {
    let job = job("case", 1);
    let (count, counts) = sink::fold::<(u64, u64), _, _>(0u64, |count, _| *count += 1);
    job.source("numbers", source::range(0..1000))
        .with_parallelism(2)
        .key_by(|n| n % 100)
        .count("per key")
        .with_parallelism(3)
        .rebalance()
        .with_parallelism(4)
        .sink("count", count);
    let plan = job.plan().expect("the job is right").to_string();
    let widths: Vec<_> = plan.lines().filter_map(|line| line.strip_prefix('v')).collect();
    assert!(widths[0].starts_with("0 x2:"), "{plan}");
    assert!(widths[1].starts_with("1 x3:") && widths[2].starts_with("2 x4:"), "{plan}");
    job.run().expect("the job runs");
    let counts = counts.take();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (4, 1000));
}

#[test]
fn unions_nest_and_join_streams_that_were_one() {
    for parallelism in 1..=3 {
        let job = job("case", parallelism);
        let numbers = |name: &str, from| job.source(name, source::range(from..from + 10));
        let (even, odd) = numbers("split", 0)
            .split(|n, even, odd| if n % 2 == 0 { even.emit(n) } else { odd.emit(n * 100) });
        let united = even
            .union(odd)
            .union(numbers("a", 1000).union(numbers("b", 2000).rebalance()))
            .union(numbers("c", 3000).key_by(|n| n).count("c count").map(|(n, _)| n));
        let (sink, collected) = sink::collect::<u64>();
        united.sink("out", sink);
        job.run().expect("the job runs");
        let mut expected: Vec<u64> =
            (0..10).map(|n| if n % 2 == 0 { n } else { n * 100 }).collect();
        expected.extend((1000..1010).chain(2000..2010).chain(3000..3010));
        assert_eq!(sorted(collected.take()), sorted(expected), "with {parallelism} subtasks");
    }
}

#[test]
fn running_sums_and_reductions_come_out_once_a_record_in_order() {
    for parallelism in 1..=3 {
        let job = job("case", parallelism);
        let (sink, collected) = sink::collect::<(u64, u64)>();
        let (sums, least) =
            job.source("numbers", source::range(0..30)).with_parallelism(1).split(|n, a, b| {
                a.emit(n);
                b.emit(n);
            });
        sums.key_by(|n| n % 3).sum("sums", |n| n).sink("out", sink);
        let (least_sink, least_out) = sink::collect::<(u64, u64)>();
        least.key_by(|n| n % 3).reduce("least", |a, b| a.min(b)).sink("least out", least_sink);
        job.run().expect("the job runs");
        let out = collected.take();
        for key in 0..3u64 {
            let of_key: Vec<u64> =
                out.iter().filter(|(of, _)| *of == key).map(|(_, sum)| *sum).collect();
            let expected: Vec<u64> = (0..10u64)
                .scan(0, |sum, i| {
                    *sum += 3 * i + key;
                    Some(*sum)
                })
                .collect();
            assert_eq!(of_key, expected);
        }
        assert!(least_out.take().iter().all(|(key, least)| key == least));
    }
}

#[test]
fn all_records_of_a_key_come_to_one_subtask_in_the_order_they_were_sent() {
    let job = job("case", 3);
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let place = seen.clone();
    let (sink, collected) = sink::collect::<(u64, u64)>();
    job.source("numbers", source::range(0..10_000))
        .with_parallelism(1)
        .key_by(|n| n % 50)
        .fold("last", 0u64, |last, n| {
            assert!(n >= *last, "{n} came after {last}");
            *last = n;
        })
        .inspect(move |(key, _)| {
            let thread = std::thread::current().id();
            let mut seen = place.lock().unwrap_or_else(PoisonError::into_inner);
            seen.insert((key, format!("{thread:?}")));
        })
        .sink("out", sink);
    job.run().expect("the job runs");
    assert_eq!(collected.take().len(), 10_000);
    assert_eq!(seen.lock().expect("nobody panicked").len(), 50);
}
