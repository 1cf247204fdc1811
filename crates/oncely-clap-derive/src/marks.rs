//! Reads the marks: `#[oncely(mutating)]`, `#[oncely(safe, async)]`, `#[oncely(destructive, by_hand)]`, `#[oncely(group)]`.

use syn::spanned::Spanned;
use syn::{Attribute, Error, Meta, Type};

/// What a mark says of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It only holds other commands.
    Group,
    /// It is a command.
    Command { danger: Danger, by: By },
}

/// How dangerous a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Danger {
    Safe,
    Mutating,
    Destructive,
}

/// Who runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The framework calls an ordinary handler.
    Handler,
    /// The framework calls an asynchronous handler.
    AsyncHandler,
    /// The program's own code, as before.
    Hand,
}

const ALLOWED: &str = "allowed: safe, mutating, destructive (with async or by_hand), or group";

/// The mark among some attributes; `None` if there is none.
pub(crate) fn read(attributes: &[Attribute]) -> syn::Result<Option<Mark>> {
    let mut words = Words::default();
    let mut seen = None;
    for attribute in attributes.iter().filter(|a| a.path().is_ident("oncely")) {
        seen = Some(attribute);
        attribute.parse_nested_meta(|meta| {
            let word = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            let twice = match word.as_str() {
                "safe" => words.danger.replace(Danger::Safe).is_some(),
                "mutating" => words.danger.replace(Danger::Mutating).is_some(),
                "destructive" => words.danger.replace(Danger::Destructive).is_some(),
                "async" => words.by.replace(By::AsyncHandler).is_some(),
                "by_hand" => words.by.replace(By::Hand).is_some(),
                "group" => std::mem::replace(&mut words.group, true),
                _ => return Err(meta.error(format!("{word:?} is no mark; {ALLOWED}"))),
            };
            if twice { Err(meta.error("the marks contradict each other")) } else { Ok(()) }
        })?;
    }
    let Some(attribute) = seen else { return Ok(None) };
    match (words.danger, words.by, words.group) {
        (None, None, true) => Ok(Some(Mark::Group)),
        (Some(danger), by, false) => Ok(Some(Mark::Command { danger, by: by.unwrap_or(By::Handler) })),
        _ => {
            Err(Error::new(attribute.span(), format!("the mark does not say how dangerous it is; {ALLOWED}")))
        }
    }
}

#[derive(Default)]
struct Words {
    danger: Option<Danger>,
    by: Option<By>,
    group: bool,
}

/// Whether clap is told this word of the item: `#[command(subcommand)]`, `#[clap(flatten)]`.
pub(crate) fn clap_says(attributes: &[Attribute], word: &str) -> bool {
    attributes.iter().filter(|a| a.path().is_ident("command") || a.path().is_ident("clap")).any(|attribute| {
        let Meta::List(list) = &attribute.meta else { return false };
        // Any other content is clap's own business; only lone words matter here.
        let mut lone = true;
        let mut found = false;
        for token in list.tokens.clone() {
            match token {
                proc_macro2::TokenTree::Ident(ident) => found |= lone && ident == word,
                proc_macro2::TokenTree::Punct(punct) => {
                    lone = punct.as_char() == ',';
                    continue;
                }
                _ => {}
            }
            lone = false;
        }
        found
    })
}

/// The type inside of `Name<…>`, if it is one.
pub(crate) fn inside<'t>(ty: &'t Type, name: &str) -> Option<&'t Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == name)?;
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(syn::GenericArgument::Type(inner)) if arguments.args.len() == 1 => Some(inner),
        _ => None,
    }
}
