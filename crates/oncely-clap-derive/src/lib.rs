//! The derive macro of `oncely-clap`: every command says how dangerous it is, or the program does not compile.
//!
//! Use it through `oncely_clap::Commands`; the attributes are explained there.

mod enumeration;
mod marks;
mod structure;

use proc_macro::TokenStream;
use syn::{Data, DeriveInput, Error, parse_macro_input};

/// Marks the commands of a clap program: see `oncely_clap::Commands`.
#[proc_macro_derive(Commands, attributes(oncely))]
pub fn commands(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

fn expand(input: &DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "commands cannot be generic"));
    }
    match &input.data {
        Data::Enum(data) => enumeration::expand(&input.ident, data),
        Data::Struct(data) => structure::expand(input, data),
        Data::Union(_) => Err(Error::new_spanned(&input.ident, "a union cannot be a command")),
    }
}
