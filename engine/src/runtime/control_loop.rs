//! What the control thread does until the job is over: it waits for events and deadlines, and starts workers' threads.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(feature = "rest")]
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use super::clock::Clock;
use super::control::Control;
use super::control_queue::ControlReceiver;
use super::crew::{Newborn, Roll};
use super::idle::Ladder;
use super::snapshot_io::IoRequest;
use super::worker::Worker;
use crate::config::IdleStrategy;
use crate::error::{Error, ErrorKind, Result};
use crate::topology;

/// Runs the loop on the control thread together with something else.
pub(crate) type ControlHost = Box<dyn FnOnce(ControlLoop) + Send>;

/// Threads of workers; more may come while the job runs.
pub(super) type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

/// Control with all it needs on its thread. Dropping it ends the other threads of the job.
pub(crate) struct ControlLoop {
    pub(super) control: Control,
    pub(super) events: ControlReceiver,
    pub(super) clock: Clock,
    pub(super) nursery: Nursery,
    pub(super) roll: Roll,
    pub(super) io: Sender<IoRequest>,
    /// Where the outcome goes.
    pub(super) outcome: Sender<Result<()>>,
}

impl ControlLoop {
    /// Runs the job to its end, asleep between events.
    pub(super) fn run(mut self) {
        loop {
            if self.ended() {
                return;
            }
            match self.events.recv(self.wait()) {
                Ok(event) => self.control.handle(event),
                Err(RecvTimeoutError::Timeout) => self.control.tick(),
                Err(RecvTimeoutError::Disconnected) => {
                    let text = "nobody can reach the control thread";
                    return self.tell(Err(Error::new(ErrorKind::Internal, text)));
                }
            }
        }
    }

    /// Deals with all events. `Ready` when the job is over; until then an event wakes the task, and [`ControlLoop::tick`]
    /// is due after [`ControlLoop::wait`].
    #[cfg(feature = "rest")]
    pub(crate) fn poll(&mut self, task: &Context<'_>) -> Poll<()> {
        self.events.wake_with(task.waker());
        loop {
            if self.ended() {
                return Poll::Ready(());
            }
            let Some(event) = self.events.try_recv() else { return Poll::Pending };
            self.control.handle(event);
        }
    }

    /// Does what is due without an event.
    #[cfg(feature = "rest")]
    pub(crate) fn tick(&mut self) {
        self.control.tick();
    }

    /// How long it is until something is due without an event.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.control.deadline().map(|at| self.clock.until(at))
    }

    /// Starts the workers that were hired. Whether the job is over; then the outcome has been told.
    fn ended(&mut self) -> bool {
        let started = self.nursery.spawn_all(0);
        let outcome = started.map_err(no_thread).err().map(Err);
        match outcome.or_else(|| self.control.take_outcome()) {
            Some(outcome) => self.tell(outcome),
            None => return false,
        }
        true
    }

    fn tell(&self, outcome: Result<()>) {
        let _ = self.outcome.send(outcome);
    }
}

impl Drop for ControlLoop {
    fn drop(&mut self) {
        self.roll.dismiss();
        let _ = self.io.send(IoRequest::Shutdown);
    }
}

/// Gives workers threads, as they are made.
pub(super) struct Nursery {
    pub(super) cores: Vec<usize>,
    /// How many CPUs may be used.
    pub(super) allowed: usize,
    pub(super) idle: IdleStrategy,
    pub(super) born: Receiver<Newborn>,
    pub(super) threads: Threads,
}

impl Nursery {
    /// Starts a thread for each worker that has none; there are `count` in all by now, if that is known.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where workers' threads are started"
    )]
    pub(super) fn spawn_all(&self, count: usize) -> std::io::Result<()> {
        for (worker, parker) in self.born.try_iter() {
            let index = worker.index.0 as usize;
            let is_crowded = count.max(index + 1) > self.allowed;
            let pins = !is_crowded && !self.cores.is_empty();
            let core = pins.then(|| self.cores[index % self.cores.len()]);
            let ladder = Ladder::new(self.idle, is_crowded);
            let thread = std::thread::Builder::new()
                .name(format!("tidegate-worker-{index}"))
                .spawn(move || {
                    // Pinning is a wish: a container may forbid it.
                    let _ = core.map(topology::pin);
                    let _ = topology::sharpen_timers();
                    Worker::new(worker).run(&parker, ladder);
                })?;
            self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(())
    }
}

pub(super) fn no_thread(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("no thread: {error}")).caused_by(error)
}
