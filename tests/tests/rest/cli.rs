//! The command line against a served job.

use std::ffi::OsString;

use serde_json::Value;
use tidegate::JobState;
use tidegate::cli::run;

use super::rig::{Served, config, served, served_with};

/// A command against a job: its exit code, and what it said to people and of errors.
fn tidegate(served: &Served, args: &[&str]) -> (u8, String, String) {
    let address = served.client.address.to_string();
    let args = ["tidegate"].iter().chain(args).copied().chain(["--address", &address]);
    let args: Vec<_> = args.map(OsString::from).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(args, &mut out, &mut err);
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (code, text(out), text(err))
}

fn json(served: &Served, args: &[&str]) -> Value {
    let (code, out, err) = tidegate(served, &[args, &["--json"]].concat());
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

#[test]
fn items_are_added_listed_and_removed() {
    let served = served();
    let (code, out, err) = tidegate(
        &served,
        &[
            "blocklist",
            "add",
            "--node",
            "node1",
            "--node",
            "n9",
            "--task-manager",
            "tm7",
            "--timeout",
            "1 h",
            "--cause",
            "bad disk",
        ],
    );
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with("blocklisted 3\n") && out.contains("warning: ") && out.contains("n9"),
        "{out}"
    );
    let (code, out, _) = tidegate(&served, &["blocklist", "list"]);
    assert_eq!((code, out.lines().count()), (0, 4), "{out}");
    let line = out.lines().find(|line| line.contains("node1")).expect("it is listed");
    assert!(line.contains("MARK_BLOCKLISTED ") && line.contains("bad disk"), "{line}");
    let list = json(&served, &["blocklist", "list"]);
    assert_eq!(list["blocklistedTaskManagers"][0]["id"], "tm7");
    let (code, _, err) =
        tidegate(&served, &["blocklist", "remove", "--node", "node1", "--node", "other"]);
    assert!(code == 1 && err.contains("other") && err.contains("404"), "{code} {err}");
    let remove = ["blocklist", "remove", "--node", "node1", "--node", "other", "--ignore-missing"];
    assert_eq!(tidegate(&served, &remove).0, 0);
    assert_eq!(
        json(&served, &["blocklist", "list"])["blocklistedNodes"].as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn a_dry_run_and_evacuation_are_flags() {
    let served = served();
    let (code, out, _) =
        tidegate(&served, &["blocklist", "add", "--node", "node1", "--evacuate", "--dry-run"]);
    assert!(code == 0 && out.contains("would blocklist 1"), "{out}");
    assert!(
        json(&served, &["blocklist", "list"])["blocklistedNodes"]
            .as_array()
            .is_some_and(Vec::is_empty)
    );
    assert_eq!(tidegate(&served, &["blocklist", "add", "--node", "elsewhere", "--evacuate"]).0, 0);
    let list = json(&served, &["blocklist", "list"]);
    assert_eq!(list["blocklistedNodes"][0]["action"], "MARK_BLOCKLISTED_AND_EVACUATE_TASKS");
}

#[test]
fn jobs_and_task_managers_are_tables() {
    let served = served();
    let (code, out, _) = tidegate(&served, &["jobs"]);
    assert!(code == 0 && out.contains("endless") && out.contains("RUNNING"), "{out}");
    assert_eq!(json(&served, &["jobs"])[0]["name"], "endless");
    let (code, out, _) = tidegate(&served, &["taskmanagers"]);
    assert_eq!((code, out.lines().count()), (0, 4), "{out}");
    assert_eq!(out.matches("node1").count(), 2, "{out}");
    assert!(out.contains("POOL") && out.matches(" default ").count() == 3, "{out}");
    let all = json(&served, &["taskmanagers"]);
    assert_eq!((all.as_array().map(Vec::len), &all[0]["nodePool"]), (Some(3), &"default".into()));
}

#[test]
fn a_savepoint_is_taken_and_the_job_stopped_with_another() {
    let served = served();
    let target = served.folder.path().join("saved");
    let target = target.to_string_lossy();
    let (code, out, err) = tidegate(&served, &["savepoint", "endless", &target]);
    assert!(code == 0 && out.contains("savepoint-"), "{out}{err}");
    assert_eq!(served.handle.state(), JobState::Running);
    let outcome = json(&served, &["stop", "endless", "--savepoint", &target]);
    assert_eq!(outcome["outcome"], "STOPPED");
    let folder = outcome["location"].as_str().expect("a path");
    assert!(std::path::Path::new(folder).join("MANIFEST").exists());
    let (code, _, err) = tidegate(&served, &["stop", "endless"]);
    assert!(code == 1 && err.contains("409"), "{code} {err}");
}

#[test]
fn a_stop_whose_program_ends_with_the_job_still_tells_its_outcome() {
    let served = served();
    let target = served.folder.path().join("saved").to_string_lossy().into_owned();
    let address = served.client.address.to_string();
    let Served { handle, server, folder, .. } = served;
    let asking = std::thread::spawn(move || {
        let args = ["tidegate", "stop", "endless", "--savepoint", &target, "--address", &address];
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = run(args.map(OsString::from), &mut out, &mut err);
        (code, String::from_utf8_lossy(&out).into_owned())
    });
    handle.join().expect("the job has stopped");
    drop(server);
    let (code, out) = asking.join().expect("it does not panic");
    assert!(code == 0 && out.starts_with("stopped ") && out.contains("savepoint-"), "{out}");
    drop(folder);
}

#[test]
fn what_goes_wrong_is_said_with_an_exit_code() {
    let served = served();
    for args in [
        &["blocklist", "add"][..],
        &["blocklist"],
        &["stop"],
        &["stop", "endless", "--drain"],
        &["jobs", "--token-file"],
    ] {
        assert_eq!(tidegate(&served, args).0, 2, "{args:?}");
    }
    let (code, _, err) = tidegate(&served, &["savepoint", "other", "/nowhere"]);
    assert!(code == 1 && err.contains("there is no job other"), "{code} {err}");
    let (code, _, err) = tidegate(&served, &["blocklist", "add", "--node", "a b"]);
    assert!(code == 1 && err.contains("400"), "{code} {err}");
    let (code, _, err) = tidegate(&served, &["jobs", "--token-file", "/no/such/token"]);
    assert!(code == 1 && err.contains("/no/such/token"), "{code} {err}");
    let file = served.folder.path().join("file");
    std::fs::write(&file, "x").expect("written");
    let (code, out, _) = tidegate(&served, &["savepoint", "endless", &file.to_string_lossy()]);
    assert!(code == 1 && out.starts_with("failed: "), "{code} {out}");
    let args = ["tidegate", "jobs", "--address", "127.0.0.1:1"].map(OsString::from);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    assert_eq!(run(args, &mut out, &mut err), 1);
    assert!(String::from_utf8_lossy(&err).contains("127.0.0.1:1"));
}

#[test]
fn a_token_is_read_from_its_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    std::fs::write(&path, "a-token-of-this-test\n").expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("changed");
    let served = served_with(config(), |options| options.token_file = Some(path.clone()));
    let (code, _, err) = tidegate(&served, &["jobs"]);
    assert!(code == 1 && err.contains("401"), "{code} {err}");
    assert_eq!(tidegate(&served, &["jobs", "--token-file", &path.to_string_lossy()]).0, 0);
}
