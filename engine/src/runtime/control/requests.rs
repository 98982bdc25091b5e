//! What the host asks the control thread for.

use super::failing::Then;
use super::savepoint::Promise;
use super::{Control, Phase};
use crate::control::blocklist::cause::Cause;
use crate::control::checkpoint::message::Input;
use crate::control::checkpoint::options::SnapshotKind;
use crate::control::checkpoint::request::RequestId;
use crate::runtime::request::Request;
use crate::runtime::worker::Command;
use crate::task::Mail;

impl Control {
    pub(super) fn request(&mut self, request: Request) {
        match request {
            Request::Checkpoint(promise) => {
                if let Some(refusal) = self.refusal() {
                    let _ = promise.send(Err(refusal));
                    return;
                }
                let request = self.promised(Promise::Checkpoint(promise));
                self.decide(Input::Request { request, kind: SnapshotKind::Checkpoint });
            }
            Request::Savepoint(dir, promise) => self.savepoint(dir, promise),
            Request::StopWithSavepoint(dir, is_drain, promise) => {
                self.stop_with_savepoint(dir, is_drain, promise);
            }
            Request::Stop => {
                self.is_stopping = true;
                if !self.is_deployed() {
                    // Asked for again when the job runs.
                } else if self.options.checkpointed {
                    let request = RequestId(self.next_request);
                    self.next_request += 1;
                    self.decide(Input::Stop { request, is_drain: false });
                } else {
                    for (subtask, task) in &self.tasks {
                        if !self.vertices[subtask.vertex.0 as usize].sources.is_empty() {
                            let mail = Mail::Stop { drain: true };
                            self.cluster
                                .crew()
                                .post(task.worker, Command::Mail(task.attempt, mail));
                        }
                    }
                }
            }
            Request::Cancel => match self.phase {
                Phase::Over => {}
                Phase::Running | Phase::Cancelling { .. } => {
                    self.decide(Input::Cancel);
                    self.cancel_all(Then::Cancelled);
                }
            },
            #[cfg(feature = "rest")]
            Request::Blocklist(call, reply) => reply.send(self.cluster.call(&call)),
            Request::TaskManagers(reply) => reply.send(self.cluster.status()),
            Request::BlocklistCounters(reply) => reply.send(self.cluster.figures()),
            Request::Events(after, reply) => reply.send(self.cluster.events(after)),
            Request::LoseTaskManager(id, reply) => {
                let cause = Cause::new("TaskManagerLost", &format!("{id} is gone"));
                reply.send(self.cluster.lose(&id, self.labelled(cause)));
            }
        }
    }
}
