//! Incremental checkpoints: only what has changed is written, what is restored is exact, and files go with the last checkpoint that
//! needs them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::config::{Config, Origin};
use tidegate::operator::{Context, Process};
use tidegate::state::directory::DirectoryStore;
use tidegate::state::verify::{inspect, verify};
use tidegate::state::{ListState, Table, ValueState};
use tidegate::{BoxError, Job, JobHandle, JobState, Output, sink, source};

/// Some 64 MB of state.
const KEYS: u64 = 1_500_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn config(dir: &Path) -> Config {
    let mut config = Config::default();
    config.set("taskmanager.slots", "1", Origin::Flag).expect("a number");
    config.checkpoint.interval = None;
    config.checkpoint.dir = Some(dir.to_owned());
    config.checkpoint.incremental = true;
    config
}

/// All shared files in the store, and those that some checkpoint names.
fn shared_files(dir: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    let there = fs::read_dir(dir.join("shared")).map_or_else(
        |_| BTreeSet::new(),
        |entries| {
            let names = entries.map(|entry| entry.expect("an entry").file_name());
            names.map(|name| name.to_string_lossy().into_owned()).collect()
        },
    );
    let store: Arc<dyn tidegate::state::store::SnapshotStore> = Arc::new(DirectoryStore::new(dir));
    let mut named = BTreeSet::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let folder = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if folder.starts_with("chk-") {
            let found = inspect(&store, &folder).expect("is complete");
            let files =
                found.meta.files.iter().filter_map(|file| file.name.strip_prefix("shared/"));
            named.extend(files.map(str::to_owned));
            verify(&store, &folder).expect("every byte is sound");
        }
    }
    (there, named)
}

/// Waits until `seen` has reached `n`.
fn reach(handle: &JobHandle, seen: &AtomicU64, n: u64) {
    let mut rounds = 0;
    while seen.load(Ordering::Acquire) < n {
        handle.checkpoint().expect("a checkpoint");
        rounds += 1;
        assert!(rounds < 10_000, "the job stands still");
    }
}

#[test]
fn a_checkpoint_writes_what_has_changed_and_shared_files_go_with_the_last_that_needs_them() {
    let dir = tempfile::tempdir().expect("a directory");
    // Keys of one key group: one part in a hundred of the state, in few parts of the table.
    let close: Arc<Vec<u64>> =
        Arc::new((0..KEYS).filter(|key| Table::<u64, u64>::hash(*key) >> 57 == 3).collect());
    assert!((close.len() as u64) < KEYS / 100);
    let (send, receive) = source::channel::<u64>(1 << 16);
    let seen = Arc::new(AtomicU64::new(0));
    let make = |receive: source::Channel<u64>| {
        let job = Job::with_config("incremental", config(dir.path()));
        let seen = seen.clone();
        let (collect, collected) = sink::collect::<(u64, u64)>();
        job.source("keys", receive)
            .key_by(|key| key)
            .count("counts")
            .filter(move |_| {
                seen.fetch_add(1, Ordering::Release);
                true
            })
            .filter(|(_, count)| count > 2)
            .sink("collect", collect);
        (job, collected)
    };
    let (job, _) = make(receive);
    let handle = job.spawn().expect("starts");
    let mut changes = 0;
    while handle.state() == JobState::Starting {
        changes = handle.wait_change(changes, PATIENCE);
    }
    for key in 0..KEYS {
        send.send(key).expect("the job runs");
    }
    reach(&handle, &seen, KEYS);
    let mut sent = KEYS;
    let bytes = |handle: &JobHandle| handle.status().checkpoints.last().expect("one").bytes;
    // One with the last records, one with nothing new.
    handle.checkpoint().expect("a checkpoint");
    handle.checkpoint().expect("a checkpoint");
    assert!(bytes(&handle) < 1 << 20, "nothing has changed, {} bytes", bytes(&handle));
    let full: u64 = {
        let status = handle.status();
        status.checkpoints.iter().map(|stats| stats.bytes).max().expect("one")
    };
    for _ in 0..3 {
        for key in close.iter() {
            send.send(*key).expect("the job runs");
        }
        sent += close.len() as u64;
        // The last record's change is in this one.
        while seen.load(Ordering::Acquire) < sent {
            std::thread::yield_now();
        }
        handle.checkpoint().expect("a checkpoint");
        let written = bytes(&handle);
        assert!(written > 0 && written * 10 < full, "{written} of {full} bytes");
    }
    assert_eq!(handle.status().checkpoints_failed, 0);
    let checkpoints = handle.status().checkpoints_completed;
    handle.cancel().expect_err("is cancelled");
    let (there, named) = shared_files(dir.path());
    assert_eq!(there, named, "what is there is what some checkpoint names");
    assert!(there.len() > 2, "the last two build on an earlier one: {there:?}");
    let made = |name: &String| name.split('-').nth(1).and_then(|id| id.parse::<u64>().ok());
    let of: BTreeSet<u64> = there.iter().filter_map(made).collect();
    assert!(of.len() < checkpoints as usize, "files that nobody needs are gone: {of:?}");

    // A restored job writes all of it once, and has counted right.
    let (send, receive) = source::channel::<u64>(1 << 16);
    let (mut job, collected) = make(receive);
    job.resume(true);
    let handle = job.spawn().expect("starts");
    for key in close.iter().chain([&0, &1]) {
        send.send(*key).expect("the job runs");
    }
    let mut changes = 0;
    while handle.state() == JobState::Starting {
        changes = handle.wait_change(changes, PATIENCE);
    }
    handle.checkpoint().expect("a checkpoint");
    assert!(bytes(&handle) * 2 > full, "the first after a restore is full");
    drop(send);
    handle.join().expect("ends");
    let counted: BTreeMap<u64, u64> = collected.take().into_iter().collect();
    let expected: BTreeMap<u64, u64> = close.iter().map(|key| (*key, 5)).collect();
    let others = |map: &BTreeMap<u64, u64>| map.keys().filter(|key| **key > 1).count();
    assert_eq!(others(&counted), others(&expected));
    assert!(expected.iter().filter(|(key, _)| **key > 1).all(|(key, n)| counted[key] == *n));
}

/// Emits how often a key came, told by a value and by a list's length.
struct Times {
    count: ValueState<u64>,
    list: ListState<u64>,
}

impl Process<u64, u64> for Times {
    type Out = (u64, u64, u64);

    fn process(
        &mut self,
        key: u64,
        cx: &mut Context<'_, u64>,
        out: &mut Output<'_, Self::Out>,
    ) -> Result<(), BoxError> {
        cx.value(&self.count).update(|count| count.unwrap_or(0) + 1);
        cx.list(&self.list).add(key);
        let count = cx.value(&self.count).get().unwrap_or(0);
        out.emit((key, count, cx.list(&self.list).iter().count() as u64));
        Ok(())
    }
}

#[test]
fn the_state_of_processes_is_written_in_increments_and_restored_whole() {
    const KEYS: u64 = 200_000;
    let dir = tempfile::tempdir().expect("a directory");
    let seen = Arc::new(AtomicU64::new(0));
    let make = |receive| {
        let mut job = Job::with_config("times", config(dir.path()));
        job.resume(true);
        let seen = seen.clone();
        let (collect, collected) = sink::collect::<(u64, u64, u64)>();
        job.source("keys", receive)
            .key_by(|key| key)
            .process("times", |states| {
                Ok(Times { count: states.value("count")?, list: states.list("list")? })
            })
            .inspect(move |_| {
                seen.fetch_add(1, Ordering::Release);
            })
            .filter(|(_, count, _)| count > 1)
            .sink("collect", collect);
        (job, collected)
    };
    let bytes = |handle: &JobHandle| handle.status().checkpoints.last().expect("one").bytes;
    let (send, receive) = source::channel::<u64>(1 << 16);
    let (job, _) = make(receive);
    let handle = job.spawn().expect("starts");
    for key in 0..KEYS {
        send.send(key).expect("the job runs");
    }
    reach(&handle, &seen, KEYS);
    handle.checkpoint().expect("a checkpoint");
    let full = handle.status().checkpoints.iter().map(|stats| stats.bytes).max().expect("one");
    send.send(5).expect("the job runs");
    reach(&handle, &seen, KEYS + 1);
    handle.checkpoint().expect("a checkpoint");
    let written = bytes(&handle);
    assert!(written * 4 < full, "{written} of {full} bytes");
    handle.cancel().expect_err("is cancelled");

    let (send, receive) = source::channel::<u64>(1 << 16);
    let (job, collected) = make(receive);
    let handle = job.spawn().expect("starts");
    for key in 0..KEYS {
        send.send(key).expect("the job runs");
    }
    drop(send);
    handle.join().expect("ends");
    let mut counted = collected.take();
    counted.sort_unstable();
    let times = |key| if key == 5 { 3 } else { 2 };
    let expected: Vec<_> = (0..KEYS).map(|key| (key, times(key), times(key))).collect();
    // The sink may hold key 5 twice: its second time was committed, or not, before the cancel.
    counted.retain(|(key, count, _)| *key != 5 || *count == 3);
    assert!(counted == expected, "{} of {KEYS}", counted.len());
}
