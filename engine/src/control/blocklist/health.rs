//! The strategy `health`: blames what fails clearly more than the rest of the fleet.
//!
//! Every node has a score of failures that decays with time and with success. A node is blocked only if its score
//! stands out, it failed often enough, and the same class of cause was not seen on much of the fleet: what fails
//! everywhere is not the machine. All of that must hold of its own pool too: what the machines of one kind have in
//! common is the fault of none of them. A failure between two task managers blames the one that fails with different
//! peers. When an item ends, its node is on probation: one failure blocks it again, for twice as long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::item::{BlocklistAction, ItemKey, NewItem, Origin};
use super::options::{OptionError, PREFIX, duration};
use super::strategy::{Backoff, BlocklistStrategy, FailureEvent, ProgressEvent, RemovalReason};
use crate::clock::Timestamp;
use crate::control::identity::{NodeId, NodePool, TaskManagerLocation};
use crate::control::moment::{Moment, after};

/// The most nodes that are remembered; the least suspicious is forgotten.
const NODES_MAX: usize = 10_000;
/// The most classes of causes that are remembered.
const CLASSES_MAX: usize = 1_000;

/// Options under `strategy.health.`.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthOptions {
    /// Failures within the window below which nobody is blamed.
    pub min_failures: u32,
    /// How many standard deviations above the fleet's mean a score must be.
    pub deviations: f64,
    /// How long failures and causes are remembered; half of a score decays in it.
    pub window: Duration,
    /// The share of the fleet, or of a pool, on which a cause must be seen to be common.
    pub common_ratio: f64,
    /// How long an item lasts.
    pub backoff: Backoff,
}

impl Default for HealthOptions {
    fn default() -> Self {
        Self {
            min_failures: 2,
            deviations: 2.0,
            window: Duration::from_secs(600),
            common_ratio: 0.3,
            backoff: Backoff {
                timeout: Duration::from_secs(600),
                multiplier: 2.0,
                max: Duration::from_secs(86_400),
            },
        }
    }
}

impl HealthOptions {
    /// Reads the options `health.…`.
    ///
    /// # Errors
    /// If one is unknown or wrong; the error names it.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<Self, OptionError> {
        let mut parsed = Self::default();
        for (short, value) in options {
            let Some(field) = short.strip_prefix("health.") else { continue };
            let key = format!("{PREFIX}strategy.{short}");
            let number = || -> Result<f64, OptionError> {
                let number = value.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0);
                number.ok_or_else(|| OptionError::bad(&key, value, "a number from 0"))
            };
            match field {
                "min-failures" => parsed.min_failures = number()? as u32,
                "deviations" => parsed.deviations = number()?,
                "common-ratio" => parsed.common_ratio = number()?,
                "window" => parsed.window = duration(&key, value)?,
                "timeout" => parsed.backoff.timeout = duration(&key, value)?,
                "max-timeout" => parsed.backoff.max = duration(&key, value)?,
                _ => {
                    let fields = [
                        "min-failures",
                        "deviations",
                        "common-ratio",
                        "window",
                        "timeout",
                        "max-timeout",
                    ];
                    let known: Vec<String> =
                        fields.iter().map(|f| format!("{PREFIX}strategy.health.{f}")).collect();
                    return Err(OptionError::unknown(&key, known.iter().map(String::as_str)));
                }
            }
        }
        Ok(parsed)
    }
}

#[derive(Debug, Default)]
struct Score {
    value: f64,
    at: Timestamp,
    failures: u32,
    offences: u32,
    probation_until: Option<Timestamp>,
    last_timeout: Duration,
    peers: BTreeSet<NodeId>,
    pool: NodePool,
}

/// The scores of the fleet.
#[derive(Debug)]
pub struct HealthStrategy {
    options: HealthOptions,
    scores: BTreeMap<NodeId, Score>,
    /// Where each class of cause was seen, and when last.
    seen: BTreeMap<String, BTreeMap<NodeId, (NodePool, Timestamp)>>,
}

impl HealthStrategy {
    /// Knows nothing yet.
    pub fn new(options: HealthOptions) -> Self {
        Self { options, scores: BTreeMap::new(), seen: BTreeMap::new() }
    }

    /// Nodes on probation: to be used last.
    pub fn on_probation(&self, now: Timestamp) -> impl Iterator<Item = &NodeId> {
        let probation = move |(_, score): &(&NodeId, &Score)| {
            score.probation_until.is_some_and(|until| until > now)
        };
        self.scores.iter().filter(probation).map(|(node, _)| node)
    }

    fn is_common(&mut self, failure: &FailureEvent, node: &NodeId, pool: &NodePool) -> bool {
        let now = failure.now.mono;
        let class = failure.chain.last().unwrap_or(&failure.cause).root_class().to_owned();
        if self.seen.len() >= CLASSES_MAX && !self.seen.contains_key(&class) {
            self.seen.clear();
        }
        let seen = self.seen.entry(class).or_default();
        seen.insert(node.clone(), (pool.clone(), now));
        seen.retain(|_, (_, at)| now.since(*at) <= self.options.window);
        let is_much = |seen: usize, nodes: usize| {
            seen as f64 >= (nodes as f64 * self.options.common_ratio).max(3.0)
        };
        let in_pool = seen.values().filter(|(of, _)| of == pool).count();
        let cluster = &failure.cluster;
        is_much(seen.len(), cluster.nodes) || is_much(in_pool, cluster.pool(pool).nodes)
    }

    fn decay(&mut self, now: Timestamp) {
        let half_life = self.options.window.as_secs_f64().max(1.0);
        for score in self.scores.values_mut() {
            let passed = now.since(score.at).as_secs_f64();
            score.value *= 0.5f64.powf(passed / half_life);
            score.at = now;
            if score.value < 0.25 {
                score.failures = 0;
                score.peers.clear();
            }
        }
    }

    /// Whether a node's score stands out from those of `nodes` nodes, of which `is_one` tells those with a score.
    fn stands_out(&self, node: &NodeId, nodes: usize, is_one: impl Fn(&Score) -> bool) -> bool {
        // All but the suspect, whose own score would hide it in a small fleet.
        let others = self.scores.iter().filter(|(other, score)| *other != node && is_one(score));
        let others: Vec<f64> = others.map(|(_, score)| score.value).collect();
        let count = nodes.saturating_sub(1).max(others.len()).max(1) as f64;
        let mean = others.iter().sum::<f64>() / count;
        let unseen = (count - others.len() as f64) * mean * mean;
        let variance = (others.iter().map(|v| (v - mean).powi(2)).sum::<f64>() + unseen) / count;
        let own = self.scores.get(node).map_or(0.0, |score| score.value);
        own > mean + self.options.deviations * variance.sqrt()
    }

    fn blame(&mut self, failure: &FailureEvent, node: &NodeId) -> Option<NewItem> {
        let now = failure.now.mono;
        let score = self.scores.get(node)?;
        let on_probation = score.probation_until.is_some_and(|until| until > now);
        let enough = score.failures >= self.options.min_failures;
        let cluster = &failure.cluster;
        let stands_out = || {
            let pool = &score.pool;
            self.stands_out(node, cluster.nodes, |_| true)
                && self.stands_out(node, cluster.pool(pool).nodes, |other| other.pool == *pool)
        };
        let is_guilty = on_probation || enough && stands_out();
        if !is_guilty {
            return None;
        }
        let score = self.scores.get_mut(node)?;
        if !on_probation {
            score.offences = 0;
        }
        let timeout = self.options.backoff.timeout(score.offences);
        score.offences += 1;
        score.last_timeout = timeout;
        score.probation_until = None;
        score.failures = 0;
        Some(NewItem {
            key: ItemKey::Node(node.clone()),
            action: BlocklistAction::MarkBlocklisted,
            cause: failure.cause.clone(),
            end_timestamp: Some(after(failure.now.wall, timeout)),
            origin: Origin::Strategy { job: failure.job, rule: "health".into() },
        })
    }
}

impl BlocklistStrategy for HealthStrategy {
    fn name(&self) -> &'static str {
        "health"
    }

    fn generate_blocklisted_items(&mut self, failure: &FailureEvent) -> Vec<NewItem> {
        let of = |location: &TaskManagerLocation| (location.node_id.clone(), location.pool.clone());
        let nodes: BTreeMap<NodeId, NodePool> = failure.locations.iter().map(of).collect();
        self.decay(failure.now.mono);
        let mut items = Vec::new();
        for (node, pool) in &nodes {
            if self.is_common(failure, node, pool) {
                continue;
            }
            if self.scores.len() >= NODES_MAX {
                self.scores.retain(|_, score| score.value >= 0.25);
            }
            let score = self.scores.entry(node.clone()).or_default();
            score.at = failure.now.mono;
            score.value += 1.0;
            score.failures += 1;
            score.peers.extend(nodes.keys().filter(|peer| *peer != node).cloned());
            score.pool = pool.clone();
            // Of two ends, only the one that fails with different peers is to blame.
            let is_end = nodes.len() > 1;
            if !is_end || score.peers.len() >= 2 {
                items.extend(self.blame(failure, node));
            }
        }
        items
    }

    fn on_success(&mut self, progress: &ProgressEvent) {
        for location in &progress.locations {
            if let Some(score) = self.scores.get_mut(&location.node_id) {
                score.value *= 0.9;
            }
        }
    }

    fn on_item_removed(&mut self, now: Moment, key: &ItemKey, why: RemovalReason) {
        let Some(score) = key.node().and_then(|node| self.scores.get_mut(node)) else { return };
        match why {
            RemovalReason::Expired if score.offences > 0 => {
                score.probation_until = Some(now.mono + score.last_timeout);
            }
            RemovalReason::Expired => {}
            RemovalReason::Removed => {
                let pool = std::mem::take(&mut score.pool);
                *score = Score { at: now.mono, pool, ..Score::default() };
            }
        }
    }
}
