//! A source that does what a list says: records of given event times, moments in which time is told, and waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::clock::Timestamp;
use tidegate::source::{Poll, Reader, ReaderContext, Source, Split};
use tidegate::{Output, Result};

/// What a reader does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    /// Emits a record of that key and event time.
    At(u64, i64),
    /// Has nothing for a moment, so that its task tells how far time has come.
    Pause,
    /// Waits until the script is opened that far.
    Hold(u64),
    /// Says that there is nothing for a day.
    Silent,
}

/// A list for each split; split `i` goes to subtask `i` modulo the parallelism.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    lists: Arc<Vec<Vec<Item>>>,
    open: Arc<AtomicU64>,
    held: Arc<AtomicU64>,
}

impl Script {
    pub(crate) fn new(lists: &[&[Item]]) -> Self {
        let lists = lists.iter().map(|list| list.to_vec()).collect();
        Self { lists: Arc::new(lists), open: Arc::default(), held: Arc::default() }
    }

    /// Lets readers pass holds up to `level`.
    pub(crate) fn open(&self, level: u64) {
        self.open.store(level, Ordering::Relaxed);
    }

    /// The highest hold at which a reader has waited.
    pub(crate) fn held(&self) -> &AtomicU64 {
        &self.held
    }
}

fn numbers(split: &Split) -> (usize, usize) {
    let number = |at: usize| {
        let bytes = split.0[at..at + 8].try_into().expect("8 bytes");
        u64::from_le_bytes(bytes) as usize
    };
    (number(0), number(8))
}

fn split((list, at): (usize, usize)) -> Split {
    Split([list as u64, at as u64].iter().flat_map(|n| n.to_le_bytes()).collect())
}

impl Source for Script {
    type Out = (u64, i64);
    type Reader = ScriptReader;

    fn splits(&self, _parallelism: u32) -> Result<Vec<Split>> {
        Ok((0..self.lists.len()).map(|list| split((list, 0))).collect())
    }

    fn open(&self, splits: Vec<Split>, _context: ReaderContext<'_>) -> Result<ScriptReader> {
        let places = splits.iter().map(numbers).collect();
        Ok(ScriptReader { script: self.clone(), places, pauses: 0 })
    }
}

#[derive(Debug)]
pub(crate) struct ScriptReader {
    script: Script,
    /// Lists with the place of the next item; one after the other.
    places: Vec<(usize, usize)>,
    pauses: u32,
}

impl Reader for ScriptReader {
    type Out = (u64, i64);

    fn poll(
        &mut self,
        limit: usize,
        now: Timestamp,
        out: &mut Output<'_, (u64, i64)>,
    ) -> Result<Poll> {
        for _ in 0..limit {
            let Some((list, at)) = self.places.first_mut() else { return Ok(Poll::End) };
            let Some(item) = self.script.lists[*list].get(*at) else {
                self.places.remove(0);
                continue;
            };
            match *item {
                Item::At(key, time) => out.emit((key, time)),
                // The first answer may end a step in which records came; the second is all there is in its step.
                Item::Pause if self.pauses < 2 => {
                    self.pauses += 1;
                    return Ok(Poll::Busy(now));
                }
                Item::Pause => self.pauses = 0,
                Item::Hold(level) => {
                    if self.script.open.load(Ordering::Relaxed) < level {
                        self.script.held.fetch_max(level, Ordering::Relaxed);
                        return Ok(Poll::Busy(now + Duration::from_millis(1)));
                    }
                }
                Item::Silent => return Ok(Poll::Busy(now + Duration::from_secs(86_400))),
            }
            *at += 1;
            if let Item::Pause = item {
                // What comes behind is a batch of its own.
                return Ok(Poll::Ready);
            }
        }
        Ok(Poll::Ready)
    }

    fn snapshot(&mut self) -> Vec<Split> {
        self.places.iter().copied().map(split).collect()
    }
}
