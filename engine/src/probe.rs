//! Where the simulator looks into a running job, and where it breaks the protocol to prove that it would notice.
//!
//! `note` hands what a machine is told and answers to the observer of this thread; `is_broken` asks whether a rule is to be
//! broken on this thread. Without the feature `simulation` both are nothing. Called where inputs and outputs of machines pass,
//! and where a rule is kept.

use std::any::Any;

use crate::id::{AttemptId, CheckpointId};

/// A job was deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// From which checkpoint.
    pub restored: Option<CheckpointId>,
    /// How many tasks.
    pub tasks: usize,
    /// How many had finished in the restored checkpoint.
    pub left_out: usize,
}

/// The trigger of a checkpoint is held back from a task of which an older one still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriggerHeld {
    /// Whose trigger.
    pub checkpoint: CheckpointId,
}

#[cfg(feature = "simulation")]
mod observer {
    use std::any::Any;
    use std::cell::RefCell;

    use crate::id::AttemptId;

    /// Is shown whose machine it is, if it is a task's, and what it was told or has answered.
    pub type Observer = Box<dyn FnMut(Option<AttemptId>, &dyn Any)>;

    thread_local! {
        pub(super) static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
    }

    /// Sets the observer of this thread, or takes it away.
    pub fn observe(observer: Option<Observer>) {
        OBSERVER.with(|place| *place.borrow_mut() = observer);
    }
}

#[cfg(feature = "simulation")]
pub use observer::{Observer, observe};

/// Shows the observer something.
#[cfg(feature = "simulation")]
pub(crate) fn note(attempt: Option<AttemptId>, what: &dyn Any) {
    observer::OBSERVER.with(|place| {
        if let Ok(mut place) = place.try_borrow_mut()
            && let Some(observer) = &mut *place
        {
            observer(attempt, what);
        }
    });
}

/// Shows the observer something.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) fn note(_attempt: Option<AttemptId>, _what: &dyn Any) {}

/// A rule of the protocol that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// End of partition doesn't count as a barrier.
    EndNotCounted,
    /// The permit to finish is given though a pending checkpoint waits for the task.
    PermitTooEarly,
    /// A sink commits at its end of data.
    CommitAtEnd,
    /// A capture ends one buffer early.
    CutOneShort,
    /// The barrier of a checkpoint that is over starts it again.
    StaleBarrierAccepted,
    /// What was in flight is restored in the wrong order.
    InFlightReversed,
    /// A capture doesn't grow with what arrives.
    CaptureNotExtended,
    /// A channel is read on behind its aligned barrier.
    NotBlocked,
    /// What was in flight is not restored.
    InFlightNotRestored,
    /// Tasks are not told that a checkpoint is complete.
    CompletionNotTold,
    /// After a change of parallelism each subtask gets the whole list.
    DealtTwice,
    /// A channel whose barrier was read is captured.
    AlignedCaptured,
    /// New records are read before those that were in flight.
    LanesBeforeRecovered,
    /// A snapshot that an operator failed is waited for.
    SnapshotOverForgotten,
    /// What an earlier checkpoint prepared is left out of later ones.
    PreparedForgotten,
    /// A vertex counts as finished though it has something to commit.
    UncommittedIsFinished,
    /// Checkpoints are taken behind the savepoint that ends the job.
    CheckpointBehindStop,
    /// A half-read buffer is captured from its beginning.
    HalfReadWhole,
    /// A checkpoint whose manifest could not be written counts as complete.
    FailedManifestCounts,
    /// A checkpoint goes on without the state that could not be written.
    FailedStateCounts,
    /// A snapshot is taken one barrier too early.
    OneBarrierEarly,
    /// A restore doesn't commit what the checkpoint had prepared.
    PreparedNotCommitted,
    /// A restore takes the oldest checkpoint that is there.
    OlderRestored,
    /// After a change of parallelism each subtask gets all records in flight.
    InFlightToAll,
    /// A capture holds on to what has been read.
    BuffersKept,
    /// Ids of checkpoints are not made durable.
    IdsNotReserved,
    /// New slots of a blocklisted task manager are taken.
    BlockedOfferTaken,
    /// A slot in use is refused when a blocklisted task manager offers it again (FLINK-28640).
    HeldSlotRefused,
    /// Free slots stay when their task manager is blocklisted.
    FreeSlotsKept,
    /// Slots of a blocklisted task manager are granted.
    BlockedGranted,
    /// A mark moves tasks.
    MarkMoves,
    /// An order to evacuate moves nobody.
    EvacuateStays,
    /// The end of the grace is not looked at.
    GraceEndless,
    /// Who restarts for another reason stays a victim of the evacuation.
    VictimsKept,
    /// What a checkpoint that completes late records as finished runs again.
    FinishedRunsAgain,
    /// Who registers again keeps the executions it had.
    RegistrationKeeps,
    /// Reports of an earlier attempt count.
    OldAttemptBelieved,
    /// A removal leaves no tombstone.
    RemovalForgotten,
    /// A notice that is not acknowledged is not sent again.
    NoticeNotRepeated,
    /// What one job master says is not told to the others.
    OthersNotTold,
    /// The end of an item is exclusive.
    EndExclusive,
    /// A task that emits on commit sends its end of data before that.
    EndNotHeld,
}

impl Fault {
    /// All that the simulator of jobs finds.
    pub const ALL: &[Self] = &[
        Self::EndNotCounted,
        Self::PermitTooEarly,
        Self::CommitAtEnd,
        Self::CutOneShort,
        Self::StaleBarrierAccepted,
        Self::InFlightReversed,
        Self::CaptureNotExtended,
        Self::NotBlocked,
        Self::InFlightNotRestored,
        Self::CompletionNotTold,
        Self::DealtTwice,
        Self::AlignedCaptured,
        Self::LanesBeforeRecovered,
        Self::SnapshotOverForgotten,
        Self::PreparedForgotten,
        Self::UncommittedIsFinished,
        Self::CheckpointBehindStop,
        Self::HalfReadWhole,
        Self::FailedManifestCounts,
        Self::FailedStateCounts,
        Self::OneBarrierEarly,
        Self::PreparedNotCommitted,
        Self::OlderRestored,
        Self::InFlightToAll,
        Self::BuffersKept,
        Self::IdsNotReserved,
        Self::EndNotHeld,
    ];

    /// Those of the cluster's machines, which have a simulator of their own.
    pub const CLUSTER: &[Self] = &[
        Self::BlockedOfferTaken,
        Self::HeldSlotRefused,
        Self::FreeSlotsKept,
        Self::BlockedGranted,
        Self::MarkMoves,
        Self::EvacuateStays,
        Self::GraceEndless,
        Self::VictimsKept,
        Self::FinishedRunsAgain,
        Self::RegistrationKeeps,
        Self::OldAttemptBelieved,
        Self::RemovalForgotten,
        Self::NoticeNotRepeated,
        Self::OthersNotTold,
        Self::EndExclusive,
    ];
}

#[cfg(feature = "simulation")]
mod breaking {
    use std::cell::Cell;

    use super::Fault;

    thread_local! {
        pub(super) static BROKEN: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    /// Breaks a rule on this thread, or none.
    pub fn break_rule(fault: Option<Fault>) {
        BROKEN.set(fault);
    }
}

#[cfg(feature = "simulation")]
pub use breaking::break_rule;

/// Whether this rule is to be broken.
#[cfg(feature = "simulation")]
pub(crate) fn is_broken(fault: Fault) -> bool {
    breaking::BROKEN.get() == Some(fault)
}

/// Whether this rule is to be broken.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) const fn is_broken(_fault: Fault) -> bool {
    false
}
