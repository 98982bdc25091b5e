//! A running job as another thread reaches it: a server, or a program that embeds the engine.

use std::sync::Arc;

use super::cluster::ClusterEvent;
use super::control::ControlEvent;
use super::control_queue::{ControlSender, control_queue};
#[cfg(feature = "rest")]
use super::request::BlocklistCall;
use super::request::{BlocklistFigures, Reply, Request, TaskManagerStatus};
use super::status::{JobStatus, Shared};
#[cfg(feature = "rest")]
use crate::control::blocklist::rest::RestResponse;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{ExecutionGraph, Plan};

/// Reaches one running job from any thread. Cheap to clone; it keeps nothing running.
#[derive(Clone)]
pub struct JobEndpoint {
    control: ControlSender,
    shared: Arc<Shared>,
    name: Arc<str>,
    plan: Arc<Plan>,
}

impl std::fmt::Debug for JobEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobEndpoint").field("name", &self.name).finish_non_exhaustive()
    }
}

impl JobEndpoint {
    pub(super) fn new(control: ControlSender, shared: Arc<Shared>, name: &str, plan: Plan) -> Self {
        Self { control, shared, name: name.into(), plan: Arc::new(plan) }
    }

    /// A job that was not started, since its store says that it has ended.
    pub(crate) fn already_ended(name: &str, graph: &ExecutionGraph) -> Self {
        let shared = Arc::new(Shared::of(name));
        shared.already_ended();
        let (nobody, _) = control_queue();
        Self::new(nobody, shared, name, Plan::new(graph))
    }

    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the job runs as.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The job's status at this moment.
    pub fn status(&self) -> JobStatus {
        self.shared.status()
    }

    /// The status that the job's threads write.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Sends the control thread a request, which it drops if the job is over.
    pub(crate) fn request(&self, request: Request) {
        self.control.send(ControlEvent::Request(request));
    }

    /// The job's task managers, by resource id.
    ///
    /// # Errors
    /// `Cancelled` if the job is over.
    pub fn task_managers(&self) -> Result<Vec<TaskManagerStatus>> {
        self.ask(Request::TaskManagers)
    }

    /// What happened in the job's cluster after the event of number `after` (0: since the start), oldest first. The last
    /// [`EVENTS_MAX`](super::EVENTS_MAX) events are kept.
    ///
    /// # Errors
    /// `Cancelled` if the job is over.
    pub fn events(&self, after: u64) -> Result<Vec<ClusterEvent>> {
        self.ask(|promise| Request::Events(after, promise))
    }

    /// Ends a task manager as if its machine had failed, to see what the job does about it. Whether there was one of that name.
    ///
    /// # Errors
    /// `Cancelled` if the job is over.
    pub fn lose_task_manager(&self, resource_id: &str) -> Result<bool> {
        self.ask(|promise| Request::LoseTaskManager(resource_id.to_owned(), promise))
    }

    /// Answers a request of the REST interface under `/blocklist`.
    ///
    /// # Errors
    /// `Cancelled` if the job is over.
    #[cfg(feature = "rest")]
    pub fn blocklist(&self, call: BlocklistCall) -> Result<RestResponse> {
        self.ask(|promise| Request::Blocklist(call, promise))
    }

    /// The figures of the blocklist.
    ///
    /// # Errors
    /// `Cancelled` if the job is over.
    pub fn blocklist_figures(&self) -> Result<BlocklistFigures> {
        self.ask(Request::BlocklistCounters)
    }

    /// Asks the control thread and waits for the answer.
    fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T> {
        let (promise, answer) = crossbeam::channel::bounded(1);
        self.request(request(Reply::Thread(promise)));
        loop {
            match answer.recv_timeout(LOOK_AGAIN) {
                Ok(answer) => return Ok(answer),
                Err(crossbeam::channel::RecvTimeoutError::Timeout)
                    if !self.shared.state().is_over() => {}
                Err(_) => {
                    let over = || Error::new(ErrorKind::Cancelled, "the job is over");
                    return answer.try_recv().map_err(|_| over());
                }
            }
        }
    }
}

/// How often a waiting call looks whether the job is over.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(50);
