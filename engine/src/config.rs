//! The options: one table (`config/table.rs`), one precedence, one way to say what is wrong.
//!
//! Code, then file, then environment, then flags: [`Config::set`] ignores a value that comes from further left than the
//! one in place, so the order of calls doesn't matter. Unknown keys are refused everywhere, naming the nearest known
//! one. Whoever starts something from a `Config` calls [`Config::validate`] first. Nothing here prints, and the
//! environment is read only when asked.

use std::fmt;

use crate::error::{Error, ErrorKind};

mod table;
mod value;

pub use table::{
    Blocklist, Buffer, Checkpoint, Config, Emission, Idle, Net, Parallelism, Record, Rest,
    RestartStrategy, Security, TaskManager,
};
pub use value::{
    CpuList, IdleStrategy, Mode, OnNoCapacity, RestartType, StrategyMode, TaskManagerList,
    TaskManagerSpec,
};

/// Where an option's value comes from; a later one overrides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The program that embeds the engine.
    Code,
    /// The configuration file.
    File,
    /// A variable `TIDEGATE_…` of the environment.
    Environment,
    /// A flag of the command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Code => "code",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        })
    }
}

/// A row of the table of options.
#[derive(Clone, Copy, Debug)]
pub struct ConfigOption {
    /// The key, for example `checkpoint.interval`.
    pub key: &'static str,
    /// What it means.
    pub doc: &'static str,
    parse: fn(&mut Config, &str) -> Result<(), &'static str>,
    show: fn(&Config) -> String,
}

/// Why an option is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no such option.
    UnknownKey {
        /// The key as given.
        key: String,
        /// The known key that it is nearest to.
        nearest: &'static str,
    },
    /// The value is not of the option's type.
    Malformed {
        /// The option.
        key: &'static str,
        /// The value as given.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The value is of the option's type, but makes no sense.
    Invalid {
        /// The option.
        key: &'static str,
        /// What is wrong with its value.
        problem: String,
    },
    /// The configuration file is no TOML, or has a value that no option can have.
    File(String),
}

impl ConfigError {
    /// An option whose value makes no sense.
    pub(crate) fn invalid(key: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { key, problem: problem.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { key, nearest } => {
                write!(f, "there is no option '{key}'; did you mean '{nearest}'?")
            }
            Self::Malformed { key, value, expected } => {
                write!(f, "option '{key}': expected {expected}, found '{value}'")
            }
            Self::Invalid { key, problem } => write!(f, "option '{key}': {problem}"),
            Self::File(problem) => write!(f, "configuration file: {problem}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::new(ErrorKind::Config, error.to_string()).caused_by(error)
    }
}

impl Config {
    /// Sets an option from text, unless its value comes from an origin that overrides this one.
    ///
    /// # Errors
    /// There is no such key, or the value is not of its type; also where the value would be ignored.
    pub fn set(&mut self, key: &str, value: &str, origin: Origin) -> Result<(), ConfigError> {
        if let Some(own) = strategy_option(key) {
            // What they mean only the strategy knows, which refuses what it doesn't when the job starts.
            let known = self.strategies.get(own);
            if known.is_none_or(|(_, by)| *by <= origin) {
                self.strategies.insert(own.to_owned(), (value.to_owned(), origin));
            }
            return Ok(());
        }
        let Some(index) = Self::OPTIONS.iter().position(|option| option.key == key) else {
            return Err(ConfigError::UnknownKey { key: key.to_owned(), nearest: nearest(key) });
        };
        let option = &Self::OPTIONS[index];
        let malformed = |expected| ConfigError::Malformed {
            key: option.key,
            value: value.to_owned(),
            expected,
        };
        let overridden = self.origins.iter().any(|&(of, by)| of == index && by > origin);
        if overridden {
            return (option.parse)(&mut Self::default(), value).map_err(malformed);
        }
        (option.parse)(self, value).map_err(malformed)?;
        self.origins.retain(|&(of, _)| of != index);
        self.origins.push((index, origin));
        Ok(())
    }

    /// Sets the options that variables of an environment name: `TIDEGATE_CHECKPOINT_INTERVAL` is `checkpoint.interval`.
    /// Pass [`std::env::vars`].
    ///
    /// # Errors
    /// A variable that begins with `TIDEGATE_` names no option, or its value is not of the option's type.
    pub fn set_environment(
        &mut self,
        vars: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        for (name, value) in vars {
            let Some(name) = name.strip_prefix("TIDEGATE_") else { continue };
            let known = Self::OPTIONS.iter().find(|option| variable(option.key) == name);
            let of_strategy = || {
                // Whose keys are not known here: two underscores are a hyphen.
                let own = name.strip_prefix(&variable(STRATEGY_PREFIX))?.to_lowercase();
                Some(format!("{STRATEGY_PREFIX}{}", own.replace("__", "-").replace('_', ".")))
            };
            let key = known
                .map(|option| option.key.to_owned())
                .or_else(of_strategy)
                .unwrap_or_else(|| name.to_lowercase().replace('_', "."));
            self.set(&key, &value, Origin::Environment)?;
        }
        Ok(())
    }

    /// Sets the options of a TOML file, whose nested tables are the parts of the keys:
    /// `[checkpoint]` with `interval = "1 s"` is `checkpoint.interval`.
    ///
    /// # Errors
    /// The text is no TOML, a key is unknown, or a value is not of its option's type.
    #[cfg(feature = "config-file")]
    pub fn set_toml(&mut self, text: &str) -> Result<(), ConfigError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            ConfigError::File(error.to_string().trim_end().to_owned())
        })?;
        self.set_toml_table("", &table)
    }

    #[cfg(feature = "config-file")]
    fn set_toml_table(&mut self, prefix: &str, table: &toml::Table) -> Result<(), ConfigError> {
        for (name, value) in table {
            let key = format!("{prefix}{name}");
            if let toml::Value::Table(inner) = value {
                self.set_toml_table(&format!("{key}."), inner)?;
                continue;
            }
            let text = toml_text(value)
                .ok_or_else(|| ConfigError::File(format!("'{key}' is a table in a list")))?;
            self.set(&key, &text, Origin::File)?;
        }
        Ok(())
    }

    /// The value of an option as text that [`Config::set`] takes; `None` if there is no such option.
    pub fn get(&self, key: &str) -> Option<String> {
        if let Some(own) = strategy_option(key) {
            return self.strategies.get(own).map(|(value, _)| value.clone());
        }
        let option = Self::OPTIONS.iter().find(|option| option.key == key)?;
        Some((option.show)(self))
    }

    /// Where the value of an option comes from; `None` if there is no such option.
    pub fn origin(&self, key: &str) -> Option<Origin> {
        if let Some(own) = strategy_option(key) {
            return self.strategies.get(own).map(|(_, origin)| *origin);
        }
        let index = Self::OPTIONS.iter().position(|option| option.key == key)?;
        let known = self.origins.iter().find(|&&(of, _)| of == index);
        Some(known.map_or_else(
            || {
                // Code may assign the field without a word.
                let show = Self::OPTIONS[index].show;
                let is_default = show(self) == show(&Self::default());
                if is_default { Origin::Default } else { Origin::Code }
            },
            |&(_, origin)| origin,
        ))
    }

    /// Writes a line for each option: key, value, and where it comes from.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn print(&self, to: &mut impl fmt::Write) -> fmt::Result {
        for option in Self::OPTIONS {
            let (value, origin) = ((option.show)(self), self.origin(option.key));
            let origin = origin.expect("the key is in the table");
            writeln!(to, "{} = {value} ({origin})", option.key)?;
        }
        for (own, (value, origin)) in &self.strategies {
            writeln!(to, "{STRATEGY_PREFIX}{own} = {value} ({origin})")?;
        }
        Ok(())
    }

    /// The options of the blocklist's strategies: keys without `cluster.resource-blocklist.strategy.`, and values.
    pub fn strategy_options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.strategies.iter().map(|(own, (value, _))| (own.as_str(), value.as_str()))
    }
}

/// What the keys of strategies' options begin with.
const STRATEGY_PREFIX: &str = "cluster.resource-blocklist.strategy.";

/// The key without the prefix, if a strategy knows what it means.
fn strategy_option(key: &str) -> Option<&str> {
    let own = key.strip_prefix(STRATEGY_PREFIX)?;
    let name = own.split('.').next().unwrap_or_default();
    matches!(name, "rules" | "health" | "plugin").then_some(own)
}

/// A TOML value as an option's text; `None` for a table.
#[cfg(feature = "config-file")]
fn toml_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(yes) => Some(yes.to_string()),
        toml::Value::Datetime(moment) => Some(moment.to_string()),
        toml::Value::Array(items) => {
            Some(items.iter().map(toml_text).collect::<Option<Vec<_>>>()?.join(","))
        }
        toml::Value::Table(_) => None,
    }
}

/// The variable of a key, without its prefix.
fn variable(key: &str) -> String {
    key.to_uppercase().replace(['.', '-'], "_")
}

/// The known key that takes the fewest edits from this one.
fn nearest(key: &str) -> &'static str {
    let options = Config::OPTIONS.iter().map(|option| option.key);
    options.min_by_key(|known| edits(key, known)).expect("there are options")
}

/// How many characters must be put in, taken out or changed to get from one text to the other.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.bytes().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_later_origin_overrides_an_earlier_one_whatever_the_order_of_calls() {
        let mut config = Config::default();
        for (value, origin) in
            [("2s", Origin::Environment), ("1 s", Origin::File), ("5s", Origin::Code)]
        {
            config.set("checkpoint.interval", value, origin).expect("the value is right");
            assert_eq!(config.checkpoint.interval, Some(Duration::from_secs(2)));
        }
        config.set("checkpoint.interval", "never", Origin::Flag).expect("the value is right");
        assert_eq!(config.checkpoint.interval, None);
        assert_eq!(config.origin("checkpoint.interval"), Some(Origin::Flag));
        assert!(config.set("checkpoint.interval", "soon", Origin::File).is_err());
    }

    #[test]
    fn an_unknown_key_is_refused_naming_the_nearest() {
        let mut config = Config::default();
        let error =
            config.set("checkpoint.intervall", "1s", Origin::Code).expect_err("no such key");
        let text = "there is no option 'checkpoint.intervall'; did you mean 'checkpoint.interval'?";
        assert_eq!(error.to_string(), text);
        assert_eq!(Error::from(error).kind(), ErrorKind::Config);
        assert_eq!((edits("", "abc"), edits("kitten", "sitting"), edits("a", "a")), (3, 3, 0));
    }

    #[test]
    fn variables_of_the_environment_name_options() {
        let mut config = Config::default();
        let var = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let vars = [var("HOME", "x"), var("TIDEGATE_BUFFER_SEGMENT_BYTES", "64 KiB")];
        config.set_environment(vars).expect("the variable names an option");
        assert_eq!(config.buffer.segment_bytes, 64 << 10);
        let unknown = config.set_environment([var("TIDEGATE_CHECKPOINT_DIRS", "x")]);
        let Err(ConfigError::UnknownKey { nearest, .. }) = unknown else {
            panic!("no option has this variable: {unknown:?}")
        };
        assert_eq!(nearest, "checkpoint.dir");
    }

    #[test]
    fn each_option_shows_a_value_that_it_takes_back() {
        let (config, mut again) = (Config::default(), Config::default());
        for option in Config::OPTIONS {
            let value = config.get(option.key).expect("the key is in the table");
            let set = again.set(option.key, &value, Origin::File);
            assert_eq!(set, Ok(()), "{}", option.key);
            assert_eq!(again.get(option.key), Some(value));
            assert!(!option.doc.is_empty());
        }
    }

    #[test]
    fn the_print_names_each_value_and_its_origin() {
        let mut config = Config::default();
        config.buffer.per_channel = 3;
        config.set("parallelism.default", "2", Origin::Flag).expect("the value is right");
        let mut text = String::new();
        config.print(&mut text).expect("a string takes all");
        assert_eq!(text.lines().count(), Config::OPTIONS.len());
        for line in [
            "buffer.per-channel = 3 (code)",
            "parallelism.default = 2 (flag)",
            "buffer.segment-bytes = 32KiB (default)",
            "checkpoint.dir = none (default)",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} in\n{text}");
        }
    }

    #[test]
    fn options_of_strategies_are_kept_for_them_and_others_below_the_prefix_are_refused() {
        let mut config = Config::default();
        let key = "cluster.resource-blocklist.strategy.rules.disk.match.class";
        config.set(key, "Io.*", Origin::Flag).expect("the strategy's business");
        config.set(key, "other", Origin::File).expect("it is overridden");
        let vars = [(
            "TIDEGATE_CLUSTER_RESOURCE_BLOCKLIST_STRATEGY_HEALTH_MIN__FAILURES".to_owned(),
            "3".to_owned(),
        )];
        config.set_environment(vars).expect("the strategy's business");
        let options: Vec<_> = config.strategy_options().collect();
        assert_eq!(options, [("health.min-failures", "3"), ("rules.disk.match.class", "Io.*")]);
        assert_eq!(config.get(key).as_deref(), Some("Io.*"));
        assert_eq!(config.origin(key), Some(Origin::Flag));
        let unknown = config.set("cluster.resource-blocklist.item.timout", "1s", Origin::Code);
        let Err(ConfigError::UnknownKey { nearest, .. }) = unknown else {
            panic!("no such option: {unknown:?}")
        };
        assert_eq!(nearest, "cluster.resource-blocklist.item.timeout");
        assert!(config.set("cluster.resource-blocklist.strategy.ruls", "x", Origin::Code).is_err());
    }

    #[test]
    fn task_managers_are_machines_with_slots() {
        let mut config = Config::default();
        config.set("taskmanager.list", "node1:2, node1:2,fe80::1:4", Origin::Code).expect("right");
        assert_eq!(config.get("taskmanager.list").as_deref(), Some("node1:2,node1:2,fe80::1:4"));
        for wrong in ["node1", "node1:0", ":2", "node1:2,", "node1:9999999"] {
            assert!(config.set("taskmanager.list", wrong, Origin::Code).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_task_managers_third_field_is_its_node_pool() {
        let mut config = Config::default();
        let list = "node1:2, node2:2:gpu,fe80::1:4:gpu";
        config.set("taskmanager.list", list, Origin::Code).expect("right");
        let pools: Vec<_> =
            config.taskmanager.list.0.iter().map(|spec| spec.pool.as_deref()).collect();
        assert_eq!(pools, [None, Some("gpu"), Some("gpu")]);
        let shown = "node1:2,node2:2:gpu,fe80::1:4:gpu";
        assert_eq!(config.get("taskmanager.list").as_deref(), Some(shown));
        for wrong in ["node1:gpu", "node1:0:gpu", "node1:x:gpu", ":2:gpu", "node1:2:gpu:"] {
            assert!(config.set("taskmanager.list", wrong, Origin::Code).is_err(), "{wrong}");
        }
        for wrong in ["node1:2:", "node1:2:-", "node1:2:99999999999"] {
            let error = config.set("taskmanager.list", wrong, Origin::Code).expect_err(wrong);
            let ConfigError::Malformed { key, value, expected } = error else { panic!("{wrong}") };
            assert_eq!((key, value.as_str()), ("taskmanager.list", wrong));
            assert!(expected.contains("a node pool"), "{wrong}: {expected}");
        }
    }

    #[test]
    fn no_two_options_have_one_key_or_variable() {
        let mut names: Vec<String> = Config::OPTIONS.iter().map(|o| variable(o.key)).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Config::OPTIONS.len());
    }

    #[cfg(feature = "config-file")]
    #[test]
    fn nested_tables_of_a_file_are_the_parts_of_keys() {
        let mut config = Config::default();
        let text = "parallelism.max = 64\n[checkpoint]\ninterval = '2 s'\nunaligned.enabled = false\n\
                    [taskmanager]\ncores = [0, 2]\n[cluster.resource-blocklist]\nmax-blocked-ratio = 0.5\n";
        config.set_toml(text).expect("the file is right");
        assert_eq!(config.parallelism.max, 64);
        assert!(!config.checkpoint.unaligned_enabled);
        assert_eq!(config.taskmanager.cores, CpuList(vec![0, 2]));
        assert_eq!(config.blocklist.max_blocked_ratio, 0.5);
        assert_eq!(config.origin("checkpoint.interval"), Some(Origin::File));
        assert!(matches!(config.set_toml("= 1"), Err(ConfigError::File(_))));
        assert!(matches!(config.set_toml("[buffer]\nx = 1"), Err(ConfigError::UnknownKey { .. })));
    }
}
