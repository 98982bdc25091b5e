//! Ids of checkpoints: strictly increasing, and durably ours before a trigger carries one.
//!
//! They are reserved in blocks, so only the first checkpoint of a job waits for the store. A gap is
//! harmless.

use crate::id::CheckpointId;

const BLOCK: u64 = 64;

/// Hands out ids.
#[derive(Clone, Debug, Hash)]
pub struct Ids {
    next: u64,
    /// The first id that is not durably ours; `next` at least.
    reserved_below: u64,
    is_asked: bool,
}

impl Ids {
    /// Begins with `first`; nothing is reserved.
    pub fn new(first: CheckpointId) -> Self {
        Self { next: first.0, reserved_below: first.0, is_asked: false }
    }

    /// An id can be drawn.
    pub fn is_available(&self) -> bool {
        self.next < self.reserved_below
    }

    /// What to reserve, if a block is wanted and has not been asked for.
    pub fn ask(&mut self) -> Option<CheckpointId> {
        let wants = !self.is_available() && !self.is_asked;
        self.is_asked |= wants;
        wants.then_some(CheckpointId(self.next + BLOCK))
    }

    /// All ids below `below` are ours.
    pub fn reserved(&mut self, below: CheckpointId) {
        self.is_asked = false;
        self.reserved_below = self.reserved_below.max(below.0);
    }

    /// Nothing could be reserved.
    pub fn not_reserved(&mut self) {
        self.is_asked = false;
    }

    /// The next id.
    ///
    /// # Panics
    /// If none is available.
    pub fn draw(&mut self) -> CheckpointId {
        assert!(self.is_available(), "an id is drawn only when it is durable");
        let id = CheckpointId(self.next);
        self.next += 1;
        id
    }
}
