//! A running job as the command line reaches it: its REST interface.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Request;

use crate::error::{Error, ErrorKind, Result};

/// A server that has said nothing for so long won't.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks at what takes longer than a request.
const LOOK: Duration = Duration::from_millis(50);
/// More of an answer is not read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The server of a job.
pub(super) struct Remote {
    agent: Agent,
    address: String,
    token: Option<String>,
}

impl Remote {
    /// The server that a command names.
    ///
    /// # Errors
    /// The token can't be read.
    pub(super) fn of(matches: &ArgMatches) -> Result<Self> {
        let address: &String = matches.get_one("address").expect("it has a default");
        let token = match matches.get_one::<PathBuf>("token-file") {
            None => None,
            Some(path) => {
                let read = std::fs::read_to_string(path);
                let text = read.map_err(|e| Error::io(path, "the token can't be read", e))?;
                Some(text.trim().to_owned())
            }
        };
        // The environment's proxy knows nothing of this machine's loopback.
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .proxy(None)
            .build();
        Ok(Self { agent: config.new_agent(), address: address.clone(), token })
    }

    /// What `path` says.
    ///
    /// # Errors
    /// The server can't be reached, or refuses.
    pub(super) fn get(&self, path: &str) -> Result<Value> {
        self.send("GET", path, None)
    }

    /// What comes of sending `body` to `path`.
    ///
    /// # Errors
    /// The server can't be reached, or refuses.
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.send("POST", path, Some(body))
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let url = format!("http://{}{path}", self.address);
        let mut request = Request::builder().method(method).uri(&url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let sent = match body {
            None => request.body(()).map(|request| self.agent.run(request)),
            Some(body) => request
                .header("content-type", "application/json")
                .body(body.to_string())
                .map(|request| self.agent.run(request)),
        };
        let unreachable = |error: ureq::Error| {
            Error::new(ErrorKind::Io, format!("{}: {error}", self.address)).caused_by(error)
        };
        let sent = sent.map_err(|error| {
            Error::config(format!("{}: {error}", self.address)).caused_by(error)
        })?;
        let mut response = sent.map_err(unreachable)?;
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(unreachable)?;
        let value: Option<Value> = serde_json::from_str(&text).ok();
        match value {
            Some(value) if status < 300 => Ok(value),
            value => Err(self.refused(status, value.as_ref())),
        }
    }

    fn refused(&self, status: u16, body: Option<&Value>) -> Error {
        let errors = body.and_then(|body| body["errors"].as_array());
        let errors: Vec<&str> = errors.into_iter().flatten().filter_map(Value::as_str).collect();
        let text = if errors.is_empty() {
            format!("{}: answered {status}, which no Tidegate server does here", self.address)
        } else {
            format!("{}: {} ({status})", self.address, errors.join("; "))
        };
        Error::new(ErrorKind::Io, text)
    }

    /// Asks for what takes longer than a request, and waits for its outcome.
    ///
    /// # Errors
    /// As for `post`; also if the job is over and its server gone before it told the outcome.
    pub(super) fn trigger(&self, job: &str, what: &str, body: &Value) -> Result<Value> {
        let job = escaped(job);
        let asked = self.post(&format!("/jobs/{job}/{what}"), body)?;
        let id = asked["request-id"].as_str().unwrap_or_default();
        loop {
            let told = match self.get(&format!("/jobs/{job}/savepoints/{id}")) {
                Ok(told) => told,
                // A program may end with its job, and its server with it.
                Err(_) if what == "stop" => return Ok(json!({ "outcome": "STOPPING" })),
                Err(error) => return Err(error),
            };
            if told["status"]["id"] == "COMPLETED" {
                return Ok(told["operation"].clone());
            }
            pause();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the command line is a program that waits for another"
)]
fn pause() {
    std::thread::sleep(LOOK);
}

/// A text as one part of a path.
fn escaped(text: &str) -> String {
    let mut path = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(escaped("flights-1"), "flights-1");
        assert_eq!(escaped("a/b ü?"), "a%2Fb%20%C3%BC%3F");
    }
}
