//! What a tracker holds of one key: the items it was told of, and up to which version they were removed.
//!
//! An item joined into another can't be told apart any more, so a removal that arrives late would not know what to
//! take back. An entry therefore keeps every item that still adds something (an antichain, usually one) and joins
//! them only to be read. Entries are joins too: tell two trackers the same things in any order, and they agree.

use super::item::{BlocklistedItem, ItemKey, PreviousCause, Version};
use crate::clock::EpochMillis;

/// The most items kept apart for one key. Beyond it the two oldest are joined.
const PARTS_MAX: usize = 16;

/// Up to which version the items of a key were removed, and how long that must be remembered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tombstone {
    /// The resource.
    pub key: ItemKey,
    /// Items up to this version are gone.
    pub version: Version,
    /// Until when the tombstone is kept.
    pub keep_until: EpochMillis,
}

impl Tombstone {
    /// Both as one: what either removes stays removed, for as long as either says.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        Self {
            key: self.key.clone(),
            version: self.version.max(other.version),
            keep_until: self.keep_until.max(other.keep_until),
        }
    }
}

/// Items and tombstone of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    parts: Vec<BlocklistedItem>,
    past: Vec<PreviousCause>,
    pub(crate) tombstone: Option<Tombstone>,
}

impl Entry {
    /// Adds an item; one that the tombstone covers changes nothing.
    pub(crate) fn add(&mut self, mut item: BlocklistedItem) {
        self.remember(std::mem::take(&mut item.previous_causes));
        if self.buries(item.version) {
            return;
        }
        self.remember([PreviousCause { version: item.version, cause: item.cause.clone() }]);
        if self.parts.iter().any(|part| item.is_covered_by(part)) {
            return;
        }
        self.parts.retain(|part| !part.is_covered_by(&item));
        self.parts.reserve_exact(1);
        self.parts.push(item);
        let rank = |part: &BlocklistedItem| (part.action, part.end());
        self.parts.sort_by(|a, b| (b.recency(), rank(b)).cmp(&(a.recency(), rank(a))));
        if self.parts.len() > PARTS_MAX {
            let oldest = self.parts.pop().expect("there are more than PARTS_MAX");
            let next = self.parts.pop().expect("there are more than PARTS_MAX");
            self.parts.push(next.join(&oldest));
        }
    }

    /// Removes what `tombstone` covers.
    pub(crate) fn bury(&mut self, tombstone: &Tombstone) {
        let joined =
            self.tombstone.as_ref().map_or_else(|| tombstone.clone(), |t| t.join(tombstone));
        self.parts.retain(|part| part.version > joined.version);
        self.past.retain(|past| past.version > joined.version);
        // A tombstone is held for long, and room for what it buried is several times its size.
        self.parts.shrink_to_fit();
        self.past.shrink_to_fit();
        self.tombstone = Some(joined);
    }

    /// Forgets the items: they ended.
    pub(crate) fn expire(&mut self) {
        self.parts = Vec::new();
        self.past = Vec::new();
    }

    /// The items joined into the one that readers see.
    pub(crate) fn visible(&self) -> Option<BlocklistedItem> {
        let (first, rest) = self.parts.split_first()?;
        let mut item = rest.iter().fold(first.clone(), |joined, part| joined.join(part));
        item.remember(self.past.iter().cloned());
        Some(item)
    }

    /// The items as they travel.
    pub(crate) fn parts(&self) -> &[BlocklistedItem] {
        &self.parts
    }

    /// The highest version this entry knows of.
    pub(crate) fn highest_version(&self) -> Option<Version> {
        let newest = self.parts.iter().map(|part| part.version).max();
        newest.max(self.tombstone.as_ref().map(|t| t.version))
    }

    fn buries(&self, version: Version) -> bool {
        self.tombstone.as_ref().is_some_and(|t| version <= t.version)
    }

    fn remember(&mut self, causes: impl IntoIterator<Item = PreviousCause>) {
        let buried = self.tombstone.as_ref().map(|t| t.version);
        self.past.extend(causes.into_iter().filter(|past| Some(past.version) > buried));
        self.past.sort_by(|a, b| b.cmp(a));
        let mut kept = 0;
        for index in 0..self.past.len() {
            let cause = &self.past[index].cause;
            if self.past[..kept].iter().all(|past| past.cause != *cause) {
                self.past.swap(kept, index);
                kept += 1;
            }
        }
        // One more than is shown, because the current cause is among them.
        self.past.truncate(kept.min(super::item::PREVIOUS_CAUSES_MAX + 1));
    }
}
