//! What a completed checkpoint records: per operator and subtask, which of five kinds of entry it
//! has.
//!
//! 1. no entry: a running subtask without state
//! 2. [`SubtaskEntry::Running`]: the state of a running subtask
//! 3. [`SubtaskEntry::OperatorsFinished`]: the state of a subtask that only waits to leave
//! 4. [`SubtaskEntry::Finished`]: a subtask that has left, with its part of the union state
//! 5. [`Progress::FullyFinished`]: all subtasks of the operator have finished for good
//!
//! The coordinator never looks into a state; it asks [`StateSummary`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::options::SnapshotKind;
use super::topology::Operator;
use crate::clock::Timestamp;
use crate::id::{CheckpointId, SubtaskId};

/// Which kinds of state a handle holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StateKinds {
    /// State by key group.
    pub keyed: bool,
    /// Lists whose elements are dealt out to the subtasks.
    pub list: bool,
    /// Lists that every subtask gets whole.
    pub union: bool,
    /// The same in every subtask.
    pub broadcast: bool,
}

/// What the coordinator may ask a handle of one operator's state in one subtask.
pub trait StateSummary: Clone + fmt::Debug {
    /// Which kinds of state it holds.
    fn kinds(&self) -> StateKinds;

    /// A handle of its union state alone; none if it has none.
    fn union_part(&self) -> Option<Self>;
}

/// What one subtask stored of one operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubtaskState<S> {
    /// The operator's state, if it has any.
    pub state: Option<S>,
    /// Records in flight towards the subtask; only with the head of the chain.
    pub channels: Option<S>,
    /// Inputs whose end the operator has seen; only with the head of the chain.
    pub ended_inputs: Vec<u32>,
    /// The checkpoint the state belongs to.
    pub reference: CheckpointId,
}

/// The entry of one subtask. No entry: a running subtask that had nothing to store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SubtaskEntry<S> {
    /// It was running.
    Running(SubtaskState<S>),
    /// Its operators had finished; it was waiting to leave.
    OperatorsFinished(SubtaskState<S>),
    /// It had left.
    Finished {
        /// Its part of the operator's union state.
        union: Option<S>,
    },
}

/// The entry of one operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OperatorEntry<S> {
    /// Number of subtasks.
    pub parallelism: u32,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// What the subtasks recorded.
    pub progress: Progress<S>,
}

/// How far the subtasks of an operator were.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Progress<S> {
    /// All have finished, nothing is uncommitted, and so it is with everything before it: not to be
    /// run again.
    FullyFinished,
    /// By index.
    Subtasks {
        /// Those that have an entry.
        entries: BTreeMap<u32, SubtaskEntry<S>>,
        /// State of the operator's half on the control thread.
        coordinator: Option<S>,
    },
}

impl<S> OperatorEntry<S> {
    /// The entries of its subtasks, by index; none if it is fully finished.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &SubtaskEntry<S>)> {
        let entries = match &self.progress {
            Progress::Subtasks { entries, .. } => Some(entries),
            Progress::FullyFinished => None,
        };
        entries.into_iter().flatten().map(|(&index, entry)| (index, entry))
    }

    /// The entry of one subtask.
    pub fn entry(&self, index: u32) -> Option<&SubtaskEntry<S>> {
        match &self.progress {
            Progress::Subtasks { entries, .. } => entries.get(&index),
            Progress::FullyFinished => None,
        }
    }

    /// All its subtasks have finished for good.
    pub fn is_fully_finished(&self) -> bool {
        matches!(self.progress, Progress::FullyFinished)
    }
}

impl<S> SubtaskEntry<S> {
    /// What a subtask that had not left stored.
    pub fn state(&self) -> Option<&SubtaskState<S>> {
        match self {
            Self::Running(state) | Self::OperatorsFinished(state) => Some(state),
            Self::Finished { .. } => None,
        }
    }
}

/// Union state that finished subtasks left behind, by operator id.
pub type Contributions<S> = BTreeMap<SubtaskId, BTreeMap<String, S>>;

/// All of one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Metadata<S> {
    /// Which.
    pub checkpoint: CheckpointId,
    /// When it was triggered.
    pub timestamp: Timestamp,
    /// What for.
    pub kind: SnapshotKind,
    /// By operator id.
    pub operators: BTreeMap<String, OperatorEntry<S>>,
    /// Edges, by the heads of their two chains, whose records in flight keep both parallelisms as
    /// they are.
    pub pinned_edges: BTreeSet<(String, String)>,
}

impl<S> Metadata<S> {
    /// The entry of `operator`: by the user's name first, then by the generated one.
    pub fn operator(&self, operator: &Operator) -> Option<&OperatorEntry<S>> {
        let by_user = operator.user_id.as_ref().and_then(|id| self.operators.get(id));
        by_user.or_else(|| self.operators.get(&operator.generated_id))
    }

    /// Forgets all records in flight, and nothing else: finished entries stay what they are.
    pub fn ignore_in_flight(&mut self) {
        self.pinned_edges.clear();
        for operator in self.operators.values_mut() {
            let Progress::Subtasks { entries, .. } = &mut operator.progress else { continue };
            for entry in entries.values_mut() {
                match entry {
                    SubtaskEntry::Running(state) | SubtaskEntry::OperatorsFinished(state) => {
                        state.channels = None;
                    }
                    SubtaskEntry::Finished { .. } => {}
                }
            }
        }
    }
}
