//! Bad input and slow clients: always an answer below 500, never for long, and others are served meanwhile.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use super::rig::{config, served, served_with, wait_for};

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

#[test]
fn a_body_of_two_mebibytes_is_too_long() {
    let served = served();
    let body = vec![b' '; 2 << 20];
    let answer = served.client.send("POST", "/blocklist/add", JSON, &body);
    assert_eq!(answer.status, 413);
    assert!(answer.errors().contains("1048576"), "{}", answer.text);
    let mut chunked = b"POST /blocklist/add HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..32 {
        chunked.extend_from_slice(b"10000\r\n");
        chunked.resize(chunked.len() + 0x10000, b' ');
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(served.client.raw(&chunked).0, 413);
    let fits = "x".repeat(1000);
    let body = json!({ "newBlocklistedNodes": [{ "id": "n", "action": "MARK_BLOCKLISTED", "cause": fits }] });
    assert_eq!(served.client.post("/blocklist/add", &body).status, 200);
}

#[test]
fn nesting_without_end_and_text_that_is_none_are_malformed() {
    let served = served();
    let deep = [&b"{\"a\":"[..], &vec![b'['; 100_000]].concat();
    for body in [
        &vec![b'['; 100_000][..],
        &deep,
        b"{\"newBlocklistedNodes\":[{\"id\":\"\xff\xfe\"}]}",
        b"{",
        b"\xff",
    ] {
        for path in [
            "/blocklist/add",
            "/blocklist/remove",
            "/jobs/endless/savepoints",
            "/jobs/endless/stop",
        ] {
            assert_eq!(served.client.send("POST", path, JSON, body).status, 400, "{path}");
        }
    }
}

#[test]
fn a_body_of_another_type_is_refused() {
    let served = served();
    let body = b"{\"action\":\"MARK_BLOCKLISTED\"}";
    for (content_type, status) in [
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/json; charset=utf-8", 201),
        ("Application/JSON", 202),
    ] {
        let head = [("content-type", content_type)];
        let answer = served.client.send("PUT", "/blocklist/nodes/n1", &head, body);
        assert_eq!(answer.status, status, "{content_type}");
    }
    let answer = served.client.send("DELETE", "/blocklist/nodes/n1", &[("x", "y")], b"");
    assert_eq!(answer.status, 204);
}

#[test]
fn queries_with_anything_unknown_are_refused() {
    let served = served();
    for path in [
        "/blocklist?force=true",
        "/jobs?limit=0",
        "/jobs?limit=x",
        "/jobs?limit=1&limit=1",
        "/jobs?offset=-1",
        "/jobs?%ff=1",
        "/health?x",
        "/jobs?limit=99999999999999999999",
    ] {
        assert_eq!(served.client.get(path).status, 400, "{path}");
    }
}

#[test]
fn heads_without_end_are_refused() {
    let served = served();
    let line = |count: usize| format!("x-{}: {}\r\n", count, "y".repeat(200));
    let many: String = (0..200).map(line).collect();
    let head = format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{many}\r\n");
    assert_eq!(served.client.raw(head.as_bytes()).0, 431);
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(100_000));
    let status = served.client.raw(long.as_bytes()).0;
    assert!((400..500).contains(&status), "{status}");
    for bad in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"G\xffT / HTTP/1.1\r\n\r\n",
    ] {
        assert_eq!(served.client.raw(bad).0, 400);
    }
    assert_eq!(served.client.get("/health").status, 200);
}

#[test]
fn a_client_that_stops_in_the_middle_is_let_go() {
    let served = served_with(config(), |options| {
        options.header_timeout = Duration::from_millis(200);
        options.body_timeout = Duration::from_millis(200);
    });
    let (status, _) = served.client.raw(b"GET /health HTTP/1.1\r\nhost: local");
    assert!(matches!(status, 0 | 408), "closed, or told: {status}");
    let (status, text) = served.client.raw(
        b"POST /blocklist/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{\"new",
    );
    assert_eq!(status, 408, "{text}");
}

#[test]
fn a_thousand_slow_clients_do_not_keep_others_out() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted)
        .expect("it may be raised");
    let served = served();
    let mut slow = Vec::new();
    for n in 0..1000 {
        let mut stream = TcpStream::connect(served.client.address).expect("the server listens");
        let begun: &[u8] = match n % 3 {
            0 => b"",
            1 => b"GET /health HTTP/1.1\r\nhost: localh",
            _ => b"POST /blocklist/add HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{",
        };
        // It may have been closed for one that came later.
        let _ = stream.write_all(begun);
        slow.push(stream);
        if n % 250 == 249 {
            assert_eq!(served.client.get("/health").status, 200, "with {n} slow clients");
        }
    }
    assert_eq!(served.client.get("/health").status, 200);
    let closed = wait_for("a connection closed for another", || {
        let metrics = served.client.get("/metrics").text;
        let line = metrics
            .lines()
            .find(|line| line.starts_with("tidegate_rest_connections_closed_idle_total"))?;
        line.rsplit(' ').next()?.parse::<f64>().ok().filter(|count| *count > 0.0)
    });
    assert!(closed >= 700.0, "at most 256 are kept of 1,000: {closed}");
    drop(slow);
}
