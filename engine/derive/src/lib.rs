//! The derive macros for Tidegate records: `Data`, and `CsvRow` for rows of CSV files.
//!
//! They emit safe code only: a derived codec is a tuple of the fields' codecs, and an enum's a list of its variants'.
//! The paths in what they emit begin with `::tidegate`, where users find the traits.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "syn's enums grow; what is unknown is left to the compiler"
)]

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

mod csv_row;
mod record;
mod shape;
mod view;

/// Makes a struct or an enum a record type.
///
/// Emits the view `NameRef<'a>`, which has the same fields (or variants) as views and the same visibility, and implements
/// `Data` for the type and `AsData` for both. A view of a type without fields has no lifetime. A struct whose fields are
/// all of fixed size is of fixed size itself; a type whose fields are all keys is a key.
///
/// The type must be `Clone`, own its fields, and have no generic parameters.
#[proc_macro_derive(Data)]
pub fn derive_data(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    record::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a record struct readable from rows of CSV files, in place.
///
/// Each named field is the column of its name; `#[csv(rename = "…")]` names another column. A field's type is a number,
/// `bool`, `char`, `String`, `EpochMillis` or an `Option` of such. The struct also derives `Data`.
#[proc_macro_derive(CsvRow, attributes(csv))]
pub fn derive_csv_row(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    csv_row::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
