//! Natural user code: each case is written as a user would at first, compiles by inference, and gives the right values
//! with one, two and three subtasks.

use tidegate::{BoxStream, Chain, Data, Job, Stream, sink, source};

use crate::rig::{job, sorted};

#[derive(Clone, Data, Debug, PartialEq)]
pub(crate) struct Bid {
    auction: u64,
    price: u64,
    url: String,
}

/// A source as a function: what a user's library would offer.
fn bids(job: &Job) -> Stream<Bid, impl Chain<Out = Bid> + use<>> {
    let bid = |i: u64| Bid { auction: i % 7, price: i, url: format!("https://example/{i}") };
    job.source("bids", source::generate(1000, bid))
}

/// Runs `case` at each width and compares what it collects, sorted.
fn at_each_width<R: Ord + std::fmt::Debug>(
    case: impl Fn(&Job) -> Box<dyn FnOnce() -> Vec<R>>,
    expected: &[R],
) {
    for parallelism in 1..=3 {
        let job = job("case", parallelism);
        let take = case(&job);
        job.run().expect("the job runs");
        assert_eq!(sorted(take()), expected, "with {parallelism} subtasks");
    }
}

/// Ends a stream in a sink and tells how to take what came.
fn taken<T: Data + Ord, C: Chain<Out = T>>(stream: Stream<T, C>) -> Box<dyn FnOnce() -> Vec<T>> {
    let (sink, collected) = sink::collect::<T>();
    stream.sink("out", sink);
    Box::new(move || collected.take())
}

fn summed<C: Chain<Out = u64>>(stream: Stream<u64, C>) -> Box<dyn FnOnce() -> Vec<u64>> {
    let (sum, total) = sink::fold::<u64, _, _>(0u64, |sum, n| *sum += n);
    stream.sink("sum", sum);
    Box::new(move || vec![total.take().into_iter().sum()])
}

#[test]
fn derived_structs_are_filtered_keyed_and_folded() {
    at_each_width(
        |job| {
            let best = bids(job)
                .filter(|bid| bid.price % 2 == 0 && bid.url.starts_with("https"))
                .key_by(|bid| bid.auction)
                .fold("best", 0u64, |best, bid| *best = bid.price.max(*best));
            let (sink, seen) = sink::fold::<(u64, u64), _, _>(
                std::collections::BTreeMap::new(),
                |seen: &mut std::collections::BTreeMap<u64, u64>, (auction, best)| {
                    let known = seen.entry(auction).or_default();
                    *known = best.max(*known);
                },
            );
            best.sink("seen", sink);
            Box::new(move || seen.take().into_iter().flatten().collect())
        },
        &[(0, 994), (1, 988), (2, 996), (3, 990), (4, 998), (5, 992), (6, 986)],
    );
}

#[test]
fn a_view_is_emitted_with_one_field_changed() {
    let expected: u64 = (4..1000).map(|price| price * 2).sum();
    at_each_width(
        |job| {
            let dearer = bids(job).flat_map(|bid, out| {
                if bid.price > 3 {
                    out.emit(BidRef { price: bid.price * 2, ..bid });
                }
            });
            summed(dearer.filter(|bid| !bid.url.is_empty()).map(|bid| bid.price))
        },
        &[expected],
    );
}

#[test]
fn nested_tuples_are_matched_in_closures_and_keys() {
    let expected: u64 = (0..1000u64).filter(|i| (i % 7) % 2 == 0).map(|i| i % 7 + 1).sum();
    at_each_width(
        |job| {
            let counted = bids(job)
                .map(|b| ((b.auction, b.price), (b.url.to_string(), (1u64, 2.5f64))))
                .filter(|((a, _), (url, (n, f)))| {
                    a % 2 == 0 && !url.is_empty() && n == 1 && f > 2.0
                })
                .key_by(|((a, p), _)| (a, p))
                .fold("n", 0u64, |n, ((_, _), (_, (one, _)))| *n += one);
            summed(counted.map(|((a, _), n)| a + n))
        },
        &[expected],
    );
}

#[test]
fn views_are_returned_from_map_ref() {
    at_each_width(
        |job| {
            let words = job
                .source("lines", source::text_str(" ab c\nd ef \nx\n"))
                .map_ref::<String>(|line| line.trim())
                .map_ref::<(String, String)>(|line| line.split_once(' ').unwrap_or((line, "")))
                .flat_map(|(a, b), out| {
                    out.emit((a, 1u64));
                    out.emit((b, 2u64));
                });
            taken(words.map(|(word, n)| (word.to_string(), n)))
        },
        &[("", 2), ("ab", 1), ("c", 2), ("d", 1), ("ef", 2), ("x", 1)]
            .map(|(word, n)| (word.to_owned(), n)),
    );
}

#[test]
fn closures_own_what_they_capture_and_may_change_it() {
    for parallelism in 1..=3u64 {
        let job = job("case", parallelism as u32);
        let (min, names) = (3u64, vec!["x".to_string(), "yy".to_string()]);
        let mut seen = 0u64;
        let lengths = bids(&job)
            .filter(move |b| {
                seen += 1;
                b.price > min && seen <= 100
            })
            .map(move |b| (names[b.auction as usize % 2].clone(), 1u64))
            .map(|(name, n)| n * (name.len() as u64).min(1));
        let take = summed(lengths);
        job.run().expect("the job runs");
        // Each subtask counts for itself; the first four prices are in the first one's share.
        assert_eq!(take(), [100 * parallelism - 4]);
    }
}

#[test]
fn a_closure_that_may_fail_uses_the_question_mark() {
    at_each_width(
        |job| {
            let products = job
                .source("lines", source::text_str("1 2\n3 4\n5 6\n"))
                .try_map(|line| {
                    let (a, b) = line.split_once(' ').ok_or("no blank")?;
                    Ok((a.parse::<u64>()?, b.parse::<u64>()?))
                })
                .map(|(a, b)| a * b);
            taken(products)
        },
        &[2, 12, 30],
    );
}

#[test]
fn side_outputs_end_in_sinks_of_their_own() {
    for parallelism in 1..=3 {
        let job = job("case", parallelism);
        let (good, bad) =
            job.source("lines", source::text_str("1\nx\n2\nyy\n")).split(|line, good, bad| {
                match line.parse::<u64>() {
                    Ok(n) => good.emit(n),
                    Err(error) => bad.emit((line, error.to_string())),
                }
            });
        let (bad_sink, bad_lines) = sink::collect::<(String, String)>();
        bad.sink("bad", bad_sink);
        let take = summed(good);
        job.run().expect("the job runs");
        assert_eq!(take(), [3]);
        let bad: Vec<_> = sorted(bad_lines.take()).into_iter().map(|(line, _)| line).collect();
        assert_eq!(bad, ["x", "yy"]);
    }
}

#[test]
fn two_different_chains_are_united() {
    at_each_width(
        |job| {
            let a = job.source("a", source::generate(10, |i| (i, i))).map(|(a, b)| (a, b + 1));
            let b = job
                .source("b", source::text_str("55555\n\n666666\n"))
                .filter(|line| !line.is_empty())
                .map(|line| (line.len() as u64, 0u64));
            taken(a.union(b).key_by(|p| p.0).count("n"))
        },
        &[
            (0, 1),
            (1, 1),
            (2, 1),
            (3, 1),
            (4, 1),
            (5, 1),
            (5, 2),
            (6, 1),
            (6, 2),
            (7, 1),
            (8, 1),
            (9, 1),
        ],
    );
}

/// A reusable step: the chain's type stays hidden both ways.
fn clean<C: Chain<Out = String>>(
    lines: Stream<String, C>,
) -> Stream<String, impl Chain<Out = String>> {
    lines.filter(|line| !line.starts_with('#')).map_ref::<String>(|line| line.trim())
}

fn without_empty(lines: BoxStream<String>) -> BoxStream<String> {
    lines.filter(|line| !line.is_empty()).boxed()
}

/// What an extension trait looks like.
trait Shout {
    fn shout(self) -> Stream<String, impl Chain<Out = String>>;
}

impl<C: Chain<Out = String>> Shout for Stream<String, C> {
    fn shout(self) -> Stream<String, impl Chain<Out = String>> {
        self.map(|line| line.to_uppercase())
    }
}

#[test]
fn streams_pass_through_functions_and_traits() {
    at_each_width(
        |job| {
            let lines = clean(job.source("lines", source::text_str("# x\n a \n\n b\n")));
            taken(without_empty(lines.boxed()).shout())
        },
        &["A".to_owned(), "B".to_owned()],
    );
}

#[test]
fn boxed_streams_lie_in_a_vec_and_are_united() {
    let expected: u64 = (0..3u64).map(|k| (0..10).map(|i| i * k + 1).sum::<u64>()).sum();
    at_each_width(
        |job| {
            let streams: Vec<BoxStream<u64>> = (0..3u64)
                .map(|k| {
                    let numbers = source::generate(10, move |i| i * k);
                    job.source(&format!("s{k}"), numbers).map(|x| x + 1).boxed()
                })
                .collect();
            let all = streams.into_iter().reduce(|a, b| a.union(b).boxed());
            summed(all.expect("there are three"))
        },
        &[expected],
    );
}

#[test]
fn an_operator_is_added_on_a_condition() {
    for (only_even, expected) in [(false, 45), (true, 20)] {
        at_each_width(
            |job| {
                let mut numbers = job.source("numbers", source::range(0..10)).boxed();
                if only_even {
                    numbers = numbers.filter(|x| x % 2 == 0).boxed();
                }
                summed(numbers)
            },
            &[expected],
        );
    }
}
