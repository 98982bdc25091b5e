//! What the task managers of one process look like, and how the control plane over them behaves.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::{self, Config, TaskManagerSpec};
use crate::control::blocklist::caps::Caps;
use crate::control::blocklist::options::{BlocklistOptions, OptionError, PREFIX};
use crate::control::blocklist::registry::StrategyRegistry;
use crate::control::blocklist::runner::StrategyMode;
use crate::control::evacuation::OnNoCapacity;
use crate::control::identity::{NodeId, NodePool};
use crate::error::{Error, Result};
use crate::topology;

/// The machine's name where the configuration gives none.
const LOCAL_NODE: &str = "localhost";

/// The cluster of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterOptions {
    /// The task managers that are there from the beginning; at least one.
    pub task_managers: Vec<TaskManagerSpec>,
    /// Those that may be started when slots run short.
    pub on_request: Vec<TaskManagerSpec>,
    /// Whether each slot is a worker of its own. If not, there is one task manager that has as many slots as the job
    /// needs, and deals them out to its workers.
    pub is_listed: bool,
    /// After how long an unused task manager that was started on request is ended.
    pub idle_timeout: Duration,
    /// After how long without the slots it needs the job fails.
    pub slot_request_timeout: Duration,
    /// The blocklist.
    pub blocklist: BlocklistOptions,
}

impl ClusterOptions {
    /// The cluster that `config` describes.
    ///
    /// # Errors
    /// `Config` if the name of a machine or pool can't be one, a machine is in two pools, or a strategy or an option of
    /// it is not known.
    pub fn new(config: &Config) -> Result<Self> {
        let taskmanager = &config.taskmanager;
        let is_listed = !taskmanager.list.0.is_empty();
        let task_managers = if is_listed {
            taskmanager.list.0.clone()
        } else {
            let slots = match taskmanager.slots {
                Some(slots) => slots.get(),
                None => topology::allowed_cpus().len().max(1) as u32,
            };
            let node = taskmanager.node_id.clone().unwrap_or_else(|| LOCAL_NODE.to_owned());
            vec![TaskManagerSpec { node, slots, pool: None }]
        };
        let on_request = taskmanager.on_request.0.clone();
        check(&task_managers, &on_request)?;
        Ok(Self {
            task_managers,
            on_request,
            is_listed,
            idle_timeout: Duration::from_secs(30),
            slot_request_timeout: Duration::from_secs(300),
            blocklist: blocklist(config)?,
        })
    }

    /// Workers that are there from the beginning: one a slot.
    pub fn workers(&self) -> usize {
        self.task_managers.iter().map(|spec| spec.slots as usize).sum()
    }
}

/// The machine and the node pool of a task manager.
pub(super) fn place(spec: &TaskManagerSpec) -> Result<(NodeId, NodePool), String> {
    let of_node = |error| format!("node '{}': {error}", spec.node);
    let node = NodeId::new(&spec.node).map_err(of_node)?;
    let Some(pool) = &spec.pool else { return Ok((node, NodePool::default())) };
    let of_pool = |error| format!("node pool '{pool}' of node '{node}': {error}");
    let pool = NodePool::new(pool).map_err(of_pool)?;
    Ok((node, pool))
}

/// Whether all names can be ones, and each machine is in one pool.
fn check(list: &[TaskManagerSpec], on_request: &[TaskManagerSpec]) -> Result<()> {
    let mut pools: BTreeMap<NodeId, NodePool> = BTreeMap::new();
    for (key, specs) in [("taskmanager.list", list), ("taskmanager.on-request", on_request)] {
        for spec in specs {
            let wrong = |what: String| Error::config(format!("option '{key}': {what}"));
            let (node, pool) = place(spec).map_err(wrong)?;
            let known = pools.entry(node).or_insert_with(|| pool.clone());
            if *known != pool {
                let node = &spec.node;
                return Err(wrong(format!("node '{node}' is in the pools '{known}' and '{pool}'")));
            }
        }
    }
    Ok(())
}

/// All strategies that a configuration can name.
pub(super) fn registry() -> StrategyRegistry {
    #[cfg_attr(not(feature = "plugin"), expect(unused_mut, reason = "one more with a feature"))]
    let mut registry = StrategyRegistry::builtin();
    #[cfg(feature = "plugin")]
    registry.register(Box::new(crate::runtime::plugin::PluginFactory));
    registry
}

/// The blocklist that `config` describes.
fn blocklist(config: &Config) -> Result<BlocklistOptions> {
    let from = &config.blocklist;
    let mut options = BlocklistOptions {
        enabled: from.enabled,
        item_timeout: from.item_timeout,
        check_interval: from.item_timeout_check_interval,
        max_timeout: from.item_max_timeout,
        caps: Caps {
            max_blocked_ratio: from.max_blocked_ratio,
            max_blocked_nodes: from.max_blocked_nodes as usize,
        },
        excluded_from_limits: from.excluded_from_limits,
        evacuation_grace: from.evacuation_grace,
        on_no_capacity: match from.evacuation_on_no_capacity {
            config::OnNoCapacity::Wait => OnNoCapacity::Wait,
            config::OnNoCapacity::FailOver => OnNoCapacity::FailOver,
        },
        mode: match from.strategy_mode {
            config::StrategyMode::Enforce => StrategyMode::Enforce,
            config::StrategyMode::Shadow => StrategyMode::Shadow,
        },
        ..BlocklistOptions::default()
    };
    let refused = |error: OptionError| Error::config(error.to_string()).caused_by(error);
    let key = format!("{PREFIX}strategy");
    options.strategies = BlocklistOptions::parse([(key.as_str(), from.strategy.as_str())])
        .map_err(refused)?
        .strategies;
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    options.strategy_options = config.strategy_options().map(owned).collect();
    registry().create(&options.strategies, &options.strategy_options).map_err(refused)?;
    Ok(options)
}
