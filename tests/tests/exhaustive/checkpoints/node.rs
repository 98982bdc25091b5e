//! One task of the small job: its machines, its channels, and what its operator holds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate::barrier;
use tidegate::channel::event::Barrier;
use tidegate::control::checkpoint::message::{Ack, Input as ControlInput};
use tidegate::control::checkpoint::metadata::{StateKinds, StateSummary};
use tidegate::control::checkpoint::restore::{ListSource, TaskRestore};
use tidegate::id::{AttemptId, CheckpointId};
use tidegate::task::{finish, snapshot};

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// Reads splits.
    Source,
    /// Hands records on at once.
    Pass,
    /// Hands records on when the checkpoint that holds them completes.
    EmitsOnCommit,
    /// Commits records when the checkpoint that holds them completes.
    Commits,
}

/// Record `number` of source split `split`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Record {
    pub(crate) split: u8,
    pub(crate) number: u8,
}

/// What is committed at once: made once, by an attempt of a task for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Transaction {
    pub(crate) by: AttemptId,
    pub(crate) checkpoint: CheckpointId,
}

/// One element of an operator's list state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Element {
    /// The next record of a split.
    Split { split: u8, next: u8 },
    /// What waits for a completion.
    Waiting { transaction: Transaction, records: Vec<Record> },
}

/// An operator's state in one task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct List(pub(crate) Vec<Element>);

impl StateSummary for List {
    fn kinds(&self) -> StateKinds {
        StateKinds { list: true, ..StateKinds::default() }
    }

    fn union_part(&self) -> Option<Self> {
        None
    }
}

/// What stands in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    Record(Record),
    Barrier(Barrier),
    Cancel(CheckpointId),
    EndOfData { drain: bool },
    EndOfPartition,
}

/// One input channel.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Channel {
    pub(crate) items: VecDeque<Item>,
    /// Served before anything is read.
    pub(crate) notice: Option<barrier::Input>,
    pub(crate) is_blocked: bool,
    /// The highest barrier or cancellation put in.
    pub(crate) last_barrier: u64,
    pub(crate) is_end_read: bool,
}

impl Channel {
    pub(crate) fn new(restored: Option<CheckpointId>) -> Self {
        Self {
            items: VecDeque::new(),
            notice: None,
            is_blocked: false,
            last_barrier: restored.map_or(0, |id| id.0),
            is_end_read: false,
        }
    }
}

/// What the control thread told a task.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Mail {
    Trigger(Barrier),
    Complete(CheckpointId),
    Aborted { checkpoint: CheckpointId, latest: Option<CheckpointId> },
    Granted,
    Held(Vec<Barrier>),
}

/// What a task told the control thread.
#[derive(Clone, Debug, Hash)]
pub(crate) enum Report {
    /// Goes to the I/O thread first.
    Snapshot(Box<Ack<List>>),
    Control(Told),
    Finished,
    Failed,
}

/// What goes to the coordinator as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Declined(CheckpointId),
    EndOfData,
    Awaits(bool),
    FinishRequest,
}

impl Told {
    pub(crate) fn input(self, task: AttemptId) -> ControlInput<List> {
        use tidegate::control::checkpoint::failure::FailureReason;
        match self {
            Self::Declined(checkpoint) => ControlInput::Decline {
                checkpoint,
                task,
                reason: FailureReason::Declined,
                waiting: Vec::new(),
            },
            Self::EndOfData => ControlInput::EndOfDataReached { task },
            Self::Awaits(true) => ControlInput::AwaitsCheckpoint { task, since: None },
            Self::Awaits(false) => ControlInput::AwaitWithdrawn { task },
            Self::FinishRequest => ControlInput::FinishRequest { task },
        }
    }
}

/// A deployed task.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Node {
    pub(crate) id: AttemptId,
    pub(crate) role: Role,
    pub(crate) finish: finish::Machine,
    pub(crate) align: barrier::Machine,
    pub(crate) order: snapshot::Machine,
    pub(crate) channels: Vec<Channel>,
    pub(crate) mail: VecDeque<Mail>,
    pub(crate) reports: VecDeque<Report>,
    /// A step of finishing is under way.
    pub(crate) runs_step: bool,
    pub(crate) is_flushing: bool,
    pub(crate) is_end_acknowledged: bool,
    pub(crate) has_left: bool,
    pub(crate) is_dead: bool,
    /// A source that reads no more.
    pub(crate) is_exhausted: bool,
    /// Checkpoints the task acknowledged, and those whose completion it has been told of.
    pub(crate) acknowledged: BTreeSet<CheckpointId>,
    pub(crate) told: BTreeSet<CheckpointId>,
    pub(crate) splits: BTreeMap<u8, u8>,
    pub(crate) open: Vec<Record>,
    pub(crate) waiting: BTreeMap<CheckpointId, Vec<Record>>,
    /// Taken, and not acknowledged.
    pub(crate) taken: BTreeMap<CheckpointId, Ack<List>>,
}

impl Node {
    /// A task without channels.
    pub(crate) fn new(
        id: AttemptId,
        role: Role,
        channels: usize,
        has_outputs: bool,
        drain_hold: bool,
        restored: Option<(CheckpointId, &TaskRestore<List>)>,
    ) -> Self {
        let checkpoint = restored.map(|(id, _)| id);
        let is_source = role == Role::Source;
        let config = finish::Config {
            drain_hold,
            needs_final_checkpoint: role != Role::Pass,
            emits_on_commit: role == Role::EmitsOnCommit,
            restored: checkpoint,
            ended_inputs: restored.map_or_else(Vec::new, |(_, task)| {
                task.ended_inputs.iter().map(|&input| input as usize).collect()
            }),
            operators_finished: restored.is_some_and(|(_, task)| task.operators_finished),
            ..finish::Config::new(channels, usize::from(has_outputs))
        };
        let align = barrier::Config {
            restored: checkpoint,
            // A source's trigger is the barrier of a channel of its own.
            ..barrier::Config::exactly_once(channels + usize::from(is_source))
        };
        Self {
            id,
            role,
            finish: finish::Machine::new(config),
            align: barrier::Machine::new(align),
            order: snapshot::Machine::new(checkpoint),
            channels: Vec::new(),
            mail: VecDeque::new(),
            reports: VecDeque::new(),
            runs_step: false,
            is_flushing: false,
            is_end_acknowledged: false,
            has_left: false,
            is_dead: false,
            is_exhausted: restored.is_some_and(|(_, task)| task.operators_finished),
            acknowledged: BTreeSet::new(),
            told: BTreeSet::new(),
            splits: BTreeMap::new(),
            open: Vec::new(),
            waiting: BTreeMap::new(),
            taken: BTreeMap::new(),
        }
    }

    /// What its operator stores.
    pub(crate) fn state(&self) -> List {
        let splits = self.splits.iter().map(|(&split, &next)| Element::Split { split, next });
        let waiting = self.waiting.iter().map(|(&checkpoint, records)| Element::Waiting {
            transaction: Transaction { by: self.id, checkpoint },
            records: records.clone(),
        });
        List(splits.chain(waiting).collect())
    }

    /// What its operator gets back.
    pub(crate) fn restored_elements(task: &TaskRestore<List>) -> Vec<Element> {
        match &task.operators[0].list {
            ListSource::Own(list) => list.clone().map_or_else(Vec::new, |list| list.0),
            ListSource::Dealt { sources, index, of } => {
                let all = sources.iter().flat_map(|list| &list.0).enumerate();
                all.filter(|(at, _)| *at as u32 % of == *index).map(|(_, it)| it.clone()).collect()
            }
        }
    }
}
