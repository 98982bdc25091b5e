//! How one checkpoint is taken: its kind and its alignment, one value carried by trigger and barrier.
//!
//! Invariants kept by the constructors: a savepoint is aligned and has no timeout; an unaligned checkpoint has no
//! timeout. What can't be built can't reach the alignment machine.

use std::time::Duration;

/// What a checkpoint is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckpointKind {
    /// Taken by the engine for its own recovery.
    Checkpoint,
    /// Asked for by the user; the job goes on.
    Savepoint,
    /// A savepoint after which the job ends; with `drain` its inputs end for good first.
    StopWithSavepoint {
        /// Whether MAX watermark, `end_input` and `finish` run before the savepoint.
        drain: bool,
    },
}

impl CheckpointKind {
    /// Whether it is a savepoint of either sort.
    pub const fn is_savepoint(self) -> bool {
        match self {
            Self::Checkpoint => false,
            Self::Savepoint | Self::StopWithSavepoint { .. } => true,
        }
    }

    /// Whether the job ends after it.
    pub const fn is_synchronous(self) -> bool {
        match self {
            Self::Checkpoint | Self::Savepoint => false,
            Self::StopWithSavepoint { .. } => true,
        }
    }
}

/// How barriers of one checkpoint are brought together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alignment {
    /// No channel is blocked and nothing in flight is kept; records may be seen twice after a restore.
    AtLeastOnce,
    /// A channel waits behind its barrier until all have come.
    Aligned,
    /// As [`Alignment::Aligned`] until this long after the trigger, then as [`Alignment::Unaligned`].
    AlignedWithTimeout(Duration),
    /// The barrier overtakes what is in flight, which becomes part of the checkpoint.
    Unaligned,
    /// Aligned on this edge only; the receiving task goes back to the original for its own outputs.
    ForcedAligned {
        /// The original timeout; `None` if it was [`Alignment::Unaligned`].
        timeout: Option<Duration>,
    },
}

/// How one checkpoint is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointOptions {
    kind: CheckpointKind,
    alignment: Alignment,
}

impl CheckpointOptions {
    /// A checkpoint of an at-least-once job.
    pub const fn at_least_once() -> Self {
        Self { kind: CheckpointKind::Checkpoint, alignment: Alignment::AtLeastOnce }
    }

    /// An aligned checkpoint without a timeout.
    pub const fn aligned() -> Self {
        Self { kind: CheckpointKind::Checkpoint, alignment: Alignment::Aligned }
    }

    /// An aligned checkpoint that becomes unaligned `timeout` after its trigger.
    pub const fn aligned_with_timeout(timeout: Duration) -> Self {
        Self { kind: CheckpointKind::Checkpoint, alignment: Alignment::AlignedWithTimeout(timeout) }
    }

    /// A checkpoint whose barriers overtake.
    pub const fn unaligned() -> Self {
        Self { kind: CheckpointKind::Checkpoint, alignment: Alignment::Unaligned }
    }

    /// A savepoint; always aligned.
    pub const fn savepoint() -> Self {
        Self { kind: CheckpointKind::Savepoint, alignment: Alignment::Aligned }
    }

    /// The savepoint that ends the job; always aligned.
    pub const fn stop_with_savepoint(drain: bool) -> Self {
        Self { kind: CheckpointKind::StopWithSavepoint { drain }, alignment: Alignment::Aligned }
    }

    /// What it is taken for.
    pub const fn kind(self) -> CheckpointKind {
        self.kind
    }

    /// How its barriers are brought together.
    pub const fn alignment(self) -> Alignment {
        self.alignment
    }

    /// Whether its barrier overtakes data on this edge.
    pub const fn is_unaligned(self) -> bool {
        matches!(self.alignment, Alignment::Unaligned)
    }

    /// How long after the trigger it stays aligned, if it may become unaligned on this edge.
    pub const fn timeout(self) -> Option<Duration> {
        match self.alignment {
            Alignment::AlignedWithTimeout(timeout) => Some(timeout),
            Alignment::AtLeastOnce
            | Alignment::Aligned
            | Alignment::Unaligned
            | Alignment::ForcedAligned { .. } => None,
        }
    }

    /// Whether buffers in flight may become part of it somewhere in the task.
    pub const fn needs_channel_state(self) -> bool {
        match self.alignment {
            Alignment::AlignedWithTimeout(_) | Alignment::Unaligned => true,
            Alignment::AtLeastOnce | Alignment::Aligned | Alignment::ForcedAligned { .. } => false,
        }
    }

    /// The same checkpoint after its timeout has passed. Changes nothing but [`Alignment::AlignedWithTimeout`].
    #[must_use]
    pub const fn timed_out(self) -> Self {
        match self.alignment {
            Alignment::AlignedWithTimeout(_) => {
                Self { kind: self.kind, alignment: Alignment::Unaligned }
            }
            Alignment::AtLeastOnce
            | Alignment::Aligned
            | Alignment::Unaligned
            | Alignment::ForcedAligned { .. } => self,
        }
    }

    /// The same checkpoint on an edge whose data must not be captured.
    #[must_use]
    pub const fn forced_aligned(self) -> Self {
        let timeout = match self.alignment {
            Alignment::AlignedWithTimeout(timeout) => Some(timeout),
            Alignment::Unaligned => None,
            Alignment::AtLeastOnce | Alignment::Aligned | Alignment::ForcedAligned { .. } => {
                return self;
            }
        };
        Self { kind: self.kind, alignment: Alignment::ForcedAligned { timeout } }
    }

    /// The options a task uses for its own outputs after it aligned a forced-aligned barrier.
    #[must_use]
    pub const fn original(self) -> Self {
        let alignment = match self.alignment {
            Alignment::ForcedAligned { timeout: Some(timeout) } => {
                Alignment::AlignedWithTimeout(timeout)
            }
            Alignment::ForcedAligned { timeout: None } => Alignment::Unaligned,
            Alignment::AtLeastOnce
            | Alignment::Aligned
            | Alignment::AlignedWithTimeout(_)
            | Alignment::Unaligned => self.alignment,
        };
        Self { kind: self.kind, alignment }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forced_edge_gives_the_original_back() {
        let timeout = Duration::from_millis(5);
        for options in [
            CheckpointOptions::unaligned(),
            CheckpointOptions::aligned_with_timeout(timeout),
            CheckpointOptions::aligned(),
            CheckpointOptions::savepoint(),
            CheckpointOptions::at_least_once(),
        ] {
            let forced = options.forced_aligned();
            assert!(!forced.is_unaligned() && forced.timeout().is_none());
            assert_eq!(forced.forced_aligned(), forced);
            assert_eq!(forced.original(), options);
        }
    }

    #[test]
    fn no_savepoint_is_unaligned() {
        for options in
            [CheckpointOptions::savepoint(), CheckpointOptions::stop_with_savepoint(true)]
        {
            assert_eq!(options.timed_out(), options);
            assert!(!options.needs_channel_state());
            assert!(options.kind().is_savepoint());
        }
    }
}
