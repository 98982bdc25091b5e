//! Tables of values of varying size: set, appended to, read in place.

use super::table::Table;
use super::value::Blob;
use crate::record::Key;

impl<K: Key> Table<K, Blob> {
    /// A key's bytes.
    #[inline]
    pub(super) fn bytes_of(&self, hash: u64, key: K::Ref<'_>) -> Option<&[u8]> {
        let blob = self.get(hash, key).filter(|blob| **blob != Blob::GONE)?;
        Some(self.directory.segment(hash).values.part(blob.from as usize, blob.len as usize))
    }

    /// Sets a key's bytes: in place if they fit and no snapshot needs those that are there.
    pub(super) fn set_bytes(&mut self, hash: u64, key: K::Ref<'_>, bytes: &[u8]) {
        let old = *self.entry(hash, key);
        if bytes.len() <= old.room as usize
            && self.directory.overwrite_value(hash, old.from as usize, bytes)
        {
            self.entry(hash, key).len = bytes.len() as u32;
            return;
        }
        self.replace_bytes(hash, key, old, bytes.len(), &[bytes]);
    }

    /// Appends to a key's bytes. The room for them doubles.
    pub(super) fn append_bytes(&mut self, hash: u64, key: K::Ref<'_>, bytes: &[u8]) {
        let old = *self.entry(hash, key);
        assert!(old != Blob::GONE, "what is appended to is never gone");
        let (from, len) = (old.from as usize, old.len as usize);
        if len + bytes.len() <= old.room as usize {
            self.directory.fill_value(hash, from + len, bytes);
            self.entry(hash, key).len += bytes.len() as u32;
            return;
        }
        let before = self.directory.segment(hash).values.part(from, len).to_vec();
        self.replace_bytes(hash, key, old, 2 * (len + bytes.len()), &[&before, bytes]);
    }

    /// Forgets a key's bytes and keeps its entry.
    pub(super) fn set_gone(&mut self, hash: u64, key: K::Ref<'_>) {
        let old = std::mem::replace(self.entry(hash, key), Blob::GONE);
        self.growth.note_garbage(&mut self.directory, hash, old.room as usize);
    }

    fn replace_bytes(
        &mut self,
        hash: u64,
        key: K::Ref<'_>,
        old: Blob,
        room: usize,
        parts: &[&[u8]],
    ) {
        let room = room.next_multiple_of(8);
        let new =
            self.directory.append_value(hash, room, |arena| Blob::store_parts(parts, room, arena));
        *self.entry(hash, key) = new;
        self.growth.note_garbage(&mut self.directory, hash, old.room as usize);
    }
}
