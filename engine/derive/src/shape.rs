//! What a record type is made of: one shape for a struct, one a variant for an enum.
//!
//! Patterns and constructors are written `Path { member: value }` throughout, which Rust accepts for named, tuple and
//! unit shapes alike. Refuses what can't be a record, at the place in the user's code that is wrong.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Attribute, Data, DeriveInput, Error, Fields, Member, Result, Type, Visibility};

/// A struct, or a variant of an enum.
pub(crate) struct Shape<'i> {
    /// The variant's name; none for a struct.
    pub(crate) variant: Option<&'i Ident>,
    pub(crate) attrs: &'i [Attribute],
    /// How it is written: named, tuple or unit.
    pub(crate) style: &'i Fields,
    pub(crate) fields: Vec<Field<'i>>,
}

/// A field of a shape.
pub(crate) struct Field<'i> {
    pub(crate) member: Member,
    pub(crate) attrs: &'i [Attribute],
    pub(crate) vis: &'i Visibility,
    pub(crate) ty: &'i Type,
    /// The variable it is bound to in patterns.
    pub(crate) var: Ident,
}

impl<'i> Shape<'i> {
    fn new(variant: Option<&'i Ident>, attrs: &'i [Attribute], style: &'i Fields) -> Result<Self> {
        let mut fields = Vec::new();
        for (index, (field, member)) in style.iter().zip(style.members()).enumerate() {
            refuse_references(&field.ty)?;
            let var = format_ident!("field_{index}", span = proc_macro2::Span::mixed_site());
            fields.push(Field { member, attrs: &field.attrs, vis: &field.vis, ty: &field.ty, var });
        }
        Ok(Self { variant, attrs, style, fields })
    }

    /// The path of the shape in type `name`: `Name` or `Name::Variant`.
    pub(crate) fn path(&self, name: &Ident) -> TokenStream {
        match self.variant {
            Some(variant) => quote!(#name::#variant),
            None => name.to_token_stream(),
        }
    }

    /// The pattern that binds each field's variable.
    pub(crate) fn pattern(&self, name: &Ident) -> TokenStream {
        let path = self.path(name);
        let members = self.fields.iter().map(|field| &field.member);
        let vars = self.fields.iter().map(|field| &field.var);
        quote!(#path { #(#members: #vars),* })
    }

    /// The constructor with `value` for each field.
    pub(crate) fn construct(
        &self,
        name: &Ident,
        value: impl Fn(&Field<'i>) -> TokenStream,
    ) -> TokenStream {
        let path = self.path(name);
        let members = self.fields.iter().map(|field| &field.member);
        let values = self.fields.iter().map(value);
        quote!(#path { #(#members: #values),* })
    }
}

/// The shapes of a type that can be a record.
pub(crate) fn shapes(input: &DeriveInput) -> Result<Vec<Shape<'_>>> {
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a record type has no generic parameters: its bytes in channels and checkpoints have one format",
        ));
    }
    match &input.data {
        Data::Struct(body) => Ok(vec![Shape::new(None, &input.attrs, &body.fields)?]),
        Data::Enum(body) if body.variants.is_empty() => Err(Error::new_spanned(
            &input.ident,
            "an enum without variants has no values, so it can't be a record",
        )),
        Data::Enum(body) => body
            .variants
            .iter()
            .map(|variant| Shape::new(Some(&variant.ident), &variant.attrs, &variant.fields))
            .collect(),
        Data::Union(body) => Err(Error::new_spanned(
            body.union_token,
            "a union can't be a record: which field is live isn't known; use an enum",
        )),
    }
}

/// Refuses a type that borrows, at the reference.
fn refuse_references(ty: &Type) -> Result<()> {
    let inner: Vec<&Type> = match ty {
        Type::Reference(_) => {
            return Err(Error::new_spanned(
                ty,
                "a record owns its fields: use `String` for `&str` and `Vec<T>` or `bytes::Bytes` for slices; \
                 the derived view borrows them",
            ));
        }
        Type::Tuple(tuple) => tuple.elems.iter().collect(),
        Type::Array(array) => vec![&array.elem],
        Type::Group(group) => vec![&group.elem],
        Type::Paren(paren) => vec![&paren.elem],
        Type::Path(path) => path.path.segments.iter().flat_map(arguments).collect(),
        _ => Vec::new(),
    };
    inner.into_iter().try_for_each(refuse_references)
}

/// The types between a path segment's angle brackets.
pub(crate) fn arguments(segment: &syn::PathSegment) -> Vec<&Type> {
    let syn::PathArguments::AngleBracketed(list) = &segment.arguments else { return Vec::new() };
    let types = list.args.iter().filter_map(|argument| match argument {
        syn::GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    types.collect()
}
