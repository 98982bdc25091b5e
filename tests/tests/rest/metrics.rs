//! `/metrics` and `/openapi.json`.

use serde_json::json;

use super::rig::{served, served_with, wait_for};

/// The value of a sample, by the start of its line.
fn value(text: &str, name: &str) -> Option<f64> {
    let of = |line: &&str| line.starts_with(name) && line[name.len()..].starts_with(['{', ' ']);
    text.lines().find(of)?.rsplit(' ').next()?.parse().ok()
}

#[test]
fn m01_the_gauges_count_what_is_blocklisted() {
    let served = served();
    let body = json!({
        "newBlocklistedTaskManagers": [{ "id": "tm9", "action": "MARK_BLOCKLISTED" }],
        "newBlocklistedNodes": [{ "id": "node1", "action": "MARK_BLOCKLISTED", "timeout": "1 h" }],
    });
    assert_eq!(served.client.post("/blocklist/add", &body).status, 200);
    let gauges = |text: &str| {
        [
            "tidegate_jobmanager_numBlocklistedNodes",
            "tidegate_jobmanager_numBlocklistedTaskManagers",
            "tidegate_jobmanager_numBlocklistedTaskMangers",
        ]
        .map(|name| value(text, name))
    };
    let text = served.client.get("/metrics").text;
    assert_eq!(gauges(&text), [Some(1.0), Some(3.0), Some(3.0)], "{text}");
    assert_eq!(value(&text, "tidegate_blocklist_items_added_total"), Some(2.0), "{text}");
    for path in ["/blocklist/nodes/node1", "/blocklist/taskmanagers/tm9"] {
        assert_eq!(served.client.send("DELETE", path, &[], b"").status, 204);
    }
    let text = served.client.get("/metrics").text;
    assert_eq!(gauges(&text), [Some(0.0); 3], "{text}");
    assert_eq!(value(&text, "tidegate_blocklist_items_removed_total"), Some(2.0), "{text}");
}

#[test]
fn m01_the_gauges_are_absent_when_the_mechanism_is_off() {
    let mut config = super::rig::config();
    config.blocklist.enabled = false;
    let served = served_with(config, |_| {});
    let text = served.client.get("/metrics").text;
    assert!(!text.contains("Blocklisted") && text.contains("tidegate_job_state"), "{text}");
}

#[test]
fn the_job_s_figures_go_up_while_it_runs() {
    let served = served();
    let read = |text: &str| value(text, "tidegate_task_records_in_total");
    let answer = served.client.get("/metrics");
    let content_type = answer.head["content-type"].to_str().expect("text");
    assert!(content_type.starts_with("application/openmetrics-text"), "{content_type}");
    assert!(answer.text.ends_with("# EOF\n"));
    let first = read(&answer.text).expect("it is there");
    wait_for("a record", || (read(&served.client.get("/metrics").text)? > first).then_some(()));
    served.handle.checkpoint().expect("a checkpoint");
    let text = served.client.get("/metrics").text;
    assert_eq!(value(&text, "tidegate_checkpoints_completed_total"), Some(1.0), "{text}");
    assert!(
        text.contains("tidegate_job_state{job_name=\"endless\",state=\"RUNNING\"} 1"),
        "{text}"
    );
    assert!(value(&text, "tidegate_checkpoint_last_size_bytes").is_some_and(|bytes| bytes > 0.0));
}

#[test]
fn the_description_is_served_and_names_each_path() {
    let served = served();
    let description = served.client.get("/openapi.json").json();
    for path in ["/blocklist", "/blocklist/add", "/jobs/{job}/savepoints", "/metrics"] {
        assert!(description["paths"][path].is_object(), "{path}");
    }
}

#[test]
fn a_slow_consumer_shows_as_back_pressure_queues_and_a_watermark_that_lags() {
    use std::time::Duration;
    use tidegate::time::Watermarks;
    use tidegate::{Job, sink, source};

    let mut config = super::rig::config();
    config.rest.address = Some("127.0.0.1:0".into());
    config.taskmanager.list = Default::default();
    config.taskmanager.slots = std::num::NonZeroU32::new(2);
    config.parallelism.default = std::num::NonZeroU32::new(1);
    let job = Job::with_config("slow", config);
    job.source("numbers", source::generate_forever(|i| i))
        .watermarks(Watermarks::ascending(), |n| n as i64 + 1)
        .key_by(|n| n % 10)
        .count("counts")
        .sink(
            "each",
            sink::for_each(|_: (u64, u64)| {
                // Slower than the source by far, whatever the machine.
                std::thread::sleep(Duration::from_micros(100));
            }),
        );
    let handle = job.spawn().expect("the job is right");
    let client = super::rig::Client::new(handle.rest_address().expect("it is served"));
    let sample = |text: &str, name: &str, vertex: &str| -> Option<f64> {
        let vertex = format!("vertex=\"{vertex}\"");
        let line = text.lines().find(|line| line.starts_with(name) && line.contains(&vertex))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    wait_for("back pressure", || {
        let text = client.get("/metrics").text;
        let waited = sample(&text, "tidegate_task_back_pressured_seconds_total", "v0")?;
        let queued = sample(&text, "tidegate_task_queued_entries", "v1")?;
        // Event times begin in 1970, so the watermark is behind by more than fifty years.
        let lag = sample(&text, "tidegate_task_watermark_lag_seconds", "v1")?;
        (waited > 0.0 && queued > 0.0 && lag > 1.5e9).then_some(())
    });
    let vertices = client.get("/jobs/slow").json()["vertices"].clone();
    assert!(vertices[0]["metrics"]["accumulated-backpressured-time"].is_u64(), "{vertices}");
    handle.cancel().expect_err("is cancelled");
}
