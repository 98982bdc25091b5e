//! `#[derive(Data)]`: the view, `AsData` for the type and its view, and `Data`.
//!
//! The implementation spells types as the trait does (`Self::Ref<'a>`, `<Self::Codec as Codec>::Ref<'a>`): a lifetime
//! that stands in projections only is bound early, and an implementation must bind it in the same way.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{DeriveInput, Result};

use crate::shape::{Shape, shapes};
use crate::view::View;

/// A codec exists for tuples of up to so many fields; more are nested.
const TUPLE_MAX: usize = 8;

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let shapes = shapes(input)?;
    let view = View::new(input, &shapes);
    let declaration = view.declare(input, &shapes);
    let (owned, View { name, generics, elided, .. }) = (&input.ident, &view);
    let data = quote!(::tidegate::record::Data);
    let as_data = quote!(::tidegate::record::AsData);
    let codec_trait = quote!(::tidegate::record::codec::Codec);

    let codec = codec(input, &shapes);
    let as_views = arms(&shapes, |shape| {
        let view = shape.construct(name, |field| {
            let (ty, var) = (field.ty, &field.var);
            quote!(<#ty as #as_data>::view(#var))
        });
        (shape.pattern(owned), view)
    });
    let shortened = arms(&shapes, |shape| {
        let view = shape.construct(name, |field| {
            let (ty, var) = (field.ty, &field.var);
            quote!(<#ty as #data>::shorten(#var))
        });
        (shape.pattern(name), view)
    });
    let owned_forms = arms(&shapes, |shape| {
        let value = shape.construct(owned, |field| {
            let (ty, var) = (field.ty, &field.var);
            quote!(<#ty as #data>::own(#var))
        });
        (shape.pattern(name), value)
    });
    let encoded = indexed_arms(&shapes, |index, shape| {
        let parts = shape.fields.iter().map(|field| {
            let (ty, var) = (field.ty, &field.var);
            quote!(<#ty as #data>::encode(#var))
        });
        (shape.pattern(name), listed(input, index, nest(parts.collect())))
    });
    let decoded = indexed_arms(&shapes, |index, shape| {
        let parts = shape.fields.iter().map(|field| field.var.to_token_stream());
        let view = shape.construct(name, |field| {
            let (ty, var) = (field.ty, &field.var);
            quote!(<#ty as #data>::decode(#var))
        });
        (listed(input, index, nest(parts.collect())), view)
    });

    Ok(quote! {
        #declaration

        #[automatically_derived]
        #[allow(unused_qualifications, clippy::all)]
        impl #as_data for #owned {
            type Data = Self;
            #[inline(always)]
            fn view(&self) -> <Self::Data as #data>::Ref<'_> { match self { #as_views } }
        }

        #[automatically_derived]
        #[allow(unused_qualifications, clippy::all)]
        impl #as_data for #name #elided {
            type Data = #owned;
            #[inline(always)]
            fn view(&self) -> <Self::Data as #data>::Ref<'_> {
                <#owned as #data>::shorten(*self)
            }
        }

        #[automatically_derived]
        #[allow(unused_qualifications, clippy::all)]
        impl #data for #owned {
            type Ref<'a> = #name #generics;
            type Codec = #codec;
            #[inline(always)]
            fn encode<'a>(view: Self::Ref<'a>) -> <Self::Codec as #codec_trait>::Ref<'a> {
                match view { #encoded }
            }
            #[inline(always)]
            fn decode<'a>(raw: <Self::Codec as #codec_trait>::Ref<'a>) -> Self::Ref<'a> {
                match raw { #decoded }
            }
            fn own(view: Self::Ref<'_>) -> Self { match view { #owned_forms } }
            #[inline(always)]
            fn shorten<'short, 'long: 'short>(view: Self::Ref<'long>) -> Self::Ref<'short> {
                match view { #shortened }
            }
        }
    })
}

/// The codec's type: a tuple of the fields' codecs, or for an enum the list of such.
fn codec(input: &DeriveInput, shapes: &[Shape<'_>]) -> TokenStream {
    let of_shape = |shape: &Shape<'_>| {
        let fields = shape.fields.iter().map(|field| {
            let ty = field.ty;
            quote!(<#ty as ::tidegate::record::Data>::Codec)
        });
        nest(fields.collect())
    };
    if !is_enum(input) {
        return of_shape(&shapes[0]);
    }
    shapes.iter().rev().fold(quote!(::tidegate::record::codec::Never), |rest, shape| {
        let this = of_shape(shape);
        quote!(::tidegate::record::codec::Or<#this, #rest>)
    })
}

/// The `index`th place in an enum's list, as pattern or value; for a struct `content` itself.
fn listed(input: &DeriveInput, index: usize, content: TokenStream) -> TokenStream {
    if !is_enum(input) {
        return content;
    }
    (0..index).fold(
        quote!(::tidegate::record::codec::Or::This(#content)),
        |rest, _| quote!(::tidegate::record::codec::Or::Rest(#rest)),
    )
}

/// A tuple of the parts, as type, pattern or value; tuples of tuples if there are many.
fn nest(mut parts: Vec<TokenStream>) -> TokenStream {
    while parts.len() > TUPLE_MAX {
        parts = parts.chunks(TUPLE_MAX).map(|chunk| quote!((#(#chunk,)*))).collect();
    }
    if parts.is_empty() { quote!(()) } else { quote!((#(#parts,)*)) }
}

fn arms<'i, 's>(
    shapes: &'s [Shape<'i>],
    arm: impl Fn(&'s Shape<'i>) -> (TokenStream, TokenStream),
) -> TokenStream {
    indexed_arms(shapes, |_, shape| arm(shape))
}

fn indexed_arms<'i, 's>(
    shapes: &'s [Shape<'i>],
    arm: impl Fn(usize, &'s Shape<'i>) -> (TokenStream, TokenStream),
) -> TokenStream {
    let arms = shapes.iter().enumerate().map(|(index, shape)| {
        let (pattern, value) = arm(index, shape);
        quote!(#pattern => #value,)
    });
    arms.collect()
}

fn is_enum(input: &DeriveInput) -> bool {
    matches!(input.data, syn::Data::Enum(_))
}
