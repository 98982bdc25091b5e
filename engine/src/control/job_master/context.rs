//! The job master's blocklist context: releases slots, and notes what is to be evacuated.

use super::JobMaster;
use super::message::{JobMasterOutput, ToResourceManager};
use crate::control::blocklist::cause::Cause;
use crate::control::blocklist::context::BlocklistContext;
use crate::control::blocklist::item::{BlocklistAction, BlocklistedItem, ItemKey};
use crate::control::blocklist::job_master::{
    JobMasterBlocklistActions, JobMasterBlocklistHandler, ResourceManagerPeer,
};
use crate::control::blocklist::listeners::{BlocklistMessage, BlocklistOutbox};
use crate::control::evacuation::EvacuationInput;
use crate::control::identity::ResourceId;
use crate::control::moment::Moment;
use crate::control::slots::pool::{SlotPool, SlotPoolOutput};
use crate::probe::{Fault, is_broken};

/// What the handler acts through while the job master is borrowed.
struct SlotPoolContext<'a> {
    pool: &'a mut SlotPool,
    pool_out: Vec<SlotPoolOutput>,
    out: &'a mut Vec<JobMasterOutput>,
    demanded: Vec<ItemKey>,
}

impl BlocklistContext for SlotPoolContext<'_> {
    fn blocklist_resources(&mut self, items: &[BlocklistedItem]) {
        for item in items {
            let cause = Cause::induced("TaskManagerBlocklisted", &item.key.to_string());
            for id in covered(self.pool, &item.key) {
                if is_broken(Fault::FreeSlotsKept) {
                    continue;
                }
                self.pool.release_free_slots_on_task_manager(&id, &cause, &mut self.pool_out);
            }
            match item.action {
                BlocklistAction::MarkBlocklisted if !is_broken(Fault::MarkMoves) => {}
                BlocklistAction::MarkAndEvacuate if is_broken(Fault::EvacuateStays) => {}
                BlocklistAction::MarkBlocklisted | BlocklistAction::MarkAndEvacuate => {
                    self.demanded.push(item.key.clone());
                }
            }
        }
    }

    /// Slots that may be used again are offered again; evacuations look at the items themselves.
    fn unblocklist_resources(&mut self, _removed: &[BlocklistedItem]) {}
}

impl BlocklistOutbox<ResourceManagerPeer> for SlotPoolContext<'_> {
    fn send(&mut self, _to: &ResourceManagerPeer, message: BlocklistMessage) {
        self.out.push(JobMasterOutput::ToResourceManager(ToResourceManager::Blocklist(message)));
    }
}

/// Registered task managers that a key names or whose node it names.
fn covered(pool: &SlotPool, key: &ItemKey) -> Vec<ResourceId> {
    match key {
        ItemKey::TaskManager(id) if pool.task_managers().contains_key(id) => vec![id.clone()],
        ItemKey::TaskManager(_) => Vec::new(),
        ItemKey::Node(node) => pool.task_managers_on(node),
    }
}

impl JobMaster {
    /// Lets the blocklist act, then does what follows from it.
    pub(super) fn on_blocklist<R>(
        &mut self,
        now: Moment,
        out: &mut Vec<JobMasterOutput>,
        act: impl FnOnce(&mut JobMasterBlocklistHandler, &mut dyn JobMasterBlocklistActions) -> R,
    ) -> R {
        let mut context = SlotPoolContext {
            pool: &mut self.pool,
            pool_out: Vec::new(),
            out,
            demanded: Vec::new(),
        };
        let result = act(&mut self.blocklist, &mut context);
        let SlotPoolContext { pool_out, demanded, .. } = context;
        self.apply_pool(now, pool_out, out);
        // Before what is withdrawn, or an item that takes another's place would begin the grace again.
        for item in demanded {
            let task_managers = covered(&self.pool, &item).into_iter().collect();
            let victims = self.executions.on(&task_managers);
            self.evacuate(now, EvacuationInput::Demanded { item, victims }, out);
        }
        for item in self.evacuation.items() {
            // Gone, or weaker: the removal of one order may leave another's behind.
            let held = self.blocklist.item(&item);
            let is_over = held.is_none_or(|held| held.action != BlocklistAction::MarkAndEvacuate);
            if is_over && !is_broken(Fault::MarkMoves) {
                self.evacuate(now, EvacuationInput::Withdrawn { item }, out);
            }
        }
        result
    }
}
