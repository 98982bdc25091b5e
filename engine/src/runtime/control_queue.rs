//! The way to the control thread: a queue that every thread may send to.
//!
//! Who takes from it sleeps in it, or, where the control thread also serves clients, is woken through a
//! [`Waker`](std::task::Waker).

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
#[cfg(feature = "rest")]
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(feature = "rest")]
use std::task::Waker;
use std::time::Duration;

use super::control::ControlEvent;

/// Both ends of a queue.
pub(super) fn control_queue() -> (ControlSender, ControlReceiver) {
    // Not crossbeam's: who waits there yields some times before it sleeps, to a worker that then has the CPU for
    // milliseconds (bench `steered`).
    let (sender, receiver) = channel();
    #[cfg(feature = "rest")]
    let bell = Arc::<Mutex<Option<Waker>>>::default();
    let sender = ControlSender {
        queue: sender,
        #[cfg(feature = "rest")]
        bell: bell.clone(),
    };
    let receiver = ControlReceiver {
        queue: receiver,
        #[cfg(feature = "rest")]
        bell,
    };
    (sender, receiver)
}

/// Reaches the control thread.
#[derive(Clone, Debug)]
pub(super) struct ControlSender {
    queue: Sender<ControlEvent>,
    #[cfg(feature = "rest")]
    bell: Arc<Mutex<Option<Waker>>>,
}

impl ControlSender {
    /// Sends an event; it is dropped if the job is over.
    pub(super) fn send(&self, event: ControlEvent) {
        let _ = self.queue.send(event);
        // Either this finds the waker, or who sets it finds the event: the lock puts the two in an order.
        #[cfg(feature = "rest")]
        if let Some(waker) = &*self.bell.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake_by_ref();
        }
    }
}

/// What the control thread takes from.
#[derive(Debug)]
pub(super) struct ControlReceiver {
    queue: Receiver<ControlEvent>,
    #[cfg(feature = "rest")]
    bell: Arc<Mutex<Option<Waker>>>,
}

impl ControlReceiver {
    /// The next event, if there is one.
    pub(super) fn try_recv(&self) -> Option<ControlEvent> {
        self.queue.try_recv().ok()
    }

    /// Waits for the next event, at most for `timeout` if there is one.
    pub(super) fn recv(&self, timeout: Option<Duration>) -> Result<ControlEvent, RecvTimeoutError> {
        match timeout {
            Some(timeout) => self.queue.recv_timeout(timeout),
            None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    /// The queue alone, for who looks into it.
    #[cfg(feature = "simulation")]
    pub(super) fn into_queue(self) -> Receiver<ControlEvent> {
        self.queue
    }

    /// Has `waker` woken by every event from now on. What was sent before must still be looked for.
    #[cfg(feature = "rest")]
    pub(super) fn wake_with(&self, waker: &Waker) {
        let mut bell = self.bell.lock().unwrap_or_else(PoisonError::into_inner);
        if !bell.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *bell = Some(waker.clone());
        }
    }
}

#[cfg(all(test, feature = "rest"))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::Wake;

    use super::*;
    use crate::runtime::Request;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn event() -> ControlEvent {
        ControlEvent::Request(Request::Stop)
    }

    #[test]
    fn the_waker_set_last_is_woken_by_each_event() {
        let (sender, receiver) = control_queue();
        sender.send(event());
        let (first, second) = (Arc::<Count>::default(), Arc::<Count>::default());
        receiver.wake_with(&first.clone().into());
        assert!(receiver.try_recv().is_some(), "what was sent before is there");
        sender.send(event());
        receiver.wake_with(&second.clone().into());
        sender.send(event());
        assert_eq!((first.0.load(Relaxed), second.0.load(Relaxed)), (1, 1));
        assert!(receiver.try_recv().is_some() && receiver.try_recv().is_some());
        assert!(receiver.try_recv().is_none());
        drop(receiver);
        sender.send(event());
    }
}
