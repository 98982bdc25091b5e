//! The writer of snapshots: what one task or checkpoint does to another's, and who holds memory. CW and the faults
//! known of such writers.

use std::sync::Arc;

use tidegate_netstack::buffer::Buffer;
use tidegate_netstack::parker::Waker;
use tidegate_netstack::pool::{Pool, PoolOptions};

use super::super::control_queue::{ControlReceiver, control_queue};
use super::*;
use crate::channel::capture::{CapturedSlot, Restores};
use crate::id::{Attempt, SubtaskId, VertexId};
use crate::state::block::{BLOCK_HEAD_BYTES, BlockRef};
use crate::state::directory::DirectoryStore;
use crate::state::manifest::{
    OperatorMeta, OperatorState, SnapshotKind, SubtaskMeta, SubtaskState, VertexMeta,
};
use crate::state::memory::{Fault, MemoryStore};
use crate::state::snapshots::Owner;
use crate::state::store::SnapshotStore;
use crate::state::verify::verify;

const TASKS: u32 = 2;

/// A writer over a store, and what it tells control.
struct Rig {
    io: SnapshotIo,
    told: ControlReceiver,
    store: Arc<dyn SnapshotStore>,
    /// The memory of what is in flight.
    pool: Pool,
    /// How large the state of a task is.
    state_bytes: usize,
    /// What was stored, by checkpoint.
    stored: BTreeMap<u64, Vec<StoredTask>>,
}

impl Rig {
    fn new(store: Arc<dyn SnapshotStore>) -> Self {
        let owner = Owner { job: "j".into(), fingerprint: "f".into() };
        let (snapshots, _) = Snapshots::own(store.clone(), &owner).expect("nobody owns it");
        snapshots.reserve_ids(CheckpointId(100)).expect("the store works");
        let (control, told) = control_queue();
        let io = SnapshotIo::new(snapshots, control, Counter::new(), false);
        let options = PoolOptions { segment_bytes: 1024, segments: 64, emission_bytes_max: 0 };
        let pool = Pool::new(options, Waker::noop());
        Self { io, told, store, pool, state_bytes: 10, stored: BTreeMap::new() }
    }

    /// The next answer, which the thread that spills may be about to give.
    fn answer(&self) -> ControlEvent {
        let patience = std::time::Duration::from_secs(60);
        self.told.recv(Some(patience)).expect("every request has an answer")
    }

    fn buffer(&mut self, byte: u8, bytes: usize) -> Buffer {
        let mut builder = self.pool.take(bytes).expect("a segment is free");
        builder.unfilled_mut()[..bytes].fill(byte);
        builder.advance(bytes);
        builder.seal(0).expect("it isn't empty")
    }

    /// Asks for the snapshot of a task.
    fn store(&mut self, task: u32, checkpoint: u64, in_flight: usize) {
        let request = self.request(task, checkpoint, in_flight);
        self.io.handle(request);
    }

    /// The snapshot of a task: its state, and `in_flight` buffers of 1000 bytes on one channel.
    fn request(&mut self, task: u32, checkpoint: u64, in_flight: usize) -> IoRequest {
        let mut channel = CapturedChannel::new(0, 0);
        for number in 0..in_flight {
            let buffer = self.buffer(number as u8, 1000);
            channel.slots.push((Restores(0), CapturedSlot::Buffer { buffer, offset: 0 }));
        }
        let part = Part {
            operator: "op".into(),
            kind: PartKind::List,
            name: "l".into(),
            data: PartData::Inline(vec![task as u8; self.state_bytes]),
        };
        IoRequest::Store(Report {
            attempt: attempt(task),
            kind: ReportKind::Snapshot {
                checkpoint: CheckpointId(checkpoint),
                parts: vec![part],
                channels: vec![channel],
                operators_finished: false,
                ended_inputs: Vec::new(),
                alignment: None,
            },
        })
    }

    /// The same, and that it was stored.
    fn stored(&mut self, task: u32, checkpoint: u64, in_flight: usize) -> &StoredTask {
        self.store(task, checkpoint, in_flight);
        let event = self.answer();
        let ControlEvent::Stored(stored) = event else { panic!("{event:?}") };
        assert_eq!((stored.attempt, stored.checkpoint.0), (attempt(task), checkpoint));
        let of = self.stored.entry(checkpoint).or_default();
        of.push(*stored);
        of.last().expect("it was just put there")
    }

    /// Asks for the snapshot of a task that can't be stored; why not.
    fn refused(&mut self, task: u32, checkpoint: u64, in_flight: usize) -> Error {
        self.store(task, checkpoint, in_flight);
        let event = self.answer();
        let ControlEvent::NotStored { attempt: of, checkpoint: id, cause } = event else {
            panic!("{event:?}")
        };
        assert_eq!((of, id.0), (attempt(task), checkpoint));
        cause
    }

    fn discard(&mut self, checkpoint: u64) {
        self.io.handle(IoRequest::Discard(CheckpointId(checkpoint)));
        let event = self.answer();
        assert!(matches!(event, ControlEvent::Discarded { result: Ok(()), .. }), "{event:?}");
        self.stored.remove(&checkpoint);
    }

    /// Completes a checkpoint of what was stored for it, and reads all of it.
    fn complete(&mut self, checkpoint: u64) {
        let tasks = &self.stored[&checkpoint];
        let of = |index: u32| tasks.iter().find(|task| task.attempt.subtask.index == index);
        let state = |index| {
            let parts = of(index).map(|task| task.operators["op"].clone());
            SubtaskState::Running(parts.unwrap_or_default())
        };
        let head = |index| SubtaskMeta {
            channels: of(index).map(|task| task.channels.clone()).unwrap_or_default(),
            ..SubtaskMeta::default()
        };
        let subtasks = OperatorState::Subtasks((0..TASKS).map(state).collect());
        let vertex = VertexMeta {
            id: VertexId(0),
            name: "v".into(),
            parallelism: TASKS,
            max_parallelism: 128,
            operators: vec![OperatorMeta { name: "op".into(), state: subtasks }],
            subtasks: (0..TASKS).map(head).collect(),
        };
        let meta = CheckpointMeta {
            job: "j".into(),
            fingerprint: "f".into(),
            id: CheckpointId(checkpoint),
            kind: SnapshotKind::Checkpoint,
            triggered_at: EpochMillis(1),
            completed_at: EpochMillis(1),
            owner_epoch: 0,
            files: Vec::new(),
            vertices: vec![vertex],
            edges: Vec::new(),
        };
        self.io.handle(IoRequest::Finalize(Box::new(meta)));
        let event = self.answer();
        assert!(matches!(event, ControlEvent::Finalized { result: Ok(_), .. }), "{event:?}");
        verify(&self.store, &format!("chk-{checkpoint}")).expect("all of it is sound");
    }

    fn exists(&self, checkpoint: u64) -> bool {
        !self.store.list(&format!("chk-{checkpoint}")).unwrap_or_default().is_empty()
    }
}

fn attempt(task: u32) -> AttemptId {
    AttemptId { subtask: SubtaskId::new(0, task), attempt: Attempt(0) }
}

/// A writer into a directory, with spill files.
fn directory() -> (tempfile::TempDir, Rig) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(DirectoryStore::new(folder.path().join("checkpoints")));
    (folder, Rig::new(store))
}

fn blocks(channel: &ChannelMeta) -> &[BlockRef] {
    match &channel.data {
        StateData::Blocks(runs) => runs,
        StateData::Inline(bytes) => {
            assert!(bytes.is_empty());
            &[]
        }
    }
}

#[test]
fn cw_01_giving_one_checkpoint_up_leaves_the_next_alone() {
    let (_folder, mut rig) = directory();
    rig.stored(0, 42, 3);
    rig.discard(42);
    assert!(!rig.exists(42));
    rig.stored(0, 43, 3);
    rig.discard(42);
    rig.stored(1, 43, 2);
    rig.complete(43);
    assert!(rig.pool.idle(), "the memory of both is back");
}

#[test]
fn cw_01_all_that_is_said_of_a_checkpoint_comes_before_its_end() {
    let (_folder, mut rig) = directory();
    for checkpoint in 1..20 {
        rig.store(0, checkpoint, 2);
        rig.store(1, checkpoint, 2);
        rig.io.handle(IoRequest::Discard(CheckpointId(checkpoint)));
        let told: Vec<_> = std::iter::from_fn(|| rig.told.try_recv()).collect();
        let [ControlEvent::Stored(first), ControlEvent::Stored(second), end] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!([first, second].map(|stored| stored.attempt), [attempt(0), attempt(1)]);
        let is_end = matches!(end, ControlEvent::Discarded { result: Ok(()), .. });
        assert!(is_end && !rig.exists(checkpoint), "{end:?}");
    }
    assert!(rig.pool.idle());
}

#[test]
fn cw_01_requests_that_wait_together_are_each_answered_in_turn() {
    let (folder, mut rig) = directory();
    let dir = folder.path().join("savepoints");
    let target = SavepointTarget { dir: dir.clone(), stops: false };
    // More than goes into a manifest: there will be files.
    rig.state_bytes = 100_000;
    let (ask, requests) = std::sync::mpsc::channel();
    for request in [
        rig.request(0, 1, 3),
        rig.request(1, 1, 2),
        rig.request(0, 2, 1),
        // Nothing of it may be begun before it is known to be one.
        IoRequest::Savepoint(CheckpointId(3), target),
        rig.request(0, 3, 0),
        IoRequest::Discard(CheckpointId(2)),
        rig.request(1, 3, 0),
        IoRequest::Shutdown,
    ] {
        ask.send(request).expect("it is about to be read");
    }
    rig.io.serve(&requests);
    let mut told = Vec::new();
    while let Some(event) = rig.told.try_recv() {
        if let ControlEvent::Stored(stored) = event {
            let (task, checkpoint) = (stored.attempt.subtask.index, stored.checkpoint.0);
            told.push((task, checkpoint));
            rig.stored.entry(checkpoint).or_default().push(*stored);
        } else {
            let is_end = matches!(&event, ControlEvent::Discarded { checkpoint, result: Ok(()) } if checkpoint.0 == 2);
            assert!(is_end, "{event:?}");
            told.push((9, 2));
        }
    }
    let at = |what| told.iter().position(|told| *told == what).expect("each has an answer");
    assert_eq!(told.len(), 6, "{told:?}");
    assert!(at((0, 1)) < at((1, 1)) && at((1, 1)) < at((0, 2)) && at((0, 2)) < at((9, 2)));
    assert!(at((0, 3)) < at((1, 3)) && !rig.exists(2) && !rig.exists(3));
    assert!(dir.join(savepoint_folder(CheckpointId(3))).exists());
    rig.complete(1);
    assert!(rig.pool.idle());
}

#[test]
fn cw_02_what_is_written_late_for_an_older_checkpoint_gets_into_no_newer_ones_file() {
    let (_folder, mut rig) = directory();
    rig.stored(0, 1, 2);
    let first = blocks(&rig.stored(0, 2, 2).channels[0]).to_vec();
    // Task 1 comes to 1 only now; the file of 2 goes on right behind what is in it.
    rig.stored(1, 1, 7);
    let second = blocks(&rig.stored(1, 2, 1).channels[0]).to_vec();
    let end = first.iter().map(|run| run.offset + run.length).max();
    assert_eq!(second.iter().map(|run| run.offset).min(), end);
    rig.discard(1);
    rig.complete(2);
    assert!(!rig.exists(1));
}

#[test]
fn cw_04_one_task_that_can_not_be_stored_makes_its_checkpoint_useless_and_no_other() {
    let store = MemoryStore::new();
    let mut rig = Rig::new(Arc::new(store.clone()));
    rig.stored(0, 1, 2);
    // More than is gathered before it is written.
    rig.state_bytes = 4 << 20;
    store.fail_at(store.operations(), Fault::NoSpace);
    let cause = rig.refused(1, 1, 2);
    assert_eq!(cause.kind(), ErrorKind::Io);
    assert!(cause.to_string().contains("chk-1"), "{cause}");
    rig.discard(1);
    assert!(!rig.exists(1), "nothing of it is left");
    rig.state_bytes = 10;
    rig.stored(0, 2, 1);
    rig.stored(1, 2, 1);
    rig.complete(2);
    assert!(rig.pool.idle());
}

#[test]
fn cw_05_what_comes_out_of_turn_is_refused_and_every_buffer_is_given_back() {
    let (_folder, mut rig) = directory();
    // No id was reserved for it.
    let cause = rig.refused(0, 100, 5);
    assert!(cause.to_string().contains("not reserved"), "{cause}");
    assert!(rig.pool.idle(), "refused, and given back");
    // It is complete: nothing is added to it.
    rig.stored(0, 1, 5);
    rig.stored(1, 1, 5);
    rig.complete(1);
    let cause = rig.refused(0, 1, 5);
    assert!(cause.to_string().contains("used"), "{cause}");
    assert!(rig.pool.idle());
    // A report that is no snapshot.
    rig.io.handle(IoRequest::Store(Report { attempt: attempt(0), kind: ReportKind::Finished }));
    assert!(matches!(rig.told.try_recv(), Some(ControlEvent::NotStored { .. })));
    // A task that stores twice: both are in the file, and only the one that is acknowledged counts.
    rig.stored(0, 2, 1);
    rig.stored(0, 2, 1);
    rig.stored(1, 2, 1);
    rig.complete(2);
    // What is given up at the end leaves nothing.
    rig.stored(0, 3, 5);
    let Rig { io, mut pool, store, .. } = rig;
    drop(io);
    assert!(pool.idle() && store.list("chk-3").unwrap_or_default().is_empty());
    verify(&store, "chk-1").expect("the completed ones stay");
}

#[test]
fn cw_06_a_task_that_is_not_through_holds_up_nobody_else() {
    let (_folder, mut rig) = directory();
    rig.stored(0, 1, 3);
    // Task 1 waits for barriers; meanwhile another checkpoint is stored and completed.
    rig.stored(0, 2, 3);
    rig.stored(1, 2, 3);
    rig.complete(2);
    rig.stored(1, 1, 3);
    rig.complete(1);
}

#[test]
fn k42_a_task_names_its_own_bytes_only_and_small_state_makes_no_file() {
    // Each channel's handle carried the bytes of all, and every task made a file of its few bytes.
    let (_folder, mut rig) = directory();
    for task in 0..TASKS {
        let buffers = 2 + task as usize;
        let stored = rig.stored(task, 1, buffers);
        let runs = blocks(&stored.channels[0]);
        let named: u64 = runs.iter().map(|run| run.length).sum();
        assert_eq!(named, (buffers * (BLOCK_HEAD_BYTES + 1000)) as u64);
        assert_eq!(stored.persisted_bytes, buffers as u64 * 1000);
    }
    rig.complete(1);
    let names = |rig: &Rig, id: u64| -> Vec<String> {
        let entries = rig.store.list(&format!("chk-{id}")).expect("it is complete");
        entries.into_iter().map(|entry| entry.name).collect()
    };
    let mut of_first = names(&rig, 1);
    of_first.sort();
    assert_eq!(of_first, ["MANIFEST", "spill-0"], "one file for all tasks");
    rig.stored(0, 2, 0);
    rig.stored(1, 2, 0);
    rig.complete(2);
    assert_eq!(names(&rig, 2), ["MANIFEST"]);
}
