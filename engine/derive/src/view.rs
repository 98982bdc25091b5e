//! The view type `NameRef<'a>`: its declaration, and the types of its fields.
//!
//! Types that everybody knows are spelled out (`&'a str` rather than `<String as Data>::Ref<'a>`): documentation reads
//! better, and the view is covariant in its lifetime, which a projection is not.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, DeriveInput, Fields, Type};

use crate::shape::{Field, Shape, arguments};

/// A view's name and generics.
pub(crate) struct View {
    pub(crate) name: Ident,
    /// `<'a>`, or nothing for a type without fields.
    pub(crate) generics: Option<TokenStream>,
    /// `<'_>`, or nothing.
    pub(crate) elided: Option<TokenStream>,
    /// Whether a field's type must be a projection so that the lifetime is used.
    all_projected: bool,
}

impl View {
    pub(crate) fn new(input: &DeriveInput, shapes: &[Shape<'_>]) -> Self {
        let mut fields = shapes.iter().flat_map(|shape| &shape.fields).peekable();
        let has_fields = fields.peek().is_some();
        Self {
            name: format_ident!("{}Ref", input.ident),
            generics: has_fields.then(|| quote!(<'a>)),
            elided: has_fields.then(|| quote!(<'_>)),
            all_projected: !fields.any(|field| known(field.ty).is_none_or(|known| known.borrows)),
        }
    }

    /// The declaration, with `PartialEq` where the fields have it.
    pub(crate) fn declare(&self, input: &DeriveInput, shapes: &[Shape<'_>]) -> TokenStream {
        let Self { name, generics, .. } = self;
        let (vis, owned) = (&input.vis, &input.ident);
        let doc = format!("The view of a [`{owned}`] in a buffer.");
        let body = match &input.data {
            syn::Data::Enum(_) => {
                let variants = shapes.iter().map(|shape| {
                    let variant = shape.variant.expect("an enum's shapes are variants");
                    let docs = docs(shape.attrs, &format!("The view of [`{owned}::{variant}`]."));
                    let fields = self.fields(shape, false);
                    quote!(#docs #variant #fields)
                });
                quote!(enum #name #generics { #(#variants),* })
            }
            syn::Data::Struct(_) | syn::Data::Union(_) => {
                let fields = self.fields(&shapes[0], true);
                let end = (!matches!(shapes[0].style, Fields::Named(_))).then(|| quote!(;));
                quote!(struct #name #generics #fields #end)
            }
        };
        let equality = self.equality(shapes);
        quote! {
            #[doc = #doc]
            #[derive(Clone, Copy, Debug)]
            #[allow(unused_qualifications, clippy::derive_partial_eq_without_eq)]
            #vis #body
            #equality
        }
    }

    fn fields(&self, shape: &Shape<'_>, with_vis: bool) -> TokenStream {
        let fields = shape.fields.iter().map(|field| {
            let member = &field.member;
            let docs = docs(field.attrs, &format!("The view of `{}`.", member.to_token_stream()));
            let vis = with_vis.then_some(field.vis);
            let name = matches!(shape.style, Fields::Named(_)).then(|| quote!(#member:));
            let ty = self.field_type(field);
            quote!(#docs #vis #name #ty)
        });
        match shape.style {
            Fields::Named(_) => quote!({ #(#fields),* }),
            Fields::Unnamed(_) => quote!(( #(#fields),* )),
            Fields::Unit => TokenStream::new(),
        }
    }

    fn field_type(&self, field: &Field<'_>) -> TokenStream {
        match known(field.ty) {
            Some(known) if !self.all_projected => known.tokens,
            Some(_) | None => projection(field.ty),
        }
    }

    /// `PartialEq` written out: derived, it would break the build of a type with one field that has none. Views of
    /// different lifetimes are compared, which a view with a projected field needs, since it is invariant.
    fn equality(&self, shapes: &[Shape<'_>]) -> TokenStream {
        let name = &self.name;
        let (generics, mine, others) = match self.generics {
            Some(_) => (quote!(<'a, 'b>), quote!(#name<'a>), quote!(#name<'b>)),
            None => (TokenStream::new(), quote!(#name), quote!(#name)),
        };
        let fields = shapes.iter().flat_map(|shape| &shape.fields);
        let bounds = fields.filter(|field| known(field.ty).is_none()).map(|field| {
            let ty = field.ty;
            quote!(for<'x> <#ty as ::tidegate::record::Data>::Ref<'x>: ::core::cmp::PartialEq)
        });
        let arms = shapes.iter().map(|shape| {
            let this = shape.pattern(name);
            let other_var = |field: &Field<'_>| format_ident!("other_{}", field.var);
            let other = shape.construct(name, |field| other_var(field).into_token_stream());
            let equal = shape.fields.iter().map(|field| {
                let (ty, mine, others) = (field.ty, &field.var, other_var(field));
                let shorten = quote!(<#ty as ::tidegate::record::Data>::shorten);
                quote!(#shorten(*#mine) == #shorten(*#others))
            });
            quote!((#this, #other) => true #(&& #equal)*)
        });
        let differ = (shapes.len() > 1).then(|| quote!(_ => false));
        quote! {
            #[automatically_derived]
            #[allow(unused_qualifications, clippy::all)]
            impl #generics ::core::cmp::PartialEq<#others> for #mine where #(#bounds),* {
                #[inline]
                fn eq(&self, other: &#others) -> bool {
                    match (self, other) { #(#arms,)* #differ }
                }
            }
        }
    }
}

/// The view of a type as the trait names it.
fn projection(ty: &Type) -> TokenStream {
    // An error is shown at the field whose type is no record.
    quote_spanned!(ty.span()=> <#ty as ::tidegate::record::Data>::Ref<'a>)
}

/// A view that can be spelled out.
struct Known {
    tokens: TokenStream,
    borrows: bool,
}

fn known(ty: &Type) -> Option<Known> {
    match ty {
        Type::Path(path) if path.qself.is_none() => {
            let segment = path.path.segments.last()?;
            let inner = arguments(segment);
            match (segment.ident.to_string().as_str(), inner.as_slice()) {
                (
                    "u8" | "u16" | "u32" | "u64" | "i8" | "i16" | "i32" | "i64" | "f32" | "f64"
                    | "bool" | "char" | "EpochMillis",
                    [],
                ) => Some(Known { tokens: quote!(#ty), borrows: false }),
                ("String", []) => Some(Known { tokens: quote!(&'a str), borrows: true }),
                ("Bytes", []) => Some(Known { tokens: quote!(&'a [u8]), borrows: true }),
                ("Option", [inner]) => {
                    let Known { tokens, borrows } = known(inner)?;
                    Some(Known { tokens: quote!(::core::option::Option<#tokens>), borrows })
                }
                ("Vec", [inner]) => {
                    let tokens = quote!(::tidegate::record::List<'a, #inner>);
                    Some(Known { tokens, borrows: true })
                }
                _ => None,
            }
        }
        Type::Tuple(tuple) => {
            let parts = tuple.elems.iter().map(known).collect::<Option<Vec<_>>>()?;
            let borrows = parts.iter().any(|part| part.borrows);
            let tokens = parts.iter().map(|part| &part.tokens);
            Some(Known { tokens: quote!((#(#tokens,)*)), borrows })
        }
        _ => None,
    }
}

/// The doc comments among `attrs`, or `otherwise`.
fn docs(attrs: &[Attribute], otherwise: &str) -> TokenStream {
    let docs: Vec<_> = attrs.iter().filter(|attr| attr.path().is_ident("doc")).collect();
    if docs.is_empty() { quote!(#[doc = #otherwise]) } else { quote!(#(#docs)*) }
}
