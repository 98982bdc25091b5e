//! The source of W6b: every key once at full speed, then random keys at a rate, without end.

use std::time::Duration;

use tidegate::clock::Timestamp;
use tidegate::record::Output;
use tidegate::source::{Poll, Reader, ReaderContext, Source, Split};
use tidegate::{Error, ErrorKind, Result};

use crate::event::key;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct KeyedFeed {
    /// How many keys.
    pub keys: u64,
    /// Records a second once all keys were emitted, over all subtasks.
    pub rate: u64,
}

/// The share of subtask `w` of `p`, of which record `j` comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    w: u64,
    p: u64,
    j: u64,
}

impl Share {
    fn encode(self) -> Split {
        Split([self.w, self.p, self.j].iter().flat_map(|n| n.to_le_bytes()).collect())
    }

    fn parse(split: &Split) -> Result<Self> {
        match split.0.as_chunks::<8>() {
            (&[w, p, j], []) => Ok(Self {
                w: u64::from_le_bytes(w),
                p: u64::from_le_bytes(p),
                j: u64::from_le_bytes(j),
            }),
            _ => Err(Error::new(ErrorKind::Checkpoint, "a split has another length")),
        }
    }
}

impl Source for KeyedFeed {
    type Out = u64;
    type Reader = KeyedFeedReader;

    fn splits(&self, parallelism: u32) -> Result<Vec<Split>> {
        let p = u64::from(parallelism);
        Ok((0..p).map(|w| Share { w, p, j: 0 }.encode()).collect())
    }

    fn open(&self, splits: Vec<Split>, _context: ReaderContext<'_>) -> Result<Self::Reader> {
        let share = splits.first().map(Share::parse).transpose()?;
        if splits.len() > 1 {
            return Err(Error::new(ErrorKind::Unsupported, "this source keeps its parallelism"));
        }
        Ok(KeyedFeedReader { feed: *self, share, paced_since: None, paced: 0 })
    }
}

/// Reads one subtask's share.
#[derive(Debug)]
pub struct KeyedFeedReader {
    feed: KeyedFeed,
    share: Option<Share>,
    /// When the rate began to hold, in this attempt.
    paced_since: Option<Timestamp>,
    paced: u64,
}

impl Reader for KeyedFeedReader {
    type Out = u64;

    fn poll(&mut self, limit: usize, now: Timestamp, out: &mut Output<'_, u64>) -> Result<Poll> {
        let Some(Share { w, p, j }) = &mut self.share else { return Ok(Poll::End) };
        let own = self.feed.keys / *p;
        if *j < own {
            let end = own.min(*j + limit as u64);
            (*j..end).for_each(|j| out.emit(own * *w + j));
            *j = end;
            return Ok(Poll::Ready);
        }
        let since = *self.paced_since.get_or_insert(now);
        let nanos_each = 1_000_000_000 * *p / self.feed.rate.max(1);
        let due = now.since(since).as_nanos() as u64 / nanos_each.max(1) + 1;
        if due <= self.paced {
            return Ok(Poll::Busy(since + Duration::from_nanos(self.paced * nanos_each)));
        }
        let n = (due - self.paced).min(limit as u64);
        (*j..*j + n).for_each(|j| out.emit(key(j * *p + *w, self.feed.keys)));
        (*j, self.paced) = (*j + n, self.paced + n);
        Ok(Poll::Ready)
    }

    fn snapshot(&mut self) -> Vec<Split> {
        self.share.iter().map(|share| share.encode()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_survives_its_split() {
        let share = Share { w: 1, p: 2, j: 3 };
        assert_eq!(Share::parse(&share.encode()).expect("parses"), share);
        assert!(Share::parse(&Split(vec![0; 23])).is_err());
    }
}
