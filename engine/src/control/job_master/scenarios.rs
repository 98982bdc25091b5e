//! Failover and evacuation scenarios of the job master as a whole.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of output")]

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::clock::EpochMillis;
use crate::control::blocklist::caps::Caps;
use crate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use crate::control::blocklist::item::{
    BlocklistAction, BlocklistedItem, ItemKey, ItemType, NewItem, Origin,
};
use crate::control::blocklist::listeners::{BlocklistListeners, BlocklistMessage, BlocklistNotice};
use crate::control::blocklist::runner::{StrategyMode, StrategyRunner};
use crate::control::blocklist::strategy::{BlocklistStrategy, FailureEvent};
use crate::control::blocklist::tracker::{BlocklistTracker, TrackerConfig};
use crate::control::blocklist::{Tombstone, item::Version};
use crate::control::identity::{AllocationId, NodeId};
use crate::control::region::{Edge, Exchange, FailoverStrategy};
use crate::control::slots::pool::SlotOffer;
use crate::id::AttemptId;

const RM: LeaderId = LeaderId(9);

pub(super) fn rid(id: &str) -> ResourceId {
    ResourceId::new(id).expect("short")
}

pub(super) fn node(id: &str) -> ItemKey {
    ItemKey::new(ItemType::Node, id).expect("short")
}

/// Blames the node of every failure, with a given action.
struct Blame(BlocklistAction);

impl BlocklistStrategy for Blame {
    fn name(&self) -> &'static str {
        "blame"
    }

    fn generate_blocklisted_items(&mut self, failure: &FailureEvent) -> Vec<NewItem> {
        let new = |location: &TaskManagerLocation| NewItem {
            key: ItemKey::Node(location.node_id.clone()),
            action: self.0,
            cause: failure.cause.clone(),
            end_timestamp: None,
            origin: Origin::Strategy { job: failure.job, rule: "blame".into() },
        };
        failure.locations.iter().map(new).collect()
    }
}

/// A job of two vertices with `parallelism`, all-to-all, and what it wants done.
pub(super) struct Bench {
    pub(super) jm: JobMaster,
    pub(super) out: Vec<JobMasterOutput>,
    pub(super) now: u64,
    next_slot: u64,
}

impl Bench {
    pub(super) fn new(parallelism: u32, strategy: Option<BlocklistAction>) -> Self {
        Self::build(parallelism, strategy, 1)
    }

    pub(super) fn build(
        parallelism: u32,
        strategy: Option<BlocklistAction>,
        attempts: u32,
    ) -> Self {
        let subtasks: Vec<_> = (0..2)
            .flat_map(|vertex| (0..parallelism).map(move |index| SubtaskId::new(vertex, index)))
            .collect();
        let mut edges = Vec::new();
        for i in 0..parallelism {
            edges.extend((0..parallelism).map(|j| Edge {
                producer: SubtaskId::new(0, i),
                consumer: SubtaskId::new(1, j),
                exchange: Exchange::Pipelined,
            }));
        }
        let regions = Regions::new(subtasks.clone(), &edges, FailoverStrategy::Region);
        let tracker = BlocklistTracker::new(TrackerConfig {
            item_timeout: Some(Duration::from_secs(600)),
            check_interval: Duration::from_secs(1),
            origin_id: 1,
        });
        let strategies =
            strategy.map(|action| Box::new(Blame(action)) as Box<dyn BlocklistStrategy>);
        let mut blocklist = JobMasterBlocklistHandler::new(
            tracker,
            StrategyRunner::new(strategies.into_iter().collect(), StrategyMode::Enforce),
            Caps::default(),
            BlocklistListeners::new(LeaderId(1), Duration::from_secs(5)),
        );
        blocklist.start(Moment::at_millis(0)).expect("it is new");
        let config = JobMasterConfig {
            job: JobId(1),
            term: LeaderId(1),
            profile: ResourceProfile::default(),
            slot_idle_timeout: Duration::from_secs(50),
            slot_request_timeout: Duration::from_secs(300),
            restart: RestartConfig::FixedDelay { attempts, delay: Duration::from_secs(1) },
            evacuation: EvacuationConfig::default(),
            heartbeat: HeartbeatConfig::default(),
            jitter_seed: 1,
        };
        let jm = JobMaster::new(config, blocklist, subtasks, regions);
        let mut bench = Self { jm, out: Vec::new(), now: 0, next_slot: 0 };
        bench.tell(JobMasterInput::ResourceManagerFound(RM));
        bench
    }

    /// Parallelism 2 running on tm1@n1, with free slots nowhere.
    pub(super) fn running(strategy: Option<BlocklistAction>) -> Self {
        let mut bench = Self::new(2, strategy);
        bench.task_manager("tm1", "n1", 2);
        assert_eq!(bench.deployed().len(), 4);
        bench
    }

    pub(super) fn tell(&mut self, input: JobMasterInput) {
        self.jm.handle(Moment::at_millis(self.now), input, &mut self.out);
    }

    pub(super) fn task_manager(&mut self, id: &str, node: &str, slots: u64) {
        let location =
            TaskManagerLocation::new(rid(id), NodeId::new(node).ok(), "h", 0).expect("short");
        self.tell(JobMasterInput::TaskManagerRegistered(location));
        self.offer(id, slots);
    }

    pub(super) fn offer(&mut self, id: &str, slots: u64) {
        let mut offers = Vec::new();
        for index in 0..slots {
            self.next_slot += 1;
            let profile = ResourceProfile::default();
            let allocation = AllocationId(self.next_slot);
            offers.push(SlotOffer { allocation, index: index as u32, profile });
        }
        self.tell(JobMasterInput::SlotsOffered { task_manager: rid(id), offers });
    }

    pub(super) fn report(&mut self, vertex: u32, index: u32, report: TaskReport) {
        let attempt = self.jm.executions().id(SubtaskId::new(vertex, index));
        self.tell(JobMasterInput::Task { attempt, report });
    }

    pub(super) fn fail(&mut self, vertex: u32, index: u32) {
        let cause = Cause::new("IoError", "disk");
        self.report(vertex, index, TaskReport::Failed { cause, chain: Vec::new(), peer: None });
    }

    /// All attempts that were told to stop have stopped.
    pub(super) fn stop_canceled(&mut self) {
        for subtask in self.jm.executions().canceling() {
            self.report(subtask.vertex.0, subtask.index, TaskReport::Canceled);
        }
    }

    pub(super) fn item(key: ItemKey, action: BlocklistAction) -> BlocklistedItem {
        BlocklistedItem::new(key, EpochMillis(0), Cause::new("Rest", "by hand"), action)
            .ending_at(EpochMillis(1_000_000))
    }

    pub(super) fn block(&mut self, key: ItemKey, action: BlocklistAction) {
        self.notice(vec![Self::item(key, action)], Vec::new());
    }

    pub(super) fn notice(&mut self, items: Vec<BlocklistedItem>, tombstones: Vec<Tombstone>) {
        let notice = BlocklistNotice { session: RM, seq: 1, is_full: false, items, tombstones };
        self.tell(JobMasterInput::Blocklist(BlocklistMessage::Notify(notice)));
    }

    /// Where attempts were deployed since the last call.
    pub(super) fn deployed(&mut self) -> Vec<(AttemptId, String)> {
        let out = std::mem::take(&mut self.out);
        let deploys = out.into_iter().filter_map(|o| match o {
            JobMasterOutput::Deploy { attempt, task_manager, .. } => {
                Some((attempt, task_manager.to_string()))
            }
            _ => None,
        });
        deploys.collect()
    }

    pub(super) fn count(&self, which: impl Fn(&JobMasterOutput) -> bool) -> usize {
        self.out.iter().filter(|o| which(o)).count()
    }

    /// The index of the subtasks that run on `id`, which has one slot.
    pub(super) fn index_on(&self, id: &str) -> u32 {
        let there = self.jm.executions().on(&BTreeSet::from([rid(id)]));
        there.keys().next().expect("something runs there").subtask.index
    }

    pub(super) fn needs(&self) -> u32 {
        self.jm.pool().requirements().total()
    }
}

pub(super) fn places(deployed: &[(AttemptId, String)]) -> BTreeSet<&str> {
    deployed.iter().map(|(_, tm)| tm.as_str()).collect()
}

#[test]
fn j06_the_blocklist_is_told_before_the_first_requirement() {
    let mut bench = Bench::running(Some(BlocklistAction::MarkBlocklisted));
    bench.fail(0, 0);
    bench.tell(JobMasterInput::ResourceManagerLost);
    bench.out.clear();
    bench.tell(JobMasterInput::ResourceManagerFound(LeaderId(10)));
    let messages = bench.out.iter().filter_map(|o| match o {
        JobMasterOutput::ToResourceManager(message) => Some(message),
        _ => None,
    });
    let sent: Vec<_> = messages.collect();
    assert!(matches!(sent[0], ToResourceManager::Blocklist(_)), "{sent:?}");
    assert!(matches!(sent[1], ToResourceManager::DeclareRequirements(_)), "{sent:?}");
}

#[test]
fn f01_the_first_retry_avoids_the_node_although_it_has_free_slots() {
    let mut bench = Bench::running(Some(BlocklistAction::MarkBlocklisted));
    bench.fail(0, 0);
    assert_eq!(bench.jm.blocklist().get_blocklisted_nodes().len(), 1);
    bench.stop_canceled();
    assert!(bench.deployed().is_empty(), "its slots were given back");
    bench.offer("tm1", 2);
    bench.task_manager("tm2", "n2", 2);
    let deployed = bench.deployed();
    assert_eq!((deployed.len(), places(&deployed)), (4, BTreeSet::from(["tm2"])));
}

#[test]
fn f02_evacuation_is_one_failover_and_costs_no_restart() {
    let mut bench = Bench::running(None);
    bench.task_manager("tm2", "n2", 0);
    bench.block(node("n1"), BlocklistAction::MarkAndEvacuate);
    bench.offer("tm2", 2);
    bench.out.clear();
    bench.tell(JobMasterInput::CheckpointCompleted { finished: BTreeSet::new() });
    let restores = bench.count(|o| matches!(o, JobMasterOutput::Restore(_)));
    let deployed = bench.deployed();
    assert_eq!((restores, deployed.len()), (1, 4), "all of them, once");
    assert_eq!(places(&deployed), BTreeSet::from(["tm2"]));
    // The budget of one restart is whole: a failure is still survived.
    bench.fail(0, 0);
    bench.stop_canceled();
    assert!(!bench.jm.is_over());
    assert_eq!(bench.deployed().len(), 4);
}

#[test]
fn f02_a_failure_that_demands_evacuation_moves_the_others_in_the_same_failover() {
    let mut bench = Bench::running(Some(BlocklistAction::MarkAndEvacuate));
    bench.task_manager("tm2", "n2", 0);
    bench.fail(0, 0);
    bench.offer("tm2", 2);
    let restores = bench.count(|o| matches!(o, JobMasterOutput::Restore(_)));
    let deployed = bench.deployed();
    assert_eq!((restores, deployed.len()), (1, 4));
    assert!(deployed.iter().all(|(id, tm)| id.attempt.0 == 1 && tm == "tm2"), "each once");
}

#[test]
fn f03_a_graceful_evacuation_asks_for_slots_and_a_checkpoint_first() {
    let mut bench = Bench::running(None);
    bench.out.clear();
    bench.block(node("n1"), BlocklistAction::MarkAndEvacuate);
    assert_eq!(bench.count(|o| matches!(o, JobMasterOutput::TriggerCheckpoint)), 1);
    assert_eq!(bench.count(|o| matches!(o, JobMasterOutput::Cancel { .. })), 0, "they run on");
    assert!(bench.needs() > 2, "make before break");
    bench.task_manager("tm2", "n2", 4);
    assert_eq!(bench.count(|o| matches!(o, JobMasterOutput::Cancel { .. })), 0);
    bench.tell(JobMasterInput::CheckpointCompleted { finished: BTreeSet::new() });
    assert_eq!(bench.deployed().len(), 4);
    assert_eq!(bench.needs(), 2);
}

#[test]
fn f04_without_capacity_tasks_keep_running_and_an_alarm_is_raised() {
    let mut bench = Bench::running(None);
    bench.block(node("n1"), BlocklistAction::MarkAndEvacuate);
    bench.tell(JobMasterInput::CheckpointCompleted { finished: BTreeSet::new() });
    bench.out.clear();
    bench.now = 30_000;
    bench.tell(JobMasterInput::Tick);
    assert_eq!(bench.count(|o| matches!(o, JobMasterOutput::EvacuationStuck(_))), 1);
    assert_eq!(bench.count(|o| matches!(o, JobMasterOutput::Cancel { .. })), 0);
    assert_eq!(bench.jm.executions().waiting().len(), 0);
}

#[test]
fn f05_removing_the_item_during_the_grace_cancels_the_evacuation() {
    let mut bench = Bench::running(None);
    bench.block(node("n1"), BlocklistAction::MarkAndEvacuate);
    let tombstone = Tombstone {
        key: node("n1"),
        version: Version { timestamp: 0, origin_id: 0, seq: 1 },
        keep_until: EpochMillis(2_000_000),
    };
    bench.notice(Vec::new(), vec![tombstone]);
    assert_eq!(bench.needs(), 2);
    bench.task_manager("tm2", "n2", 2);
    bench.out.clear();
    bench.tell(JobMasterInput::CheckpointCompleted { finished: BTreeSet::new() });
    assert!(bench.out.is_empty(), "{:?}", bench.out);
}

#[test]
fn f07_checkpoints_under_way_are_aborted_and_finished_tasks_stay_finished() {
    let mut bench = Bench::running(None);
    bench.report(0, 0, TaskReport::Finished);
    bench.report(0, 1, TaskReport::Finished);
    let finished = BTreeSet::from([SubtaskId::new(0, 0)]);
    bench.tell(JobMasterInput::CheckpointCompleted { finished });
    bench.block(node("n1"), BlocklistAction::MarkAndEvacuate);
    bench.task_manager("tm2", "n2", 4);
    bench.out.clear();
    bench.tell(JobMasterInput::CheckpointFailed);
    assert!(bench.count(|o| matches!(o, JobMasterOutput::AbortCheckpoints(_))) > 0);
    let deployed: BTreeSet<_> = bench.deployed().iter().map(|(id, _)| id.subtask).collect();
    let expected = [(0, 1), (1, 0), (1, 1)].map(|(v, i)| SubtaskId::new(v, i));
    assert_eq!(deployed, BTreeSet::from(expected), "one finished before the checkpoint, one after");
}

#[test]
fn s13_a_task_manager_item_and_a_node_item_have_the_same_effect() {
    let effects = [node("n1"), ItemKey::TaskManager(rid("tm1"))].map(|key| {
        let mut bench = Bench::running(None);
        bench.jm.pool.set_requirements(
            crate::control::slots::profile::ResourceCounter::of(ResourceProfile::default(), 3),
            &mut Vec::new(),
        );
        bench.report(0, 0, TaskReport::Finished);
        bench.out.clear();
        bench.block(key, BlocklistAction::MarkBlocklisted);
        bench.report(1, 0, TaskReport::Finished);
        let freed = bench.count(|o| matches!(o, JobMasterOutput::FreeSlot { .. }));
        (freed, bench.jm.pool().slots().count())
    });
    assert_eq!(effects[0], effects[1]);
    assert_eq!(effects[0], (1, 1));
}

#[test]
fn mark_leaves_running_tasks_alone() {
    let mut bench = Bench::running(None);
    bench.out.clear();
    bench.block(node("n1"), BlocklistAction::MarkBlocklisted);
    assert_eq!(bench.count(|o| matches!(o, JobMasterOutput::Cancel { .. })), 0);
    bench.block(node("n1"), BlocklistAction::MarkAndEvacuate);
    assert_eq!(
        bench.count(|o| *o == JobMasterOutput::TriggerCheckpoint),
        1,
        "the upgrade evacuates"
    );
}

#[test]
fn a_lost_task_manager_is_one_failure_and_its_tasks_run_elsewhere() {
    let mut bench = Bench::running(None);
    bench.task_manager("tm2", "n2", 0);
    bench.now = 50_000;
    bench.tell(JobMasterInput::Heartbeat(JobMasterPeer::TaskManager(rid("tm2"))));
    bench.tell(JobMasterInput::Heartbeat(JobMasterPeer::ResourceManager));
    bench.tell(JobMasterInput::Tick);
    bench.offer("tm2", 2);
    let deployed = bench.deployed();
    assert_eq!((deployed.len(), places(&deployed)), (4, BTreeSet::from(["tm2"])));
    assert!(!bench.jm.is_over(), "one restart was allowed");
}

#[test]
fn b11_a_task_manager_that_was_ended_on_purpose_blames_no_node() {
    let mut bench = Bench::running(Some(BlocklistAction::MarkBlocklisted));
    let cause = Cause::induced("WorkerReleased", "by the resource manager");
    bench.tell(JobMasterInput::TaskManagerLost { id: rid("tm1"), cause });
    assert!(bench.jm.blocklist().get_all_items().is_empty() && !bench.jm.is_over());
}

#[test]
fn r06_a_job_that_gets_no_slots_says_what_is_blocklisted() {
    let mut bench = Bench::new(1, None);
    bench.block(node("n1"), BlocklistAction::MarkBlocklisted);
    bench.task_manager("tm1", "n1", 1);
    bench.now = 1;
    bench.tell(JobMasterInput::Tick);
    bench.now = 300_001;
    bench.tell(JobMasterInput::Heartbeat(JobMasterPeer::TaskManager(rid("tm1"))));
    bench.tell(JobMasterInput::Tick);
    let Some(JobMasterOutput::JobFailed(cause)) = bench.out.last() else {
        panic!("{:?}", bench.out)
    };
    assert!(cause.message().contains("node n1"), "{cause}");
}

#[test]
fn b25_a_failed_slot_is_not_swallowed_but_fails_its_tasks_over() {
    let mut bench = Bench::running(None);
    bench.out.clear();
    let slot = AllocationId(1);
    let cause = Cause::new("AllocationFailed", "no memory");
    bench.tell(JobMasterInput::SlotFailed { task_manager: rid("tm1"), slot, cause });
    assert!(bench.count(|o| matches!(o, JobMasterOutput::Cancel { .. })) > 0);
    assert_eq!(bench.jm.executions().waiting().len(), 2);
}

/// How often the interesting things happened.
#[derive(Debug, Default)]
struct Reached {
    deployed: u64,
    refused_offers: u64,
    moved: u64,
    stuck: u64,
    finished_while_evacuating: u64,
    withdrawn: u64,
    lost_task_managers: u64,
    jobs_finished: u64,
}

fn run_schedule(seed: u64, reached: &mut Reached) {
    let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xABCD_EF01;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((dice >> 33) * sides) >> 31
    };
    let strategy =
        [None, Some(BlocklistAction::MarkBlocklisted), Some(BlocklistAction::MarkAndEvacuate)];
    let mut bench = Bench::build(2, strategy[roll(3) as usize], u32::MAX);

    let mut alive = [false; 3];
    let mut deployed = BTreeSet::new();
    for step in 0..60 {
        let version = step + 1;
        let n = roll(3) as usize;
        let (tm, host) = (format!("tm{n}"), format!("n{n}"));
        let (vertex, index) = (roll(2) as u32, roll(2) as u32);
        let is_evacuating = !bench.jm.evacuation.victims().is_empty();

        match roll(14) {
            0 | 1 if !alive[n] => {
                alive[n] = true;
                bench.task_manager(&tm, &host, roll(3));
            }
            0..=3 => bench.offer(&tm, 1 + roll(2)),
            4 if roll(3) == 0 => {
                alive[n] = false;
                reached.lost_task_managers += 1;
                let cause = Cause::new("TaskManagerLost", "gone");
                bench.tell(JobMasterInput::TaskManagerLost { id: rid(&tm), cause });
            }
            5 | 6 => {
                let key = if roll(2) == 0 { node(&host) } else { ItemKey::TaskManager(rid(&tm)) };
                let action = [BlocklistAction::MarkBlocklisted, BlocklistAction::MarkAndEvacuate]
                    [roll(2) as usize];
                let mut item = Bench::item(key, action).ending_at(EpochMillis(
                    bench.now as i64 + [500, 5_000, 100_000][roll(3) as usize],
                ));
                item.version = Version { timestamp: version, origin_id: 9, seq: 0 };
                bench.notice(vec![item], Vec::new());
            }
            7 => {
                let keep_until = EpochMillis(1_000_000_000);
                let version = Version { timestamp: version, origin_id: 9, seq: 0 };
                reached.withdrawn += u64::from(is_evacuating);
                bench.notice(Vec::new(), vec![Tombstone { key: node(&host), version, keep_until }]);
            }
            8 => bench.fail(vertex, index),
            9 | 10 => bench.stop_canceled(),
            11 if roll(2) == 0 => {
                let finished = bench.jm.executions().iter();
                let finished = finished.filter(|(_, e)| e.state == ExecutionState::Finished);
                let finished = finished.map(|(subtask, _)| subtask).collect();
                bench.tell(JobMasterInput::CheckpointCompleted { finished });
            }
            11 => bench.tell(JobMasterInput::CheckpointFailed),
            12 => {
                let is_running = matches!(
                    bench.jm.executions().get(SubtaskId::new(vertex, index)).map(|e| &e.state),
                    Some(ExecutionState::Running(_))
                );
                reached.finished_while_evacuating += u64::from(is_evacuating && is_running);
                bench.report(vertex, index, TaskReport::Finished);
            }
            _ => {
                bench.now += [10, 1000, 31_000][roll(3) as usize];
                for (n, _) in alive.iter().enumerate().filter(|(_, alive)| **alive) {
                    let peer = JobMasterPeer::TaskManager(rid(&format!("tm{n}")));
                    bench.tell(JobMasterInput::Heartbeat(peer));
                }
                bench.tell(JobMasterInput::Heartbeat(JobMasterPeer::ResourceManager));
                bench.tell(JobMasterInput::Tick);
            }
        }
        for output in std::mem::take(&mut bench.out) {
            match output {
                JobMasterOutput::Deploy { attempt, task_manager, slot } => {
                    reached.deployed += 1;
                    let is_blocked =
                        bench.jm.blocklist().is_blocklisted_task_manager(&task_manager);
                    assert!(
                        !is_blocked,
                        "SEED={seed} step {step}: {attempt} starts on {task_manager}"
                    );
                    assert!(
                        deployed.insert(attempt),
                        "SEED={seed} step {step}: {attempt} starts twice"
                    );
                    let held = bench.jm.pool().slot(slot).map(|s| &s.task_manager);
                    assert!(held.is_none() || held == Some(&task_manager));
                }
                JobMasterOutput::AnswerOffer { task_manager, accepted, .. } => {
                    let is_blocked =
                        bench.jm.blocklist().is_blocklisted_task_manager(&task_manager);
                    reached.refused_offers += u64::from(accepted.is_empty() && is_blocked);
                }
                JobMasterOutput::FreeSlot { cause, .. } => {
                    reached.moved += u64::from(cause.class() == "ResourceEvacuated");
                }
                JobMasterOutput::EvacuationStuck(_) => reached.stuck += 1,
                JobMasterOutput::JobFinished => {
                    reached.jobs_finished += 1;
                    return;
                }
                JobMasterOutput::JobFailed(cause) => {
                    assert_eq!(cause.class(), "NoResourceAvailable", "SEED={seed}: {cause}");
                    return;
                }
                _ => {}
            }
        }
        let due = bench.jm.deadline();
        assert!(due.is_some(), "SEED={seed} step {step}: the blocklist always has a next look");
    }
}

#[test]
fn no_task_ever_starts_on_a_blocklisted_resource() {
    let mut reached = Reached::default();
    if let Some(seed) = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run_schedule(seed, &mut reached);
    }
    for seed in 0..20_000 {
        run_schedule(seed, &mut reached);
    }
    let Reached {
        deployed,
        refused_offers,
        moved,
        stuck,
        finished_while_evacuating,
        withdrawn,
        lost_task_managers,
        jobs_finished,
    } = reached;
    let counts = [
        deployed,
        refused_offers,
        moved,
        stuck,
        finished_while_evacuating,
        withdrawn,
        lost_task_managers,
        jobs_finished,
    ];
    assert!(counts.iter().all(|count| *count > 50), "something was hardly reached: {counts:?}");
}
