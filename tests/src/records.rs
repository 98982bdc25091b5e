//! Records of all shapes, public and documented: that what the derive makes of them is so too, the lints see here.

use bytes::Bytes;
use tidegate::record::Data;

/// Documented, and so is what is made from it.
#[derive(Clone, Data, Debug, PartialEq)]
pub struct Bid {
    /// The auction.
    pub auction: u64,
    /// Where it was seen.
    pub url: String,
    /// What is offered, and how sure it is.
    pub price: (f64, Option<u8>),
    /// What kind of bid.
    pub r#type: Kind,
}

/// All sorts of variants.
#[derive(Clone, Data, Debug, PartialEq)]
pub enum Kind {
    /// Nothing more.
    Plain,
    /// Bytes and a list.
    Raw(Bytes, Vec<Point>),
    /// A name.
    Named {
        /// The name.
        name: String,
    },
}

/// Fixed in size.
#[derive(Clone, Copy, Data, Debug, PartialEq)]
pub struct Point(pub i32, pub i32);

/// A record without fields.
#[derive(Clone, Data, Debug, PartialEq)]
pub struct Tick;
