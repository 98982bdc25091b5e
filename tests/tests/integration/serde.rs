//! Any serde type as a record: through exchanges, in a sink, and in state that a job of another width goes on with.

use std::collections::BTreeMap;

use tidegate::record::Serde;
use tidegate::{Job, sink, source};

use crate::rig::{Gated, SOON, durable, job, sorted, wait_for};

/// What has no `Data` of its own: maps, vectors of what varies, results.
type Profile = BTreeMap<String, Vec<Result<u64, (String, Option<i8>)>>>;

fn profile(i: u64) -> Profile {
    let visits = (0..i % 5).map(|n| if n % 2 == 0 { Ok(i) } else { Err((format!("e{n}"), None)) });
    BTreeMap::from([("visits".to_owned(), visits.collect()), (format!("k{i}"), Vec::new())])
}

#[test]
fn serde_types_cross_exchanges_unchanged() {
    const N: u64 = 2000;
    for parallelism in 1..=3 {
        let job = job("case", parallelism);
        let (sink, collected) = sink::collect::<(u64, Serde<Profile>)>();
        job.source(
            "profiles",
            source::generate(N, |i| (i, Serde::new(&profile(i)).expect("it is encoded"))),
        )
        .rebalance()
        .key_by(|(i, _)| i)
        .process_each(
            "passed on",
            |_| Ok(()),
            |(), record, _, out| {
                out.emit_ref(record);
                Ok(())
            },
        )
        .boxed()
        .rebalance()
        .sink("out", sink);
        job.run().expect("it runs");
        let found: BTreeMap<u64, Profile> = collected
            .take()
            .into_iter()
            .map(|(i, record)| (i, record.get().expect("it is decoded")))
            .collect();
        assert_eq!(found, (0..N).map(|i| (i, profile(i))).collect());
    }
}

/// Files each number under a text, in a map that is one value of its key.
fn filed(job: &Job, numbers: &Gated) -> sink::Collected<(u64, u64)> {
    type Files = BTreeMap<String, Vec<u64>>;
    let (sink, out) = sink::collect();
    job.source("numbers", numbers.clone())
        .key_by(|n| n % 10)
        .process_each(
            "files",
            |states| states.value::<Serde<Files>>("all"),
            |all, n, cx, out| {
                let mut files =
                    cx.value(all).get().map_or(Ok(Files::new()), |files| files.get())?;
                files.entry(format!("of {}", n % 3)).or_default().push(n);
                let filed = files.values().map(|file| file.len() as u64).sum::<u64>();
                cx.value(all).set(Serde::new(&files)?);
                out.emit((n, filed));
                Ok(())
            },
        )
        .sink("out", sink);
    out
}

#[test]
fn serde_state_goes_on_at_another_width() {
    const N: u64 = 900;
    let dir = tempfile::tempdir().expect("a folder");
    let (mut done, mut all) = (0, Vec::new());
    for (parallelism, until) in [(2, 300), (3, 600), (1, N)] {
        let numbers = Gated::new(N);
        let mut job = durable("files", parallelism, dir.path());
        job.resume(done > 0);
        let out = filed(&job, &numbers);
        numbers.open(until);
        let handle = job.spawn().expect("it starts");
        wait_for(numbers.emitted(), until - done);
        if until < N {
            handle.stop(SOON).expect("it stops");
        } else {
            handle.join().expect("it ends");
        }
        all.extend(out.take());
        done = until;
    }
    // Within a key the numbers come in ascending order up to each stop, so the counts of a key are 1, 2, 3 and so on.
    let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (n, filed) in sorted(all) {
        counts.entry(n % 10).or_default().push(filed);
    }
    for (key, counts) in counts {
        assert_eq!(sorted(counts), (1..=N / 10).collect::<Vec<_>>(), "of key {key}");
    }
}
