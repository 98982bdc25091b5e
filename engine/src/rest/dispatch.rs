//! From an HTTP request to an answer: the router, made from the table of routes, and what each request passes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::Router;
use axum::body::Body as HttpBody;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::routing::any;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Map, Value};

use super::answer::{Answer, Body};
use super::desk::Desk;
use super::query::{Query, shown};
use super::routes::{Method, Operation, ROUTES, Route};
use super::server::Seat;
use super::{
    blocklist, checkpoints, config, events, guard, health, jobs, metrics, openapi, task_managers,
    triggers,
};
use crate::control::blocklist::rest::BODY_BYTES_MAX;

/// More of a body that is too long is read than is used, so that the client, which may read nothing before it has written all, sees
/// the answer.
const DISCARDED_BYTES_MAX: usize = 8 << 20;

/// A request that may be answered.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) parameters: Vec<(String, String)>,
    pub(super) query: Query,
    pub(super) content_type: Option<String>,
    pub(super) body: Vec<u8>,
    /// Who asks.
    pub(super) principal: &'static str,
}

impl Call {
    /// A parameter of the path.
    pub(super) fn parameter(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// The body as an object; an empty one if there is no body.
    ///
    /// # Errors
    /// 400: it is none, or has other fields than `known`.
    pub(super) fn object(&self, known: &[&str]) -> Result<Map<String, Value>, Answer> {
        if self.body.trim_ascii().is_empty() {
            return Ok(Map::new());
        }
        match serde_json::from_slice(&self.body) {
            Ok(Value::Object(object)) => {
                match object.keys().find(|key| !known.contains(&key.as_str())) {
                    Some(key) => Err(Answer::error(400, format!("'{}' is unknown", shown(key)))),
                    None => Ok(object),
                }
            }
            Ok(_) => Err(Answer::error(400, "the body must be a JSON object")),
            Err(error) => Err(Answer::error(400, format!("the body is not JSON: {error}"))),
        }
    }
}

/// The router of all routes.
pub(super) fn router(desk: Arc<Desk>) -> Router {
    let mut paths: Vec<&'static str> = ROUTES.iter().map(|route| route.path).collect();
    paths.dedup();
    let mut router = Router::new();
    for path in paths {
        let desk = desk.clone();
        let handler = any(move |parameters: Result<RawPathParams, _>, request: Request| {
            let desk = desk.clone();
            async move {
                let parameters = parameters.ok().map(|found| {
                    found.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
                });
                respond(&desk, Some(path), parameters, request).await
            }
        });
        router = router.route(path, handler);
    }
    router.fallback(any(move |request: Request| {
        let desk = desk.clone();
        async move { respond(&desk, None, Some(Vec::new()), request).await }
    }))
}

/// Answers a request to one of our paths, or to none.
async fn respond(
    desk: &Desk,
    path: Option<&'static str>,
    parameters: Option<Vec<(String, String)>>,
    request: Request,
) -> Response<HttpBody> {
    desk.figures.requests.fetch_add(1, Relaxed);
    let seat = request.extensions().get::<Seat>().cloned();
    let answer = match read(desk, path, parameters, request).await {
        Ok((route, call)) => {
            if let Some(seat) = &seat {
                seat.is_busy();
            }
            let answer = perform(desk, route.operation, &call).await;
            if let Some(seat) = &seat {
                seat.is_idle();
            }
            answer.unwrap_or_else(|answer| answer)
        }
        Err(answer) => {
            desk.figures.refused.fetch_add(1, Relaxed);
            answer
        }
    };
    desk.figures.audit_lines_lost.fetch_add(desk.audit.write(&answer.audit), Relaxed);
    render(answer)
}

/// Checks a request and reads its body.
async fn read(
    desk: &Desk,
    path: Option<&'static str>,
    parameters: Option<Vec<(String, String)>>,
    request: Request,
) -> Result<(&'static Route, Call), Answer> {
    let (head, body) = request.into_parts();
    let principal = guard::check(desk, &head.uri, &head.headers)?;
    let Some(path) = path else {
        let text = format!("there is nothing at {}", shown(head.uri.path()));
        return Err(Answer::error(404, text));
    };
    let Some(parameters) = parameters else {
        return Err(Answer::error(400, "the path is not percent-encoded UTF-8"));
    };
    if parameters.iter().any(|(_, value)| !is_name(value)) {
        return Err(Answer::error(400, "the path names a folder or a slash where an id belongs"));
    }
    let method = Method::of(head.method.as_str());
    let mut here = ROUTES.iter().filter(|route| route.path == path);
    let Some(route) = here.clone().find(|route| Some(route.method) == method) else {
        let allowed: Vec<_> = here.by_ref().map(|route| route.method.name()).collect();
        let allowed = allowed.join(", ");
        let text = format!("{} is not allowed here; {allowed} is", shown(head.method.as_str()));
        return Err(Answer { allow: Some(allowed), ..Answer::error(405, text) });
    };
    let query = Query::parse(head.uri.query().unwrap_or_default(), route.query)?;
    let content_type = content_type(&head.headers)?;
    if route.body.is_some() {
        json_only(content_type.as_deref())?;
    }
    let reading = collect(body);
    let body = tokio::time::timeout(desk.options.body_timeout, reading)
        .await
        .map_err(|_| Answer::error(408, "the body did not come in time"))??;
    if route.body.is_none() && !body.is_empty() {
        return Err(Answer::error(400, "a request like this has no body"));
    }
    let mut decoded = path.to_owned();
    for (name, value) in &parameters {
        decoded = decoded.replace(&format!("{{{name}}}"), value);
    }
    let method = route.method;
    Ok((route, Call { method, path: decoded, parameters, query, content_type, body, principal }))
}

/// Whether a part of a path can be an id: it leads nowhere else.
fn is_name(value: &str) -> bool {
    !matches!(value, "" | "." | "..")
        && !value.contains(['/', '\\'])
        && !value.contains(char::is_control)
}

fn content_type(headers: &HeaderMap) -> Result<Option<String>, Answer> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(None) };
    match value.to_str() {
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(Answer::error(415, "the content type must be application/json")),
    }
}

fn json_only(content_type: Option<&str>) -> Result<(), Answer> {
    let Some(content_type) = content_type else { return Ok(()) };
    let media = content_type.split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let text = format!("the content type must be application/json, not {}", shown(media));
    Err(Answer::error(415, text))
}

/// The body, if it is not too long.
async fn collect(body: HttpBody) -> Result<Vec<u8>, Answer> {
    let mut body = Limited::new(body, DISCARDED_BYTES_MAX);
    let (mut bytes, mut length) = (Vec::new(), 0);
    let too_long = || Answer::error(413, format!("the body is longer than {BODY_BYTES_MAX} bytes"));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            if error.is::<LengthLimitError>() {
                return too_long();
            }
            Answer::error(400, "the body is broken off or badly framed")
        })?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len();
        if length <= BODY_BYTES_MAX {
            bytes.extend_from_slice(&data);
        }
    }
    if length > BODY_BYTES_MAX { Err(too_long()) } else { Ok(bytes) }
}

/// Does what a route is for. Either way it is the answer.
async fn perform(desk: &Desk, operation: Operation, call: &Call) -> Result<Answer, Answer> {
    match operation {
        Operation::Blocklist => blocklist::answer(desk, call).await,
        Operation::Jobs => Ok(jobs::list(desk, call)),
        Operation::JobsOverview => Ok(jobs::overview(desk, call)),
        Operation::Job => jobs::one(desk, call),
        Operation::Plan => jobs::plan(desk, call),
        Operation::Cancel => jobs::cancel(desk, call),
        Operation::Checkpoints => checkpoints::list(desk, call),
        Operation::TakeCheckpoint => triggers::checkpoint(desk, call),
        Operation::TakeSavepoint => triggers::savepoint(desk, call),
        Operation::Stop => triggers::stop(desk, call),
        Operation::Trigger => triggers::status(desk, call),
        Operation::TaskManagers => task_managers::list(desk, call).await,
        Operation::TaskManager => task_managers::one(desk, call).await,
        Operation::Events => events::list(desk, call).await,
        Operation::Config => Ok(config::list(desk)),
        Operation::Health => Ok(health::health(desk)),
        Operation::Metrics => metrics::answer(desk).await,
        Operation::OpenApi => Ok(Answer::ok(openapi::description(desk.endpoint.name()))),
    }
}

fn render(answer: Answer) -> Response<HttpBody> {
    let (content_type, body) = match answer.body {
        Body::Json(value) => (Some("application/json"), value.to_string()),
        Body::Text(content_type, text) => (Some(content_type), text),
        Body::None => (None, String::new()),
    };
    let mut response = Response::new(HttpBody::from(body));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).expect("our statuses have three digits");
    let headers = response.headers_mut();
    if let Some(content_type) = content_type {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(allow) = answer.allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
        headers.insert(header::ALLOW, allow);
    }
    if answer.status == 401 {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
