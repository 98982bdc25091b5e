//! Moves tasks off blocklisted task managers (FLIP-224, MARK_BLOCKLISTED_AND_EVACUATE_TASKS), gracefully.
//!
//! Replacement slots first, then a checkpoint, then one failover of all victims; whatever is not ready when the
//! grace is over is done without, or, where no capacity can be had, the tasks keep running and an alarm is raised.
//! Each execution is evacuated once, however many items name its place. Driven by `control::job_master`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::control::blocklist::item::ItemKey;
use crate::control::identity::AllocationId;
use crate::id::AttemptId;
use crate::probe::{Fault, is_broken};

/// What to do if no replacement can be had within the grace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnNoCapacity {
    /// The tasks keep running where they are; an alarm is raised.
    #[default]
    Wait,
    /// The tasks are failed over and wait for slots, as the FLIP says literally.
    FailOver,
}

/// How evacuation goes.
#[derive(Clone, Copy, Debug)]
pub struct EvacuationConfig {
    /// How long replacement and checkpoint may take; zero evacuates at once.
    pub grace: Duration,
    /// What happens without replacement.
    pub on_no_capacity: OnNoCapacity,
}

impl Default for EvacuationConfig {
    fn default() -> Self {
        Self { grace: Duration::from_secs(30), on_no_capacity: OnNoCapacity::Wait }
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvacuationInput {
    /// An item demands the evacuation of these executions.
    Demanded {
        /// The item.
        item: ItemKey,
        /// Executions on all slots of all task managers it covers, and those slots.
        victims: BTreeMap<AttemptId, AllocationId>,
    },
    /// An item ended or was removed. What only it demanded is withdrawn.
    Withdrawn {
        /// The item.
        item: ItemKey,
    },
    /// How many replacement slots are held by now.
    Replacements(u32),
    /// The checkpoint asked for completed.
    CheckpointCompleted,
    /// The checkpoint asked for failed or was declined.
    CheckpointFailed,
    /// A victim finished, or is restarted for another reason: it needs no replacement.
    Left(AttemptId),
    /// A victim failed by itself.
    Failed(AttemptId),
    /// Time passes.
    Tick,
}

/// What must be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvacuationOutput {
    /// So many slots beyond the job's own need are wanted in all.
    ExtraSlots(u32),
    /// Take a checkpoint as soon as possible.
    TriggerCheckpoint,
    /// Release the slots and restart these executions elsewhere, in one failover that no restart strategy counts.
    Move {
        /// Who moves.
        victims: BTreeSet<AttemptId>,
        /// Because of which items.
        items: BTreeSet<ItemKey>,
    },
    /// No replacement could be had: the tasks keep running on blocklisted task managers.
    Alarm {
        /// Who.
        victims: BTreeSet<AttemptId>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checkpoint {
    Wanted,
    Done,
}

#[derive(Debug)]
enum Phase {
    Idle,
    /// Replacement and checkpoint are under way.
    Preparing {
        demands: Vec<(ItemKey, BTreeMap<AttemptId, AllocationId>)>,
        until: Timestamp,
        checkpoint: Checkpoint,
        is_alarmed: bool,
    },
}

/// The evacuation of one job.
#[derive(Debug)]
pub struct Evacuation {
    config: EvacuationConfig,
    phase: Phase,
    replacements: u32,
    moved: BTreeSet<AttemptId>,
}

impl Evacuation {
    /// Nothing to evacuate.
    pub fn new(config: EvacuationConfig) -> Self {
        Self { config, phase: Phase::Idle, replacements: 0, moved: BTreeSet::new() }
    }

    /// Takes one thing that happened.
    pub fn handle(
        &mut self,
        now: Timestamp,
        input: EvacuationInput,
        out: &mut Vec<EvacuationOutput>,
    ) {
        let before = self.slots_wanted();
        match input {
            EvacuationInput::Demanded { item, victims } => self.demand(now, item, victims, out),
            EvacuationInput::Withdrawn { item } => {
                if let Phase::Preparing { demands, .. } = &mut self.phase {
                    demands.retain(|(key, _)| *key != item);
                }
            }
            EvacuationInput::Replacements(count) => self.replacements = count,
            EvacuationInput::CheckpointCompleted | EvacuationInput::CheckpointFailed => {
                if let Phase::Preparing { checkpoint, .. } = &mut self.phase {
                    *checkpoint = Checkpoint::Done;
                }
            }
            EvacuationInput::Left(attempt) => self.forget(attempt),
            EvacuationInput::Failed(attempt) => {
                if self.victims().contains(&attempt) {
                    // Its region restarts anyway; the others move with it.
                    self.go(out);
                }
            }
            EvacuationInput::Tick => {}
        }
        if self.victims().is_empty() {
            self.phase = Phase::Idle;
        }
        let wanted = self.slots_wanted();
        if wanted != before {
            out.push(EvacuationOutput::ExtraSlots(wanted));
        }
        self.proceed(now, out);
    }

    /// When the grace is over.
    pub fn deadline(&self) -> Option<Timestamp> {
        match &self.phase {
            Phase::Preparing { until, is_alarmed: false, .. } => Some(*until),
            Phase::Preparing { .. } | Phase::Idle => None,
        }
    }

    /// The items that demand it.
    pub fn items(&self) -> BTreeSet<ItemKey> {
        match &self.phase {
            Phase::Idle => BTreeSet::new(),
            Phase::Preparing { demands, .. } => {
                demands.iter().map(|(item, _)| item.clone()).collect()
            }
        }
    }

    /// Who is to be moved.
    pub fn victims(&self) -> BTreeSet<AttemptId> {
        match &self.phase {
            Phase::Idle => BTreeSet::new(),
            Phase::Preparing { demands, .. } => {
                demands.iter().flat_map(|(_, victims)| victims.keys().copied()).collect()
            }
        }
    }

    /// How many slots the victims have: subtasks that share one move together.
    fn slots_wanted(&self) -> u32 {
        match &self.phase {
            Phase::Idle => 0,
            Phase::Preparing { demands, .. } => {
                let slots = demands.iter().flat_map(|(_, victims)| victims.values());
                slots.collect::<BTreeSet<_>>().len() as u32
            }
        }
    }

    fn demand(
        &mut self,
        now: Timestamp,
        item: ItemKey,
        mut victims: BTreeMap<AttemptId, AllocationId>,
        out: &mut Vec<EvacuationOutput>,
    ) {
        victims.retain(|victim, _| !self.moved.contains(victim));
        if victims.is_empty() {
            return;
        }
        match &mut self.phase {
            Phase::Preparing { demands, .. } => demands.push((item, victims)),
            Phase::Idle => {
                let grace = self.config.grace;
                if !grace.is_zero() {
                    out.push(EvacuationOutput::TriggerCheckpoint);
                }
                let checkpoint =
                    if grace.is_zero() { Checkpoint::Done } else { Checkpoint::Wanted };
                self.phase = Phase::Preparing {
                    demands: vec![(item, victims)],
                    until: now + grace,
                    checkpoint,
                    is_alarmed: false,
                };
            }
        }
    }

    fn forget(&mut self, attempt: AttemptId) {
        if let Phase::Preparing { demands, .. } = &mut self.phase {
            for (_, victims) in demands.iter_mut() {
                victims.remove(&attempt);
            }
            demands.retain(|(_, victims)| !victims.is_empty());
        }
    }

    fn proceed(&mut self, now: Timestamp, out: &mut Vec<EvacuationOutput>) {
        let (victims, wanted) = (self.victims(), self.slots_wanted());
        let Phase::Preparing { until, checkpoint, is_alarmed, .. } = &mut self.phase else {
            return;
        };
        let has_slots = self.replacements >= wanted;
        let is_over = *until <= now && !is_broken(Fault::GraceEndless);
        if has_slots && (*checkpoint == Checkpoint::Done || is_over) {
            return self.go(out);
        }
        if !is_over || *is_alarmed {
            return;
        }
        match (self.config.on_no_capacity, self.config.grace.is_zero()) {
            (OnNoCapacity::FailOver, _) | (OnNoCapacity::Wait, true) => self.go(out),
            (OnNoCapacity::Wait, false) => {
                *is_alarmed = true;
                out.push(EvacuationOutput::Alarm { victims });
            }
        }
    }

    fn go(&mut self, out: &mut Vec<EvacuationOutput>) {
        let victims = self.victims();
        if let Phase::Preparing { demands, .. } = std::mem::replace(&mut self.phase, Phase::Idle) {
            // Of each subtask only the attempt moved last is remembered.
            let is_older = |m: &AttemptId| victims.iter().any(|v| v.subtask == m.subtask);
            self.moved.retain(|moved| !is_older(moved));
            self.moved.extend(&victims);
            let items = demands.into_iter().map(|(item, _)| item).collect();
            self.replacements = 0;
            out.push(EvacuationOutput::Move { victims, items });
            out.push(EvacuationOutput::ExtraSlots(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::blocklist::item::ItemType;
    use crate::id::{Attempt, SubtaskId};

    fn victim(index: u32) -> AttemptId {
        AttemptId { subtask: SubtaskId::new(0, index), attempt: Attempt(0) }
    }

    fn demand(node: &str, victims: &[u32]) -> EvacuationInput {
        let item = ItemKey::new(ItemType::Node, node).expect("short");
        let victims = victims.iter().map(|i| (victim(*i), AllocationId(u64::from(*i)))).collect();
        EvacuationInput::Demanded { item, victims }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn run(
        config: EvacuationConfig,
        inputs: Vec<(u64, EvacuationInput)>,
    ) -> (Evacuation, Vec<EvacuationOutput>) {
        let (mut machine, mut out) = (Evacuation::new(config), Vec::new());
        for (second, input) in inputs {
            machine.handle(at(second), input, &mut out);
        }
        (machine, out)
    }

    fn moves(out: &[EvacuationOutput]) -> Vec<usize> {
        let moved = out.iter().filter_map(|o| match o {
            EvacuationOutput::Move { victims, .. } => Some(victims.len()),
            EvacuationOutput::ExtraSlots(_)
            | EvacuationOutput::TriggerCheckpoint
            | EvacuationOutput::Alarm { .. } => None,
        });
        moved.collect()
    }

    #[test]
    fn f03_replacement_and_checkpoint_come_before_the_move() {
        let inputs = vec![
            (0, demand("n1", &[0, 1])),
            (1, EvacuationInput::Replacements(2)),
            (2, EvacuationInput::CheckpointCompleted),
        ];
        let (_, out) = run(EvacuationConfig::default(), inputs);
        assert_eq!(
            out[..2],
            [EvacuationOutput::TriggerCheckpoint, EvacuationOutput::ExtraSlots(2)]
        );
        assert!(matches!(out[2], EvacuationOutput::Move { .. }), "{out:?}");
        assert_eq!(out[3], EvacuationOutput::ExtraSlots(0), "the requirement is as before");
    }

    #[test]
    fn f04_without_capacity_the_tasks_keep_running_and_an_alarm_is_raised_once() {
        let inputs = vec![
            (0, demand("n1", &[0, 1])),
            (1, EvacuationInput::CheckpointCompleted),
            (2, EvacuationInput::Replacements(1)),
            (30, EvacuationInput::Tick),
            (60, EvacuationInput::Tick),
        ];
        let (mut machine, mut out) = run(EvacuationConfig::default(), inputs);
        let alarms = out.iter().filter(|o| matches!(o, EvacuationOutput::Alarm { .. })).count();
        assert_eq!((moves(&out), alarms, machine.deadline()), (vec![], 1, None));
        machine.handle(at(70), EvacuationInput::Replacements(2), &mut out);
        assert_eq!(moves(&out), [2], "capacity that comes late is used");
    }

    #[test]
    fn without_capacity_the_literal_mode_fails_over_when_the_grace_is_over() {
        let config =
            EvacuationConfig { on_no_capacity: OnNoCapacity::FailOver, ..Default::default() };
        let inputs = vec![(0, demand("n1", &[0])), (29, EvacuationInput::Tick)];
        let (mut machine, mut out) = run(config, inputs);
        assert!(moves(&out).is_empty());
        machine.handle(at(30), EvacuationInput::Tick, &mut out);
        assert_eq!(moves(&out), [1]);
    }

    #[test]
    fn f05_an_item_removed_during_the_grace_cancels_the_evacuation() {
        let item = ItemKey::new(ItemType::Node, "n1").expect("short");
        let inputs = vec![
            (0, demand("n1", &[0])),
            (1, EvacuationInput::Withdrawn { item }),
            (2, EvacuationInput::Replacements(1)),
            (2, EvacuationInput::CheckpointCompleted),
            (40, EvacuationInput::Tick),
        ];
        let (machine, out) = run(EvacuationConfig::default(), inputs);
        assert!(moves(&out).is_empty() && machine.deadline().is_none());
        assert_eq!(out.last(), Some(&EvacuationOutput::ExtraSlots(0)));
    }

    #[test]
    fn a_victim_named_by_two_items_stays_one_until_both_are_withdrawn_and_moves_once() {
        let item = ItemKey::new(ItemType::Node, "n1").expect("short");
        let inputs = vec![
            (0, demand("n1", &[0, 1])),
            (1, demand("n2", &[1, 2])),
            (2, EvacuationInput::Withdrawn { item }),
            (3, EvacuationInput::Replacements(2)),
            (3, EvacuationInput::CheckpointCompleted),
            (4, demand("n2", &[1, 2])),
        ];
        let (_, out) = run(EvacuationConfig::default(), inputs);
        assert_eq!(moves(&out), [2]);
    }

    #[test]
    fn a_finished_victim_withdraws_its_replacement() {
        let inputs = vec![(0, demand("n1", &[0, 1])), (1, EvacuationInput::Left(victim(0)))];
        let (mut machine, mut out) = run(EvacuationConfig::default(), inputs);
        assert_eq!(out.last(), Some(&EvacuationOutput::ExtraSlots(1)));
        machine.handle(at(2), EvacuationInput::Left(victim(1)), &mut out);
        assert!(moves(&out).is_empty() && machine.deadline().is_none());
    }

    #[test]
    fn f07_a_failed_checkpoint_does_not_hold_the_move_up() {
        let inputs = vec![
            (0, demand("n1", &[0])),
            (1, EvacuationInput::Replacements(1)),
            (2, EvacuationInput::CheckpointFailed),
        ];
        assert_eq!(moves(&run(EvacuationConfig::default(), inputs).1), [1]);
    }

    #[test]
    fn a_victim_that_fails_by_itself_moves_everybody_at_once() {
        let inputs = vec![(0, demand("n1", &[0, 1])), (1, EvacuationInput::Failed(victim(1)))];
        assert_eq!(moves(&run(EvacuationConfig::default(), inputs).1), [2]);
    }

    #[test]
    fn without_a_grace_the_move_is_immediate() {
        let config = EvacuationConfig { grace: Duration::ZERO, ..Default::default() };
        assert_eq!(moves(&run(config, vec![(0, demand("n1", &[0]))]).1), [1]);
    }
}
