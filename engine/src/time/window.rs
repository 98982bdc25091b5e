//! Which windows a moment falls in: arithmetic without drift, aligned to 1970-01-01T00:00Z plus an offset.

use std::time::Duration;

use crate::clock::EpochMillis;
use crate::error::{Error, Result};
use crate::record::codec::Codec;
use crate::record::{AsData, Data};

/// An event-time window: `start` is in it, `end` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// Its first moment.
    pub start: EpochMillis,
    /// The moment behind its last.
    pub end: EpochMillis,
}

impl AsData for Window {
    type Data = Self;
    #[inline(always)]
    fn view(&self) -> Self {
        *self
    }
}

impl Data for Window {
    type Ref<'a> = Self;
    type Codec = (i64, i64);
    #[inline(always)]
    fn encode<'a>(view: Self) -> <Self::Codec as Codec>::Ref<'a> {
        (view.start.0, view.end.0)
    }
    #[inline(always)]
    fn decode<'a>((start, end): <Self::Codec as Codec>::Ref<'a>) -> Self::Ref<'a> {
        Self { start: EpochMillis(start), end: EpochMillis(end) }
    }
    #[inline(always)]
    fn own(view: Self) -> Self {
        view
    }
    #[inline(always)]
    fn shorten<'short, 'long: 'short>(view: Self) -> Self {
        view
    }
}

/// How event time is divided into windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    size: i64,
    slide: i64,
    offset: i64,
}

impl Windows {
    /// Windows of `size` one after the other.
    pub fn tumbling(size: Duration) -> Self {
        Self::sliding(size, size)
    }

    /// Windows of `size` that begin every `slide`.
    pub fn sliding(size: Duration, slide: Duration) -> Self {
        let millis = |d: Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
        Self { size: millis(size), slide: millis(slide), offset: 0 }
    }

    /// Windows begin that much later: for days of another time zone.
    #[must_use]
    pub fn offset_by(mut self, offset_ms: i64) -> Self {
        self.offset = offset_ms;
        self
    }

    /// Checks the sizes.
    ///
    /// # Errors
    /// `Config` if the size or the slide is below a millisecond, or the slide longer than the size.
    pub(crate) fn check(self) -> Result<()> {
        if self.size < 1 || self.slide < 1 {
            return Err(Error::config("a window's size and slide are at least a millisecond"));
        }
        if self.slide > self.size {
            return Err(Error::config(
                "a window's slide is longer than its size: records between windows would be lost",
            ));
        }
        Ok(())
    }

    /// Whether each moment is in one window only.
    #[inline]
    pub(crate) fn is_tumbling(self) -> bool {
        self.size == self.slide
    }

    /// The end of the last window that `time` is in; the others end one slide earlier each, down to `time` + 1.
    #[inline(always)]
    pub(crate) fn last_end(self, time: i64) -> i64 {
        let since = (i128::from(time) - i128::from(self.offset)).rem_euclid(i128::from(self.slide));
        let end = i128::from(time) - since + i128::from(self.size);
        i64::try_from(end).unwrap_or(i64::MAX)
    }

    /// The ends of all windows that `time` is in, latest first.
    #[inline(always)]
    pub(crate) fn ends(self, time: i64) -> impl Iterator<Item = i64> {
        let mut end = self.last_end(time);
        std::iter::from_fn(move || {
            let current = end;
            end = end.saturating_sub(self.slide);
            (current > time).then_some(current)
        })
    }

    /// The window that ends at `end`.
    pub(crate) fn window(self, end: i64) -> Window {
        Window { start: EpochMillis(end.saturating_sub(self.size)), end: EpochMillis(end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tumbling_windows_are_aligned_to_the_epoch_also_before_it() {
        let hour = Windows::tumbling(Duration::from_secs(3600));
        assert_eq!(hour.ends(0).collect::<Vec<_>>(), [3_600_000]);
        assert_eq!(hour.ends(3_599_999).collect::<Vec<_>>(), [3_600_000]);
        assert_eq!(hour.ends(-1).collect::<Vec<_>>(), [0]);
        assert_eq!(hour.window(0).start, EpochMillis(-3_600_000));
    }

    proptest! {
        // A sliding window of 1600 ms every 700 ms with an origin years before the data lost rows elsewhere.
        #[test]
        fn p15_each_moment_is_in_every_window_that_covers_it_whatever_the_origin(
            time in -10_000_000_000_000i64..10_000_000_000_000,
            offset in -10_000_000_000_000i64..10_000_000_000_000,
            size in 1i64..100_000,
            part in 1i64..100_000,
        ) {
            let slide = part.min(size);
            let windows = Windows { size, slide, offset };
            let ends: Vec<i64> = windows.ends(time).collect();
            let floor = (size / slide) as usize;
            prop_assert!(ends.len() == floor || ends.len() == floor + usize::from(size % slide != 0));
            for end in ends {
                let window = windows.window(end);
                prop_assert!(window.start.0 <= time && time < window.end.0);
                prop_assert_eq!((window.start.0 - offset).rem_euclid(slide), 0);
            }
        }
    }
}
