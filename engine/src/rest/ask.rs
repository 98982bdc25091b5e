//! Asks the control thread, and waits for its answer without holding up the server's thread.

use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TryRecvError, bounded};

use super::answer::Answer;
use super::desk::Desk;
use crate::runtime::Request;

/// Time between two looks for the answer. The control thread answers on a channel that no future can wait for; it does so
/// within microseconds, and a look costs less than handing the wait to another thread.
const LOOK: Duration = Duration::from_millis(1);

/// The control thread's answer.
///
/// # Errors
/// 503 if the job is over, 504 if there is no answer in time. Then nothing is known: it may still do what it was asked.
pub(super) async fn ask<T>(
    desk: &Desk,
    request: impl FnOnce(Sender<T>) -> Request,
) -> Result<T, Answer> {
    let (promise, answer) = bounded(1);
    desk.endpoint.request(request(promise));
    let waited = tokio::time::timeout(desk.options.control_timeout, received(&answer)).await;
    match waited {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(Answer::error(503, "the job is over: nobody is there to answer")),
        Err(_) => {
            let millis = desk.options.control_timeout.as_millis();
            let text = format!("the job's control thread did not answer within {millis} ms");
            Err(Answer::error(504, text))
        }
    }
}

/// The answer; `None` if nobody is left to give one.
async fn received<T>(answer: &Receiver<T>) -> Option<T> {
    loop {
        match answer.try_recv() {
            Ok(found) => return Some(found),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => tokio::time::sleep(LOOK).await,
        }
    }
}
