//! A served job, and clients: one that speaks HTTP as it should, and one that sends any bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate::config::{Config, Origin};
use tidegate::rest::{AuditSink, RestOptions, RestServer};
use tidegate::source::Source;
use tidegate::{Job, JobHandle, JobState, sink, source};
use ureq::Agent;
use ureq::http::{Request, Response};

/// Longer than anything takes; who waits so long has found a mistake.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A served job that goes on for ever.
pub(crate) struct Served {
    pub(crate) client: Client,
    pub(crate) server: RestServer,
    pub(crate) audit: Arc<Mutex<Vec<Value>>>,
    pub(crate) handle: JobHandle,
    pub(crate) folder: tempfile::TempDir,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) head: ureq::http::HeaderMap,
    pub(crate) text: String,
}

impl Answered {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The errors, in one text.
    pub(crate) fn errors(&self) -> String {
        self.json()["errors"].to_string()
    }
}

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Client {
    agent: Agent,
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .proxy(None)
            .build();
        Self { agent: config.new_agent(), address, token: None }
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answered {
        // A connection that was kept may just have been closed for another; what changes nothing is asked again.
        let mut tries = if method == "GET" { 3 } else { 1 };
        let response: Response<ureq::Body> = loop {
            let mut request =
                Request::builder().method(method).uri(format!("http://{}{path}", self.address));
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some(token) = &self.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let sent = if body.is_empty() {
                self.agent.run(request.body(()).expect("a request"))
            } else {
                self.agent.run(request.body(body).expect("a request"))
            };
            tries -= 1;
            match sent {
                Ok(response) => break response,
                Err(error) => assert!(tries > 0, "the server answers: {error}"),
            }
        };
        let (head, mut body) = response.into_parts();
        let text = body.read_to_string().expect("the body is text");
        Answered { status: head.status.as_u16(), head: head.headers, text }
    }

    pub(crate) fn get(&self, path: &str) -> Answered {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answered {
        let json = [("content-type", "application/json")];
        self.send("POST", path, &json, body.to_string().as_bytes())
    }

    /// Sends these bytes and reads what comes until the connection ends: the status, and all of it.
    pub(crate) fn raw(&self, bytes: &[u8]) -> (u16, String) {
        raw(self.address, bytes)
    }
}

/// Sends these bytes and reads what comes until the connection ends.
pub(crate) fn raw(address: SocketAddr, bytes: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has timeouts");
    // The server may have answered, and closed, before it was told all.
    let _ = stream.write_all(bytes);
    let mut text = Vec::new();
    let read = stream.read_to_end(&mut text);
    if let Err(error) = read {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(0), text)
}

/// The options of a job with the blocklist on, on three task managers on two nodes.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    for (key, value) in [
        ("checkpoint.interval", "1 h"),
        ("cluster.resource-blocklist.enabled", "true"),
        ("cluster.resource-blocklist.max-blocked-ratio", "1"),
        ("parallelism.default", "2"),
        ("taskmanager.list", "node1:1,node1:1,node2:2"),
    ] {
        config.set(key, value, Origin::Code).expect("the value is right");
    }
    config
}

/// A job that goes on until it is stopped, keeping a number for each of some keys.
pub(crate) fn endless(config: Config) -> JobHandle {
    let job = Job::with_config("endless", config);
    let (collect, _) = sink::collect::<(u64, u64)>();
    job.source("numbers", source::generate_forever(|i| i).rate(1000))
        .key_by(|n| n % 100)
        .count("counts")
        .filter(|(_, count)| count == 0)
        .sink("collect", collect);
    let handle = job.spawn().expect("the job is right");
    runs(&handle);
    handle
}

/// Waits until a job runs.
pub(crate) fn runs(handle: &JobHandle) {
    let (mut seen, begun) = (0, Instant::now());
    while handle.state() != JobState::Running {
        assert!(begun.elapsed() < PATIENCE, "{:?}", handle.status());
        seen = handle.wait_change(seen, Duration::from_secs(1));
    }
}

/// Waits for what a look finds.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// A served job, as its options say.
pub(crate) fn served_with(mut config: Config, change: impl FnOnce(&mut RestOptions)) -> Served {
    let folder = tempfile::tempdir().expect("a folder");
    config.checkpoint.dir = Some(folder.path().join("checkpoints"));
    let handle = endless(config);
    let audit: Arc<Mutex<Vec<Value>>> = Arc::default();
    let lines = audit.clone();
    let mut options = RestOptions::default();
    options.audit = AuditSink::Callback(Arc::new(move |line| {
        let line = serde_json::from_str(line).expect("a line is JSON");
        lines.lock().expect("nobody panics with it").push(line);
    }));
    change(&mut options);
    let server = handle.serve(options).expect("a port is free");
    Served { client: Client::new(server.address()), server, audit, handle, folder }
}

/// A served job.
pub(crate) fn served() -> Served {
    served_with(config(), |_| {})
}

/// The committed lines of an output folder.
pub(crate) fn lines(folder: &std::path::Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder).expect("there is an output") {
        let path = entry.expect("it can be listed").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("part-")) {
            let text = std::fs::read_to_string(&path).expect("it is text");
            lines.extend(text.lines().map(str::to_owned));
        }
    }
    lines
}
