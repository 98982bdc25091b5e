//! Between job master and coordinator: what each is told of the other's doing, and what a restart must leave out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate::control::checkpoint::failure::FailureReason;
use tidegate::control::checkpoint::message::{Ack, Fact, Input, Output, Restored};
use tidegate::control::checkpoint::restore::Restoration;
use tidegate::control::checkpoint::tasks::TaskState;
use tidegate::control::execution::ExecutionState;
use tidegate::control::job_master::JobMasterInput;
use tidegate::id::{AttemptId, CheckpointId};

use super::super::message::{Event, Message, Order, Progress, Stored};
use super::super::net::Net;
use super::super::reach::Race;
use super::{Handle, Job, Work};

impl Job {
    /// What attempts tell the coordinator counts only while they are believed to run.
    pub(super) fn progress(&mut self, net: &mut Net, task: AttemptId, progress: Progress) {
        let execution = self.master.executions().current(task);
        if !execution.is_some_and(|e| matches!(e.state, ExecutionState::Running(_))) {
            return;
        }
        let input = match progress {
            Progress::Running => Input::TaskState { task, state: TaskState::Running },
            Progress::Stored(checkpoint, operators_finished, holds_uncommitted) => {
                Input::Ack(Ack {
                    operators: vec![Some(Handle)],
                    operators_finished,
                    holds_uncommitted,
                    ..Ack::empty(checkpoint, task)
                })
            }
            Progress::Declined(checkpoint) => {
                let reason = FailureReason::Declined;
                Input::Decline { checkpoint, task, reason, waiting: Vec::new() }
            }
            Progress::AtEnd => Input::EndOfDataReached { task },
            Progress::Awaits => Input::AwaitsCheckpoint { task, since: None },
            Progress::Goes => Input::AwaitWithdrawn { task },
            Progress::Leaves => Input::FinishRequest { task },
        };
        self.run(net, Work::Coordinator(input));
    }

    /// The store answers.
    pub fn stored(&mut self, net: &mut Net, stored: Stored) {
        let input = match stored {
            Stored::Reserved(below) => Input::IdReserved { below },
            Stored::Done(checkpoint) => Input::StoreDone { checkpoint },
            Stored::Failed(checkpoint) => Input::StoreFailed { checkpoint, is_outcome_known: true },
            Stored::Discarded(checkpoint) => Input::Discarded { checkpoint },
        };
        self.run(net, Work::Coordinator(input));
    }

    pub(super) fn restore(
        &mut self,
        net: &mut Net,
        attempts: BTreeSet<AttemptId>,
        todo: &mut VecDeque<Work>,
    ) {
        let restored = self.restoration.as_ref();
        let finished = restored.map(|r| r.left_out.clone()).unwrap_or_default();
        let failing = std::mem::take(&mut self.failing);
        let left_out: Vec<_> = failing.intersection(&finished).copied().collect();
        let subtasks: BTreeSet<_> = attempts.iter().map(|id| id.subtask).collect();
        if let Some(again) = subtasks.intersection(&finished).next() {
            net.violate(|| {
                format!("{again} has finished in the restored checkpoint and runs again")
            });
        }
        let all: BTreeSet<_> = subtasks.iter().chain(&left_out).copied().collect();
        if !failing.is_empty() && all != failing {
            net.violate(|| format!("{failing:?} restart, but {all:?} are restored"));
        }
        if !left_out.is_empty() {
            net.meet(Race::LeftOut);
        }
        for subtask in &left_out {
            self.deployed.remove(subtask);
        }
        let restored = Restored {
            checkpoint: self.restoration.as_ref().map(|r| r.checkpoint),
            tasks: attempts.into_iter().collect(),
            left_out,
            contributions: BTreeMap::new(),
        };
        todo.push_back(Work::Coordinator(Input::Restored(restored)));
    }

    pub(super) fn coordinator(
        &mut self,
        net: &mut Net,
        input: Input<Handle>,
        todo: &mut VecDeque<Work>,
    ) {
        net.tell(|| format!("coordinator {} is told {input:?}", self.index));
        let mut out = Vec::new();
        self.coordinator.handle(net.moment().mono, input, &mut out);
        for output in out {
            self.obey(net, output, todo);
        }
    }

    pub(super) fn order(&self, net: &mut Net, task: AttemptId, order: Order) {
        if let Some((attempt, task_manager)) = self.deployed.get(&task.subtask)
            && *attempt == task
        {
            self.send(net, task_manager, Message::Order(task, order));
        }
    }

    pub(super) fn obey(
        &mut self,
        net: &mut Net,
        output: Output<Handle>,
        todo: &mut VecDeque<Work>,
    ) {
        match output {
            Output::Trigger { task, checkpoint, .. } => {
                self.order(net, task, Order::Trigger(checkpoint));
            }
            Output::NotifyComplete { task, checkpoint } => {
                self.order(net, task, Order::Complete(checkpoint));
            }
            Output::NotifyAborted { task, checkpoint, latest } => {
                self.order(net, task, Order::Aborted(checkpoint));
                if let Some(latest) = latest {
                    self.order(net, task, Order::Complete(latest));
                }
            }
            Output::NotifySubsumed { .. }
            | Output::PermitHold { .. }
            | Output::DiscardState { .. }
            | Output::Promise { .. } => {}
            Output::PermitGranted { task } => self.order(net, task, Order::Permit),
            Output::ReserveIds { below } => {
                net.within(1, 50, Event::Store(self.index, Stored::Reserved(below)));
            }
            Output::Finalize(metadata) => {
                let id = metadata.checkpoint;
                let fails = !net.is_healed && net.dice.chance(1, 12);
                self.finalizing.insert(id, metadata);
                let answer = if fails { Stored::Failed(id) } else { Stored::Done(id) };
                let most = if net.dice.chance(1, 4) { 3000 } else { 100 };
                net.within(1, most, Event::Store(self.index, answer));
            }
            Output::DiscardCheckpoint { checkpoint } => {
                net.within(1, 50, Event::Store(self.index, Stored::Discarded(checkpoint)));
            }
            Output::FailJob { reason, .. } => {
                net.violate(|| format!("the coordinator fails the job: {reason:?}"));
            }
            Output::Fact(Fact::Completed { checkpoint, .. }) => {
                self.completed(net, checkpoint, todo);
            }
            Output::Fact(Fact::Failed { .. }) => {
                todo.push_back(Work::Master(JobMasterInput::CheckpointFailed));
            }
            Output::Fact(_) => {}
        }
    }

    pub(super) fn completed(
        &mut self,
        net: &mut Net,
        checkpoint: CheckpointId,
        todo: &mut VecDeque<Work>,
    ) {
        let Some(metadata) = self.finalizing.remove(&checkpoint) else {
            return net.violate(|| format!("{checkpoint:?} is complete and was never written"));
        };
        self.finalizing.retain(|id, _| *id > checkpoint);
        match Restoration::new(&self.topology, &metadata) {
            Ok(restoration) => {
                if self.believed.values().any(|b| b.covered_since.is_some()) {
                    net.meet(Race::CheckpointDuringEvacuation);
                }
                if !self.failing.is_empty() {
                    net.meet(Race::FinishedWhileRestarting);
                }
                let finished = restoration.left_out.clone();
                self.restoration = Some(restoration);
                // Whoever restarts from it must know it first.
                todo.push_front(Work::Master(JobMasterInput::CheckpointCompleted { finished }));
            }
            Err(error) => net.violate(|| format!("{checkpoint:?} can't be restored: {error}")),
        }
    }
}
