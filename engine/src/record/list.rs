//! The view of a `Vec` of fixed-size values: a slice in the program, or packed items in a buffer.

use std::fmt;

use super::Data;
use super::codec::{self, FixedCodec};

/// The items of a `Vec` record field, read in place.
pub struct List<'a, T>(Items<'a, T>);

enum Items<'a, T> {
    /// Owned by the program; Rust lays them out as it likes.
    Slice(&'a [T]),
    /// Written by the codec, back to back.
    Packed(&'a [u8]),
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

impl<T> Clone for Items<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Items<'_, T> {}

impl<'a, T: Data<Codec: FixedCodec>> List<'a, T> {
    /// The list of a slice's values.
    pub fn from_slice(items: &'a [T]) -> Self {
        Self(Items::Slice(items))
    }

    /// The list whose items the codec wrote to `bytes`.
    pub(super) fn packed(bytes: &'a [u8]) -> Self {
        Self(Items::Packed(bytes))
    }

    /// How many items there are.
    pub fn len(self) -> usize {
        match self.0 {
            Items::Slice(items) => items.len(),
            Items::Packed(bytes) => bytes.len() / T::Codec::ITEM,
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Item `index`, if there is one.
    pub fn get(self, index: usize) -> Option<T::Ref<'a>> {
        if index >= self.len() {
            return None;
        }
        Some(match self.0 {
            Items::Slice(items) => items[index].view(),
            Items::Packed(bytes) => T::decode(codec::item::<T::Codec>(bytes, index)),
        })
    }

    /// The items in order.
    pub fn iter(self) -> impl Iterator<Item = T::Ref<'a>> {
        (0..self.len()).map_while(move |index| self.get(index))
    }
}

impl<'a, T: Data<Codec: FixedCodec, Ref<'a>: fmt::Debug>> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Data<Codec: FixedCodec, Ref<'a>: PartialEq>> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().zip(other.iter()).all(|(a, b)| a == b)
    }
}
