//! Spill files that wait, mapped and warm, to be used again.

/// Whether a file in the spare folder is one of ours.
pub(crate) fn is_spare(name: &str) -> bool {
    name.strip_prefix("spare-").is_some_and(|n| n.parse::<u64>().is_ok())
}
