//! Delivers what is said: to programs or to people, and says so where it could not be written.

use std::ffi::OsString;

use crate::exit;
use crate::print::{self, Form};
use crate::reply::Reply;
use crate::surroundings::Surroundings;

/// Clap's own text, coloured where somebody watches.
pub(crate) fn rendered(error: &clap::Error, here: &dyn Surroundings) -> String {
    let shown = error.render();
    if here.is_watched() && here.variable("NO_COLOR").is_none() {
        shown.ansi().to_string()
    } else {
        shown.to_string()
    }
}

/// Whether an answer reached its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivered {
    Yes,
    No,
}

/// Prints a reply. Where it cannot be written that is said: what happened, happened.
pub(crate) fn deliver(
    here: &dyn Surroundings,
    app: &str,
    form: Form,
    reply: &Reply,
    shown: Option<String>,
) -> Delivered {
    let written = match form {
        Form::Json => print::json(here, reply),
        Form::Text => print::text(here, app, reply, shown),
    };
    let Err(error) = written else { return Delivered::Yes };
    let effect = reply.envelope.effect.as_deref().unwrap_or("unknown");
    here.say(&format!(
        "{app}: the answer could not be written: {error}; effect: {effect}. Ask again with the same key to get it"
    ));
    Delivered::No
}

/// Prints what is no reply; the code to end with.
pub(crate) fn printed(here: &dyn Surroundings, text: &str) -> u8 {
    match here.print(text) {
        Ok(()) => exit::DONE,
        Err(error) => {
            here.say(&format!("standard output cannot be written to: {error}"));
            exit::INTERNAL
        }
    }
}

/// What is wanted where nothing is said: JSON unless somebody watches.
pub(crate) fn form_of(here: &dyn Surroundings) -> Form {
    if here.is_watched() { Form::Text } else { Form::Json }
}

/// What is wanted of a line that is not read yet, or cannot be.
pub(crate) fn guess_form(words: &[OsString], here: &dyn Surroundings) -> Form {
    let said = words.iter().take_while(|word| *word != "--").filter_map(|word| match word.to_str()? {
        "--json" | "--json=true" => Some(Form::Json),
        "--json=false" => Some(Form::Text),
        _ => None,
    });
    said.last().unwrap_or(form_of(here))
}
