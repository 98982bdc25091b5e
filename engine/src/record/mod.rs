//! What a record is, how its bytes lie in a buffer, and which key group its key falls in.
//!
//! A record type implements [`Data`]: it has an owned form, a `Copy` view ([`Data::Ref`]) that operators get, and a
//! codec that writes the view's bytes into a buffer and reads them in place. Users derive it; `codec` and `load` are
//! the only files here that touch raw memory.

pub(crate) mod batch;
pub(crate) mod bits;
pub mod codec;
mod data;
#[cfg(test)]
mod derived;
mod feed;
pub(crate) mod fields;
pub(crate) mod key;
pub mod key_group;
mod list;
pub(crate) mod load;
mod plain;
#[cfg(feature = "serde")]
mod serde;

pub(crate) use bits::positions;
pub use data::{AsData, Data};
pub use feed::{Feed, Output};
pub use key::{Key, KeyCodec, Text};
pub use list::List;
pub(crate) use load::words16;
#[cfg(feature = "serde")]
pub use serde::{Serde, SerdeRef};
pub use tidegate_derive::Data;
