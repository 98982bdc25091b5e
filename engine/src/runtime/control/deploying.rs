//! Deploys tasks: makes their channels, reads what is restored, and hands them to the workers that have their slots.
//!
//! What is deployed together is closed under channels, so no channel leads to a task that runs already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_netstack::lane::{self, LaneOptions};
use tidegate_netstack::pool::PoolOptions;

use super::Control;
use crate::barrier::Guarantee;
use crate::channel::partition::PartitionOptions;
use crate::control::checkpoint::legality;
use crate::control::checkpoint::message::{Input, Restored};
use crate::control::checkpoint::metadata::Contributions;
use crate::control::checkpoint::options::CheckpointMode;
use crate::control::checkpoint::restore::{Restoration, TaskRestore};
use crate::control::execution::TaskReport;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{AttemptId, CheckpointId, SubtaskId, VertexId};
use crate::metrics::TaskMetrics;
use crate::operator::EdgeKind;
use crate::probe;
use crate::runtime::cluster::Spot;
use crate::runtime::deployment::{Deployment, Input as ChannelInput};
use crate::runtime::in_flight::InFlight;
use crate::runtime::restore::{self, Handle};
use crate::runtime::starting;
use crate::runtime::worker::Command;
use crate::source::Split;
use crate::state::part::RestoredState;
use crate::state::snapshots::SnapshotReader;

/// The worker of each task that is deployed.
type Spots = BTreeMap<SubtaskId, usize>;

/// One deployed task.
#[derive(Debug)]
pub(super) struct Deployed {
    pub(super) attempt: AttemptId,
    pub(super) worker: usize,
}

impl Control {
    /// Restores these attempts from `restore` and hands them to their workers. Tasks that the checkpoint records as finished are
    /// not deployed; the job master hears that they have finished.
    pub(super) fn deploy(
        &mut self,
        restore: Option<CheckpointId>,
        wanted: &BTreeMap<AttemptId, Spot>,
    ) -> Result<()> {
        let restoration = restore.map(|checkpoint| self.restoration(checkpoint)).transpose()?;
        let part: BTreeSet<SubtaskId> = self.cluster.region_of(wanted.keys().map(|id| id.subtask));
        let left_out = |subtask: &SubtaskId| {
            restoration.as_ref().is_some_and(|(r, _)| r.left_out.contains(subtask))
        };
        let is_wanted: BTreeSet<SubtaskId> = wanted.keys().map(|id| id.subtask).collect();
        if let Some(lost) = part.iter().find(|it| !is_wanted.contains(it) && !left_out(it)) {
            let message = format!("{lost} counts as finished, but the checkpoint says otherwise");
            return Err(Error::new(ErrorKind::Internal, message));
        }
        let (absent, present): (BTreeMap<_, _>, BTreeMap<_, _>) =
            wanted.iter().partition(|(id, _)| left_out(&id.subtask));
        let mut metrics = BTreeMap::new();
        let mut deployments: BTreeMap<SubtaskId, Deployment> = BTreeMap::new();
        for &&attempt in present.keys() {
            let subtask = attempt.subtask;
            let restored = match &restoration {
                Some((restoration, reader)) => {
                    let names = &self.vertices[subtask.vertex.0 as usize].names;
                    let task: &TaskRestore<Handle> = &restoration.tasks[&subtask];
                    restore::restored_state(restoration.checkpoint, names, task, reader)?
                }
                None => RestoredState::default(),
            };
            let counters = Arc::new(TaskMetrics::default());
            metrics.insert(subtask, counters.clone());
            let mut deployment = self.deployment(attempt, restored, counters);
            if let Some((restoration, reader)) = &restoration {
                let task = &restoration.tasks[&subtask];
                deployment.operators_finished = task.operators_finished;
                deployment.ended_inputs = task.ended_inputs.clone();
                deployment.in_flight = InFlight::of(&task.in_flight, reader);
            }
            deployments.insert(subtask, deployment);
        }
        let spots: Spots = present.iter().map(|(id, spot)| (id.subtask, spot.worker)).collect();
        self.connect(&mut deployments, &spots);
        self.tasks.retain(|subtask, _| !part.contains(subtask));
        for (&attempt, spot) in present.iter().map(|(id, spot)| (*id, *spot)) {
            self.tasks.insert(attempt.subtask, Deployed { attempt, worker: spot.worker });
            self.cluster.note_deployed(attempt, spot);
        }
        let contributions = match &restoration {
            Some((r, _)) => {
                let of_part = r.contributions.iter().filter(|(subtask, _)| part.contains(subtask));
                of_part.map(|(subtask, parts)| (*subtask, parts.clone())).collect()
            }
            None => Contributions::new(),
        };
        let left_out: Vec<SubtaskId> = part.iter().filter(|it| left_out(it)).copied().collect();
        let (tasks, count) = (present.len(), left_out.len());
        probe::note(None, &probe::Deployed { restored: restore, tasks, left_out: count });
        self.decide(Input::Restored(Restored {
            checkpoint: restore,
            tasks: present.keys().map(|id| **id).collect(),
            left_out,
            contributions,
        }));
        let vertices = &self.vertices;
        self.shared.update(|board| {
            board.tasks.retain(|(subtask, ..)| !part.contains(subtask));
            board.tasks.extend(
                metrics.into_iter().map(|(id, counters)| {
                    (id, vertices[id.vertex.0 as usize].name.clone(), counters)
                }),
            );
            board.tasks.sort_by_key(|(subtask, ..)| *subtask);
        });
        for (subtask, deployment) in deployments {
            self.cluster.crew().post(spots[&subtask], Command::Deploy(Box::new(deployment)));
        }
        for attempt in absent.keys() {
            self.cluster.report(**attempt, TaskReport::Finished);
        }
        self.note_running();
        Ok(())
    }

    /// What every task gets from a checkpoint, and who reads it.
    fn restoration(
        &self,
        checkpoint: CheckpointId,
    ) -> Result<(Restoration<Handle>, Arc<SnapshotReader>)> {
        let reader = Arc::new(match &self.origin {
            Some((id, folder)) if *id == checkpoint => {
                starting::open_savepoint(&self.snapshots, folder)?
            }
            Some(_) | None => self.snapshots.open(checkpoint)?,
        });
        restore::check_operators(&self.topology, reader.meta())?;
        let metadata = restore::metadata(reader.meta());
        legality::check(&self.topology, &metadata)
            .map_err(|error| Error::new(ErrorKind::Checkpoint, error.to_string()))?;
        Ok((Restoration::new(&self.topology, &metadata)?, reader))
    }

    fn deployment(
        &self,
        attempt: AttemptId,
        restored: RestoredState,
        metrics: Arc<TaskMetrics>,
    ) -> Deployment {
        let subtask = attempt.subtask;
        let vertex = self.vertices[subtask.vertex.0 as usize].clone();
        let share = |name: &String| -> (String, Vec<Split>) {
            let all = self.splits.get(name).map_or(&[][..], Vec::as_slice);
            let step = vertex.parallelism as usize;
            let own = all.iter().skip(subtask.index as usize).step_by(step).cloned().collect();
            (name.clone(), own)
        };
        let splits = vertex.sources.iter().map(|(name, _)| share(name)).collect();
        Deployment {
            attempt,
            vertex,
            key_groups: self.graph.key_groups,
            outputs: BTreeMap::new(),
            inputs: BTreeMap::new(),
            restored: Arc::new(restored),
            in_flight: InFlight::default(),
            operators_finished: false,
            ended_inputs: Vec::new(),
            guarantee: match self.options.coordinator.mode {
                CheckpointMode::AtLeastOnce => Guarantee::AtLeastOnce,
                CheckpointMode::ExactlyOnce | CheckpointMode::ExactlyOnceUnaligned { .. } => {
                    Guarantee::ExactlyOnce
                }
            },
            splits,
            checkpointed: self.options.checkpointed,
            drain_hold: self.options.drain_hold,
            may_capture: self.may_capture(subtask.vertex),
            buffer_timeout: self.options.buffer_timeout,
            latency_interval: self.options.latency_interval,
            metrics,
        }
    }

    /// Makes the channels between deployed tasks; a channel from a task that is left out is born ended.
    fn connect(&self, deployments: &mut BTreeMap<SubtaskId, Deployment>, spots: &Spots) {
        let parallelism = |id: VertexId| self.vertices[id.0 as usize].parallelism;
        for edge in &self.graph.edges {
            let (producers, consumers) = (parallelism(edge.from), parallelism(edge.to));
            let options = self.partition_options(edge.to);
            for from in 0..producers {
                let producer = SubtaskId { vertex: edge.from, index: from };
                let mut lanes = Vec::new();
                for to in 0..consumers {
                    let consumer = SubtaskId { vertex: edge.to, index: to };
                    let is_fed =
                        deployments.contains_key(&producer) && deployments.contains_key(&consumer);
                    let input = if is_fed {
                        let lane = self.lane_options(consumers, (producer, consumer), spots);
                        let (tx, rx) = lane::channel(lane);
                        lanes.push(tx);
                        ChannelInput { producer: from, consumer: Some(rx) }
                    } else {
                        ChannelInput { producer: from, consumer: None }
                    };
                    if let Some(deployment) = deployments.get_mut(&consumer) {
                        deployment.inputs.entry(edge.edge).or_default().push(input);
                    }
                }
                if let Some(deployment) = deployments.get_mut(&producer) {
                    deployment.outputs.insert(edge.edge, (lanes, options));
                }
            }
        }
    }

    /// What is in flight towards a task is captured on all its inputs or on none: if one of them can't be dealt out again by key,
    /// none is overtaken. Nor is what a commit emits: the next commit could come before it is read.
    fn may_capture(&self, vertex: VertexId) -> bool {
        let mut inputs = self.graph.edges.iter().filter(|edge| edge.to == vertex);
        let are_keyed = inputs.all(|edge| edge.kind == EdgeKind::Keyed);
        let mut inputs = self.graph.edges.iter().filter(|edge| edge.to == vertex);
        let is_emitted = inputs.any(|edge| self.vertices[edge.from.0 as usize].emits_on_commit);
        (are_keyed || self.options.unaligned_any_edge) && !is_emitted
    }

    /// Those of an edge to that vertex.
    fn partition_options(&self, to: VertexId) -> PartitionOptions {
        PartitionOptions {
            supports_unaligned: self.may_capture(to),
            record_bytes_max: self.options.record_bytes_max,
            segment_bytes: self.options.segment_bytes,
        }
    }

    fn lane_options(
        &self,
        fan_out: u32,
        (producer, consumer): (SubtaskId, SubtaskId),
        spots: &Spots,
    ) -> LaneOptions {
        /// Buffers of all lanes of one output together: what stays in a core's cache, and the memory of wide jobs, is bounded.
        const OUTPUT_SEGMENTS: u32 = 64;
        let share = (OUTPUT_SEGMENTS / fan_out).clamp(2, self.options.buffers_per_channel.max(2));
        LaneOptions {
            pool: PoolOptions {
                segment_bytes: self.options.segment_bytes,
                segments: share as usize,
                emission_bytes_max: self.options.emission_bytes_max,
            },
            events_max: 64,
            priority_max: 2 * self.options.coordinator.max_concurrent + 4,
            producer: self.cluster.crew().waker(spots[&producer]),
            consumer: self.cluster.crew().waker(spots[&consumer]),
        }
    }
}
