//! The manifest's bytes, as drawn in `manifest`.
//!
//! The decoder takes untrusted input: the sum is checked first, every count is bounded by the bytes that are left,
//! nothing is allocated ahead of what was read, and what follows the last field is an error. Encoder and decoder
//! run the same checks on values, so whatever was written can be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block::BlockRef;
use super::manifest::{
    ChannelMeta, ChannelSide, CheckpointMeta, EdgeMeta, FileMeta, INLINE_BYTES_MAX,
    MANIFEST_BYTES_MAX, OperatorMeta, OperatorState, SHARED_PREFIX, SnapshotKind, StateData,
    StateKind, StatePart, SubtaskMeta, SubtaskState, VertexMeta,
};
use super::store::is_part;
use crate::clock::EpochMillis;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{CheckpointId, KeyGroup, VertexId};

impl CheckpointMeta {
    /// The manifest's bytes.
    ///
    /// # Errors
    /// `Checkpoint` if the values contradict each other: such a manifest could not be read back.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check().map_err(damaged)?;
        let mut body = Writer { bytes: Vec::with_capacity(1024), files: BTreeMap::new() };
        for (place, file) in self.files.iter().enumerate() {
            body.files.insert(file.name.clone(), place as u32);
        }
        self.put(&mut body);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.bytes.len() + 4);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(&(body.bytes.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body.bytes);
        let sum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        if bytes.len() as u64 > MANIFEST_BYTES_MAX {
            return Err(damaged(format!("a manifest of {} bytes is too long", bytes.len())));
        }
        Ok(bytes)
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// `Checkpoint` saying at which byte what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let body = open(bytes).map_err(damaged)?;
        let mut reader = Reader { bytes: body, at: 0, files: Vec::new() };
        let meta = Self::take(&mut reader)
            .map_err(|what| damaged(format!("byte {}: {what}", HEAD_BYTES + reader.at)))?;
        if reader.at != body.len() {
            return Err(damaged(format!("byte {}: more than a manifest", HEAD_BYTES + reader.at)));
        }
        meta.check().map_err(damaged)?;
        Ok(meta)
    }

    /// Every block reference in it.
    pub fn block_refs(&self) -> impl Iterator<Item = &BlockRef> {
        self.vertices.iter().flat_map(|vertex| {
            let parts = vertex.operators.iter().flat_map(|o| o.state.parts()).map(|p| &p.data);
            let channels = vertex.subtasks.iter().flat_map(|s| &s.channels).map(|c| &c.data);
            parts.chain(channels).flat_map(StateData::block_refs)
        })
    }

    fn check(&self) -> Result<(), String> {
        let mut names = BTreeMap::new();
        for file in &self.files {
            let own = file.name.strip_prefix(SHARED_PREFIX).unwrap_or(&file.name);
            if !is_part(own) || own == MANIFEST_NAME {
                return Err(format!("{:?} is no name of a file", file.name));
            }
            if file.is_shared() && matches!(self.kind, SnapshotKind::Savepoint { .. }) {
                return Err(format!("a savepoint names the shared file {}", file.name));
            }
            if names.insert(&file.name, file.bytes).is_some() {
                return Err(format!("the file {} is named twice", file.name));
            }
        }
        for run in self.block_refs() {
            let Some(bytes) = names.get(&run.file) else {
                return Err(format!("the file {} is not listed", run.file));
            };
            if run.offset.checked_add(run.length).is_none_or(|end| end > *bytes) {
                return Err(format!("a block reference leads out of the file {}", run.file));
            }
        }
        self.vertices.iter().try_for_each(VertexMeta::check)
    }
}

impl VertexMeta {
    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if self.parallelism == 0 || self.parallelism > self.max_parallelism {
            return Err(format!("vertex '{name}' has no parallelism it can have"));
        }
        let width = self.parallelism as usize;
        if !self.subtasks.is_empty() && self.subtasks.len() != width {
            return Err(format!("vertex '{name}' has not one entry for each subtask"));
        }
        for operator in &self.operators {
            if let OperatorState::Subtasks(subtasks) = &operator.state
                && subtasks.len() != width
            {
                let name = &operator.name;
                return Err(format!("operator '{name}' has not one entry for each subtask"));
            }
            for part in operator.state.parts() {
                part.check(&operator.name)?;
            }
            if operator.state.finished_parts().any(|p| p.kind != StateKind::Union) {
                let name = &operator.name;
                return Err(format!("operator '{name}' keeps more than union state when finished"));
            }
        }
        for subtask in &self.subtasks {
            if !subtask.ended_inputs.is_sorted_by(|a, b| a < b) {
                return Err(format!("vertex '{name}' has ended inputs out of order"));
            }
            for channel in &subtask.channels {
                channel.data.check(name)?;
                if channel.first.checked_add(channel.count).is_none() {
                    return Err(format!("vertex '{name}' has a channel that never ends"));
                }
            }
        }
        Ok(())
    }
}

impl OperatorState {
    /// All parts of all subtasks.
    pub fn parts(&self) -> impl Iterator<Item = &StatePart> {
        let subtasks = match self {
            Self::Subtasks(subtasks) => subtasks.as_slice(),
            Self::None | Self::FullyFinished { .. } => &[],
        };
        subtasks.iter().flat_map(SubtaskState::parts)
    }

    fn finished_parts(&self) -> impl Iterator<Item = &StatePart> {
        let subtasks = match self {
            Self::Subtasks(subtasks) => subtasks.as_slice(),
            Self::None | Self::FullyFinished { .. } => &[],
        };
        let is_finished = |s: &&SubtaskState| matches!(s, SubtaskState::Finished { .. });
        subtasks.iter().filter(is_finished).flat_map(SubtaskState::parts)
    }
}

impl SubtaskState {
    /// Its parts, of whichever kind the entry is.
    pub fn parts(&self) -> &[StatePart] {
        match self {
            Self::Running(parts)
            | Self::Finished { union: parts }
            | Self::OperatorsFinished(parts) => parts,
        }
    }
}

impl StatePart {
    fn check(&self, operator: &str) -> Result<(), String> {
        match self.kind {
            StateKind::Keyed { first, last } | StateKind::Timers { first, last }
                if first > last =>
            {
                return Err(format!("operator '{operator}' has key groups {first} to {last}"));
            }
            StateKind::Keyed { .. }
            | StateKind::Timers { .. }
            | StateKind::List
            | StateKind::Union
            | StateKind::Broadcast
            | StateKind::Committables
            | StateKind::Position => {}
        }
        self.data.check(operator)
    }
}

impl StateData {
    /// Its block references; none if the bytes are inline.
    pub fn block_refs(&self) -> &[BlockRef] {
        match self {
            Self::Inline(_) => &[],
            Self::Blocks(runs) => runs,
        }
    }

    fn check(&self, whose: &str) -> Result<(), String> {
        match self {
            Self::Inline(bytes) if bytes.len() > INLINE_BYTES_MAX => {
                Err(format!("'{whose}' has {} bytes inline", bytes.len()))
            }
            Self::Inline(_) | Self::Blocks(_) => Ok(()),
        }
    }
}

fn damaged(what: String) -> Error {
    Error::new(ErrorKind::Checkpoint, format!("the manifest is damaged: {what}"))
}

/// Checks head and sum; what is between is the body.
fn open(bytes: &[u8]) -> Result<&[u8], String> {
    let Some((rest, sum)) = bytes.split_last_chunk::<4>() else {
        return Err("it is cut off".into());
    };
    if rest.len() < HEAD_BYTES || !rest.starts_with(MAGIC) {
        return Err("byte 0: no manifest begins here".into());
    }
    if crc32c::crc32c(rest) != u32::from_le_bytes(*sum) {
        return Err("its checksum is wrong".into());
    }
    let (head, body) = rest.split_at(HEAD_BYTES);
    let version = u16::from_le_bytes([head[8], head[9]]);
    if version != VERSION {
        return Err(format!("byte 8: version {version} is not known"));
    }
    let length = u64::from_le_bytes(head[16..24].try_into().expect("eight bytes"));
    if head[10..16].iter().any(|b| *b != 0) || length != body.len() as u64 {
        return Err("byte 10: its length is another one".into());
    }
    Ok(body)
}

struct Writer {
    bytes: Vec<u8>,
    files: BTreeMap<Arc<str>, u32>,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    files: Vec<Arc<str>>,
}

impl<'a> Reader<'a> {
    fn slice(&mut self, length: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(format!("{length} bytes are wanted, {} left", self.bytes.len() - self.at));
        };
        let slice = &self.bytes[self.at..end];
        self.at = end;
        Ok(slice)
    }

    fn counted(&mut self) -> Result<&'a [u8], String> {
        let length = u32::take(self)?;
        self.slice(length as usize)
    }
}

/// A value in the manifest.
trait Wire: Sized {
    fn put(&self, to: &mut Writer);
    fn take(from: &mut Reader<'_>) -> Result<Self, String>;
}

macro_rules! number_wire {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            fn put(&self, to: &mut Writer) {
                to.bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, String> {
                let bytes = from.slice(size_of::<Self>())?;
                Ok(Self::from_le_bytes(bytes.try_into().expect("as many as asked for")))
            }
        }
    )*};
}

number_wire!(u8, u32, u64, i64);

/// A struct is its fields, one after the other.
macro_rules! struct_wire {
    ($($name:ident { $($field:tt),* })*) => {$(
        impl Wire for $name {
            fn put(&self, to: &mut Writer) {
                $(self.$field.put(to);)*
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, String> {
                Ok(Self { $($field: Wire::take(from)?),* })
            }
        }
    )*};
}

struct_wire! {
    CheckpointId { 0 }
    VertexId { 0 }
    KeyGroup { 0 }
    EpochMillis { 0 }
    CheckpointMeta {
        job, fingerprint, id, kind, triggered_at, completed_at, owner_epoch, files, vertices, edges
    }
    VertexMeta { id, name, parallelism, max_parallelism, operators, subtasks }
    OperatorMeta { name, state }
    SubtaskMeta { ended_inputs, reference, channels }
    ChannelMeta { gate, channel, side, restores, first, count, watermark, is_idle, data }
    StatePart { kind, name, data }
    EdgeMeta { from, to, gate, captured_bytes, is_reroutable }
}

/// An enum is the number of its variant, then the variant's fields.
macro_rules! enum_wire {
    ($($name:ident { $($code:literal => $variant:ident $({ $($field:ident),* })? $(( $inner:ident ))?),* })*) => {$(
        impl Wire for $name {
            fn put(&self, to: &mut Writer) {
                match self {
                    $(Self::$variant $({ $($field),* })? $(($inner))? => {
                        to.bytes.push($code);
                        $($($field.put(to);)*)?
                        $($inner.put(to);)?
                    })*
                }
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, String> {
                match u8::take(from)? {
                    $($code => {
                        $($(let $field = Wire::take(from)?;)*)?
                        $(let $inner = Wire::take(from)?;)?
                        Ok(Self::$variant $({ $($field),* })? $(($inner))?)
                    })*
                    code => Err(format!("{code} is no {}", stringify!($name))),
                }
            }
        }
    )*};
}

enum_wire! {
    SnapshotKind { 0 => Checkpoint, 1 => Savepoint { drained } }
    OperatorState { 0 => None, 1 => Subtasks(of), 2 => FullyFinished { parallelism, max_parallelism } }
    SubtaskState { 0 => Running(parts), 1 => Finished { union }, 2 => OperatorsFinished(parts) }
    ChannelSide { 0 => Receiver, 1 => Sender }
    StateKind {
        0 => Keyed { first, last },
        1 => List,
        2 => Union,
        3 => Broadcast,
        4 => Timers { first, last },
        5 => Committables,
        6 => Position
    }
    StateData { 0 => Inline(bytes), 1 => Blocks(runs) }
}

impl Wire for bool {
    fn put(&self, to: &mut Writer) {
        to.bytes.push(u8::from(*self));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, String> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            code => Err(format!("{code} is neither yes nor no")),
        }
    }
}

impl Wire for String {
    fn put(&self, to: &mut Writer) {
        put_bytes(self.as_bytes(), to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, String> {
        let text = std::str::from_utf8(from.counted()?).map_err(|e| e.to_string())?;
        Ok(text.to_owned())
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, to: &mut Writer) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, String> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

/// Lists grow as their items are read, so a count alone allocates nothing.
impl<T: Wire> Wire for Vec<T> {
    fn put(&self, to: &mut Writer) {
        count(self.len()).put(to);
        self.iter().for_each(|item| item.put(to));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, String> {
        let length = u32::take(from)?;
        let mut items = Self::new();
        for _ in 0..length {
            items.push(T::take(from)?);
        }
        Ok(items)
    }
}

impl Wire for FileMeta {
    fn put(&self, to: &mut Writer) {
        put_bytes(self.name.as_bytes(), to);
        self.bytes.put(to);
        self.crc.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, String> {
        let name: Arc<str> = String::take(from)?.into();
        from.files.push(name.clone());
        Ok(Self { name, bytes: u64::take(from)?, crc: u32::take(from)? })
    }
}

impl Wire for BlockRef {
    fn put(&self, to: &mut Writer) {
        to.files.get(&self.file).copied().expect("checked before encoding").put(to);
        self.offset.put(to);
        self.length.put(to);
        self.crc.put(to);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, String> {
        let place = u32::take(from)?;
        let Some(file) = from.files.get(place as usize).cloned() else {
            return Err(format!("there is no file number {place}"));
        };
        let (offset, length, crc) = (u64::take(from)?, u64::take(from)?, u32::take(from)?);
        Ok(Self { file, offset, length, crc })
    }
}

fn put_bytes(bytes: &[u8], to: &mut Writer) {
    count(bytes.len()).put(to);
    to.bytes.extend_from_slice(bytes);
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("nothing in a manifest is 4 GiB long")
}

const MAGIC: &[u8; 8] = b"TGMANIF1";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 24;
/// The file's name in its folder; no other file may have it.
pub(crate) const MANIFEST_NAME: &str = "MANIFEST";
