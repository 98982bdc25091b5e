//! Which snapshots of a table are still being written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Says that a snapshot is done when it is dropped.
#[derive(Debug)]
pub(super) struct RunningGuard(Arc<AtomicBool>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        // Pairs with `Running::any` and `all_done`: what the snapshot's writer read was read before.
        self.0.store(true, Release);
    }
}

/// Snapshots in the order of their triggers.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Vec<Arc<AtomicBool>>);

impl Running {
    /// Adds a snapshot, and returns those before it.
    pub(super) fn start(&mut self) -> (RunningGuard, Self) {
        self.any();
        let older = self.clone();
        let done = Arc::new(AtomicBool::new(false));
        self.0.push(done.clone());
        (RunningGuard(done), older)
    }

    /// Whether any still runs; forgets those that don't.
    pub(super) fn any(&mut self) -> bool {
        self.0.retain(|done| !done.load(Acquire));
        !self.0.is_empty()
    }

    /// Whether none runs any more.
    pub(super) fn all_done(&self) -> bool {
        self.0.iter().all(|done| done.load(Acquire))
    }
}
