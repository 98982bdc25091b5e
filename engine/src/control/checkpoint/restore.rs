//! What each task of a new deployment gets from a checkpoint, and which tasks are not deployed at
//! all.
//!
//! FLIP-147, failover and recovery: only tasks that had not finished are restarted. A task is left
//! out iff the checkpoint records it as finished and nothing that is deployed would feed it; the
//! channels from it are *born ended*. Within one parallelism, state goes to the subtask that had
//! it; otherwise keyed state goes by key group and lists are dealt out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use super::metadata::{
    Contributions, Metadata, OperatorEntry, StateKinds, StateSummary, SubtaskEntry,
};
use super::topology::{Topology, Vertex};
use crate::error::{Error, ErrorKind};
use crate::id::{ChannelIndex, CheckpointId, SubtaskId};

/// State of a range of key groups, in a handle that may hold more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedSource<S> {
    /// Where to read.
    pub state: S,
    /// The key groups to take from it.
    pub groups: Range<u32>,
}

/// Where a task's lists come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListSource<S> {
    /// What the subtask itself had.
    Own(Option<S>),
    /// The elements of all `sources`, counted through in order: those whose number is `index`
    /// modulo `of`.
    Dealt {
        /// In the order of the old subtasks.
        sources: Vec<S>,
        /// The subtask's share.
        index: u32,
        /// The number of shares.
        of: u32,
    },
}

/// Where records in flight come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InFlightSource<S> {
    /// What the subtask itself had, channel by channel.
    Own(Option<S>),
    /// The parallelism of the vertex or of one that feeds it has changed: what all old subtasks
    /// had, by index. Each record is taken by the subtask that its edge assigns it to.
    Rescaled(Vec<(u32, S)>),
}

/// What one operator of a task gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorRestore<S> {
    /// Keyed state; the ranges make up the task's share or less.
    pub keyed: Vec<KeyedSource<S>>,
    /// List state.
    pub list: ListSource<S>,
    /// Union state: all of every handle, those of finished subtasks included.
    pub union: Vec<S>,
    /// Broadcast state, never taken from a finished subtask.
    pub broadcast: Option<S>,
}

/// What one task gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRestore<S> {
    /// Its operators had finished: they get their state and their completion notice, but neither
    /// timers nor `end_input` nor `finish`; the task sends MAX watermark and end of data and
    /// leaves.
    pub operators_finished: bool,
    /// Inputs whose end the head operator has seen; not told again.
    pub ended_inputs: Vec<u32>,
    /// Channels of producers that are left out: after its recovered records each yields MAX
    /// watermark, end of data and end of partition by itself.
    pub born_ended: Vec<ChannelIndex>,
    /// Records in flight towards it.
    pub in_flight: InFlightSource<S>,
    /// In the order of the chain.
    pub operators: Vec<OperatorRestore<S>>,
}

/// A new deployment of a whole job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restoration<S> {
    /// From which checkpoint.
    pub checkpoint: CheckpointId,
    /// Tasks that are not deployed.
    pub left_out: BTreeSet<SubtaskId>,
    /// The others.
    pub tasks: BTreeMap<SubtaskId, TaskRestore<S>>,
    /// Union state that those left out leave behind; the coordinator carries it on.
    pub contributions: Contributions<S>,
}

/// The state can't be assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreError {
    /// Records are in flight on an edge that can't hand them to other subtasks, and the edge or the
    /// parallelism or max parallelism at one of its ends has changed.
    PinnedEdge {
        /// The head of the producing chain.
        from: String,
        /// The head of the consuming chain.
        to: String,
    },
    /// Keyed state was written for another number of key groups.
    MaxParallelism {
        /// The operator.
        operator: String,
        /// The number it was written for.
        was: u32,
        /// The number it would be restored to.
        is: u32,
    },
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PinnedEdge { from, to } => write!(
                f,
                "records are in flight from '{from}' to '{to}': \
                 the parallelism at both ends must stay as it was"
            ),
            Self::MaxParallelism { operator, was, is } => write!(
                f,
                "operator '{operator}' has keyed state for a max parallelism of {was}, not {is}"
            ),
        }
    }
}

impl std::error::Error for RestoreError {}

impl From<RestoreError> for Error {
    fn from(error: RestoreError) -> Self {
        Self::new(ErrorKind::Checkpoint, error.to_string())
    }
}

/// The key groups of subtask `index`: contiguous, and as even as can be.
pub fn key_groups(index: u32, parallelism: u32, max_parallelism: u32) -> Range<u32> {
    let start = |index: u32| {
        let start = (u64::from(index) * u64::from(max_parallelism)).div_ceil(parallelism.into());
        u32::try_from(start).expect("index is at most the parallelism")
    };
    start(index)..start(index + 1)
}

impl<S: StateSummary> Restoration<S> {
    /// Assigns what `metadata` records to the tasks of `topology`. Whether the graph may be
    /// restored at all is [`legality`](super::legality)'s business.
    ///
    /// # Errors
    /// If keyed state, or records in flight, don't fit.
    pub fn new(topology: &Topology, metadata: &Metadata<S>) -> Result<Self, RestoreError> {
        check_pinned_edges(topology, metadata)?;
        let mut restoration = Self {
            checkpoint: metadata.checkpoint,
            left_out: BTreeSet::new(),
            tasks: BTreeMap::new(),
            contributions: Contributions::new(),
        };
        for vertex in topology.in_order() {
            let old = OldVertex::new(vertex, metadata)?;
            for subtask in vertex.subtasks() {
                restoration.add(topology, metadata, &old, subtask);
            }
        }
        Ok(restoration)
    }

    fn add(
        &mut self,
        topology: &Topology,
        metadata: &Metadata<S>,
        old: &OldVertex<'_, S>,
        subtask: SubtaskId,
    ) {
        let is_left_out = |producer| self.left_out.contains(&producer);
        let mut channels = topology.channels(subtask);
        if old.had_left(subtask.index) && channels.all(|(_, producer)| is_left_out(producer)) {
            self.left_out.insert(subtask);
            let parts = old.union_parts(subtask.index);
            if !parts.is_empty() {
                self.contributions.insert(subtask, parts);
            }
            return;
        }
        let sends_nothing = |producer| {
            is_left_out(producer)
                || self.tasks.get(&producer).is_some_and(|task| task.operators_finished)
        };
        let mut channels = topology.channels(subtask);
        let operators_finished = old.had_finished_operators(subtask.index)
            && channels.all(|(_, producer)| sends_nothing(producer));
        let born_ended = topology
            .channels(subtask)
            .filter(|&(_, producer)| is_left_out(producer))
            .map(|(channel, _)| channel)
            .collect();
        let restore = TaskRestore {
            operators_finished,
            ended_inputs: old.ended_inputs(subtask.index),
            born_ended,
            in_flight: old.in_flight(topology, metadata, subtask.index),
            operators: old.operators(subtask.index),
        };
        self.tasks.insert(subtask, restore);
    }
}

/// Tasks that a restart from `metadata` would leave out; none if it can't be restored.
pub fn left_out<S: StateSummary>(
    topology: &Topology,
    metadata: &Metadata<S>,
) -> BTreeSet<SubtaskId> {
    let mut left_out = BTreeSet::new();
    for vertex in topology.in_order() {
        let Ok(old) = OldVertex::new(vertex, metadata) else { return BTreeSet::new() };
        for subtask in vertex.subtasks().filter(|subtask| old.had_left(subtask.index)) {
            if topology.channels(subtask).all(|(_, producer)| left_out.contains(&producer)) {
                left_out.insert(subtask);
            }
        }
    }
    left_out
}

fn check_pinned_edges<S>(topology: &Topology, metadata: &Metadata<S>) -> Result<(), RestoreError> {
    let is_unchanged = |vertex, name: &String| {
        topology.vertex(vertex).is_some_and(|vertex| {
            let head = &vertex.operators[0];
            (head.user_id.as_ref() == Some(name) || head.generated_id == *name)
                && metadata.operators.get(name).is_some_and(|entry| {
                    entry.parallelism == vertex.parallelism
                        && entry.max_parallelism == vertex.max_parallelism
                })
        })
    };
    for (from, to) in &metadata.pinned_edges {
        let mut edges = topology.edges().iter();
        if !edges.any(|edge| is_unchanged(edge.from, from) && is_unchanged(edge.to, to)) {
            return Err(RestoreError::PinnedEdge { from: from.clone(), to: to.clone() });
        }
    }
    Ok(())
}

/// A vertex of the new graph, with what the checkpoint records of its operators.
struct OldVertex<'a, S> {
    vertex: &'a Vertex,
    /// In the order of the chain; none: unknown to the checkpoint.
    entries: Vec<Option<&'a OperatorEntry<S>>>,
}

impl<'a, S: StateSummary> OldVertex<'a, S> {
    fn new(vertex: &'a Vertex, metadata: &'a Metadata<S>) -> Result<Self, RestoreError> {
        let entries: Vec<_> =
            vertex.operators.iter().map(|operator| metadata.operator(operator)).collect();
        for (operator, entry) in vertex.operators.iter().zip(&entries) {
            let Some(entry) = entry else { continue };
            let mut states = entry.entries().filter_map(|(_, entry)| state_of(entry));
            if entry.max_parallelism != vertex.max_parallelism
                && states.any(|state| state.kinds().keyed)
            {
                return Err(RestoreError::MaxParallelism {
                    operator: operator.id().to_owned(),
                    was: entry.max_parallelism,
                    is: vertex.max_parallelism,
                });
            }
        }
        Ok(Self { vertex, entries })
    }

    /// The entry of subtask `index`, if the parallelism is the same.
    fn own(&self, entry: &'a OperatorEntry<S>, index: u32) -> Option<&'a SubtaskEntry<S>> {
        let is_same = entry.parallelism == self.vertex.parallelism;
        entry.entry(index).filter(|_| is_same)
    }

    fn had_left(&self, index: u32) -> bool {
        self.entries.iter().all(|entry| {
            entry.is_some_and(|entry| {
                entry.is_fully_finished()
                    || matches!(self.own(entry, index), Some(SubtaskEntry::Finished { .. }))
            })
        })
    }

    fn had_finished_operators(&self, index: u32) -> bool {
        self.entries.iter().all(|entry| {
            let Some(entry) = entry else { return false };
            if entry.parallelism == self.vertex.parallelism {
                return matches!(self.own(entry, index), Some(SubtaskEntry::OperatorsFinished(_)));
            }
            let (mut all, mut known) = (true, 0);
            for (_, entry) in entry.entries() {
                known += 1;
                all &= !matches!(entry, SubtaskEntry::Running(_));
            }
            all && known == entry.parallelism
        })
    }

    fn union_parts(&self, index: u32) -> BTreeMap<String, S> {
        let operators = self.vertex.operators.iter().zip(&self.entries);
        operators
            .filter_map(|(operator, entry)| match self.own((*entry)?, index)? {
                SubtaskEntry::Finished { union } => {
                    Some((operator.id().to_owned(), union.clone()?))
                }
                SubtaskEntry::Running(_) | SubtaskEntry::OperatorsFinished(_) => None,
            })
            .collect()
    }

    fn ended_inputs(&self, index: u32) -> Vec<u32> {
        let Some(head) = self.entries[0] else { return Vec::new() };
        if head.parallelism == self.vertex.parallelism {
            let own = self.own(head, index).and_then(SubtaskEntry::state);
            return own.map(|state| state.ended_inputs.clone()).unwrap_or_default();
        }
        // An input has ended for a new subtask if it had for every old one; one without entry had
        // seen no end.
        let finished = |entry: &SubtaskEntry<S>| entry.state().is_none();
        let known = head.entries().count();
        let all_known = u32::try_from(known).is_ok_and(|known| known == head.parallelism);
        let mut states = head
            .entries()
            .filter(|(_, entry)| all_known && !finished(entry))
            .filter_map(|(_, entry)| entry.state());
        let Some(first) = states.next() else { return Vec::new() };
        states.fold(first.ended_inputs.clone(), |mut ended, state| {
            ended.retain(|input| state.ended_inputs.contains(input));
            ended
        })
    }

    fn in_flight(
        &self,
        topology: &Topology,
        metadata: &Metadata<S>,
        index: u32,
    ) -> InFlightSource<S> {
        let Some(head) = self.entries[0] else { return InFlightSource::Own(None) };
        let producers =
            topology.inputs(self.vertex.id).filter_map(|edge| topology.vertex(edge.from));
        let is_unchanged = |vertex: &Vertex| {
            metadata
                .operator(&vertex.operators[0])
                .is_some_and(|entry| entry.parallelism == vertex.parallelism)
        };
        let channels = |entry: &SubtaskEntry<S>| entry.state()?.channels.clone();
        if is_unchanged(self.vertex) && producers.into_iter().all(is_unchanged) {
            InFlightSource::Own(self.own(head, index).and_then(channels))
        } else {
            let all = head.entries().filter_map(|(old, entry)| Some((old, channels(entry)?)));
            match all.collect::<Vec<_>>() {
                all if all.is_empty() => InFlightSource::Own(None),
                all => InFlightSource::Rescaled(all),
            }
        }
    }

    fn operators(&self, index: u32) -> Vec<OperatorRestore<S>> {
        let nothing = || OperatorRestore {
            keyed: Vec::new(),
            list: ListSource::Own(None),
            union: Vec::new(),
            broadcast: None,
        };
        let restore = |entry: &Option<&'a OperatorEntry<S>>| match entry {
            Some(entry) => self.operator(entry, index),
            None => nothing(),
        };
        self.entries.iter().map(restore).collect()
    }

    fn operator(&self, entry: &'a OperatorEntry<S>, index: u32) -> OperatorRestore<S> {
        let Vertex { parallelism, max_parallelism, .. } = *self.vertex;
        let is_same = entry.parallelism == parallelism;
        let own = self.own(entry, index).and_then(state_of);
        let groups = key_groups(index, parallelism, max_parallelism);
        let keyed = with(entry, |kinds| kinds.keyed)
            .filter_map(|(old, state)| {
                let had = key_groups(old, entry.parallelism, entry.max_parallelism);
                let groups = had.start.max(groups.start)..had.end.min(groups.end);
                (!groups.is_empty()).then(|| KeyedSource { state: state.clone(), groups })
            })
            .collect();
        let list = if is_same {
            ListSource::Own(own.filter(|state| state.kinds().list).cloned())
        } else {
            let sources = with(entry, |kinds| kinds.list).map(|(_, state)| state.clone());
            ListSource::Dealt { sources: sources.collect(), index, of: parallelism }
        };
        let union = entry.entries().filter_map(|(_, entry)| match entry {
            SubtaskEntry::Running(state) | SubtaskEntry::OperatorsFinished(state) => {
                state.state.clone().filter(|state| state.kinds().union)
            }
            SubtaskEntry::Finished { union } => union.clone(),
        });
        let broadcast = own.filter(|state| state.kinds().broadcast);
        OperatorRestore {
            keyed,
            list,
            union: union.collect(),
            broadcast: broadcast.or_else(|| donor(entry, index)).cloned(),
        }
    }
}

fn state_of<S>(entry: &SubtaskEntry<S>) -> Option<&S> {
    entry.state()?.state.as_ref()
}

/// The states of `entry` that hold a kind, by old index.
fn with<S: StateSummary>(
    entry: &OperatorEntry<S>,
    holds: impl Fn(StateKinds) -> bool,
) -> impl Iterator<Item = (u32, &S)> {
    entry
        .entries()
        .filter_map(|(old, entry)| Some((old, state_of(entry)?)))
        .filter(move |(_, state)| holds(state.kinds()))
}

/// Broadcast state for a subtask that has none of its own: of a running subtask if there is one, in
/// turn.
fn donor<S: StateSummary>(entry: &OperatorEntry<S>, index: u32) -> Option<&S> {
    let is_running = |old: u32| matches!(entry.entry(old), Some(SubtaskEntry::Running(_)));
    let donors: Vec<_> = with(entry, |kinds| kinds.broadcast).collect();
    let running: Vec<_> = donors.iter().filter(|(old, _)| is_running(*old)).copied().collect();
    let donors = if running.is_empty() { donors } else { running };
    (!donors.is_empty()).then(|| donors[index as usize % donors.len()].1)
}
