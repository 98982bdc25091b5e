//! The blocklist on the control thread with 10,000 items and 1,000 task managers: add, query, expiry and removal of one, each at
//! most 1 ms at p99.
//!
//! `cargo bench -p tidegate --bench blocklist`. Before criterion's figures, the 99th percentiles of single calls are printed.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate::clock::EpochMillis;
use tidegate::control::blocklist::caps::Caps;
use tidegate::control::blocklist::cause::Cause;
use tidegate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use tidegate::control::blocklist::item::{BlocklistAction, ItemKey, ItemType, NewItem, Origin};
use tidegate::control::blocklist::listeners::BlocklistListeners;
use tidegate::control::blocklist::resource_manager::ResourceManagerBlocklistHandler;
use tidegate::control::blocklist::tracker::{BlocklistTracker, TrackerConfig};
use tidegate::control::driver::WorkerSpec;
use tidegate::control::heartbeat::HeartbeatConfig;
use tidegate::control::identity::{JobId, LeaderId, NodeId, ResourceId, TaskManagerLocation};
use tidegate::control::moment::Moment;
use tidegate::control::resource_manager::{
    ResourceManager, ResourceManagerInput, ResourceManagerOutput,
};
use tidegate::control::slots::manager::{SlotManager, SlotManagerConfig};
use tidegate::control::slots::profile::{ResourceCounter, ResourceProfile};
use tidegate::control::slots::task_slots::SlotStatus;

const ITEMS: u64 = 10_000;
const TASK_MANAGERS: u64 = 1_000;
const SLOTS: u32 = 4;
/// Items of node `i` end at `HOUR + i` ms.
const HOUR: u64 = 3_600_000;

fn node(i: u64) -> ItemKey {
    ItemKey::new(ItemType::Node, &format!("n{i:05}")).expect("short")
}

fn rid(i: u64) -> ResourceId {
    ResourceId::new(&format!("tm{i:04}")).expect("short")
}

fn wish(key: ItemKey, end: u64) -> NewItem {
    NewItem {
        key,
        action: BlocklistAction::MarkBlocklisted,
        cause: Cause::new("Maintenance", "by hand"),
        end_timestamp: Some(EpochMillis(end as i64)),
        origin: Origin::Rest { principal: "bench".into() },
    }
}

/// A resource manager with its job master, all task managers and all items; half the task managers are on blocked nodes.
fn cluster() -> ResourceManager {
    let term = LeaderId(1);
    let tracker = BlocklistTracker::new(TrackerConfig {
        item_timeout: Some(Duration::from_secs(600)),
        check_interval: Duration::from_secs(1),
        origin_id: 1,
    });
    let listeners = BlocklistListeners::new(term, Duration::from_secs(5));
    let mut blocklist = ResourceManagerBlocklistHandler::new(tracker, Caps::default(), listeners);
    blocklist.start(Moment::at_millis(0)).expect("it is new");
    let slots = SlotManager::new(SlotManagerConfig {
        worker: WorkerSpec { slots: SLOTS, profile: ResourceProfile::default() },
        can_request: false,
        idle_timeout: Duration::from_secs(30),
        slots_max: None,
        blocked_exceed_limit: false,
        term,
    });
    // Nobody is lost, however far time goes.
    let heartbeats = HeartbeatConfig {
        interval: Duration::from_millis(100 * HOUR),
        timeout: Duration::from_millis(200 * HOUR),
        failure_threshold: None,
    };
    let mut manager = ResourceManager::new(blocklist, slots, heartbeats);
    let now = Moment::at_millis(1);
    let mut out = Vec::new();
    for i in 0..TASK_MANAGERS {
        let place = NodeId::new(&format!("n{:05}", i * 20)).expect("short");
        let location = TaskManagerLocation::new(rid(i), Some(place), "10.0.0.1", 1);
        let report = (0..SLOTS).map(|index| SlotStatus { index, holder: None }).collect();
        let registered = ResourceManagerInput::TaskManagerRegistered {
            location: location.expect("short"),
            profile: ResourceProfile::default(),
            report,
        };
        manager.handle(now, registered, &mut out);
    }
    manager.handle(now, ResourceManagerInput::JobMasterRegistered(JobId(1), LeaderId(7)), &mut out);
    let needs = ResourceCounter::of(ResourceProfile::default(), SLOTS);
    manager.handle(now, ResourceManagerInput::RequirementsDeclared(JobId(1), needs), &mut out);
    let items = (0..ITEMS).map(|i| wish(node(i), HOUR + i)).collect();
    manager.add_items(now, items, &mut out);
    manager
}

/// One call on the control thread.
type Call = fn(&mut ResourceManager, u64, &mut Vec<ResourceManagerOutput>);

const CALLS: [(&str, Call); 6] = [
    ("add a new item", |manager, i, out| {
        manager.add_items(Moment::at_millis(2), vec![wish(node(ITEMS + i), HOUR + ITEMS + i)], out);
    }),
    ("update an item", |manager, i, out| {
        manager.add_items(Moment::at_millis(2), vec![wish(node(i), 2 * HOUR + i)], out);
    }),
    ("query a task manager", |manager, i, _| {
        black_box(manager.blocklist().is_blocklisted_task_manager(&rid(i % TASK_MANAGERS)));
    }),
    ("end an item", |manager, i, out| {
        manager.handle(Moment::at_millis(HOUR + i), ResourceManagerInput::Tick, out);
    }),
    ("remove an item", |manager, i, out| {
        manager.remove_items(Moment::at_millis(2), &[node(i)], out);
    }),
    ("publish a snapshot", |manager, i, out| {
        manager.add_items(Moment::at_millis(2), vec![wish(node(i), 2 * HOUR + i)], out);
        black_box(manager.blocklist_mut().snapshot());
    }),
];

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn percentiles() {
    for (name, call) in CALLS {
        let mut manager = cluster();
        let mut took: Vec<Duration> = (0..2_000)
            .map(|i| {
                let mut out = Vec::new();
                let started = Instant::now();
                call(&mut manager, i, &mut out);
                let took = started.elapsed();
                black_box(out);
                took
            })
            .collect();
        took.sort_unstable();
        println!("{name}: median {:?}, p99 {:?}", took[1_000], took[1_980]);
    }
}

/// What can be repeated without end: each call leaves the list as it was.
fn pairs(criterion: &mut Criterion) {
    percentiles();
    let mut group = criterion.benchmark_group("blocklist of 10,000 items and 1,000 task managers");
    let (mut manager, mut i) = (cluster(), 0);
    group.bench_function("query a task manager", |bencher| {
        bencher.iter(|| {
            i = (i + 1) % TASK_MANAGERS;
            manager.blocklist().is_blocklisted_task_manager(black_box(&rid(i)))
        });
    });
    group.bench_function("add and remove an item", |bencher| {
        bencher.iter(|| {
            i = (i + 1) % 1_000;
            let mut out = Vec::new();
            let new = wish(node(ITEMS + i), HOUR + ITEMS);
            manager.add_items(Moment::at_millis(2), vec![new], &mut out);
            manager.remove_items(Moment::at_millis(2), &[node(ITEMS + i)], &mut out);
            out
        });
    });
    let (mut manager, mut now) = (cluster(), 2);
    group.bench_function("add and end an item", |bencher| {
        bencher.iter(|| {
            now += 1;
            let mut out = Vec::new();
            let new = wish(node(ITEMS + now % 1_000), now + 1);
            manager.add_items(Moment::at_millis(now), vec![new], &mut out);
            manager.handle(Moment::at_millis(now + 1), ResourceManagerInput::Tick, &mut out);
            out
        });
    });
    group.finish();
}

criterion_group!(benches, pairs);
criterion_main!(benches);
