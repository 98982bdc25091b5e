//! Runs the configured strategies so that none can hurt the job or the other strategies.
//!
//! A strategy that panics loses only its own result and is switched off after [`PANICS_MAX`] panics (FLINK-33086).
//! In shadow mode results are kept to be looked at instead of being acted on. Called by the job master's handler.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::item::{ItemKey, NewItem};
use super::strategy::{BlocklistStrategy, FailureEvent, ProgressEvent, RemovalReason};
use crate::clock::Timestamp;
use crate::control::moment::Moment;

/// After how many panics a strategy is switched off.
pub const PANICS_MAX: u32 = 3;

/// The most items of shadow mode that are kept.
pub const SHADOW_MAX: usize = 256;

/// The most items one call of a strategy may produce; the rest is dropped and counted as an error.
pub const ITEMS_PER_CALL_MAX: usize = 64;

/// The most problems of strategies that are kept.
pub const PROBLEMS_MAX: usize = 32;

/// Whether strategies act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StrategyMode {
    /// Their items are added.
    #[default]
    Enforce,
    /// Their items are only counted and kept to be looked at.
    Shadow,
}

#[derive(Debug)]
struct Guarded {
    strategy: Box<dyn BlocklistStrategy>,
    panics: u32,
}

/// All strategies of a job, in order.
#[derive(Debug)]
pub struct StrategyRunner {
    strategies: Vec<Guarded>,
    mode: StrategyMode,
    shadow: VecDeque<NewItem>,
    errors: u64,
    problems: VecDeque<String>,
}

impl StrategyRunner {
    /// Runs `strategies` and merges what they say.
    pub fn new(strategies: Vec<Box<dyn BlocklistStrategy>>, mode: StrategyMode) -> Self {
        let strategies =
            strategies.into_iter().map(|strategy| Guarded { strategy, panics: 0 }).collect();
        Self { strategies, mode, shadow: VecDeque::new(), errors: 0, problems: VecDeque::new() }
    }

    /// The items of all strategies for a failure; none in shadow mode.
    pub fn generate_blocklisted_items(&mut self, failure: &FailureEvent) -> Vec<NewItem> {
        self.run(|strategy| strategy.generate_blocklisted_items(failure))
    }

    /// Lets time pass; the items that became due.
    pub fn tick(&mut self, now: Moment) -> Vec<NewItem> {
        self.run(|strategy| strategy.tick(now))
    }

    /// Tells all strategies that something works.
    pub fn on_success(&mut self, progress: &ProgressEvent) {
        self.run(|strategy| {
            strategy.on_success(progress);
            Vec::new()
        });
    }

    /// Tells all strategies that an item is gone.
    pub fn on_item_removed(&mut self, now: Moment, key: &ItemKey, why: RemovalReason) {
        self.run(|strategy| {
            strategy.on_item_removed(now, key, why);
            Vec::new()
        });
    }

    /// What shadow mode would have added, oldest first.
    pub fn shadow(&self) -> impl Iterator<Item = &NewItem> {
        self.shadow.iter()
    }

    /// When [`StrategyRunner::tick`] is due.
    pub fn deadline(&self) -> Option<Timestamp> {
        let working = self.strategies.iter().filter(|guarded| guarded.panics < PANICS_MAX);
        working.filter_map(|guarded| guarded.strategy.deadline()).min()
    }

    /// What went wrong in strategies, oldest first; at most [`PROBLEMS_MAX`] are kept.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.problems.iter().map(String::as_str)
    }

    /// How often strategies panicked, said too much or reported a problem.
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// The names of strategies that are switched off.
    pub fn switched_off(&self) -> impl Iterator<Item = &str> {
        self.strategies.iter().filter(|g| g.panics >= PANICS_MAX).map(|g| g.strategy.name())
    }

    fn run(
        &mut self,
        mut call: impl FnMut(&mut dyn BlocklistStrategy) -> Vec<NewItem>,
    ) -> Vec<NewItem> {
        let mut merged: BTreeMap<ItemKey, NewItem> = BTreeMap::new();
        let mut problems = Vec::new();
        for guarded in self.strategies.iter_mut().filter(|g| g.panics < PANICS_MAX) {
            let strategy = guarded.strategy.as_mut();
            let called = catch_unwind(AssertUnwindSafe(|| {
                let items = call(strategy);
                (items, strategy.take_problems())
            }));
            let Ok((mut items, its_problems)) = called else {
                guarded.panics += 1;
                problems.push(format!("{}: it panicked", guarded.strategy.name()));
                continue;
            };
            problems.extend(its_problems);
            if items.len() > ITEMS_PER_CALL_MAX {
                problems.push(format!("{}: {} items at a time", strategy.name(), items.len()));
                items.truncate(ITEMS_PER_CALL_MAX);
            }
            for item in items {
                merge(&mut merged, item);
            }
        }
        self.errors += problems.len() as u64;
        self.problems.extend(problems);
        while self.problems.len() > PROBLEMS_MAX {
            self.problems.pop_front();
        }
        let items = merged.into_values();
        match self.mode {
            StrategyMode::Enforce => items.collect(),
            StrategyMode::Shadow => {
                self.shadow.extend(items);
                while self.shadow.len() > SHADOW_MAX {
                    self.shadow.pop_front();
                }
                Vec::new()
            }
        }
    }
}

/// Strategies of embedders can't be copied; a test that explores all futures of a handler gives it none.
#[cfg(feature = "simulation")]
impl Clone for StrategyRunner {
    fn clone(&self) -> Self {
        assert!(self.strategies.is_empty(), "strategies can't be copied");
        Self {
            strategies: Vec::new(),
            mode: self.mode,
            shadow: self.shadow.clone(),
            errors: self.errors,
            problems: self.problems.clone(),
        }
    }
}

/// Adds a wish to those of its key: the stronger action, the later end, the first one's cause.
fn merge(merged: &mut BTreeMap<ItemKey, NewItem>, item: NewItem) {
    let Some(known) = merged.get_mut(&item.key) else {
        merged.insert(item.key.clone(), item);
        return;
    };
    known.action = known.action.max(item.action);
    known.end_timestamp = known.end_timestamp.max(item.end_timestamp);
}
