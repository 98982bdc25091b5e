//! Chains, unions and several inputs under back-pressure and failures, in every mode of checkpoints.

use tidegate::{Chain, Job, Stream, sink};

use crate::rig::{
    Failures, Numbered, Oracle, Streams, check_all, check_restarts, in_order, job, kept, run,
};

/// Rows a second that the sinks take: less than comes, so that queues are full.
const SLOW: u64 = 60_000;

#[test]
fn it_01_chains_of_exchanges_lose_repeat_and_reorder_nothing() {
    for parallelism in [1, 5, 20] {
        for timeout in ["0s", "1ms", "5ms"] {
            let what = format!("{parallelism} subtasks, timeout {timeout}");
            let options = [("checkpoint.aligned-timeout", timeout), ("checkpoint.interval", "3ms")];
            let job = job("chain", parallelism, &options);
            let streams = Streams::even(24, 250);
            let (oracle, failures) = (Oracle::default(), Failures::at(&[1_500, 3_500, 5_500]));
            let (sink, collected) = kept();
            let failing = failures.clone();
            let first = in_order(job.source("numbers", streams.clone()), "first", &oracle)
                .inspect(move |_| failing.pass());
            in_order(first, "second", &oracle).sink("kept", sink::paced(sink, SLOW));
            let status = run(job, &what);
            check_restarts(&status, 3, &what);
            assert!(status.checkpoints_completed > 0, "{what}");
            oracle.check(&what);
            check_all(collected.take(), &streams.all(), &what);
        }
    }
}

/// Ends a stream in a slow sink, with failures, and looks at what it has committed.
fn check_with_failures<C: Chain<Out = Numbered>>(
    job: Job,
    stream: Stream<Numbered, C>,
    oracle: &Oracle,
    expected: &[Numbered],
    what: &str,
) {
    let failures = Failures::at(&[1_500, 4_000]);
    let (sink, collected) = kept();
    let stream = in_order(stream.inspect(move |_| failures.pass()), "all", oracle);
    stream.sink("kept", sink::paced(sink, SLOW));
    let status = run(job, what);
    check_restarts(&status, 2, what);
    oracle.check(what);
    check_all(collected.take(), expected, what);
}

#[test]
fn it_02_tasks_with_several_inputs_lose_repeat_and_reorder_nothing() {
    for parallelism in [5, 10] {
        for timeout in ["0s", "2ms"] {
            let what = format!("{parallelism} subtasks, timeout {timeout}");
            let options = [("checkpoint.aligned-timeout", timeout), ("checkpoint.interval", "3ms")];
            let (few, many) = (Streams::even(4, 300), Streams::even(16, 200).named_from(100));
            let expected = [few.all(), many.all()].concat();

            // Two keyed inputs of one task.
            let of_two = job("several inputs", parallelism, &options);
            let oracle = Oracle::default();
            let a = in_order(of_two.source("few", few.clone()), "of few", &oracle);
            let b = in_order(of_two.source("many", many.clone()), "of many", &oracle);
            check_with_failures(of_two, a.union(b), &oracle, &expected, &what);

            // Two sources of one task.
            let of_sources = job("two sources", parallelism, &options);
            let oracle = Oracle::default();
            let both = of_sources.source("few", few).union(of_sources.source("many", many));
            check_with_failures(of_sources, both, &oracle, &expected, &what);
        }
    }
}

#[test]
fn it_12_aligned_unaligned_and_timed_out_runs_commit_the_same() {
    let modes: [&[(&str, &str)]; 4] = [
        &[("checkpoint.unaligned.enabled", "false")],
        &[("checkpoint.aligned-timeout", "0s")],
        &[("checkpoint.aligned-timeout", "1ms")],
        &[("checkpoint.unaligned.any-edge", "true")],
    ];
    let mut outputs = modes.map(|mode| {
        let what = format!("{mode:?}");
        let options = [mode, &[("checkpoint.interval", "2ms")]].concat();
        let job = job("differential", 3, &options);
        let failures = Failures::at(&[1_000, 2_500]);
        let (sink, collected) = sink::collect::<(u64, u64)>();
        job.source("numbers", Streams::even(12, 250))
            .rebalance()
            .inspect(move |_| failures.pass())
            .key_by(|(stream, _, _)| stream % 5)
            .fold("largest", 0u64, |largest, (_, number, _)| *largest = number.max(*largest))
            .key_by(|(class, _)| class)
            .count("changes")
            .sink("kept", sink::paced(sink, SLOW));
        let status = run(job, &what);
        check_restarts(&status, 2, &what);
        let mut output = collected.take();
        output.sort_unstable();
        output
    });
    let expected = std::mem::take(&mut outputs[0]);
    assert_eq!(expected.len(), 12 * 250);
    for (mode, output) in modes.iter().zip(&outputs).skip(1) {
        assert!(*output == expected, "{mode:?} committed something else");
    }
}
