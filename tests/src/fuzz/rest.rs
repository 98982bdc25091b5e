//! Requests to the blocklist over REST.

use std::time::Duration;

use tidegate::control::blocklist::caps::Caps;
use tidegate::control::blocklist::listeners::BlocklistListeners;
use tidegate::control::blocklist::resource_manager::ResourceManagerBlocklistHandler;
use tidegate::control::blocklist::rest::{RestRequest, handle};
use tidegate::control::blocklist::tracker::{BlocklistTracker, TrackerConfig};
use tidegate::control::driver::WorkerSpec;
use tidegate::control::heartbeat::HeartbeatConfig;
use tidegate::control::identity::LeaderId;
use tidegate::control::moment::Moment;
use tidegate::control::resource_manager::ResourceManager;
use tidegate::control::slots::manager::{SlotManager, SlotManagerConfig};
use tidegate::control::slots::profile::ResourceProfile;
use tidegate::decoders;

use super::{Seed, accept, reference};

fn resource_manager() -> ResourceManager {
    let tracker = BlocklistTracker::new(TrackerConfig {
        item_timeout: Some(Duration::from_secs(600)),
        check_interval: Duration::from_secs(1),
        origin_id: 9,
    });
    let listeners = BlocklistListeners::new(LeaderId(9), Duration::from_secs(5));
    let mut blocklist = ResourceManagerBlocklistHandler::new(tracker, Caps::default(), listeners);
    blocklist.start(Moment::at_millis(0)).expect("it is new");
    let slots = SlotManager::new(SlotManagerConfig {
        worker: WorkerSpec { slots: 1, profile: ResourceProfile::default() },
        can_request: false,
        idle_timeout: Duration::from_secs(30),
        slots_max: None,
        blocked_exceed_limit: false,
        term: LeaderId(9),
    });
    ResourceManager::new(blocklist, slots, HeartbeatConfig::default())
}

/// The first line is method and path with query, the rest the body. Every answer has a status that the interface
/// documents, and the same request may be made again.
pub(super) fn blocklist(bytes: &[u8]) {
    let line_end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let Ok(line) = std::str::from_utf8(&bytes[..line_end]) else { return };
    let Some((method, target)) = line.split_once(' ') else { return };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let body = bytes.get(line_end + 1..).unwrap_or_default();
    let content_type = Some("application/json");
    let request = RestRequest { method, path, query, content_type, body, principal: "ann" };
    let mut manager = resource_manager();
    for at in [1000, 2000] {
        let mut out = Vec::new();
        let now = Moment::at_millis(at);
        let day = Duration::from_secs(86_400);
        let answer = handle(now, &request, day, Some(&mut manager), &mut out);
        let known = [200, 201, 202, 204, 400, 404, 405, 409, 413, 415];
        assert!(known.contains(&answer.status), "{}", answer.status);
        if answer.status < 300 {
            accept();
        }
    }
}

pub(super) fn seeds() -> Vec<Seed> {
    let text = |text: &str| text.as_bytes().to_vec();
    let add = r#"{"newBlocklistedNodes":[{"id":"n1","action":"MARK_BLOCKLISTED","timeout":"1 h"}],
        "newBlocklistedTaskManagers":[{"id":"t1","action":"MARK_BLOCKLISTED_AND_EVACUATE_TASKS"}]}"#;
    let remove = r#"{"blocklistedNodesToRemove":[{"id":"n1"}]}"#;
    vec![
        ("list", text("GET /blocklist")),
        ("add", text(&format!("POST /blocklist/add?verbose=true\n{add}"))),
        ("remove", text(&format!("POST /blocklist/remove\n{remove}"))),
        ("put", text("PUT /blocklist/nodes/n%201\n{\"action\":\"MARK_BLOCKLISTED\"}")),
        ("delete", text("DELETE /blocklist/taskmanagers/t1")),
        ("outside", text("GET /blocklist/..%2f..%2fetc")),
        ("deep", text(&format!("POST /blocklist/add\n{}", "[".repeat(300)))),
    ]
}

/// Percent-decoding is that of the slow decoder, and undone by encoding every byte.
pub(super) fn queries(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let decoded = decoders::query_decoded(text);
    assert_eq!(decoded, reference::percent_decoded(text), "{text:?}");
    if let Some(decoded) = decoded {
        accept();
        let encoded: String = decoded.bytes().map(|byte| format!("%{byte:02X}")).collect();
        assert_eq!(decoders::query_decoded(&encoded), Some(decoded));
    }
}

pub(super) fn query_seeds() -> Vec<Seed> {
    let texts = [
        ("plain", "offset"),
        ("blank", "a%20b"),
        ("character", "%C3%a9"),
        ("cut", "x%2"),
        ("no-text", "%ff"),
        ("no-digit", "%g0"),
    ];
    texts.map(|(name, text)| (name, text.as_bytes().to_vec())).into()
}
