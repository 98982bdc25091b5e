//! Blocks: the bytes in which state and channel data lie in a snapshot's files.
//!
//! A file is blocks back to back, nothing else. A payload is cut into blocks of at most [`BLOCK_PAYLOAD_MAX`] bytes,
//! which together are one *run*, named by one [`BlockRef`]. All numbers are little endian:
//! ```text
//!  0 magic u32 "TGBK"     4 version u16    6 kind u8         7 flags u8: 1 first, 2 last of its run
//!  8 vertex u32          12 operator u32  16 subtask u32    20 first key group u32
//! 24 last key group u32  28 channel u32   32 number u64: of the buffer, for channel data
//! 40 place in its run u32                 44 payload length u32
//! 48 payload CRC32C u32  52 zero u64      60 CRC32C of bytes 0..60 u32
//! 64 payload, then zeros up to a multiple of 8
//! ```
//! Every byte is covered: the header by its own sum, the payload by the header's, the padding by being zero.
//! Written and read by `block_io` and `spill`.

use std::fmt;
use std::sync::Arc;

use super::sum::Sum;
use crate::id::{ChannelIndex, KeyGroup, SubtaskId, VertexId};

/// Length of a block's header.
pub const BLOCK_HEAD_BYTES: usize = 64;
/// The longest payload of one block; longer ones become several blocks.
pub const BLOCK_PAYLOAD_MAX: usize = 1 << 20;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BlockKind {
    /// Keyed state of a range of key groups.
    Keyed = 1,
    /// List state.
    List = 2,
    /// Union list state.
    Union = 3,
    /// Broadcast state.
    Broadcast = 4,
    /// Timers of a range of key groups.
    Timers = 5,
    /// What a sink has prepared and not yet committed.
    Committables = 6,
    /// How far a source has read.
    Position = 7,
    /// A buffer in flight.
    Channel = 8,
}

impl BlockKind {
    const ALL: [Self; 8] = [
        Self::Keyed,
        Self::List,
        Self::Union,
        Self::Broadcast,
        Self::Timers,
        Self::Committables,
        Self::Position,
        Self::Channel,
    ];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// Whose bytes a block holds; the same for all blocks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockOrigin {
    /// What it is.
    pub kind: BlockKind,
    /// The subtask that wrote it, for channel data the one that consumes it.
    pub subtask: SubtaskId,
    /// The operator's place in its vertex, 0 for channel data.
    pub operator: u32,
    /// The first key group, 0 where the kind has none.
    pub first_group: KeyGroup,
    /// The last key group, inclusive; 0 where the kind has none.
    pub last_group: KeyGroup,
    /// The channel, 0 where the kind has none.
    pub channel: ChannelIndex,
    /// The number of the buffer in its channel, 0 where the kind has none.
    pub number: u64,
}

impl BlockOrigin {
    /// State of operator number `operator` of `subtask`.
    pub const fn state(kind: BlockKind, subtask: SubtaskId, operator: u32) -> Self {
        Self {
            kind,
            subtask,
            operator,
            first_group: KeyGroup(0),
            last_group: KeyGroup(0),
            channel: ChannelIndex(0),
            number: 0,
        }
    }

    /// Buffer `number` of `channel` into `consumer`.
    pub const fn buffer(consumer: SubtaskId, channel: ChannelIndex, number: u64) -> Self {
        let mut origin = Self::state(BlockKind::Channel, consumer, 0);
        origin.channel = channel;
        origin.number = number;
        origin
    }

    /// The same, of the key groups `first` to `last`, both included.
    #[must_use]
    pub const fn groups(mut self, first: KeyGroup, last: KeyGroup) -> Self {
        self.first_group = first;
        self.last_group = last;
        self
    }
}

/// Names one run of blocks in one file of a snapshot, or several that lie back to back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRef {
    /// The file: `data-0`, or `shared/…` for one that several checkpoints use.
    pub file: Arc<str>,
    /// Where the first block's header begins.
    pub offset: u64,
    /// Length of all blocks with their headers and padding.
    pub length: u64,
    /// CRC32C of all these bytes.
    pub crc: u32,
}

impl BlockRef {
    /// Takes in `next` if it lies right behind in the same file, so that both are read as one.
    pub fn join(&mut self, next: &Self) -> bool {
        let follows = self.file == next.file && self.offset + self.length == next.offset;
        if follows {
            let mut sum = Sum { bytes: self.length, crc: self.crc };
            sum.join(Sum { bytes: next.length, crc: next.crc });
            (self.length, self.crc) = (sum.bytes, sum.crc);
        }
        follows
    }
}

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// Whose bytes follow.
    pub origin: BlockOrigin,
    /// Whether this is the first block of its run.
    pub is_first: bool,
    /// Whether this is the last block of its run.
    pub is_last: bool,
    /// The block's place in its run, from 0.
    pub place: u32,
    /// Length of the payload, at most [`BLOCK_PAYLOAD_MAX`].
    pub payload_bytes: u32,
    /// CRC32C of the payload.
    pub payload_crc: u32,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHead(&'static str);

impl fmt::Display for BadHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl BlockHead {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; BLOCK_HEAD_BYTES] {
        let o = &self.origin;
        let mut bytes = [0; BLOCK_HEAD_BYTES];
        let flags = u8::from(self.is_first) | u8::from(self.is_last) << 1;
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = o.kind as u8;
        bytes[7] = flags;
        let numbers = [
            (8, o.subtask.vertex.0),
            (12, o.operator),
            (16, o.subtask.index),
            (20, o.first_group.0),
            (24, o.last_group.0),
            (28, o.channel.0),
            (40, self.place),
            (44, self.payload_bytes),
            (48, self.payload_crc),
        ];
        for (at, number) in numbers {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes[32..40].copy_from_slice(&o.number.to_le_bytes());
        let sum = crc32c::crc32c(&bytes[..HEAD_SUM_AT]);
        bytes[HEAD_SUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header; nothing in it is believed before its sum was checked.
    ///
    /// # Errors
    /// [`BadHead`] says what is wrong with it.
    pub fn decode(bytes: &[u8; BLOCK_HEAD_BYTES]) -> Result<Self, BadHead> {
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if bytes[0..4] != MAGIC {
            return Err(BadHead("no block begins here"));
        }
        if crc32c::crc32c(&bytes[..HEAD_SUM_AT]) != number(HEAD_SUM_AT) {
            return Err(BadHead("the header's checksum is wrong"));
        }
        if u16::from_le_bytes([bytes[4], bytes[5]]) != VERSION {
            return Err(BadHead("the block's version is not known"));
        }
        let Some(kind) = BlockKind::from_code(bytes[6]) else {
            return Err(BadHead("the block's kind is not known"));
        };
        let origin = BlockOrigin {
            kind,
            subtask: SubtaskId { vertex: VertexId(number(8)), index: number(16) },
            operator: number(12),
            first_group: KeyGroup(number(20)),
            last_group: KeyGroup(number(24)),
            channel: ChannelIndex(number(28)),
            number: u64::from(number(32)) | u64::from(number(36)) << 32,
        };
        let head = Self {
            origin,
            is_first: bytes[7] & 1 != 0,
            is_last: bytes[7] & 2 != 0,
            place: number(40),
            payload_bytes: number(44),
            payload_crc: number(48),
        };
        let is_sound = bytes[7] <= 3
            && bytes[52..HEAD_SUM_AT].iter().all(|b| *b == 0)
            && head.payload_bytes as usize <= BLOCK_PAYLOAD_MAX
            && head.is_first == (head.place == 0)
            && origin.first_group <= origin.last_group;
        if is_sound { Ok(head) } else { Err(BadHead("the header contradicts itself")) }
    }

    /// Length of header, payload and padding.
    pub fn block_bytes(&self) -> u64 {
        (BLOCK_HEAD_BYTES + self.payload_bytes as usize + self.padding_bytes()) as u64
    }

    /// How many zeros follow the payload.
    pub fn padding_bytes(&self) -> usize {
        padding(self.payload_bytes as usize)
    }
}

/// How long the blocks of a run with a payload of `bytes` are, headers and padding included.
pub(crate) fn run_bytes(bytes: usize) -> u64 {
    let blocks = bytes.div_ceil(BLOCK_PAYLOAD_MAX).max(1);
    // All payloads but the last are a multiple of 8 long.
    (blocks * BLOCK_HEAD_BYTES + bytes + padding(bytes)) as u64
}

/// How many bytes are missing to a multiple of 8.
fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() % 8
}

/// Header and sum of a block whose payload lies before us, so that the payload is summed only once.
pub(crate) fn seal(
    origin: BlockOrigin,
    place: u32,
    is_last: bool,
    payload: &[u8],
) -> (BlockHead, [u8; BLOCK_HEAD_BYTES], Sum) {
    assert!(payload.len() <= BLOCK_PAYLOAD_MAX, "payloads are cut before they are sealed");
    let payload_sum = Sum::of(payload);
    let head = BlockHead {
        origin,
        is_first: place == 0,
        is_last,
        place,
        payload_bytes: payload.len() as u32,
        payload_crc: payload_sum.crc,
    };
    let bytes = head.encode();
    let mut sum = Sum::of(&bytes);
    sum.join(payload_sum);
    sum.add(&ZEROS[..head.padding_bytes()]);
    (head, bytes, sum)
}

pub(crate) const ZEROS: [u8; 8] = [0; 8];
const MAGIC: [u8; 4] = *b"TGBK";
const VERSION: u16 = 1;
const HEAD_SUM_AT: usize = 60;
