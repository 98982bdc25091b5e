//! Records that the host program sends into a running job.
//!
//! Not restorable: what a task took from the channel and had not finished with when it failed is gone. All subtasks take
//! from one channel. The job's input ends when the last [`Sender`] is dropped.

use std::fmt;
use std::time::Duration;

use crossbeam::channel::{Receiver, TryRecvError, bounded};

use super::{Poll, Reader, ReaderContext, Source, Split};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::record::{Data, Output};

/// How soon a reader that found nothing looks again, since it has nobody to wake it: twice as long each time, up to a pause
/// that costs an idle job next to nothing.
const RETRY: Duration = Duration::from_micros(100);
const RETRY_MAX: Duration = Duration::from_millis(4);

/// A source that reads what is sent, and the end for the host program. At most `capacity` records, at least 1, wait.
///
/// A job that waits for records looks for them again after 100 µs, and the longer nothing comes the more seldom: up to 4 ms can
/// pass before a record is taken after a pause.
pub fn channel<T: Data>(capacity: usize) -> (Sender<T>, Channel<T>) {
    let (sender, receiver) = bounded(capacity.max(1));
    (Sender(sender), Channel { receiver })
}

/// Sends records into a job; every clone may.
pub struct Sender<T>(crossbeam::channel::Sender<T>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("waiting", &self.0.len()).finish()
    }
}

impl<T> Sender<T> {
    /// Sends a record, waiting while the channel is full: that is the job's back-pressure.
    ///
    /// # Errors
    /// The job is over; the record comes back.
    pub fn send(&self, record: T) -> Result<(), T> {
        self.0.send(record).map_err(|error| error.into_inner())
    }

    /// Sends a record if there is room.
    ///
    /// # Errors
    /// The channel is full or the job is over; the record comes back.
    pub fn try_send(&self, record: T) -> Result<(), T> {
        self.0.try_send(record).map_err(|error| error.into_inner())
    }
}

/// See [`channel`].
pub struct Channel<T> {
    receiver: Receiver<T>,
}

impl<T> Clone for Channel<T> {
    fn clone(&self) -> Self {
        Self { receiver: self.receiver.clone() }
    }
}

impl<T> fmt::Debug for Channel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("waiting", &self.receiver.len()).finish()
    }
}

const VERSION: u8 = 1;

impl<T: Data> Source for Channel<T> {
    type Out = T;
    type Reader = ChannelReader<T>;

    /// One each, so that every subtask reads; there is nothing to say about it.
    fn splits(&self, parallelism: u32) -> Result<Vec<Split>> {
        Ok(vec![Split(vec![VERSION]); parallelism as usize])
    }

    fn open(&self, splits: Vec<Split>, _context: ReaderContext<'_>) -> Result<Self::Reader> {
        if splits.iter().any(|split| split.0 != [VERSION]) {
            return Err(Error::new(
                crate::error::ErrorKind::Checkpoint,
                "a channel's split is malformed",
            ));
        }
        Ok(ChannelReader { receiver: self.receiver.clone(), splits, pause: RETRY })
    }
}

/// Reads one subtask's share of a [`Channel`].
#[derive(Debug)]
pub struct ChannelReader<T> {
    receiver: Receiver<T>,
    splits: Vec<Split>,
    /// Before it looks again.
    pause: Duration,
}

impl<T: Data> Reader for ChannelReader<T> {
    type Out = T;

    #[inline(always)]
    fn poll(&mut self, limit: usize, now: Timestamp, out: &mut Output<'_, T>) -> Result<Poll> {
        if self.splits.is_empty() {
            return Ok(Poll::End);
        }
        for _ in 0..limit {
            match self.receiver.try_recv() {
                Ok(record) => {
                    self.pause = RETRY;
                    out.emit(record);
                }
                Err(TryRecvError::Empty) => {
                    let until = now + self.pause;
                    self.pause = (2 * self.pause).min(RETRY_MAX);
                    return Ok(Poll::Busy(until));
                }
                Err(TryRecvError::Disconnected) => {
                    self.splits.clear();
                    return Ok(Poll::End);
                }
            }
        }
        Ok(Poll::Ready)
    }

    fn snapshot(&mut self) -> Vec<Split> {
        self.splits.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::source::Drive;

    #[test]
    fn what_is_sent_is_read_and_the_last_sender_ends_it() {
        let (sender, source) = channel::<String>(2);
        let mut drive = Drive::new(&source, 2).expect("opens");
        let other = sender.clone();
        sender.try_send("a".to_owned()).expect("there is room");
        other.send("b".to_owned()).expect("there is room");
        assert_eq!(sender.try_send("c".to_owned()), Err("c".to_owned()), "full");
        let mut read = Vec::new();
        assert_eq!(drive.poll(0, 1, &mut read).expect("reads"), Poll::Ready);
        assert_eq!(
            drive.poll(1, 9, &mut read).expect("reads"),
            Poll::Busy(Timestamp::ZERO + RETRY)
        );
        assert_eq!(read, ["a", "b"]);
        let mut pauses = (0..9).map(|_| drive.poll(1, 9, &mut read).expect("reads"));
        assert_eq!(pauses.next(), Some(Poll::Busy(Timestamp::ZERO + 2 * RETRY)), "ever longer");
        assert_eq!(pauses.last(), Some(Poll::Busy(Timestamp::ZERO + RETRY_MAX)));
        assert_eq!(drive.snapshot().len(), 2);
        drop((sender, other));
        assert!(drive.read_all(9).is_empty());
    }

    #[test]
    fn a_sender_learns_that_the_job_is_over() {
        let (sender, source) = channel::<u64>(0);
        drop(source);
        assert_eq!(sender.send(7), Err(7));
    }
}
