//! `/config`: the options, without secrets.

use serde_json::{Value, json};

use super::answer::Answer;
use super::desk::Desk;
use crate::config::Config;

/// An option whose key holds one of these words is masked, as in Flink.
const SECRET: &[&str] = &["password", "secret", "token", "key", "credential"];

/// `GET /config`.
pub(super) fn list(desk: &Desk) -> Answer {
    let options: Vec<Value> = Config::OPTIONS
        .iter()
        .map(|option| {
            let value = desk.config.get(option.key).unwrap_or_default();
            let is_secret = option.key.split(['.', '-']).any(|word| SECRET.contains(&word));
            let value = if is_secret && value != "none" { "******".to_owned() } else { value };
            let origin = desk.config.origin(option.key).map(|origin| origin.to_string());
            json!({ "key": option.key, "value": value, "origin": origin })
        })
        .collect();
    Answer::ok(json!({ "options": options }))
}
