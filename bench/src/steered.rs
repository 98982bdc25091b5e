//! What it costs to have a job's blocklist on and in use: W2 with its REST server, which is called at a rate in every other
//! window of its time, and W2 without either, taking turns. The client is a thread of the same process, and its time on the CPUs
//! counts too.

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
use crate::windows::{Sorted, end, rates, shares};

/// The command.
pub const COMMAND: Command = Command {
    name: "steered",
    about: "w2 with a blocklist, under REST calls and not, and without one, taking turns",
    options: &[
        opt("seconds", "N", "so long is each run; 10 if not given"),
        opt("calls", "N", "so many calls a second; 200 if not given"),
        opt("rounds", "N", "so many pairs of runs; 5 if not given"),
        opt("wakes-only", "0|1", "the client wakes at that rate and makes no call; 0 if not given"),
        WORKERS,
    ],
};

/// How long calls are made, and how long none are. What the machine does besides changes more slowly than that, as a rule.
const WINDOW: Duration = Duration::from_millis(250);
/// One in so many answers is waited for. (No multiple of three, the number of kinds of calls.)
const TIMED: u64 = 16;
/// More than a run takes.
const EVENTS: u64 = 1 << 40;

/// Runs the command.
///
/// # Errors
/// What is wrong with an option, or why a job or a call failed.
pub fn steered(mut args: Args) -> Result<(), Failure> {
    let seconds = args.number("seconds", 10)?;
    if !(1..=3600).contains(&seconds) {
        return Err(Failure::Usage("--seconds: from 1 to 3600".to_owned()));
    }
    let calls = args.number("calls", 200)?;
    if !(1..=100_000).contains(&calls) {
        return Err(Failure::Usage("--calls: from 1 to 100000".to_owned()));
    }
    let pause = Duration::from_secs(1) / u32::try_from(calls).expect("at most 100,000");
    let rounds = args.number("rounds", 5)?;
    let wakes_only = args.number("wakes-only", 0)? != 0;
    args.default("checkpoint.interval", "never");
    let mut with = args.config.clone();
    with.blocklist.enabled = true;
    with.rest.address = Some("127.0.0.1:0".to_owned());
    let (mut called, mut quiet, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let steered = || run(with.clone(), seconds, Some((pause, wakes_only)));
        // Each is as often the first of its pair as the second.
        let (on, off) = if round % 2 == 0 {
            let on = steered()?;
            (on, run(args.config.clone(), seconds, None)?)
        } else {
            let off = run(args.config.clone(), seconds, None)?;
            (steered()?, off)
        };
        called.extend(shares(&on.rates));
        let of_quiet = on.rates.chunks_exact(4).flat_map(|rate| [rate[0], rate[3]]);
        let of_quiet = of_quiet.collect::<Sorted>().median();
        let off = off.rates.into_iter().collect::<Sorted>().median();
        quiet.extend(of_quiet.zip(off).map(|(on, off)| on / off));
        times.extend(on.times);
    }
    let (called, quiet): (Sorted, Sorted) =
        (called.into_iter().collect(), quiet.into_iter().collect());
    let times: Quantiles = times.into_iter().collect();
    let line = Line::new()
        .text("peer", "tidegate")
        .text("workload", COMMAND.name)
        .text(
            "params",
            &format!(
                "workers={} calls_per_s={calls} wakes_only={}",
                args.workers(),
                u8::from(wakes_only)
            ),
        )
        .raw("seconds", seconds)
        .raw("rounds", quiet.count())
        .raw("windows", called.count() * 4)
        .decimals("called_to_quiet_low", called.bound(-1.0), 3)
        .decimals("called_to_quiet", called.median(), 3)
        .decimals("called_to_quiet_high", called.bound(1.0), 3)
        .decimals("quiet_to_off", quiet.median(), 3)
        .raw("calls_timed", times.count())
        .decimals("call_ms_median", times.millis(0.5), 3)
        .decimals("call_ms_p99", times.millis(0.99), 3);
    println!("{}", line.end());
    Ok(())
}

/// What was seen of one run.
struct Seen {
    /// Records a second in each window.
    rates: Vec<f64>,
    /// How long each call took.
    times: Vec<Duration>,
}

/// Runs W2 for so many seconds; if a client is given, with a call every so often in two of four windows, or with its waking only.
fn run(config: Config, seconds: u64, client: Option<(Duration, bool)>) -> Result<Seen, Failure> {
    let job = Job::with_config(COMMAND.name, config);
    let _folded = w2::write_down(&job, EVENTS, w2::KEYS, &Span::default());
    let handle = job.spawn()?;
    let (tell, told) = mpsc::channel();
    let client = match (client, handle.rest_address()) {
        (Some((pause, wakes_only)), Some(address)) => {
            Some(thread::spawn(move || call_as_told(address, pause, wakes_only, &told)))
        }
        _ => None,
    };
    let rates = rates(&handle, seconds, WINDOW, |calls| {
        let _ = tell.send(calls);
        Ok(())
    })?;
    drop(tell);
    let times = match client.map(thread::JoinHandle::join) {
        Some(Ok(times)) => times,
        Some(Err(_)) => return Err(Failure::Other("the client panicked".to_owned())),
        None => Ok(Vec::new()),
    };
    end(handle)?;
    let times = times.map_err(|e| Failure::Other(format!("a call failed: {e}")))?;
    Ok(Seen { rates, times })
}

/// Blocks a task manager that isn't there, reads the list and removes it again, while told to, until nobody tells any more.
///
/// An answer is read when the next call is due, so that a call wakes the client once: what a client elsewhere would not take from
/// the workers, this one takes as little of as it can. One answer in [`TIMED`] is waited for, and how long that took is returned.
fn call_as_told(
    address: SocketAddr,
    pause: Duration,
    wakes_only: bool,
    told: &Receiver<bool>,
) -> std::io::Result<Vec<Duration>> {
    let mut stream = BufReader::new(TcpStream::connect(address)?);
    stream.get_ref().set_nodelay(true)?;
    let (mut number, mut times, mut due) = (0, Vec::new(), None);
    let mut owed = false;
    loop {
        let heard = match due {
            Some(due) => told.recv_timeout(due - Instant::now()),
            None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match heard {
            Ok(true) => due = due.or(Some(Instant::now())),
            Ok(false) => due = None,
            Err(RecvTimeoutError::Disconnected) => {
                if owed {
                    answer(&mut stream)?;
                }
                return Ok(times);
            }
            Err(RecvTimeoutError::Timeout) => {
                due = due.map(|due| due + pause);
                if wakes_only {
                    continue;
                }
                if owed {
                    answer(&mut stream)?;
                }
                let asked = Instant::now();
                stream.get_mut().write_all(request(number).as_bytes())?;
                owed = number % TIMED != 0;
                if !owed {
                    answer(&mut stream)?;
                    times.push(asked.elapsed());
                }
                number += 1;
            }
        }
    }
}

/// The call of this number.
fn request(number: u64) -> String {
    let id = format!("absent-{}", number / 3);
    let (line, body) = match number % 3 {
        0 => {
            let item = format!(r#"{{"id":"{id}","action":"MARK_BLOCKLISTED","timeout":"1 min"}}"#);
            ("POST /blocklist/add", format!(r#"{{"newBlocklistedTaskManagers":[{item}]}}"#))
        }
        1 => ("GET /blocklist", String::new()),
        _ => {
            let ids = format!(r#"[{{"id":"{id}"}}]"#);
            ("POST /blocklist/remove", format!(r#"{{"blocklistedTaskManagersToRemove":{ids}}}"#))
        }
    };
    format!(
        "{line} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Reads one answer.
///
/// # Errors
/// `InvalidData` if it is no answer, `Other` if it is another status than 200.
fn answer(stream: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    let bad = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let (mut status, mut length) = (None, 0);
    let mut header = String::new();
    loop {
        header.clear();
        stream.read_line(&mut header)?;
        let line = header.trim_end();
        if line.is_empty() {
            break;
        }
        if status.is_none() {
            let code: Option<u16> = line.split(' ').nth(1).and_then(|code| code.parse().ok());
            status = Some(code.ok_or_else(bad)?);
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(|_| bad())?;
        }
    }
    std::io::copy(&mut stream.take(length), &mut std::io::sink())?;
    match status.ok_or_else(bad)? {
        200 => Ok(()),
        status => Err(std::io::Error::other(format!("a call was answered with {status}"))),
    }
}
