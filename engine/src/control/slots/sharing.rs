//! Which subtasks share which slot.
//!
//! One subtask of each vertex of a sharing group may share a physical slot; the slot is given up when its last
//! subtask is. Used by `control::job_master`.

use std::collections::{BTreeMap, BTreeSet};

use crate::control::identity::AllocationId;
use crate::id::SubtaskId;

/// The subtasks in each slot.
#[derive(Clone, Debug, Default)]
pub struct SlotSharing {
    by_slot: BTreeMap<AllocationId, BTreeSet<SubtaskId>>,
    by_subtask: BTreeMap<SubtaskId, AllocationId>,
}

impl SlotSharing {
    /// How many slots a group of vertices needs: its largest parallelism.
    pub fn slots_needed(parallelisms: impl IntoIterator<Item = u32>) -> u32 {
        parallelisms.into_iter().max().unwrap_or(0)
    }

    /// Puts a subtask into a slot.
    ///
    /// # Panics
    /// If it is in another slot.
    pub fn assign(&mut self, subtask: SubtaskId, slot: AllocationId) {
        let before = self.by_subtask.insert(subtask, slot);
        assert!(before.is_none_or(|before| before == slot), "{subtask} is in two slots");
        self.by_slot.entry(slot).or_default().insert(subtask);
    }

    /// Takes a subtask out of its slot; returns the slot if that was its last.
    pub fn release(&mut self, subtask: SubtaskId) -> Option<AllocationId> {
        let slot = self.by_subtask.remove(&subtask)?;
        let sharing = self.by_slot.get_mut(&slot)?;
        sharing.remove(&subtask);
        if !sharing.is_empty() {
            return None;
        }
        self.by_slot.remove(&slot);
        Some(slot)
    }

    /// Empties a slot that is lost; returns who was in it.
    pub fn lose(&mut self, slot: AllocationId) -> BTreeSet<SubtaskId> {
        let lost = self.by_slot.remove(&slot).unwrap_or_default();
        for subtask in &lost {
            self.by_subtask.remove(subtask);
        }
        lost
    }

    /// Where a subtask is.
    pub fn slot_of(&self, subtask: SubtaskId) -> Option<AllocationId> {
        self.by_subtask.get(&subtask).copied()
    }

    /// Who is in a slot.
    pub fn subtasks_in(&self, slot: AllocationId) -> impl Iterator<Item = SubtaskId> + '_ {
        self.by_slot.get(&slot).into_iter().flatten().copied()
    }
}
