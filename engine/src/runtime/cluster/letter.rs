//! What resource manager, job master and task managers write to each other, and what they want of the control thread.
//!
//! In one process letters wait in a queue; between processes a network will carry them. Nobody calls another's machine.

use std::collections::{BTreeMap, BTreeSet};

use crate::control::blocklist::cause::Cause;
use crate::control::identity::{AllocationId, JobId, ResourceId};
use crate::control::job_master::JobMasterInput;
use crate::control::resource_manager::ResourceManagerInput;
use crate::id::{AttemptId, SubtaskId};

/// A message on its way.
#[derive(Debug)]
pub(super) enum Letter {
    /// To the resource manager.
    ResourceManager(ResourceManagerInput),
    /// To the job master.
    JobMaster(JobMasterInput),
    /// To a task manager; one that is gone gets nothing.
    TaskManager(ResourceId, TaskManagerInput),
}

/// What a task manager is told of its slots.
#[derive(Debug)]
pub(super) enum TaskManagerInput {
    /// Offer a slot to a job.
    Request {
        /// Which slot.
        index: u32,
        /// The job.
        job: JobId,
        /// The grant.
        allocation: AllocationId,
    },
    /// The job answers an offer.
    Answer {
        /// What was offered.
        offered: Vec<AllocationId>,
        /// What the job takes.
        accepted: Vec<AllocationId>,
    },
    /// The job gives up a slot.
    Free(AllocationId),
    /// Time passes.
    Tick,
}

/// Where an attempt is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::runtime) struct Spot {
    /// The task manager.
    pub(in crate::runtime) task_manager: ResourceId,
    /// Its worker that has the slot.
    pub(in crate::runtime) worker: usize,
}

/// What the control thread has to do for a machine.
#[derive(Debug)]
pub(in crate::runtime) enum Order {
    /// Checkpoints under way can't complete: these tasks are going to be restarted.
    AbortCheckpoints(BTreeSet<SubtaskId>),
    /// Take a checkpoint as soon as possible, since tasks are to be moved.
    TriggerCheckpoint,
    /// Stop an attempt.
    Cancel(AttemptId),
    /// Restore these attempts from the latest checkpoint, and run them there.
    Deploy(BTreeMap<AttemptId, Spot>),
    /// A task manager is gone; these were its workers, which are to be ended.
    End(Vec<usize>),
    /// All tasks have finished.
    Finished,
    /// The job fails.
    Failed(Cause),
}
