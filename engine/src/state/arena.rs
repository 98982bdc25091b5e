//! Bytes of varying size that belong to a segment: long keys, and values kept as frames.
//!
//! The worker appends while a snapshot's writer reads what was there at its trigger: bytes below `len` don't move
//! within a room, and a new room begins as a copy of the one before. Garbage is not reused; the segment is rebuilt when
//! there is too much of it.
//!
//! Invariants. Only the directory's worker appends and overwrites. An entry that a snapshot sees names bytes that were
//! below `len` at its trigger, and those are overwritten only while no running snapshot needs the segment. A room that
//! was left is kept as long as the segment, unless no snapshot runs. Called by `chunk`.
#![expect(unsafe_code, reason = "appended to by the worker while a snapshot's writer reads")]

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

/// Append-only bytes with one writer.
pub(super) struct Arena {
    /// The last room's memory.
    at: AtomicPtr<u8>,
    len: AtomicUsize,
    /// The one in use is the last. Touched by the writer only.
    rooms: UnsafeCell<Vec<Vec<u8>>>,
}

// SAFETY: only the one writer touches `rooms`; the rest is atomic.
unsafe impl Sync for Arena {}

impl Default for Arena {
    fn default() -> Self {
        Self::from_vec(Vec::new())
    }
}

impl Arena {
    /// The arena whose first bytes are `bytes`.
    pub(super) fn from_vec(mut bytes: Vec<u8>) -> Self {
        Self {
            at: AtomicPtr::new(bytes.as_mut_ptr()),
            len: AtomicUsize::new(bytes.len()),
            rooms: UnsafeCell::new(vec![bytes]),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Acquire)
    }

    /// All bytes. For arenas that are never overwritten.
    #[inline]
    pub(super) fn all(&self) -> &[u8] {
        // In this order: the room that we find holds at least as many bytes. Pairs with `append`.
        let n = self.len.load(Acquire);
        let at = self.at.load(Acquire);
        // SAFETY: `n` bytes were written before `len` was stored, and lie in every room since.
        unsafe { std::slice::from_raw_parts(at, n) }
    }

    /// `n` bytes from `from` on.
    #[inline]
    pub(super) fn part(&self, from: usize, n: usize) -> &[u8] {
        let len = self.len.load(Acquire);
        assert!(from <= len && n <= len - from, "an entry names bytes of its own arena");
        let at = self.at.load(Acquire);
        // SAFETY: the range was just checked to be below `len`.
        let at = unsafe { at.add(from) };
        // SAFETY: bytes below `len` are written, and nobody overwrites those that an entry names while it is read.
        unsafe { std::slice::from_raw_parts(at, n) }
    }

    /// Lets `f` append at most `room` bytes. `forget`: nobody but the caller reads, so a room that is left may go.
    ///
    /// # Safety
    /// The caller is the only writer.
    pub(super) unsafe fn append<R>(
        &self,
        room: usize,
        forget: bool,
        f: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        // SAFETY: only the writer touches `rooms`.
        let rooms = unsafe { &mut *self.rooms.get() };
        let last = rooms.last().expect("there is always a room");
        if last.capacity() - last.len() < room {
            let mut next = Vec::with_capacity((last.len() + room).next_power_of_two().max(1024));
            next.extend_from_slice(last);
            if forget {
                rooms.clear();
            }
            rooms.push(next);
        }
        let last = rooms.last_mut().expect("there is always a room");
        let before = last.capacity();
        let result = f(last);
        assert_eq!(last.capacity(), before, "no more is appended than was announced");
        // Pairs with `all` and `part`: who sees the length sees this room, or a later one, with the bytes.
        self.at.store(last.as_mut_ptr(), Release);
        self.len.store(last.len(), Release);
        result
    }

    /// Overwrites bytes from `from` on.
    ///
    /// # Safety
    /// The caller is the only writer, and nobody reads these bytes meanwhile.
    pub(super) unsafe fn overwrite(&self, from: usize, bytes: &[u8]) {
        let len = self.len.load(Relaxed);
        assert!(from <= len && bytes.len() <= len - from, "an entry names bytes of its own arena");
        // SAFETY: the range was just checked to be below `len`.
        let to = unsafe { self.at.load(Relaxed).add(from) };
        // SAFETY: the range is ours by the caller's promise; `bytes` is none of it, since it is borrowed elsewhere.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Forgets all bytes and keeps the last room.
    ///
    /// # Safety
    /// The caller is the only writer, and nobody else reads.
    pub(super) unsafe fn clear(&self) {
        // SAFETY: only the writer touches `rooms`.
        let rooms = unsafe { &mut *self.rooms.get() };
        rooms.drain(..rooms.len() - 1);
        rooms.iter_mut().for_each(Vec::clear);
        self.len.store(0, Release);
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.len()
    }
}
