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

#[cfg(test)]
mod tests {
    use super::expand;

    /// What the macro says of some code: its errors, or nothing.
    fn said(code: &str) -> Vec<String> {
        match expand(&syn::parse_str(code).unwrap()) {
            Ok(_) => Vec::new(),
            Err(error) => error.into_iter().map(|error| error.to_string()).collect(),
        }
    }

    #[test]
    fn every_command_that_is_not_marked_is_named() {
        let said = said("enum Commands { #[oncely(safe)] List(List), Pay(Pay), Purge }");
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("the command `Pay` does not say how dangerous it is"), "{said:?}");
        assert!(said[1].contains("`Purge`"), "{said:?}");
    }

    #[test]
    fn marks_that_do_not_make_sense_are_refused() {
        for (code, expected) in [
            ("enum C { #[oncely(safe, mutating)] Pay(Pay) }", "contradict each other"),
            ("enum C { #[oncely(async, by_hand, safe)] Pay(Pay) }", "contradict each other"),
            ("enum C { #[oncely(async)] Pay(Pay) }", "does not say how dangerous it is"),
            ("enum C { #[oncely(group, safe)] Pay(Pay) }", "does not say how dangerous it is"),
            ("enum C { #[oncely(harmless)] Pay(Pay) }", "\"harmless\" is no mark"),
            ("enum C { #[oncely(mutating)] Pay { amount: u32 } }", "need a type of their own"),
            ("enum C { #[oncely(mutating)] Pay }", "need a type of their own"),
            ("struct Cli { amount: u32 }", "no field is marked #[command(subcommand)]"),
            ("#[oncely(safe, by_hand)] struct Cli { amount: u32 }", "needs a handler"),
            ("struct Cli<T> { #[command(subcommand)] command: T }", "cannot be generic"),
            ("union Cli { a: u32 }", "a union cannot be a command"),
        ] {
            let said = said(code);
            assert!(said.len() == 1 && said[0].contains(expected), "{code}: {said:?}");
        }
    }

    #[test]
    fn marks_that_make_sense_are_taken() {
        for code in [
            "enum C { #[oncely(safe)] A(A), #[oncely(mutating, async)] B(Box<B>), #[oncely(destructive)] D(x::D) }",
            "enum C { #[oncely(mutating, by_hand)] Old { amount: u32 }, #[oncely(safe, by_hand)] Man }",
            "enum C { #[command(skip)] Never, #[command(external_subcommand)] Other(Vec<String>) }",
            "enum C { #[oncely(group)] #[command(subcommand)] More(More), #[oncely(group)] #[clap(flatten)] F(F) }",
            "struct Cli { #[arg(long)] a: u32, #[command(subcommand)] command: Option<Commands> }",
            "#[oncely(mutating)] struct Cli { amount: u32 }",
        ] {
            assert_eq!(said(code), Vec::<String>::new(), "{code}");
        }
    }
}
