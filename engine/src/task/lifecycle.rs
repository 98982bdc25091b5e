//! When a task finishes and leaves: end of data, finish, the last checkpoint, the permit, end of partition.

use crate::id::CheckpointId;

/// Where a task is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Records come.
    Running,
    /// All inputs have ended; what operators hold back is coming out.
    Finishing {
        /// Whether for good.
        drain: bool,
    },
    /// End of data is sent; waits for its consumers and for a completed checkpoint.
    Waiting {
        /// The first checkpoint taken after the end of data.
        final_from: Option<CheckpointId>,
        /// Whether a checkpoint from there on has completed.
        is_covered: bool,
    },
    /// Has asked for its permit.
    Asking,
    /// Has its permit; empties its lanes.
    Leaving,
    /// Gone.
    Done,
}

impl Phase {
    /// Whether operators have finished.
    pub(super) fn is_data_ended(self) -> bool {
        match self {
            Self::Running | Self::Finishing { .. } => false,
            Self::Waiting { .. } | Self::Asking | Self::Leaving | Self::Done => true,
        }
    }

    /// The task takes part in a checkpoint.
    pub(super) fn snapshot_taken(&mut self, checkpoint: CheckpointId) {
        if let Self::Waiting { final_from, .. } = self {
            final_from.get_or_insert(checkpoint);
        }
    }

    /// A checkpoint is complete (FLIP-147: any from the first one after the end of data lets the task go).
    pub(super) fn completed(&mut self, checkpoint: CheckpointId) {
        if let Self::Waiting { final_from: Some(from), is_covered } = self
            && checkpoint >= *from
        {
            *is_covered = true;
        }
    }
}
