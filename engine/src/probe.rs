//! Where the simulator looks into a running job.
//!
//! `note` hands what a machine is told and answers to the observer of this thread. Without the feature `simulation` it is
//! nothing, and nobody can observe. Called where inputs and outputs of machines pass: by `task` and `runtime`.

use std::any::Any;

use crate::id::{AttemptId, CheckpointId};

/// A job was deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// From which checkpoint.
    pub restored: Option<CheckpointId>,
    /// How many tasks.
    pub tasks: usize,
    /// How many had finished in the restored checkpoint.
    pub left_out: usize,
}

#[cfg(feature = "simulation")]
mod observer {
    use std::any::Any;
    use std::cell::RefCell;

    use crate::id::AttemptId;

    /// Is shown whose machine it is, if it is a task's, and what it was told or has answered.
    pub type Observer = Box<dyn FnMut(Option<AttemptId>, &dyn Any)>;

    thread_local! {
        pub(super) static OBSERVER: RefCell<Option<Observer>> = const { RefCell::new(None) };
    }

    /// Sets the observer of this thread, or takes it away.
    pub fn observe(observer: Option<Observer>) {
        OBSERVER.with(|place| *place.borrow_mut() = observer);
    }
}

#[cfg(feature = "simulation")]
pub use observer::{Observer, observe};

/// Shows the observer something.
#[cfg(feature = "simulation")]
pub(crate) fn note(attempt: Option<AttemptId>, what: &dyn Any) {
    observer::OBSERVER.with(|place| {
        if let Ok(mut place) = place.try_borrow_mut()
            && let Some(observer) = &mut *place
        {
            observer(attempt, what);
        }
    });
}

/// Shows the observer something.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub(crate) fn note(_attempt: Option<AttemptId>, _what: &dyn Any) {}
