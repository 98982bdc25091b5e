//! The cursor with which a task captures one channel: a range that grows and never takes a buffer twice.
//!
//! It starts at the read position and ends at the barrier's position once that is known; until then it follows the tail
//! the consumer has loaded. The task asks [`Capture::extend`] for the next range after it has served the priority side and
//! before it reads anything, so whatever is read later has been captured, and nothing behind a barrier is. When the
//! capture stops, a channel whose end is known is extended to it; one without has been read up to its barrier.
//! One for each channel and running checkpoint.

use std::ops::Range;

use crate::channel::event::Position;

/// How far a channel has been captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    from: Position,
    captured_to: Position,
    until: Option<Position>,
}

impl Capture {
    /// Starts at the read position: the first buffer with an unread record.
    pub const fn new(read: Position) -> Self {
        Self { from: read, captured_to: read, until: None }
    }

    /// The end of the range is known. One before the read position leaves nothing to capture.
    ///
    /// # Panics
    /// If a buffer behind it was captured: the entry that names it was not served before data.
    pub fn until(&mut self, position: Position) {
        let position = position.max(self.from);
        assert!(self.captured_to <= position, "captured past the barrier");
        self.until = Some(position);
    }

    /// The buffers to capture next, given the tail the consumer has loaded. Empty if there is nothing new.
    pub fn extend(&mut self, loaded: Position) -> Range<u64> {
        let from = self.captured_to;
        let to = self.until.map_or(loaded, |until| until.min(loaded)).max(from);
        self.captured_to = to;
        from.0..to.0
    }

    /// Up to where the channel has been captured.
    pub fn captured_to(&self) -> Position {
        self.captured_to
    }

    /// Whether the end is known.
    pub fn has_end(&self) -> bool {
        self.until.is_some()
    }

    /// Whether all up to the known end was captured.
    pub fn has_reached(&self) -> bool {
        self.until.is_some_and(|until| self.captured_to >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_tail_until_the_end_is_known() {
        let mut capture = Capture::new(Position(3));
        assert_eq!(capture.extend(Position(5)), 3..5);
        assert_eq!(capture.extend(Position(5)), 5..5);
        capture.until(Position(7));
        assert_eq!(capture.extend(Position(6)), 5..6);
        assert!(!capture.has_reached());
        assert_eq!(capture.extend(Position(9)), 6..7);
        assert!(capture.has_reached());
        assert_eq!(capture.extend(Position(12)), 7..7);
    }

    #[test]
    fn a_reader_past_the_barrier_has_nothing_to_capture() {
        let mut capture = Capture::new(Position(8));
        capture.until(Position(6));
        assert!(capture.has_reached());
        assert_eq!(capture.extend(Position(10)), 8..8);
    }

    #[test]
    #[should_panic(expected = "captured past the barrier")]
    fn capturing_past_the_barrier_is_noticed() {
        let mut capture = Capture::new(Position(0));
        capture.extend(Position(4));
        capture.until(Position(2));
    }
}
