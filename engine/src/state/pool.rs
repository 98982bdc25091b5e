//! Memory of segments: small ones from the heap, full-size ones cut from slabs of huge pages and used again.
//!
//! A pool belongs to one table and is also held by its segments, so the last of them frees it. Blocks come back from
//! any thread, namely from the one that writes snapshots. Called by `chunk` only, which owns what lies in a block.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use crossbeam::queue::SegQueue;
use memmap2::MmapMut;

/// Bytes of a full-size segment. (256 KiB: splitting one takes about 50 µs.)
pub(super) const SEGMENT_BYTES: usize = 256 << 10;
/// A huge page.
const SLAB_BYTES: usize = 2 << 20;
/// A table has that many full-size segments before it takes huge pages.
const SMALL_COUNT: usize = SLAB_BYTES / SEGMENT_BYTES;

/// Where a table's segments come from.
pub(super) struct Pool {
    /// Pieces of slabs that no segment uses.
    pieces: SegQueue<Piece>,
    /// How many full-size blocks were taken.
    taken: AtomicUsize,
}

/// A slab, mapped in twice its size, since a huge page has to begin at a multiple of its own size.
struct Slab {
    _map: MmapMut,
}

struct Piece {
    at: AtomicPtr<u8>,
    is_dirty: bool,
    slab: Arc<Slab>,
}

/// A line of the cache, to which all blocks are aligned.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Memory of one segment.
pub(super) struct Block {
    at: AtomicPtr<u8>,
    bytes: usize,
    source: Source,
}

enum Source {
    Heap { _lines: Vec<Line> },
    Slab { slab: Arc<Slab>, pool: Arc<Pool> },
}

impl Pool {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { pieces: SegQueue::new(), taken: AtomicUsize::new(0) })
    }

    /// A block of at least `bytes`, and whether it has to be zeroed.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> (Block, bool) {
        let is_full = bytes <= SEGMENT_BYTES && bytes > SEGMENT_BYTES / 4 * 3;
        if is_full
            && self.taken.fetch_add(1, Relaxed) >= SMALL_COUNT
            && let Some(piece) = self.piece()
        {
            let Piece { at, is_dirty, slab } = piece;
            let source = Source::Slab { slab, pool: self.clone() };
            return (Block { at, bytes: SEGMENT_BYTES, source }, is_dirty);
        }
        let mut lines = vec![Line([0; 64]); bytes.div_ceil(64)];
        let at = AtomicPtr::new(lines.as_mut_ptr().cast());
        let bytes = lines.len() * 64;
        (Block { at, bytes, source: Source::Heap { _lines: lines } }, false)
    }

    /// A free piece, from a new slab if there is none; `None` if the system gives no slab.
    fn piece(&self) -> Option<Piece> {
        if let Some(piece) = self.pieces.pop() {
            return Some(piece);
        }
        let mut map = MmapMut::map_anon(2 * SLAB_BYTES).ok()?;
        #[cfg(target_os = "linux")]
        {
            // Without huge pages it is slower, and as good.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let start = map.as_mut_ptr();
        let first = start.wrapping_add(start.align_offset(SLAB_BYTES));
        let slab = Arc::new(Slab { _map: map });
        let piece = |index: usize| Piece {
            at: AtomicPtr::new(first.wrapping_add(index * SEGMENT_BYTES)),
            is_dirty: false,
            slab: slab.clone(),
        };
        (1..SLAB_BYTES / SEGMENT_BYTES).for_each(|index| self.pieces.push(piece(index)));
        Some(piece(0))
    }
}

impl Block {
    pub(super) const ALIGN: usize = align_of::<Line>();

    /// Where it begins; aligned to `ALIGN`.
    pub(super) fn at(&self) -> *mut u8 {
        self.at.load(Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Source::Slab { slab, pool } = &self.source {
            pool.pieces.push(Piece {
                at: AtomicPtr::new(self.at()),
                is_dirty: true,
                slab: slab.clone(),
            });
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool {{ free: {} }}", self.pieces.len())
    }
}
