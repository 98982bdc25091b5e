//! What the tests of blocklisted task managers share: jobs on several task managers, calls, and what the event log must say.

use std::collections::BTreeMap;

use tidegate::control::blocklist::item::ItemKey;
use tidegate::control::blocklist::rest::RestResponse;
use tidegate::id::SubtaskId;
use tidegate::runtime::{BlocklistCall, ClusterEvent, ClusterFact};
use tidegate::{Job, JobHandle, JobState};

use crate::rig::{checkpointed, set, wait_until};

/// A job that takes checkpoints and runs on these task managers, with a blocklist.
pub(crate) fn on(task_managers: &str, parallelism: u32) -> Job {
    let mut job = checkpointed("case", parallelism);
    set(&mut job, "taskmanager.list", task_managers);
    set(&mut job, "cluster.resource-blocklist.enabled", "true");
    job
}

/// Asks what the REST interface would.
pub(crate) fn call(handle: &JobHandle, method: &str, path: &str, body: &str) -> RestResponse {
    let call = BlocklistCall {
        method: method.to_owned(),
        path: path.to_owned(),
        body: body.as_bytes().to_vec(),
        principal: "test".to_owned(),
        ..BlocklistCall::default()
    };
    handle.endpoint().blocklist(call).expect("the job runs")
}

/// Blocklists a node.
pub(crate) fn block(handle: &JobHandle, node: &str, action: &str) {
    let body = format!(r#"{{"newBlocklistedNodes":[{{"id":"{node}","action":"{action}"}}]}}"#);
    let answer = call(handle, "POST", "/blocklist/add", &body);
    assert_eq!(answer.status, 200, "{:?}", answer.body);
}

/// Takes a node off the blocklist.
pub(crate) fn unblock(handle: &JobHandle, node: &str) {
    let body = format!(r#"{{"blocklistedNodesToRemove":[{{"id":"{node}"}}]}}"#);
    let answer = call(handle, "POST", "/blocklist/remove", &body);
    assert_eq!(answer.status, 200, "{:?}", answer.body);
}

/// The node on which each subtask is.
pub(crate) fn places(handle: &JobHandle) -> BTreeMap<SubtaskId, String> {
    let all = handle.endpoint().task_managers().expect("the job runs");
    let of = |tm: tidegate::runtime::TaskManagerStatus| {
        let node = tm.node_id;
        tm.subtasks.into_iter().map(move |subtask| (subtask, node.clone()))
    };
    all.into_iter().flat_map(of).collect()
}

/// The nodes on which there is something, each once.
pub(crate) fn nodes_in_use(handle: &JobHandle) -> Vec<String> {
    let mut nodes: Vec<_> = places(handle).into_values().collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

/// Waits until all tasks run.
pub(crate) fn running(handle: &JobHandle) {
    wait_until("that all tasks run", || handle.state() == JobState::Running);
}

/// What has happened so far.
pub(crate) fn facts(handle: &JobHandle) -> Vec<ClusterFact> {
    events(handle).into_iter().map(|event| event.fact).collect()
}

pub(crate) fn events(handle: &JobHandle) -> Vec<ClusterEvent> {
    handle.endpoint().events(0).expect("the job runs")
}

/// Waits until something has happened.
pub(crate) fn wait_fact(handle: &JobHandle, what: &str, is_it: impl Fn(&ClusterFact) -> bool) {
    wait_until(what, || facts(handle).iter().any(&is_it));
}

/// No subtask was deployed on something that was blocklisted at that moment.
pub(crate) fn assert_kept_off(events: &[ClusterEvent]) {
    let mut blocked: Vec<ItemKey> = Vec::new();
    let mut last = 0;
    for event in events {
        assert!(event.number > last, "{event:?} is out of order");
        last = event.number;
        if let ClusterFact::ItemAdded { key, .. } = &event.fact {
            blocked.push(key.clone());
        }
        if let ClusterFact::ItemRemoved { key } | ClusterFact::ItemExpired { key } = &event.fact {
            blocked.retain(|known| known != key);
        }
        if let ClusterFact::Deployed { task_manager, node, .. } = &event.fact {
            let here = [ItemKey::TaskManager(task_manager.clone()), ItemKey::Node(node.clone())];
            assert!(!here.iter().any(|key| blocked.contains(key)), "{event:?}: {blocked:?}");
        }
    }
}
