//! `/blocklist` and below: the answer is the control thread's; pages are cut here.

use serde_json::{Value, json};

use super::answer::{Answer, Body};
use super::ask::ask;
use super::desk::Desk;
use super::dispatch::Call;
use super::query::LIMIT_MAX;
use super::routes::Method;
use crate::runtime::{BlocklistCall, Request};

/// Lets the control thread answer.
pub(super) async fn answer(desk: &Desk, call: &Call) -> Result<Answer, Answer> {
    let request = BlocklistCall {
        method: call.method.name().to_owned(),
        path: call.path.clone(),
        query: call.query.flags(),
        content_type: call.content_type.clone(),
        body: call.body.clone(),
        principal: call.principal.to_owned(),
    };
    let response = ask(desk, |promise| Request::Blocklist(request, promise)).await?;
    let mut body = response.body;
    if call.method == Method::Get && response.status == 200 {
        page(call, &mut body);
    }
    Ok(Answer {
        status: response.status,
        body: if response.status == 204 { Body::None } else { Body::Json(body) },
        allow: response.allow.map(str::to_owned),
        audit: response.audit,
    })
}

/// Leaves what was asked for of both lists, and says so if that isn't all.
fn page(call: &Call, body: &mut Value) {
    let offset = call.query.number("offset").unwrap_or(0);
    let limit = call.query.number("limit").unwrap_or(LIMIT_MAX);
    let mut totals = [0, 0];
    let mut is_part = false;
    for (total, name) in totals.iter_mut().zip(["blocklistedTaskManagers", "blocklistedNodes"]) {
        let Some(list) = body[name].as_array_mut() else { continue };
        *total = list.len();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(list.len());
        list.drain(..from);
        list.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        is_part |= list.len() < *total;
    }
    if is_part {
        let [task_managers, nodes] = totals;
        body["total"] =
            json!({ "blocklistedTaskManagers": task_managers, "blocklistedNodes": nodes });
    }
}
