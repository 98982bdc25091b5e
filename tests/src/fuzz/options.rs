//! Options: from pairs, the environment, a file, and those of the blocklist.

use std::collections::BTreeMap;

use tidegate::Config;
use tidegate::config::Origin;
use tidegate::control::blocklist::options::{BlocklistOptions, duration};
use tidegate::control::blocklist::pattern::RegexLite;
use tidegate::control::blocklist::rules::RulesStrategy;

use super::{Seed, accept};

/// The `key=value` lines of a text.
fn pairs(bytes: &[u8]) -> Option<Vec<(String, String)>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let pair = |line: &str| {
        let (key, value) = line.split_once('=')?;
        Some((key.to_owned(), value.to_owned()))
    };
    Some(text.lines().filter_map(pair).collect())
}

/// A value that is taken is shown as a text that is taken again, and means the same.
pub(super) fn config(bytes: &[u8]) {
    let Some(pairs) = pairs(bytes) else { return };
    let mut config = Config::default();
    for (key, value) in &pairs {
        match config.set(key, value, Origin::Code) {
            Ok(()) => {
                accept();
                let shown = config.get(key).expect("it was just set");
                let mut again = Config::default();
                again.set(key, &shown, Origin::Code).expect("what is shown is taken");
                assert_eq!(again.get(key), Some(shown), "{key}={value}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let variables = pairs.iter().map(|(key, value)| (format!("TIDEGATE_{key}"), value.clone()));
    let _ = Config::default().set_environment(variables);
    let _ = config.validate();
    let mut printed = String::new();
    config.print(&mut printed).expect("into memory");
}

pub(super) fn config_seeds() -> Vec<Seed> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("interval", text("checkpoint.interval=1 s\ncheckpoint.timeout=10 min")),
        ("sizes", text("buffer.segment-bytes=32 KiB\ncheckpoint.unaligned.enabled=true")),
        ("environment", text("CHECKPOINT_INTERVAL=500 ms\nNO_SUCH=1")),
        ("unknown", text("checkpoint.intervall=1 s")),
    ]
}

/// A file sets what its keys one by one would.
pub(super) fn toml(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Config::default().set_toml(text) {
        Ok(()) => accept(),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(super) fn toml_seeds() -> Vec<Seed> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("nested", text("[checkpoint]\ninterval = \"1 s\"\nunaligned.enabled = true\n")),
        ("dotted", text("checkpoint.num-retained = 3\n")),
        ("list", text("[[checkpoint]]\ninterval = 1\n")),
        ("deep", text(&format!("a = {}1{}", "[".repeat(40), "]".repeat(40)))),
    ]
}

const PREFIX: &str = "cluster.resource-blocklist.";

pub(super) fn blocklist(bytes: &[u8]) {
    let Some(pairs) = pairs(bytes) else { return };
    let prefixed: Vec<_> =
        pairs.iter().map(|(key, value)| (format!("{PREFIX}{key}"), value.clone())).collect();
    let borrowed = prefixed.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    match BlocklistOptions::parse(borrowed) {
        Ok(_) => accept(),
        Err(error) => assert!(!error.key().is_empty() && !error.to_string().is_empty()),
    }
    for (_, value) in &pairs {
        if let Ok(read) = duration("key", value) {
            let again = duration("key", &format!("{} ms", read.as_millis()));
            assert_eq!(again.ok(), Some(read), "{value:?}");
        }
    }
}

pub(super) fn blocklist_seeds() -> Vec<Seed> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("on", text("enabled=true\nitem.timeout=1 h\nitem.timeout-check-interval=10 s")),
        ("strategy", text("strategy=rules\nstrategy.rules=oom")),
        ("large", text("item.timeout=18446744073709551615 d")),
    ]
}

/// Rules are read, or refused by a key.
pub(super) fn rules(bytes: &[u8]) {
    let Some(pairs) = pairs(bytes) else { return };
    let options: BTreeMap<String, String> = pairs.into_iter().collect();
    match RulesStrategy::parse(&options, &RegexLite) {
        Ok(_) => accept(),
        Err(error) => assert!(!error.key().is_empty() && !error.to_string().is_empty()),
    }
}

pub(super) fn rule_seeds() -> Vec<Seed> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        (
            "oom",
            text(
                "rules=oom\nrules.oom.class=.*OutOfMemory.*\nrules.oom.target=node\n\
                 rules.oom.action=MARK_BLOCKLISTED\nrules.oom.threshold=3\nrules.oom.window=10 min",
            ),
        ),
        ("nested", text("rules=a\nrules.a.message=((((a+)+)+)+)+$")),
        ("unknown", text("rules=a\nrules.b.class=x")),
    ]
}
