//! What a task that ends has seen of its inputs, and what it still waits for.

use crate::barrier::ChannelSet;
use crate::channel::event::Barrier;
use crate::id::{ChannelIndex, CheckpointId};

/// How far each input has come.
#[derive(Clone, Debug, Hash)]
pub(super) struct Inputs {
    inputs: Vec<InputEnd>,
    input_of: Vec<usize>,
    ended: ChannelSet,
    closed: ChannelSet,
}

#[derive(Clone, Debug, Hash)]
struct InputEnd {
    /// Channels that have not delivered EndOfData.
    missing: usize,
    /// Every EndOfData said drain so far.
    drained: bool,
    end_input_ran: bool,
}

impl Inputs {
    pub(super) fn new(channels: &[usize], ended_before: &[usize]) -> Self {
        let inputs = channels.iter().enumerate().map(|(index, &missing)| InputEnd {
            missing,
            drained: true,
            end_input_ran: ended_before.contains(&index),
        });
        let input_of: Vec<usize> =
            channels.iter().enumerate().flat_map(|(input, &n)| vec![input; n]).collect();
        let all = input_of.len();
        Self {
            inputs: inputs.collect(),
            input_of,
            ended: ChannelSet::new(all),
            closed: ChannelSet::new(all),
        }
    }

    /// The input that this ends, if it is its last.
    pub(super) fn end_of_data(&mut self, channel: ChannelIndex, drain: bool) -> Option<usize> {
        if !self.ended.insert(channel) {
            return None;
        }
        let input = self.input_of[channel.0 as usize];
        let end = &mut self.inputs[input];
        end.missing -= 1;
        end.drained &= drain;
        (end.missing == 0).then_some(input)
    }

    pub(super) fn close(&mut self, channel: ChannelIndex) {
        self.closed.insert(channel);
    }

    /// Whether `end_input` is to run for this input: once, also over a restore.
    pub(super) fn begin_end_input(&mut self, input: usize) -> bool {
        !std::mem::replace(&mut self.inputs[input].end_input_ran, true)
    }

    pub(super) fn is_drained(&self, input: usize) -> bool {
        self.inputs[input].drained
    }

    pub(super) fn all_ended(&self) -> bool {
        self.inputs.iter().all(|input| input.missing == 0)
    }

    pub(super) fn all_drained(&self) -> bool {
        self.inputs.iter().all(|input| input.drained)
    }

    pub(super) fn all_closed(&self) -> bool {
        self.closed.count() == self.input_of.len()
    }

    pub(super) fn ended(&self) -> Vec<usize> {
        (0..self.inputs.len()).filter(|&input| self.inputs[input].end_input_ran).collect()
    }
}

/// What has to happen before the task may leave.
#[derive(Clone, Debug, Hash)]
pub(super) struct Awaited {
    /// Lanes whose EndOfData was read.
    acked: Vec<bool>,
    /// Operators that want to be waited for.
    pub(super) finalizing: Vec<usize>,
    /// Snapshots whose asynchronous part runs.
    pub(super) snapshots: Vec<CheckpointId>,
    /// Checkpoints for which the coordinator held the permit back.
    pub(super) held: Vec<CheckpointId>,
    pub(super) last_snapshot: Option<CheckpointId>,
    /// The first checkpoint performed after the data's end.
    final_min: Option<CheckpointId>,
    /// The savepoint that ends the job: only its completion counts.
    pub(super) savepoint: Option<CheckpointId>,
    pub(super) final_done: bool,
}

impl Awaited {
    pub(super) fn new(lanes: usize) -> Self {
        Self {
            acked: vec![false; lanes],
            finalizing: Vec::new(),
            snapshots: Vec::new(),
            held: Vec::new(),
            last_snapshot: None,
            final_min: None,
            savepoint: None,
            final_done: false,
        }
    }

    pub(super) fn acked(&mut self, lane: usize) {
        self.acked[lane] = true;
    }

    pub(super) fn all_acked(&self) -> bool {
        self.acked.iter().all(|&acked| acked)
    }

    pub(super) fn snapshot_taken(&mut self, barrier: Barrier, ended: bool) {
        let checkpoint = barrier.checkpoint;
        self.snapshots.push(checkpoint);
        self.last_snapshot = self.last_snapshot.max(Some(checkpoint));
        if ended {
            self.final_min.get_or_insert(checkpoint);
        }
        if barrier.options.kind().is_synchronous() {
            self.savepoint = Some(checkpoint);
            self.final_done = false;
        }
    }

    pub(super) fn snapshot_over(&mut self, checkpoint: CheckpointId) {
        self.snapshots.retain(|&running| running != checkpoint);
        self.held.retain(|&held| held != checkpoint);
    }

    /// A checkpoint is complete; one that was given up changes nothing, any later one releases.
    pub(super) fn completed(&mut self, checkpoint: CheckpointId) {
        self.held.retain(|&held| held != checkpoint);
        self.final_done |= match self.savepoint {
            Some(savepoint) => savepoint == checkpoint,
            None => self.final_min.is_some_and(|first| first <= checkpoint),
        };
    }
}
