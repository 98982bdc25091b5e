//! Identities as types of their own, so that two numbers side by side can't be mixed up.

use std::fmt;

macro_rules! number_id {
    ($($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

number_id! {
    /// A checkpoint or savepoint of one job; strictly increasing, never used twice.
    CheckpointId(u64), "";
    /// A vertex of the execution graph: one operator chain with one parallelism.
    VertexId(u32), "v";
    /// Which try of a subtask: 0 the first, raised by each restart.
    Attempt(u32), "#";
    /// An input channel of a subtask: its place among all channels of all its gates.
    ChannelIndex(u32), "c";
    /// A pinned worker thread of this process.
    WorkerIndex(u32), "w";
    /// A key group: the unit in which keyed state is written and handed out again.
    KeyGroup(u32), "g";
}

/// One parallel instance of a vertex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubtaskId {
    /// The vertex.
    pub vertex: VertexId,
    /// Which instance, from 0 to the vertex's parallelism - 1.
    pub index: u32,
}

impl SubtaskId {
    /// Instance `index` of vertex `vertex`.
    pub const fn new(vertex: u32, index: u32) -> Self {
        Self { vertex: VertexId(vertex), index }
    }
}

impl fmt::Display for SubtaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.vertex, self.index)
    }
}

/// One try of one subtask. Messages of another attempt than the current one change nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The subtask.
    pub subtask: SubtaskId,
    /// Which try.
    pub attempt: Attempt,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.subtask, self.attempt)
    }
}
