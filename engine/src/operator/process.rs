//! `process`: user code with keyed state and timers, called for each record and for each timer that fires.
//!
//! A job's recipe holds a function that declares the states and makes the user's [`Process`] with their handles, once for
//! each attempt of each subtask. [`ProcessLogic`] owns the state; the user reaches it through a [`Context`], always under
//! the current key.

mod context;
mod logic;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

pub use context::{Context, States, Timer};
pub use logic::ProcessLogic;

use super::chain::CheckSink;
use super::keyed::KeyedLogic;
use super::{Build, OnError, Stage};
use crate::error::{BoxError, Error, ErrorKind, Result};
use crate::record::key_group::KeyGroups;
use crate::record::{Data, Key, Output};
use crate::state::{KeyedStates, StateInfo};

/// What user code does with the records of one key and with its timers.
///
/// It holds the handles of its states, which `process` gives to the function that makes it. State is read and written
/// under the key of the record or timer at hand; whatever else the implementor's fields hold is in no checkpoint.
///
/// ```
/// use tidegate::clock::EpochMillis;
/// use tidegate::operator::{Context, Process, Timer};
/// use tidegate::state::ValueState;
/// use tidegate::{BoxError, Job, Output, sink, source};
///
/// /// How many clicks a user makes until it is silent for half a minute.
/// struct Sessions {
///     clicks: ValueState<u64>,
///     ends: ValueState<i64>,
/// }
///
/// impl Process<u64, (u64, i64)> for Sessions {
///     type Out = (u64, u64);
///
///     fn process(
///         &mut self,
///         (_, time): (u64, i64),
///         cx: &mut Context<'_, u64>,
///         _: &mut Output<'_, (u64, u64)>,
///     ) -> Result<(), BoxError> {
///         let clicks = cx.value(&self.clicks).get().unwrap_or(0);
///         cx.value(&self.clicks).set(clicks + 1);
///         if let Some(end) = cx.value(&self.ends).get() {
///             cx.remove_event_timer(EpochMillis(end));
///         }
///         cx.value(&self.ends).set(time + 30_000);
///         cx.set_event_timer(EpochMillis(time + 30_000));
///         Ok(())
///     }
///
///     fn on_timer(
///         &mut self,
///         _: Timer,
///         cx: &mut Context<'_, u64>,
///         out: &mut Output<'_, (u64, u64)>,
///     ) -> Result<(), BoxError> {
///         out.emit((cx.key(), cx.value(&self.clicks).get().unwrap_or(0)));
///         cx.value(&self.clicks).clear();
///         cx.value(&self.ends).clear();
///         Ok(())
///     }
/// }
///
/// let job = Job::new("sessions");
/// let (sessions, found) = sink::collect();
/// // Two users, who click every second and stop after five.
/// job.source("clicks", source::generate(10, |i| (i % 2, 1000 * i as i64)))
///     .watermarks(tidegate::time::Watermarks::ascending(), |(_, time)| time)
///     .key_by(|(user, _)| user)
///     .process("sessions", |states| {
///         Ok(Sessions { clicks: states.value("clicks")?, ends: states.value("ends")? })
///     })
///     .sink("found", sessions);
/// job.run()?;
/// let mut found = found.take();
/// found.sort();
/// assert_eq!(found, [(0, 5), (1, 5)]);
/// # Ok::<(), tidegate::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not process records `{T}` with keys `{K}`",
    note = "implement `Process<{K}, {T}>` for it, or give a closure to `process_each`"
)]
pub trait Process<K: Key, T: Data>: 'static {
    /// The record type that comes out.
    type Out: Data;

    /// Takes a record.
    ///
    /// # Errors
    /// Of any type: they fail the task, or are counted where the policy says so. What was done to the state stays.
    fn process(
        &mut self,
        record: T::Ref<'_>,
        cx: &mut Context<'_, K>,
        out: &mut Output<'_, Self::Out>,
    ) -> Result<(), BoxError>;

    /// Takes a timer that fires; it is no longer set. Event-time timers fire in the order of their times when the watermark
    /// has reached them, before the watermark goes on; so do those that are set meanwhile. At the end of a finite input the
    /// watermark becomes [`MAX`](crate::clock::EpochMillis::MAX) and fires all: one that always sets the next has to look at
    /// [`Context::watermark`], or it fires for ever. Processing-time timers don't fire after the end of the input.
    ///
    /// # Errors
    /// As [`process`](Self::process).
    fn on_timer(
        &mut self,
        timer: Timer,
        cx: &mut Context<'_, K>,
        out: &mut Output<'_, Self::Out>,
    ) -> Result<(), BoxError> {
        let _ = (timer, cx, out);
        Ok(())
    }
}

/// A closure that processes records and sets no timers, with the handles of its states.
pub struct Each<H, F, U> {
    handles: H,
    f: F,
    of: PhantomData<fn() -> U>,
}

impl<H, F, U> Each<H, F, U> {
    pub(crate) fn new(handles: H, f: F) -> Self {
        Self { handles, f, of: PhantomData }
    }
}

impl<H, F, U> fmt::Debug for Each<H, F, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Each").finish_non_exhaustive()
    }
}

impl<K: Key, T: Data, U: Data, H, F> Process<K, T> for Each<H, F, U>
where
    H: 'static,
    F: for<'h, 'a, 'c, 'o, 'p, 'q> FnMut(
            &'h mut H,
            T::Ref<'a>,
            &'p mut Context<'c, K>,
            &'q mut Output<'o, U>,
        ) -> Result<(), BoxError>
        + 'static,
{
    type Out = U;

    #[inline(always)]
    fn process(
        &mut self,
        record: T::Ref<'_>,
        cx: &mut Context<'_, K>,
        out: &mut Output<'_, U>,
    ) -> Result<(), BoxError> {
        (self.f)(&mut self.handles, record, cx, out)
    }
}

/// The recipe of a `process`.
pub struct Processing<O, P> {
    name: String,
    label: &'static str,
    policy: OnError,
    open: O,
    check: Option<CheckSink>,
    of: PhantomData<fn() -> P>,
}

impl<O, P> Processing<O, P> {
    pub(crate) fn new(name: &str, label: &'static str, policy: OnError, open: O) -> Self {
        Self { name: name.to_owned(), label, policy, open, check: None, of: PhantomData }
    }

    /// Lets the states be declared once before the job starts, so that what is wrong with them is found there.
    pub(crate) fn checked<K: Key, H>(
        mut self,
        declare: impl for<'s, 'p> Fn(&'p mut States<'s, K>) -> Result<H> + Send + Sync + 'static,
    ) -> Self {
        let name = self.name.clone();
        self.check = Some(Arc::new(move || {
            let mut states = KeyedStates::new(KeyGroups::at_least(1));
            declare(&mut States::new(&mut states)).map(drop).map_err(|e| e.in_operator(&name))
        }));
        self
    }
}

impl<O: Clone, P> Clone for Processing<O, P> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            label: self.label,
            policy: self.policy.clone(),
            open: self.open.clone(),
            check: self.check.clone(),
            of: PhantomData,
        }
    }
}

impl<O, P> fmt::Debug for Processing<O, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processing").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<K, T, O, P> KeyedLogic<K, T> for Processing<O, P>
where
    K: Key,
    T: Data,
    P: Process<K, T>,
    O: for<'s, 'p> Fn(&'p mut States<'s, K>) -> Result<P> + Clone + Send + 'static,
{
    type Out = P::Out;
    type Logic = ProcessLogic<K, P>;

    fn make(self, build: &mut Build) -> Result<Self::Logic> {
        let mut states = KeyedStates::new(build.key_groups);
        let process = (self.open)(&mut States::new(&mut states))
            .and_then(|process| restore(&mut states, &self.name, build).map(|()| process))
            .map_err(|error| error.in_operator(&self.name))?;
        Ok(ProcessLogic::new(&self.name, states, process, self.policy, build.wall_at_zero))
    }

    fn describe(&self, stage: &mut Stage) {
        stage.names.push(self.name.clone());
        stage.operators.push(format!("{} '{}'", self.label, self.name));
        stage.has_state = true;
        stage.checks.extend(self.check.iter().map(|check| (self.name.clone(), check.clone())));
    }
}

/// Fills states with what the restored checkpoint holds under `operator`.
fn restore<K: Key>(states: &mut KeyedStates<K>, operator: &str, build: &Build) -> Result<()> {
    let range = build.key_range();
    for part in build.restored_parts(operator) {
        let info = StateInfo::of_part(&part.name).ok_or_else(|| {
            let message = format!("state '{}' is not that of a `process`", part.name);
            Error::new(ErrorKind::Checkpoint, message).in_field(&part.name)
        })?;
        // A state that has no entries has a type too.
        states.restore(&info, &[], range, 0)?;
        part.each_block(range, &mut |block, behind| states.restore(&info, block, range, behind))?;
    }
    Ok(())
}
