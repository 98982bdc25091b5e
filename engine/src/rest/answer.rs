//! What a request is answered with, before it is HTTP.

use serde_json::{Value, json};

/// The answer to a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Body,
    /// For 405: the methods that there are.
    pub(super) allow: Option<String>,
    /// For a change: a line for each thing that was changed.
    pub(super) audit: Vec<Value>,
}

/// A body with its type.
#[derive(Debug)]
pub(super) enum Body {
    Json(Value),
    Text(&'static str, String),
    None,
}

impl Answer {
    /// 200 with this body.
    pub(super) fn ok(body: Value) -> Self {
        Self::json(200, body)
    }

    pub(super) fn json(status: u16, body: Value) -> Self {
        Self { status, body: Body::Json(body), allow: None, audit: Vec::new() }
    }

    pub(super) fn text(content_type: &'static str, body: String) -> Self {
        Self { body: Body::Text(content_type, body), ..Self::json(200, Value::Null) }
    }

    /// An error in Flink's form.
    pub(super) fn error(status: u16, error: impl Into<String>) -> Self {
        Self::errors(status, vec![error.into()])
    }

    pub(super) fn errors(status: u16, errors: Vec<String>) -> Self {
        Self::json(status, json!({ "errors": errors }))
    }

    /// Leaves a line in the audit log.
    pub(super) fn audited(mut self, line: Value) -> Self {
        self.audit.push(line);
        self
    }
}
