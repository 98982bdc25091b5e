//! The two traits of records: [`Data`], a record type, and [`AsData`], whatever can be emitted as one.

use super::codec::Codec;

/// A record type: what streams carry.
///
/// Derive it: `#[derive(Clone, Data)] struct Bid { auction: u64, url: String }` makes the view `BidRef<'a>` with
/// the fields' views. Numbers, `bool`, `String`, `bytes::Bytes`, `Option`, `Vec` of fixed-size types and tuples of up to
/// eight are records too; any serde type crosses as `Serde<T>` with the feature `serde`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a record: it does not implement `Data`",
    label = "not a record type",
    note = "derive it with `#[derive(Clone, Data)]`, or wrap a serde type in `Serde<T>`",
    note = "records are numbers, strings, bytes, options, vectors of fixed-size types, tuples and derived types"
)]
pub trait Data: AsData<Data = Self> + Clone + Send + 'static {
    /// The view that operators get: `u64` for `u64`, `&str` for `String`, a tuple of views for a tuple.
    type Ref<'a>: Copy + AsData<Data = Self>;
    /// How the view's bytes lie in a buffer: a built-in type or a tuple of such.
    type Codec: Codec;

    /// The view in the codec's terms.
    fn encode<'a>(view: Self::Ref<'a>) -> <Self::Codec as Codec>::Ref<'a>;
    /// The codec's view in the type's terms.
    fn decode<'a>(raw: <Self::Codec as Codec>::Ref<'a>) -> Self::Ref<'a>;
    /// The owned form of a view.
    fn own(view: Self::Ref<'_>) -> Self;
    /// The same view with a shorter life; generic code can't see that `Ref` is covariant.
    fn shorten<'short, 'long: 'short>(view: Self::Ref<'long>) -> Self::Ref<'short>;
}

/// Anything that can be emitted as a record: the owned type, its view, and tuples of such.
///
/// It leads from the value to the record type, so that `map` and `emit` need no type named.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a record: it does not implement `Data`",
    label = "not a record type",
    note = "derive it with `#[derive(Data)]`, or wrap a serde type in `Serde<T>`",
    note = "records are numbers, strings, bytes, options, vectors of fixed-size types, tuples and derived types",
    note = "a key that borrows from the record is named: `key_by_ref::<String>(|word| *word)`"
)]
pub trait AsData {
    /// The record type.
    type Data: Data;
    /// The record's view.
    fn view(&self) -> <Self::Data as Data>::Ref<'_>;
}
