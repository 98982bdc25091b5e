//! A blocklist strategy in another process: any program that reads a line of JSON for each failure and answers with one.
//!
//! What to do is decided by `control::blocklist::plugin` (deadlines, back-off, circuit breaker, bounds); this folder runs the
//! process and moves lines. The control thread never waits for the process: it hands lines over and looks what has come. A
//! plug-in that is late, floods, talks nonsense or dies is killed with all it started, and costs the job nothing.

mod process;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use self::process::{Child, Said};
use crate::clock::Timestamp;
use crate::control::blocklist::cause::Cause;
use crate::control::blocklist::item::{NewItem, Origin};
use crate::control::blocklist::options::{OptionError, PREFIX, duration};
use crate::control::blocklist::plugin::{Plugin, PluginConfig, PluginInput, PluginOutput};
use crate::control::blocklist::registry::BlocklistStrategyFactory;
use crate::control::blocklist::strategy::{BlocklistStrategy, FailureEvent};
use crate::control::identity::JobId;
use crate::control::moment::Moment;

/// How often the process is looked at while something is expected of it.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The most problems that are kept until somebody asks.
const PROBLEMS_MAX: usize = 16;

/// The options under `strategy.`.
const KEYS: [&str; 5] = [
    "plugin",
    "plugin.answer-timeout",
    "plugin.queue-max",
    "plugin.mistakes-max",
    "plugin.open-for",
];

/// Makes strategies of programs: the id `plugin`, with the program and its arguments as option `strategy.plugin`, or in one as
/// `plugin:/path/of/the/program argument`.
#[derive(Clone, Copy, Debug, Default)]
pub struct PluginFactory;

impl BlocklistStrategyFactory for PluginFactory {
    fn id(&self) -> &'static str {
        "plugin"
    }

    fn create(
        &self,
        options: &BTreeMap<String, String>,
    ) -> Result<Box<dyn BlocklistStrategy>, OptionError> {
        let mut config = PluginConfig::default();
        let mut command = Vec::new();
        for (short, value) in options.iter().filter(|(key, _)| is_ours(key)) {
            let key = format!("{PREFIX}strategy.{short}");
            let number = || {
                let number = value.parse().ok().filter(|number| *number > 0);
                number.ok_or_else(|| OptionError::bad(&key, value, "a number above 0"))
            };
            match short.as_str() {
                "plugin" => command = value.split_whitespace().map(str::to_owned).collect(),
                "plugin.answer-timeout" => config.answer_timeout = duration(&key, value)?,
                "plugin.open-for" => config.open_for = duration(&key, value)?,
                "plugin.queue-max" => config.queue_max = number()?,
                "plugin.mistakes-max" => {
                    config.mistakes_max = number()?.try_into().unwrap_or(u32::MAX)
                }
                _ => {
                    let known: Vec<_> =
                        KEYS.iter().map(|known| format!("{PREFIX}strategy.{known}")).collect();
                    return Err(OptionError::unknown(&key, known.iter().map(String::as_str)));
                }
            }
        }
        if command.is_empty() {
            let key = format!("{PREFIX}strategy.plugin");
            return Err(OptionError::bad(&key, "", "a program and its arguments"));
        }
        Ok(Box::new(PluginStrategy::new(command, config)))
    }
}

fn is_ours(key: &str) -> bool {
    key.strip_prefix("plugin").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A strategy that asks a program.
#[derive(Debug)]
pub struct PluginStrategy {
    name: String,
    command: Vec<String>,
    plugin: Plugin,
    child: Option<Child>,
    /// The job and the cause of what it is asked about.
    asked: Option<(JobId, Cause)>,
    ready: Vec<NewItem>,
    problems: VecDeque<String>,
    looked: Timestamp,
}

impl PluginStrategy {
    /// A strategy that runs `command`, a program and its arguments, when there is something to ask.
    pub fn new(command: Vec<String>, config: PluginConfig) -> Self {
        Self {
            name: format!("plugin:{}", command.first().map_or("", String::as_str)),
            command,
            plugin: Plugin::new(config),
            child: None,
            asked: None,
            ready: Vec::new(),
            problems: VecDeque::new(),
            looked: Timestamp::ZERO,
        }
    }

    /// How many failures it was not asked about.
    pub fn dropped(&self) -> u64 {
        self.plugin.dropped()
    }

    /// Whether it is left alone because it made too many mistakes.
    pub fn is_open(&self) -> bool {
        self.plugin.is_open()
    }

    fn tell(&mut self, now: Moment, input: PluginInput) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = Vec::new();
            self.plugin.handle(now.mono, input, &mut out);
            for output in out {
                match output {
                    PluginOutput::Start => match Child::start(self.command.clone()) {
                        Ok(child) => self.child = Some(child),
                        Err(error) => {
                            self.problem(format!("no thread for it: {error}"));
                            inputs.push_back(PluginInput::Exited);
                        }
                    },
                    // Dropping the child kills it.
                    PluginOutput::Kill => self.child = None,
                    PluginOutput::Ask { id, failure } => {
                        self.asked = Some((failure.job, failure.cause.clone()));
                        let is_taken =
                            self.child.as_ref().is_some_and(|c| c.ask(wire::request(id, &failure)));
                        if !is_taken {
                            inputs.push_back(PluginInput::Exited);
                        }
                    }
                    PluginOutput::Items(items) => self.ready.extend(items),
                    PluginOutput::Mistake(what) => self.problem(what),
                }
            }
        }
    }

    fn problem(&mut self, what: String) {
        if self.problems.len() == PROBLEMS_MAX {
            self.problems.pop_front();
        }
        self.problems.push_back(format!("{}: {what}", self.name));
    }

    /// Takes what the process has said since the last look.
    fn look(&mut self, now: Moment) {
        self.looked = now.mono;
        while let Some(said) = self.child.as_ref().and_then(Child::said) {
            let input = match said {
                Said::Started => PluginInput::Started,
                Said::Answer(answer) => {
                    let items = answer.items.into_iter().map(|wanted| self.item(now, wanted));
                    PluginInput::Answer { id: answer.id, items: items.collect() }
                }
                Said::Garbage(what) => PluginInput::Garbage(what),
                Said::Exited => {
                    self.child = None;
                    PluginInput::Exited
                }
            };
            self.tell(now, input);
        }
    }

    fn item(&self, now: Moment, wanted: wire::Wanted) -> NewItem {
        let (job, failure) = self.asked.clone().unwrap_or_else(|| (JobId(0), Cause::new("", "")));
        NewItem {
            key: wanted.key,
            action: wanted.action,
            cause: wanted.cause.map_or(failure, |text| Cause::new("Plugin", &text)),
            end_timestamp: wanted.timeout.map(|timeout| now.wall_after(timeout)),
            origin: Origin::Strategy { job, rule: self.name.clone() },
        }
    }
}

impl BlocklistStrategy for PluginStrategy {
    fn name(&self) -> &str {
        &self.name
    }

    /// What the program has answered so far; the answer to this failure comes with a later tick.
    fn generate_blocklisted_items(&mut self, failure: &FailureEvent) -> Vec<NewItem> {
        self.look(failure.now);
        self.tell(failure.now, PluginInput::Failure(Box::new(failure.clone())));
        std::mem::take(&mut self.ready)
    }

    fn tick(&mut self, now: Moment) -> Vec<NewItem> {
        self.look(now);
        self.tell(now, PluginInput::Tick);
        std::mem::take(&mut self.ready)
    }

    fn deadline(&self) -> Option<Timestamp> {
        let expected = self.child.is_some().then(|| self.plugin.deadline()).flatten();
        let look = expected.map(|deadline| deadline.min(self.looked + LOOK_EVERY));
        look.or_else(|| self.plugin.deadline())
    }

    fn take_problems(&mut self) -> Vec<String> {
        self.problems.drain(..).collect()
    }
}
