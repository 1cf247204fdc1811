//! Expands a struct: one that holds subcommands, or a program that is one command.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DataStruct, DeriveInput, Error};

use crate::enumeration::{danger_word, names};
use crate::marks::{self, By, Mark};

pub(crate) fn expand(input: &DeriveInput, data: &DataStruct) -> syn::Result<TokenStream> {
    match marks::read(&input.attrs)? {
        Some(Mark::Command { by: By::Hand, .. } | Mark::Group) => Err(Error::new_spanned(
            &input.ident,
            "a program that is one command needs a handler: mark it safe, mutating or destructive",
        )),
        Some(Mark::Command { danger, by }) => {
            let (name, word) = (&input.ident, danger_word(danger));
            let (handler, entry, job) = names(danger, by);
            Ok(implementation(
                input,
                quote! { #name: ::oncely_clap::#handler<__App> },
                quote! { ::oncely_clap::Shape::#entry::<#name, __App>(::oncely_clap::Danger::#word) },
                quote! { ::core::option::Option::Some(::oncely_clap::Job::#job(self)) },
            ))
        }
        None => holder(input, data),
    }
}

/// A struct whose field holds the subcommands.
fn holder(input: &DeriveInput, data: &DataStruct) -> syn::Result<TokenStream> {
    let field = data.fields.iter().find(|field| marks::clap_says(&field.attrs, "subcommand"));
    let Some((field, name)) = field.and_then(|field| Some((field, field.ident.as_ref()?))) else {
        return Err(Error::new_spanned(
            &input.ident,
            "no field is marked #[command(subcommand)]; a program that is one command is marked itself: \
             #[oncely(safe)], #[oncely(mutating)] or #[oncely(destructive)]",
        ));
    };
    let (ty, job) = match marks::inside(&field.ty, "Option") {
        Some(inner) => (inner, quote! { self.#name.as_ref().and_then(::oncely_clap::Commands::job) }),
        None => (&field.ty, quote! { ::oncely_clap::Commands::job(&self.#name) }),
    };
    Ok(implementation(
        input,
        quote! { #ty: ::oncely_clap::Commands<__App> },
        quote! { <#ty as ::oncely_clap::Commands<__App>>::shape() },
        job,
    ))
}

fn implementation(
    input: &DeriveInput,
    bound: TokenStream,
    shape: TokenStream,
    job: TokenStream,
) -> TokenStream {
    let name = &input.ident;
    quote! {
        #[automatically_derived]
        impl<__App> ::oncely_clap::Commands<__App> for #name
        where
            __App: ::core::marker::Send + ::core::marker::Sync + 'static,
            #bound,
        {
            fn shape() -> ::oncely_clap::Shape {
                #shape
            }

            fn job(&self) -> ::core::option::Option<::oncely_clap::Job<'_, __App>> {
                #job
            }
        }
    }
}
