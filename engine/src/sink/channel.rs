//! Records into a channel that the host program reads.
//!
//! At least once: what was sent since the last checkpoint is sent again after a restart. A writer never waits: it is
//! busy while as many records wait as may, so a slow reader is back-pressure for the job and holds up nothing else on the
//! worker. Writers that ask at the same time may find the same place free, so each subtask but one can be a record beyond
//! the bound. They do not reserve places: one that is asked and then gets no record would keep another's.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam::channel::{self as queue, RecvError, RecvTimeoutError, TryRecvError};

use super::{Committable, Readiness, Sink, Writer, WriterContext};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::record::Data;

/// How soon a writer that found no place asks again: it has nobody to wake it.
const RETRY: Duration = Duration::from_micros(100);

/// A sink that sends all records, and the end that receives them. No record is sent while `capacity` records, at least
/// one, wait; subtasks that send at the same moment go beyond that by one record each.
pub fn channel<T: Data>(capacity: usize) -> (Channel<T>, Receiver<T>) {
    let (sender, receiver) = queue::unbounded();
    let places = Arc::new(Places {
        taken: AtomicUsize::new(0),
        capacity: capacity.max(1),
        is_abandoned: AtomicBool::new(false),
    });
    (Channel { sender, places: Arc::clone(&places) }, Receiver { receiver, places })
}

/// How many records may wait. The channel itself has no bound, so sending never blocks.
struct Places {
    taken: AtomicUsize,
    capacity: usize,
    /// The receiver is gone: nobody gives places back, and the next record is to find that out.
    is_abandoned: AtomicBool,
}

impl Places {
    /// Only counts; the channel orders what is sent.
    fn has_room(&self) -> bool {
        self.taken.load(Ordering::Relaxed) < self.capacity
            || self.is_abandoned.load(Ordering::Relaxed)
    }

    fn take(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See [`channel()`].
pub struct Channel<T> {
    sender: queue::Sender<T>,
    places: Arc<Places>,
}

impl<T> Clone for Channel<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), places: Arc::clone(&self.places) }
    }
}

impl<T> fmt::Debug for Channel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("capacity", &self.places.capacity).finish_non_exhaustive()
    }
}

/// Receives what a job sends. When it is dropped, the job fails at its next record.
pub struct Receiver<T> {
    receiver: queue::Receiver<T>,
    places: Arc<Places>,
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("waiting", &self.receiver.len()).finish_non_exhaustive()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.places.is_abandoned.store(true, Ordering::Relaxed);
    }
}

impl<T> Receiver<T> {
    /// The next record, waited for; `None` when the job is over and everything was received.
    pub fn recv(&self) -> Option<T> {
        let record = self.receiver.recv();
        match record {
            Ok(record) => Some(self.took(record)),
            Err(RecvError) => None,
        }
    }

    /// The next record, if there is one at once.
    ///
    /// # Errors
    /// There is none, or the job is over.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.receiver.try_recv().map(|record| self.took(record))
    }

    /// The next record, waited for at most that long.
    ///
    /// # Errors
    /// The time is up, or the job is over.
    pub fn recv_timeout(&self, wait: Duration) -> Result<T, RecvTimeoutError> {
        self.receiver.recv_timeout(wait).map(|record| self.took(record))
    }

    /// The records up to the end of the job, each waited for.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.recv())
    }

    fn took(&self, record: T) -> T {
        self.places.give_back();
        record
    }
}

impl<T: Data> Sink<T> for Channel<T> {
    type Writer = ChannelWriter<T>;

    fn open(
        &self,
        _prepared: Vec<Committable>,
        _context: WriterContext<'_>,
    ) -> Result<Self::Writer> {
        Ok(ChannelWriter { channel: self.clone() })
    }
}

/// Sends one subtask's records of a [`Channel`].
#[derive(Debug)]
pub struct ChannelWriter<T> {
    channel: Channel<T>,
}

impl<T: Data> Writer<T> for ChannelWriter<T> {
    const MAY_BE_BUSY: bool = true;

    fn write(&mut self, record: T::Ref<'_>) -> Result<()> {
        let Channel { sender, places } = &self.channel;
        places.take();
        sender.send(T::own(record)).map_err(|_| {
            places.give_back();
            Error::new(ErrorKind::Cancelled, "the receiver of the job's channel was dropped")
        })
    }

    fn ready(&mut self, now: Timestamp) -> Readiness {
        if self.channel.places.has_room() { Readiness::Ready } else { Readiness::Busy(now + RETRY) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(sink: &Channel<u64>, subtask: u32) -> ChannelWriter<u64> {
        let context = WriterContext {
            name: "channel",
            subtask,
            parallelism: 2,
            attempt: crate::id::Attempt(0),
            restored: None,
        };
        sink.open(Vec::new(), context).expect("opens")
    }

    #[test]
    fn writers_share_the_places_are_busy_without_one_and_keep_none_that_they_do_not_use() {
        let (sink, receiver) = channel::<u64>(2);
        let (mut a, mut b) = (open(&sink, 0), open(&sink, 1));
        let now = Timestamp::from_millis(1);
        for _ in 0..3 {
            assert_eq!((a.ready(now), b.ready(now)), (Readiness::Ready, Readiness::Ready));
        }
        a.write(1).expect("sends");
        assert_eq!(b.ready(now), Readiness::Ready, "the first one took one place only");
        a.write(2).expect("sends");
        let busy = Readiness::Busy(now + RETRY);
        assert_eq!((a.ready(now), b.ready(now)), (busy, busy));
        assert_eq!(receiver.recv(), Some(1));
        assert_eq!(b.ready(now), Readiness::Ready);
        b.write(3).expect("sends");
        assert_eq!(a.ready(now), busy);
        drop((a, b, sink));
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [2, 3]);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    }

    #[test]
    fn a_dropped_receiver_ends_the_writing() {
        let (sink, receiver) = channel::<u64>(0);
        let mut writer = open(&sink, 0);
        writer.write(0).expect("sends");
        assert_ne!(writer.ready(Timestamp::ZERO), Readiness::Ready, "full");
        drop(receiver);
        assert_eq!(writer.ready(Timestamp::ZERO), Readiness::Ready, "so that it finds out");
        assert_eq!(writer.write(1).expect_err("is refused").kind(), ErrorKind::Cancelled);
    }
}
