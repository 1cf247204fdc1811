//! What a call of the contract is in commands, and what the replies mean.

use std::sync::Arc;

use oncely_core::limits::AUDIT_FOR_MS;
use oncely_core::{
    Change, Created, Draft, Event, EventKind, IntentId, Millis, Record, Replaced, State, StoreError,
    StoreErrorKind, Stored, Unreadable, Version, Wrote,
};
use tokio::sync::oneshot;

use super::Shared;
use super::errors::{damaged, is_other_type, odd};
use super::link::{Answer, Asks, Part, Writes};
use super::resp::{Value, command, encode};
use super::scripts::Script;
use super::value::{
    DUE_FIRST, DUE_REJECTED, Filed, Found, filed, filed_again, filed_state, pack, pack_entries, read_version,
    unpack, version_of, version_text,
};
use crate::leap::{self, Leapt};
use crate::unreadable;
use crate::wire::Damaged;

/// What is wrong with a record where its key is of another type.
const NOT_A_RECORD: &str = "its key holds something else";

/// Which shard was asked, and when.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    shard: u16,
    at: leap::Asked,
}

/// A request that was handed in, and where it went.
pub(crate) struct Asked {
    pub(crate) place: Place,
    writes: Writes,
    answer: oneshot::Receiver<Answer>,
}

impl Asked {
    /// The replies.
    pub(crate) async fn replies(self) -> Result<Vec<Value>, StoreError> {
        self.answer.await.unwrap_or_else(|_| {
            let message = "the ledger was closed before it answered";
            Err(match self.writes.may() {
                true => StoreError::ambiguous(StoreErrorKind::Unavailable, message),
                false => StoreError::before(StoreErrorKind::Unavailable, message),
            })
        })
    }

    async fn reply(self) -> Result<(Place, Value), StoreError> {
        let place = self.place;
        Ok((place, self.replies().await?.pop().unwrap_or(Value::Nil)))
    }
}

impl Shared {
    fn hand_in(&self, shard: u16, asks: Asks, writes: Writes) -> Asked {
        let place = Place { shard, at: leap::Asked::now() };
        Asked { place, writes, answer: self.router.submit(shard, asks, writes) }
    }

    /// Hands in commands that only read.
    pub(crate) fn ask(&self, shard: u16, commands: &[Vec<u8>]) -> Asked {
        let asks = Asks::Plain { bytes: commands.concat(), replies: commands.len() };
        self.hand_in(shard, asks, Writes::No)
    }

    /// Hands in commands of which each reads one value, perhaps of a key that is of another type.
    pub(crate) fn ask_values(&self, shard: u16, commands: &[Vec<u8>]) -> Asked {
        let asks = Asks::Values { bytes: commands.concat(), replies: commands.len() };
        self.hand_in(shard, asks, Writes::No)
    }

    /// Hands in one record's part of a script, which may go together with others.
    fn run_part(&self, shard: u16, part: Part) -> Asked {
        self.hand_in(shard, Asks::Part(part), Writes::Yes)
    }

    /// Hands in a script that writes.
    pub(crate) fn run(&self, shard: u16, script: Script, keys: &[&[u8]], arguments: &[&[u8]]) -> Asked {
        self.run_confirmed(shard, script, keys, arguments, Writes::Yes)
    }

    /// Hands in a script whose writes have to be confirmed like this.
    pub(crate) fn run_confirmed(
        &self,
        shard: u16,
        script: Script,
        keys: &[&[u8]],
        arguments: &[&[u8]],
        writes: Writes,
    ) -> Asked {
        let count = keys.len().to_string();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(3 + keys.len() + arguments.len());
        parts.extend([b"EVALSHA".as_slice(), self.router.names.get(script), count.as_bytes()]);
        parts.extend(keys);
        parts.extend(arguments);
        let bytes = parts.iter().map(|part| part.len() + 16).sum();
        let mut encoded = Vec::with_capacity(bytes);
        encode(&mut encoded, &parts);
        self.hand_in(shard, Asks::Plain { bytes: encoded, replies: 1 }, writes)
    }

    pub(crate) fn ask_create(&self, intent: &IntentId, draft: &Draft, events: &[Event]) -> Asked {
        let arguments = create_arguments(intent, draft, events);
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        let part = Part::new(Script::Create, &[&self.keys.record(intent)], &arguments, arguments.len() - 2);
        self.run_part(self.keys.shard(intent), part)
    }

    pub(crate) async fn created(
        &self,
        asked: Asked,
        intent: IntentId,
        draft: Draft,
    ) -> Result<Created, StoreError> {
        let (place, reply) = self.minding(asked.reply().await, &intent)?;
        match reply.items() {
            [Value::Int(1), id, clock @ ..] => {
                let (version, at) = self.version(id)?;
                let now = match clock {
                    [seconds, micros] => self.read_time(seconds, micros)?,
                    _ => at,
                };
                let Place { shard, at: asked } = place;
                let told = self.clocks.told(shard, now, asked);
                let now = told.map_err(|leapt| self.claimed_after(leapt, shard))?;
                self.clocks.stamped(shard, at);
                let record = Arc::new(draft.stamped(intent, version, at));
                Ok(Created::New(Stored { record, now }))
            }
            [Value::Int(0), value, seconds, micros] => {
                let now = self.time(place, seconds, micros)?;
                self.stored(&intent, value, now)?
                    .map(Created::Exists)
                    .ok_or_else(|| odd(value, &self.describe))
            }
            [Value::Int(0)] => Err(unreadable::refusal(&intent, NOT_A_RECORD, &self.describe)),
            _ => Err(odd(&reply, &self.describe)),
        }
    }

    pub(crate) fn ask_replace(
        &self,
        intent: &IntentId,
        expected: Version,
        change: &Change,
        events: &[Event],
    ) -> Asked {
        let (body, filed, tell) = match change {
            Change::Put(draft) => {
                // A heartbeat changes nothing that anybody waits for.
                let tell = if matches!(draft.body.state, State::Running { .. }) { "" } else { "t" };
                (pack(intent, draft), filed(draft), tell)
            }
            Change::Remove => (Vec::new(), Filed::never(), "t"),
        };
        let begins = if events.iter().any(|event| event.kind == EventKind::Began) { "b" } else { "" };
        let (version, entries) = (version_line(expected), pack_entries(events));
        let Filed { due, from, keep } = filed;
        let filed = format!("{due},{from},{keep},{tell}{begins},{}", entries.len());
        let mut arguments: Vec<&[u8]> = Vec::with_capacity(3 + entries.len());
        arguments.extend([version.as_bytes(), filed.as_bytes(), &body]);
        arguments.extend(entries.iter().map(Vec::as_slice));
        let (record, gone) = (self.keys.record(intent), self.keys.gone(intent));
        // A key that is not there makes a server refuse the whole call while it hands on its slot.
        let keys: &[&[u8]] = if body.is_empty() { &[&record, &gone] } else { &[&record] };
        self.run_part(self.keys.shard(intent), Part::new(Script::Replace, keys, &arguments, entries.len()))
    }

    pub(crate) async fn replaced(
        &self,
        asked: Asked,
        intent: IntentId,
        change: Change,
    ) -> Result<Replaced, StoreError> {
        let (place, reply) = self.minding(asked.reply().await, &intent)?;
        match reply.items() {
            [Value::Int(1), id] => {
                let (version, at) = self.version(id)?;
                let stored = match change {
                    Change::Put(draft) => {
                        let record = Arc::new(draft.stamped(intent, version, at));
                        Some(Stored { record, now: self.clocks.written(place.shard, at, place.at) })
                    }
                    Change::Remove => None,
                };
                self.watching.changed(&intent, stored.as_ref().map(|s| s.record.version));
                Ok(Replaced::Done(stored))
            }
            [Value::Int(0), value, seconds, micros] => {
                let now = self.time(place, seconds, micros)?;
                Ok(Replaced::Stale(self.stored(&intent, value, now)?))
            }
            [Value::Int(0)] => Err(unreadable::refusal(&intent, NOT_A_RECORD, &self.describe)),
            _ => Err(odd(&reply, &self.describe)),
        }
    }

    /// Asks for a record. One that was perhaps written through this handle, without enough replicas that confirmed it,
    /// is asked for in a way that they have to confirm: its writer must not take a look at it for an acknowledgement.
    pub(crate) fn ask_load(&self, intent: &IntentId) -> Asked {
        let (key, shard) = (self.keys.record(intent), self.keys.shard(intent));
        if self.unconfirmed.contains(intent) {
            return self.run(shard, Script::Confirm, &[&key, &self.keys.mark(shard)], &[]);
        }
        self.ask_values(shard, &[command(&[b"GET", &key]), command(&[b"TIME"])])
    }

    pub(crate) async fn loaded(&self, asked: Asked, intent: IntentId) -> Result<Option<Stored>, StoreError> {
        let (place, confirms) = (asked.place, asked.writes.may());
        match asked.replies().await?.as_slice() {
            [value, time] if !confirms => {
                let now = self.time_of(place, time)?;
                self.stored(&intent, value, now)
            }
            [reply] => match reply.items() {
                [Value::Int(1), value, seconds, micros] => {
                    self.unconfirmed.remove(&intent);
                    let now = self.time(place, seconds, micros)?;
                    self.stored(&intent, value, now)
                }
                _ => Err(odd(reply, &self.describe)),
            },
            _ => Err(odd(&Value::Nil, &self.describe)),
        }
    }

    /// Remembers a write of which it is not known whether it is confirmed.
    fn minding<T>(&self, answer: Result<T, StoreError>, intent: &IntentId) -> Result<T, StoreError> {
        if let Err(error) = &answer
            && error.wrote == Wrote::Maybe
            && self.router.replicas() > 0
        {
            self.unconfirmed.add(intent);
        }
        answer
    }

    pub(crate) fn ask_note(&self, intent: &IntentId, events: &[Event]) -> Asked {
        let (keys, shard) = (&self.keys, self.keys.shard(intent));
        let (entries, remember) = (pack_entries(events), AUDIT_FOR_MS.to_string());
        let mut arguments: Vec<&[u8]> = vec![self.router.mark(), remember.as_bytes()];
        arguments.extend(self.router.log_terms().iter().map(Vec::as_slice));
        arguments.extend(entries.iter().map(Vec::as_slice));
        let names = [&keys.record(intent)[..], &keys.log(shard), &keys.gone(intent), &keys.head(shard)];
        self.run(shard, Script::Note, &names, &arguments)
    }

    /// Puts the entries of a record right that is there, or of one that is not.
    pub(crate) fn ask_reindex(&self, intent: &IntentId, record: Option<&Record>) -> Asked {
        let (keys, shard) = (&self.keys, self.keys.shard(intent));
        let version = record.map(|r| version_line(r.version)).unwrap_or_default();
        let due = record.map(filed_again).unwrap_or_default();
        let names = [&keys.record(intent)[..], &keys.order(shard), &keys.due(shard)];
        self.run(shard, Script::Reindex, &names, &[&intent.0, version.as_bytes(), due.as_bytes()])
    }

    /// Has the purge look again later at a record that it cannot read, or at what is no id at all.
    pub(crate) fn ask_postpone(&self, shard: u16, member: &[u8]) -> Asked {
        let (rejected, after) = (DUE_REJECTED.to_string(), unreadable::LOOK_AGAIN_MS.to_string());
        let arguments = [member, DUE_FIRST.as_bytes(), rejected.as_bytes(), after.as_bytes()];
        self.run(shard, Script::Postpone, &[&self.keys.due(shard)], &arguments)
    }

    /// What can be known of a record that cannot be read: its version, and where it is filed.
    /// `None` if it is gone by now.
    pub(crate) async fn unreadable(&self, intent: IntentId) -> Result<Option<Unreadable>, StoreError> {
        let (keys, shard) = (&self.keys, self.keys.shard(&intent));
        let value = self.ask_values(shard, &[command(&[b"GET", &keys.record(&intent)])]);
        let due = self.ask(shard, &[command(&[b"ZSCORE", &keys.due(shard), &intent.0])]);
        let value = value.replies().await?.pop().unwrap_or(Value::Nil);
        if value == Value::Nil {
            return Ok(None);
        }
        let bytes = value.bytes();
        let why = match bytes.map(|bytes| unpack(&intent, bytes)) {
            Some(Err(Damaged(why))) => why,
            Some(Ok(_)) => "it could not be read a moment ago",
            None => NOT_A_RECORD,
        };
        let due = due.replies().await?.first().and_then(Value::number);
        let version = bytes.and_then(version_of);
        Ok(Some(Unreadable { intent, version, state: filed_state(due), why: why.to_owned() }))
    }

    /// A value as a record, which may be none, read together with the clock of its shard.
    pub(crate) fn stored(
        &self,
        intent: &IntentId,
        value: &Value,
        now: Millis,
    ) -> Result<Option<Stored>, StoreError> {
        if *value == Value::Nil {
            return Ok(None);
        }
        let record = Arc::new(self.found(intent, value)?.record);
        self.clocks.stamped(self.keys.shard(intent), record.changed_at);
        Ok(Some(Stored { record, now }))
    }

    pub(crate) fn found(&self, intent: &IntentId, value: &Value) -> Result<Found, StoreError> {
        let why = match value {
            Value::Bytes(bytes) => match unpack(intent, bytes) {
                Ok(found) => return Ok(found),
                Err(Damaged(why)) => why,
            },
            Value::Error(words) if is_other_type(words) => NOT_A_RECORD,
            other => return Err(odd(other, &self.describe)),
        };
        Err(unreadable::refusal(intent, why, &self.describe))
    }

    /// A version that was just written, and when.
    fn version(&self, id: &Value) -> Result<(Version, Millis), StoreError> {
        let bytes = id.bytes().ok_or_else(|| odd(id, &self.describe))?;
        // It is written all the same.
        read_version(bytes).map_err(|damage| {
            let mut error = damaged(damage, &self.describe);
            error.wrote = Wrote::Maybe;
            error
        })
    }

    /// The server's clock, from a reply to `TIME`.
    pub(crate) fn time_of(&self, place: Place, reply: &Value) -> Result<Millis, StoreError> {
        let [seconds, micros] = reply.items() else { return Err(odd(reply, &self.describe)) };
        self.time(place, seconds, micros)
    }

    /// The server's clock, from its seconds and microseconds.
    pub(crate) fn time(&self, place: Place, seconds: &Value, micros: &Value) -> Result<Millis, StoreError> {
        let now = self.read_time(seconds, micros)?;
        self.clocks.told(place.shard, now, place.at).map_err(|leapt| {
            let message = leapt.text(&self.server(place.shard));
            StoreError::before(StoreErrorKind::Unavailable, message)
        })
    }

    fn read_time(&self, seconds: &Value, micros: &Value) -> Result<Millis, StoreError> {
        let (Some(seconds), Some(micros)) = (seconds.number(), micros.number()) else {
            return Err(odd(seconds, &self.describe));
        };
        Ok(Millis(seconds.saturating_mul(1_000).saturating_add(micros / 1_000)))
    }

    /// The server of a shard, for messages.
    fn server(&self, shard: u16) -> String {
        format!("the server of shard {shard} in {}", self.describe)
    }

    /// The key was claimed, and may look new only since the server has forgotten it by a clock that leapt.
    fn claimed_after(&self, leapt: Leapt, shard: u16) -> StoreError {
        let what = "the key that was claimed may have been forgotten by it, so nothing was started";
        let message = leapt.therefore(&self.server(shard), what);
        StoreError::ambiguous(StoreErrorKind::Unavailable, message)
    }
}

/// A version as the first line of a value.
fn version_line(version: Version) -> String {
    let mut line = version_text(version);
    line.push('\n');
    line
}

/// What the script that creates is told of a record.
pub(crate) fn create_arguments(intent: &IntentId, draft: &Draft, events: &[Event]) -> Vec<Vec<u8>> {
    let Filed { due, from, keep } = filed(draft);
    let entries = pack_entries(events);
    // Most claims: the script knows it by heart.
    let is_plain = entries.len() == 1 && [&due, &from, &keep].iter().all(|part| part.is_empty());
    let filed = if is_plain { String::new() } else { format!("{due},{from},{keep},{}", entries.len()) };
    let mut arguments = Vec::with_capacity(2 + entries.len());
    arguments.extend([filed.into_bytes(), pack(intent, draft)]);
    arguments.extend(entries);
    arguments
}
