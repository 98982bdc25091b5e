//! What happens to records that can't be read, and how a format says what is wrong with one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::BoxError;

/// What a source does with a record that it can't read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnBadRecord {
    /// The task fails with an error that names file, line and field.
    #[default]
    Fail,
    /// The record is left out and counted: see the source's `skipped`.
    SkipAndCount,
}

/// What a source does with text that is not UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnInvalidText {
    /// The line is a bad record.
    #[default]
    Bad,
    /// What is not UTF-8 is replaced by U+FFFD.
    Replace,
}

/// How many records a source has left out in this process, over all its subtasks and attempts. A restart reads some
/// records again, and counts them again.
#[derive(Clone, Debug, Default)]
pub struct Skipped(Arc<AtomicU64>);

impl Skipped {
    /// How many so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is wrong with a record, and in which field.
#[derive(Debug)]
pub struct FieldError {
    pub(super) field: Option<String>,
    pub(super) message: String,
    pub(super) cause: Option<BoxError>,
}

impl FieldError {
    /// Something is wrong with the whole record; `message` is lower case, without a full stop.
    pub fn record(message: impl Into<String>) -> Self {
        Self { field: None, message: message.into(), cause: None }
    }

    /// Something is wrong with one field.
    pub fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), message: message.into(), cause: None }
    }

    /// Keeps what caused it.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<BoxError>) -> Self {
        self.cause = Some(cause.into());
        self
    }
}
