//! What a job master is told and what it wants done.

use std::collections::BTreeSet;

use crate::control::blocklist::cause::Cause;
use crate::control::blocklist::item::ItemKey;
use crate::control::blocklist::listeners::BlocklistMessage;
use crate::control::execution::TaskReport;
use crate::control::identity::{AllocationId, LeaderId, ResourceId, TaskManagerLocation};
use crate::control::slots::pool::SlotOffer;
use crate::control::slots::profile::ResourceCounter;
use crate::id::{AttemptId, SubtaskId};

/// Whom a job master watches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobMasterPeer {
    /// The resource manager.
    ResourceManager,
    /// A task manager.
    TaskManager(ResourceId),
}

/// One thing that happened to a job master.
#[derive(Clone, Debug)]
pub enum JobMasterInput {
    /// The resource manager of this term accepted the registration.
    ResourceManagerFound(LeaderId),
    /// The connection to the resource manager ended.
    ResourceManagerLost,
    /// The resource manager's blocklist said something.
    Blocklist(BlocklistMessage),
    /// A task manager connected.
    TaskManagerRegistered(TaskManagerLocation),
    /// A task manager is gone.
    TaskManagerLost {
        /// Which.
        id: ResourceId,
        /// Why; induced if this control plane ended it.
        cause: Cause,
    },
    /// A task manager offers slots.
    SlotsOffered {
        /// Which.
        task_manager: ResourceId,
        /// The slots.
        offers: Vec<SlotOffer>,
    },
    /// A task manager lost a slot.
    SlotFailed {
        /// Which.
        task_manager: ResourceId,
        /// The slot.
        slot: AllocationId,
        /// Why.
        cause: Cause,
    },
    /// A task manager reports of an attempt.
    Task {
        /// Which.
        attempt: AttemptId,
        /// What.
        report: TaskReport,
    },
    /// A checkpoint completed.
    CheckpointCompleted {
        /// Subtasks that it records as finished: a restart from it leaves them out.
        finished: BTreeSet<SubtaskId>,
    },
    /// A checkpoint failed or was declined.
    CheckpointFailed,
    /// A sign of life.
    Heartbeat(JobMasterPeer),
    /// A message could not be delivered.
    Undeliverable(JobMasterPeer),
    /// Time passes.
    Tick,
}

/// A message to the resource manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToResourceManager {
    /// Of the blocklist.
    Blocklist(BlocklistMessage),
    /// What the job needs in all.
    DeclareRequirements(ResourceCounter),
}

/// One thing a job master wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobMasterOutput {
    /// Send to the resource manager.
    ToResourceManager(ToResourceManager),
    /// Look for the resource manager, and register with it.
    FindResourceManager,
    /// Ask for a sign of life, naming the slots held.
    RequestHeartbeat(JobMasterPeer),
    /// Answer an offer: what is not accepted the task manager frees.
    AnswerOffer {
        /// Whose offer.
        task_manager: ResourceId,
        /// What was offered.
        offered: Vec<AllocationId>,
        /// What the job takes.
        accepted: Vec<AllocationId>,
    },
    /// Tell a task manager that the job gives up a slot.
    FreeSlot {
        /// Whose slot.
        task_manager: ResourceId,
        /// The slot.
        slot: AllocationId,
        /// Why.
        cause: Cause,
    },
    /// A task manager has no slot of this job left and may be disconnected.
    NoSlotsLeft(ResourceId),
    /// These tasks are going to be restarted, finished ones included: abort the checkpoints under way. What of them is
    /// deployed again, a later [`Restore`](Self::Restore) says.
    AbortCheckpoints(BTreeSet<SubtaskId>),
    /// Take a checkpoint as soon as possible.
    TriggerCheckpoint,
    /// Stop an attempt.
    Cancel {
        /// Which.
        attempt: AttemptId,
        /// Where it runs.
        task_manager: ResourceId,
    },
    /// Restore these attempts from the latest completed checkpoint; they are deployed by what follows. Of the tasks told
    /// by [`AbortCheckpoints`](Self::AbortCheckpoints), those that are missing here have finished in it.
    Restore(BTreeSet<AttemptId>),
    /// Run an attempt.
    Deploy {
        /// Which.
        attempt: AttemptId,
        /// Where.
        task_manager: ResourceId,
        /// In which slot.
        slot: AllocationId,
    },
    /// Tasks stay on blocklisted task managers because there is no room elsewhere.
    EvacuationStuck(BTreeSet<AttemptId>),
    /// A strategy's item was refused: too much is blocklisted.
    BlocklistingRefused {
        /// The resource.
        key: ItemKey,
        /// Why, for people.
        message: String,
    },
    /// All tasks finished.
    JobFinished,
    /// The job failed for good.
    JobFailed(Cause),
}
