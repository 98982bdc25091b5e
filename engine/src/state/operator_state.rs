//! State that belongs to an operator's subtask instead of to a key: lists that are dealt out anew, united, or the same
//! everywhere.
//!
//! ```text
//! bytes = frame*          one an item; for broadcast state (key frame, value frame)*
//! ```

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::record::Data;
use crate::record::codec::{BadFrame, append, check_frame, read_frame};

/// What a restored subtask gets of the lists that all subtasks had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redistribution {
    /// Each item goes to one subtask.
    Split,
    /// Every subtask gets all items.
    Union,
}

/// A list of a subtask's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorList<T> {
    /// The items; the operator changes them as it likes.
    pub items: Vec<T>,
    redistribution: Redistribution,
}

impl<T: Data> OperatorList<T> {
    /// An empty list.
    pub fn new(redistribution: Redistribution) -> Self {
        Self { items: Vec::new(), redistribution }
    }

    /// The items as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.items.iter().for_each(|item| append::<T>(&mut bytes, item.view()));
        bytes
    }

    /// The share of subtask `index` of `parallelism` in what all subtasks had, in the order of their indices.
    ///
    /// # Errors
    /// [`ErrorKind::Checkpoint`] if the bytes are no items of this type.
    pub fn restore(&mut self, all: &[&[u8]], index: u32, parallelism: u32) -> Result<()> {
        let mut items = Vec::new();
        let mut number = 0;
        for bytes in all {
            let mut at = 0;
            while at < bytes.len() {
                let is_ours = match self.redistribution {
                    Redistribution::Union => true,
                    Redistribution::Split => number % parallelism == index,
                };
                let (item, n) = read::<T>(bytes, at)?;
                if is_ours {
                    items.push(T::own(item));
                }
                if n == 0 {
                    return Err(bad(at, BadFrame::Short));
                }
                (at, number) = (at + n, number + 1);
            }
        }
        self.items = items;
        Ok(())
    }
}

/// A map that is the same on all subtasks, since each applies the same broadcast records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BroadcastState<K: Ord, V> {
    /// The entries; the operator changes them when a broadcast record comes.
    pub entries: BTreeMap<K, V>,
}

impl<K: Data + Ord, V: Data> BroadcastState<K, V> {
    /// An empty map.
    pub fn new() -> Self {
        Self { entries: BTreeMap::new() }
    }

    /// The entries as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (key, value) in &self.entries {
            append::<K>(&mut bytes, key.view());
            append::<V>(&mut bytes, value.view());
        }
        bytes
    }

    /// Takes over what one subtask had; which one doesn't matter.
    ///
    /// # Errors
    /// [`ErrorKind::Checkpoint`] if the bytes are no entries of these types.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let mut entries = BTreeMap::new();
        let mut at = 0;
        while at < bytes.len() {
            let (key, key_bytes) = read::<K>(bytes, at)?;
            let (value, value_bytes) = read::<V>(bytes, at + key_bytes)?;
            entries.insert(K::own(key), V::own(value));
            if key_bytes + value_bytes == 0 {
                return Err(bad(at, BadFrame::Short));
            }
            at += key_bytes + value_bytes;
        }
        self.entries = entries;
        Ok(())
    }
}

/// The frame at `at` of untrusted bytes, and its length.
fn read<T: Data>(bytes: &[u8], at: usize) -> Result<(T::Ref<'_>, usize)> {
    let n = check_frame::<T>(&bytes[at..]).map_err(|error| bad(at, error))?;
    Ok((read_frame::<T>(&bytes[at..]), n))
}

fn bad(at: usize, error: BadFrame) -> Error {
    let message = format!("operator state can't be read at byte {at}: {error}");
    Error::new(ErrorKind::Checkpoint, message).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restored(
        redistribution: Redistribution,
        all: &[&[u8]],
        parallelism: u32,
    ) -> Vec<Vec<String>> {
        (0..parallelism)
            .map(|index| {
                let mut list = OperatorList::new(redistribution);
                list.restore(all, index, parallelism).expect("the bytes are whole");
                list.items
            })
            .collect()
    }

    #[test]
    fn a_split_list_is_dealt_out_and_a_united_one_given_to_all() {
        let list = |items: &[&str]| {
            let mut list = OperatorList::<String>::new(Redistribution::Split);
            list.items = items.iter().map(|&item| item.to_owned()).collect();
            list.snapshot()
        };
        let (first, second) = (list(&["a", "b"]), list(&["c", "", "e"]));
        let all: &[&[u8]] = &[&first, &second];
        for parallelism in [1, 2, 3, 5, 7] {
            let mut dealt = restored(Redistribution::Split, all, parallelism).concat();
            dealt.sort();
            assert_eq!(dealt, ["", "a", "b", "c", "e"]);
            for items in restored(Redistribution::Union, all, parallelism) {
                assert_eq!(items, ["a", "b", "c", "", "e"]);
            }
        }
    }

    #[test]
    fn broadcast_state_survives_and_its_truncations_are_errors() {
        let mut state = BroadcastState::<u64, String>::new();
        state.entries = [(1, "one".to_owned()), (2, "two".to_owned())].into();
        let bytes = state.snapshot();
        let mut restored = BroadcastState::new();
        restored.restore(&bytes).expect("the bytes are whole");
        assert_eq!(restored, state);
        for n in (1..bytes.len()).filter(|n| *n != bytes.len() / 2) {
            assert_eq!(
                restored.restore(&bytes[..n]).expect_err("the bytes are broken").kind(),
                ErrorKind::Checkpoint
            );
        }
        assert_eq!(restored, state, "a broken snapshot changes nothing");
    }
}
