//! Who may ask: hosts, origins and tokens.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tidegate::ErrorKind;
use tidegate::rest::RestOptions;

use super::rig::{Served, config, endless, raw, served, served_with};

const TOKEN: &str = "a-token-of-this-test-0123456789";

fn token_file(folder: &Path, mode: u32) -> PathBuf {
    let path = folder.join("token");
    fs::write(&path, format!("{TOKEN}\n")).expect("written");
    fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("changed");
    path
}

fn with_head(served: &Served, lines: &str) -> u16 {
    raw(
        served.client.address,
        format!("GET /health HTTP/1.1\r\n{lines}connection: close\r\n\r\n").as_bytes(),
    )
    .0
}

#[test]
fn a_host_that_is_not_ours_is_refused() {
    let served = served();
    for (lines, status) in [
        ("host: localhost\r\n", 200),
        ("host: 127.0.0.1:8081\r\n", 200),
        ("host: [::1]:8081\r\n", 200),
        ("Host: evil.example\r\n", 403),
        ("host: localhost.evil.example\r\n", 403),
        ("host: 10.0.0.1\r\n", 403),
        ("host: localhost:x\r\n", 403),
        ("", 400),
        ("host: localhost\r\nhost: localhost\r\n", 400),
        ("host: localhost\r\norigin: http://localhost\r\n", 200),
        ("host: localhost\r\norigin: http://evil.example\r\n", 403),
        ("host: localhost\r\norigin: null\r\n", 403),
        ("host: localhost\r\nsec-fetch-site: cross-site\r\n", 403),
        ("host: localhost\r\nsec-fetch-site: same-origin\r\n", 200),
    ] {
        assert_eq!(with_head(&served, lines), status, "{lines}");
    }
    let absolute =
        b"GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert_eq!(served.client.raw(absolute).0, 403);
}

#[test]
fn a_name_that_the_program_gives_is_ours() {
    let served = served_with(config(), |options| options.hosts = vec!["stream.example".into()]);
    assert_eq!(with_head(&served, "host: stream.example:80\r\n"), 200);
    assert_eq!(with_head(&served, "host: evil.example\r\n"), 403);
}

#[test]
fn with_a_token_every_request_must_bear_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut served = served_with(config(), |options| {
        options.token_file = Some(token_file(folder.path(), 0o600))
    });
    for path in ["/health", "/blocklist", "/metrics", "/openapi.json", "/nothing"] {
        let answer = served.client.get(path);
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.head["www-authenticate"], "Bearer");
    }
    for wrong in ["", "x", &TOKEN[1..], &format!("{TOKEN}x")] {
        served.client.token = Some(wrong.to_owned());
        assert_eq!(served.client.get("/health").status, 401, "{wrong}");
    }
    served.client.token = Some(TOKEN.to_owned());
    assert_eq!(served.client.get("/health").status, 200);
    let answer =
        served.client.send("PUT", "/blocklist/nodes/n1", &[], b"{\"action\":\"MARK_BLOCKLISTED\"}");
    assert_eq!(answer.status, 201);
    assert_eq!(served.audit.lock().expect("nobody panics with it")[0]["principal"], "token");
}

#[test]
fn an_address_others_reach_needs_a_token_that_nobody_else_can_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let handle = endless(config());
    let mut options = RestOptions::at("0.0.0.0:0".parse().expect("an address"));
    let refused =
        |options: &RestOptions| handle.serve(options.clone()).expect_err("it is not safe");
    let error = refused(&options);
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("rest.token-file"), "{error}");
    options.token_file = Some(token_file(folder.path(), 0o644));
    let error = refused(&options);
    assert!(error.to_string().contains("0600") && error.path().is_some(), "{error}");
    options.token_file = Some(folder.path().join("none"));
    assert_eq!(refused(&options).kind(), ErrorKind::Io);
    options.token_file = Some(token_file(folder.path(), 0o600));
    let server = handle.serve(options).expect("it is safe");
    let address = format!("127.0.0.1:{}", server.address().port()).parse().expect("an address");
    let head = format!(
        "GET /health HTTP/1.1\r\nhost: somewhere\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(raw(address, head.as_bytes()).0, 200);
    handle.cancel().expect_err("is cancelled");
}

#[test]
fn an_address_in_use_is_an_error_that_names_it() {
    let served = served();
    let error =
        served.handle.serve(RestOptions::at(served.server.address())).expect_err("it is in use");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains(&served.server.address().to_string()), "{error}");
}
