//! A wish for a snapshot: who wants it, and of what kind.

use super::options::SnapshotKind;
use crate::clock::Timestamp;

/// Names a request of a user, for its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Who wants the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The interval.
    Periodic,
    /// A user, who is told the outcome.
    User(RequestId),
    /// Tasks that can't go on without a completed checkpoint.
    Final,
    /// A user who stops the job.
    Stop(RequestId),
}

/// A request as it waits in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Who wants it.
    pub origin: Origin,
    /// What is wanted.
    pub kind: SnapshotKind,
    /// When it was asked for.
    pub at: Timestamp,
}

impl Request {
    /// It may exceed the number of concurrent checkpoints.
    pub const fn is_forced(self) -> bool {
        self.kind.is_savepoint()
    }

    /// The interval wants it.
    pub const fn is_periodic(self) -> bool {
        matches!(self.origin, Origin::Periodic)
    }

    /// Place in the queue: savepoints, then other requests of users, then the interval's; by time
    /// within each.
    pub(super) const fn rank(self) -> (bool, bool, Timestamp) {
        (!self.is_forced(), self.is_periodic(), self.at)
    }
}
