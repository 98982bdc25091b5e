//! What the components of the simulated cluster tell each other, and what happens in it at a time.

use tidegate::control::blocklist::listeners::BlocklistMessage;
use tidegate::control::execution::TaskReport;
use tidegate::control::identity::{AllocationId, LeaderId};
use tidegate::control::slots::pool::SlotOffer;
use tidegate::control::slots::profile::ResourceCounter;
use tidegate::control::slots::task_slots::SlotStatus;
use tidegate::id::{AttemptId, CheckpointId, SubtaskId};

use super::net::SessionId;

/// A component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// The resource manager of the moment.
    Cluster,
    /// A job master.
    Job(usize),
    /// A task manager.
    TaskManager(usize),
}

impl Who {
    const fn number(self) -> u64 {
        match self {
            Self::Cluster => 0,
            Self::Job(job) => 1 + job as u64,
            Self::TaskManager(index) => 1000 + index as u64,
        }
    }
}

/// What a session carries.
#[derive(Clone, Debug)]
pub enum Message {
    /// The first of a session: its opener registers.
    Register,
    /// The answer to it. The resource manager's names its term.
    Accepted(LeaderId),
    /// A task manager that was ended must not come back.
    Reject,
    /// Between job master and resource manager.
    Blocklist(BlocklistMessage),
    /// What a job needs in all.
    Declare(ResourceCounter),
    /// A request for a sign of life; a job master's names the slots it holds there.
    Beat(Vec<AllocationId>),
    /// A sign of life.
    Alive,
    /// A task manager's sign of life for the resource manager.
    Slots(Vec<SlotStatus>, bool),
    /// A slot is granted: slot, job, grant.
    Grant(u32, usize, AllocationId),
    /// Whether the task manager took it.
    Granted(AllocationId, bool),
    /// A slot is free again.
    Freed(AllocationId),
    /// Slots for a job.
    Offer(Vec<SlotOffer>),
    /// What was offered, and what of it is taken.
    Answer(Vec<AllocationId>, Vec<AllocationId>),
    /// The job gives a slot up.
    Free(AllocationId),
    /// The task manager doesn't have this slot.
    Gone(AllocationId),
    /// Run an attempt in a slot; the inputs that have ended already, and those it has at all.
    Deploy(AttemptId, AllocationId, Box<Wiring>),
    /// Stop an attempt.
    Cancel(AttemptId),
    /// Of an attempt to its job master.
    Task(AttemptId, TaskReport),
    /// Of an attempt to its coordinator.
    Progress(AttemptId, Progress),
    /// Of the coordinator to an attempt.
    Order(AttemptId, Order),
}

/// Who feeds an attempt and whom it feeds.
#[derive(Clone, Debug, Default)]
pub struct Wiring {
    /// Producers.
    pub inputs: Vec<SubtaskId>,
    /// Those of them that had finished in the restored checkpoint.
    pub ended: Vec<SubtaskId>,
    /// Consumers.
    pub outputs: Vec<SubtaskId>,
    /// When its input has no more records, if it is a source that ends.
    pub ends_at: Option<u64>,
    /// Whether it leaves only behind a checkpoint that it took at its end.
    pub needs_final: bool,
}

/// What an attempt tells its coordinator.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// It runs.
    Running,
    /// It has stored its snapshot; whether at its end, and whether something is left to commit.
    Stored(CheckpointId, bool, bool),
    /// It can't take part.
    Declined(CheckpointId),
    /// It has sent its end of data.
    AtEnd,
    /// It waits for a completed checkpoint.
    Awaits,
    /// It waits no more.
    Goes,
    /// It asks to leave.
    Leaves,
}

/// What the coordinator tells an attempt.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Take a snapshot.
    Trigger(CheckpointId),
    /// A checkpoint is complete.
    Complete(CheckpointId),
    /// A checkpoint will not be.
    Aborted(CheckpointId),
    /// It may leave.
    Permit,
}

/// What one attempt sends another along a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// A barrier.
    Barrier(CheckpointId),
    /// The end of data.
    EndOfData,
    /// The end of partition.
    End,
}

/// What happens at a time.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message arrives.
    Deliver {
        /// On which session.
        session: SessionId,
        /// At which end.
        to: Who,
        /// What.
        message: Message,
    },
    /// An end notices that its session is over.
    Closed(SessionId, Who),
    /// An end notices that a message of its could not be delivered.
    Undeliverable(SessionId, Who),
    /// A machine's deadline.
    Tick(Who),
    /// A component tries to reach another.
    Connect(Who, Who),
    /// One attempt's lane to another.
    Lane {
        /// Of which job.
        job: usize,
        /// From whom.
        from: AttemptId,
        /// To whom.
        to: SubtaskId,
        /// What.
        what: Lane,
    },
    /// Something happens within an attempt on a task manager.
    Attempt(usize, usize, AttemptId, Step),
    /// The store answers a job's coordinator.
    Store(usize, Stored),
    /// The driver starts a task manager.
    WorkerStarts,
    /// A node starts the task manager again that ran there.
    Restart(u64),
    /// A new resource manager takes over.
    Successor,
    /// Trouble of some kind.
    Trouble,
    /// The trouble is over.
    Heal,
}

impl Event {
    /// Two numbers for the digest: what, and where.
    pub const fn kind(&self) -> (u64, u64) {
        match self {
            Self::Deliver { session, .. } => (0, *session as u64),
            Self::Closed(session, _) => (1, *session as u64),
            Self::Undeliverable(session, _) => (2, *session as u64),
            Self::Tick(who) => (3, who.number()),
            Self::Connect(who, _) => (4, who.number()),
            Self::Lane { job, .. } => (5, *job as u64),
            Self::Attempt(index, _, attempt, _) => {
                (6, (*index as u64) << 32 | attempt.attempt.0 as u64)
            }
            Self::Store(job, _) => (7, *job as u64),
            Self::WorkerStarts => (8, 0),
            Self::Restart(node) => (9, *node),
            Self::Successor => (10, 0),
            Self::Trouble => (11, 0),
            Self::Heal => (12, 0),
        }
    }
}

/// What happens within an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has restored its state.
    Started,
    /// Its source has no more records.
    NoMore,
    /// It has stopped as told.
    Stopped,
    /// Its snapshot is stored.
    Stored(CheckpointId),
}

/// What the store answers.
#[derive(Clone, Copy, Debug)]
pub enum Stored {
    /// Ids below are reserved.
    Reserved(CheckpointId),
    /// The metadata is written.
    Done(CheckpointId),
    /// It is not.
    Failed(CheckpointId),
    /// The files are gone.
    Discarded(CheckpointId),
}
