//! Scenarios of the resource manager as a whole, with an in-process driver.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::clock::EpochMillis;
use crate::control::blocklist::caps::Caps;
use crate::control::blocklist::item::ItemType;
use crate::control::blocklist::listeners::BlocklistListeners;
use crate::control::blocklist::tracker::{BlocklistTracker, TrackerConfig};
use crate::control::driver::{BlocklistedNodeRetriever, ResourceManagerDriver, WorkerSpec};
use crate::control::identity::NodePool;
use crate::control::slots::manager::SlotManagerConfig;

pub(crate) fn resource_manager(is_enabled: bool, can_request: bool) -> ResourceManager {
    let tracker = BlocklistTracker::new(TrackerConfig {
        item_timeout: Some(Duration::from_secs(600)),
        check_interval: Duration::from_secs(1),
        origin_id: 9,
    });
    let listeners = BlocklistListeners::new(LeaderId(9), Duration::from_secs(5));
    let mut blocklist = ResourceManagerBlocklistHandler::new(tracker, Caps::default(), listeners);
    if is_enabled {
        blocklist.start(Moment::at_millis(0)).expect("it is new");
    }
    let slots = SlotManager::new(SlotManagerConfig {
        worker: WorkerSpec { slots: 1, profile: ResourceProfile::default() },
        can_request,
        idle_timeout: Duration::from_secs(30),
        slots_max: None,
        blocked_exceed_limit: false,
        term: LeaderId(9),
    });
    ResourceManager::new(blocklist, slots, HeartbeatConfig::default())
}

pub(crate) fn register(
    rm: &mut ResourceManager,
    tm: &str,
    node: &str,
) -> Vec<ResourceManagerOutput> {
    register_in_pool(rm, tm, node, NodePool::default())
}

pub(crate) fn register_in_pool(
    rm: &mut ResourceManager,
    tm: &str,
    node: &str,
    pool: NodePool,
) -> Vec<ResourceManagerOutput> {
    let id = ResourceId::new(tm).expect("short");
    let location = TaskManagerLocation::new(id, NodeId::new(node).ok(), "h", 0).expect("short");
    let location = location.in_pool(pool);
    let report = vec![SlotStatus { index: 0, holder: None }];
    let profile = ResourceProfile::default();
    let input = ResourceManagerInput::TaskManagerRegistered { location, profile, report };
    tell(rm, 0, input)
}

fn tell(
    rm: &mut ResourceManager,
    at: u64,
    input: ResourceManagerInput,
) -> Vec<ResourceManagerOutput> {
    let mut out = Vec::new();
    rm.handle(Moment::at_millis(at), input, &mut out);
    out
}

fn block(
    rm: &mut ResourceManager,
    id: &str,
    item_type: ItemType,
    end: i64,
) -> Vec<ResourceManagerOutput> {
    let mut out = Vec::new();
    let item = NewItem {
        key: ItemKey::new(item_type, id).expect("short"),
        action: BlocklistAction::MarkBlocklisted,
        cause: Cause::new("Test", "by hand"),
        end_timestamp: Some(EpochMillis(end)),
        origin: Origin::Rest { principal: "test".into() },
    };
    rm.add_items(Moment::at_millis(0), vec![item], &mut out);
    out
}

fn need(rm: &mut ResourceManager, slots: u32) -> Vec<ResourceManagerOutput> {
    let needs = ResourceCounter::of(ResourceProfile::default(), slots);
    tell(rm, 0, ResourceManagerInput::RequirementsDeclared(JobId(1), needs))
}

fn granted(out: &[ResourceManagerOutput]) -> usize {
    let grant = |o: &&ResourceManagerOutput| {
        matches!(o, ResourceManagerOutput::Slots(SlotManagerOutput::RequestSlot { .. }))
    };
    out.iter().filter(grant).count()
}

/// A driver that starts task managers on the first node it may use.
#[derive(Debug, Default)]
struct InProcessDriver {
    nodes: Vec<&'static str>,
    avoided: BTreeSet<NodeId>,
    started: Vec<String>,
    ended: Vec<ResourceId>,
}

impl ResourceManagerDriver for InProcessDriver {
    fn can_request(&self) -> bool {
        true
    }

    fn initialize(&mut self, retriever: &dyn BlocklistedNodeRetriever) {
        self.avoided = retriever.get_blocklisted_nodes();
    }

    fn request_worker(&mut self, _spec: &WorkerSpec, retriever: &dyn BlocklistedNodeRetriever) {
        let avoid = retriever.get_blocklisted_nodes();
        let free = |node: &&&str| NodeId::new(node).is_ok_and(|node| !avoid.contains(&node));
        self.started.extend(self.nodes.iter().find(free).map(|node| (*node).to_owned()));
    }

    fn cancel_request(&mut self, _spec: &WorkerSpec) {
        self.started.pop();
    }

    fn release_worker(&mut self, id: &ResourceId) {
        self.ended.push(id.clone());
    }

    fn on_blocklist_changed(&mut self, retriever: &dyn BlocklistedNodeRetriever) {
        self.avoided = retriever.get_blocklisted_nodes();
    }
}

fn perform(rm: &ResourceManager, out: &[ResourceManagerOutput], driver: &mut InProcessDriver) {
    for output in out {
        if let ResourceManagerOutput::Slots(SlotManagerOutput::Driver(command)) = output {
            command.perform(driver, rm.blocklist());
        }
    }
}

#[test]
fn d09_only_nodes_reach_the_driver() {
    let mut rm = resource_manager(true, true);
    let mut driver = InProcessDriver { nodes: vec!["n1", "n2"], ..Default::default() };
    driver.initialize(rm.blocklist());
    let out = block(&mut rm, "tm1", ItemType::TaskManager, 1000);
    perform(&rm, &out, &mut driver);
    assert!(driver.avoided.is_empty() && rm.blocklist().get_blocklisted_nodes().is_empty());
    let out = block(&mut rm, "n1", ItemType::Node, 1000);
    perform(&rm, &out, &mut driver);
    assert_eq!(driver.avoided.len(), 1);
    let out = need(&mut rm, 1);
    perform(&rm, &out, &mut driver);
    assert_eq!(driver.started, ["n2"]);
}

#[test]
fn b14_the_node_set_reaches_the_driver_on_every_change() {
    let mut rm = resource_manager(true, true);
    let mut driver = InProcessDriver::default();
    let out = block(&mut rm, "n1", ItemType::Node, 1000);
    perform(&rm, &out, &mut driver);
    assert_eq!(driver.avoided.len(), 1, "without any request");
    let out = tell(&mut rm, 1000, ResourceManagerInput::Tick);
    perform(&rm, &out, &mut driver);
    assert!(driver.avoided.is_empty(), "and when the block ends");
}

#[test]
fn j13_the_end_of_a_block_serves_what_waits() {
    let mut rm = resource_manager(true, false);
    register(&mut rm, "tm1", "n1");
    block(&mut rm, "n1", ItemType::Node, 1000);
    assert_eq!(granted(&need(&mut rm, 1)), 0);
    assert_eq!(granted(&tell(&mut rm, 999, ResourceManagerInput::Tick)), 0);
    assert_eq!(granted(&tell(&mut rm, 1000, ResourceManagerInput::Tick)), 1);
}

#[test]
fn b17_a_removal_by_order_serves_what_waits_at_once() {
    let mut rm = resource_manager(true, false);
    register(&mut rm, "tm1", "n1");
    block(&mut rm, "n1", ItemType::Node, 1_000_000);
    assert_eq!(granted(&need(&mut rm, 1)), 0);
    let mut out = Vec::new();
    let key = ItemKey::new(ItemType::Node, "n1").expect("short");
    rm.remove_items(Moment::at_millis(1), &[key], &mut out);
    assert_eq!(granted(&out), 1);
}

#[test]
fn r07_a_job_on_a_single_blocked_node_waits_until_the_block_ends() {
    let mut rm = resource_manager(true, false);
    register(&mut rm, "tm1", "n1");
    block(&mut rm, "n1", ItemType::Node, 60_000);
    let mut grants = granted(&need(&mut rm, 1));
    for second in 1..60 {
        let id = ResourceId::new("tm1").expect("short");
        let peer = ResourceManagerPeer::TaskManager(id);
        tell(&mut rm, second * 1000, ResourceManagerInput::Heartbeat(peer));
        grants += granted(&tell(&mut rm, second * 1000, ResourceManagerInput::Tick));
    }
    assert_eq!(grants, 0);
    assert_eq!(granted(&tell(&mut rm, 60_000, ResourceManagerInput::Tick)), 1);
}

#[test]
fn m01_the_gauges_count_distinct_task_managers_and_nodes() {
    let mut rm = resource_manager(true, false);
    register(&mut rm, "tm1", "n1");
    register(&mut rm, "tm2", "n1");
    block(&mut rm, "n1", ItemType::Node, 1000);
    block(&mut rm, "tm9", ItemType::TaskManager, 1000);
    let gauges = |rm: &mut ResourceManager| {
        let snapshot = rm.blocklist_mut().snapshot();
        (snapshot.blocklisted_task_manager_count(), snapshot.blocklisted_node_count())
    };
    assert_eq!(gauges(&mut rm), (3, 1));
    block(&mut rm, "tm1", ItemType::TaskManager, 1000);
    assert_eq!(gauges(&mut rm), (3, 1), "tm1 counts once");
    tell(&mut rm, 1000, ResourceManagerInput::Tick);
    assert_eq!(gauges(&mut rm), (0, 0));
}

#[test]
fn b12_a_node_that_can_not_start_workers_is_blocklisted() {
    let mut rm = resource_manager(true, true);
    need(&mut rm, 1);
    for attempt in 1..=LAUNCH_FAILURES_MAX {
        assert!(rm.blocklist().get_all_items().is_empty(), "attempt {attempt}");
        let failed =
            DriverEvent::RequestFailed { node: NodeId::new("n1").ok(), message: "no image".into() };
        tell(&mut rm, 0, ResourceManagerInput::Driver(failed));
    }
    assert_eq!(rm.blocklist().get_all_items()[0].origin.name(), "external");
}

#[test]
fn b21_nodes_that_can_not_start_workers_are_counted_by_pool() {
    let mut rm = resource_manager(true, true);
    for n in ["gpu1", "gpu2"] {
        register_in_pool(&mut rm, &format!("tm-{n}"), n, NodePool::new("gpu").expect("short"));
    }
    (1..=20).for_each(|i| drop(register(&mut rm, &format!("tm-n{i}"), &format!("n{i}"))));
    for n in ["gpu1", "gpu2", "n1"].repeat(LAUNCH_FAILURES_MAX as usize) {
        let failed =
            DriverEvent::RequestFailed { node: NodeId::new(n).ok(), message: "no image".into() };
        tell(&mut rm, 0, ResourceManagerInput::Driver(failed));
    }
    let items = rm.blocklist().get_all_items();
    assert_eq!(items.iter().map(|item| item.key.identifier()).collect::<Vec<_>>(), ["gpu1", "n1"]);
}

#[test]
fn b13_only_task_managers_are_counted_as_workers() {
    let mut rm = resource_manager(true, false);
    tell(&mut rm, 0, ResourceManagerInput::JobMasterRegistered(JobId(1), LeaderId(1)));
    register(&mut rm, "tm1", "n1");
    block(&mut rm, "n1", ItemType::Node, 1000);
    let overview = rm.overview();
    assert_eq!((overview.task_managers, overview.blocked_task_managers), (1, 1));
}

#[test]
fn x01_switched_off_nothing_is_blocked_and_nothing_is_due_for_it() {
    let mut rm = resource_manager(false, false);
    register(&mut rm, "tm1", "n1");
    let out = block(&mut rm, "n1", ItemType::Node, 1_000_000);
    assert!(out.is_empty() && rm.blocklist().deadline().is_none());
    assert_eq!(granted(&need(&mut rm, 1)), 1);
    assert_eq!(rm.blocklist_mut().snapshot().blocklisted_node_count(), 0);
}
