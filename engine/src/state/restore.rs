//! Putting the blocks of a snapshot back into a table: all of them, or those of the key groups of one subtask.

use super::segment::Entry;
use super::table::{Slot, Table};
use super::value::Value;
use crate::error::{Error, ErrorKind, Result};
use crate::record::codec::{BadFrame, check_frame, read_frame};
use crate::record::key_group::KeyGroupRange;
use crate::record::{Data, Key};

/// Entries that are looked at before the first is put in, so that their lines are loaded meanwhile.
const BATCH: usize = 32;

impl<K: Key, V: Value> Table<K, V> {
    /// Makes room for `entries` more keys of the key groups `range`, so that filling the table moves nothing.
    pub fn reserve(&mut self, entries: usize, range: KeyGroupRange) {
        self.growth.reserve(&mut self.directory, entries, range);
    }

    /// Puts the entries of a block whose key group is in `range` into the table and says how many they were. The bytes
    /// need not be trusted. A key that is there gets the block's value.
    ///
    /// # Errors
    /// [`ErrorKind::Checkpoint`] if the block is not whole frames of these types; entries before the bad one are in.
    pub fn restore(&mut self, block: &[u8], range: KeyGroupRange) -> Result<usize> {
        self.restore_first(block, range, 0)
    }

    /// The same for the first of some blocks, behind which are as many bytes as `behind` says: makes room for what they hold,
    /// if it is like the first one, so that the table need not grow all the way.
    ///
    /// # Errors
    /// As [`Self::restore`].
    pub fn restore_first(
        &mut self,
        block: &[u8],
        range: KeyGroupRange,
        behind: u64,
    ) -> Result<usize> {
        self.restore_with(block, range, behind, |key| Self::hash(key), |_| Ok(()), |_, _, _| {})
    }

    /// The same with the caller's hash of keys and check of values; `seen` is shown what was put in, and whether
    /// it is new.
    pub(super) fn restore_with(
        &mut self,
        block: &[u8],
        range: KeyGroupRange,
        behind: u64,
        hash: impl Fn(K::Ref<'_>) -> u64,
        check: impl Fn(<V::Wire as Data>::Ref<'_>) -> Result<(), BadFrame>,
        mut seen: impl FnMut(u64, K::Ref<'_>, bool),
    ) -> Result<usize> {
        let (mut at, mut taken) = (0, 0);
        let mut batch = [(0u64, 0usize, 0usize); BATCH];
        while at < block.len() {
            let mut n = 0;
            while n < BATCH && at < block.len() {
                let key_bytes = check_frame::<K>(&block[at..]).map_err(|e| bad(at, e))?;
                let value_at = at + key_bytes;
                let value_bytes =
                    check_frame::<V::Wire>(&block[value_at..]).map_err(|e| bad(value_at, e))?;
                if key_bytes + value_bytes == 0 {
                    return Err(bad(at, BadFrame::Short));
                }
                check(read_frame::<V::Wire>(&block[value_at..])).map_err(|e| bad(value_at, e))?;
                let hash = hash(read_frame::<K>(&block[at..]));
                if range.contains(self.growth.options.groups.of(hash)) {
                    self.prefetch(hash);
                    batch[n] = (hash, at, value_at);
                    n += 1;
                }
                at = value_at + value_bytes;
            }
            taken += n;
            for &(hash, key_at, value_at) in &batch[..n] {
                let key = read_frame::<K>(&block[key_at..]);
                let value = read_frame::<V::Wire>(&block[value_at..]);
                let before = self.len();
                self.put(hash, key, value);
                seen(hash, key, self.len() > before);
            }
        }
        self.reserve_for(behind, taken, block.len(), range);
        Ok(taken)
    }

    /// Makes room for the entries in `behind` bytes, if `taken` had `bytes`.
    fn reserve_for(&mut self, behind: u64, taken: usize, bytes: usize, range: KeyGroupRange) {
        if behind == 0 || taken == 0 {
            return;
        }
        let like_these = u128::from(behind) * taken as u128 / bytes as u128;
        // Should the others be much longer, not much more memory is taken than they have.
        let bound = u128::from(behind) * 4 / size_of::<Entry<Slot<K>, V>>() as u128;
        self.reserve(like_these.min(bound) as usize, range);
    }

    /// Sets a key's value.
    #[inline(always)]
    pub(super) fn put(&mut self, hash: u64, key: K::Ref<'_>, value: <V::Wire as Data>::Ref<'_>) {
        if V::VARIES {
            let garbage = self.get(hash, key).map_or(0, V::arena_bytes);
            // The entry first: adding it may move the segment to other arenas.
            self.entry(hash, key);
            let room = V::room(value);
            let stored = self.directory.append_value(hash, room, |arena| V::store(value, arena));
            *self.entry(hash, key) = stored;
            self.growth.note_garbage(&mut self.directory, hash, garbage);
        } else {
            *self.entry_prefetched(hash, key) = V::store(value, &mut Vec::new());
        }
    }
}

#[cold]
fn bad(at: usize, error: BadFrame) -> Error {
    Error::new(
        ErrorKind::Checkpoint,
        format!("state can't be read at byte {at} of its block: {error}"),
    )
    .caused_by(error)
}
