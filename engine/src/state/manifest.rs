//! The manifest: what a completed checkpoint or savepoint consists of, written last.
//!
//! A snapshot whose folder holds a `MANIFEST` is completed; it names every file with its length and sum, so what
//! isn't named is no part of it. It holds no absolute path, so a savepoint can be moved. Bytes, little endian:
//! ```text
//!  0 magic "TGMANIF1"   8 version u16   10 zero u16   12 zero u32   16 length of the body u64
//! 24 body: job, fingerprint, id, kind, times, owner epoch, files, vertices, edges, in the order of the fields below
//!    numbers: as wide as the field   string, bytes: length u32, then they   list: count u32, then its items
//!    enum: number u8, then the variant's fields   file of a BlockRef: its place in `files` u32
//! 24 + length: CRC32C of everything before u32
//! ```
//! Written by the snapshot writer on behalf of the checkpoint coordinator, read at start and at restore. Made of
//! plain values; [`CheckpointMeta::encode`] and [`CheckpointMeta::decode`] accept exactly the same ones.

use std::sync::Arc;

use super::block::BlockRef;
use crate::clock::EpochMillis;
use crate::id::{CheckpointId, KeyGroup, VertexId};

/// A completed checkpoint or savepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointMeta {
    /// The job's name.
    pub job: String,
    /// The job graph's fingerprint, as text.
    pub fingerprint: String,
    /// Which checkpoint.
    pub id: CheckpointId,
    /// Checkpoint or savepoint.
    pub kind: SnapshotKind,
    /// When it was triggered.
    pub triggered_at: EpochMillis,
    /// When the last acknowledgement had come.
    pub completed_at: EpochMillis,
    /// The epoch of the owner that completed it.
    pub owner_epoch: u64,
    /// Every file that a block reference names, and no other.
    pub files: Vec<FileMeta>,
    /// The vertices of the execution graph.
    pub vertices: Vec<VertexMeta>,
    /// The edges between them.
    pub edges: Vec<EdgeMeta>,
}

/// Checkpoint or savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// The engine's own, removed when newer ones have completed.
    Checkpoint,
    /// The user's own: names no shared file and stays until the user removes it.
    Savepoint {
        /// Whether the job was drained: it restores as ended.
        drained: bool,
    },
}

/// A file of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMeta {
    /// `data-0` in the snapshot's own folder, or `shared/…`.
    pub name: Arc<str>,
    /// Its length.
    pub bytes: u64,
    /// CRC32C of all its bytes.
    pub crc: u32,
}

impl FileMeta {
    /// Whether several checkpoints may use the file.
    pub fn is_shared(&self) -> bool {
        self.name.starts_with(SHARED_PREFIX)
    }
}

/// One vertex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VertexMeta {
    /// Which vertex.
    pub id: VertexId,
    /// Its name.
    pub name: String,
    /// How many subtasks it had.
    pub parallelism: u32,
    /// How many it can have at most: the number of key groups.
    pub max_parallelism: u32,
    /// Its operators in the order of the chain.
    pub operators: Vec<OperatorMeta>,
    /// What belongs to no single operator, one entry for each subtask; empty if the vertex is fully finished.
    pub subtasks: Vec<SubtaskMeta>,
}

/// One operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorMeta {
    /// Its name, unique in the job.
    pub name: String,
    /// What it left.
    pub state: OperatorState,
}

/// What an operator left in a snapshot. With [`SubtaskState`] the five kinds that a restore tells apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorState {
    /// No entry: it has no state and has not finished.
    None,
    /// One entry for each subtask.
    Subtasks(Vec<SubtaskState>),
    /// All subtasks had finished and nothing was left to commit; it is not run again (FLIP-147, fully finished
    /// operators).
    FullyFinished {
        /// The parallelism it had.
        parallelism: u32,
        /// The maximum parallelism it had.
        max_parallelism: u32,
    },
}

/// What one subtask of an operator left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubtaskState {
    /// It was running.
    Running(Vec<StatePart>),
    /// It had finished and left; only its union list state is kept, so that the others can go on with it.
    Finished {
        /// Parts of kind [`StateKind::Union`].
        union: Vec<StatePart>,
    },
    /// Its operators had finished but its last commit was still to come: it restores into that, without timers and
    /// without finishing again.
    OperatorsFinished(Vec<StatePart>),
}

/// What a subtask left that belongs to no single operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubtaskMeta {
    /// The inputs that had ended, in ascending order: their end is not told again.
    pub ended_inputs: Vec<u32>,
    /// The checkpoint this subtask's state is taken from, if it is another one. Always `None` so far.
    pub reference: Option<CheckpointId>,
    /// What was in flight on its channels, the receiver's part of a channel before the sender's.
    pub channels: Vec<ChannelMeta>,
}

/// What was in flight on one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelMeta {
    /// The consumer's gate.
    pub gate: u32,
    /// The channel in that gate.
    pub channel: u32,
    /// Who captured it.
    pub side: ChannelSide,
    /// How many restores the buffers had been through before they were captured. A channel's parts are stored with the most first:
    /// of two parts of a subtask's channels, the one with more was sent before the other.
    pub restores: u32,
    /// The number of the first buffer.
    pub first: u64,
    /// How many buffers.
    pub count: u64,
    /// The watermark at the read position.
    pub watermark: EpochMillis,
    /// Whether the channel was idle at the read position.
    pub is_idle: bool,
    /// The buffers in the order of their numbers; the first one begins at the read position.
    pub data: StateData,
}

/// Which end of a channel captured a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChannelSide {
    /// The consumer: from the read position on.
    Receiver,
    /// The producer's network thread: what it had not handed over.
    Sender,
}

/// One piece of an operator's state in one subtask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePart {
    /// What it is.
    pub kind: StateKind,
    /// The state's name, unique among the operator's states of this kind.
    pub name: String,
    /// Its bytes.
    pub data: StateData,
}

/// What a [`StatePart`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateKind {
    /// Keyed state of the key groups `first` to `last`, both included.
    Keyed {
        /// The first key group.
        first: KeyGroup,
        /// The last key group.
        last: KeyGroup,
    },
    /// List state: handed out anew when the parallelism changes.
    List,
    /// Union list state: every subtask gets all of it.
    Union,
    /// Broadcast state: the same in every subtask.
    Broadcast,
    /// Timers of the key groups `first` to `last`, both included.
    Timers {
        /// The first key group.
        first: KeyGroup,
        /// The last key group.
        last: KeyGroup,
    },
    /// What a sink has prepared and not yet committed.
    Committables,
    /// How far a source has read.
    Position,
}

/// Where bytes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateData {
    /// In the manifest, at most [`INLINE_BYTES_MAX`].
    Inline(Vec<u8>),
    /// In runs of blocks, in their order.
    Blocks(Vec<BlockRef>),
}

/// An edge of the execution graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeMeta {
    /// The producing vertex.
    pub from: VertexId,
    /// The consuming vertex.
    pub to: VertexId,
    /// The consumer's gate.
    pub gate: u32,
    /// How many bytes in flight were captured on it. An edge that may not be re-routed and has captured bytes
    /// refuses a restore with another parallelism.
    pub captured_bytes: u64,
    /// Whether records of the edge can be routed anew for another parallelism.
    pub is_reroutable: bool,
}

/// The most bytes that lie in the manifest itself, for each state part.
pub const INLINE_BYTES_MAX: usize = 64 << 10;
/// The longest manifest.
pub const MANIFEST_BYTES_MAX: u64 = 256 << 20;
/// What names of shared files begin with.
pub(crate) const SHARED_PREFIX: &str = "shared/";
