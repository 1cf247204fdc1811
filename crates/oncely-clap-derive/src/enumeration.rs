//! Expands an enum of subcommands: one mark per variant.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DataEnum, Error, Fields, Ident, Type, Variant};

use crate::marks::{self, By, Danger, Mark};

/// What one variant adds to the implementation.
struct Part {
    bound: Option<TokenStream>,
    shape: TokenStream,
    job: TokenStream,
}

pub(crate) fn expand(name: &Ident, data: &DataEnum) -> syn::Result<TokenStream> {
    let mut parts = Vec::new();
    let mut wrong: Option<Error> = None;
    for variant in &data.variants {
        match part_of(variant) {
            Ok(part) => parts.push(part),
            // All unmarked commands at once.
            Err(error) => match &mut wrong {
                Some(all) => all.combine(error),
                None => wrong = Some(error),
            },
        }
    }
    if let Some(error) = wrong {
        return Err(error);
    }
    let bounds = parts.iter().filter_map(|part| part.bound.as_ref());
    let shapes = parts.iter().map(|part| &part.shape);
    let jobs = parts.iter().map(|part| &part.job);
    Ok(quote! {
        #[automatically_derived]
        impl<__App> ::oncely_clap::Commands<__App> for #name
        where
            __App: ::core::marker::Send + ::core::marker::Sync + 'static,
            #(#bounds,)*
        {
            fn shape() -> ::oncely_clap::Shape {
                let mut commands = ::std::vec::Vec::new();
                #(#shapes)*
                ::oncely_clap::Shape::Group(commands)
            }

            fn job(&self) -> ::core::option::Option<::oncely_clap::Job<'_, __App>> {
                match self { #(#jobs)* }
            }
        }
    })
}

fn part_of(variant: &Variant) -> syn::Result<Part> {
    let name = &variant.ident;
    let by_hand = |shape: TokenStream| Part {
        bound: None,
        shape,
        job: quote! { Self::#name { .. } => ::core::option::Option::None, },
    };
    // Neither is a command of its own in clap's eyes.
    if marks::clap_says(&variant.attrs, "skip") || marks::clap_says(&variant.attrs, "external_subcommand") {
        return Ok(by_hand(TokenStream::new()));
    }
    let mark = marks::read(&variant.attrs)?.ok_or_else(|| {
        Error::new_spanned(
            variant,
            format!(
                "the command `{name}` does not say how dangerous it is; mark it #[oncely(safe)], #[oncely(mutating)] or \
                 #[oncely(destructive)]"
            ),
        )
    })?;
    let (danger, by) = match mark {
        Mark::Group => return group(variant),
        Mark::Command { danger, by } => (danger, by),
    };
    let word = danger_word(danger);
    if by == By::Hand {
        return Ok(by_hand(quote! {
            commands.push(::oncely_clap::Shape::by_hand(::oncely_clap::Danger::#word));
        }));
    }
    let (ty, borrow) = only_field(variant)?;
    let (handler, entry, job) = names(danger, by);
    Ok(Part {
        bound: Some(quote! { #ty: ::oncely_clap::#handler<__App> }),
        shape: quote! {
            commands.push(::oncely_clap::Shape::#entry::<#ty, __App>(::oncely_clap::Danger::#word));
        },
        job: quote! { Self::#name(args) => ::core::option::Option::Some(::oncely_clap::Job::#job(#borrow)), },
    })
}

fn group(variant: &Variant) -> syn::Result<Part> {
    let name = &variant.ident;
    let (ty, borrow) = only_field(variant)?;
    let shape = quote! { <#ty as ::oncely_clap::Commands<__App>>::shape() };
    let shape = if marks::clap_says(&variant.attrs, "flatten") {
        quote! { commands.extend(#shape.into_commands()); }
    } else {
        quote! { commands.push(#shape); }
    };
    Ok(Part {
        bound: Some(quote! { #ty: ::oncely_clap::Commands<__App> }),
        shape,
        job: quote! { Self::#name(args) => ::oncely_clap::Commands::job(#borrow), },
    })
}

/// The trait, the constructor of the shape and the variant of the job for a kind of handler.
pub(crate) fn names(danger: Danger, by: By) -> (Ident, Ident, Ident) {
    let (handler, entry) = match (danger, by) {
        (Danger::Safe, By::AsyncHandler) => ("AsyncQuery", "async_query"),
        (Danger::Safe, _) => ("Query", "query"),
        (_, By::AsyncHandler) => ("AsyncHandler", "async_handler"),
        (_, _) => ("Handler", "handler"),
    };
    let ident = |text: &str| Ident::new(text, proc_macro2::Span::call_site());
    (ident(handler), ident(entry), ident(handler))
}

/// The word for a danger.
pub(crate) fn danger_word(danger: Danger) -> Ident {
    let word = match danger {
        Danger::Safe => "Safe",
        Danger::Mutating => "Mutating",
        Danger::Destructive => "Destructive",
    };
    Ident::new(word, proc_macro2::Span::call_site())
}

/// The type of a variant's only field, out of its box, and how to borrow it.
fn only_field(variant: &Variant) -> syn::Result<(&Type, TokenStream)> {
    match &variant.fields {
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
            let ty = &fields.unnamed[0].ty;
            Ok(match marks::inside(ty, "Box") {
                Some(inner) => (inner, quote! { &**args }),
                None => (ty, quote! { args }),
            })
        }
        _ => Err(Error::new_spanned(
            variant,
            format!(
                "the arguments of a command need a type of their own, for its handler: `{0}({0})`; or leave it to your \
                 own code with by_hand",
                variant.ident
            ),
        )),
    }
}
