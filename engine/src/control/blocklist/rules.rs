//! The strategy `rules`: which failures blame what, by configuration. The first rule that matches decides.
//!
//! A rule matches class, message and labels of any cause in the chain; it acts once enough independent failures hit the
//! same target within its window, and for longer each time the target offends again. A rule with target NONE
//! explains a failure away.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::item::{BlocklistAction, ItemKey, NewItem, Origin};
use super::options::{OptionError, PREFIX, duration};
use super::pattern::{Pattern, PatternCompiler};
use super::registry::BlocklistStrategyFactory;
use super::strategy::{Backoff, BlocklistStrategy, FailureEvent, Target};
use crate::clock::Timestamp;
use crate::control::identity::{NodeId, ResourceId, TaskManagerLocation};
use crate::control::moment::after;

/// The most targets whose history a rule keeps; the least recently hit is forgotten.
const TARGETS_MAX: usize = 10_000;

/// What makes two failures independent evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distinct {
    /// They are of different attempts.
    #[default]
    Attempt,
    /// They are of different vertices.
    Vertex,
    /// They are of different jobs.
    Job,
}

/// One rule.
#[derive(Debug)]
struct Rule {
    name: String,
    class: Option<Box<dyn Pattern>>,
    message: Option<Box<dyn Pattern>>,
    labels: BTreeMap<String, Box<dyn Pattern>>,
    target: Target,
    action: BlocklistAction,
    threshold: usize,
    window: Duration,
    backoff: Backoff,
    probation: Duration,
    distinct: Distinct,
}

impl Rule {
    fn matches(&self, failure: &FailureEvent) -> bool {
        failure.causes().any(|cause| {
            let class =
                |p: &dyn Pattern| p.is_match(cause.class()) || p.is_match(cause.root_class());
            self.class.as_deref().is_none_or(class)
                && self.message.as_deref().is_none_or(|p| p.is_match(cause.message()))
                && self.labels.iter().all(|(name, p)| {
                    cause.labels().get(name).is_some_and(|value| p.is_match(value))
                })
        })
    }
}

#[derive(Debug, Default)]
struct History {
    evidence: VecDeque<(Timestamp, u64)>,
    offences: u32,
    last_end: Timestamp,
}

/// The rules of one job.
#[derive(Debug)]
pub struct RulesStrategy {
    rules: Vec<Rule>,
    history: BTreeMap<(usize, ItemKey), History>,
    blamed: BTreeMap<NodeId, BTreeSet<ResourceId>>,
}

impl RulesStrategy {
    /// The rules that `options` describe: `rules` names them, `rules.<name>.…` says what each does.
    ///
    /// # Errors
    /// If a key is unknown, a pattern can't be compiled, or a value is wrong; the error names the key.
    pub fn parse(
        options: &BTreeMap<String, String>,
        compiler: &dyn PatternCompiler,
    ) -> Result<Self, OptionError> {
        let names: Vec<&str> = options
            .get("rules")
            .map(|list| list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect())
            .unwrap_or_default();
        let mut rules: Vec<Rule> = names.iter().map(|name| new_rule(name)).collect();
        for (short, value) in options {
            let Some(rest) = short.strip_prefix("rules.") else { continue };
            let key = format!("{PREFIX}strategy.{short}");
            let rule = rest.split_once('.').and_then(|(name, field)| {
                Some((rules.iter_mut().find(|r| r.name == name)?, field))
            });
            let Some((rule, field)) = rule else {
                let known: Vec<String> = names
                    .iter()
                    .map(|name| format!("{PREFIX}strategy.rules.{name}.target"))
                    .collect();
                return Err(OptionError::unknown(&key, known.iter().map(String::as_str)));
            };
            set(rule, field, &key, value, compiler)?;
        }
        Ok(Self { rules, history: BTreeMap::new(), blamed: BTreeMap::new() })
    }

    fn hit(&mut self, rule: usize, key: ItemKey, failure: &FailureEvent) -> Option<NewItem> {
        if self.history.len() >= TARGETS_MAX {
            let oldest = |(_, h): &(&(usize, ItemKey), &History)| h.evidence.back().map(|e| e.0);
            let oldest = self.history.iter().min_by_key(oldest).map(|(key, _)| key.clone())?;
            self.history.remove(&oldest);
        }
        let history = self.history.entry((rule, key.clone())).or_default();
        let rule = &self.rules[rule];
        let now = failure.now.mono;
        history.evidence.retain(|(at, _)| now.since(*at) <= rule.window);
        let of = match (rule.distinct, failure.attempt) {
            (Distinct::Job, _) | (_, None) => failure.job.0,
            (Distinct::Vertex, Some(id)) => u64::from(id.subtask.vertex.0),
            (Distinct::Attempt, Some(id)) => {
                let subtask = (u64::from(id.subtask.vertex.0) << 32) | u64::from(id.subtask.index);
                subtask.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(id.attempt.0)
            }
        };
        history.evidence.retain(|(_, known)| *known != of);
        history.evidence.push_back((now, of));
        if history.evidence.len() < rule.threshold {
            return None;
        }
        history.evidence.clear();
        if history.offences > 0 && now.since(history.last_end) > rule.probation {
            history.offences = 0;
        }
        let timeout = rule.backoff.timeout(history.offences);
        history.offences += 1;
        history.last_end = now + timeout;
        Some(NewItem {
            key,
            action: rule.action,
            cause: failure.cause.clone(),
            end_timestamp: Some(after(failure.now.wall, timeout)),
            origin: Origin::Strategy { job: failure.job, rule: format!("rules/{}", rule.name) },
        })
    }

    fn hit_location(
        &mut self,
        rule: usize,
        location: &TaskManagerLocation,
        failure: &FailureEvent,
    ) -> Option<NewItem> {
        let node = ItemKey::Node(location.node_id.clone());
        let process = ItemKey::TaskManager(location.resource_id.clone());
        match self.rules[rule].target {
            Target::None => None,
            Target::Node => self.hit(rule, node, failure),
            Target::TaskManager => self.hit(rule, process, failure),
            Target::TaskManagerThenNode(count) => {
                let mut item = self.hit(rule, process, failure)?;
                let blamed = self.blamed.entry(location.node_id.clone()).or_default();
                blamed.insert(location.resource_id.clone());
                if blamed.len() >= count as usize {
                    self.blamed.remove(&location.node_id);
                    item.key = node;
                }
                Some(item)
            }
        }
    }
}

impl BlocklistStrategy for RulesStrategy {
    fn name(&self) -> &'static str {
        "rules"
    }

    fn generate_blocklisted_items(&mut self, failure: &FailureEvent) -> Vec<NewItem> {
        let Some(rule) = self.rules.iter().position(|rule| rule.matches(failure)) else {
            return Vec::new();
        };
        let hit = failure.locations.iter();
        hit.filter_map(|location| self.hit_location(rule, location, failure)).collect()
    }
}

fn new_rule(name: &str) -> Rule {
    Rule {
        name: name.into(),
        class: None,
        message: None,
        labels: BTreeMap::new(),
        target: Target::TaskManager,
        action: BlocklistAction::MarkBlocklisted,
        threshold: 1,
        window: Duration::from_secs(600),
        backoff: Backoff {
            timeout: Duration::from_secs(600),
            multiplier: 1.0,
            max: Duration::from_secs(86_400),
        },
        probation: Duration::from_secs(600),
        distinct: Distinct::default(),
    }
}

fn set(
    rule: &mut Rule,
    field: &str,
    key: &str,
    value: &str,
    compiler: &dyn PatternCompiler,
) -> Result<(), OptionError> {
    let pattern = || {
        compiler
            .compile(value)
            .map_err(|e| OptionError::bad(key, value, format!("a pattern ({e})")))
    };
    match field {
        "match.class" => rule.class = Some(pattern()?),
        "match.message" => rule.message = Some(pattern()?),
        "target" => rule.target = target(key, value)?,
        "action" => {
            let names = BlocklistAction::WIRE_NAMES.join(" or ");
            rule.action = BlocklistAction::from_wire_name(value)
                .ok_or_else(|| OptionError::bad(key, value, names))?;
        }
        "threshold" => {
            let count = value.parse().ok().filter(|count| *count > 0);
            rule.threshold =
                count.ok_or_else(|| OptionError::bad(key, value, "a number above 0"))?;
        }
        "window" => rule.window = duration(key, value)?,
        "timeout" => rule.backoff.timeout = duration(key, value)?,
        "max-timeout" => rule.backoff.max = duration(key, value)?,
        "probation" => rule.probation = duration(key, value)?,
        "timeout-multiplier" => {
            let factor = value.parse().ok().filter(|factor| (1.0..=1000.0).contains(factor));
            let wrong = || OptionError::bad(key, value, "a number from 1 to 1000");
            rule.backoff.multiplier = factor.ok_or_else(wrong)?;
        }
        "distinct" => {
            rule.distinct = match value {
                "attempt" => Distinct::Attempt,
                "vertex" => Distinct::Vertex,
                "job" => Distinct::Job,
                _ => return Err(OptionError::bad(key, value, "attempt, vertex or job")),
            }
        }
        _ => match field.strip_prefix("match.labels.") {
            Some(label) => drop(rule.labels.insert(label.into(), pattern()?)),
            None => {
                let fields = [
                    "match.class",
                    "match.message",
                    "target",
                    "action",
                    "threshold",
                    "window",
                    "timeout",
                    "max-timeout",
                    "probation",
                    "timeout-multiplier",
                    "distinct",
                ];
                let known: Vec<String> = fields
                    .iter()
                    .map(|field| format!("{PREFIX}strategy.rules.{}.{field}", rule.name))
                    .collect();
                return Err(OptionError::unknown(key, known.iter().map(String::as_str)));
            }
        },
    }
    Ok(())
}

fn target(key: &str, value: &str) -> Result<Target, OptionError> {
    match value {
        "NONE" => Ok(Target::None),
        "NODE" => Ok(Target::Node),
        "TASK_MANAGER" => Ok(Target::TaskManager),
        _ => value
            .strip_prefix("TASK_MANAGER_THEN_NODE(")
            .and_then(|rest| rest.strip_suffix(')')?.parse().ok())
            .filter(|count| *count > 0)
            .map(Target::TaskManagerThenNode)
            .ok_or_else(|| {
                let expected = "NONE, NODE, TASK_MANAGER or TASK_MANAGER_THEN_NODE(n)";
                OptionError::bad(key, value, expected)
            }),
    }
}

/// Makes [`RulesStrategy`]s.
#[derive(Debug)]
pub struct RulesFactory<C>(C);

impl<C: PatternCompiler> RulesFactory<C> {
    /// A factory whose rules use this compiler's patterns.
    pub fn new(compiler: C) -> Self {
        Self(compiler)
    }
}

impl<C: PatternCompiler> BlocklistStrategyFactory for RulesFactory<C> {
    fn id(&self) -> &'static str {
        "rules"
    }

    fn create(
        &self,
        options: &BTreeMap<String, String>,
    ) -> Result<Box<dyn BlocklistStrategy>, OptionError> {
        Ok(Box::new(RulesStrategy::parse(options, &self.0)?))
    }
}
