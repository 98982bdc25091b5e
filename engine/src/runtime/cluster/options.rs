//! What the task managers of one process look like, and how the control plane over them behaves.

use std::time::Duration;

use crate::config::{Config, TaskManagerSpec};
use crate::control::blocklist::caps::Caps;
use crate::control::blocklist::options::BlocklistOptions;
use crate::control::identity::NodeId;
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
    /// `Config` if a machine's name can't be one.
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
            vec![TaskManagerSpec { node, slots }]
        };
        let on_request = taskmanager.on_request.0.clone();
        for spec in task_managers.iter().chain(&on_request) {
            NodeId::new(&spec.node).map_err(|error| {
                Error::config(format!("option 'taskmanager.list': node '{}': {error}", spec.node))
            })?;
        }
        Ok(Self {
            task_managers,
            on_request,
            is_listed,
            idle_timeout: Duration::from_secs(30),
            slot_request_timeout: Duration::from_secs(300),
            blocklist: blocklist(config),
        })
    }

    /// Workers that are there from the beginning: one a slot.
    pub fn workers(&self) -> usize {
        self.task_managers.iter().map(|spec| spec.slots as usize).sum()
    }
}

fn blocklist(config: &Config) -> BlocklistOptions {
    let from = &config.blocklist;
    BlocklistOptions {
        enabled: from.enabled,
        item_timeout: from.item_timeout,
        check_interval: from.item_timeout_check_interval,
        max_timeout: from.item_max_timeout,
        caps: Caps {
            max_blocked_ratio: from.max_blocked_ratio,
            max_blocked_nodes: from.max_blocked_nodes as usize,
        },
        ..BlocklistOptions::default()
    }
}
