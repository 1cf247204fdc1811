//! What a call of the contract is in commands, and what the replies mean.

use std::sync::Arc;

use oncely_core::limits::AUDIT_FOR_MS;
use oncely_core::{
    Change, Created, Draft, Event, IntentId, Millis, Record, Replaced, State, StoreError, StoreErrorKind,
    Stored, Version,
};
use tokio::sync::oneshot;

use super::Shared;
use super::errors::{damaged, odd};
use super::link::Answer;
use super::resp::{Value, command, encode};
use super::scripts::Script;
use super::value::{
    Filed, Found, filed, filed_again, pack, pack_entries, read_version, unpack, version_text,
};

/// A request that was handed in, and the shard that it went to.
pub(crate) struct Asked {
    shard: u16,
    writes: bool,
    answer: oneshot::Receiver<Answer>,
}

impl Asked {
    /// The replies.
    pub(crate) async fn replies(self) -> Result<Vec<Value>, StoreError> {
        self.answer.await.unwrap_or_else(|_| {
            let message = "the ledger was closed before it answered";
            Err(match self.writes {
                true => StoreError::ambiguous(StoreErrorKind::Unavailable, message),
                false => StoreError::before(StoreErrorKind::Unavailable, message),
            })
        })
    }

    async fn reply(self) -> Result<(u16, Value), StoreError> {
        let shard = self.shard;
        Ok((shard, self.replies().await?.pop().unwrap_or(Value::Nil)))
    }
}

impl Shared {
    /// Hands in commands that only read.
    pub(crate) fn ask(&self, shard: u16, commands: &[Vec<u8>]) -> Asked {
        let answer = self.router.submit(shard, commands.concat(), commands.len(), false);
        Asked { shard, writes: false, answer }
    }

    /// Hands in a script that writes.
    pub(crate) fn run(&self, shard: u16, script: Script, keys: &[&[u8]], arguments: &[&[u8]]) -> Asked {
        let count = keys.len().to_string();
        let mut parts: Vec<&[u8]> = Vec::with_capacity(3 + keys.len() + arguments.len());
        parts.extend([b"EVALSHA".as_slice(), self.router.names.get(script), count.as_bytes()]);
        parts.extend(keys);
        parts.extend(arguments);
        let bytes = parts.iter().map(|part| part.len() + 16).sum();
        let mut encoded = Vec::with_capacity(bytes);
        encode(&mut encoded, &parts);
        Asked { shard, writes: true, answer: self.router.submit(shard, encoded, 1, true) }
    }

    pub(crate) fn ask_create(&self, intent: &IntentId, draft: &Draft, events: &[Event]) -> Asked {
        let (keys, shard) = (&self.keys, self.keys.shard(intent));
        let Filed { due, from, keep } = filed(draft);
        let (body, entries) = (pack(intent, draft), pack_entries(events));
        let mut arguments: Vec<&[u8]> = vec![
            &intent.0,
            &body,
            due.as_bytes(),
            from.as_bytes(),
            keep.as_bytes(),
            self.log_bound.as_bytes(),
            self.log_unit,
        ];
        arguments.extend(entries.iter().map(Vec::as_slice));
        let names = [&keys.record(intent)[..], &keys.log(shard), &keys.order(shard), &keys.due(shard)];
        self.run(shard, Script::Create, &names, &arguments)
    }

    pub(crate) async fn created(
        &self,
        asked: Asked,
        intent: IntentId,
        draft: Draft,
    ) -> Result<Created, StoreError> {
        let (shard, reply) = asked.reply().await?;
        match reply.items() {
            [Value::Int(1), id] => {
                let (version, now) = self.version(id)?;
                let record = Arc::new(draft.stamped(intent, version, now));
                Ok(Created::New(Stored { record, now: self.clock(shard, now) }))
            }
            [Value::Int(0), value, seconds, micros] => {
                let now = self.time(shard, seconds, micros)?;
                let record = Arc::new(self.found(&intent, value)?.record);
                Ok(Created::Exists(Stored { record, now }))
            }
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
        let (keys, shard) = (&self.keys, self.keys.shard(intent));
        let (body, filed, tell) = match change {
            Change::Put(draft) => {
                // A heartbeat changes nothing that anybody waits for.
                let tell = !matches!(draft.body.state, State::Running { .. });
                (pack(intent, draft), filed(draft), tell)
            }
            Change::Remove => (Vec::new(), Filed::never(), true),
        };
        let (version, entries) = (version_text(expected), pack_entries(events));
        // What is removed without a word about it (a purge) leaves no trace.
        let remember = if events.is_empty() { String::new() } else { AUDIT_FOR_MS.to_string() };
        let mut arguments: Vec<&[u8]> = vec![
            &intent.0,
            version.as_bytes(),
            &body,
            filed.due.as_bytes(),
            filed.from.as_bytes(),
            filed.keep.as_bytes(),
            if tell { self.router.publisher().as_bytes() } else { b"" },
            remember.as_bytes(),
            self.log_bound.as_bytes(),
            self.log_unit,
        ];
        arguments.extend(entries.iter().map(Vec::as_slice));
        let names = [
            &keys.record(intent)[..],
            &keys.log(shard),
            &keys.order(shard),
            &keys.due(shard),
            &keys.gone(intent),
        ];
        self.run(shard, Script::Replace, &names, &arguments)
    }

    pub(crate) async fn replaced(
        &self,
        asked: Asked,
        intent: IntentId,
        change: Change,
    ) -> Result<Replaced, StoreError> {
        let (shard, reply) = asked.reply().await?;
        match reply.items() {
            [Value::Int(1), id] => {
                let (version, now) = self.version(id)?;
                let stored = match change {
                    Change::Put(draft) => {
                        let record = Arc::new(draft.stamped(intent, version, now));
                        Some(Stored { record, now: self.clock(shard, now) })
                    }
                    Change::Remove => None,
                };
                self.watching.changed(&intent, stored.as_ref().map(|s| s.record.version));
                Ok(Replaced::Done(stored))
            }
            [Value::Int(0), value, seconds, micros] => {
                let now = self.time(shard, seconds, micros)?;
                Ok(Replaced::Stale(self.stored(&intent, value, now)?))
            }
            _ => Err(odd(&reply, &self.describe)),
        }
    }

    pub(crate) fn ask_load(&self, intent: &IntentId) -> Asked {
        let get = command(&[b"GET", &self.keys.record(intent)]);
        self.ask(self.keys.shard(intent), &[get, command(&[b"TIME"])])
    }

    pub(crate) async fn loaded(&self, asked: Asked, intent: IntentId) -> Result<Option<Stored>, StoreError> {
        let shard = asked.shard;
        let replies = asked.replies().await?;
        let [value, time] = replies.as_slice() else { return Err(odd(&Value::Nil, &self.describe)) };
        let now = self.time_of(shard, time)?;
        self.stored(&intent, value, now)
    }

    pub(crate) fn ask_note(&self, intent: &IntentId, events: &[Event]) -> Asked {
        let (keys, shard) = (&self.keys, self.keys.shard(intent));
        let (entries, remember) = (pack_entries(events), AUDIT_FOR_MS.to_string());
        let mut arguments: Vec<&[u8]> = vec![remember.as_bytes(), self.log_bound.as_bytes(), self.log_unit];
        arguments.extend(entries.iter().map(Vec::as_slice));
        let names = [&keys.record(intent)[..], &keys.log(shard), &keys.gone(intent)];
        self.run(shard, Script::Note, &names, &arguments)
    }

    /// Puts the entries of a record right that is there, or of one that is not.
    pub(crate) fn ask_reindex(&self, intent: &IntentId, record: Option<&Record>) -> Asked {
        let (keys, shard) = (&self.keys, self.keys.shard(intent));
        let version = record.map(|r| version_text(r.version)).unwrap_or_default();
        let due = record.map(filed_again).unwrap_or_default();
        let names = [&keys.record(intent)[..], &keys.order(shard), &keys.due(shard)];
        self.run(shard, Script::Reindex, &names, &[&intent.0, version.as_bytes(), due.as_bytes()])
    }

    /// A value as a record, which may be none.
    pub(crate) fn stored(
        &self,
        intent: &IntentId,
        value: &Value,
        now: Millis,
    ) -> Result<Option<Stored>, StoreError> {
        match value {
            Value::Nil => Ok(None),
            value => Ok(Some(Stored { record: Arc::new(self.found(intent, value)?.record), now })),
        }
    }

    pub(crate) fn found(&self, intent: &IntentId, value: &Value) -> Result<Found, StoreError> {
        let bytes = value.bytes().ok_or_else(|| odd(value, &self.describe))?;
        unpack(intent, bytes).map_err(|damage| damaged(damage, &self.describe))
    }

    /// A version that was just written, and when.
    fn version(&self, id: &Value) -> Result<(Version, Millis), StoreError> {
        let bytes = id.bytes().ok_or_else(|| odd(id, &self.describe))?;
        // It is written all the same.
        read_version(bytes).map_err(|damage| {
            let mut error = damaged(damage, &self.describe);
            error.wrote = oncely_core::Wrote::Maybe;
            error
        })
    }

    /// The server's clock, from a reply to `TIME`.
    pub(crate) fn time_of(&self, shard: u16, reply: &Value) -> Result<Millis, StoreError> {
        let [seconds, micros] = reply.items() else { return Err(odd(reply, &self.describe)) };
        self.time(shard, seconds, micros)
    }

    /// The server's clock, from its seconds and microseconds.
    pub(crate) fn time(&self, shard: u16, seconds: &Value, micros: &Value) -> Result<Millis, StoreError> {
        let (Some(seconds), Some(micros)) = (seconds.number(), micros.number()) else {
            return Err(odd(seconds, &self.describe));
        };
        Ok(self.clock(shard, Millis(seconds.saturating_mul(1_000).saturating_add(micros / 1_000))))
    }
}
