//! What a seed draws before anything happens: the cluster, the jobs, and how much trouble there is.

use std::time::Duration;

use tidegate::control::blocklist::item::BlocklistAction;
use tidegate::control::evacuation::{EvacuationConfig, OnNoCapacity};
use tidegate::control::restart::RestartConfig;

use crate::simulation::dice::Dice;

/// How long everything has after the trouble, in ms: longer than any timeout.
pub const HEALED: u64 = 75_000;
/// How long a tombstone is kept, and a little more, in ms.
pub const TOMBSTONES: u64 = 640_000;

/// One job.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// Sources, and as many sinks.
    pub parallelism: u32,
    /// Whether sink n reads source n only, so that each pair is a region.
    pub is_pointwise: bool,
    /// When each source has no more records; `None` never.
    pub ends_at: Vec<Option<u64>>,
    /// Whether tasks leave only behind a final checkpoint.
    pub needs_final: bool,
    /// Between checkpoints.
    pub interval: Duration,
    /// What its strategy does to the node, or the task manager, of a failure.
    pub blame: Option<(BlocklistAction, bool)>,
    /// How it restarts.
    pub restart: RestartConfig,
    /// How it evacuates.
    pub evacuation: EvacuationConfig,
}

/// One schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The jobs.
    pub jobs: Vec<JobPlan>,
    /// How many nodes there are.
    pub nodes: u64,
    /// The nodes of the task managers that are there from the beginning.
    pub task_managers: Vec<u64>,
    /// Slots of each.
    pub slots: u32,
    /// Whether the driver starts more.
    pub can_request: bool,
    /// The most slots, if there is a bound.
    pub slots_max: Option<u32>,
    /// How long items without an end last.
    pub item_timeout: Duration,
    /// How many nodes strategies may block.
    pub blocked_max: usize,
    /// How long there is trouble, in ms.
    pub trouble: u64,
    /// How long it is quiet between two troubles at most, in ms.
    pub pause: u64,
    /// Whether the schedule goes on until tombstones are forgotten.
    pub is_long: bool,
}

impl Plan {
    /// What `dice` draw.
    pub fn draw(dice: &mut Dice) -> Self {
        let trouble = dice.within(10_000, 50_000);
        let jobs = (0..dice.within(2, 3)).map(|_| job(dice, trouble)).collect::<Vec<_>>();
        let needed: u32 = jobs.iter().map(|job| job.parallelism).sum();
        let slots = dice.within(1, 3) as u32;
        let nodes = dice.within(2, 4);
        let enough = u64::from(needed.div_ceil(slots));
        let count = (enough + dice.below(3)).saturating_sub(dice.below(2)).max(1);
        let can_request = dice.chance(1, 2);
        Self {
            jobs,
            nodes,
            task_managers: (0..count).map(|_| 1 + dice.below(nodes)).collect(),
            slots,
            can_request,
            slots_max: (can_request && dice.chance(1, 3)).then_some(2 * needed + slots),
            item_timeout: Duration::from_millis(dice.within(3_000, 60_000)),
            blocked_max: dice.within(1, 3) as usize,
            trouble,
            pause: dice.within(1_000, 10_000),
            is_long: dice.chance(1, 24),
        }
    }
}

fn job(dice: &mut Dice, trouble: u64) -> JobPlan {
    let parallelism = dice.within(1, 3) as u32;
    let is_bounded = dice.chance(2, 3);
    let ends_at = (0..parallelism)
        .map(|_| (is_bounded && dice.chance(3, 4)).then(|| dice.within(1_000, trouble * 5 / 4)))
        .collect();
    let delay = Duration::from_millis(dice.within(100, 2_000));
    let restart = match dice.below(6) {
        0 => RestartConfig::FixedDelay { attempts: 5, delay },
        1 => RestartConfig::FailureRate {
            max_failures_per_interval: 3,
            interval: Duration::from_secs(20),
            delay,
        },
        2 => RestartConfig::FixedDelay { attempts: 1_000_000, delay },
        _ => RestartConfig::ExponentialDelay {
            initial_backoff: delay,
            max_backoff: Duration::from_secs(8),
            multiplier: 1.5,
            reset_threshold: Duration::from_secs(30),
            jitter_factor: 0.1,
            attempts_before_reset: None,
        },
    };
    let grace = Duration::from_millis(dice.pick(&[0, 2_000, 5_000, 15_000]));
    let on_no_capacity =
        dice.pick(&[OnNoCapacity::Wait, OnNoCapacity::Wait, OnNoCapacity::FailOver]);
    JobPlan {
        parallelism,
        is_pointwise: dice.chance(1, 3),
        ends_at,
        needs_final: dice.chance(1, 2),
        interval: Duration::from_millis(dice.within(4_000, 30_000)),
        blame: dice.chance(3, 5).then(|| (action(dice), dice.chance(2, 3))),
        restart,
        evacuation: EvacuationConfig { grace, on_no_capacity },
    }
}

/// Mark, or evacuate.
pub fn action(dice: &mut Dice) -> BlocklistAction {
    dice.pick(&[BlocklistAction::MarkBlocklisted, BlocklistAction::MarkAndEvacuate])
}
