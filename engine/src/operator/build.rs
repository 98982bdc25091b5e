//! One attempt of one subtask while its operators are made.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::boxed::DynOp;
use super::head::Head;
use super::split::SideOutput;
use crate::channel::partition::ResultPartition;
use crate::clock::EpochMillis;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{AttemptId, CheckpointId};
use crate::metrics::TaskMetrics;
use crate::record::Data;
use crate::record::key_group::{KeyGroupRange, KeyGroups};
use crate::source::Split;
use crate::state::part::{RestoredPart, RestoredState};

/// The place in a task's build where a side output's end is found.
pub(crate) type Slot<T> = Rc<RefCell<Option<Box<dyn DynOp<T>>>>>;

/// What the operators of one subtask need to be made.
#[derive(Debug)]
pub struct Build {
    /// Which attempt.
    pub(crate) attempt: AttemptId,
    /// How many subtasks the vertex has.
    pub(crate) parallelism: u32,
    /// The job's key groups.
    pub(crate) key_groups: KeyGroups,
    /// The heads made so far.
    pub(crate) heads: Vec<Head>,
    /// Outputs by edge.
    pub(crate) outputs: BTreeMap<usize, ResultPartition>,
    /// What is restored.
    pub(crate) restored: Arc<RestoredState>,
    /// The sources' splits for a first start, by source, already this subtask's share.
    pub(crate) splits: BTreeMap<String, Vec<Split>>,
    /// The task's counters.
    pub(crate) metrics: Arc<TaskMetrics>,
    /// Counts nanoseconds.
    pub(crate) nanos: fn() -> u64,
    /// What the wall clock showed at `Timestamp::ZERO`.
    pub(crate) wall_at_zero: EpochMillis,
    slots: BTreeMap<usize, Box<dyn Any>>,
}

impl Build {
    pub(crate) fn new(
        attempt: AttemptId,
        parallelism: u32,
        key_groups: KeyGroups,
        outputs: BTreeMap<usize, ResultPartition>,
        restored: Arc<RestoredState>,
        splits: BTreeMap<String, Vec<Split>>,
        metrics: Arc<TaskMetrics>,
    ) -> Self {
        Self {
            attempt,
            parallelism,
            key_groups,
            heads: Vec::new(),
            outputs,
            restored,
            splits,
            metrics,
            nanos: || 0,
            wall_at_zero: EpochMillis(0),
            slots: BTreeMap::new(),
        }
    }

    /// Which subtask, from 0.
    pub(crate) fn subtask(&self) -> u32 {
        self.attempt.subtask.index
    }

    /// The key groups that the subtask owns.
    pub(crate) fn key_range(&self) -> KeyGroupRange {
        self.key_groups.range(self.subtask(), self.parallelism)
    }

    /// The checkpoint that is restored, if one is.
    pub(crate) fn restored_checkpoint(&self) -> Option<CheckpointId> {
        self.restored.checkpoint
    }

    /// What the restored checkpoint holds for operator `name` in this subtask.
    pub(crate) fn restored_parts(&self, name: &str) -> &[RestoredPart] {
        self.restored.operators.get(name).map_or(&[], Vec::as_slice)
    }

    /// Takes the output of an edge.
    pub(crate) fn output(&mut self, edge: usize) -> Result<ResultPartition> {
        self.outputs.remove(&edge).ok_or_else(|| {
            Error::new(ErrorKind::Internal, format!("edge {edge} has no output in this subtask"))
        })
    }

    /// The producer's side of side output `id`.
    pub(crate) fn side_output<T: Data>(&mut self, id: usize) -> SideOutput<T> {
        SideOutput::new(self.slot(id))
    }

    /// The place of side output `id`, shared by who fills it and who ends it.
    pub(crate) fn slot<T: Data>(&mut self, id: usize) -> Slot<T> {
        self.slots
            .entry(id)
            .or_insert_with(|| Box::new(Slot::<T>::default()))
            .downcast_ref::<Slot<T>>()
            .expect("a side output has one record type")
            .clone()
    }
}
