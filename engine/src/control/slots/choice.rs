//! Which free slot a restarted or new subtask gets.
//!
//! Its former slot first, because its local state is there; never the one in which it just failed, for one attempt;
//! then the task manager with the fewest tasks of the job. Targets on probation come last. A decision of values.

use std::collections::{BTreeMap, BTreeSet};

use super::pool::{PhysicalSlot, SlotUse};
use crate::control::identity::{AllocationId, ResourceId};

/// What the choice takes into account.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// The slot the subtask had before.
    pub previous: Option<AllocationId>,
    /// Slots not to be used for this attempt if there is another.
    pub avoid_slots: BTreeSet<AllocationId>,
    /// Task managers not to be used for this attempt if there is another.
    pub avoid_task_managers: BTreeSet<ResourceId>,
    /// Task managers used only if nothing else is left.
    pub on_probation: BTreeSet<ResourceId>,
}

/// The best free slot, if there is any.
pub fn choose_slot<'a>(
    slots: impl IntoIterator<Item = &'a PhysicalSlot>,
    wishes: &Wishes,
) -> Option<AllocationId> {
    let slots: Vec<_> = slots.into_iter().collect();
    let mut load: BTreeMap<&ResourceId, u32> = BTreeMap::new();
    for slot in slots.iter().filter(|slot| slot.state == SlotUse::Reserved) {
        *load.entry(&slot.task_manager).or_default() += 1;
    }
    let rank = |slot: &&&PhysicalSlot| {
        let avoided = wishes.avoid_slots.contains(&slot.allocation)
            || wishes.avoid_task_managers.contains(&slot.task_manager);
        (
            avoided,
            wishes.previous != Some(slot.allocation),
            wishes.on_probation.contains(&slot.task_manager),
            load.get(&slot.task_manager).copied().unwrap_or(0),
            slot.allocation,
        )
    };
    let free = slots.iter().filter(|slot| slot.state != SlotUse::Reserved);
    free.min_by_key(rank).map(|slot| slot.allocation)
}
