//! Puts the resource manager and the job master of one job together, from its options.

use std::time::Duration;

use super::options::{self as cluster_options, ClusterOptions};
use crate::config::{RestartStrategy, RestartType};
use crate::control::blocklist::job_master::JobMasterBlocklistHandler;
use crate::control::blocklist::listeners::BlocklistListeners;
use crate::control::blocklist::options::BlocklistOptions;
use crate::control::blocklist::resource_manager::ResourceManagerBlocklistHandler;
use crate::control::blocklist::runner::StrategyRunner;
use crate::control::blocklist::tracker::{BlocklistTracker, TrackerConfig};
use crate::control::driver::WorkerSpec;
use crate::control::evacuation::EvacuationConfig;
use crate::control::heartbeat::HeartbeatConfig;
use crate::control::identity::{JobId, LeaderId};
use crate::control::job_master::{JobMaster, JobMasterConfig};
use crate::control::moment::Moment;
use crate::control::region::{Edge, Exchange, FailoverStrategy, Regions};
use crate::control::resource_manager::ResourceManager;
use crate::control::restart::RestartConfig;
use crate::control::slots::manager::{SlotManager, SlotManagerConfig};
use crate::control::slots::profile::ResourceProfile;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::ExecutionGraph;
use crate::id::SubtaskId;

/// The one job of this cluster.
pub(super) const JOB: JobId = JobId(1);
/// Terms of the resource manager and the job master: there is one of each in the life of a process.
pub(super) const RESOURCE_MANAGER: LeaderId = LeaderId(1);
/// See [`RESOURCE_MANAGER`].
pub(super) const JOB_MASTER: LeaderId = LeaderId(2);
/// After how long a notice that was not acknowledged is sent again.
const RESEND: Duration = Duration::from_secs(5);
/// After how long an unneeded slot is given back.
const SLOT_IDLE: Duration = Duration::from_secs(50);
/// Who dies in this process is noticed by the end of its threads: nobody is asked for signs of life.
const HEARTBEATS: HeartbeatConfig =
    HeartbeatConfig { interval: Duration::MAX, timeout: Duration::MAX, failure_threshold: None };

/// The resource manager over the task managers of one process.
pub(super) fn resource_manager(now: Moment, options: &ClusterOptions) -> ResourceManager {
    let listeners = BlocklistListeners::new(RESOURCE_MANAGER, RESEND);
    let (tracker, caps) = (tracker(&options.blocklist, 0), options.blocklist.caps);
    let mut blocklist = ResourceManagerBlocklistHandler::new(tracker, caps, listeners);
    if options.blocklist.enabled {
        blocklist.start(now).expect("it is new");
    }
    let slots = SlotManager::new(SlotManagerConfig {
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

/// The job master of `graph`.
///
/// # Errors
/// `Config` if a strategy is not known, or an option of it is wrong.
pub(super) fn job_master(
    now: Moment,
    options: &ClusterOptions,
    restart: &RestartStrategy,
    is_checkpointed: bool,
    graph: &ExecutionGraph,
    seed: u64,
) -> Result<JobMaster> {
    let from = &options.blocklist;
    let strategies =
        cluster_options::registry()
            .create(&from.strategies, &from.strategy_options)
            .map_err(|error| Error::new(ErrorKind::Config, error.to_string()).caused_by(error))?;
    let mut blocklist = JobMasterBlocklistHandler::new(
        tracker(from, 1),
        StrategyRunner::new(strategies, from.mode),
        from.caps,
        BlocklistListeners::new(JOB_MASTER, RESEND),
    );
    if from.enabled {
        blocklist.start(now).expect("it is new");
    }
    // Without checkpoints a move would repeat what was done: tasks stay where they are.
    let grace = if is_checkpointed { from.evacuation_grace } else { Duration::MAX };
    let config = JobMasterConfig {
        job: JOB,
        term: JOB_MASTER,
        profile: ResourceProfile::default(),
        slot_idle_timeout: SLOT_IDLE,
        slot_request_timeout: options.slot_request_timeout,
        restart: restart_config(restart),
        evacuation: EvacuationConfig { grace, on_no_capacity: from.on_no_capacity },
        heartbeat: HEARTBEATS,
        jitter_seed: seed,
    };
    Ok(JobMaster::new(config, blocklist, subtasks(graph), regions(graph)))
}

fn subtasks(graph: &ExecutionGraph) -> impl Iterator<Item = SubtaskId> + '_ {
    graph.vertices.iter().flat_map(|vertex| {
        (0..vertex.parallelism).map(|index| SubtaskId { vertex: vertex.id, index })
    })
}

/// Subtasks that are connected by lanes restart together.
pub(super) fn regions(graph: &ExecutionGraph) -> Regions {
    let parallelism = |vertex: crate::id::VertexId| graph.vertices[vertex.0 as usize].parallelism;
    let mut edges = Vec::new();
    for plan in &graph.edges {
        // Each producer has a lane to each consumer; these edges connect as many with fewer.
        let edge = |from, to| Edge {
            producer: SubtaskId { vertex: plan.from, index: from },
            consumer: SubtaskId { vertex: plan.to, index: to },
            exchange: Exchange::Pipelined,
        };
        edges.extend((0..parallelism(plan.from)).map(|from| edge(from, 0)));
        edges.extend((1..parallelism(plan.to)).map(|to| edge(0, to)));
    }
    Regions::new(subtasks(graph), &edges, FailoverStrategy::Region)
}

fn tracker(options: &BlocklistOptions, origin_id: u64) -> BlocklistTracker {
    BlocklistTracker::new(TrackerConfig {
        item_timeout: options.item_timeout,
        check_interval: options.check_interval,
        origin_id,
    })
}

fn restart_config(from: &RestartStrategy) -> RestartConfig {
    match from.kind {
        RestartType::None => RestartConfig::None,
        RestartType::FixedDelay => RestartConfig::FixedDelay {
            attempts: from.fixed_delay_attempts,
            delay: from.fixed_delay_delay,
        },
        RestartType::FailureRate => RestartConfig::FailureRate {
            max_failures_per_interval: from.failure_rate_max_failures,
            interval: from.failure_rate_interval,
            delay: from.failure_rate_delay,
        },
        RestartType::ExponentialDelay => RestartConfig::ExponentialDelay {
            initial_backoff: from.exponential_initial,
            max_backoff: from.exponential_max,
            multiplier: from.exponential_multiplier,
            reset_threshold: from.exponential_reset,
            jitter_factor: from.exponential_jitter,
            attempts_before_reset: from.exponential_attempts,
        },
    }
}
