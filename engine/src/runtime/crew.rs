//! The workers of one job: those it began with, and those that task managers bring which are started later.
//!
//! Making a worker and running it are apart: what is made here goes through a queue to whoever runs it, a thread of its own or
//! the host that steps the job. A worker's number is never used again.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_netstack::parker::{Parker, Waker, parker};

use super::clock::Clock;
use super::control_queue::ControlSender;
use super::snapshot_io::IoRequest;
use super::worker::{Command, Mailbox, Whereabouts, WorkerParts};
use crate::id::WorkerIndex;

/// A worker that nobody runs yet, and what its thread parks with.
pub(super) type Newborn = (WorkerParts, Parker);

/// How all workers are reached.
#[derive(Clone, Debug, Default)]
pub(super) struct Roll(Arc<Mutex<Vec<(Mailbox, Arc<Whereabouts>)>>>);

impl Roll {
    /// Ends all workers, once they come back from user code.
    pub(super) fn dismiss(&self) {
        for (mailbox, _) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            mailbox.post(Command::Shutdown);
        }
    }

    /// The vertex and index of the task that each worker is in right now.
    pub(super) fn whereabouts(&self) -> Vec<(u32, u32)> {
        let roll = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        roll.iter().filter_map(|(_, place)| place.current()).collect()
    }
}

/// All workers, as the control thread has them.
#[derive(Debug)]
pub(super) struct Crew {
    clock: Clock,
    control: ControlSender,
    io: Sender<IoRequest>,
    newborn: Sender<Newborn>,
    mailboxes: Vec<Mailbox>,
    /// Those that have not ended.
    live: BTreeSet<usize>,
    roll: Roll,
}

impl Crew {
    /// No workers; where those that are made come out.
    pub(super) fn new(
        clock: Clock,
        control: ControlSender,
        io: Sender<IoRequest>,
    ) -> (Self, Receiver<Newborn>) {
        let (newborn, born) = channel();
        let roll = Roll::default();
        let (mailboxes, live) = (Vec::new(), BTreeSet::new());
        (Self { clock, control, io, newborn, mailboxes, live, roll }, born)
    }

    /// Makes one more worker; its number.
    pub(super) fn hire(&mut self) -> usize {
        let number = self.mailboxes.len();
        let (sleeper, waker) = parker();
        let mailbox = Mailbox::new(waker);
        let whereabouts = Arc::new(Whereabouts::default());
        let parts = WorkerParts {
            index: WorkerIndex(number as u32),
            clock: self.clock,
            mailbox: mailbox.clone(),
            whereabouts: whereabouts.clone(),
            control: self.control.clone(),
            io: self.io.clone(),
        };
        self.mailboxes.push(mailbox.clone());
        self.live.insert(number);
        let mut roll = self.roll.0.lock().unwrap_or_else(PoisonError::into_inner);
        roll.push((mailbox, whereabouts));
        drop(roll);
        // Whoever runs workers is gone only when the job is over.
        let _ = self.newborn.send((parts, sleeper));
        number
    }

    /// A worker has ended.
    pub(super) fn ended(&mut self, worker: usize) {
        self.live.remove(&worker);
    }

    /// Whether a worker has not ended.
    pub(super) fn is_live(&self, worker: usize) -> bool {
        self.live.contains(&worker)
    }

    /// All that have not ended.
    pub(super) fn live(&self) -> impl Iterator<Item = usize> + '_ {
        self.live.iter().copied()
    }

    /// Tells a worker something.
    pub(super) fn post(&self, worker: usize, command: Command) {
        self.mailboxes[worker].post(command);
    }

    /// What wakes a worker.
    pub(super) fn waker(&self, worker: usize) -> Waker {
        self.mailboxes[worker].waker()
    }

    /// How all workers are reached from other threads.
    pub(super) fn roll(&self) -> &Roll {
        &self.roll
    }
}
