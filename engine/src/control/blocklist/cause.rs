//! Why something was blocklisted, or failed: what a throwable is elsewhere, as a bounded value.
//!
//! Bounded to [`CAUSE_BYTES_MAX`] bytes when made, because causes travel with every synchronisation. Labels are
//! what enrichers found out; `tidegate.induced` marks failures that the control plane caused itself.

use std::collections::BTreeMap;
use std::fmt;

/// The most bytes a cause's texts have together.
pub const CAUSE_BYTES_MAX: usize = 4096;

/// Label of failures that the control plane caused itself: evacuation, a deliberate release, a cascade.
pub const INDUCED: &str = "tidegate.induced";

/// What went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    class: String,
    message: String,
    root_class: String,
    labels: BTreeMap<String, String>,
}

impl Cause {
    /// A cause of kind `class` (`IoError`), told by `message`.
    pub fn new(class: &str, message: &str) -> Self {
        let mut left = CAUSE_BYTES_MAX;
        let class = cut(class, 256, &mut left);
        let root_class = class.clone();
        left = left.saturating_sub(root_class.len());
        let message = cut(message, left / 2, &mut left);
        Self { class, message, root_class, labels: BTreeMap::new() }
    }

    /// A failure that the control plane caused itself; no machine is to be blamed for it.
    pub fn induced(class: &str, message: &str) -> Self {
        Self::new(class, message).with_label(INDUCED, "true")
    }

    /// Says the kind of the innermost error of the chain.
    #[must_use]
    pub fn with_root_class(mut self, class: &str) -> Self {
        self.root_class = cut(class, 256, &mut CAUSE_BYTES_MAX.clone());
        self
    }

    /// Adds a label; it is left out if the cause would become larger than [`CAUSE_BYTES_MAX`].
    #[must_use]
    pub fn with_label(mut self, name: &str, value: &str) -> Self {
        if self.bytes() + name.len() + value.len() <= CAUSE_BYTES_MAX {
            self.labels.insert(name.into(), value.into());
        }
        self
    }

    /// The kind of error.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// What it said, cut to fit.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The kind of the innermost error.
    pub fn root_class(&self) -> &str {
        &self.root_class
    }

    /// What enrichers found out.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// Whether the control plane caused it itself.
    pub fn is_induced(&self) -> bool {
        self.labels.get(INDUCED).is_some_and(|v| v == "true")
    }

    fn bytes(&self) -> usize {
        let labels: usize = self.labels.iter().map(|(k, v)| k.len() + v.len()).sum();
        self.class.len() + self.message.len() + self.root_class.len() + labels
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

fn cut(text: &str, max: usize, left: &mut usize) -> String {
    let mut end = text.len().min(max).min(*left);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    *left -= end;
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_never_exceeds_its_bound() {
        let long = "ä".repeat(10_000);
        let mut cause = Cause::new(&long, &long).with_root_class(&long);
        for i in 0..1000 {
            cause = cause.with_label(&format!("label{i}"), &"x".repeat(100));
        }
        assert!(cause.bytes() <= CAUSE_BYTES_MAX, "{}", cause.bytes());
        assert!(!cause.message().is_empty() && !cause.labels().is_empty());
    }

    #[test]
    fn only_a_labelled_cause_is_induced() {
        assert!(Cause::induced("ResourceEvacuated", "n1").is_induced());
        assert!(!Cause::new("IoError", "disk").is_induced());
    }
}
