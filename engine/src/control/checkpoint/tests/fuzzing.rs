//! Any input in any order: the machine keeps its invariants and tells every user one outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::rig::{AllToAll, Pointwise, Random, State, ack, keyed, topology};
use crate::clock::Timestamp;
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::coordinator::Coordinator;
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::{Ack, Input, Output, Restored};
use crate::control::checkpoint::options::{CheckpointMode, SnapshotKind};
use crate::control::checkpoint::request::RequestId;
use crate::control::checkpoint::tasks::TaskState;
use crate::id::{Attempt, AttemptId, CheckpointId, SubtaskId};

const SUBTASKS: [(u32, u32); 5] = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)];

struct Fuzz {
    coordinator: Coordinator<State>,
    random: Random,
    now: Timestamp,
    attempts: BTreeMap<SubtaskId, u32>,
    promised: BTreeSet<RequestId>,
    discards: Vec<CheckpointId>,
    requests: u64,
    triggered: u64,
    completed: usize,
}

impl Fuzz {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let milliseconds = |random: &mut Random| Duration::from_millis(random.below(50).into());
        let unaligned = CheckpointMode::ExactlyOnceUnaligned { aligned_timeout: None };
        let (mode, max_concurrent) = match random.below(3) {
            0 => (unaligned, 1),
            more => (CheckpointMode::ExactlyOnce, more as usize),
        };
        let config = CoordinatorConfig {
            mode,
            interval: (random.below(2) == 0).then(|| milliseconds(&mut random)),
            timeout: Duration::from_millis(150),
            min_pause: milliseconds(&mut random),
            max_concurrent,
            tolerable_failed: Some(random.below(3)),
            num_retained: 1 + random.below(2) as usize,
            queue_max: 1 + random.below(4) as usize,
            ..CoordinatorConfig::default()
        };
        let graph = topology(&[2, 2, 1], &[(0, 1, Pointwise), (1, 2, AllToAll)]);
        let coordinator = Coordinator::new(config, graph, CheckpointId(1), Vec::new(), seed);
        Self {
            coordinator,
            random,
            now: Timestamp::ZERO,
            attempts: BTreeMap::new(),
            promised: BTreeSet::new(),
            discards: Vec::new(),
            requests: 0,
            triggered: 0,
            completed: 0,
        }
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random.below(bound)
    }

    fn subtask(&mut self) -> SubtaskId {
        let (vertex, index) = SUBTASKS[self.below(5) as usize];
        SubtaskId::new(vertex, index)
    }

    /// Mostly a current attempt.
    fn task(&mut self) -> AttemptId {
        let subtask = self.subtask();
        let attempt = self.attempts.get(&subtask).copied().unwrap_or(0);
        let attempt = if self.below(20) == 0 { attempt.saturating_sub(1) } else { attempt };
        AttemptId { subtask, attempt: Attempt(attempt) }
    }

    /// Mostly a pending one.
    fn checkpoint(&mut self) -> CheckpointId {
        let pending: Vec<_> = self.coordinator.pending().map(|pending| pending.id).collect();
        let count = u32::try_from(pending.len()).unwrap();
        if count == 0 || self.below(10) == 0 {
            return CheckpointId(self.below(20).into());
        }
        pending[self.below(count) as usize]
    }

    fn state(&mut self) -> TaskState {
        match self.below(200) {
            0 => TaskState::Failed,
            1 => TaskState::Canceling,
            2 => TaskState::Finished,
            3 => TaskState::Initializing,
            _ => TaskState::Running,
        }
    }

    fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests)
    }

    fn input(&mut self) -> Input<State> {
        match self.below(24) {
            0 => Input::Request { request: self.request(), kind: SnapshotKind::Savepoint },
            1 => Input::Request { request: self.request(), kind: SnapshotKind::Checkpoint },
            2 if self.below(8) == 0 => Input::Stop { request: self.request(), is_drain: true },
            3..6 => Input::TaskState { task: self.task(), state: self.state() },
            6..13 => {
                let task = self.task();
                Input::Ack(Ack {
                    operators: vec![Some(keyed("state"))],
                    operators_finished: self.below(2) == 0,
                    ..ack(self.checkpoint().0, task)
                })
            }
            13 if self.below(4) == 0 => Input::Decline {
                checkpoint: self.checkpoint(),
                task: self.task(),
                reason: FailureReason::ALL[self.below(24) as usize],
                waiting: Vec::new(),
            },
            14 if self.below(4) == 0 => Input::FinishRequest { task: self.task() },
            15 => Input::AwaitsCheckpoint { task: self.task(), since: None },
            16 => Input::AwaitWithdrawn { task: self.task() },
            17 => Input::EndOfDataReached { task: self.task() },
            18 => Input::StoreDone { checkpoint: self.checkpoint() },
            19 => {
                let (checkpoint, is_outcome_known) = (self.checkpoint(), self.below(2) == 0);
                Input::StoreFailed { checkpoint, is_outcome_known }
            }
            20 if self.below(10) == 0 => Input::ReserveFailed,
            20 => Input::IdReserved { below: CheckpointId(self.triggered + 3) },
            21 => Input::Discarded { checkpoint: self.discards.pop().unwrap_or_default() },
            22 if self.below(10) == 0 => Input::Failover { tasks: vec![self.subtask()] },
            23 if self.below(10) == 0 => self.restore(),
            _ => Input::Tick,
        }
    }

    fn restore(&mut self) -> Input<State> {
        let mut tasks = Vec::new();
        for (vertex, index) in SUBTASKS {
            let subtask = SubtaskId::new(vertex, index);
            let attempt = self.attempts.entry(subtask).or_default();
            *attempt += 1;
            tasks.push(AttemptId { subtask, attempt: Attempt(*attempt) });
        }
        let checkpoint = self.coordinator.retained().latest();
        let (left_out, contributions) = (Vec::new(), BTreeMap::new());
        Input::Restored(Restored { checkpoint, tasks, left_out, contributions })
    }

    fn send(&mut self, input: Input<State>) {
        let mut out = Vec::new();
        self.coordinator.handle(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Trigger { task, checkpoint, .. } => {
                    let known = self.coordinator.tasks().get(task.subtask);
                    assert!(known.attempt == Some(task.attempt) && known.is_running());
                    self.triggered = self.triggered.max(checkpoint.0);
                }
                Output::DiscardCheckpoint { checkpoint } => self.discards.push(checkpoint),
                Output::NotifyComplete { .. } => self.completed += 1,
                Output::Promise { request, .. } => {
                    assert!(self.promised.insert(request), "{request:?} has two outcomes");
                }
                _ => {}
            }
        }
    }

    fn run(&mut self) {
        for (vertex, index) in SUBTASKS {
            let task = AttemptId { subtask: SubtaskId::new(vertex, index), attempt: Attempt(0) };
            self.send(Input::TaskState { task, state: TaskState::Running });
        }
        for _ in 0..300 {
            self.now = self.now + Duration::from_micros(self.random.below(2000).into());
            let input = self.input();
            self.send(input);
        }
        self.send(Input::Shutdown);
        let all = (1..=self.requests).map(RequestId).collect::<BTreeSet<_>>();
        assert_eq!(self.promised, all, "everybody is told");
    }
}

#[test]
fn any_input_in_any_order_keeps_the_invariants_and_every_request_has_one_outcome() {
    let mut completed = 0;
    for seed in 0..5_000 {
        let mut fuzz = Fuzz::new(seed);
        fuzz.run();
        completed += fuzz.completed;
    }
    assert!(completed > 3_000, "{completed} notices of completion");
}
