//! The operator of a `process` at run time: records, watermarks and the wall clock turned into calls of user code.
//!
//! Timers that a watermark makes fire come out before the watermark goes on, at most [`FIRE_BATCH`] at a time, so that a
//! full output or mail is never far away. A timer is taken out of the state before user code sees it; between two calls
//! of user code the state is exact, so a snapshot may be taken between any two.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use super::{Context, Process, Timer};
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{BoxError, Error, ErrorKind, Result};
use crate::operator::{Logic, OnError, Op, Signal, fail};
use crate::record::key::hash;
use crate::record::{Data, Feed, Key, Output};
use crate::sink::Readiness;
use crate::state::{KeyedStates, TimerDomain};

/// Timers that fire at a time.
pub(super) const FIRE_BATCH: usize = 256;

/// The operator.
pub struct ProcessLogic<K, P> {
    name: Rc<str>,
    states: KeyedStates<K>,
    process: P,
    policy: OnError,
    watermark: EpochMillis,
    /// The watermark's timers are not all out, and it has not been passed on.
    is_firing: bool,
    wall_at_zero: EpochMillis,
    /// When the current batch or firing began.
    now: EpochMillis,
    /// When the next processing-time timer is due; [`EpochMillis::MAX`] if none is set.
    next_due: EpochMillis,
    /// FLIP-147: at the end of the input pending processing-time timers are not fired.
    is_quiesced: bool,
}

impl<K: Key, P> ProcessLogic<K, P> {
    pub(super) fn new(
        name: &str,
        mut states: KeyedStates<K>,
        process: P,
        policy: OnError,
        wall_at_zero: EpochMillis,
    ) -> Self {
        let next_due = states.next_due(TimerDomain::Processing).unwrap_or(EpochMillis::MAX);
        Self {
            name: name.into(),
            states,
            process,
            policy,
            watermark: EpochMillis::MIN,
            is_firing: false,
            wall_at_zero,
            now: wall_at_zero,
            next_due,
            is_quiesced: false,
        }
    }

    fn look_at_timers(&mut self) {
        self.next_due = self.states.next_due(TimerDomain::Processing).unwrap_or(EpochMillis::MAX);
    }

    fn quiesce(&mut self) {
        self.is_quiesced = true;
        self.next_due = EpochMillis::MAX;
    }

    /// Lets timers fire that are due at `until`, a batch at the most. How many did.
    fn fire<T: Data, D: Op<P::Out>>(
        &mut self,
        domain: TimerDomain,
        until: EpochMillis,
        down: &mut D,
    ) -> usize
    where
        P: Process<K, T>,
    {
        let limit = FIRE_BATCH.min(down.batch_max());
        let mut fired = 0;
        let of = PhantomData::<fn() -> T>;
        down.batch(TimerFeed { logic: self, domain, until, limit, fired: &mut fired, of });
        fired
    }
}

/// Does with what user code could not do what the policy says.
#[cold]
fn failed(policy: &OnError, operator: &str, error: BoxError) {
    match policy {
        OnError::Fail => {
            let message = error.to_string();
            fail(Error::new(ErrorKind::User, message).in_operator(operator).caused_by(error))
        }
        OnError::SkipAndCount(counter) => counter.add(1),
    }
}

impl<K, T, P> Logic<K, T> for ProcessLogic<K, P>
where
    K: Key,
    T: Data,
    P: Process<K, T>,
{
    type Out = P::Out;

    fn is_large(&self) -> bool {
        false
    }

    fn prefetch(&self, _: u64) {}

    #[inline(always)]
    fn apply<G: for<'x> FnMut(<P::Out as Data>::Ref<'x>)>(
        &mut self,
        hash: u64,
        key: K::Ref<'_>,
        record: T::Ref<'_>,
        g: &mut G,
    ) {
        let mut cx = Context {
            at: self.states.at(hash, K::shorten(key)),
            watermark: self.watermark,
            processing_time: self.now,
        };
        if let Err(error) = self.process.process(record, &mut cx, &mut Output::new(g)) {
            failed(&self.policy, &self.name, error);
        }
    }

    fn after_batch(&mut self) {
        self.look_at_timers();
    }

    fn ready(&mut self, now: Timestamp) -> Readiness {
        self.now = self.wall_at_zero.wall(now);
        Readiness::Ready
    }

    fn signal<D: Op<P::Out>>(&mut self, signal: &mut Signal<'_>, down: &mut D) -> Result<()> {
        match signal {
            Signal::Watermark(watermark) => {
                self.watermark = *watermark;
                let next = self.states.next_due(TimerDomain::Event);
                if next.is_some_and(|next| next <= *watermark) {
                    // Passed on when all that it fires is out.
                    self.is_firing = true;
                    return Ok(());
                }
            }
            Signal::Snapshot(snapshot) => {
                for (info, blocks) in self.states.snapshot().into_parts() {
                    snapshot.blocks(&self.name, info.kind(), &info.part_name(), blocks);
                }
            }
            Signal::Finish { .. } => {
                // None of them fires in a later attempt either.
                while self.states.pop_due(TimerDomain::Processing, EpochMillis::MAX).is_some() {}
                self.quiesce();
            }
            Signal::QuiesceTimers | Signal::EndOfData { .. } => self.quiesce(),
            Signal::EmitWatermark { .. }
            | Signal::Idle(_)
            | Signal::Flush
            | Signal::Barrier(_)
            | Signal::Complete(_)
            | Signal::Aborted(..)
            | Signal::EndOfPartition
            | Signal::LatencyMarker { .. }
            | Signal::EndOfDataTaken(_)
            | Signal::Flushed(_) => {}
        }
        down.signal(signal)
    }

    fn is_firing(&self) -> bool {
        self.is_firing
    }

    fn proceed<D: Op<P::Out>>(&mut self, now: Timestamp, down: &mut D) -> Result<bool> {
        self.now = self.wall_at_zero.wall(now);
        if self.is_firing {
            if self.fire(TimerDomain::Event, self.watermark, down) > 0 {
                self.look_at_timers();
                return Ok(true);
            }
            self.is_firing = false;
            down.signal(&mut Signal::Watermark(self.watermark))?;
        }
        if self.is_quiesced || self.next_due > self.now {
            return Ok(false);
        }
        let fired = self.fire(TimerDomain::Processing, self.now, down);
        self.look_at_timers();
        Ok(fired > 0)
    }

    fn deadline(&self) -> Option<Timestamp> {
        (self.next_due < EpochMillis::MAX).then(|| self.next_due.moment(self.wall_at_zero))
    }
}

impl<K, P> fmt::Debug for ProcessLogic<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessLogic").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Some timers that are due, as a batch.
struct TimerFeed<'f, K, T, P> {
    logic: &'f mut ProcessLogic<K, P>,
    domain: TimerDomain,
    until: EpochMillis,
    limit: usize,
    fired: &'f mut usize,
    of: PhantomData<fn() -> T>,
}

impl<K: Key, T: Data, P: Process<K, T>> Feed<P::Out> for TimerFeed<'_, K, T, P> {
    fn each<G: for<'x> FnMut(<P::Out as Data>::Ref<'x>)>(self, mut g: G) {
        let Self { logic, domain, until, limit, fired, .. } = self;
        while *fired < limit
            && let Some((key, time)) = logic.states.pop_due(domain, until)
        {
            *fired += 1;
            let key = key.view();
            let mut cx = Context {
                at: logic.states.at(hash::<K>(key), key),
                watermark: logic.watermark,
                processing_time: logic.now,
            };
            let timer = Timer { domain, time };
            if let Err(error) = logic.process.on_timer(timer, &mut cx, &mut Output::new(&mut g)) {
                failed(&logic.policy, &logic.name, error);
            }
        }
    }
}
