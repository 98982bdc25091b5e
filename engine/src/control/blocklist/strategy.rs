//! Decides which failures blame which machines (FLIP-224, BlocklistStrategy).
//!
//! A strategy runs on the control thread and must not block. It sees each failed execution once, before the restart
//! is decided, and never one that the control plane caused itself. Called by `runner::StrategyRunner` only.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::cause::Cause;
use super::item::{ItemKey, ItemType, NewItem};
use crate::clock::Timestamp;
use crate::control::identity::{JobId, NodePool, TaskManagerLocation};
use crate::control::moment::Moment;
use crate::id::AttemptId;

/// What a strategy may take into account about the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Known nodes; 0 while that is unknown.
    pub nodes: usize,
    /// Known task managers; 0 while that is unknown.
    pub task_managers: usize,
    /// Nodes with a live item.
    pub blocklisted_nodes: usize,
    /// The figures of each node pool; those without any are left out.
    pub pools: BTreeMap<NodePool, PoolView>,
}

impl ClusterView {
    /// A cluster of these pools.
    pub fn new(pools: BTreeMap<NodePool, PoolView>) -> Self {
        let sum = |figure: fn(&PoolView) -> usize| pools.values().map(figure).sum();
        Self {
            nodes: sum(|pool| pool.nodes),
            task_managers: sum(|pool| pool.task_managers),
            blocklisted_nodes: sum(|pool| pool.blocklisted_nodes),
            pools,
        }
    }

    /// The figures of a pool; all 0 if nothing of it is known.
    pub fn pool(&self, pool: &NodePool) -> PoolView {
        self.pools.get(pool).copied().unwrap_or_default()
    }
}

/// The figures of one node pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// Known nodes.
    pub nodes: usize,
    /// Known task managers.
    pub task_managers: usize,
    /// Nodes with a live item.
    pub blocklisted_nodes: usize,
    /// Task managers with a live item of their own.
    pub blocklisted_task_managers: usize,
}

impl PoolView {
    /// How many of a kind are known, and how many have a live item.
    pub(crate) fn of(&self, item_type: ItemType) -> (usize, usize) {
        match item_type {
            ItemType::Node => (self.nodes, self.blocklisted_nodes),
            ItemType::TaskManager => (self.task_managers, self.blocklisted_task_managers),
        }
    }

    /// Both, to be changed.
    pub(crate) fn of_mut(&mut self, item_type: ItemType) -> (&mut usize, &mut usize) {
        match item_type {
            ItemType::Node => (&mut self.nodes, &mut self.blocklisted_nodes),
            ItemType::TaskManager => (&mut self.task_managers, &mut self.blocklisted_task_managers),
        }
    }
}

/// A failed execution.
#[derive(Clone, Debug)]
pub struct FailureEvent {
    /// When.
    pub now: Moment,
    /// Whose.
    pub job: JobId,
    /// Which execution; `None` if no task failed, but a task manager.
    pub attempt: Option<AttemptId>,
    /// Where; empty if that is unknown. Two if it happened between two task managers.
    pub locations: Vec<TaskManagerLocation>,
    /// What went wrong.
    pub cause: Cause,
    /// What caused that, outermost first.
    pub chain: Vec<Cause>,
    /// The cluster at that moment.
    pub cluster: ClusterView,
}

impl FailureEvent {
    /// The cause and all that caused it.
    pub fn causes(&self) -> impl Iterator<Item = &Cause> {
        std::iter::once(&self.cause).chain(&self.chain)
    }
}

/// Evidence that something works.
#[derive(Clone, Debug)]
pub struct ProgressEvent {
    /// When.
    pub now: Moment,
    /// Whose.
    pub job: JobId,
    /// The task managers that took part in a completed checkpoint.
    pub locations: Vec<TaskManagerLocation>,
}

/// Why an item went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// Its end came.
    Expired,
    /// Somebody removed it.
    Removed,
}

/// Generates blocklisted items from failures.
pub trait BlocklistStrategy: Send {
    /// Its name in the configuration, in logs and in origins.
    fn name(&self) -> &str;

    /// Items for a failed execution (FLIP-224). Usually none.
    fn generate_blocklisted_items(&mut self, failure: &FailureEvent) -> Vec<NewItem>;

    /// Something worked.
    fn on_success(&mut self, _progress: &ProgressEvent) {}

    /// An item is gone, whoever made it.
    fn on_item_removed(&mut self, _now: Moment, _key: &ItemKey, _why: RemovalReason) {}

    /// Time passes; called at the latest once per check interval. Items that became due.
    fn tick(&mut self, _now: Moment) -> Vec<NewItem> {
        Vec::new()
    }

    /// When `tick` is to be called earlier than that.
    fn deadline(&self) -> Option<Timestamp> {
        None
    }

    /// What went wrong in it since the last call, for people. At most a few sentences are kept.
    fn take_problems(&mut self) -> Vec<String> {
        Vec::new()
    }
}

impl fmt::Debug for dyn BlocklistStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlocklistStrategy({})", self.name())
    }
}

/// Blames nobody: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOpBlocklistStrategy;

impl BlocklistStrategy for NoOpBlocklistStrategy {
    fn name(&self) -> &'static str {
        "noop"
    }

    fn generate_blocklisted_items(&mut self, _failure: &FailureEvent) -> Vec<NewItem> {
        Vec::new()
    }
}

/// Who of a failure's task managers an item is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nobody: the failure is explained and ends the search.
    None,
    /// The machines.
    Node,
    /// The processes.
    TaskManager,
    /// The process, and the machine once this many of its task managers were blamed.
    TaskManagerThenNode(u32),
}

/// How long an offender is blocked: doubled (or multiplied otherwise) each time, forgotten after a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The first time.
    pub timeout: Duration,
    /// Each time after.
    pub multiplier: f64,
    /// At most.
    pub max: Duration,
}

impl Backoff {
    /// How long an offence lasts whose target had `earlier` ones.
    pub fn timeout(&self, earlier: u32) -> Duration {
        let factor = self.multiplier.max(1.0).powi(i32::try_from(earlier).unwrap_or(i32::MAX));
        let seconds = (self.timeout.as_secs_f64() * factor).min(self.max.as_secs_f64());
        Duration::from_secs_f64(seconds)
    }
}
