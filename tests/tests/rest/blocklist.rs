//! `/blocklist` of a running job: FLIP-224's bodies, and each error of its list.

use serde_json::{Value, json};
use tidegate::config::Origin;

use super::rig::{Served, config, served, served_with};

const MARK: &str = "MARK_BLOCKLISTED";
const EVACUATE: &str = "MARK_BLOCKLISTED_AND_EVACUATE_TASKS";

fn nodes(entries: &Value) -> Value {
    json!({ "newBlocklistedNodes": entries })
}

fn count(served: &Served) -> usize {
    let list = served.client.get("/blocklist").json();
    ["blocklistedTaskManagers", "blocklistedNodes"]
        .iter()
        .map(|name| list[name].as_array().map_or(0, Vec::len))
        .sum()
}

#[test]
fn a01_an_empty_blocklist_has_both_arrays() {
    let served = served();
    let answer = served.client.get("/blocklist");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json(), json!({ "blocklistedTaskManagers": [], "blocklistedNodes": [] }));
    assert_eq!(answer.head["content-type"], "application/json");
    assert_eq!(answer.head["cache-control"], "no-store");
}

#[test]
fn a03_added_items_are_listed_with_the_node_s_task_managers_and_leave_audit_lines() {
    let served = served();
    let managers = served.client.get("/taskmanagers").json();
    let on = |node: &str| -> Vec<Value> {
        let all = managers["taskmanagers"].as_array().expect("a list").iter();
        all.filter(|tm| tm["nodeId"] == node).map(|tm| tm["id"].clone()).collect()
    };
    assert_eq!((on("node1").len(), on("node2").len()), (2, 1), "{managers}");
    let other = on("node2").remove(0);
    let body = json!({
        "newBlocklistedTaskManagers": [{ "id": other, "action": MARK }],
        "newBlocklistedNodes": [{ "id": "node1", "action": MARK, "cause": "disk" }],
    });
    let answer = served.client.post("/blocklist/add", &body);
    assert_eq!((answer.status, answer.json()), (200, json!({})));
    let list = served.client.get("/blocklist").json();
    assert_eq!(list["blocklistedTaskManagers"][0]["id"], other);
    let node = &list["blocklistedNodes"][0];
    assert_eq!(
        (&node["id"], &node["action"], &node["cause"]),
        (&json!("node1"), &json!(MARK), &json!("disk"))
    );
    assert_eq!(node["taskManagers"].as_array().map(Vec::len), Some(2));
    assert!(node["timestamp"].is_string() && node["endTimestamp"].is_string());
    let audit = served.audit.lock().expect("nobody panics with it");
    assert_eq!(audit.len(), 2);
    let line = audit.iter().find(|line| line["type"] == "NODE").expect("one is of the node");
    assert_eq!((&line["operation"], &line["principal"]), (&json!("add"), &json!("loopback")));
    assert_eq!((&line["old"], &line["new"]["action"]), (&Value::Null, &json!(MARK)));
}

#[test]
fn a04_adding_a_stronger_action_merges_with_what_is_there() {
    let served = served();
    for action in [MARK, EVACUATE, MARK] {
        let body = nodes(&json!([{ "id": "elsewhere", "action": action }]));
        assert_eq!(served.client.post("/blocklist/add", &body).status, 200);
    }
    let list = served.client.get("/blocklist").json();
    assert_eq!(list["blocklistedNodes"][0]["action"], EVACUATE);
}

#[test]
fn a05_whatever_is_wrong_with_an_entry_nothing_is_applied() {
    let served = served();
    let good = json!({ "id": "n1", "action": MARK });
    let long = "x".repeat(300);
    for bad in [
        json!({ "id": "n2", "action": "WAT" }),
        json!({ "id": "n2" }),
        json!({ "id": "", "action": MARK }),
        json!({ "id": long, "action": MARK }),
        json!({ "id": "a b", "action": MARK }),
        json!({ "id": 7, "action": MARK }),
        json!({ "id": "n1", "action": MARK }),
        json!({ "id": "n2", "action": MARK, "colour": "red" }),
        json!({ "id": "n2", "action": MARK, "timeout": 0 }),
        json!({ "id": "n2", "action": MARK, "timeout": -1 }),
        json!({ "id": "n2", "action": MARK, "timeout": "2 d" }),
        json!({ "id": "n2", "action": MARK, "endTimestamp": 1000 }),
        json!({ "id": "n2", "action": MARK, "endTimestamp": "soon" }),
        json!({ "id": "n2", "action": MARK, "cause": 1 }),
        json!("n2"),
    ] {
        let answer = served.client.post("/blocklist/add", &nodes(&json!([good, bad])));
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text);
    }
    for body in [
        json!({}),
        json!([]),
        json!(null),
        json!({ "other": [] }),
        nodes(&json!([])),
        nodes(&json!({})),
    ] {
        assert_eq!(served.client.post("/blocklist/add", &body).status, 400, "{body}");
    }
    assert_eq!(count(&served), 0);
    let answer =
        served.client.post("/blocklist/add", &nodes(&json!([{ "id": "n", "action": "WAT" }])));
    assert!(answer.errors().contains("MARK_BLOCKLISTED or MARK_BLOCKLISTED_AND_EVACUATE_TASKS"));
    assert!(served.audit.lock().expect("nobody panics with it").is_empty());
}

#[test]
fn a06_items_are_removed_all_or_none_guarded_by_their_action() {
    let served = served();
    served.client.post("/blocklist/add", &nodes(&json!([{ "id": "n1", "action": MARK }])));
    let remove = |path: &str, entries: Value| {
        served.client.post(path, &json!({ "blocklistedNodesToRemove": entries }))
    };
    let answer = remove("/blocklist/remove", json!([{ "id": "n1", "action": EVACUATE }]));
    assert_eq!(answer.status, 409);
    let answer = remove("/blocklist/remove", json!([{ "id": "n1" }, { "id": "n2" }]));
    assert!(answer.status == 404 && answer.errors().contains("n2"), "{}", answer.text);
    assert_eq!(count(&served), 1);
    let entries = json!([{ "id": "n1", "action": MARK }, { "id": "n2" }]);
    let answer = remove("/blocklist/remove?ignoreMissing=true", entries);
    assert_eq!((answer.status, answer.json(), count(&served)), (200, json!({}), 0));
}

#[test]
fn a07_switched_off_it_is_not_there_and_says_why() {
    let mut config = config();
    config.blocklist.enabled = false;
    let served = served_with(config, |_| {});
    for path in ["/blocklist", "/blocklist/"] {
        assert_eq!(served.client.get(path).status, 404);
    }
    let answer =
        served.client.post("/blocklist/add", &nodes(&json!([{ "id": "n", "action": MARK }])));
    assert!(answer.status == 404 && answer.errors().contains("cluster.resource-blocklist.enabled"));
}

#[test]
fn b21_the_caps_hold_for_each_pool_of_a_job_that_runs() {
    let mut config = config();
    for (key, value) in [
        ("taskmanager.list", "node1:1,node2:1,node3:1:gpu,node4:1:gpu"),
        ("cluster.resource-blocklist.max-blocked-ratio", "0.5"),
    ] {
        config.set(key, value, Origin::Code).expect("the value is right");
    }
    let served = served_with(config, |_| {});
    let told = served.client.get("/taskmanagers").json();
    let all = told["taskmanagers"].as_array().expect("a list").iter();
    let pools: Vec<_> = all.map(|tm| (&tm["nodeId"], &tm["nodePool"])).collect();
    let expected = [("node1", "default"), ("node2", "default"), ("node3", "gpu"), ("node4", "gpu")]
        .map(|(node, pool)| (json!(node), json!(pool)));
    assert_eq!(pools, expected.iter().map(|(node, pool)| (node, pool)).collect::<Vec<_>>());

    let add = |node: &str, query: &str| {
        let body = json!({ "newBlocklistedNodes": [{ "id": node, "action": MARK }] });
        served.client.post(&format!("/blocklist/add{query}"), &body)
    };
    assert_eq!(add("node3", "").status, 200);
    let refused = add("node4", "?dryRun=true");
    assert_eq!(refused.status, 409);
    assert!(refused.text.contains("of pool gpu"), "{}", refused.text);
    assert_eq!(add("node1", "").status, 200, "another pool");
    assert_eq!(add("node4", "?force=true").status, 200);
}

#[test]
fn a08_other_methods_are_told_what_is_allowed_and_old_names_are_gone() {
    let served = served();
    for (method, path, allow) in [
        ("DELETE", "/blocklist", "GET"),
        ("GET", "/blocklist/add", "POST"),
        ("GET", "/blocklist/nodes/n1", "PUT, DELETE"),
        ("DELETE", "/jobs", "GET"),
    ] {
        let answer = served.client.send(method, path, &[], b"");
        assert_eq!(answer.status, 405, "{method} {path}");
        assert_eq!(answer.head["allow"], allow);
    }
    assert_eq!(served.client.get("/blacklist").status, 404);
}

#[test]
fn a09_without_control_there_is_no_answer_from_an_older_state() {
    let served = served();
    let Served { client, server, handle, folder, audit: _ } = served;
    handle.cancel().expect_err("it was cancelled");
    let answer = client.get("/blocklist");
    assert_eq!(answer.status, 503, "{}", answer.text);
    assert_eq!(client.get("/jobs").json()["jobs"][0]["status"], "CANCELED");
    assert_eq!(client.get("/health").status, 200);
    drop((server, folder));
}

#[test]
fn a10_an_entry_has_a_timeout_or_an_end() {
    let served = served();
    let entry =
        json!([{ "id": "n1", "action": MARK, "timeout": "1 h", "endTimestamp": "9999999999999" }]);
    assert_eq!(served.client.post("/blocklist/add", &nodes(&entry)).status, 400);
    for end in [json!("9999999999999"), json!(9_999_999_999_999_u64)] {
        let entry = json!([{ "id": "n1", "action": MARK, "endTimestamp": end }]);
        assert_eq!(served.client.post("/blocklist/add", &nodes(&entry)).status, 200);
        let list = served.client.get("/blocklist").json();
        assert_eq!(list["blocklistedNodes"][0]["endTimestamp"], "9999999999999");
    }
}

#[test]
fn an_id_in_the_path_is_created_merged_and_deleted() {
    let served = served();
    let put = |path: &str, body: &Value| {
        let json = [("content-type", "application/json")];
        served.client.send("PUT", path, &json, body.to_string().as_bytes())
    };
    for id in ["n1", "%C3%BC", "a%3Ab", "a:b%25"] {
        let path = format!("/blocklist/nodes/{id}");
        assert_eq!(put(&path, &json!({ "action": MARK })).status, 201, "{id}");
        assert_eq!(put(&path, &json!({ "action": EVACUATE })).status, 202, "{id}");
        let answer = served.client.send("DELETE", &path, &[], b"");
        assert_eq!((answer.status, answer.text.as_str()), (204, ""), "{id}");
        assert_eq!(served.client.send("DELETE", &path, &[], b"").status, 404, "{id}");
    }
    let long = "x".repeat(300);
    for id in [&*long, "..%2fadd", "%2e%2e", "..", "a%00b", "a%20b", "%ff", "a%5cb"] {
        let status = put(&format!("/blocklist/nodes/{id}"), &json!({ "action": MARK })).status;
        assert!((400..500).contains(&status), "{id}: {status}");
    }
    assert_eq!(count(&served), 0);
}

#[test]
fn a_dry_run_tells_and_changes_nothing() {
    let served = served();
    let body =
        nodes(&json!([{ "id": "node1", "action": EVACUATE }, { "id": "n9", "action": MARK }]));
    let answer = served.client.post("/blocklist/add?dryRun=true&verbose=true", &body);
    assert_eq!(answer.status, 200);
    let told = answer.json();
    assert_eq!(told["dryRun"]["taskManagers"].as_array().map(Vec::len), Some(2), "{told}");
    assert!(told["dryRun"]["freeSlots"].is_u64(), "{told}");
    assert!(told["warnings"].to_string().contains("n9"), "{told}");
    assert_eq!(count(&served), 0);
    assert!(served.audit.lock().expect("nobody panics with it").is_empty());
}

#[test]
fn people_exceed_the_cap_only_with_force() {
    let mut config = config();
    config.blocklist.max_blocked_ratio = 0.5;
    let served = served_with(config, |_| {});
    let both =
        nodes(&json!([{ "id": "node1", "action": MARK }, { "id": "node2", "action": MARK }]));
    let answer = served.client.post("/blocklist/add", &both);
    assert!(answer.status == 409 && answer.errors().contains("force=true"), "{}", answer.text);
    assert_eq!(count(&served), 0);
    assert_eq!(served.client.post("/blocklist/add?force=true", &both).status, 200);
    assert_eq!(count(&served), 2);
}

#[test]
fn a_long_list_comes_in_pages() {
    let served = served();
    let entries: Vec<_> =
        (10..30).map(|n| json!({ "id": format!("tm{n}"), "action": MARK })).collect();
    let body = json!({ "newBlocklistedTaskManagers": entries });
    assert_eq!(served.client.post("/blocklist/add", &body).status, 200);
    let page = served.client.get("/blocklist?offset=5&limit=3").json();
    let ids: Vec<_> = page["blocklistedTaskManagers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item["id"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(ids, ["tm15", "tm16", "tm17"]);
    assert_eq!(page["total"]["blocklistedTaskManagers"], 20);
    assert!(served.client.get("/blocklist").json()["total"].is_null(), "all are there");
}
