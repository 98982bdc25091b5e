//! Jobs, checkpoints, savepoints and stops through the interface.

use std::path::Path;

use serde_json::{Value, json};
use tidegate::rest::RestOptions;
use tidegate::{Job, JobState, sink, source};

use super::rig::{Client, Served, config, raw, runs, served, wait_for};

/// Waits for the outcome of what was asked for.
fn outcome(client: &Client, asked: &super::rig::Answered) -> Value {
    assert_eq!(asked.status, 202, "{}", asked.text);
    let id = asked.json()["request-id"].as_str().expect("an id").to_owned();
    wait_for("the outcome", || {
        let told = client.get(&format!("/jobs/endless/savepoints/{id}")).json();
        (told["status"]["id"] == "COMPLETED").then(|| told["operation"].clone())
    })
}

#[test]
fn a_job_is_found_by_id_and_name() {
    let served = served();
    let list = served.client.get("/jobs").json();
    assert_eq!((&list["total"], &list["jobs"][0]["status"]), (&json!(1), &json!("RUNNING")));
    let id = list["jobs"][0]["id"].as_str().expect("an id");
    for path in [format!("/jobs/{id}"), "/jobs/endless".to_owned()] {
        let job = served.client.get(&path).json();
        assert_eq!((&job["name"], &job["state"]), (&json!("endless"), &json!("RUNNING")));
        assert_eq!(job["vertices"].as_array().map(Vec::len), Some(2), "{job}");
        assert_eq!(job["vertices"][1]["parallelism"], 2);
    }
    let all = served.client.get("/jobs/overview").json();
    let job = served.client.get("/jobs/endless").json();
    let until = job["now"].as_i64().expect("a time");
    for told in [&all["jobs"][0], &job] {
        let time = |name: &str| told[name].as_i64().expect("a time");
        let begun = time("start-time");
        assert!(begun > 0 && (begun..=until).contains(&(begun + time("duration"))), "{told}");
        assert_eq!(time("end-time"), -1, "{told}");
    }
    let page = served.client.get("/jobs/endless?offset=1&limit=1").json();
    assert_eq!((&page["vertices"][0]["id"], &page["total"]), (&json!("v1"), &json!(2)));
    assert_eq!(served.client.get("/jobs/overview").json()["jobs"][0]["tasks"]["total"], 4);
    assert!(
        served.client.get("/jobs/endless/plan").json()["dot"]
            .as_str()
            .is_some_and(|dot| dot.contains("->"))
    );
    for path in [
        "/jobs/other",
        "/jobs/other/checkpoints",
        "/jobs/..%2fconfig",
        "/jobs/endless/savepoints/1",
    ] {
        let status = served.client.get(path).status;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
}

#[test]
fn checkpoints_are_taken_counted_and_listed_newest_first() {
    let served = served();
    for number in 1..=3 {
        let asked = served.client.send("POST", "/jobs/endless/checkpoints", &[], b"");
        let told = outcome(&served.client, &asked);
        assert_eq!(told["outcome"], "COMPLETED", "{number}: {told}");
    }
    let list = served.client.get("/jobs/endless/checkpoints").json();
    assert_eq!(list["counts"]["completed"], 3, "{list}");
    let ids: Vec<_> = list["history"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|done| done["id"].as_u64())
        .collect();
    assert!(ids.len() == 3 && ids.is_sorted_by(|a, b| a > b), "{ids:?}");
    assert_eq!(list["latest"]["completed"], list["history"][0]);
    let page = served.client.get("/jobs/endless/checkpoints?offset=2&limit=5").json();
    assert_eq!((&page["history"][0]["id"], &page["total"]), (&json!(ids[2]), &json!(3)));
}

#[test]
fn a_savepoint_is_taken_where_the_request_says() {
    let served = served();
    let target = served.folder.path().join("saved");
    for body in [
        json!({}),
        json!({ "target-directory": "relative" }),
        json!({ "target-directory": 1 }),
        json!({ "target-directory": target, "x": 1 }),
    ] {
        assert_eq!(served.client.post("/jobs/endless/savepoints", &body).status, 400, "{body}");
    }
    let asked =
        served.client.post("/jobs/endless/savepoints", &json!({ "target-directory": target }));
    let told = outcome(&served.client, &asked);
    assert_eq!(told["outcome"], "COMPLETED", "{told}");
    let location = Path::new(told["location"].as_str().expect("a path"));
    assert!(location.starts_with(&target) && location.join("MANIFEST").exists(), "{told}");
    assert_eq!(served.handle.state(), JobState::Running);
    let audit = served.audit.lock().expect("nobody panics with it");
    assert_eq!(
        (&audit[0]["operation"], &audit[0]["new"]["target-directory"]),
        (&json!("savepoint"), &json!(target))
    );
}

#[test]
fn a_savepoint_that_fails_says_why() {
    let served = served();
    let file = served.folder.path().join("file");
    std::fs::write(&file, "x").expect("written");
    let asked =
        served.client.post("/jobs/endless/savepoints", &json!({ "target-directory": file }));
    let told = outcome(&served.client, &asked);
    assert_eq!(told["outcome"], "FAILED");
    assert!(
        told["failure-cause"]["stack-trace"].as_str().is_some_and(|why| !why.is_empty()),
        "{told}"
    );
    assert_eq!(served.client.get("/jobs").json()["jobs"][0]["status"], "RUNNING");
}

#[test]
fn a_job_stops_with_a_savepoint_and_tells_where_to_go_on() {
    let served = served();
    let target = served.folder.path().join("saved");
    for body in [json!({ "drain": true }), json!({ "drain": 1 }), json!({ "targetDirectory": "x" })]
    {
        assert_eq!(served.client.post("/jobs/endless/stop", &body).status, 400, "{body}");
    }
    let asked = served
        .client
        .post("/jobs/endless/stop", &json!({ "targetDirectory": target, "drain": false }));
    let told = outcome(&served.client, &asked);
    assert_eq!(told["outcome"], "STOPPED", "{told}");
    assert!(Path::new(told["location"].as_str().expect("a path")).join("MANIFEST").exists());
    let Served { client, handle, server, .. } = served;
    handle.join().expect("it has stopped");
    assert_eq!(client.post("/jobs/endless/stop", &json!({})).status, 409);
    assert_eq!(client.send("PATCH", "/jobs/endless?mode=cancel", &[], b"").status, 409);
    drop(server);
}

#[test]
fn a_job_stops_with_a_last_checkpoint_or_is_cancelled() {
    let stopped = served();
    let asked = stopped.client.send("POST", "/jobs/endless/stop", &[], b"");
    assert_eq!(outcome(&stopped.client, &asked)["outcome"], "STOPPED");
    let cancelled = served();
    assert_eq!(cancelled.client.send("PATCH", "/jobs/endless", &[], b"").status, 400);
    assert_eq!(cancelled.client.send("PATCH", "/jobs/endless?mode=cancel", &[], b"").status, 202);
    wait_for("the end", || cancelled.handle.state().is_over().then_some(()));
    let audit = cancelled.audit.lock().expect("nobody panics with it");
    assert_eq!(audit[0]["operation"], "cancel");
}

#[test]
fn options_are_shown_without_secrets() {
    let mut config = config();
    config.security.key = Some("/etc/tidegate/key.pem".into());
    let served = super::rig::served_with(config, |_| {});
    let answer = served.client.get("/config");
    assert!(!answer.text.contains("key.pem"), "{}", answer.text);
    let options = answer.json();
    let of = |key: &str| {
        let all = options["options"].as_array().expect("a list");
        all.iter().find(|option| option["key"] == key).cloned().unwrap_or_default()
    };
    assert_eq!(of("security.key")["value"], "******");
    assert_eq!(of("checkpoint.interval")["value"], "1h");
    assert_eq!(of("parallelism.max")["origin"], "default");
}

#[test]
fn an_option_serves_the_job_while_it_runs() {
    let mut options = config();
    options.rest.address = Some("127.0.0.1:0".into());
    let handle = super::rig::endless(options);
    let address = handle.rest_address().expect("it is served");
    let client = Client::new(address);
    assert_eq!(client.get("/health").json()["jobState"], "RUNNING");
    assert_eq!(client.send("HEAD", "/health", &[], b"").status, 200);
    handle.cancel().expect_err("is cancelled");
    assert!(std::net::TcpStream::connect(address).is_err(), "the server ends with the handle");
    let mut wrong = config();
    wrong.rest.address = Some("nowhere".into());
    let job = Job::with_config("wrong", wrong);
    let (collect, _) = sink::collect::<u64>();
    job.source("numbers", source::range(0..1)).sink("collect", collect);
    let error = job.spawn().expect_err("the address is none");
    assert!(error.to_string().contains("rest.address"), "{error}");
}

#[test]
fn a12_a_control_thread_that_does_not_answer_is_told_of_in_time() {
    // The control of a stepped job is the caller: as long as it doesn't step, nobody answers.
    let mut config = config();
    config.taskmanager.list = Default::default();
    let job = Job::with_config("endless", config);
    let (collect, _) = sink::collect::<u64>();
    job.source("numbers", source::generate_forever(|i| i)).sink("collect", collect);
    let mut stepper = job.stepper().expect("the job is right");
    let mut options = RestOptions::default();
    options.control_timeout = std::time::Duration::from_millis(100);
    let server = stepper.serve(options).expect("a port is free");
    let client = Client::new(server.address());
    let answer = client.get("/blocklist");
    assert_eq!(answer.status, 504, "{}", answer.text);
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(client.get("/taskmanagers").status, 504);
    assert!(client.get("/metrics").text.ends_with("# EOF\n"));
    let asking = std::thread::spawn(move || client.get("/blocklist").status);
    while !asking.is_finished() {
        stepper.step().expect("the job goes on");
    }
    assert_eq!(asking.join().expect("it does not panic"), 200);
}

#[test]
fn requests_on_one_connection_are_answered_in_order() {
    let served = served();
    runs(&served.handle);
    let head = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let (status, text) = raw(served.client.address, head.as_bytes());
    assert_eq!(status, 200);
    assert!(text.contains("HTTP/1.1 404"), "{text}");
}
