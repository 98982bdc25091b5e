//! Random calls against a running job: no subtask ever starts on something blocklisted, marks leave running subtasks alone, and the
//! job's answer is exact. The full form, on the flights job, is `tests/blocklist_storm.py`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate::sink::exactly_once_files;
use tidegate::source::Source;
use tidegate::{Job, source};

use super::rig::{Client, config, runs};

const RECORDS: u64 = 40_000;
const KEYS: u64 = 97;
const CALLS: usize = 200;
const SEED: u64 = 20_220_513;

/// A sequence of numbers that looks random (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// One random call.
fn call(dice: &mut Dice, client: &Client, task_managers: &[String]) {
    let long = "x".repeat(300);
    let nodes = ["node1", "node2", "node2", "elsewhere", "", &long];
    let mut managers: Vec<&str> = task_managers.iter().map(String::as_str).collect();
    managers.extend(["unknown", &long]);
    let actions = ["MARK_BLOCKLISTED", "MARK_BLOCKLISTED_AND_EVACUATE_TASKS"];
    let timeouts = [json!(0), json!(1), json!(50), json!("200 ms"), json!("1 s"), json!("1 h")];
    let mut entry = |ids: &[&str]| json!({ "id": dice.of(ids), "action": dice.of(&actions), "timeout": dice.of(&timeouts) });
    let (node, manager) = (entry(&nodes), entry(&managers));
    let added = [
        json!({ "newBlocklistedNodes": [node] }),
        json!({ "newBlocklistedTaskManagers": [manager] }),
        json!({ "newBlocklistedNodes": [node], "newBlocklistedTaskManagers": [manager] }),
        json!({ "newBlocklistedTaskManagers": [manager, manager] }),
    ];
    let removed = json!({
        "blocklistedNodesToRemove": [{ "id": node["id"] }],
        "blocklistedTaskManagersToRemove": [{ "id": manager["id"] }],
    });
    let answer = match dice.below(8) {
        0..=3 => client.post("/blocklist/add?force=true", dice.of(&added)),
        4..=5 => client.post("/blocklist/remove?ignoreMissing=true", &removed),
        6 => client.get("/blocklist"),
        _ => {
            let path =
                format!("/blocklist/taskmanagers/{}", manager["id"].as_str().unwrap_or_default());
            client.send("DELETE", &path, &[], b"")
        }
    };
    let expected = matches!(answer.status, 200 | 204 | 400 | 404);
    assert!(expected, "SEED={SEED} {} {}", answer.status, answer.text);
}

/// Takes everything off the blocklist.
fn clear(client: &Client) {
    let list = client.get("/blocklist").json();
    let ids = |name: &str| -> Vec<Value> {
        let items = list[name].as_array().into_iter().flatten();
        items.map(|item| json!({ "id": item["id"] })).collect()
    };
    let body = json!({
        "blocklistedTaskManagersToRemove": ids("blocklistedTaskManagers"),
        "blocklistedNodesToRemove": ids("blocklistedNodes"),
    });
    // What ends meanwhile is missing then; with nothing to remove it is malformed.
    let status = client.post("/blocklist/remove?ignoreMissing=true", &body).status;
    assert!(matches!(status, 200 | 400), "{status}");
}

/// What the events say: reads them in order, and checks each start.
#[derive(Default)]
struct Checked {
    /// Action by type and id.
    blocked: BTreeMap<(String, String), String>,
    /// Where attempts were started.
    places: BTreeMap<String, (String, String)>,
    /// Which places had to be left at some time since the last evacuation.
    left: Vec<(String, String)>,
    starts: usize,
    moved: usize,
    last: u64,
}

impl Checked {
    fn event(&mut self, event: &Value) {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        self.last = event["number"].as_u64().expect("events have numbers");
        let key = (text("type"), text("id"));
        match text("event").as_str() {
            "ITEM_ADDED" | "ITEM_UPDATED" => {
                if text("action").ends_with("EVACUATE_TASKS") {
                    self.left.push(key.clone());
                }
                self.blocked.insert(key, text("action"));
            }
            "ITEM_REMOVED" | "ITEM_EXPIRED" => drop(self.blocked.remove(&key)),
            "DEPLOYED" => {
                let place = [("NODE", text("node")), ("TASK_MANAGER", text("taskManager"))];
                for (kind, id) in &place {
                    let key = ((*kind).to_owned(), id.clone());
                    assert!(
                        !self.blocked.contains_key(&key),
                        "SEED={SEED} {event}: {:?}",
                        self.blocked
                    );
                }
                let [(_, node), (_, manager)] = place;
                self.places.insert(text("attempt"), (node, manager));
                self.starts += 1;
            }
            "EVACUATED" => {
                for attempt in event["attempts"].as_array().into_iter().flatten() {
                    let place = self.places.get(attempt.as_str().expect("attempts are texts"));
                    // One that has a slot but was not sent there yet has no place.
                    let Some((node, manager)) = place else { continue };
                    let had_to = |(kind, id): &(String, String)| match kind.as_str() {
                        "NODE" => id == node,
                        _ => id == manager,
                    };
                    assert!(
                        self.left.iter().any(had_to),
                        "SEED={SEED} {event}: only marks were there"
                    );
                    self.moved += 1;
                }
            }
            _ => {}
        }
    }

    fn read(&mut self, client: &Client) {
        loop {
            let page = client.get(&format!("/events?after={}&limit=1000", self.last)).json();
            let events = page["events"].as_array().expect("a list").clone();
            events.iter().for_each(|event| self.event(event));
            if events.len() < 1000 {
                return;
            }
        }
    }
}

#[test]
fn under_random_calls_nothing_starts_where_it_must_not_and_the_answer_is_exact() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config();
    config.checkpoint.dir = Some(folder.path().join("checkpoints"));
    config.checkpoint.interval = Some(std::time::Duration::from_millis(50));
    config.rest.address = Some("127.0.0.1:0".into());
    let job = Job::with_config("storm", config);
    let output = folder.path().join("output");
    job.source("numbers", source::range(0..RECORDS).rate(20_000))
        .key_by(|n| n % KEYS)
        .count("counts")
        .sink(
            "files",
            exactly_once_files(&output).format::<(u64, u64), _>(|(key, count), line| {
                use std::io::Write;
                write!(line, "{key},{count}")
            }),
        );
    let handle = job.spawn().expect("the job is right");
    runs(&handle);
    let client = Client::new(handle.rest_address().expect("it is served"));
    let managers = client.get("/taskmanagers").json();
    let managers = managers["taskmanagers"].as_array().expect("a list").iter();
    let managers: Vec<String> =
        managers.map(|tm| tm["id"].as_str().expect("ids are texts").to_owned()).collect();
    assert_eq!(managers.len(), 3);
    let (mut dice, mut checked) = (Dice(SEED), Checked::default());
    for number in 0..CALLS {
        call(&mut dice, &client, &managers);
        if number % 20 == 19 {
            clear(&client);
            checked.read(&client);
        }
    }
    clear(&client);
    checked.read(&client);
    let status = handle.join().expect("the job ends by itself");
    let mut lines = super::rig::lines(&output);
    lines.sort_unstable();
    let mut expected: Vec<String> =
        (0..RECORDS).map(|n| format!("{},{}", n % KEYS, n / KEYS + 1)).collect();
    expected.sort_unstable();
    assert!(lines == expected, "SEED={SEED} {} lines, {} restarts", lines.len(), status.restarts);
    assert!(checked.starts >= 4, "{}", checked.starts);
    println!("{} starts, {} moved, {} restarts", checked.starts, checked.moved, status.restarts);
}
