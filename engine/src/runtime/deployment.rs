//! One attempt of one subtask on its way to its worker, and how the worker makes the task of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_netstack::lane::{Consumer, Producer};

use super::clock::Clock;
use super::in_flight::InFlight;
use crate::barrier::Guarantee;
use crate::channel::event::Event;
use crate::channel::input::InputChannel;
use crate::channel::partition::{PartitionOptions, ResultPartition};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::VertexPlan;
use crate::id::AttemptId;
use crate::metrics::TaskMetrics;
use crate::operator::{Build, Head};
use crate::record::key_group::KeyGroups;
use crate::source::Split;
use crate::state::part::RestoredState;
use crate::task::{Task, TaskInput, TaskOptions};

/// One input channel.
#[derive(Debug)]
pub(super) struct Input {
    /// The producing subtask's index.
    pub(super) producer: u32,
    /// The consuming end of a lane; none if the producer is left out of the restart.
    pub(super) consumer: Option<Consumer<Event>>,
}

/// What a worker needs to make a task.
#[derive(Debug)]
pub(super) struct Deployment {
    pub(super) attempt: AttemptId,
    pub(super) vertex: Arc<VertexPlan>,
    pub(super) key_groups: KeyGroups,
    pub(super) outputs: BTreeMap<usize, (Vec<Producer<Event>>, PartitionOptions)>,
    pub(super) inputs: BTreeMap<usize, Vec<Input>>,
    pub(super) restored: Arc<RestoredState>,
    pub(super) in_flight: InFlight,
    pub(super) operators_finished: bool,
    pub(super) ended_inputs: Vec<u32>,
    pub(super) guarantee: Guarantee,
    pub(super) splits: BTreeMap<String, Vec<Split>>,
    pub(super) checkpointed: bool,
    pub(super) drain_hold: bool,
    /// Whether what is in flight towards it may be captured.
    pub(super) may_capture: bool,
    pub(super) buffer_timeout: Duration,
    pub(super) latency_interval: Duration,
    pub(super) metrics: Arc<TaskMetrics>,
}

/// How often generators of watermarks are asked, besides after every few batches.
const WATERMARK_INTERVAL: Duration = Duration::from_millis(50);

impl Deployment {
    /// Makes the task, restoring its state.
    pub(super) fn build(self, clock: Clock) -> Result<Task> {
        let Self { attempt, vertex, mut inputs, in_flight, .. } = self;
        let has_outputs = !self.outputs.is_empty();
        let outputs = self
            .outputs
            .into_iter()
            .map(|(edge, (lanes, options))| (edge, ResultPartition::new(lanes, options)))
            .collect();
        let restored = self.restored.checkpoint;
        let mut build = Build::new(
            attempt,
            vertex.parallelism,
            self.key_groups,
            outputs,
            self.restored,
            self.splits,
            self.metrics.clone(),
        );
        build.wall_at_zero = clock.wall_at_zero();
        build.nanos = Clock::nanos;
        vertex.attach(&mut build)?;
        let key_range = build.key_range();
        let mut task_inputs = Vec::new();
        for (head, made) in build.heads.iter().enumerate() {
            if let Head::Source(_) = made {
                task_inputs.push(TaskInput::Source {
                    head,
                    is_blocked: false,
                    is_ended: false,
                    busy_until: Timestamp::ZERO,
                });
            }
        }
        for (head, made) in build.heads.iter().enumerate() {
            if let Head::Gate { edge, .. } = made {
                let consumers = inputs.remove(edge).ok_or_else(|| {
                    Error::new(ErrorKind::Internal, format!("edge {edge} has no channels"))
                })?;
                let count = consumers.len();
                for Input { producer, consumer } in consumers {
                    let recovered = in_flight.recover(*edge, producer, count, made, key_range)?;
                    let channel = InputChannel::new(*edge, producer, consumer, recovered);
                    task_inputs.push(TaskInput::Channel { head, channel });
                }
            }
        }
        let options = TaskOptions {
            attempt,
            name: vertex.name.clone(),
            checkpointed: self.checkpointed,
            guarantee: self.guarantee,
            has_state: vertex.has_state,
            emits_on_commit: vertex.emits_on_commit,
            has_outputs,
            may_capture: self.may_capture,
            operators_finished: self.operators_finished,
            ended_inputs: self.ended_inputs,
            drain_hold: self.drain_hold,
            restored,
            watermark_interval: WATERMARK_INTERVAL,
            buffer_timeout: self.buffer_timeout,
            latency_interval: self.latency_interval,
            metrics: self.metrics,
        };
        Ok(Task::new(options, build.heads, task_inputs))
    }
}
