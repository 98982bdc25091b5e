//! Atomics, `Arc` and cells from std, or from loom when built with `--cfg loom`.
//!
//! Every file that shares memory between threads takes them from here, so that the source that ships is the
//! source that the models check. Each ordering that matters passes through [`order`] or [`fence`] with the
//! [`Site`] it stands at. In a normal build these return what they are given; under loom a model can weaken one
//! site and must then fail, which proves that the model guards it.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

/// A place whose memory ordering some model guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// `ring`: the producer publishes slots below `tail`.
    TailStore,
    /// `ring`: the consumer learns of slots below `tail`.
    TailLoad,
    /// `ring`: the producer publishes priority slots.
    PriorityTailStore,
    /// `ring`: the consumer learns of priority slots.
    PriorityTailLoad,
    /// `ring`: the consumer loads `tail` before the priority tail.
    TailBeforePriorityTail,
    /// `lane`: what a capturing consumer takes are entries that it has seen.
    TakenWereSeen,
    /// `ring`: the consumer gives slots back.
    HeadStore,
    /// `ring`: the producer learns of free slots.
    HeadLoad,
    /// `ring`: the consumer gives priority slots back.
    PriorityHeadStore,
    /// `ring`: the producer learns of free priority slots.
    PriorityHeadLoad,
    /// `ring`: the consumer leaves its side to the producer.
    ConsumerGoneStore,
    /// `ring`: the producer takes the consumer's side over.
    ConsumerGoneLoad,
    /// `ring`: the producer has pushed its last.
    ProducerGoneStore,
    /// `ring`: the consumer learns that nothing more comes.
    ProducerGoneLoad,
    /// `segment`: a reader is done when it gives up its reference.
    RefsRelease,
    /// `segment`: whoever gives up the last reference knows that all readers are done.
    RefsAcquire,
    /// `segment`: a segment is pushed onto its home's stack.
    ReturnedPush,
    /// `segment`: the owner takes what was returned.
    ReturnedTake,
    /// `segment`: the owner leaves and takes what was returned.
    ReturnedClose,
    /// `parker`: between publishing something and looking whether the peer is parked.
    WakeFence,
    /// `parker`: between setting `parked` and looking for work again.
    ParkFence,
    /// `parker`: between publishing something and looking whether its waiter has declared itself.
    NotifyFence,
    /// `parker`: between declaring to wait and looking again.
    DeclareFence,
}

/// The ordering of an access: `strong`, unless a model weakens `site`.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn order(_site: Site, strong: Ordering) -> Ordering {
    strong
}

/// Both orderings of a read-modify-write, unless a model weakens one of them.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn acquire_release(_acquire: Site, _release: Site) -> Ordering {
    Ordering::AcqRel
}

/// True if a model weakens `site`.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn is_weakened(_site: Site) -> bool {
    false
}

/// A sequentially consistent fence, unless a model weakens `site`.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn fence(_site: Site) {
    std::sync::atomic::fence(Ordering::SeqCst);
}

/// True while loom unwinds a model that failed: its cells must not be touched again then.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn is_model_failing() -> bool {
    false
}

/// loom's cell interface over the plain cell.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Lends a pointer for reading.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Lends a pointer for writing.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

#[cfg(loom)]
pub(crate) use weakening::{acquire_release, fence, is_model_failing, is_weakened, order};

#[cfg(loom)]
pub(crate) mod weakening {
    //! Which site the model that runs on this thread weakens. loom runs all threads of a model on one.

    use super::{Ordering, Site};
    use std::cell::Cell;

    thread_local! {
        static WEAKENED: Cell<Option<Site>> = const { Cell::new(None) };
    }

    /// Chooses the site to weaken for the models that follow on this thread.
    #[cfg(test)]
    pub(crate) fn set(site: Option<Site>) {
        WEAKENED.set(site);
    }

    pub(crate) fn is_weakened(site: Site) -> bool {
        WEAKENED.get() == Some(site)
    }

    pub(crate) fn is_model_failing() -> bool {
        std::thread::panicking()
    }

    pub(crate) fn order(site: Site, strong: Ordering) -> Ordering {
        if is_weakened(site) { Ordering::Relaxed } else { strong }
    }

    pub(crate) fn acquire_release(acquire: Site, release: Site) -> Ordering {
        match WEAKENED.get() {
            Some(site) if site == acquire => Ordering::Release,
            Some(site) if site == release => Ordering::Acquire,
            _ => Ordering::AcqRel,
        }
    }

    pub(crate) fn fence(site: Site) {
        if !is_weakened(site) {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }
}
