//! Operators and the chains they form.
//!
//! A chain is built from the source down, as iterators are, and turned round when its end is known: [`Chain::attach`]
//! wraps the end in each operator, and the head (a source, or the consumer's side of an exchange) boxes the whole, one
//! type, into its task. At run time a batch goes through as a [`Feed`](crate::record::Feed) in one monomorphised
//! function; everything else goes through as a [`Signal`].

mod after_commit;
mod boxed;
mod build;
mod chain;
mod exchange;
mod filter;
mod flat_map;
mod fold;
mod forward;
mod head;
mod inspect;
mod key;
mod keyed;
mod map;
mod op;
mod parallel;
mod policy;
mod process;
mod sink;
mod source;
mod split;
mod union;

pub use after_commit::AfterCommit;
pub use boxed::Boxed;
pub use build::Build;
pub use chain::{Chain, EdgeKind, End, Stage};
pub use exchange::{
    Broadcast, BroadcastOp, Exchange, PartitionByKey, PartitionByKeyOp, Rebalance, RebalanceOp,
};
pub use filter::Filter;
pub use flat_map::FlatMap;
pub(crate) use fold::restore_table;
pub use fold::{Fold, Folded};
pub use forward::Forward;
pub use head::{Driven, Head, HeadInput, HeadSource, Taken};
pub use inspect::Inspect;
pub use key::{BorrowedKey, KeyFn, OwnedKey};
pub use keyed::{Keyed, KeyedHead, KeyedLogic, Logic};
pub use map::{Map, MapRef};
pub use op::{Op, Signal, fail};
pub use parallel::Parallel;
pub use policy::OnError;
pub use process::{Context, Each, Process, ProcessLogic, Processing, States, Timer};
pub use sink::{IntoSink, SinkOp};
pub use source::FromSource;
pub(crate) use split::SideOutput;
pub use split::{Inlet, Split};
pub use union::Union;
