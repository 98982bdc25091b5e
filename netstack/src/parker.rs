//! How a thread sleeps until another has something for it.
//!
//! A [`Parker`] belongs to the one thread that sleeps; its [`Waker`]s go to everybody who may have something for
//! it. `wake` costs a fence while the peer runs and a system call only while it sleeps. No wake-up is lost: the
//! waker publishes, fences, then reads `parked`; the sleeper sets `parked`, fences, then looks for work, so that
//! at least one of the two sees the other. How long to spin before parking is the caller's choice.
//!
//! Used by the workers' loop, which parks, and by `lane` and `segment`, which wake.

use crate::sync::{Arc, AtomicBool, Ordering::*, Site, fence, thread};
use std::{fmt, sync::OnceLock, time::Duration};

/// Makes a parker for the thread that will call [`Parker::park`], and the waker for all others.
pub fn parker() -> (Parker, Waker) {
    let parking = Arc::new(Parking { is_parked: AtomicBool::new(false), thread: OnceLock::new() });
    (Parker { parking: Arc::clone(&parking) }, Waker { parking: Some(parking) })
}

struct Parking {
    /// Written by the sleeper only.
    is_parked: AtomicBool,
    /// The sleeper, known from its first `park` on.
    thread: OnceLock<thread::Thread>,
}

/// The sleeping side. It may be moved to its thread before it is first used.
pub struct Parker {
    parking: Arc<Parking>,
}

impl Parker {
    /// Sleeps until woken or until `timeout` is over, unless `recheck` finds something to do.
    ///
    /// `recheck` runs once, after the peers can see that this thread is about to sleep, and must look at
    /// everything a peer could have published. It may also return for no reason.
    ///
    /// # Panics
    /// If it is called from two different threads.
    pub fn park(&self, timeout: Option<Duration>, recheck: impl FnOnce() -> bool) {
        let this_thread = thread::current();
        let sleeper = self.parking.thread.get_or_init(|| this_thread.clone());
        assert!(sleeper.id() == this_thread.id(), "a parker belongs to one thread");
        // Release: whoever reads `true` finds `thread` set.
        self.parking.is_parked.store(true, Release);
        fence(Site::ParkFence); // pairs with the fence in `Waker::wake`
        if !recheck() {
            match timeout {
                None => thread::park(),
                Some(timeout) => park_timeout(timeout),
            }
        }
        self.parking.is_parked.store(false, Relaxed);
    }
}

#[cfg(not(loom))]
fn park_timeout(timeout: Duration) {
    thread::park_timeout(timeout);
}

/// loom has no time: a sleep that would end by itself is no sleep.
#[cfg(loom)]
fn park_timeout(_timeout: Duration) {
    thread::yield_now();
}

impl fmt::Debug for Parker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parker").finish_non_exhaustive()
    }
}

/// Wakes the thread of one [`Parker`].
#[derive(Clone)]
pub struct Waker {
    parking: Option<Arc<Parking>>,
}

impl Waker {
    /// A waker that wakes nobody, for a peer that never parks.
    pub const fn noop() -> Self {
        Self { parking: None }
    }

    /// Wakes the peer if it sleeps. Call it after publishing what the peer waits for.
    #[inline]
    pub fn wake(&self) {
        let Some(parking) = &self.parking else { return };
        fence(Site::WakeFence); // pairs with the fence in `Parker::park`
        // Acquire: pairs with the Release in `Parker::park`, for `thread`.
        if parking.is_parked.load(Acquire) {
            parking.unpark();
        }
    }
}

impl Parking {
    #[cold]
    fn unpark(&self) {
        self.thread.get().expect("the sleeper sets its thread before it sets parked").unpark();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").field("is_noop", &self.parking.is_none()).finish()
    }
}

/// A waker that is used only while its thread has declared that it waits for this very thing.
///
/// Without the declaration a producer that sleeps because it has no input would be woken for each segment that
/// comes home.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// Written by the waiting thread only, so that no declaration can be erased by a slow notifier.
    is_waiting: AtomicBool,
    waker: Waker,
}

impl Waiter {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { is_waiting: AtomicBool::new(false), waker }
    }

    /// The waiting thread says that it waits. It must look once more afterwards.
    pub(crate) fn declare(&self) {
        self.is_waiting.store(true, Relaxed);
        fence(Site::DeclareFence); // pairs with the fence in `notify`
    }

    /// The waiting thread has what it waited for.
    pub(crate) fn withdraw(&self) {
        self.is_waiting.store(false, Relaxed);
    }

    /// Wakes the thread if it waits. Call it after publishing what it may wait for.
    #[inline]
    pub(crate) fn notify(&self) {
        fence(Site::NotifyFence); // pairs with the fence in `declare`
        if self.is_waiting.load(Relaxed) {
            self.waker.wake();
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_declared(&self) -> bool {
        self.is_waiting.load(Relaxed)
    }

    /// The waker itself, for what the thread must learn whether it waits or not.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::AtomicUsize;

    #[test]
    fn two_threads_wake_each_other_in_turn() {
        const ROUNDS: usize = 2_000;
        let turn = Arc::new(AtomicUsize::new(0));
        let (even, wake_even) = parker();
        let (odd, wake_odd) = parker();
        let play = |parker: Parker, peer: Waker, first: usize| {
            let turn = Arc::clone(&turn);
            move || {
                for round in (first..ROUNDS).step_by(2) {
                    while turn.load(Acquire) != round {
                        parker.park(None, || turn.load(Acquire) == round);
                    }
                    turn.store(round + 1, Release);
                    peer.wake();
                }
            }
        };
        let playing = thread::spawn(play(odd, wake_even, 1));
        play(even, wake_odd, 0)();
        playing.join().unwrap();
        assert_eq!(turn.load(Relaxed), ROUNDS);
    }

    #[test]
    fn who_finds_work_or_has_a_timeout_does_not_sleep_for_ever() {
        let (parker, waker) = parker();
        let mut has_looked = false;
        parker.park(None, || {
            has_looked = true;
            true
        });
        parker.park(Some(Duration::ZERO), || false);
        waker.wake();
        Waker::noop().wake();
        assert!(has_looked);
    }

    #[test]
    fn a_parker_belongs_to_the_thread_that_first_used_it() {
        let (parker, _waker) = parker();
        parker.park(None, || true);
        assert!(thread::spawn(move || parker.park(None, || true)).join().is_err());
    }
}
