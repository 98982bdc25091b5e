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
