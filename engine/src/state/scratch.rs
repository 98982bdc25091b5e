//! Memory that a thread uses again for the next checkpoint.
//!
//! What a checkpoint is gathered in is large enough for the allocator to give it back to the system, and then each of its pages
//! is asked for and zeroed anew: a third of the I/O thread's time for a checkpoint of some MB (bench `checkpoint`). Used by who writes
//! blocks and files, on the snapshot I/O thread.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

thread_local! {
    /// What the thread has no use for right now.
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes in memory that goes back to the thread that drops them.
#[derive(Debug, Default)]
pub(super) struct Scratch(Vec<u8>);

impl Scratch {
    /// None yet, with room for at least `bytes`.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let kept = KEPT.with_borrow_mut(|kept| {
            let fits = |at: &usize| kept[*at].capacity() >= bytes;
            let least = (0..kept.len()).filter(fits).min_by_key(|at| kept[*at].capacity());
            least.map(|at| kept.swap_remove(at))
        });
        Self(kept.unwrap_or_else(|| Vec::with_capacity(bytes)))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        if !(LEAST_BYTES..=MOST_BYTES).contains(&bytes.capacity()) {
            return;
        }
        bytes.clear();
        // A thread that ends has nothing to keep it for.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < COUNT_MAX {
                kept.push(bytes);
            }
        });
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

/// What is smaller is not worth keeping.
const LEAST_BYTES: usize = 64 << 10;
/// What is larger was needed for one long record.
const MOST_BYTES: usize = 4 << 20;
/// A file being written needs four.
const COUNT_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_what_is_too_small_too_large_or_too_much_is_not_kept() {
        let kept = || KEPT.with_borrow(|kept| kept.iter().map(Vec::capacity).collect::<Vec<_>>());
        let mut first = Scratch::with_capacity(LEAST_BYTES);
        first.extend_from_slice(b"bytes");
        let at = first.as_ptr();
        drop(first);
        drop(Scratch::with_capacity(2 * LEAST_BYTES));
        let again = Scratch::with_capacity(LEAST_BYTES - 1);
        assert!(again.is_empty() && again.as_ptr() == at, "the smallest that fits");
        drop(again);
        drop((Scratch::default(), Scratch::with_capacity(LEAST_BYTES / 2)));
        drop(Scratch::with_capacity(MOST_BYTES + 1));
        assert!(kept().iter().all(|bytes| (LEAST_BYTES..=MOST_BYTES).contains(bytes)));
        drop([(); 2 * COUNT_MAX].map(|()| Scratch::with_capacity(MOST_BYTES)));
        assert_eq!(kept().len(), COUNT_MAX);
    }
}
