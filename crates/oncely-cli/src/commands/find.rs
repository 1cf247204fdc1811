//! Which record is meant: by its id, the start of its id, or its key.

use oncely_core::limits::PAGE_MAX;
use oncely_core::{Filter, IntentId, Store, StoreErrorKind, Stored, Unreadable};

use super::resolve::refuse_while_at_work;
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
    // Of one that cannot be read the id is known all the same: it is as much meant as the other.
    match (found.found.first(), found.unreadable.first()) {
        (Some(_), Some(Unreadable { intent, .. })) => {
            let message = format!(
                "{} names more than one record, of which {intent} cannot be read; nothing was changed",
                clean(text)
            );
            Err(Failure::new(USAGE, "AMBIGUOUS_ID", message))
        }
        _ => found.the_only(store, text),
    }
}

/// What a person names to have it forgotten.
pub(crate) enum Found {
    /// A record.
    Record(Stored),
    /// One that cannot be read.
    Unreadable(Unreadable),
}

/// The same, where the record need not be one that can be read: it is found by its whole id only.
pub(crate) async fn any_by_id(store: &dyn Store, text: &str) -> Result<Found, Failure> {
    let Some(intent) = IntentId::parse(&parse_digits(text)?) else {
        return by_id(store, text).await.map(Found::Record);
    };
    let why = match store.load(intent).await {
        Err(error) if error.kind == StoreErrorKind::Corrupt => error,
        loaded => return loaded?.map(Found::Record).ok_or_else(|| no_record(store, text)),
    };
    let filter = Filter { id_prefix: Some(intent.to_string()), ..Filter::default() };
    let mut page = store.scan(filter, 0, 1).await?;
    for stored in &page.items {
        refuse_while_at_work(store, stored)?;
    }
    // A listing shows a record whose result cannot be decrypted; for whoever wants all of it, it cannot be read.
    let sealed = page.items.pop().map(|Stored { record, .. }| Unreadable {
        intent,
        version: Some(record.version),
        state: record.body.state.name(),
        why: why.message.clone(),
    });
    page.unreadable.pop().or(sealed).map(Found::Unreadable).ok_or_else(|| why.into())
}

/// The only record that a filter finds; `said` is how the caller named it.
pub(crate) async fn by_filter(store: &dyn Store, filter: Filter, said: &str) -> Result<Stored, Failure> {
    first_matches(store, filter).await?.the_only(store, said)
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

/// What matches, and what may and cannot be read.
#[derive(Default)]
struct Matches {
    found: Vec<Stored>,
    unreadable: Vec<Unreadable>,
}

async fn first_matches(store: &dyn Store, filter: Filter) -> Result<Matches, Failure> {
    let mut matches = Matches::default();
    let mut from = 0;
    loop {
        let page = store.scan(filter.clone(), from, PAGE_MAX).await?;
        matches.found.extend(page.items);
        matches.unreadable.extend(page.unreadable);
        match page.next {
            Some(next) if matches.found.len() <= CANDIDATES_MAX => from = next,
            _ => return Ok(matches),
        }
    }
}

impl Matches {
    fn the_only(mut self, store: &dyn Store, said: &str) -> Result<Stored, Failure> {
        if self.found.len() > 1 {
            return Err(ambiguous(&self.found, said));
        }
        match (self.found.pop(), self.unreadable.first()) {
            (Some(stored), _) => Ok(stored),
            (None, None) => Err(no_record(store, said)),
            (None, Some(Unreadable { intent, why, .. })) => {
                let message = format!(
                    "there is no record {} that can be read; the record {intent} may be meant, and cannot be: {why}; \
                     nothing was changed",
                    clean(said)
                );
                Err(Failure::new(PRECONDITION, "UNREADABLE", message).with_fix("oncely doctor"))
            }
        }
    }
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
