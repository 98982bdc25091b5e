//! The REST interface of the blocklist as pure functions: request in, response out (FLIP-224, REST API).
//!
//! The server hands over method, path, query, content type and body, and sends what comes back; it keeps connections,
//! authentication and limits on headers to itself. Every request is checked as a whole before anything is applied.

mod parse;
mod render;

#[cfg(test)]
mod scenarios;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::caps::CapExceeded;
use super::item::{ItemKey, ItemType, NewItem};
use crate::control::identity::{InvalidIdentifier, NodeId, NodePool};
use crate::control::moment::Moment;
use crate::control::resource_manager::{ResourceManager, ResourceManagerOutput};

/// The longest body accepted, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// A request, as far as the blocklist cares.
#[derive(Clone, Copy, Debug)]
pub struct RestRequest<'a> {
    /// `GET`, `POST`, …
    pub method: &'a str,
    /// The path, percent-decoded by nobody: `/blocklist/add`.
    pub path: &'a str,
    /// What follows the question mark.
    pub query: &'a str,
    /// The header, if there is one.
    pub content_type: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
    /// Who asks, for audit and origin.
    pub principal: &'a str,
}

/// What to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct RestResponse {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Value,
    /// For 405: what is allowed.
    pub allow: Option<&'static str>,
    /// For a change: one line of the audit log for each item.
    pub audit: Vec<Value>,
}

impl RestResponse {
    fn new(status: u16, body: Value) -> Self {
        Self { status, body, allow: None, audit: Vec::new() }
    }

    /// An error, in Flink's form.
    pub fn error(status: u16, errors: impl IntoIterator<Item = String>) -> Self {
        Self::new(status, json!({ "errors": errors.into_iter().collect::<Vec<_>>() }))
    }
}

/// Answers a request under `/blocklist`. Without a resource manager there is no leader: 503. The server answers 504
/// itself when the resource manager is too slow; nothing is answered from an older state.
pub fn handle(
    now: Moment,
    request: &RestRequest<'_>,
    max_timeout: Duration,
    resource_manager: Option<&mut ResourceManager>,
    out: &mut Vec<ResourceManagerOutput>,
) -> RestResponse {
    let route = match route(request) {
        Ok(route) => route,
        Err(response) => return response,
    };
    if request.body.len() > BODY_BYTES_MAX {
        return one(413, format!("the body is longer than {BODY_BYTES_MAX} bytes"));
    }
    let Some(rm) = resource_manager else {
        return one(503, "there is no resource manager at the moment".into());
    };
    if !rm.blocklist().is_enabled() {
        let hint = "the blocklist is off; start with cluster.resource-blocklist.enabled: true";
        return one(404, hint.into());
    }
    let query = Query::parse(request.query);
    match route {
        Route::List => RestResponse::new(200, render::list(rm)),
        Route::Add => {
            if let Err(response) = check_content_type(request) {
                return response;
            }
            match parse::add(now, request, max_timeout) {
                Ok(items) => add(now, items, query, rm, out, None),
                Err(errors) => RestResponse::error(400, errors),
            }
        }
        Route::Remove => {
            if let Err(response) = check_content_type(request) {
                return response;
            }
            match parse::remove(request) {
                Ok(removals) => remove(now, &removals, request, query, rm, out, 200),
                Err(errors) => RestResponse::error(400, errors),
            }
        }
        Route::Put(key) => {
            if let Err(response) = check_content_type(request) {
                return response;
            }
            match parse::put(now, request, max_timeout, key.clone()) {
                Ok(item) => {
                    let is_new = rm.blocklist().item(&key).is_none();
                    add(now, vec![item], query, rm, out, Some(if is_new { 201 } else { 202 }))
                }
                Err(errors) => RestResponse::error(400, errors),
            }
        }
        Route::Delete(key) => {
            let removal = parse::Removal { key, action: None };
            remove(now, &[removal], request, query, rm, out, 204)
        }
    }
}

enum Route {
    List,
    Add,
    Remove,
    Put(ItemKey),
    Delete(ItemKey),
}

#[derive(Clone, Copy, Default)]
struct Query {
    force: bool,
    verbose: bool,
    ignore_missing: bool,
    dry_run: bool,
}

impl Query {
    fn parse(text: &str) -> Self {
        let has = |name: &str| text.split('&').any(|pair| pair.strip_prefix(name) == Some("=true"));
        Self {
            force: has("force"),
            verbose: has("verbose"),
            ignore_missing: has("ignoreMissing"),
            dry_run: has("dryRun"),
        }
    }
}

fn route(request: &RestRequest<'_>) -> Result<Route, RestResponse> {
    let not_allowed = |allow: &'static str| {
        let mut response = one(405, format!("{} is not allowed here; {allow} is", request.method));
        response.allow = Some(allow);
        response
    };
    match (request.path, request.method) {
        ("/blocklist", "GET") => return Ok(Route::List),
        ("/blocklist", _) => return Err(not_allowed("GET")),
        ("/blocklist/add", "POST") => return Ok(Route::Add),
        ("/blocklist/remove", "POST") => return Ok(Route::Remove),
        ("/blocklist/add" | "/blocklist/remove", _) => return Err(not_allowed("POST")),
        _ => {}
    }
    let nodes = |id| (ItemType::Node, id);
    let task_managers = |id| (ItemType::TaskManager, id);
    let alias = request
        .path
        .strip_prefix("/blocklist/nodes/")
        .map(nodes)
        .or_else(|| request.path.strip_prefix("/blocklist/taskmanagers/").map(task_managers));
    let Some((item_type, id)) = alias else {
        return Err(one(404, format!("there is nothing at {}", request.path)));
    };
    let bad = |error: InvalidIdentifier| one(400, format!("'{}': {error}", parse::shown(id)));
    let key = ItemKey::new(item_type, id).map_err(bad)?;
    match request.method {
        "PUT" => Ok(Route::Put(key)),
        "DELETE" => Ok(Route::Delete(key)),
        _ => Err(not_allowed("PUT, DELETE")),
    }
}

fn check_content_type(request: &RestRequest<'_>) -> Result<(), RestResponse> {
    let Some(content_type) = request.content_type else { return Ok(()) };
    let media = content_type.split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(one(415, format!("the content type must be application/json, not {}", parse::shown(media))))
}

fn add(
    now: Moment,
    items: Vec<NewItem>,
    query: Query,
    rm: &mut ResourceManager,
    out: &mut Vec<ResourceManagerOutput>,
    status: Option<u16>,
) -> RestResponse {
    let errors = if query.force { Vec::new() } else { over_the_caps(rm, &items) };
    if !errors.is_empty() {
        return RestResponse::error(409, errors);
    }
    let mut body = json!({});
    if query.verbose {
        let unknown = items.iter().filter(|item| !render::is_known(rm, &item.key));
        let warnings: Vec<String> =
            unknown.map(|item| format!("{} is not known (yet)", item.key)).collect();
        body = json!({ "warnings": warnings });
    }
    if query.dry_run {
        let keys: Vec<&ItemKey> = items.iter().map(|item| &item.key).collect();
        body["dryRun"] = render::dry_run(rm, &keys);
        return RestResponse::new(200, body);
    }
    let before: Vec<_> =
        items.iter().map(|item| rm.blocklist().item(&item.key).map(render::item)).collect();
    let asked = items.clone();
    rm.add_items(now, items, out);
    let mut response = RestResponse::new(status.unwrap_or(200), body);
    for (item, old) in asked.iter().zip(before) {
        let new = rm.blocklist().item(&item.key).map(render::item);
        response.audit.push(render::audit(now, "add", &item.key, &item.origin, old, new));
    }
    response
}

/// What is wrong with blocklisting the nodes of `items`, for each pool with too little room and for the fleet. Nothing
/// is while no node is known.
fn over_the_caps(rm: &ResourceManager, items: &[NewItem]) -> Vec<String> {
    if rm.blocklist().fleet().known_node_count() == 0 {
        return Vec::new();
    }
    let mut room = rm.blocklist().room();
    let mut over: BTreeMap<Option<NodePool>, (usize, usize)> = BTreeMap::new();
    for key in items.iter().map(|item| &item.key).filter(|key| key.node().is_some()) {
        if let Err(CapExceeded { pool, blocklisted, allowed, .. }) = room.take(key) {
            over.entry(pool).or_insert((blocklisted, allowed)).0 += 1;
        }
    }
    let error = |(pool, (wanted, allowed)): (Option<NodePool>, _)| {
        let pool = pool.filter(|pool| !pool.is_default());
        let of_pool = pool.map(|pool| format!(" of pool {pool}")).unwrap_or_default();
        format!(
            "{wanted} nodes{of_pool} would be blocklisted, at most {allowed} may be; ?force=true does it anyway"
        )
    };
    over.into_iter().map(error).collect()
}

fn remove(
    now: Moment,
    removals: &[parse::Removal],
    request: &RestRequest<'_>,
    query: Query,
    rm: &mut ResourceManager,
    out: &mut Vec<ResourceManagerOutput>,
    status: u16,
) -> RestResponse {
    let mut missing = Vec::new();
    let mut mismatched = Vec::new();
    let mut keys = Vec::new();
    for removal in removals {
        match rm.blocklist().item(&removal.key) {
            None => missing.push(format!("{} is not blocklisted", removal.key)),
            Some(item) if removal.action.is_some_and(|action| action != item.action) => {
                mismatched.push(format!(
                    "the action of {} is {}",
                    removal.key,
                    item.action.wire_name()
                ));
            }
            Some(_) => keys.push(removal.key.clone()),
        }
    }
    if !missing.is_empty() && !query.ignore_missing {
        return RestResponse::error(404, missing);
    }
    if !mismatched.is_empty() {
        return RestResponse::error(409, mismatched);
    }
    let removed = rm.remove_items(now, &keys, out);
    let mut response = RestResponse::new(status, json!({}));
    let by = super::item::Origin::Rest { principal: request.principal.into() };
    for item in removed {
        let old = Some(render::item(&item));
        response.audit.push(render::audit(now, "remove", &item.key, &by, old, None));
    }
    response
}

fn one(status: u16, error: String) -> RestResponse {
    RestResponse::error(status, [error])
}

/// The node of an alias path, for tests and clients.
pub fn node_path(node: &NodeId) -> String {
    format!("/blocklist/nodes/{node}")
}
