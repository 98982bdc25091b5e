//! Timers by key: set once for each key and time, fired in the order of their times.
//!
//! A table holds the timers that are set, and is what snapshots are made of; a heap holds their order. A timer that was
//! removed stays in the heap until its turn, or until such leftovers are the most part. A timer belongs to the key group of
//! its own key, wherever the subtask's other keys go.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fmt;

use super::keyed::StateTable;
use super::nested::nested_hash;
use super::part::WriteBlocks;
use super::table::{Table, TableOptions};
use crate::clock::EpochMillis;
use crate::error::Result;
use crate::record::Key;
use crate::record::key::hash;
use crate::record::key_group::{KeyGroupRange, KeyGroups};

/// Which clock a timer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerDomain {
    /// The watermark.
    Event = 0,
    /// The wall clock.
    Processing = 1,
}

impl TimerDomain {
    /// The name under which the timers are kept in a checkpoint.
    pub(super) fn state_name(self) -> &'static str {
        match self {
            Self::Event => "timers.event",
            Self::Processing => "timers.processing",
        }
    }
}

/// Leftovers that the heap may have in any case.
const LEFTOVERS_MIN: usize = 64;

/// The timers of one operator, subtask and domain.
pub(super) struct Timers<K: Key> {
    set: Table<(K, i64), ()>,
    order: BinaryHeap<Reverse<Turn<K>>>,
}

/// A timer in its order: by time, then by anything that is the same after a restart.
struct Turn<K> {
    time: i64,
    hash: u64,
    key: K,
}

impl<K> Turn<K> {
    fn rank(&self) -> (i64, u64) {
        (self.time, self.hash)
    }
}

impl<K> PartialEq for Turn<K> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl<K> Eq for Turn<K> {}

impl<K> PartialOrd for Turn<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Turn<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// The hash of a key's timer.
fn timer_hash(hash: u64, time: i64) -> u64 {
    nested_hash(hash, time.cast_unsigned())
}

impl<K: Key> Timers<K> {
    pub(super) fn new(groups: KeyGroups) -> Self {
        Self { set: Table::new(TableOptions::small(groups), ()), order: BinaryHeap::new() }
    }

    /// Sets a timer, if it isn't set.
    pub(super) fn set(&mut self, hash: u64, key: K::Ref<'_>, time: EpochMillis) {
        let before = self.set.len();
        self.set.entry(timer_hash(hash, time.0), (key, time.0));
        if self.set.len() > before {
            self.order.push(Reverse(Turn { time: time.0, hash, key: K::own(key) }));
        }
    }

    /// Removes a timer, if it is set.
    pub(super) fn remove(&mut self, hash: u64, key: K::Ref<'_>, time: EpochMillis) {
        self.set.remove(timer_hash(hash, time.0), (key, time.0));
        if self.order.len() > 2 * self.set.len() + LEFTOVERS_MIN {
            self.order.clear();
            let turns = self.set.iter().map(|((key, time), ())| turn(key, time));
            self.order.extend(turns);
        }
    }

    /// Removes the next timer that is due at `now`.
    pub(super) fn pop_due(&mut self, now: EpochMillis) -> Option<(K, EpochMillis)> {
        while self.order.peek()?.0.time <= now.0 {
            let Reverse(Turn { time, hash, key }) = self.order.pop()?;
            if self.set.remove(timer_hash(hash, time), (key.view(), time)).is_some() {
                return Some((key, EpochMillis(time)));
            }
        }
        None
    }

    /// When the next timer is due.
    pub(super) fn next_due(&mut self) -> Option<EpochMillis> {
        loop {
            let Reverse(Turn { time, hash, key }) = self.order.peek()?;
            if self.set.get(timer_hash(*hash, *time), (key.view(), *time)).is_some() {
                return Some(EpochMillis(*time));
            }
            self.order.pop();
        }
    }
}

fn turn<K: Key>(key: K::Ref<'_>, time: i64) -> Reverse<Turn<K>> {
    Reverse(Turn { time, hash: hash::<K>(key), key: K::own(key) })
}

impl<K: Key> StateTable for Timers<K> {
    fn snapshot(&mut self) -> Box<dyn WriteBlocks> {
        Box::new(self.set.snapshot())
    }

    fn restore(&mut self, block: &[u8], range: KeyGroupRange, behind: u64) -> Result<()> {
        let order = &mut self.order;
        let hash_of = |(key, time): (K::Ref<'_>, i64)| timer_hash(hash::<K>(key), time);
        let add = |_, (key, time): (K::Ref<'_>, i64), is_new: bool| {
            if is_new {
                order.push(turn(key, time));
            }
        };
        self.set.restore_with(block, range, behind, hash_of, |()| Ok(()), add).map(drop)
    }

    fn copied_chunks(&self) -> u64 {
        self.set.copied_chunks()
    }

    fn bytes(&self) -> usize {
        self.set.bytes() + self.order.len() * size_of::<Turn<K>>()
    }
}

/// The timers of the current key.
pub struct TimerAt<'s, K: Key> {
    timers: &'s mut Timers<K>,
    hash: u64,
    key: K::Ref<'s>,
}

impl<'s, K: Key> TimerAt<'s, K> {
    #[inline(always)]
    pub(super) fn new(timers: &'s mut Timers<K>, hash: u64, key: K::Ref<'s>) -> Self {
        Self { timers, hash, key }
    }

    /// Sets a timer for `time`; it fires once, however often it is set.
    pub fn set(&mut self, time: EpochMillis) {
        self.timers.set(self.hash, self.key, time);
    }

    /// Removes the timer for `time`, if it is set.
    pub fn remove(&mut self, time: EpochMillis) {
        self.timers.remove(self.hash, self.key, time);
    }
}

impl<K: Key> fmt::Debug for TimerAt<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerAt").finish_non_exhaustive()
    }
}
