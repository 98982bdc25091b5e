//! A coordinator with running tasks around it, for scenarios.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::coordinator::Coordinator;
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::{Ack, Fact, Input, Outcome, Output};
use crate::control::checkpoint::metadata::{Metadata, StateKinds, StateSummary};
use crate::control::checkpoint::options::SnapshotKind;
use crate::control::checkpoint::request::RequestId;
use crate::control::checkpoint::tasks::TaskState;
use crate::control::checkpoint::topology::{Edge, EdgeKind, Topology, Vertex};
use crate::id::{Attempt, AttemptId, CheckpointId, SubtaskId};

pub(super) use EdgeKind::{AllToAll, Pointwise};

/// In nanoseconds; just below a second, for intervals of a second and more.
const FIRST_DELAY: u64 = 999_999_999;

/// A handle with a name and the kinds it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) kinds: StateKinds,
}

impl StateSummary for State {
    fn kinds(&self) -> StateKinds {
        self.kinds
    }

    fn union_part(&self) -> Option<Self> {
        let kinds = StateKinds { union: true, ..StateKinds::default() };
        self.kinds.union.then(|| Self { name: format!("union of {}", self.name), kinds })
    }
}

fn state(name: &str, kinds: StateKinds) -> State {
    State { name: name.to_owned(), kinds }
}

pub(super) fn keyed(name: &str) -> State {
    state(name, StateKinds { keyed: true, ..StateKinds::default() })
}

pub(super) fn list(name: &str) -> State {
    state(name, StateKinds { list: true, ..StateKinds::default() })
}

pub(super) fn union(name: &str) -> State {
    state(name, StateKinds { union: true, ..StateKinds::default() })
}

pub(super) fn broadcast(name: &str) -> State {
    state(name, StateKinds { broadcast: true, ..StateKinds::default() })
}

/// Vertices 0, 1, ... of these parallelisms.
pub(super) fn topology(parallelism: &[u32], edges: &[(u32, u32, EdgeKind)]) -> Topology {
    let vertices = (0..).zip(parallelism).map(|(id, &count)| Vertex::new(id, count)).collect();
    let edges = edges.iter().map(|&(from, to, kind)| Edge::new(from, to, kind)).collect();
    Topology::new(vertices, edges).unwrap()
}

/// The first attempt of a task.
pub(super) fn task(vertex: u32, index: u32) -> AttemptId {
    AttemptId { subtask: SubtaskId::new(vertex, index), attempt: Attempt(0) }
}

pub(super) fn id(id: u64) -> CheckpointId {
    CheckpointId(id)
}

pub(super) fn ack(checkpoint: u64, task: AttemptId) -> Ack<State> {
    Ack::empty(CheckpointId(checkpoint), task)
}

/// An acknowledgement after the operators have finished, with nothing left to commit.
pub(super) fn last_ack(checkpoint: u64, task: AttemptId) -> Ack<State> {
    Ack { operators_finished: true, ..ack(checkpoint, task) }
}

pub(super) struct Rig {
    pub(super) coordinator: Coordinator<State>,
    pub(super) now: Timestamp,
    /// Ids are reserved, and discarded checkpoints reported gone, in the same step.
    pub(super) is_prompt: bool,
    requests: u64,
}

impl Rig {
    /// All tasks running; the first id is 1.
    pub(super) fn new(config: CoordinatorConfig, topology: Topology) -> Self {
        let mut rig = Self::created(config, topology.clone());
        for subtask in topology.subtasks() {
            let task = AttemptId { subtask, attempt: Attempt(0) };
            rig.send(Input::TaskState { task, state: TaskState::Running });
        }
        rig
    }

    /// No task deployed.
    pub(super) fn created(config: CoordinatorConfig, topology: Topology) -> Self {
        let coordinator =
            Coordinator::new(config, topology, CheckpointId(1), Vec::new(), FIRST_DELAY);
        Self { coordinator, now: Timestamp::ZERO, is_prompt: true, requests: 0 }
    }

    pub(super) fn default(topology: Topology) -> Self {
        Self::new(CoordinatorConfig::default(), topology)
    }

    pub(super) fn send(&mut self, input: Input<State>) -> Vec<Output<State>> {
        let mut all = Vec::new();
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut out = Vec::new();
            self.coordinator.handle(self.now, input, &mut out);
            for output in &out {
                match output {
                    Output::ReserveIds { below } if self.is_prompt => {
                        inputs.push(Input::IdReserved { below: *below });
                    }
                    Output::DiscardCheckpoint { checkpoint } if self.is_prompt => {
                        inputs.push(Input::Discarded { checkpoint: *checkpoint });
                    }
                    _ => {}
                }
            }
            all.append(&mut out);
        }
        all
    }

    pub(super) fn pass(&mut self, wait: Duration) -> Vec<Output<State>> {
        self.now = self.now + wait;
        self.send(Input::Tick)
    }

    pub(super) fn request(&mut self, kind: SnapshotKind) -> Vec<Output<State>> {
        self.requests += 1;
        self.send(Input::Request { request: RequestId(self.requests), kind })
    }

    pub(super) fn checkpoint(&mut self) -> Vec<Output<State>> {
        self.request(SnapshotKind::Checkpoint)
    }

    pub(super) fn savepoint(&mut self) -> Vec<Output<State>> {
        self.request(SnapshotKind::Savepoint)
    }

    pub(super) fn ack(&mut self, checkpoint: u64, task: AttemptId) -> Vec<Output<State>> {
        self.send(Input::Ack(ack(checkpoint, task)))
    }

    /// Everybody who is awaited acknowledges.
    pub(super) fn ack_all(&mut self, checkpoint: u64) -> Vec<Output<State>> {
        self.ack_all_with(|task| ack(checkpoint, task), checkpoint)
    }

    pub(super) fn ack_all_with(
        &mut self,
        make: impl Fn(AttemptId) -> Ack<State>,
        checkpoint: u64,
    ) -> Vec<Output<State>> {
        let awaited = self.awaited(checkpoint);
        awaited.into_iter().flat_map(|task| self.send(Input::Ack(make(task)))).collect()
    }

    pub(super) fn stored(&mut self, checkpoint: u64) -> Vec<Output<State>> {
        self.send(Input::StoreDone { checkpoint: CheckpointId(checkpoint) })
    }

    /// All acknowledge and the store answers.
    pub(super) fn complete(&mut self, checkpoint: u64) -> Vec<Output<State>> {
        let mut out = self.ack_all(checkpoint);
        out.extend(self.stored(checkpoint));
        out
    }

    pub(super) fn decline(&mut self, checkpoint: u64, task: AttemptId) -> Vec<Output<State>> {
        self.decline_for(checkpoint, task, FailureReason::Declined)
    }

    pub(super) fn decline_for(
        &mut self,
        checkpoint: u64,
        task: AttemptId,
        reason: FailureReason,
    ) -> Vec<Output<State>> {
        let checkpoint = CheckpointId(checkpoint);
        self.send(Input::Decline { checkpoint, task, reason, waiting: Vec::new() })
    }

    pub(super) fn state(&mut self, task: AttemptId, state: TaskState) -> Vec<Output<State>> {
        self.send(Input::TaskState { task, state })
    }

    pub(super) fn finish(&mut self, task: AttemptId) -> Vec<Output<State>> {
        self.send(Input::FinishRequest { task })
    }

    /// Sends end of data and awaits a checkpoint.
    pub(super) fn end(&mut self, task: AttemptId) -> Vec<Output<State>> {
        let mut out = self.send(Input::EndOfDataReached { task });
        out.extend(self.send(Input::AwaitsCheckpoint { task, since: None }));
        out
    }

    pub(super) fn pending(&self) -> Vec<u64> {
        self.coordinator.pending().map(|pending| pending.id.0).collect()
    }

    pub(super) fn awaited(&self, checkpoint: u64) -> Vec<AttemptId> {
        let mut all = self.coordinator.pending();
        let pending = all.find(|pending| pending.id.0 == checkpoint);
        pending.map(|pending| pending.awaited().collect()).unwrap_or_default()
    }
}

/// Who was triggered for which checkpoint.
pub(super) fn triggers(out: &[Output<State>]) -> Vec<(u64, AttemptId)> {
    out.iter()
        .filter_map(|output| match output {
            Output::Trigger { task, checkpoint, .. } => Some((checkpoint.0, *task)),
            _ => None,
        })
        .collect()
}

/// Who was told of which completion.
pub(super) fn completions(out: &[Output<State>]) -> Vec<(u64, AttemptId)> {
    out.iter()
        .filter_map(|output| match output {
            Output::NotifyComplete { task, checkpoint } => Some((checkpoint.0, *task)),
            _ => None,
        })
        .collect()
}

/// Who was told of which abort, and of which latest completion with it.
pub(super) fn aborts(out: &[Output<State>]) -> Vec<(u64, AttemptId, Option<u64>)> {
    out.iter()
        .filter_map(|output| match output {
            Output::NotifyAborted { task, checkpoint, latest } => {
                Some((checkpoint.0, *task, latest.map(|latest| latest.0)))
            }
            _ => None,
        })
        .collect()
}

/// Why which checkpoint, or a request without one, failed.
pub(super) fn failures(out: &[Output<State>]) -> Vec<(Option<u64>, FailureReason)> {
    out.iter()
        .filter_map(|output| match output {
            Output::Fact(Fact::Failed { checkpoint, reason, .. }) => {
                Some((checkpoint.map(|id| id.0), *reason))
            }
            _ => None,
        })
        .collect()
}

pub(super) fn outcomes(out: &[Output<State>]) -> Vec<Outcome> {
    out.iter()
        .filter_map(|output| match output {
            Output::Promise { outcome, .. } => Some(*outcome),
            _ => None,
        })
        .collect()
}

/// Who may finish.
pub(super) fn grants(out: &[Output<State>]) -> Vec<AttemptId> {
    out.iter()
        .filter_map(|output| match output {
            Output::PermitGranted { task } => Some(*task),
            _ => None,
        })
        .collect()
}

/// Which checkpoints are discarded.
pub(super) fn discarded(out: &[Output<State>]) -> Vec<u64> {
    out.iter()
        .filter_map(|output| match output {
            Output::DiscardCheckpoint { checkpoint } => Some(checkpoint.0),
            _ => None,
        })
        .collect()
}

/// Names of the states that are discarded.
pub(super) fn discarded_states(out: &[Output<State>]) -> Vec<String> {
    out.iter()
        .filter_map(|output| match output {
            Output::DiscardState { state, .. } => Some(state.name.clone()),
            _ => None,
        })
        .collect()
}

/// Whether each failure of the job allows a restart.
pub(super) fn job_failures(out: &[Output<State>]) -> Vec<bool> {
    out.iter()
        .filter_map(|output| match output {
            Output::FailJob { may_restart, .. } => Some(*may_restart),
            _ => None,
        })
        .collect()
}

/// What the store is to write.
pub(super) fn metadata(out: Vec<Output<State>>) -> Vec<Metadata<State>> {
    out.into_iter()
        .filter_map(|output| match output {
            Output::Finalize(metadata) => Some(metadata),
            _ => None,
        })
        .collect()
}

/// Small, seeded, and the same everywhere (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        u32::try_from((mixed >> 32) % u64::from(bound)).unwrap()
    }
}
