//! Lets the disk begin with a file's bytes while more of them are written. Else all of it waits for the `fsync` at the end, and
//! nothing overlaps.
//!
//! Owned by whoever writes one file from its front to its end: the data files and spill files of a checkpoint.

use std::fs::File;
use std::num::NonZeroU64;

/// How far the disk was told to write a file.
#[derive(Debug)]
pub(crate) struct Writeback {
    begun: u64,
    /// So many bytes are handed to the disk at once.
    step: u64,
}

impl Writeback {
    /// Nothing was written yet.
    pub(crate) fn new(step: u64) -> Self {
        Self { begun: 0, step }
    }

    /// Bytes were written up to `end`: lets the disk begin once there are enough.
    pub(crate) fn written(&mut self, file: &File, end: u64) {
        if self.is_due(end) {
            self.begin(file, end);
        }
    }

    /// Whether the bytes up to `end` are enough for the disk to begin.
    pub(crate) fn is_due(&self, end: u64) -> bool {
        end - self.begun >= self.step
    }

    /// Lets the disk begin with everything up to `end`.
    pub(crate) fn begin(&mut self, file: &File, end: u64) {
        let Some(length) = NonZeroU64::new(end - self.begun) else { return };
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{Advice, fadvise};
            // Linux begins to write a range that it is told not to keep. A file system may ignore that.
            let _ = fadvise(file, self.begun, Some(length), Advice::DontNeed);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (file, length);
        self.begun = end;
    }
}
