//! Where records come from: the traits, and the sources that ship.
//!
//! A [`Source`] describes an input and can be cloned; it names the [`Split`]s of the input once, when the job starts
//! for the first time. Each subtask then opens a [`Reader`] on its share. A split carries its own position, so what a
//! reader hands out at a checkpoint is all that is needed to go on from there, on any number of subtasks.

mod bad_record;
mod channel;
#[cfg(feature = "csv")]
mod columns;
#[cfg(feature = "csv")]
mod csv;
pub mod csv_field;
#[cfg(feature = "csv")]
mod csv_files;
pub mod csv_row;
mod files;
mod generate;
mod input;
#[cfg(feature = "json")]
mod json;
mod lines;
mod rate;
mod split;
mod text;
#[cfg(feature = "zstd")]
mod zstd;

pub use bad_record::{FieldError, OnBadRecord, OnInvalidText, Skipped};
pub use channel::{Channel, ChannelReader, Sender, channel};
#[cfg(feature = "csv")]
pub use columns::Columns;
#[cfg(feature = "csv")]
pub use csv::{Csv, Rows, RowsBy, csv_with};
#[cfg(feature = "csv")]
pub use csv_files::{CsvRecords, csv_files};
pub use files::{Files, FilesReader, LineFormat};
pub use generate::{
    Generate, GenerateForever, GenerateForeverReader, GenerateReader, generate, generate_forever,
    range,
};
#[cfg(feature = "json")]
pub use json::{Json, json_lines};
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use lines::{LineSeen, lines_of};
pub use rate::{Rate, RateReader};
pub use text::{Text, TextBytes, TextReader, text_bytes, text_files, text_str};

use crate::clock::Timestamp;
use crate::error::Result;
use crate::record::{Data, Output};

/// A part of an input together with the position up to which it has been read, in the source's own bytes.
///
/// At the start the position is the part's beginning. The bytes are stored in checkpoints, so a source keeps their
/// format compatible.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Split(pub Vec<u8>);

/// Which reader is opened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReaderContext<'a> {
    /// The source's name in the job.
    pub name: &'a str,
    /// Which subtask of the source, from 0.
    pub subtask: u32,
    /// How many subtasks the source has.
    pub parallelism: u32,
}

/// An input.
///
/// A source of one split, checked by the suite that ours pass too:
///
/// ```
/// use tidegate::clock::Timestamp;
/// use tidegate::source::{Poll, Reader, ReaderContext, Source, Split};
/// use tidegate::{Job, Output, Result, sink, testing};
///
/// /// The numbers from `.0` down to 1.
/// #[derive(Clone)]
/// struct Countdown(u64);
///
/// /// Reads on from the number that each split names.
/// struct CountdownReader(Vec<u64>);
///
/// impl Source for Countdown {
///     type Out = u64;
///     type Reader = CountdownReader;
///
///     fn splits(&self, _parallelism: u32) -> Result<Vec<Split>> {
///         Ok(vec![Split(self.0.to_le_bytes().to_vec())])
///     }
///
///     fn open(&self, splits: Vec<Split>, _: ReaderContext<'_>) -> Result<CountdownReader> {
///         let next = splits.iter().filter_map(|split| split.0.as_slice().try_into().ok());
///         Ok(CountdownReader(next.map(u64::from_le_bytes).collect()))
///     }
/// }
///
/// impl Reader for CountdownReader {
///     type Out = u64;
///
///     fn poll(&mut self, limit: usize, _: Timestamp, out: &mut Output<'_, u64>) -> Result<Poll> {
///         for _ in 0..limit {
///             let Some(next) = self.0.last_mut() else { return Ok(Poll::End) };
///             if *next == 0 {
///                 self.0.pop();
///                 continue;
///             }
///             out.emit(*next);
///             *next -= 1;
///         }
///         Ok(Poll::Ready)
///     }
///
///     fn snapshot(&mut self) -> Vec<Split> {
///         let unread = self.0.iter().filter(|next| **next > 0);
///         unread.map(|next| Split(next.to_le_bytes().to_vec())).collect()
///     }
/// }
///
/// testing::source::conformance(|| Countdown(4), &[4, 3, 2, 1]);
///
/// let job = Job::new("countdown");
/// let (sink, numbers) = sink::collect();
/// job.source("numbers", Countdown(3)).sink("out", sink);
/// job.run()?;
/// assert_eq!(numbers.take(), [3, 2, 1]);
/// # Ok::<(), tidegate::Error>(())
/// ```
pub trait Source: Clone + Send + 'static {
    /// The record type.
    type Out: Data;
    /// What reads a share of the splits.
    type Reader: Reader<Out = Self::Out>;

    /// Checks the input and names its splits. Called once, before any task starts; not called on a restore, where the
    /// checkpoint's splits are used. Split `i` goes to subtask `i % parallelism`.
    ///
    /// # Errors
    /// The input can't be read, or an option is wrong. The job does not start.
    fn splits(&self, parallelism: u32) -> Result<Vec<Split>>;

    /// Opens a reader on `splits`, each from its position on. No splits: a reader that ends at once.
    ///
    /// # Errors
    /// A split can't be opened. The task fails.
    fn open(&self, splits: Vec<Split>, context: ReaderContext<'_>) -> Result<Self::Reader>;

    /// The same source at a number of records a second, in total over its subtasks. What is overdue after a pause is
    /// caught up at about twice the rate, in bursts of at most four milliseconds' worth.
    fn rate(self, rows_per_second: u64) -> Rate<Self>
    where
        Self: Sized,
    {
        Rate::new(self, rows_per_second)
    }
}

/// What a reader answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// There may be more at once.
    Ready,
    /// Nothing to read before that moment; [`Timestamp::MAX`] if only a wake-up can tell.
    Busy(Timestamp),
    /// Nothing will ever come again.
    End,
}

/// Reads one subtask's share of an input.
pub trait Reader: 'static {
    /// The record type.
    type Out: Data;

    /// Emits at most `limit` records and says whether there may be more. Never sleeps and never waits for input: it runs on a worker
    /// that has other tasks.
    ///
    /// # Errors
    /// The input can't be read on, or a record is malformed and the source's policy is to fail. The task fails and
    /// restarts from the last checkpoint.
    fn poll(
        &mut self,
        limit: usize,
        now: Timestamp,
        out: &mut Output<'_, Self::Out>,
    ) -> Result<Poll>;

    /// The splits that are not read to their end, each with the position behind the last record emitted.
    fn snapshot(&mut self) -> Vec<Split>;
}
