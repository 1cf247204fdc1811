//! Which record is meant: by its id, the start of its id, or its key.

use oncely_core::limits::PAGE_MAX;
use oncely_core::{Filter, IntentId, Store, Stored};

use super::view::NameView;
use crate::exit::{Failure, PRECONDITION, USAGE};
use crate::output::clean;

/// Fewest digits of an id that name a record.
const PREFIX_MIN: usize = 6;
/// Most candidates listed when more than one record is meant.
const CANDIDATES_MAX: usize = 10;

/// The record with this id, or with the only id that starts like this. An id says the namespace too, so every
/// namespace is looked at.
pub(crate) async fn by_id(store: &dyn Store, text: &str) -> Result<Stored, Failure> {
    let digits = parse_digits(text)?;
    if let Some(intent) = IntentId::parse(&digits) {
        return store.load(intent).await?.ok_or_else(|| no_record(store, text));
    }
    let found = first_matches(store, Filter { id_prefix: Some(digits), ..Filter::default() }).await?;
    the_only(store, found, text)
}

/// The only record that a filter finds; `said` is how the caller named it.
pub(crate) async fn by_filter(store: &dyn Store, filter: Filter, said: &str) -> Result<Stored, Failure> {
    the_only(store, first_matches(store, filter).await?, said)
}

/// Checks that a text can be the start of an id, before the ledger is asked for anything.
fn parse_digits(text: &str) -> Result<String, Failure> {
    let said = clean(text);
    let wrong = |what: String| {
        Err(Failure::usage(format!(
            "{what}; an id has {PREFIX_MIN} to 64 hexadecimal digits, as `oncely ls` shows them; nothing was changed"
        )))
    };
    match text.len() {
        0 => wrong("the id is empty".to_owned()),
        _ if !text.bytes().all(|b| b.is_ascii_hexdigit()) => wrong(format!("{said:?} is not an id")),
        n if n < PREFIX_MIN => wrong(format!("{said:?} is too short for an id")),
        n if n > 64 => wrong(format!("{said:?} is too long for an id")),
        _ => Ok(text.to_ascii_lowercase()),
    }
}

async fn first_matches(store: &dyn Store, filter: Filter) -> Result<Vec<Stored>, Failure> {
    let mut found = Vec::new();
    let mut from = 0;
    loop {
        let page = store.scan(filter.clone(), from, PAGE_MAX).await?;
        found.extend(page.items);
        match page.next {
            Some(next) if found.len() <= CANDIDATES_MAX => from = next,
            _ => return Ok(found),
        }
    }
}

fn the_only(store: &dyn Store, mut found: Vec<Stored>, said: &str) -> Result<Stored, Failure> {
    if found.len() > 1 {
        return Err(ambiguous(&found, said));
    }
    found.pop().ok_or_else(|| no_record(store, said))
}

fn no_record(store: &dyn Store, said: &str) -> Failure {
    // Most often it is in another ledger: which one was looked in is the first thing to know.
    let ledger = clean(&store.describe());
    let message = format!("there is no record {} in the ledger {ledger}; nothing was changed", clean(said));
    Failure::new(PRECONDITION, "NO_RECORD", message).with_fix("oncely ls --all --all-namespaces")
}

fn ambiguous(found: &[Stored], said: &str) -> Failure {
    let mut message = format!("{} names more than one record; nothing was changed. It can be:", clean(said));
    for stored in found.iter().take(CANDIDATES_MAX) {
        let name = NameView::of(&stored.record.body.name);
        let scope = name.scope.as_ref().map(|scope| format!(" scope {scope}")).unwrap_or_default();
        let line = format!("{} {} {}{scope}", stored.record.intent, name.tool, name.key_short());
        message.push_str(&format!("\n  {}", clean(&line)));
    }
    if found.len() > CANDIDATES_MAX {
        message.push_str("\n  and more");
    }
    let ids: Vec<String> = found.iter().take(CANDIDATES_MAX).map(|s| s.record.intent.to_string()).collect();
    let mut failure = Failure::new(USAGE, "AMBIGUOUS_ID", message);
    failure.envelope.meta.insert("candidates".to_owned(), ids.into());
    failure
}
