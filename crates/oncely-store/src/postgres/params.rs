//! Requests of the hot path as parameters: of a statement for one, or of one for many.

use tokio_postgres::types::Type;

use super::exec::Entry;
use super::rows::{self, Half};
use super::session::Param;
use crate::codec::pack_timeless;

/// What creates and puts have in common, one array for each column. For many records, one without any value is empty:
/// the server fills it up, for less than it takes to read.
struct Shape<'a> {
    heads: Vec<Half>,
    tails: Vec<Half>,
    changed: Vec<Option<i64>>,
    created: Vec<Option<i64>>,
    sent: Vec<Option<i64>>,
    after: Vec<i64>,
    states: Vec<i16>,
    bodies: Vec<Vec<u8>>,
    results: Vec<Option<&'a [u8]>>,
    events: Vec<Option<&'a [u8]>>,
}

impl<'a> Shape<'a> {
    fn new(entries: &'a [Entry]) -> Self {
        let drafts = || entries.iter().map(|entry| &entry.draft);
        Self {
            heads: entries.iter().map(|entry| rows::head(&entry.intent)).collect(),
            tails: entries.iter().map(|entry| rows::tail(&entry.intent)).collect(),
            changed: some(drafts().map(|draft| rows::stamp(draft.changed))),
            created: some(drafts().map(|draft| rows::stamp(draft.created))),
            sent: some(drafts().map(|draft| rows::stamp(draft.sent))),
            after: drafts().map(|draft| rows::due_after(draft)).collect(),
            states: drafts().map(|draft| rows::state_number(draft.body.state.name())).collect(),
            bodies: drafts().map(|draft| pack_timeless(&draft.body)).collect(),
            results: some(drafts().map(|draft| rows::result(draft))),
            events: some(entries.iter().map(|entry| entry.events.as_deref())),
        }
    }
}

/// A column; of many, nothing if none has a value.
fn some<T>(values: impl Iterator<Item = Option<T>>) -> Vec<Option<T>> {
    let mut values: Vec<Option<T>> = values.collect();
    if values.len() > 1 && values.iter().all(Option::is_none) {
        values.clear();
    }
    values
}

/// Records to be made.
pub(crate) struct Creates<'a> {
    shape: Shape<'a>,
    namespaces: Vec<&'a str>,
    tools: Vec<&'a str>,
    scopes: Vec<Option<&'a str>>,
    keys: Vec<&'a str>,
}

impl<'a> Creates<'a> {
    pub(crate) fn new(entries: &'a [Entry]) -> Self {
        let names = || entries.iter().map(|entry| &entry.draft.body.name);
        Self {
            shape: Shape::new(entries),
            namespaces: names().map(|name| name.namespace.as_str()).collect(),
            tools: names().map(|name| name.tool.as_str()).collect(),
            scopes: some(names().map(|name| name.scope.is_named().then(|| name.scope.as_str()))),
            keys: names().map(|name| name.key.as_str()).collect(),
        }
    }

    /// For the statement that makes one; with how long it waits for a lock, if it is the one that says so.
    pub(crate) fn one(&'a self, floor: &'a i64, patience: Option<&'a i64>) -> Vec<Param<'a>> {
        let shape = &self.shape;
        let mut params: Vec<Param<'a>> = vec![
            (&shape.heads[0], Type::UUID),
            (&shape.tails[0], Type::UUID),
            (&shape.changed[0], Type::INT8),
            (&shape.created[0], Type::INT8),
            (&shape.sent[0], Type::INT8),
            (&shape.after[0], Type::INT8),
            (&shape.states[0], Type::INT2),
            (&self.namespaces[0], Type::TEXT),
            (&self.tools[0], Type::TEXT),
            (&self.scopes[0], Type::TEXT),
            (&self.keys[0], Type::TEXT),
            (&shape.bodies[0], Type::BYTEA),
            (&shape.results[0], Type::BYTEA),
            (&shape.events[0], Type::BYTEA),
            (floor, Type::INT8),
        ];
        params.extend(bound(patience));
        params
    }

    /// For the statement that makes many.
    pub(crate) fn many(&'a self, floor: &'a i64, count: &'a i64, patience: &'a i64) -> [Param<'a>; 17] {
        let shape = &self.shape;
        [
            (&shape.heads, Type::UUID_ARRAY),
            (&shape.tails, Type::UUID_ARRAY),
            (&shape.changed, Type::INT8_ARRAY),
            (&shape.created, Type::INT8_ARRAY),
            (&shape.sent, Type::INT8_ARRAY),
            (&shape.after, Type::INT8_ARRAY),
            (&shape.states, Type::INT2_ARRAY),
            (&self.namespaces, Type::TEXT_ARRAY),
            (&self.tools, Type::TEXT_ARRAY),
            (&self.scopes, Type::TEXT_ARRAY),
            (&self.keys, Type::TEXT_ARRAY),
            (&shape.bodies, Type::BYTEA_ARRAY),
            (&shape.results, Type::BYTEA_ARRAY),
            (&shape.events, Type::BYTEA_ARRAY),
            (floor, Type::INT8),
            (count, Type::INT8),
            (patience, Type::INT8),
        ]
    }
}

/// Records to be replaced.
pub(crate) struct Puts<'a> {
    shape: Shape<'a>,
    expected: Vec<i64>,
}

impl<'a> Puts<'a> {
    pub(crate) fn new(entries: &'a [Entry]) -> Self {
        // A version that no record can have stays one.
        let expected = |entry: &Entry| i64::try_from(entry.expected.0).unwrap_or(-1);
        Self { shape: Shape::new(entries), expected: entries.iter().map(expected).collect() }
    }

    /// For the statement that replaces one; with how long it waits for a lock, if it is the one that says so.
    pub(crate) fn one(&'a self, floor: &'a i64, patience: Option<&'a i64>) -> Vec<Param<'a>> {
        let shape = &self.shape;
        let mut params: Vec<Param<'a>> = vec![
            (&shape.heads[0], Type::UUID),
            (&shape.tails[0], Type::UUID),
            (&self.expected[0], Type::INT8),
            (&shape.changed[0], Type::INT8),
            (&shape.created[0], Type::INT8),
            (&shape.sent[0], Type::INT8),
            (&shape.after[0], Type::INT8),
            (&shape.states[0], Type::INT2),
            (&shape.bodies[0], Type::BYTEA),
            (&shape.results[0], Type::BYTEA),
            (&shape.events[0], Type::BYTEA),
            (floor, Type::INT8),
        ];
        params.extend(bound(patience));
        params
    }

    /// For the statement that replaces many.
    pub(crate) fn many(&'a self, floor: &'a i64, count: &'a i64, patience: &'a i64) -> [Param<'a>; 14] {
        let shape = &self.shape;
        [
            (&shape.heads, Type::UUID_ARRAY),
            (&shape.tails, Type::UUID_ARRAY),
            (&self.expected, Type::INT8_ARRAY),
            (&shape.changed, Type::INT8_ARRAY),
            (&shape.created, Type::INT8_ARRAY),
            (&shape.sent, Type::INT8_ARRAY),
            (&shape.after, Type::INT8_ARRAY),
            (&shape.states, Type::INT2_ARRAY),
            (&shape.bodies, Type::BYTEA_ARRAY),
            (&shape.results, Type::BYTEA_ARRAY),
            (&shape.events, Type::BYTEA_ARRAY),
            (floor, Type::INT8),
            (count, Type::INT8),
            (patience, Type::INT8),
        ]
    }
}

fn bound(patience: Option<&i64>) -> Option<Param<'_>> {
    patience.map(|millis| -> Param<'_> { (millis, Type::INT8) })
}

/// For the statement that reads many.
pub(crate) fn heads<'a>(heads: &'a Vec<Half>, count: &'a i64) -> [Param<'a>; 2] {
    [(heads, Type::UUID_ARRAY), (count, Type::INT8)]
}
