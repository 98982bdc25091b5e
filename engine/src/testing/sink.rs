//! Drives a sink without an engine, and checks that each record becomes visible exactly once.
//!
//! The model is a position: how many of the records the last complete checkpoint covers. Whatever happens, nothing
//! beyond it is visible, nothing twice, and after a commit or a restore all of it.

use std::fmt;

use super::{Dice, multiset};
use crate::clock::Timestamp;
use crate::id::{Attempt, CheckpointId};
use crate::record::{Data, Feed};
use crate::sink::{Committable, Readiness, Sink, Writer, WriterContext};

/// How many random stories are told.
const STORIES: u64 = 60;
/// A writer that is busy this often in a row is taken to be stuck.
const BUSY_MAX: u32 = 10_000;

/// Checks a transactional sink: records, checkpoints that complete, are aborted or are overtaken by a crash, partial
/// commits, repeated restores, changes of parallelism, and both ways to end. `make` gives a sink on a fresh output,
/// and a closure that reads everything that is visible there, in any order.
///
/// # Panics
/// It does not; the message says in which story.
pub fn conformance<T, S, V>(make: impl Fn() -> (S, V), records: &[T])
where
    T: Data + fmt::Debug,
    S: Sink<T>,
    V: FnMut() -> Vec<T>,
{
    without_checkpoints(&make, records);
    for seed in 0..STORIES {
        let (sink, visible) = make();
        let mut dice = Dice::new(seed);
        let parallelism = 1 + dice.below(3) as u32;
        let mut story = Story {
            records,
            sink,
            visible,
            attempt: 0,
            parallelism,
            writers: Vec::new(),
            written: 0,
            checkpoint: 0,
            complete: None,
            told: format!("story {seed}: {parallelism} subtasks"),
        };
        fine("check", story.sink.check());
        story.open(&mut dice);
        story.tell(&mut dice);
    }
}

/// Everything becomes visible at the end, and not before.
fn without_checkpoints<T, S, V>(make: &impl Fn() -> (S, V), records: &[T])
where
    T: Data + fmt::Debug,
    S: Sink<T>,
    V: FnMut() -> Vec<T>,
{
    let (sink, mut visible) = make();
    for attempt in 0..2 {
        let context = WriterContext {
            name: "sink",
            subtask: 0,
            parallelism: 1,
            attempt: Attempt(attempt),
            restored: None,
        };
        let mut writer = fine("open", sink.open(Vec::new(), context));
        for record in records {
            fine("write", writer.write(record.view()));
        }
        fine("flush", writer.flush());
        assert!(visible().is_empty(), "nothing is visible before the end");
        if attempt == 1 {
            fine("finish", writer.finish(false));
        }
    }
    assert_same(&visible(), records, "without checkpoints, after a crash before the end");
}

/// What happens to one sink.
struct Story<'r, T: Data, S: Sink<T>, V> {
    records: &'r [T],
    sink: S,
    visible: V,
    attempt: u32,
    parallelism: u32,
    writers: Vec<S::Writer>,
    /// How many records are written.
    written: usize,
    /// The last checkpoint triggered.
    checkpoint: u64,
    /// The last complete checkpoint: its id, how many records it covers, and what each subtask prepared.
    complete: Option<(CheckpointId, usize, Vec<Vec<Committable>>)>,
    told: String,
}

impl<T, S, V> Story<'_, T, S, V>
where
    T: Data + fmt::Debug,
    S: Sink<T>,
    V: FnMut() -> Vec<T>,
{
    fn tell(&mut self, dice: &mut Dice) {
        for _ in 0..dice.below(24) {
            match dice.below(6) {
                0..=2 => self.write(1 + dice.below(6), dice),
                3 => self.checkpoint(dice),
                4 => self.crash(dice),
                _ => self.flush(),
            }
            let (seen, covered) = (multiset(&(self.visible)()), self.covered());
            let allowed = multiset(&self.records[..covered]);
            assert!(
                is_part(&seen, &allowed),
                "{}: only what the last complete checkpoint covers may be visible, once",
                self.told
            );
        }
        while self.written < self.records.len() {
            self.write(8, dice);
        }
        self.told += "; the end";
        for writer in &mut self.writers {
            fine(&self.told, writer.finish(true));
        }
        let prepared = self.prepare();
        let last = CheckpointId(self.checkpoint);
        if dice.below(3) == 0 {
            self.complete = Some((last, self.written, prepared));
            self.crash(dice);
        } else {
            for writer in &mut self.writers {
                fine(&self.told, writer.commit(last));
            }
        }
        self.writers.clear();
        assert_same(&(self.visible)(), self.records, &self.told);
    }

    fn open(&mut self, dice: &mut Dice) {
        let mut shares = vec![Vec::new(); self.parallelism as usize];
        if let Some((_, _, prepared)) = &self.complete {
            let same = prepared.len() == shares.len();
            for (i, share) in prepared.iter().enumerate() {
                let to = if same { i } else { dice.below(shares.len()) };
                shares[to].extend(share.iter().cloned());
            }
        }
        self.writers.clear();
        if dice.below(2) == 0 {
            // As if another process went on: a run begins, and its attempts count from 0.
            fine(&self.told, self.sink.check());
            self.attempt = 0;
        }
        for (share, subtask) in shares.into_iter().zip(0..) {
            let context = WriterContext {
                name: "sink",
                subtask,
                parallelism: self.parallelism,
                attempt: Attempt(self.attempt),
                restored: self.complete.as_ref().map(|complete| complete.0),
            };
            self.writers.push(fine(&self.told, self.sink.open(share, context)));
        }
    }

    fn write(&mut self, n: usize, dice: &mut Dice) {
        let end = self.records.len().min(self.written + n);
        for record in &self.records[self.written..end] {
            let index = dice.below(self.writers.len());
            let writer = &mut self.writers[index];
            let (mut now, mut busy) = (Timestamp::ZERO, 0);
            while let Readiness::Busy(until) = writer.ready(now) {
                assert!(S::Writer::MAY_BE_BUSY, "a writer that is busy says so in `MAY_BE_BUSY`");
                busy += 1;
                assert!(busy < BUSY_MAX, "{}: the writer stays busy", self.told);
                now = until;
            }
            if dice.below(2) == 0 {
                fine(&self.told, writer.write(record.view()));
            } else {
                fine(&self.told, writer.batch(One(record)));
            }
        }
        self.written = end;
    }

    fn flush(&mut self) {
        for writer in &mut self.writers {
            fine(&self.told, writer.flush());
        }
    }

    fn prepare(&mut self) -> Vec<Vec<Committable>> {
        self.checkpoint += 1;
        let id = CheckpointId(self.checkpoint);
        self.writers.iter_mut().map(|writer| fine(&self.told, writer.prepare(id))).collect()
    }

    fn checkpoint(&mut self, dice: &mut Dice) {
        let prepared = self.prepare();
        let id = CheckpointId(self.checkpoint);
        if dice.below(4) == 0 {
            self.told += &format!("; {id} aborted at {}", self.written);
            return;
        }
        self.complete = Some((id, self.written, prepared));
        // A complete checkpoint is told to each writer, unless a crash comes in between.
        let told = if dice.below(3) == 0 {
            dice.below(self.writers.len() + 1)
        } else {
            self.writers.len()
        };
        self.told += &format!("; {id} complete at {}, told to {told}", self.written);
        for writer in &mut self.writers[..told] {
            fine(&self.told, writer.commit(id));
        }
        if told < self.writers.len() {
            self.crash(dice);
        }
        let covered = self.covered();
        assert_same(&(self.visible)(), &self.records[..covered], &self.told);
    }

    /// Opens again from the last complete checkpoint, sometimes twice and sometimes with another parallelism.
    fn crash(&mut self, dice: &mut Dice) {
        for _ in 0..=dice.below(2) {
            self.attempt += 1;
            if dice.below(2) == 0 {
                self.parallelism = 1 + dice.below(3) as u32;
            }
            self.told += &format!("; crash, {} subtasks", self.parallelism);
            self.open(dice);
            self.written = self.covered();
            assert_same(&(self.visible)(), &self.records[..self.written], &self.told);
        }
    }

    fn covered(&self) -> usize {
        self.complete.as_ref().map_or(0, |complete| complete.1)
    }
}

/// A batch of one.
struct One<'r, T>(&'r T);

impl<T: Data> Feed<T> for One<'_, T> {
    fn each<G: for<'x> FnMut(T::Ref<'x>)>(self, mut g: G) {
        g(self.0.view());
    }
}

fn fine<R>(told: &str, result: crate::error::Result<R>) -> R {
    result.unwrap_or_else(|error| panic!("{told}: {error}"))
}

fn assert_same<T: Data + fmt::Debug>(visible: &[T], expected: &[T], told: &str) {
    if multiset(visible) != multiset(expected) {
        panic!("{told}: expected {expected:?} in any order, but visible is {visible:?}");
    }
}

/// Whether each item of `part` is in `whole`, as often; both are sorted.
fn is_part(part: &[Vec<u8>], whole: &[Vec<u8>]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|item| whole.any(|other| other == item))
}
