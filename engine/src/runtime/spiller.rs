//! Writes what was in flight, on a thread of its own.
//!
//! The state of tasks and what lies before them are written at the same time, and made durable at the same time: for a checkpoint
//! of some MB either takes a CPU as long as the disk (bench `checkpoint`). The thread starts with the first buffer. Its owner is
//! the snapshot I/O thread, which doesn't wait for what is written, but waits before it says that a checkpoint is complete or gone:
//! whatever was said of the checkpoint's tasks has been said by then.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use super::in_flight::{IN_FLIGHT_EVENT, encode_event};
use crate::channel::capture::{CapturedChannel, CapturedSlot, Restores};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ChannelIndex, CheckpointId, SubtaskId};
use crate::state::block::{BlockOrigin, BlockRef, run_bytes};
use crate::state::manifest::{ChannelMeta, ChannelSide, FileMeta, StateData};
use crate::state::spill::SpillFile;
use crate::state::spill_pool::SpillPool;

/// A thread that has the spill files.
#[derive(Debug)]
pub(super) struct Spiller(State);

#[derive(Debug)]
enum State {
    Waiting(Box<Spills>),
    Running {
        orders: Sender<Order>,
        thread: JoinHandle<()>,
    },
    /// It could not be started.
    Failed,
}

type Order = Box<dyn FnOnce(&mut Spills) + Send>;

/// What the thread has.
#[derive(Debug)]
struct Spills {
    pool: SpillPool,
    open: BTreeMap<CheckpointId, SpillFile>,
    /// What became of each write, until somebody wants to know.
    written: VecDeque<Result<Written>>,
}

/// What the thread will say.
#[must_use]
pub(super) struct Answer<T>(Receiver<Result<T>>);

impl<T> Answer<T> {
    /// Waits for it.
    pub(super) fn wait(self) -> Result<T> {
        self.0.recv().unwrap_or_else(|_| Err(gone()))
    }
}

/// What a task's channels became: what the manifest says of them, and the bytes that were in flight.
pub(super) type Written = (Vec<ChannelMeta>, u64);

impl Spiller {
    pub(super) fn new(pool: SpillPool) -> Self {
        Self(State::Waiting(Box::new(Spills {
            pool,
            open: BTreeMap::new(),
            written: VecDeque::new(),
        })))
    }

    /// Writes what was in flight towards `subtask` into the checkpoint's spill file, which the manifest will call `name`.
    pub(super) fn write(
        &mut self,
        checkpoint: CheckpointId,
        name: Arc<str>,
        subtask: SubtaskId,
        channels: Vec<CapturedChannel>,
    ) -> Result<()> {
        self.tell(move |spills| {
            let written = spills.write(checkpoint, name, subtask, channels);
            spills.written.push_back(written);
        })
    }

    /// Has `then` called on the thread with what became of a [`Self::write`]: of the first that nobody has asked for.
    pub(super) fn and_then(
        &mut self,
        then: impl FnOnce(Result<Written>) + Send + 'static,
    ) -> Result<()> {
        self.tell(|spills| then(spills.written.pop_front().unwrap_or_else(|| Err(gone()))))
    }

    /// Makes the checkpoint's spill file durable at `path`: what it is and how many of its bytes went through the mapping.
    pub(super) fn finish(
        &mut self,
        checkpoint: CheckpointId,
        path: PathBuf,
    ) -> Result<Answer<(FileMeta, u64)>> {
        self.ask(move |spills| {
            let file = spills.open.remove(&checkpoint).ok_or_else(|| {
                Error::new(ErrorKind::Internal, "a spill file is finished that was never begun")
            })?;
            let mapped_bytes = file.mapped_bytes();
            Ok((spills.pool.finish(file, &path)?, mapped_bytes))
        })
    }

    /// Gives the checkpoint's spill file up, if there is one, and waits until nothing more is said of its tasks.
    pub(super) fn discard(&mut self, checkpoint: CheckpointId) {
        if let State::Running { .. } = self.0 {
            let given_up = self.ask(move |spills| {
                spills.open.remove(&checkpoint);
                Ok(())
            });
            // A thread that is gone says nothing more either.
            let _ = given_up.and_then(Answer::wait);
        }
    }

    /// Makes the next checkpoint's file ready: see [`SpillPool::warm`].
    pub(super) fn warm(&mut self) {
        if let State::Running { .. } = self.0 {
            let _ = self.tell(|spills| spills.pool.warm());
        }
    }

    fn ask<T: Send + 'static>(
        &mut self,
        order: impl FnOnce(&mut Spills) -> Result<T> + Send + 'static,
    ) -> Result<Answer<T>> {
        let (tell, answer) = sync_channel(1);
        self.tell(move |spills| {
            // Nobody listens if the owner gave up meanwhile.
            let _ = tell.send(order(spills));
        })?;
        Ok(Answer(answer))
    }

    /// Has `order` done after all earlier ones. The first starts the thread.
    fn tell(&mut self, order: impl FnOnce(&mut Spills) + Send + 'static) -> Result<()> {
        if let State::Waiting(_) = self.0
            && let State::Waiting(spills) = std::mem::replace(&mut self.0, State::Failed)
        {
            self.0 = start(*spills)?;
        }
        match &self.0 {
            State::Running { orders, .. } => orders.send(Box::new(order)).map_err(|_| gone()),
            State::Waiting(_) | State::Failed => Err(gone()),
        }
    }
}

impl Spills {
    fn write(
        &mut self,
        checkpoint: CheckpointId,
        name: Arc<str>,
        subtask: SubtaskId,
        channels: Vec<CapturedChannel>,
    ) -> Result<Written> {
        if !self.open.contains_key(&checkpoint) {
            self.open.insert(checkpoint, self.pool.begin(name)?);
        }
        let file = self.open.get_mut(&checkpoint).expect("it was just put in");
        let written = write_channels(subtask, channels, |origin, payload, expected| {
            file.expect(expected);
            file.append(origin, payload)
        });
        if written.is_err() {
            // A half-written run makes the file useless.
            self.open.remove(&checkpoint);
        }
        written
    }
}

impl Drop for Spiller {
    /// Waits until the spare files are removed: the folder belongs to the next owner then.
    fn drop(&mut self) {
        if let State::Running { orders, thread } = std::mem::replace(&mut self.0, State::Failed) {
            drop(orders);
            let _ = thread.join();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "lives as long as the snapshot I/O thread, its owner"
)]
fn start(mut spills: Spills) -> Result<State> {
    let (orders, ordered) = channel::<Order>();
    let thread = thread::Builder::new()
        .name("tidegate-spill".into())
        .spawn(move || ordered.into_iter().for_each(|order| order(&mut spills)))
        .map_err(|e| {
            Error::new(ErrorKind::Io, "no thread can be started for what is in flight").caused_by(e)
        })?;
    Ok(State::Running { orders, thread })
}

fn gone() -> Error {
    Error::new(ErrorKind::Internal, "the thread that writes what is in flight is gone")
}

/// Gives `write` every payload in flight towards `subtask`, with the bytes that this and all later ones will have as blocks.
pub(super) fn write_channels(
    subtask: SubtaskId,
    channels: Vec<CapturedChannel>,
    mut write: impl FnMut(BlockOrigin, &[u8], u64) -> Result<BlockRef>,
) -> Result<Written> {
    let mut bytes = 0;
    let mut metas = Vec::with_capacity(channels.len());
    let slots = channels.iter().flat_map(|channel| &channel.slots);
    let mut expected = slots.map(|(_, slot)| run_bytes(payload(slot).len())).sum();
    for (index, channel) in channels.into_iter().enumerate() {
        let mut parts: Vec<(Restores, Vec<BlockRef>)> = Vec::new();
        for (number, (restores, slot)) in channel.slots.iter().enumerate() {
            let place = ChannelIndex(index as u32);
            let mut origin = BlockOrigin::buffer(subtask, place, number as u64);
            let payload = payload(slot);
            if let CapturedSlot::Event(_) = slot {
                // An event is told from a buffer by its place among operators.
                origin.operator = IN_FLIGHT_EVENT;
            } else {
                bytes += payload.len() as u64;
            }
            let run = write(origin, &payload, expected)?;
            expected -= run.length;
            match parts.last_mut() {
                Some((of, runs)) if of == restores => runs.push(run),
                Some(_) | None => parts.push((*restores, vec![run])),
            }
        }
        let mut meta = ChannelMeta {
            gate: channel.edge as u32,
            channel: channel.producer,
            side: ChannelSide::Receiver,
            restores: 0,
            first: 0,
            count: 0,
            watermark: channel.watermark,
            is_idle: channel.is_idle,
            data: StateData::Inline(Vec::new()),
        };
        // Without anything in flight it still tells the watermark.
        if parts.is_empty() {
            metas.push(meta.clone());
        }
        for (restores, runs) in parts {
            meta.restores = restores.0;
            meta.first += meta.count;
            meta.count = runs.len() as u64;
            meta.data = StateData::Blocks(runs);
            metas.push(meta.clone());
        }
    }
    Ok((metas, bytes))
}

/// What is written of something in flight.
fn payload(slot: &CapturedSlot) -> Cow<'_, [u8]> {
    match slot {
        CapturedSlot::Buffer { buffer, offset } => buffer.as_slice()[*offset..].into(),
        CapturedSlot::Copied(frames) => (**frames).into(),
        CapturedSlot::Event(event) => encode_event(event).to_vec().into(),
    }
}
