//! Which completed checkpoints are kept.
//!
//! Invariants: ids increase; the newest is never discarded, a savepoint never, and neither is the
//! one from which tasks are being restored.

use crate::id::CheckpointId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Completed {
    id: CheckpointId,
    is_savepoint: bool,
}

/// The completed checkpoints a job can be restored from, oldest first.
#[derive(Clone, Debug, Hash)]
pub struct Retained {
    /// At least 1.
    count_max: usize,
    completed: Vec<Completed>,
    restoring: Option<CheckpointId>,
}

impl Retained {
    /// Keeps the newest `count_max` (at least 1), beginning with the checkpoints found in the
    /// store.
    pub fn new(count_max: usize, mut found: Vec<CheckpointId>) -> Self {
        found.sort_unstable();
        let completed = found.into_iter().map(|id| Completed { id, is_savepoint: false }).collect();
        Self { count_max: count_max.max(1), completed, restoring: None }
    }

    /// Takes in a completed checkpoint; returns those to be discarded for it.
    ///
    /// # Panics
    /// If an equal or newer one is kept already.
    pub fn add(&mut self, id: CheckpointId, is_savepoint: bool) -> Vec<CheckpointId> {
        assert!(self.latest() < Some(id), "checkpoints complete in the order of their ids");
        self.completed.push(Completed { id, is_savepoint });
        self.discard_surplus()
    }

    /// Tasks are being restored from `id`.
    pub fn begin_restore(&mut self, id: Option<CheckpointId>) {
        self.restoring = id;
    }

    /// All of them run; returns what was kept only for them.
    pub fn end_restore(&mut self) -> Vec<CheckpointId> {
        if self.restoring.take().is_some() { self.discard_surplus() } else { Vec::new() }
    }

    /// The newest.
    pub fn latest(&self) -> Option<CheckpointId> {
        self.completed.last().map(|completed| completed.id)
    }

    /// All, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = CheckpointId> {
        self.completed.iter().map(|completed| completed.id)
    }

    fn discard_surplus(&mut self) -> Vec<CheckpointId> {
        let mut surplus = self.completed.len().saturating_sub(self.count_max);
        let mut discarded = Vec::new();
        self.completed.retain(|completed| {
            if surplus == 0 {
                return true;
            }
            surplus -= 1;
            let keep = completed.is_savepoint || self.restoring == Some(completed.id);
            if !keep {
                discarded.push(completed.id);
            }
            keep
        });
        discarded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_but_not_while_tasks_are_restored_from_it() {
        let mut retained = Retained::new(1, vec![CheckpointId(3)]);
        retained.begin_restore(Some(CheckpointId(3)));
        assert_eq!(retained.add(CheckpointId(4), false), []);
        assert_eq!(retained.end_restore(), [CheckpointId(3)]);
        assert_eq!(retained.latest(), Some(CheckpointId(4)));
    }

    #[test]
    fn a_savepoint_stays() {
        let mut retained = Retained::new(1, Vec::new());
        assert_eq!(retained.add(CheckpointId(1), true), []);
        assert_eq!(retained.add(CheckpointId(2), false), []);
        assert_eq!(retained.add(CheckpointId(3), false), [CheckpointId(2)]);
        assert!(retained.iter().eq([CheckpointId(1), CheckpointId(3)]));
    }
}
