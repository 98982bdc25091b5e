//! What a table keeps for a key: a `Copy` value in the entry, or bytes of varying size in the segment's arena.

use bytes::Bytes;

use crate::record::Data;

/// A table's value. Every `Copy` record type is one; [`Blob`] is the one whose bytes lie outside the entry.
pub trait Value: Copy + Send + Sync + 'static {
    /// The record type as which it is written to snapshots.
    type Wire: Data;
    /// Whether it has bytes outside the entry.
    const VARIES: bool;

    /// The value as a record; `part(from, n)` are bytes of the arena.
    fn wire<'a>(&'a self, part: impl Fn(usize, usize) -> &'a [u8])
    -> <Self::Wire as Data>::Ref<'a>;
    /// The value of a record, with what does not fit the entry appended to the arena.
    fn store(view: <Self::Wire as Data>::Ref<'_>, arena: &mut Vec<u8>) -> Self;
    /// Bytes that `store` appends at most.
    fn room(view: <Self::Wire as Data>::Ref<'_>) -> usize;
    /// Bytes of the arena that it takes.
    fn arena_bytes(&self) -> usize;
    /// Whether it stands for a value that is gone, which snapshots leave out.
    #[inline(always)]
    fn is_gone(&self) -> bool {
        false
    }
}

impl<V: Copy + Sync + Data> Value for V {
    type Wire = V;
    const VARIES: bool = false;

    #[inline(always)]
    fn wire<'a>(&'a self, _: impl Fn(usize, usize) -> &'a [u8]) -> V::Ref<'a> {
        self.view()
    }
    #[inline(always)]
    fn store(view: V::Ref<'_>, _: &mut Vec<u8>) -> Self {
        V::own(view)
    }
    #[inline(always)]
    fn room(_: V::Ref<'_>) -> usize {
        0
    }
    #[inline(always)]
    fn arena_bytes(&self) -> usize {
        0
    }
}

/// Where a value's bytes lie in its segment's arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blob {
    pub(super) from: u32,
    pub(super) len: u32,
    /// So many bytes are reserved.
    pub(super) room: u32,
}

impl Value for Blob {
    type Wire = Bytes;
    const VARIES: bool = true;

    fn wire<'a>(&'a self, part: impl Fn(usize, usize) -> &'a [u8]) -> &'a [u8] {
        if self.is_gone() { &[] } else { part(self.from as usize, self.len as usize) }
    }
    fn store(view: &[u8], arena: &mut Vec<u8>) -> Self {
        Self::store_parts(&[view], view.len(), arena)
    }
    fn room(view: &[u8]) -> usize {
        view.len().next_multiple_of(8)
    }
    fn arena_bytes(&self) -> usize {
        self.room as usize
    }
    fn is_gone(&self) -> bool {
        self.len == Self::GONE.len
    }
}

impl Blob {
    /// Takes no bytes, and stands for a value that was removed.
    pub(super) const GONE: Self = Self { from: 0, len: u32::MAX, room: 0 };

    /// Stores the bytes of `parts` with room for `room` in all.
    pub(super) fn store_parts(parts: &[&[u8]], room: usize, arena: &mut Vec<u8>) -> Self {
        let from = arena.len();
        parts.iter().for_each(|part| arena.extend_from_slice(part));
        let len = arena.len() - from;
        let room = room.max(len).next_multiple_of(8);
        arena.resize(from + room, 0);
        let narrow = |n: usize| u32::try_from(n).expect("an arena is below 4 GiB");
        Self { from: narrow(from), len: narrow(len), room: narrow(room) }
    }
}
