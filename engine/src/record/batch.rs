//! A batch of records copied into scratch memory, for the places where a chain's type is forgotten.

use std::marker::PhantomData;

use super::Data;
use super::codec::{BadFrame, Frames, append, check_frames};

/// Frames of one type in memory of its own, which is kept from batch to batch.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    bytes: Vec<u8>,
    of: PhantomData<fn() -> T>,
}

impl<T: Data> Batch<T> {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::with_capacity(16 << 10), of: PhantomData }
    }

    /// The frames in `bytes`, as [`bytes`](Self::bytes) gave them.
    ///
    /// # Errors
    /// They are none of this type.
    pub(crate) fn of(bytes: Vec<u8>) -> Result<Self, BadFrame> {
        check_frames::<T>(&bytes)?;
        Ok(Self { bytes, of: PhantomData })
    }

    /// The records as frames.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a record.
    #[inline(always)]
    pub(crate) fn push(&mut self, view: T::Ref<'_>) {
        append::<T>(&mut self.bytes, view);
    }

    /// Forgets the records and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Shows each record to `g`.
    #[inline(always)]
    pub(crate) fn each<G: for<'x> FnMut(T::Ref<'x>)>(&self, mut g: G) {
        let mut frames = Frames::<T>::new(&self.bytes, 0);
        while let Some(frame) = frames.next_frame() {
            g(frame.read());
        }
    }
}
