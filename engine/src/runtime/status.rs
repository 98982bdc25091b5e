//! What a job tells about itself while it runs: written by the control thread, read by anyone.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::Clock;
#[cfg(feature = "tracing")]
use super::trace::Moment;
use crate::clock::EpochMillis;
use crate::id::{CheckpointId, SubtaskId};
use crate::metrics::{Counter, LatencySnapshot, TaskFigures, TaskMetrics};

/// Where a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobState {
    /// Tasks are being made.
    #[default]
    Starting,
    /// All tasks run, or have finished.
    Running,
    /// A failure is being dealt with.
    Restarting,
    /// All tasks have finished.
    Finished,
    /// It failed for good.
    Failed,
    /// It was cancelled, or stopped.
    Cancelled,
}

impl JobState {
    /// Whether nothing more will happen.
    pub fn is_over(self) -> bool {
        match self {
            Self::Finished | Self::Failed | Self::Cancelled => true,
            Self::Starting | Self::Running | Self::Restarting => false,
        }
    }
}

/// One completed checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointStats {
    /// Which.
    pub id: CheckpointId,
    /// When it was triggered.
    pub triggered_at: EpochMillis,
    /// From trigger to durable.
    pub duration: Duration,
    /// The longest alignment of any task.
    pub alignment: Duration,
    /// Bytes written.
    pub bytes: u64,
}

/// One subtask.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TaskStatus {
    /// Which.
    pub subtask: SubtaskId,
    /// Its vertex's name.
    pub vertex: Arc<str>,
    /// Its counters.
    pub figures: TaskFigures,
}

/// A job's status.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobStatus {
    /// Where the job is.
    pub state: JobState,
    /// When it was started in this process.
    pub started_at: EpochMillis,
    /// Since when it is where it is.
    pub state_since: EpochMillis,
    /// Whether it had ended before: nothing was done.
    pub already_ended: bool,
    /// How often it was restarted.
    pub restarts: u32,
    /// The latest checkpoint that was triggered and is neither complete nor given up, with the moment of its trigger.
    pub checkpoint_under_way: Option<(CheckpointId, EpochMillis)>,
    /// Completed checkpoints, oldest first; the last [`CHECKPOINTS_MAX`] of them.
    pub checkpoints: Vec<CheckpointStats>,
    /// How many checkpoints have completed.
    pub checkpoints_completed: u64,
    /// How many checkpoints failed, were declined or timed out.
    pub checkpoints_failed: u64,
    /// Why the last of those failed that had begun; else why one could not begin.
    pub last_checkpoint_failure: Option<String>,
    /// What made it restart or fail last.
    pub last_failure: Option<String>,
    /// The subtasks of the current attempt.
    pub tasks: Vec<TaskStatus>,
    /// End-to-end latency by latency markers.
    pub latency: LatencySnapshot,
    /// Time of each step in snapshot code.
    pub snapshot_steps: LatencySnapshot,
    /// Bytes of records in flight that were written through a mapping.
    pub spilled_mapped_bytes: u64,
}

/// A job's counters, without the lists of its status.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobMetrics {
    /// The subtasks of the current attempt.
    pub tasks: Vec<TaskStatus>,
    /// End-to-end latency by latency markers.
    pub latency: LatencySnapshot,
    /// Time of each step in snapshot code.
    pub snapshot_steps: LatencySnapshot,
    /// Bytes of records in flight that were written through a mapping.
    pub spilled_mapped_bytes: u64,
}

/// How many completed checkpoints a status lists.
pub const CHECKPOINTS_MAX: usize = 1000;

/// The status as it is kept.
#[derive(Debug, Default)]
pub(super) struct Board {
    pub(super) state: JobState,
    started_at: EpochMillis,
    state_since: EpochMillis,
    pub(super) already_ended: bool,
    pub(super) restarts: u32,
    pub(super) checkpoint_under_way: Option<(CheckpointId, EpochMillis)>,
    pub(super) checkpoints: Vec<CheckpointStats>,
    pub(super) checkpoints_completed: u64,
    pub(super) checkpoints_failed: u64,
    pub(super) last_checkpoint_failure: Option<String>,
    pub(super) last_failure: Option<String>,
    pub(super) tasks: Vec<(SubtaskId, Arc<str>, Arc<TaskMetrics>)>,
    /// How often the rest was changed.
    changes: u64,
}

/// The status of one job, shared by its control thread and its handles.
#[derive(Debug, Default)]
pub struct Shared {
    board: Mutex<Board>,
    changed: Condvar,
    spilled: Counter,
    #[cfg(feature = "tracing")]
    job: String,
}

impl Shared {
    /// The status of the job of that name, which is about to start.
    #[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "only events name it"))]
    pub(super) fn of(job: &str) -> Self {
        let now = Clock::wall();
        Self {
            board: Mutex::new(Board { started_at: now, state_since: now, ..Board::default() }),
            #[cfg(feature = "tracing")]
            job: job.to_owned(),
            ..Self::default()
        }
    }

    /// Changes the status and wakes who waits for a change.
    pub(super) fn update(&self, change: impl FnOnce(&mut Board)) {
        let mut board = self.lock();
        #[cfg(feature = "tracing")]
        let before = Moment::of(&board);
        let state = board.state;
        change(&mut board);
        board.changes += 1;
        if board.state != state {
            board.state_since = Clock::wall();
        }
        #[cfg(feature = "tracing")]
        let happened = before.until(&board);
        drop(board);
        self.changed.notify_all();
        #[cfg(feature = "tracing")]
        happened.into_iter().for_each(|happened| happened.tell(&self.job));
    }

    /// The job had ended before it was started.
    pub(crate) fn already_ended(&self) {
        self.update(|board| {
            board.state = JobState::Finished;
            board.already_ended = true;
        });
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes in flight that were written through a mapping.
    pub(super) fn spilled(&self) -> &Counter {
        &self.spilled
    }

    /// Where the job is.
    pub fn state(&self) -> JobState {
        self.lock().state
    }

    /// The whole status.
    pub fn status(&self) -> JobStatus {
        let board = self.lock();
        let JobMetrics { tasks, latency, snapshot_steps, spilled_mapped_bytes } =
            self.metrics_of(&board);
        JobStatus {
            state: board.state,
            started_at: board.started_at,
            state_since: board.state_since,
            already_ended: board.already_ended,
            restarts: board.restarts,
            checkpoint_under_way: board.checkpoint_under_way,
            checkpoints: board.checkpoints.clone(),
            checkpoints_completed: board.checkpoints_completed,
            checkpoints_failed: board.checkpoints_failed,
            last_checkpoint_failure: board.last_checkpoint_failure.clone(),
            last_failure: board.last_failure.clone(),
            tasks,
            latency,
            snapshot_steps,
            spilled_mapped_bytes,
        }
    }

    /// The counters.
    pub fn metrics(&self) -> JobMetrics {
        self.metrics_of(&self.lock())
    }

    fn metrics_of(&self, board: &Board) -> JobMetrics {
        let (mut latency, mut snapshot_steps) = Default::default();
        let mut tasks = Vec::with_capacity(board.tasks.len());
        for (subtask, vertex, metrics) in &board.tasks {
            metrics.add_latency_to(&mut latency);
            metrics.add_snapshot_steps_to(&mut snapshot_steps);
            let (subtask, vertex) = (*subtask, vertex.clone());
            tasks.push(TaskStatus { subtask, vertex, figures: metrics.figures() });
        }
        JobMetrics { tasks, latency, snapshot_steps, spilled_mapped_bytes: self.spilled.get() }
    }

    /// Waits until there were more than `seen` changes or the time is over; how many there were.
    pub(crate) fn wait_change(&self, seen: u64, timeout: Duration) -> u64 {
        let board = self.lock();
        let (board, _) = self
            .changed
            .wait_timeout_while(board, timeout, |board| board.changes <= seen)
            .unwrap_or_else(PoisonError::into_inner);
        board.changes
    }

    /// Waits until `is_wanted` or the time is over; whether it is wanted then.
    pub fn wait(
        &self,
        timeout: Duration,
        mut is_wanted: impl FnMut(JobState, u64) -> bool,
    ) -> bool {
        let board = self.lock();
        let (board, _) = self
            .changed
            .wait_timeout_while(board, timeout, |board| {
                !is_wanted(board.state, board.checkpoints_completed)
            })
            .unwrap_or_else(PoisonError::into_inner);
        is_wanted(board.state, board.checkpoints_completed)
    }
}
