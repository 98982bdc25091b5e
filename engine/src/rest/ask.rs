//! Asks the control thread, and waits for its answer without holding up the server's thread.

use tokio::sync::oneshot;

use super::answer::Answer;
use super::desk::Desk;
use crate::runtime::{Reply, Request};

/// The control thread's answer.
///
/// # Errors
/// 503 if the job is over, 504 if there is no answer in time. Then nothing is known: it may still do what it was asked.
pub(super) async fn ask<T>(
    desk: &Desk,
    request: impl FnOnce(Reply<T>) -> Request,
) -> Result<T, Answer> {
    let (reply, answer) = oneshot::channel();
    desk.endpoint.request(request(Reply::Server(reply)));
    match tokio::time::timeout(desk.options.control_timeout, answer).await {
        Ok(Ok(found)) => Ok(found),
        // It is dropped with the control thread's queue.
        Ok(Err(_)) => Err(Answer::error(503, "the job is over: nobody is there to answer")),
        Err(_) => {
            let millis = desk.options.control_timeout.as_millis();
            let text = format!("the job's control thread did not answer within {millis} ms");
            Err(Answer::error(504, text))
        }
    }
}
