//! Who is who in the control plane: jobs, task managers, machines, slots, leaders.
//!
//! Names that come from outside (task managers, nodes and their pools) are checked once, when they become a value of
//! these types; after that they are known to be short and printable. Used by every control machine.

use std::fmt;
use std::sync::Arc;

/// The longest identifier accepted, in bytes: that of a DNS subdomain, so every pod and node name fits.
pub const IDENTIFIER_BYTES_MAX: usize = 253;

/// Why a text can't name a task manager, a node or a node pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidIdentifier {
    /// It has no characters.
    Empty,
    /// It is longer than [`IDENTIFIER_BYTES_MAX`] bytes; how long it is.
    TooLong(usize),
    /// It contains white space or a control character.
    Unprintable,
}

impl fmt::Display for InvalidIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("an identifier must not be empty"),
            Self::TooLong(bytes) => {
                write!(
                    f,
                    "an identifier has at most {IDENTIFIER_BYTES_MAX} bytes, this one {bytes}"
                )
            }
            Self::Unprintable => {
                f.write_str("an identifier must not contain white space or control characters")
            }
        }
    }
}

impl std::error::Error for InvalidIdentifier {}

fn check(text: &str) -> Result<(), InvalidIdentifier> {
    if text.is_empty() {
        return Err(InvalidIdentifier::Empty);
    }
    if text.len() > IDENTIFIER_BYTES_MAX {
        return Err(InvalidIdentifier::TooLong(text.len()));
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(InvalidIdentifier::Unprintable);
    }
    Ok(())
}

macro_rules! text_id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The identifier spelled `text`.
            ///
            /// # Errors
            /// If `text` is empty, longer than [`IDENTIFIER_BYTES_MAX`] bytes, or not printable.
            pub fn new(text: &str) -> Result<Self, InvalidIdentifier> {
                check(text)?;
                Ok(Self(text.into()))
            }

            /// How it is spelled.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

text_id! {
    /// One incarnation of a task manager process. A restarted task manager has another one, so a blocklisted
    /// task manager's successor is not blocklisted; a blocklisted node's is.
    ResourceId;
    /// A machine, spelled as the external resource manager spells it.
    NodeId;
    /// Machines of one kind, such as those with a GPU: what runs on one of them often can't run on any other machine.
    NodePool;
}

impl NodePool {
    /// How the pool is spelled that a node is in when nobody says which.
    pub const DEFAULT: &str = "default";

    /// Whether it is the pool of the nodes of which nobody says which.
    pub fn is_default(&self) -> bool {
        self.as_str() == Self::DEFAULT
    }
}

impl Default for NodePool {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

number! {
    /// A job known to the resource manager.
    JobId, "job-";
    /// One grant of one slot to one job; never used twice.
    AllocationId, "a";
    /// One term of a leader (job master or resource manager). Messages of an older term change nothing.
    LeaderId, "l";
}

/// Where a task manager is. Two locations are equal if resource id, node id, address and port are.
#[derive(Clone, Debug)]
pub struct TaskManagerLocation {
    /// The process.
    pub resource_id: ResourceId,
    /// The machine, as set by whoever started the process.
    pub node_id: NodeId,
    /// The pool that the machine is in; no part of the identity.
    pub pool: NodePool,
    /// Address others reach it under.
    pub address: String,
    /// Fully qualified name of the machine; for people only.
    pub fqdn: String,
    /// Port of its data connections.
    pub data_port: u16,
}

impl TaskManagerLocation {
    /// A task manager at `address`, in the default pool; its node id is `node_id`, or else the external address.
    ///
    /// # Errors
    /// If the node id must be taken from the address, and the address can't be one.
    pub fn new(
        resource_id: ResourceId,
        node_id: Option<NodeId>,
        address: &str,
        data_port: u16,
    ) -> Result<Self, InvalidIdentifier> {
        let node_id = match node_id {
            Some(node_id) => node_id,
            None => NodeId::new(address)?,
        };
        let (address, fqdn) = (address.to_owned(), address.to_owned());
        Ok(Self { resource_id, node_id, pool: NodePool::default(), address, fqdn, data_port })
    }

    /// The same task manager, on a machine of `pool`.
    #[must_use]
    pub fn in_pool(self, pool: NodePool) -> Self {
        Self { pool, ..self }
    }

    /// The machine's name without its domain.
    pub fn hostname(&self) -> &str {
        self.fqdn.split('.').next().unwrap_or(&self.fqdn)
    }
}

impl PartialEq for TaskManagerLocation {
    fn eq(&self, other: &Self) -> bool {
        self.resource_id == other.resource_id
            && self.node_id == other.node_id
            && self.address == other.address
            && self.data_port == other.data_port
    }
}

impl Eq for TaskManagerLocation {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l01_location_equality_carries_the_node() {
        let at = |node: &str| {
            let id = ResourceId::new("tm1").expect("short");
            TaskManagerLocation::new(id, NodeId::new(node).ok(), "10.0.0.1", 7000).expect("fits")
        };
        assert_eq!(at("n1"), at("n1"));
        assert_ne!(at("n1"), at("n2"));
        let mut renamed = at("n1");
        renamed.fqdn = "host.example".into();
        assert_eq!(at("n1"), renamed, "the name for people is no part of the identity");
        assert_eq!(renamed.hostname(), "host");
    }

    #[test]
    fn l02_the_node_id_defaults_to_the_external_address() {
        let id = ResourceId::new("tm1").expect("short");
        let location = TaskManagerLocation::new(id, None, "10.0.0.1", 7000).expect("fits");
        assert_eq!(location.node_id.as_str(), "10.0.0.1");
    }

    #[test]
    fn identifiers_are_short_and_printable() {
        assert_eq!(NodeId::new(""), Err(InvalidIdentifier::Empty));
        assert_eq!(NodeId::new(&"x".repeat(254)), Err(InvalidIdentifier::TooLong(254)));
        assert!(NodeId::new(&"x".repeat(253)).is_ok());
        for bad in ["a b", "a\n", "a\u{7f}", "\u{2003}"] {
            assert_eq!(NodeId::new(bad), Err(InvalidIdentifier::Unprintable), "{bad:?}");
        }
    }
}
