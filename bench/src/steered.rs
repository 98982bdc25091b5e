//! What it costs to have a job's blocklist on and in use: W2 with it, its REST server and calls at a rate, and W2 without
//! any, taking turns. The client is a thread of the same process, and its time on the CPUs counts too.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use tidegate::{Config, Job};

use crate::args::{Args, Command, opt};
use crate::clocked::Span;
use crate::failure::Failure;
use crate::json::Line;
use crate::quantile::Quantiles;
use crate::throughput::WORKERS;
use crate::w2;

/// The command.
pub const COMMAND: Command = Command {
    name: "steered",
    about: "w2 with a blocklist under REST calls, and without one, taking turns",
    options: &[
        opt("events", "N", "100,000,000 if not given"),
        opt("calls", "N", "so many calls a second; 200 if not given"),
        opt("rounds", "N", "so many pairs of runs after one to warm up; 5 if not given"),
        WORKERS,
    ],
};

/// Runs the command.
///
/// # Errors
/// What is wrong with an option, or why a job or a call failed.
pub fn steered(mut args: Args) -> Result<(), Failure> {
    let events = args.number("events", 100_000_000)?;
    let calls = args.number("calls", 200)?;
    if !(1..=100_000).contains(&calls) {
        return Err(Failure::Usage("--calls: from 1 to 100000".to_owned()));
    }
    let rounds = args.number("rounds", 5)?;
    args.default("checkpoint.interval", "never");
    let mut with = args.config.clone();
    with.blocklist.enabled = true;
    with.rest.address = Some("127.0.0.1:0".to_owned());
    let (mut shares, mut times) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let alone = w2_seconds(args.config.clone(), events, None)?.0;
        let pause = Duration::from_secs(1) / u32::try_from(calls).expect("at most 100,000");
        let (steered, called) = w2_seconds(with.clone(), events, Some(pause))?;
        if round > 0 {
            shares.push(alone / steered);
            times.extend(called);
        }
    }
    shares.sort_by(f64::total_cmp);
    let times: Quantiles = times.into_iter().collect();
    let line = Line::new()
        .text("peer", "tidegate")
        .text("workload", COMMAND.name)
        .text("params", &format!("workers={} calls_per_s={calls}", args.workers()))
        .raw("events", events)
        .raw("rounds", shares.len())
        .decimals("to_alone_least", shares.first().copied(), 3)
        .decimals("to_alone_median", shares.get(shares.len() / 2).copied(), 3)
        .decimals("to_alone_greatest", shares.last().copied(), 3)
        .raw("calls", times.count())
        .decimals("call_ms_median", times.millis(0.5), 3)
        .decimals("call_ms_p99", times.millis(0.99), 3);
    println!("{}", line.end());
    Ok(())
}

/// Runs W2, with a call every `pause` if one is given. How long it took, and each call.
fn w2_seconds(
    config: Config,
    events: u64,
    pause: Option<Duration>,
) -> Result<(f64, Vec<Duration>), Failure> {
    let span = Span::default();
    let job = Job::with_config(COMMAND.name, config);
    let folded = w2::write_down(&job, events, w2::KEYS, &span);
    let handle = job.spawn()?;
    // Closed when the job is over.
    let (running, over) = mpsc::channel();
    let client = match (pause, handle.rest_address()) {
        (Some(pause), Some(address)) => {
            Some(thread::spawn(move || call_until(address, pause, &over)))
        }
        _ => None,
    };
    let joined = handle.join();
    drop(running);
    let called = match client.map(thread::JoinHandle::join) {
        Some(Ok(called)) => called,
        Some(Err(_)) => return Err(Failure::Other("the client panicked".to_owned())),
        None => Ok(Vec::new()),
    };
    joined?;
    drop(folded.take());
    let called = called.map_err(|e| Failure::Other(format!("a call failed: {e}")))?;
    Ok((span.seconds(), called))
}

/// Blocks a task manager that isn't there, reads the list and removes it again, until the job is over.
fn call_until(
    address: SocketAddr,
    pause: Duration,
    over: &Receiver<()>,
) -> std::io::Result<Vec<Duration>> {
    let mut stream = BufReader::new(TcpStream::connect(address)?);
    stream.get_ref().set_nodelay(true)?;
    let (begun, mut times) = (Instant::now(), Vec::new());
    for number in 0.. {
        let due = begun + pause * number;
        let wait = due.saturating_duration_since(Instant::now());
        if over.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            break;
        }
        let id = format!("absent-{}", number / 3);
        let (line, body) = match number % 3 {
            0 => {
                let item =
                    format!(r#"{{"id":"{id}","action":"MARK_BLOCKLISTED","timeout":"1 min"}}"#);
                ("POST /blocklist/add", format!(r#"{{"newBlocklistedTaskManagers":[{item}]}}"#))
            }
            1 => ("GET /blocklist", String::new()),
            _ => {
                let ids = format!(r#"[{{"id":"{id}"}}]"#);
                (
                    "POST /blocklist/remove",
                    format!(r#"{{"blocklistedTaskManagersToRemove":{ids}}}"#),
                )
            }
        };
        let asked = Instant::now();
        match call(&mut stream, line, &body) {
            Ok(200) => times.push(asked.elapsed()),
            // The job has just ended.
            Ok(503) => break,
            Ok(status) => return Err(std::io::Error::other(format!("{line}: status {status}"))),
            Err(error) => {
                // The server ends with the job, which is told a little later.
                let told = over.recv_timeout(Duration::from_secs(10));
                return if told == Err(RecvTimeoutError::Timeout) { Err(error) } else { Ok(times) };
            }
        }
    }
    Ok(times)
}

/// One call over a connection that is kept. The answer's status.
fn call(stream: &mut BufReader<TcpStream>, line: &str, body: &str) -> std::io::Result<u16> {
    let request = format!(
        "{line} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(request.as_bytes())?;
    let bad = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let (mut status, mut length) = (None, 0);
    loop {
        let mut header = String::new();
        stream.read_line(&mut header)?;
        let header = header.trim_end().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if status.is_none() {
            let code = header.split(' ').nth(1).and_then(|code| code.parse().ok());
            status = Some(code.ok_or_else(bad)?);
        } else if let Some(bytes) = header.strip_prefix("content-length:") {
            length = bytes.trim().parse().map_err(|_| bad())?;
        }
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    status.ok_or_else(bad)
}
