//! A worker: a pinned thread that steps its tasks in turn.
//!
//! The loop is: mail, a step of each task, rest. A panic is caught at the task's border and becomes the task's failure.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use crossbeam::queue::SegQueue;
use tidegate_netstack::parker::{Parker, Waker};

use super::clock::Clock;
use super::control::ControlEvent;
use super::control_queue::ControlSender;
use super::deployment::Deployment;
use super::idle::{Ladder, Rest};
use super::snapshot_io::IoRequest;
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind};
use crate::id::{AttemptId, WorkerIndex};
use crate::task::{Mail, Progress, Report, ReportKind, StepContext, Task};

/// What a worker is told.
#[derive(Debug)]
pub(super) enum Command {
    /// Make a task and run it.
    Deploy(Box<Deployment>),
    /// For one of its tasks.
    Mail(AttemptId, Mail),
    /// Drop a task, if it is there, and say so.
    Cancel(AttemptId),
    /// Drop all tasks and say so, with this number.
    CancelAll(u64),
    /// Drop all tasks, say so, and end the thread.
    Shutdown,
}

/// A worker's mailbox: anyone may post.
#[derive(Clone, Debug)]
pub(super) struct Mailbox {
    queue: Arc<SegQueue<Command>>,
    waker: Waker,
}

impl Mailbox {
    pub(super) fn new(waker: Waker) -> Self {
        Self { queue: Arc::new(SegQueue::new()), waker }
    }

    pub(super) fn post(&self, command: Command) {
        self.queue.push(command);
        self.waker.wake();
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }
}

/// Which task a worker is in right now: read by whoever must name one that doesn't return.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    /// 0: in none; else 1 + vertex << 16 | index.
    task: AtomicUsize,
}

impl Whereabouts {
    fn enter(&self, attempt: AttemptId) {
        let subtask = attempt.subtask;
        let place = 1 + ((subtask.vertex.0 as usize) << 16 | subtask.index as usize);
        self.task.store(place, Ordering::Relaxed);
    }

    fn leave(&self) {
        self.task.store(0, Ordering::Relaxed);
    }

    /// The vertex and index of the task that is being stepped.
    pub(super) fn current(&self) -> Option<(u32, u32)> {
        match self.task.load(Ordering::Relaxed) {
            0 => None,
            place => Some((((place - 1) >> 16) as u32, ((place - 1) & 0xFFFF) as u32)),
        }
    }
}

/// What a worker is made with, on whatever thread.
#[derive(Debug)]
pub(super) struct WorkerParts {
    pub(super) index: WorkerIndex,
    pub(super) clock: Clock,
    pub(super) mailbox: Mailbox,
    pub(super) whereabouts: Arc<Whereabouts>,
    pub(super) control: ControlSender,
    pub(super) io: Sender<IoRequest>,
}

/// One worker. Its tasks stay on the thread that makes it.
pub(super) struct Worker {
    index: WorkerIndex,
    clock: Clock,
    mailbox: Mailbox,
    whereabouts: Arc<Whereabouts>,
    control: ControlSender,
    io: Sender<IoRequest>,
    tasks: Vec<Task>,
    reports: Vec<Report>,
    is_over: bool,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Worker {
    pub(super) fn new(parts: WorkerParts) -> Self {
        let WorkerParts { index, clock, mailbox, whereabouts, control, io } = parts;
        Self {
            index,
            clock,
            mailbox,
            whereabouts,
            control,
            io,
            tasks: Vec::new(),
            reports: Vec::new(),
            is_over: false,
        }
    }

    /// The thread's loop.
    pub(super) fn run(mut self, parker: &Parker, mut ladder: Ladder) {
        loop {
            let (busy, wake) = self.round();
            if self.is_over {
                return;
            }
            if busy {
                ladder.was_busy();
                continue;
            }
            match ladder.next(Clock::nanos()) {
                Rest::Spin => std::hint::spin_loop(),
                Rest::Yield => std::thread::yield_now(),
                Rest::Park => {
                    let timeout = (wake != Timestamp::MAX).then(|| self.clock.until(wake));
                    // The round that runs after the flag is up sees whatever was published before it.
                    parker.park(timeout, || self.round().0 || self.is_over);
                    if self.is_over {
                        return;
                    }
                }
            }
        }
    }

    /// Mail, then one step of each task. Whether something was done, and when something is due if not.
    pub(super) fn round(&mut self) -> (bool, Timestamp) {
        let mut busy = false;
        while self.take_mail() {
            busy = true;
            if self.is_over {
                return (true, Timestamp::ZERO);
            }
        }
        let mut wake = Timestamp::MAX;
        let mut at = 0;
        while at < self.tasks.len() {
            match self.step_task(at) {
                Progress::Busy => {
                    busy = true;
                    at += 1;
                }
                Progress::Idle(until) => {
                    wake = wake.min(until);
                    at += 1;
                }
                Progress::Done => busy = true,
            }
        }
        (busy, wake)
    }

    /// Does what the oldest mail says. Whether there was one.
    pub(super) fn take_mail(&mut self) -> bool {
        let Some(command) = self.mailbox.queue.pop() else { return false };
        self.obey(command);
        true
    }

    /// One step of task number `at`, which is gone when it is done or has failed.
    pub(super) fn step_task(&mut self, at: usize) -> Progress {
        let progress = self.guarded(at, |task, cx| task.step(cx)).unwrap_or(Progress::Done);
        if progress == Progress::Done {
            self.tasks.remove(at);
        }
        self.route();
        progress
    }

    /// The attempts of its tasks.
    #[cfg(feature = "simulation")]
    pub(super) fn attempts(&self) -> impl ExactSizeIterator<Item = AttemptId> {
        self.tasks.iter().map(Task::attempt)
    }

    /// How much mail waits.
    #[cfg(feature = "simulation")]
    pub(super) fn mail(&self) -> usize {
        self.mailbox.queue.len()
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Deploy(deployment) => {
                let attempt = deployment.attempt;
                let name = deployment.vertex.name.clone();
                self.whereabouts.enter(attempt);
                let built = catch_unwind(AssertUnwindSafe(|| deployment.build(self.clock)));
                self.whereabouts.leave();
                let kind = match built.unwrap_or_else(|payload| Err(panic_error(payload))) {
                    Ok(task) => {
                        self.tasks.push(task);
                        let at = self.tasks.len() - 1;
                        if self.guarded(at, |task, cx| task.start(cx)).is_none() {
                            self.tasks.pop();
                            self.route();
                            return;
                        }
                        // What consumes comes before what produces, so that buffers come back soon.
                        self.tasks
                            .sort_by_key(|task| std::cmp::Reverse(task.attempt().subtask.vertex));
                        ReportKind::Running
                    }
                    Err(error) => ReportKind::Failed(
                        error.in_operator(&*name).in_subtask(attempt.subtask.index),
                    ),
                };
                self.reports.push(Report { attempt, kind });
                self.route();
            }
            Command::Mail(attempt, mail) => {
                if let Some(at) = self.tasks.iter().position(|task| task.attempt() == attempt) {
                    if self.guarded(at, |task, cx| task.mail(mail, cx)).is_none() {
                        self.tasks.remove(at);
                    }
                    self.route();
                }
            }
            Command::Cancel(attempt) => {
                if let Some(at) = self.tasks.iter().position(|task| task.attempt() == attempt) {
                    let task = self.tasks.remove(at);
                    let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
                }
                self.tell(ControlEvent::Canceled { attempt });
            }
            Command::CancelAll(number) => {
                // User code's destructors may panic too.
                for task in self.tasks.drain(..) {
                    let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
                }
                self.tell(ControlEvent::Cancelled { worker: self.index, number });
            }
            Command::Shutdown => {
                for task in self.tasks.drain(..) {
                    let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
                }
                self.is_over = true;
                self.tell(ControlEvent::WorkerEnded { worker: self.index });
            }
        }
    }

    /// Calls into a task; `None` if that failed it.
    fn guarded<O>(
        &mut self,
        at: usize,
        call: impl FnOnce(&mut Task, &mut StepContext<'_>) -> crate::error::Result<O>,
    ) -> Option<O> {
        let task = &mut self.tasks[at];
        let (clock, queue) = (self.clock, &self.mailbox.queue);
        let mut cx = StepContext {
            now: clock.now(),
            clock: &|| clock.now(),
            has_mail: &|| !queue.is_empty(),
            reports: &mut self.reports,
        };
        self.whereabouts.enter(task.attempt());
        let outcome = catch_unwind(AssertUnwindSafe(|| call(task, &mut cx)));
        self.whereabouts.leave();
        match outcome.unwrap_or_else(|payload| Err(panic_error(payload))) {
            Ok(value) => Some(value),
            Err(error) => {
                let error = task.blame(error);
                let attempt = task.attempt();
                self.reports.push(Report { attempt, kind: ReportKind::Failed(error) });
                None
            }
        }
    }

    /// Sends reports on: snapshots to the thread that writes them, the rest to control.
    fn route(&mut self) {
        for report in std::mem::take(&mut self.reports) {
            if let ReportKind::Snapshot { .. } = report.kind {
                let _ = self.io.send(IoRequest::Store(report));
            } else {
                self.tell(ControlEvent::Report(report));
            }
        }
    }

    fn tell(&self, event: ControlEvent) {
        // Control is gone only when the job is over.
        self.control.send(event);
    }
}

/// What a caught panic means: an error thrown through a batch, or user code that panicked.
fn panic_error(payload: Box<dyn Any + Send>) -> Error {
    match payload.downcast::<Error>() {
        Ok(error) => *error,
        Err(payload) => {
            let text = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "of a type that is no text".to_owned());
            Error::new(ErrorKind::User, format!("panicked: {text}"))
        }
    }
}
