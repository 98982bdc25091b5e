//! The options under `cluster.resource-blocklist.` and their parsing from keys and values.
//!
//! Unknown keys are refused, naming the nearest known one. Durations are written as in Flink: `500 ms`, `10 s`,
//! `5 min`, `1 h`, `1 d`; a bare number is milliseconds. Read once at start.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::caps::Caps;
use super::runner::StrategyMode;
use crate::control::evacuation::{EvacuationConfig, OnNoCapacity};

/// What all keys of the blocklist begin with.
pub const PREFIX: &str = "cluster.resource-blocklist.";

const KEYS: [&str; 9] = [
    "enabled",
    "item.timeout",
    "item.timeout-check-interval",
    "item.max-timeout",
    "max-blocked-ratio",
    "max-blocked-nodes",
    "strategy",
    "strategy.mode",
    "excluded-from-limits",
];

const EVACUATION_KEYS: [&str; 2] = ["evacuation.grace", "evacuation.on-no-capacity"];

/// All options of the blocklist.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BlocklistOptions {
    /// Whether the mechanism is on.
    pub enabled: bool,
    /// How long an item without its own end lasts; `None` for ever.
    pub item_timeout: Option<Duration>,
    /// At least how often ended items are looked for.
    pub check_interval: Duration,
    /// The longest timeout that REST requests may ask for.
    pub max_timeout: Duration,
    /// How much strategies may blocklist.
    pub caps: Caps,
    /// Ids of the strategies to run, in order.
    pub strategies: Vec<String>,
    /// Whether strategies act.
    pub mode: StrategyMode,
    /// Options of the strategies: everything under `strategy.` that is not the above, without the prefix.
    pub strategy_options: BTreeMap<String, String>,
    /// Whether slots on blocklisted task managers may be replaced beyond the cluster's slot limit.
    pub excluded_from_limits: bool,
    /// How long a graceful evacuation may take.
    pub evacuation_grace: Duration,
    /// What happens if there is no room for the evacuated.
    pub on_no_capacity: OnNoCapacity,
    /// Things that are allowed but hardly meant.
    pub warnings: Vec<String>,
}

impl Default for BlocklistOptions {
    fn default() -> Self {
        Self {
            enabled: false,
            item_timeout: Some(Duration::from_secs(600)),
            check_interval: Duration::from_secs(1),
            max_timeout: Duration::from_secs(86_400),
            caps: Caps::default(),
            strategies: vec!["noop".into()],
            mode: StrategyMode::Enforce,
            strategy_options: BTreeMap::new(),
            excluded_from_limits: false,
            evacuation_grace: Duration::from_secs(30),
            on_no_capacity: OnNoCapacity::Wait,
            warnings: Vec::new(),
        }
    }
}

/// An option is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionError {
    /// Nothing has this key.
    UnknownKey {
        /// The key.
        key: String,
        /// The known key most like it.
        nearest: String,
    },
    /// The value can't be used.
    BadValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What it should be.
        expected: String,
    },
}

impl OptionError {
    /// The key at fault.
    pub fn key(&self) -> &str {
        match self {
            Self::UnknownKey { key, .. } | Self::BadValue { key, .. } => key,
        }
    }

    /// A value that is not what was expected.
    pub fn bad(key: &str, value: &str, expected: impl Into<String>) -> Self {
        Self::BadValue { key: key.into(), value: value.into(), expected: expected.into() }
    }

    /// An unknown key, with the most similar of those known.
    pub fn unknown<'a>(key: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let nearest = known.into_iter().min_by_key(|candidate| distance(key, candidate));
        Self::UnknownKey { key: key.into(), nearest: nearest.unwrap_or_default().into() }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { key, nearest } => {
                write!(f, "unknown option '{key}'; did you mean '{nearest}'?")
            }
            Self::BadValue { key, value, expected } => {
                write!(f, "option '{key}': '{value}' is not {expected}")
            }
        }
    }
}

impl std::error::Error for OptionError {}

impl BlocklistOptions {
    /// Reads the options of the blocklist; keys without its prefix are left to others.
    ///
    /// # Errors
    /// At the first unknown key or bad value under the prefix.
    pub fn parse<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for (key, value) in pairs {
            if let Some(short) = key.strip_prefix(PREFIX) {
                options.set(key, short, value.trim())?;
            }
        }
        if options.item_timeout.is_some_and(|timeout| options.check_interval > timeout) {
            options.warnings.push(format!(
                "{PREFIX}item.timeout-check-interval is longer than {PREFIX}item.timeout"
            ));
        }
        Ok(options)
    }

    /// How evacuation goes.
    pub fn evacuation(&self) -> EvacuationConfig {
        EvacuationConfig { grace: self.evacuation_grace, on_no_capacity: self.on_no_capacity }
    }

    fn set(&mut self, key: &str, short: &str, value: &str) -> Result<(), OptionError> {
        match short {
            "enabled" => self.enabled = boolean(key, value)?,
            "excluded-from-limits" => self.excluded_from_limits = boolean(key, value)?,
            "item.timeout" if value == "infinite" => self.item_timeout = None,
            "item.timeout" => self.item_timeout = Some(positive(key, value)?),
            "item.timeout-check-interval" => self.check_interval = positive(key, value)?,
            "item.max-timeout" => self.max_timeout = positive(key, value)?,
            "max-blocked-ratio" => {
                let ratio = value.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
                let wrong = || OptionError::bad(key, value, "a number from 0 to 1");
                self.caps.max_blocked_ratio = ratio.ok_or_else(wrong)?;
            }
            "max-blocked-nodes" => {
                let nodes = value.parse().ok().filter(|nodes| *nodes > 0);
                let wrong = || OptionError::bad(key, value, "a number above 0");
                self.caps.max_blocked_nodes = nodes.ok_or_else(wrong)?;
            }
            "strategy" => {
                let list = value.strip_prefix("chain:").unwrap_or(value);
                self.strategies = list.split(',').map(|id| id.trim().to_owned()).collect();
                if self.strategies.iter().any(String::is_empty) {
                    return Err(OptionError::bad(key, value, "a strategy, or chain: and several"));
                }
            }
            "strategy.mode" => {
                self.mode = match value {
                    "enforce" => StrategyMode::Enforce,
                    "shadow" => StrategyMode::Shadow,
                    _ => return Err(OptionError::bad(key, value, "enforce or shadow")),
                }
            }
            "evacuation.grace" => self.evacuation_grace = duration(key, value)?,
            "evacuation.on-no-capacity" => {
                self.on_no_capacity = match value {
                    "wait" => OnNoCapacity::Wait,
                    "fail-over" => OnNoCapacity::FailOver,
                    _ => return Err(OptionError::bad(key, value, "wait or fail-over")),
                }
            }
            _ => {
                // `strategy.rules.…` belongs to a strategy, which refuses what it doesn't know.
                let own = short.strip_prefix("strategy.").filter(|rest| belongs_to_strategy(rest));
                let Some(own) = own else {
                    let known = KEYS.iter().chain(&EVACUATION_KEYS);
                    let known: Vec<String> =
                        known.map(|known| format!("{PREFIX}{known}")).collect();
                    return Err(OptionError::unknown(key, known.iter().map(String::as_str)));
                };
                self.strategy_options.insert(own.into(), value.into());
            }
        }
        Ok(())
    }
}

fn belongs_to_strategy(rest: &str) -> bool {
    ["rules", "health", "plugin"].into_iter().any(|id| {
        rest.strip_prefix(id).is_some_and(|more| more.is_empty() || more.starts_with('.'))
    })
}

fn boolean(key: &str, value: &str) -> Result<bool, OptionError> {
    value.parse().map_err(|_| OptionError::bad(key, value, "true or false"))
}

fn positive(key: &str, value: &str) -> Result<Duration, OptionError> {
    let duration = duration(key, value)?;
    if duration.is_zero() {
        return Err(OptionError::bad(key, value, "longer than nothing"));
    }
    Ok(duration)
}

/// Reads a duration written as in Flink.
///
/// # Errors
/// If `value` is none; the error names `key`.
pub fn duration(key: &str, value: &str) -> Result<Duration, OptionError> {
    let wrong = || OptionError::bad(key, value, "a duration such as 500 ms, 10 s, 5 min, 1 h, 1 d");
    let digits = value.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = value[..value.len() - digits.len()].parse().map_err(|_| wrong())?;
    let millis: u64 = match digits.trim() {
        "" | "ms" | "milli" | "millis" => 1,
        "s" | "sec" | "secs" => 1000,
        "m" | "min" | "mins" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(wrong)
}

/// How many characters must be changed, added or taken away to make one text of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<BlocklistOptions, OptionError> {
        let full: Vec<_> = pairs.iter().map(|(k, v)| (format!("{PREFIX}{k}"), *v)).collect();
        BlocklistOptions::parse(full.iter().map(|(k, v)| (k.as_str(), *v)))
    }

    #[test]
    fn defaults_are_off_ten_minutes_one_second() {
        let options = parse(&[]).expect("nothing is wrong");
        assert!(!options.enabled);
        assert_eq!(options.item_timeout, Some(Duration::from_secs(600)));
        assert_eq!(options.check_interval, Duration::from_secs(1));
        assert_eq!(options, BlocklistOptions::default());
    }

    #[test]
    fn every_option_is_read() {
        let options = parse(&[
            ("enabled", "true"),
            ("item.timeout", "infinite"),
            ("item.timeout-check-interval", "500 ms"),
            ("item.max-timeout", "2d"),
            ("max-blocked-ratio", "0.5"),
            ("max-blocked-nodes", "3"),
            ("strategy", "chain:health, rules"),
            ("strategy.mode", "shadow"),
            ("strategy.rules", "disk"),
            ("strategy.rules.disk.target", "NODE"),
            ("evacuation.grace", "1 min"),
            ("evacuation.on-no-capacity", "fail-over"),
            ("excluded-from-limits", "true"),
        ])
        .expect("nothing is wrong");
        assert!(options.enabled && options.item_timeout.is_none() && options.excluded_from_limits);
        assert_eq!(options.check_interval, Duration::from_millis(500));
        assert_eq!(options.max_timeout, Duration::from_secs(172_800));
        assert_eq!((options.caps.max_blocked_ratio, options.caps.max_blocked_nodes), (0.5, 3));
        assert_eq!(options.strategies, ["health", "rules"]);
        assert_eq!(options.mode, StrategyMode::Shadow);
        assert_eq!(options.strategy_options.len(), 2);
        assert_eq!(options.evacuation().grace, Duration::from_secs(60));
        assert_eq!(options.evacuation().on_no_capacity, OnNoCapacity::FailOver);
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        for (wrong, right) in [
            ("enable", "enabled"),
            ("item.timout", "item.timeout"),
            ("timeout-check-interval", "item.timeout-check-interval"),
            ("strategy.moode", "strategy.mode"),
        ] {
            let error = parse(&[(wrong, "x")]).expect_err("it is unknown");
            let expected = OptionError::UnknownKey {
                key: format!("{PREFIX}{wrong}"),
                nearest: format!("{PREFIX}{right}"),
            };
            assert_eq!(error, expected);
        }
        assert!(BlocklistOptions::parse([("other.key", "x")]).is_ok(), "not ours");
    }

    #[test]
    fn bad_values_name_their_key() {
        for (key, value) in [
            ("enabled", "yes"),
            ("item.timeout", "0"),
            ("item.timeout", "-1 s"),
            ("item.timeout", "10 parsecs"),
            ("item.timeout", "99999999999999999999 d"),
            ("item.timeout-check-interval", ""),
            ("max-blocked-ratio", "1.5"),
            ("max-blocked-ratio", "NaN"),
            ("max-blocked-nodes", "0"),
            ("strategy", "a,,b"),
            ("strategy.mode", "dry"),
        ] {
            let error = parse(&[(key, value)]).expect_err(value);
            assert_eq!(error.key(), format!("{PREFIX}{key}"), "{value}");
        }
    }

    #[test]
    fn a_check_interval_longer_than_the_timeout_is_warned_of() {
        let options = parse(&[("item.timeout", "10"), ("item.timeout-check-interval", "1 h")]);
        assert_eq!(options.expect("it is allowed").warnings.len(), 1);
    }
}
