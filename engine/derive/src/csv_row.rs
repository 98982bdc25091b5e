//! `#[derive(CsvRow)]`: the names of the columns, and the view of a row made field by field.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Attribute, Data, DeriveInput, Error, Fields, LitStr, Result};

use crate::shape::shapes;

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(syn::DataStruct { fields: Fields::Named(_), .. }) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "a CSV row is a struct with named fields: its columns are found by their names",
        ));
    };
    let shapes = shapes(input)?;
    let (owned, view) = (&input.ident, format_ident!("{}Ref", input.ident));
    let mut names = Vec::new();
    let mut values = Vec::new();
    for (index, field) in shapes[0].fields.iter().enumerate() {
        let syn::Member::Named(ident) = &field.member else {
            unreachable!("the fields were seen to be named")
        };
        let ty = field.ty;
        names.push(renamed(field.attrs)?.unwrap_or_else(|| ident.unraw().to_string()));
        values.push(quote!(#ident: columns.parse::<#ty>(#index)?));
    }
    Ok(quote! {
        #[automatically_derived]
        #[allow(unused_qualifications, clippy::all)]
        impl ::tidegate::source::csv_row::CsvRow for #owned {
            const COLUMNS: &'static [&'static str] = &[#(#names),*];
            #[inline]
            fn row<'a>(
                columns: &::tidegate::source::csv_row::Columns<'a>,
            ) -> ::core::result::Result<Self::Ref<'a>, ::tidegate::source::csv_row::FieldError>
            {
                ::core::result::Result::Ok(#view { #(#values),* })
            }
        }
    })
}

/// What `#[csv(rename = "…")]` says.
fn renamed(attrs: &[Attribute]) -> Result<Option<String>> {
    let mut name = None;
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("csv")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("rename") {
                return Err(meta.error("the only option is `rename = \"column\"`"));
            }
            name = Some(meta.value()?.parse::<LitStr>()?.value());
            Ok(())
        })?;
    }
    Ok(name)
}
