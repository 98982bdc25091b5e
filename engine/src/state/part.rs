//! Pieces of a snapshot on their way between operators and storage.
//!
//! An operator hands out its state in named parts: small ones as bytes, large ones as something that writes itself later,
//! on the I/O thread. On restore it finds its parts again by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::id::CheckpointId;
use crate::record::key_group::KeyGroupRange;
use crate::state::snapshot::Part as TablePart;

/// What a part is, and so how it is handed out when the parallelism changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartKind {
    /// Keyed state: by key group.
    Keyed,
    /// List state: in turn.
    List,
    /// Union list state: all to all.
    Union,
    /// Broadcast state: a copy to each.
    Broadcast,
    /// Timers: by key group.
    Timers,
    /// What a sink has prepared: in turn.
    Committables,
    /// A source's splits: in turn.
    Position,
}

/// State that writes itself on the I/O thread, while the operator goes on.
pub trait WriteBlocks: Send {
    /// Writes all blocks, each with the key groups it covers.
    ///
    /// # Errors
    /// What `out` returns; the checkpoint is declined.
    fn write(
        self: Box<Self>,
        out: &mut dyn FnMut(KeyGroupRange, &[u8]) -> Result<()>,
    ) -> Result<()>;

    /// The table that the blocks are of, and which of its snapshots they are: then they can be written in part.
    fn moment(&self) -> Option<TableMoment> {
        None
    }

    /// All parts of the table, and which of them were written since its snapshot `epoch`.
    fn parts_since(&self, _epoch: u32) -> Vec<TablePart> {
        Vec::new()
    }

    /// Writes at least the parts that were written since snapshot `epoch`; all of them for 0.
    ///
    /// # Errors
    /// What `out` returns, or `Internal` if there is no table.
    fn write_since(
        self: Box<Self>,
        _epoch: u32,
        _out: &mut dyn FnMut(TablePart, &[u8]) -> Result<()>,
    ) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, "this state is not written in part"))
    }
}

/// A table at one of its snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMoment {
    /// Names the table for the life of the process.
    pub table: u64,
    /// Counts the table's snapshots.
    pub epoch: u32,
}

/// A part's content.
pub enum PartData {
    /// Bytes.
    Inline(Vec<u8>),
    /// Something that writes itself.
    Blocks(Box<dyn WriteBlocks>),
}

impl fmt::Debug for PartData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
            Self::Blocks(_) => f.write_str("Blocks"),
        }
    }
}

/// A piece of an operator's state.
#[derive(Debug)]
pub struct Part {
    /// The operator's name.
    pub operator: Arc<str>,
    /// What it is.
    pub kind: PartKind,
    /// The state's name, unique in the operator for its kind.
    pub name: String,
    /// Its content.
    pub data: PartData,
}

/// Collects the parts of one subtask for one checkpoint.
#[derive(Debug)]
pub struct Snapshot {
    checkpoint: CheckpointId,
    parts: Vec<Part>,
}

impl Snapshot {
    pub(crate) fn new(checkpoint: CheckpointId) -> Self {
        Self { checkpoint, parts: Vec::new() }
    }

    /// Which checkpoint.
    pub fn checkpoint(&self) -> CheckpointId {
        self.checkpoint
    }

    /// Hands out a part as bytes.
    pub fn inline(&mut self, operator: &str, kind: PartKind, name: &str, bytes: Vec<u8>) {
        self.push(operator, kind, name, PartData::Inline(bytes));
    }

    /// Hands out a part that writes itself later.
    pub fn blocks(
        &mut self,
        operator: &str,
        kind: PartKind,
        name: &str,
        blocks: Box<dyn WriteBlocks>,
    ) {
        self.push(operator, kind, name, PartData::Blocks(blocks));
    }

    fn push(&mut self, operator: &str, kind: PartKind, name: &str, data: PartData) {
        self.parts.push(Part { operator: operator.into(), kind, name: name.into(), data });
    }

    pub(crate) fn into_parts(self) -> Vec<Part> {
        self.parts
    }
}

/// Reads a part's blocks back, in order.
pub trait ReadBlocks: Send + Sync {
    /// Shows each block that covers some of `range`.
    ///
    /// # Errors
    /// The blocks can't be read, or what `each` returns.
    fn read(&self, range: KeyGroupRange, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// About how many bytes the blocks that cover some of `range` have.
    fn bytes(&self, range: KeyGroupRange) -> u64;
}

/// A restored part's content.
#[derive(Clone)]
pub enum RestoredData {
    /// Bytes.
    Inline(Vec<u8>),
    /// Blocks to be read.
    Blocks(Arc<dyn ReadBlocks>),
}

impl fmt::Debug for RestoredData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(bytes) => write!(f, "Inline({} bytes)", bytes.len()),
            Self::Blocks(_) => f.write_str("Blocks"),
        }
    }
}

/// A piece of an operator's state, found in a checkpoint.
#[derive(Clone, Debug)]
pub struct RestoredPart {
    /// What it is.
    pub kind: PartKind,
    /// The state's name.
    pub name: String,
    /// Its content.
    pub data: RestoredData,
}

impl RestoredPart {
    /// The items of a part made by [`encode_list`].
    ///
    /// # Errors
    /// The bytes are no such list.
    pub fn list(&self) -> Result<Vec<Vec<u8>>> {
        match &self.data {
            RestoredData::Inline(bytes) => decode_list(bytes),
            RestoredData::Blocks(_) => Err(self.corrupt("is not stored as bytes")),
        }
    }

    /// Shows the part's bytes or each of its blocks; with the first block also about how many bytes are behind it.
    ///
    /// # Errors
    /// The blocks can't be read, or what `each` returns.
    pub fn each_block(
        &self,
        range: KeyGroupRange,
        each: &mut dyn FnMut(&[u8], u64) -> Result<()>,
    ) -> Result<()> {
        match &self.data {
            RestoredData::Inline(bytes) => each(bytes, 0),
            RestoredData::Blocks(blocks) => {
                let mut bytes = blocks.bytes(range);
                blocks.read(range, &mut |block| {
                    let behind = std::mem::take(&mut bytes).saturating_sub(block.len() as u64);
                    each(block, behind)
                })
            }
        }
    }

    fn corrupt(&self, what: &str) -> Error {
        Error::new(ErrorKind::Checkpoint, format!("state '{}' {what}", self.name))
    }
}

/// What one subtask restores.
#[derive(Debug, Default)]
pub struct RestoredState {
    /// The checkpoint it is from; `None` for a first start.
    pub checkpoint: Option<CheckpointId>,
    /// Parts by operator.
    pub operators: BTreeMap<String, Vec<RestoredPart>>,
}

/// Byte strings as one: count, then length and bytes of each, little-endian.
pub fn encode_list<'a>(items: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    let mut count = 0u32;
    for item in items {
        bytes.extend_from_slice(&(item.len() as u64).to_le_bytes());
        bytes.extend_from_slice(item);
        count += 1;
    }
    bytes[..4].copy_from_slice(&count.to_le_bytes());
    bytes
}

/// The items that [`encode_list`] joined.
///
/// # Errors
/// The bytes are no such list.
pub fn decode_list(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let corrupt = || Error::new(ErrorKind::Checkpoint, "a list of state items is cut short");
    let (count, mut rest) = bytes.split_first_chunk::<4>().ok_or_else(corrupt)?;
    let mut items = Vec::new();
    for _ in 0..u32::from_le_bytes(*count) {
        let (length, behind) = rest.split_first_chunk::<8>().ok_or_else(corrupt)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| corrupt())?;
        let (item, behind) = behind.split_at_checked(length).ok_or_else(corrupt)?;
        items.push(item.to_vec());
        rest = behind;
    }
    if rest.is_empty() { Ok(items) } else { Err(corrupt()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_survives_a_round_trip_and_no_part_of_it_is_a_list() {
        let items = [b"one".as_slice(), b"", b"three"];
        let bytes = encode_list(items.into_iter());
        assert_eq!(decode_list(&bytes).unwrap(), items);
        for n in 0..bytes.len() {
            assert!(decode_list(&bytes[..n]).is_err());
        }
        assert_eq!(decode_list(&encode_list(std::iter::empty())).unwrap(), Vec::<Vec<u8>>::new());
    }
}
