//! What is told of a checkpoint that was given up.

use crate::rig::{Oracle, Streams, Valve, in_order, job, kept, wait_full, wait_until};

/// Who had not acknowledged, which channel had not brought its barrier, and how many bytes lay before it.
#[test]
fn an_expired_checkpoint_says_who_waited_for_which_channel_and_what_lay_before_the_barrier() {
    let options = [
        ("checkpoint.interval", "1h"),
        ("checkpoint.unaligned.enabled", "false"),
        ("checkpoint.timeout", "100ms"),
    ];
    let job = job("expiring", 2, &options);
    let (oracle, valve) = (Oracle::default(), Valve::closed());
    let streams = Streams::even(12, 5_000);
    let (sink, _collected) = kept();
    let first = in_order(job.source("numbers", streams.clone()), "first", &oracle);
    in_order(first, "second", &oracle).sink("kept", valve.before(sink));
    let handle = job.spawn().expect("it starts");
    wait_full(&streams, &handle);
    let error = handle.checkpoint().expect_err("its barriers stand behind what nobody reads");
    assert!(error.to_string().contains("timeout"), "{error}");
    // What tasks waited for they tell when they hear of it.
    let told = || handle.status().last_checkpoint_failure.unwrap_or_default();
    wait_until("the report", &handle, || told().contains("no barrier from"));
    let why = told();
    let tasks: Vec<String> = handle.status().tasks.iter().map(|t| t.vertex.to_string()).collect();
    let last = tasks.last().expect("there are tasks");
    assert!(why.contains(&format!("not acknowledged by '{last}'")) || why.contains(last), "{why}");
    let before: Vec<u64> = why
        .split(" bytes before it")
        .filter_map(|part| part.rsplit(", ").next()?.parse().ok())
        .collect();
    assert!(before.iter().any(|bytes| *bytes > 0), "{why}");
    assert!(why.contains("no barrier from '"), "{why}");
    assert_eq!(handle.status().checkpoints_failed, 1);
    valve.open();
    handle.cancel().expect_err("it is cancelled");
}
