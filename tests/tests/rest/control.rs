//! The server that shares the control thread, which `rest.address` asks for.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};

use serde_json::json;
use tidegate::config::Config;
use tidegate::{ErrorKind, Job, sink, source};

use super::rig::{Client, config, endless, runs, wait_for};

fn served() -> Config {
    let mut config = config();
    config.rest.address = Some("127.0.0.1:0".into());
    config
}

#[test]
fn a_stop_is_answered_though_the_job_ends_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = served();
    config.checkpoint.dir = Some(folder.path().join("checkpoints"));
    let handle = endless(config);
    let client = Client::new(handle.rest_address().expect("it is served"));
    let body = json!({ "targetDirectory": folder.path().join("savepoints"), "drain": false });
    let answer = client.post("/jobs/endless/stop", &body);
    assert_eq!(answer.status, 202, "{}", answer.text);
    let id = answer.json()["request-id"].as_str().expect("an id").to_owned();
    let asking = std::thread::spawn(move || {
        let path = format!("/jobs/endless/savepoints/{id}");
        wait_for("the outcome", || {
            let answer = client.get(&path).json();
            (answer["status"]["id"] == "COMPLETED").then(|| answer["operation"].clone())
        })
    });
    // The server waits for who asks, although its job is over and the program is about to end.
    assert!(handle.join().expect("it stopped").state.is_over());
    let operation = asking.join().expect("it is answered");
    assert_eq!(operation["outcome"], "STOPPED", "{operation}");
}

#[test]
fn a_handle_that_is_dropped_waits_neither_for_the_job_nor_for_the_server() {
    let (open, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let (inside, entered) = mpsc::channel();
    let job = Job::with_config("stuck", served());
    let (collect, _) = sink::collect::<u64>();
    job.source("numbers", source::range(0..1))
        .map(move |n| {
            inside.send(()).expect("the test waits");
            // Until the handle is gone: who waited for the job would wait for ever.
            let _ = gate.lock().expect("nobody panics with it").recv();
            n
        })
        .sink("collect", collect);
    let handle = job.spawn().expect("the job is right");
    let address = handle.rest_address().expect("it is served");
    entered.recv().expect("a record comes");
    assert_eq!(Client::new(address).get("/health").status, 200);
    drop(handle);
    drop(open);
    wait_for("the server's end", || TcpStream::connect(address).is_err().then_some(()));
}

#[test]
fn an_address_in_use_is_told_before_anything_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mut config = config();
    config.rest.address = Some(taken.local_addr().expect("it listens").to_string());
    let (started, events) = mpsc::channel();
    let job = Job::with_config("late", config);
    let (collect, _) = sink::collect::<u64>();
    job.source("numbers", source::range(0..1))
        .inspect(move |_| started.send(()).expect("the test waits"))
        .sink("collect", collect);
    let error = job.spawn().expect_err("the address is in use");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(events.recv().is_err(), "no record was read");
}

#[test]
fn clients_that_stop_in_the_middle_hold_up_neither_checkpoints_nor_each_other() {
    let handle = endless(served());
    let client = Client::new(handle.rest_address().expect("it is served"));
    let mut slow = Vec::new();
    for n in 0..200 {
        let mut stream = TcpStream::connect(client.address).expect("the server listens");
        let begun: &[u8] = match n % 3 {
            0 => b"",
            1 => b"GET /health HTTP/1.1\r\nhost: localh",
            _ => b"POST /blocklist/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{",
        };
        stream.write_all(begun).expect("the server reads");
        slow.push(stream);
    }
    for _ in 0..3 {
        handle.checkpoint().expect("control has time for it");
        assert_eq!(client.get("/blocklist").status, 200);
    }
    runs(&handle);
    handle.cancel().expect_err("is cancelled");
}

#[test]
fn what_control_does_without_being_asked_is_done_beside_the_server() {
    // Control sleeps in the server's runtime: checkpoints by interval must wake it, with clients and without.
    let mut config = served();
    config.checkpoint.interval = Some(std::time::Duration::from_millis(5));
    let handle = endless(config);
    let client = Client::new(handle.rest_address().expect("it is served"));
    for _ in 0..3 {
        assert!(handle.wait_checkpoint(super::rig::PATIENCE), "{:?}", handle.status());
        assert_eq!(client.get("/health").status, 200);
    }
    handle.cancel().expect_err("is cancelled");
}
