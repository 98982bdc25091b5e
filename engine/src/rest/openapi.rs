//! The description of the interface (OpenAPI 3.1), made from the table that routes.

use serde_json::{Map, Value, json};

use super::query::Kind;
use super::routes::{Method, Operation, ROUTES, Route};
use super::schemas::{id, schemas};

/// What every route may answer, whatever is asked of it.
const COMMON: &[(u16, &str)] = &[
    (400, "the request is malformed: its query, path, body or framing"),
    (401, "the request does not bear the token"),
    (403, "the request was sent to, or from, another site"),
    (405, "another method is allowed here"),
    (408, "the body did not come in time"),
    (413, "the body is longer than 1 MiB"),
    (414, "the path is too long"),
    (415, "the body is no JSON by its content type"),
    (431, "the head is longer than 16 KiB, or has more than 64 headers"),
];

/// The description; the example of a job is that one.
pub(super) fn description(job: &str) -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let of_path = paths.entry(route.path).or_insert_with(|| json!({}));
        of_path[method(route.method)] = operation(route, job);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "description": "The REST interface of a running Tidegate job",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{}, { "token": [] }],
    })
}

fn method(method: Method) -> &'static str {
    match method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Put => "put",
        Method::Patch => "patch",
        Method::Delete => "delete",
    }
}

fn operation(route: &Route, job: &str) -> Value {
    let mut parameters: Vec<Value> = parameters_of(route.path)
        .map(|name| {
            let schema = match name {
                "id" => id(),
                "trigger" => json!({ "type": "string", "pattern": "^[0-9a-f]{32}$" }),
                _ => json!({ "type": "string", "minLength": 1 }),
            };
            let mut parameter =
                json!({ "name": name, "in": "path", "required": true, "schema": schema });
            // Whoever tries the examples should not stop the job.
            if name == "job" && route.body.is_none() && route.operation != Operation::Cancel {
                parameter["example"] = json!(job);
            }
            parameter
        })
        .collect();
    parameters.extend(route.query.iter().map(|parameter| {
        let schema = match parameter.kind {
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Number(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            Kind::Word(words) => json!({ "type": "string", "enum": words }),
        };
        json!({
            "name": parameter.name, "in": "query", "required": parameter.is_required,
            "description": parameter.help, "schema": schema,
        })
    }));
    let mut responses = Map::new();
    for (status, text) in COMMON {
        responses.insert(status.to_string(), response(text, Some("Errors")));
    }
    for (status, schema) in route.answers {
        responses.insert(status.to_string(), response(meaning(*status), *schema));
    }
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some((schema, is_required)) = route.body {
        operation["requestBody"] = json!({ "required": is_required, "content": { "application/json": { "schema": of(schema) } } });
    }
    operation
}

/// The names in braces.
fn parameters_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn response(text: &str, schema: Option<&str>) -> Value {
    match schema {
        None => json!({ "description": text }),
        Some("text") => json!({
            "description": text,
            "content": { super::metrics::CONTENT_TYPE: { "schema": { "type": "string" } } },
        }),
        Some(schema) => json!({
            "description": text,
            "content": { "application/json": { "schema": of(schema) } },
        }),
    }
}

fn of(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn meaning(status: u16) -> &'static str {
    match status {
        200 => "done",
        201 => "it is new",
        202 => "accepted, or merged with what is there",
        204 => "done",
        404 => "it is not there, or the mechanism is off",
        409 => "it is not in the state that the request takes for granted",
        429 => "too many of these are under way",
        503 => "the job is over",
        504 => "the control thread did not answer in time",
        _ => "an error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_described_and_each_reference_leads_somewhere() {
        let description = description("flights");
        for route in ROUTES {
            let found = &description["paths"][route.path][method(route.method)];
            assert_eq!(found["operationId"], route.id);
        }
        let text = description.to_string();
        let mut count = 0;
        for rest in text.split("#/components/schemas/").skip(1) {
            let name = rest.split('"').next().unwrap_or_default();
            assert!(description["components"]["schemas"][name].is_object(), "{name}");
            count += 1;
        }
        assert!(count > 200, "{count}");
    }
}
