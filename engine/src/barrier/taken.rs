//! The checkpoints a task has taken last. A trigger for one of them says nothing new: its barriers came another way.

use crate::id::CheckpointId;

/// How many are remembered: more than can be under way at a time.
const TAKEN_MAX: usize = 16;

/// The last checkpoints taken, oldest first.
#[derive(Clone, Debug, Hash)]
pub(super) struct Taken(Vec<CheckpointId>);

impl Taken {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(TAKEN_MAX))
    }

    pub(super) fn push(&mut self, checkpoint: CheckpointId) {
        if self.0.len() == TAKEN_MAX {
            self.0.remove(0);
        }
        self.0.push(checkpoint);
    }

    pub(super) fn contains(&self, checkpoint: CheckpointId) -> bool {
        self.0.contains(&checkpoint)
    }
}
