//! Every byte of a checkpoint that a job has written is covered: state, what was in flight, and the manifest.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tidegate::state::memory::MemoryStore;
use tidegate::state::store::{ObjectName, SnapshotStore};
use tidegate::state::verify::verify;

use crate::rig::{self, Oracle, Streams, Valve, cancel, durable, in_order, kept, wait_full};

/// Writes a checkpoint by a job with state and records in flight; its folder's name.
fn checkpoint(dir: &Path) -> String {
    let options = [("buffer.per-channel", "9")];
    let job = durable("flips", 1, dir, &options);
    let (oracle, valve) = (Oracle::default(), Valve::closed());
    let streams = Streams::even(40, 2_000);
    let (sink, _collected) = kept();
    let first = in_order(job.source("numbers", streams.clone()), "first", &oracle);
    in_order(first, "second", &oracle).sink("kept", valve.before(sink));
    let handle = job.spawn().expect("it starts");
    wait_full(&streams, &handle);
    let id = rig::checkpoint(&handle, "a checkpoint");
    cancel(handle);
    format!("chk-{}", id.0)
}

#[test]
fn every_flipped_byte_and_every_truncation_of_a_jobs_checkpoint_is_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = checkpoint(dir.path());
    let memory = MemoryStore::new();
    let store: Arc<dyn SnapshotStore> = Arc::new(memory.clone());
    let mut names = Vec::new();
    for entry in fs::read_dir(dir.path().join(&folder)).expect("it is there") {
        let path = entry.expect("it can be listed").path();
        let file = path.file_name().expect("a name").to_string_lossy().into_owned();
        let name = ObjectName::new(&folder, &file).expect("the engine has named it");
        let bytes = fs::read(&path).expect("it can be read");
        let mut object = store.create(&name).expect("the name is free");
        object.append(&bytes).expect("memory has room");
        drop(object);
        names.push((name, bytes.len(), file));
    }
    let verified = verify(&store, &folder).expect("it is whole");
    assert!(verified.bytes >= 64 << 10, "{verified:?}");
    for wanted in ["MANIFEST", "spill-0", "data-0"] {
        assert!(names.iter().any(|(_, _, file)| file == wanted), "{wanted}: {names:?}");
    }
    for (name, bytes, _) in &names {
        for at in 0..*bytes {
            let mask = 1 << (at % 8);
            memory.tamper(name, |bytes| bytes[at] ^= mask);
            assert!(verify(&store, &folder).is_err(), "{name} byte {at}");
            memory.tamper(name, |bytes| bytes[at] ^= mask);
        }
        // Shorter and shorter, then as it was.
        let mut cut = Vec::new();
        for length in (0..*bytes).rev() {
            memory.tamper(name, |bytes| cut.push(bytes.pop().expect("it was longer")));
            assert!(verify(&store, &folder).is_err(), "{name} cut at {length}");
        }
        memory.tamper(name, |bytes| bytes.extend(cut.iter().rev()));
    }
    assert_eq!(verify(&store, &folder).expect("it is whole again"), verified);
}
