//! Who may ask: the machine that a request says it was sent to, the page it was sent from, and the token.
//!
//! A browser on this machine can be made to send requests here by any page: with a name that suddenly resolves to this
//! machine, or from a form. The first is seen in `Host`, the second in `Origin`, which pages can't set.

use axum::http::{HeaderMap, Uri, header};

use super::answer::Answer;
use super::desk::Desk;

/// Refuses what must not be answered. `Ok` with who asks.
pub(super) fn check(desk: &Desk, uri: &Uri, headers: &HeaderMap) -> Result<&'static str, Answer> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
    if hosts.next().is_some() || host.is_empty() {
        return Err(Answer::error(400, "a request names one 'Host'"));
    }
    let authority = uri.authority().map(|authority| authority.as_str());
    for name in [Some(host), authority].into_iter().flatten() {
        if !is_ours(desk, name) {
            return Err(Answer::error(403, "'Host' names another machine"));
        }
    }
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if text(header::ORIGIN)
        .is_some_and(|origin| origin.split_once("://").map(|(_, at)| at) != Some(host))
    {
        return Err(Answer::error(403, "'Origin' is another site"));
    }
    if text(header::HeaderName::from_static("sec-fetch-site"))
        .is_some_and(|site| matches!(site, "cross-site" | "same-site"))
    {
        return Err(Answer::error(403, "the request comes from another site"));
    }
    match &desk.token {
        None => Ok("loopback"),
        Some(token) => {
            let mut borne = headers.get_all(header::AUTHORIZATION).iter();
            let first = borne.next().map(|value| value.as_bytes());
            if borne.next().is_none() && token.is_borne(first) {
                return Ok("token");
            }
            Err(Answer::error(401, "the request does not bear the token"))
        }
    }
}

/// Whether a `Host` with or without a port means this server.
fn is_ours(desk: &Desk, host: &str) -> bool {
    let Some(name) = without_port(host) else { return false };
    let address = desk.options.address.ip();
    if desk.options.hosts.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return true;
    }
    match name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>() {
        // No name was resolved, so nobody can have turned one to this machine.
        Ok(ip) if address.is_unspecified() || !address.is_loopback() => {
            address.is_unspecified() || ip == address
        }
        Ok(ip) => ip.is_loopback(),
        // What bears the token is no page of somebody else.
        Err(_) => {
            name.eq_ignore_ascii_case("localhost")
                || (desk.token.is_some() && !address.is_loopback() && desk.options.hosts.is_empty())
        }
    }
}

/// The name in a `Host`; `None` if what follows it is no port.
fn without_port(host: &str) -> Option<&str> {
    if host.starts_with('[') {
        let (name, rest) = host.split_at(host.find(']')? + 1);
        return (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port)).then_some(name);
    }
    match host.split_once(':') {
        None => Some(host),
        Some((name, port)) => is_port(port).then_some(name),
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_and_perhaps_a_port() {
        for (host, name) in [
            ("localhost", Some("localhost")),
            ("localhost:80", Some("localhost")),
            ("[::1]:80", Some("[::1]")),
            ("[::1]", Some("[::1]")),
            ("[::1", None),
            ("[::1]x", None),
            ("a:b", None),
            ("a:1:2", None),
            ("a:", None),
        ] {
            assert_eq!(without_port(host), name, "{host}");
        }
    }
}
