//! A01 to A12: the REST interface.

use super::*;
use crate::control::blocklist::checker::BlocklistedTaskManagerChecker;
use crate::control::identity::ResourceId;
use crate::control::resource_manager::scenarios::{register, register_in_pool, resource_manager};

const DAY: Duration = Duration::from_secs(86_400);

fn call(rm: &mut ResourceManager, method: &str, path: &str, body: &str) -> RestResponse {
    call_at(rm, method, path, "", body.as_bytes())
}

fn call_at(
    rm: &mut ResourceManager,
    method: &str,
    path: &str,
    query: &str,
    body: &[u8],
) -> RestResponse {
    let content_type = Some("application/json");
    let request = RestRequest { method, path, query, content_type, body, principal: "ann" };
    handle(Moment::at_millis(1000), &request, DAY, Some(rm), &mut Vec::new())
}

fn post(rm: &mut ResourceManager, path: &str, body: Value) -> RestResponse {
    call(rm, "POST", path, &body.to_string())
}

fn node(action: &str) -> Value {
    json!({ "newBlocklistedNodes": [{ "id": "n1", "action": action }] })
}

fn errors(response: &RestResponse) -> String {
    response.body["errors"].to_string()
}

#[test]
fn a01_an_empty_list_has_both_arrays() {
    let mut rm = resource_manager(true, false);
    let response = call(&mut rm, "GET", "/blocklist", "");
    assert_eq!(response.status, 200);
    assert_eq!(response.body, json!({ "blocklistedTaskManagers": [], "blocklistedNodes": [] }));
}

#[test]
fn a02_the_list_tells_what_is_blocklisted_itself_from_what_is_on_a_node() {
    let mut rm = resource_manager(true, false);
    for (tm, node) in [("tm3", "n1"), ("tm2", "n1"), ("tm1", "n2")] {
        register(&mut rm, tm, node);
    }
    let body = json!({
        "newBlocklistedTaskManagers": [{ "id": "tm1", "action": "MARK_BLOCKLISTED" }],
        "newBlocklistedNodes": [{ "id": "n1", "action": "MARK_BLOCKLISTED_AND_EVACUATE_TASKS" }],
    });
    assert_eq!(post(&mut rm, "/blocklist/add", body).status, 200);
    let list = call(&mut rm, "GET", "/blocklist", "").body;
    assert_eq!(list["blocklistedTaskManagers"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["blocklistedTaskManagers"][0]["id"], "tm1");
    let found = &list["blocklistedNodes"][0];
    assert_eq!(found["taskManagers"], json!(["tm2", "tm3"]));
    assert_eq!(found["action"], "MARK_BLOCKLISTED_AND_EVACUATE_TASKS");
    assert_eq!(found["timestamp"], "1000");
}

#[test]
fn a03_added_items_are_listed_and_act() {
    let mut rm = resource_manager(true, false);
    register(&mut rm, "tm1", "n1");
    let response = post(&mut rm, "/blocklist/add", node("MARK_BLOCKLISTED"));
    assert_eq!((response.status, &response.body), (200, &json!({})));
    let id = ResourceId::new("tm1").expect("short");
    assert!(rm.blocklist().is_blocklisted_task_manager(&id));
    assert_eq!(response.audit[0]["principal"], "ann");
    assert_eq!(response.audit[0]["old"], Value::Null);
    assert_eq!(response.audit[0]["new"]["action"], "MARK_BLOCKLISTED");
}

#[test]
fn a04_adding_a_stronger_action_merges() {
    let mut rm = resource_manager(true, false);
    post(&mut rm, "/blocklist/add", node("MARK_BLOCKLISTED"));
    post(&mut rm, "/blocklist/add", node("MARK_BLOCKLISTED_AND_EVACUATE_TASKS"));
    post(&mut rm, "/blocklist/add", node("MARK_BLOCKLISTED"));
    let list = call(&mut rm, "GET", "/blocklist", "").body;
    assert_eq!(list["blocklistedNodes"][0]["action"], "MARK_BLOCKLISTED_AND_EVACUATE_TASKS");
}

#[test]
fn a05_one_bad_entry_and_nothing_is_applied() {
    let good = json!({ "id": "n1", "action": "MARK_BLOCKLISTED" });
    let long = "x".repeat(300);
    let bad = [
        json!({ "id": "n2", "action": "WAT" }),
        json!({ "id": "n2" }),
        json!({ "id": "", "action": "MARK_BLOCKLISTED" }),
        json!({ "id": long, "action": "MARK_BLOCKLISTED" }),
        json!({ "id": "a b", "action": "MARK_BLOCKLISTED" }),
        json!({ "id": 7, "action": "MARK_BLOCKLISTED" }),
        json!({ "id": "n1", "action": "MARK_BLOCKLISTED" }),
        json!({ "id": "n2", "action": "MARK_BLOCKLISTED", "colour": "red" }),
        json!({ "id": "n2", "action": "MARK_BLOCKLISTED", "timeout": 0 }),
        json!({ "id": "n2", "action": "MARK_BLOCKLISTED", "timeout": -1 }),
        json!({ "id": "n2", "action": "MARK_BLOCKLISTED", "timeout": "2 d" }),
        json!({ "id": "n2", "action": "MARK_BLOCKLISTED", "endTimestamp": 1000 }),
        json!({ "id": "n2", "action": "MARK_BLOCKLISTED", "endTimestamp": "soon" }),
        json!({ "id": "n2", "action": "MARK_BLOCKLISTED", "cause": 1 }),
        json!("n2"),
    ];
    for entry in bad {
        let mut rm = resource_manager(true, false);
        let body = json!({ "newBlocklistedNodes": [good, entry] });
        let response = post(&mut rm, "/blocklist/add", body);
        assert_eq!(response.status, 400, "{entry}");
        assert!(rm.blocklist().get_all_items().is_empty(), "{entry}");
    }
    let mut rm = resource_manager(true, false);
    for body in [
        "",
        "{",
        "[]",
        "{}",
        "null",
        "{\"newBlocklistedNodes\":[]}",
        "{\"newBlocklistedNodes\":{}}",
        "{\"other\":1}",
    ] {
        assert_eq!(call(&mut rm, "POST", "/blocklist/add", body).status, 400, "{body}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(call(&mut rm, "POST", "/blocklist/add", &deep).status, 400);
    assert_eq!(call_at(&mut rm, "POST", "/blocklist/add", "", &[0xff, 0xfe]).status, 400);
    let response = post(&mut rm, "/blocklist/add", node("WAT"));
    assert!(errors(&response).contains("MARK_BLOCKLISTED or MARK_BLOCKLISTED_AND_EVACUATE_TASKS"));
}

#[test]
fn a06_removal_is_guarded_and_all_or_nothing() {
    let mut rm = resource_manager(true, false);
    post(&mut rm, "/blocklist/add", node("MARK_BLOCKLISTED"));
    let remove = |ids: &[(&str, Option<&str>)]| {
        let entries: Vec<Value> = ids
            .iter()
            .map(|(id, action)| match action {
                Some(action) => json!({ "id": id, "action": action }),
                None => json!({ "id": id }),
            })
            .collect();
        json!({ "blocklistedNodesToRemove": entries })
    };
    let wrong = remove(&[("n1", Some("MARK_BLOCKLISTED_AND_EVACUATE_TASKS"))]);
    assert_eq!(post(&mut rm, "/blocklist/remove", wrong).status, 409);
    let response = post(&mut rm, "/blocklist/remove", remove(&[("n1", None), ("n2", None)]));
    assert_eq!(response.status, 404);
    assert!(errors(&response).contains("n2"));
    assert_eq!(rm.blocklist().get_all_items().len(), 1, "nothing was removed");
    let body = remove(&[("n1", Some("MARK_BLOCKLISTED")), ("n2", None)]).to_string();
    let response =
        call_at(&mut rm, "POST", "/blocklist/remove", "ignoreMissing=true", body.as_bytes());
    assert_eq!((response.status, response.audit.len()), (200, 1));
    assert!(rm.blocklist().get_all_items().is_empty());
}

#[test]
fn a07_switched_off_it_is_not_there_and_says_why() {
    let mut rm = resource_manager(false, false);
    for (method, path) in [("GET", "/blocklist"), ("POST", "/blocklist/add")] {
        let response = call(&mut rm, method, path, "{}");
        assert_eq!(response.status, 404);
        assert!(errors(&response).contains("cluster.resource-blocklist.enabled"));
    }
}

#[test]
fn a08_other_methods_are_told_what_is_allowed() {
    let mut rm = resource_manager(true, false);
    let response = call(&mut rm, "DELETE", "/blocklist", "");
    assert_eq!((response.status, response.allow), (405, Some("GET")));
    let response = call(&mut rm, "GET", "/blocklist/add", "");
    assert_eq!((response.status, response.allow), (405, Some("POST")));
    assert_eq!(call(&mut rm, "GET", "/blacklist", "").status, 404);
    assert_eq!(call(&mut rm, "GET", "/blocklist/..%2f", "").status, 404);
}

#[test]
fn a09_without_a_resource_manager_it_is_unavailable() {
    let request = RestRequest {
        method: "GET",
        path: "/blocklist",
        query: "",
        content_type: None,
        body: b"",
        principal: "ann",
    };
    let response = handle(Moment::default(), &request, DAY, None, &mut Vec::new());
    assert_eq!(response.status, 503);
}

#[test]
fn a10_timeout_and_end_exclude_each_other() {
    let mut rm = resource_manager(true, false);
    let entry = json!({
        "id": "n1", "action": "MARK_BLOCKLISTED", "timeout": "1 h", "endTimestamp": 5000,
    });
    let response = post(&mut rm, "/blocklist/add", json!({ "newBlocklistedNodes": [entry] }));
    assert_eq!(response.status, 400);
}

#[test]
fn a11_timestamps_are_read_as_string_or_number_and_written_as_string() {
    for end in [json!(5000), json!("5000")] {
        let mut rm = resource_manager(true, false);
        let entry = json!({ "id": "n1", "action": "MARK_BLOCKLISTED", "endTimestamp": end });
        post(&mut rm, "/blocklist/add", json!({ "newBlocklistedNodes": [entry] }));
        let list = call(&mut rm, "GET", "/blocklist", "").body;
        assert_eq!(list["blocklistedNodes"][0]["endTimestamp"], "5000");
    }
}

#[test]
fn a_large_body_and_another_content_type_are_refused() {
    let mut rm = resource_manager(true, false);
    let large = vec![b' '; BODY_BYTES_MAX + 1];
    assert_eq!(call_at(&mut rm, "POST", "/blocklist/add", "", &large).status, 413);
    let body = node("MARK_BLOCKLISTED").to_string();
    let mut request = RestRequest {
        method: "POST",
        path: "/blocklist/add",
        query: "",
        content_type: Some("text/plain"),
        body: body.as_bytes(),
        principal: "ann",
    };
    let mut status = |request: &RestRequest<'_>| {
        handle(Moment::at_millis(1000), request, DAY, Some(&mut rm), &mut Vec::new()).status
    };
    assert_eq!(status(&request), 415);
    request.content_type = Some("application/json; charset=utf-8");
    assert_eq!(status(&request), 200);
}

#[test]
fn r08_people_exceed_the_cap_only_with_force() {
    let mut rm = resource_manager(true, false);
    for n in ["n1", "n2", "n3"] {
        register(&mut rm, &format!("tm-{n}"), n);
    }
    let body = |n: &str| {
        json!({ "newBlocklistedNodes": [{ "id": n, "action": "MARK_BLOCKLISTED" }] }).to_string()
    };
    let mut add = |query: &str, n: &str| {
        call_at(&mut rm, "POST", "/blocklist/add", query, body(n).as_bytes()).status
    };
    assert_eq!(add("", "n1"), 200);
    assert_eq!(add("", "n2"), 409);
    assert_eq!(add("", "n1"), 200, "an update is no more");
    assert_eq!(add("force=true", "n2"), 200);
}

#[test]
fn b21_people_exceed_the_cap_of_a_pool_only_with_force() {
    let mut rm = resource_manager(true, false);
    for i in 1..=20 {
        register(&mut rm, &format!("tm-n{i}"), &format!("n{i}"));
    }
    for n in ["gpu1", "gpu2"] {
        register_in_pool(&mut rm, &format!("tm-{n}"), n, NodePool::new("gpu").expect("short"));
    }
    let mut add = |query: &str, nodes: &[&str]| {
        let entry = |n: &&str| json!({ "id": n, "action": "MARK_BLOCKLISTED" });
        let entries: Vec<Value> = nodes.iter().map(entry).collect();
        let body = json!({ "newBlocklistedNodes": entries }).to_string();
        call_at(&mut rm, "POST", "/blocklist/add", query, body.as_bytes())
    };
    let both = add("", &["gpu1", "gpu2", "n1"]);
    assert_eq!(both.status, 409);
    let text =
        "2 nodes of pool gpu would be blocklisted, at most 1 may be; ?force=true does it anyway";
    assert_eq!(both.body, json!({ "errors": [text] }));
    assert_eq!(add("dryRun=true", &["gpu1", "gpu2"]).status, 409);
    assert_eq!(add("", &["gpu1"]).status, 200);
    assert_eq!(add("", &["gpu2"]).status, 409);
    assert_eq!(add("dryRun=true", &["n1"]).status, 200);
    assert_eq!(add("", &["n1", "gpu1"]).status, 200, "another pool, and an update");
    assert_eq!(add("force=true", &["gpu2"]).status, 200);
}

#[test]
fn put_and_delete_are_aliases_for_one_item() {
    let mut rm = resource_manager(true, false);
    let body = "{\"action\":\"MARK_BLOCKLISTED\"}";
    let path = node_path(&NodeId::new("n1").expect("short"));
    assert_eq!(call(&mut rm, "PUT", &path, body).status, 201);
    assert_eq!(call(&mut rm, "PUT", &path, body).status, 202);
    assert_eq!(call(&mut rm, "DELETE", &path, "").status, 204);
    assert_eq!(call(&mut rm, "DELETE", &path, "").status, 404);
    assert_eq!(call(&mut rm, "PUT", "/blocklist/taskmanagers/", body).status, 400);
    assert_eq!(call(&mut rm, "GET", &path, "").status, 405);
}

#[test]
fn a_dry_run_tells_and_changes_nothing() {
    let mut rm = resource_manager(true, false);
    register(&mut rm, "tm1", "n1");
    let body = node("MARK_BLOCKLISTED").to_string();
    let query = "dryRun=true&verbose=true";
    let response = call_at(&mut rm, "POST", "/blocklist/add", query, body.as_bytes());
    assert_eq!(response.body["dryRun"]["taskManagers"], json!(["tm1"]));
    assert_eq!(response.body["warnings"], json!([]));
    assert!(rm.blocklist().get_all_items().is_empty());
}
