//! Checkpoint options: what a trigger and a barrier carry besides the id. Kind × alignment.
//!
//! Invariant (asserted on construction): a savepoint is never unaligned and never becomes so. That
//! an unaligned checkpoint has no timeout is in the type.

use std::time::Duration;

/// What a snapshot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotKind {
    /// For recovery; owned and discarded by Tidegate.
    Checkpoint,
    /// For its owner, who keeps it: not counted, not notified, never subsumed.
    Savepoint,
    /// The last one of a job that is being stopped: every task leaves when it completes.
    StopSavepoint {
        /// Run to the end of data as if the sources were exhausted, rather than just stop.
        is_drain: bool,
    },
}

impl SnapshotKind {
    /// A savepoint of either sort.
    pub const fn is_savepoint(self) -> bool {
        matches!(self, Self::Savepoint | Self::StopSavepoint { .. })
    }

    /// The savepoint that ends the job.
    pub const fn is_stop(self) -> bool {
        matches!(self, Self::StopSavepoint { .. })
    }

    /// Tasks are told of its completion, so it commits. An ordinary savepoint does not.
    pub const fn is_notified(self) -> bool {
        matches!(self, Self::Checkpoint | Self::StopSavepoint { .. })
    }
}

/// What a barrier does in a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alignment {
    /// Doesn't block its channel: records behind it may be in the snapshot too.
    AtLeastOnce,
    /// Blocks its channel until all channels delivered theirs.
    Aligned,
    /// Aligned, and becomes unaligned when this much time has passed since the trigger.
    Timeoutable(Duration),
    /// Overtakes records, which become channel state.
    Unaligned,
    /// Aligned on an edge where a barrier may not overtake; the receiving task reverts to what it
    /// was.
    ForcedAligned {
        /// The timeout it had; none if it was unaligned.
        timeout: Option<Duration>,
    },
}

/// Carried by trigger and barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CheckpointOptions {
    kind: SnapshotKind,
    alignment: Alignment,
}

impl CheckpointOptions {
    /// Options of `kind` with `alignment`.
    ///
    /// # Panics
    /// If a savepoint is, or could become, unaligned.
    pub fn new(kind: SnapshotKind, alignment: Alignment) -> Self {
        assert!(
            !kind.is_savepoint()
                || matches!(alignment, Alignment::AtLeastOnce | Alignment::Aligned),
            "a savepoint is never unaligned"
        );
        Self { kind, alignment }
    }

    /// An aligned checkpoint without timeout.
    pub fn aligned() -> Self {
        Self::new(SnapshotKind::Checkpoint, Alignment::Aligned)
    }

    /// An unaligned checkpoint.
    pub fn unaligned() -> Self {
        Self::new(SnapshotKind::Checkpoint, Alignment::Unaligned)
    }

    /// An aligned checkpoint that becomes unaligned `timeout` after its trigger.
    pub fn timeoutable(timeout: Duration) -> Self {
        Self::new(SnapshotKind::Checkpoint, Alignment::Timeoutable(timeout))
    }

    /// What the snapshot is for.
    pub const fn kind(self) -> SnapshotKind {
        self.kind
    }

    /// What its barriers do.
    pub const fn alignment(self) -> Alignment {
        self.alignment
    }

    /// Its barrier overtakes what is queued before it.
    pub const fn has_priority(self) -> bool {
        matches!(self.alignment, Alignment::Unaligned)
    }

    /// Its barrier blocks the channel it came on.
    pub const fn blocks_channel(self) -> bool {
        match self.alignment {
            Alignment::Aligned | Alignment::Timeoutable(_) | Alignment::ForcedAligned { .. } => {
                true
            }
            Alignment::AtLeastOnce | Alignment::Unaligned => false,
        }
    }

    /// Records in flight are, or may become, part of the snapshot.
    pub const fn needs_channel_state(self) -> bool {
        matches!(self.alignment, Alignment::Timeoutable(_) | Alignment::Unaligned)
    }

    /// How long after the trigger it becomes unaligned, if it may.
    pub const fn timeout(self) -> Option<Duration> {
        match self.alignment {
            Alignment::Timeoutable(timeout) => Some(timeout),
            Alignment::AtLeastOnce
            | Alignment::Aligned
            | Alignment::Unaligned
            | Alignment::ForcedAligned { .. } => None,
        }
    }

    /// The options once the timeout has passed.
    #[must_use]
    pub fn timed_out(self) -> Self {
        match self.alignment {
            Alignment::Timeoutable(_) => Self { alignment: Alignment::Unaligned, ..self },
            Alignment::AtLeastOnce
            | Alignment::Aligned
            | Alignment::Unaligned
            | Alignment::ForcedAligned { .. } => self,
        }
    }

    /// The options on an edge where no barrier may overtake, timeoutable ones included.
    #[must_use]
    pub fn forced_aligned(self) -> Self {
        let timeout = match self.alignment {
            Alignment::Timeoutable(timeout) => Some(timeout),
            Alignment::Unaligned => None,
            Alignment::AtLeastOnce | Alignment::Aligned | Alignment::ForcedAligned { .. } => {
                return self;
            }
        };
        Self { alignment: Alignment::ForcedAligned { timeout }, ..self }
    }

    /// The options behind such an edge, in the task that aligned.
    #[must_use]
    pub fn original(self) -> Self {
        let alignment = match self.alignment {
            Alignment::ForcedAligned { timeout: Some(timeout) } => Alignment::Timeoutable(timeout),
            Alignment::ForcedAligned { timeout: None } => Alignment::Unaligned,
            Alignment::AtLeastOnce
            | Alignment::Aligned
            | Alignment::Timeoutable(_)
            | Alignment::Unaligned => self.alignment,
        };
        Self { alignment, ..self }
    }
}

/// What a job asks of its checkpoints; the options of each follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckpointMode {
    /// Barriers don't block.
    AtLeastOnce,
    /// Aligned checkpoints.
    ExactlyOnce,
    /// Unaligned ones, at once or when aligning takes longer than this; `None` and zero mean at
    /// once.
    ExactlyOnceUnaligned {
        /// Time to try aligning first.
        aligned_timeout: Option<Duration>,
    },
}

impl CheckpointMode {
    /// The options of the next snapshot of `kind`.
    pub fn options(self, kind: SnapshotKind) -> CheckpointOptions {
        let alignment = match self {
            Self::AtLeastOnce => Alignment::AtLeastOnce,
            Self::ExactlyOnceUnaligned { .. } if kind.is_savepoint() => Alignment::Aligned,
            Self::ExactlyOnce => Alignment::Aligned,
            Self::ExactlyOnceUnaligned { aligned_timeout: Some(timeout) } if !timeout.is_zero() => {
                Alignment::Timeoutable(timeout)
            }
            Self::ExactlyOnceUnaligned { .. } => Alignment::Unaligned,
        };
        CheckpointOptions::new(kind, alignment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_selects_the_alignment_and_a_savepoint_stays_aligned() {
        let second = Duration::from_secs(1);
        let unaligned = |timeout| CheckpointMode::ExactlyOnceUnaligned { aligned_timeout: timeout };
        let cases = [
            (CheckpointMode::AtLeastOnce, Alignment::AtLeastOnce, Alignment::AtLeastOnce),
            (CheckpointMode::ExactlyOnce, Alignment::Aligned, Alignment::Aligned),
            (unaligned(None), Alignment::Unaligned, Alignment::Aligned),
            (unaligned(Some(Duration::ZERO)), Alignment::Unaligned, Alignment::Aligned),
            (unaligned(Some(second)), Alignment::Timeoutable(second), Alignment::Aligned),
        ];
        for (mode, checkpoint, savepoint) in cases {
            assert_eq!(mode.options(SnapshotKind::Checkpoint).alignment(), checkpoint);
            assert_eq!(mode.options(SnapshotKind::Savepoint).alignment(), savepoint);
        }
    }

    #[test]
    #[should_panic(expected = "a savepoint is never unaligned")]
    fn an_unaligned_savepoint_cannot_be_made() {
        CheckpointOptions::new(SnapshotKind::Savepoint, Alignment::Unaligned);
    }

    #[test]
    fn k25_a_forced_aligned_edge_rewrites_a_timeoutable_barrier_too() {
        let options = CheckpointOptions::timeoutable(Duration::from_secs(1));
        let forced = options.forced_aligned();
        assert_eq!(forced.timeout(), None);
        assert_eq!(forced.timed_out(), forced);
        assert!(!forced.needs_channel_state());
        assert_eq!(forced.original(), options);
        let unaligned = CheckpointOptions::unaligned();
        assert!(!unaligned.forced_aligned().has_priority());
        assert_eq!(unaligned.forced_aligned().original(), unaligned);
    }
}
