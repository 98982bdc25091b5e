//! The task managers of one process and the resource manager over them, on the control thread.
//!
//! A task manager here is a resource id, a node id and slots; a slot is a worker thread. What a network will carry between
//! resource manager, job masters and task managers goes through queues here too.

mod options;

use std::collections::BTreeMap;
use std::time::Duration;

pub use options::ClusterOptions;

use super::clock::Clock;
use super::request::{BlocklistFigures, TaskManagerStatus};
use crate::control::blocklist::item::ItemKey;
use crate::control::blocklist::listeners::BlocklistListeners;
use crate::control::blocklist::resource_manager::ResourceManagerBlocklistHandler;
use crate::control::blocklist::tracker::{BlocklistTracker, TrackerConfig};
use crate::control::driver::WorkerSpec;
use crate::control::heartbeat::HeartbeatConfig;
use crate::control::identity::{LeaderId, NodeId, ResourceId, TaskManagerLocation};
use crate::control::moment::Moment;
use crate::control::resource_manager::{
    ResourceManager, ResourceManagerInput, ResourceManagerOutput,
};
use crate::control::slots::manager::SlotManagerConfig;
use crate::control::slots::profile::ResourceProfile;
use crate::control::slots::task_slots::TaskSlots;
use crate::error::{Error, Result};

/// Term of the resource manager: there is one in the life of a process.
const RESOURCE_MANAGER: LeaderId = LeaderId(1);
/// After how long a notice that was not acknowledged is sent again.
const RESEND: Duration = Duration::from_secs(5);
/// After how long a slot that was offered and not taken is free again.
const OFFER_TIMEOUT: Duration = Duration::from_secs(10);
/// Who dies in this process is noticed by the end of its threads: nobody is asked for signs of life.
const HEARTBEATS: HeartbeatConfig =
    HeartbeatConfig { interval: Duration::MAX, timeout: Duration::MAX, failure_threshold: None };

/// One task manager.
#[derive(Debug)]
struct TaskManager {
    location: TaskManagerLocation,
    slots: TaskSlots,
}

/// The cluster of one job.
#[derive(Debug)]
pub(super) struct Cluster {
    #[cfg(feature = "rest")]
    clock: Clock,
    #[cfg(feature = "rest")]
    max_timeout: Duration,
    resource_manager: ResourceManager,
    task_managers: BTreeMap<ResourceId, TaskManager>,
    out: Vec<ResourceManagerOutput>,
}

impl Cluster {
    /// All task managers of `options`, registered.
    ///
    /// # Errors
    /// `Config` if a machine's name can't be one.
    pub(super) fn new(clock: Clock, options: &ClusterOptions) -> Result<Self> {
        let now = moment(clock);
        let mut cluster = Self {
            #[cfg(feature = "rest")]
            clock,
            #[cfg(feature = "rest")]
            max_timeout: options.blocklist.max_timeout,
            resource_manager: resource_manager(now, options),
            task_managers: BTreeMap::new(),
            out: Vec::new(),
        };
        for (number, spec) in (1..).zip(&options.task_managers) {
            cluster.add(now, number, &spec.node, spec.slots)?;
        }
        Ok(cluster)
    }

    fn add(&mut self, now: Moment, number: u32, node: &str, slots: u32) -> Result<()> {
        let refused = |error| Error::config(format!("node '{node}': {error}"));
        let id = ResourceId::new(&format!("tm-{number}")).map_err(refused)?;
        let node_id = NodeId::new(node).map_err(refused)?;
        let location =
            TaskManagerLocation::new(id.clone(), Some(node_id), "127.0.0.1", 0).map_err(refused)?;
        let profile = ResourceProfile::default();
        let slots = TaskSlots::new(slots, profile, OFFER_TIMEOUT);
        let report = slots.report();
        self.task_managers.insert(id, TaskManager { location: location.clone(), slots });
        let input = ResourceManagerInput::TaskManagerRegistered { location, profile, report };
        self.resource_manager.handle(now, input, &mut self.out);
        Ok(())
    }

    /// Answers a request under `/blocklist`.
    #[cfg(feature = "rest")]
    pub(super) fn call(
        &mut self,
        call: &super::request::BlocklistCall,
    ) -> crate::control::blocklist::rest::RestResponse {
        let (now, request) = (moment(self.clock), call.as_rest());
        let rm = Some(&mut self.resource_manager);
        crate::control::blocklist::rest::handle(now, &request, self.max_timeout, rm, &mut self.out)
    }

    /// All task managers, by resource id.
    pub(super) fn status(&self) -> Vec<TaskManagerStatus> {
        let blocklist = self.resource_manager.blocklist();
        let status = |(id, task_manager): (&ResourceId, &TaskManager)| {
            let node = task_manager.location.node_id.clone();
            let own = blocklist.item(&ItemKey::TaskManager(id.clone()));
            let nodes = blocklist.item(&ItemKey::Node(node));
            let report = task_manager.slots.report();
            TaskManagerStatus {
                resource_id: id.to_string(),
                node_id: task_manager.location.node_id.to_string(),
                slots: report.len() as u32,
                free_slots: report.iter().filter(|slot| slot.holder.is_none()).count() as u32,
                blocklisted: own.into_iter().chain(nodes).map(|item| item.action).max(),
                subtasks: Vec::new(),
            }
        };
        self.task_managers.iter().map(status).collect()
    }

    /// The figures of the blocklist.
    pub(super) fn figures(&mut self) -> BlocklistFigures {
        let snapshot = self.resource_manager.blocklist_mut().snapshot();
        let blocklist = self.resource_manager.blocklist();
        let counters = blocklist.counters();
        BlocklistFigures {
            is_enabled: blocklist.is_enabled(),
            blocklisted_nodes: snapshot.blocklisted_node_count() as u64,
            blocklisted_task_managers: snapshot.blocklisted_task_manager_count() as u64,
            items_added: counters.added.clone(),
            items_updated: counters.updated.clone(),
            items_expired: counters.expired,
            items_removed: counters.removed,
            refused_by_cap: counters.refused_by_cap,
            sync_resends: blocklist.resends(),
            ..BlocklistFigures::default()
        }
    }
}

/// Both clocks now.
fn moment(clock: Clock) -> Moment {
    Moment::new(clock.now(), Clock::wall())
}

fn resource_manager(now: Moment, options: &ClusterOptions) -> ResourceManager {
    let tracker = BlocklistTracker::new(TrackerConfig {
        item_timeout: options.blocklist.item_timeout,
        check_interval: options.blocklist.check_interval,
        origin_id: 0,
    });
    let listeners = BlocklistListeners::new(RESOURCE_MANAGER, RESEND);
    let caps = options.blocklist.caps;
    let mut blocklist = ResourceManagerBlocklistHandler::new(tracker, caps, listeners);
    if options.blocklist.enabled {
        blocklist.start(now).expect("it is new");
    }
    let slots = crate::control::slots::manager::SlotManager::new(SlotManagerConfig {
        worker: WorkerSpec {
            slots: options.on_request.iter().map(|spec| spec.slots).min().unwrap_or(1),
            profile: ResourceProfile::default(),
        },
        can_request: !options.on_request.is_empty(),
        idle_timeout: options.idle_timeout,
        slots_max: None,
        blocked_exceed_limit: options.blocklist.excluded_from_limits,
        term: RESOURCE_MANAGER,
    });
    ResourceManager::new(blocklist, slots, HEARTBEATS)
}
