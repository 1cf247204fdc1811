//! The audit log, read over all shards in the order of time, or only what tells of one record.
//!
//! Shards have clocks of their own. What a page shows of several is complete: an event is shown only once no shard can
//! still get an earlier one, so that who reads on after it misses nothing.

use std::time::Duration;

use oncely_core::limits::PAGE_MAX;
use oncely_core::{IntentId, LogQuery, LoggedEvent, Millis, Page, StoreError, Version};

use super::Shared;
use super::errors::{damaged, odd};
use super::merge::{Merge, Piece, Source, Toward};
use super::resp::{Value, command};
use super::value::{SEQUENCE_BITS, TRAIL_MAX, place, read_trail, read_version, version_text};
use crate::codec::unpack_events;

/// How long, and how often, a page waits for clocks that are behind.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSES_MAX: usize = 25;

/// An entry of the log: its events, packed.
type Packed = (Version, Vec<u8>);

impl Shared {
    /// One page of events.
    pub(crate) async fn log(&self, query: LogQuery) -> Result<Page<LoggedEvent>, StoreError> {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let mut found = match query.intent {
            Some(intent) => match self.trail(&intent).await? {
                Some(trail) => self.walk_trail(&intent, &trail, &query).await?,
                None => self.walk(&query, limit, std::iter::once(self.keys.shard(&intent))).await?,
            },
            None => self.walk(&query, limit, 0..self.keys.shards()).await?,
        };
        let now = self.now().await?;
        if query.newest {
            found.drain(..found.len().saturating_sub(limit));
            return Ok(Page { items: found, next: None, now });
        }
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|event| event.seq);
        Ok(Page { items: found, next, now })
    }

    /// The places of all events of a record; `None` if some may be missing.
    async fn trail(&self, intent: &IntentId) -> Result<Option<Vec<Version>>, StoreError> {
        let commands =
            [&self.keys.record(intent), &self.keys.gone(intent)].map(|key| command(&[b"GET", key]));
        let replies = self.ask(self.keys.shard(intent), &commands).replies().await?;
        let [record, gone] = replies.as_slice() else { return Err(odd(&Value::Nil, &self.describe)) };
        if *record == Value::Nil && *gone == Value::Nil {
            return Ok(None);
        }
        let mut trail = match gone.bytes() {
            Some(gone) => read_trail(gone).map_err(|damage| damaged(damage, &self.describe))?,
            None => Vec::new(),
        };
        let of_record = if *record == Value::Nil { Vec::new() } else { self.found(intent, record)?.trail };
        if trail.len() >= TRAIL_MAX || of_record.len() >= TRAIL_MAX {
            return Ok(None);
        }
        trail.extend(of_record);
        trail.sort_unstable();
        trail.dedup();
        Ok(Some(trail))
    }

    async fn walk_trail(
        &self,
        intent: &IntentId,
        trail: &[Version],
        query: &LogQuery,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        let shard = self.keys.shard(intent);
        let key = self.keys.log(shard);
        let commands: Vec<Vec<u8>> = trail
            .iter()
            .map(|version| {
                let id = version_text(*version);
                command(&[b"XRANGE", &key, id.as_bytes(), id.as_bytes()])
            })
            .collect();
        let mut found = Vec::new();
        if commands.is_empty() {
            return Ok(found);
        }
        for reply in self.ask(shard, &commands).replies().await? {
            for packed in read_entries(self, &reply)? {
                found.extend(self.unpack(shard, packed, query)?);
            }
        }
        Ok(found)
    }

    /// Reads the log of some shards until there are more events than the page holds.
    async fn walk(
        &self,
        query: &LogQuery,
        limit: usize,
        shards: impl Iterator<Item = u16>,
    ) -> Result<Vec<LoggedEvent>, StoreError> {
        let toward = if query.newest { Toward::Oldest } else { Toward::Newest };
        let source = Entries { toward };
        let mut merge = Merge::new(self, source, toward, shards, query.after);
        // One shard is in order by itself.
        let careful = !query.newest && query.intent.is_none() && self.keys.shards() > 1;
        let (mut found, mut pauses) = (Vec::new(), 0);
        let mut held: Vec<(u16, u64, Packed)> = Vec::new();
        while found.len() <= limit {
            let entries = merge.next().await?;
            let is_end = entries.is_empty();
            held.extend(entries);
            held.sort_by_key(|(_, place, _)| if query.newest { !*place } else { *place });
            let horizon = merge.horizon().filter(|_| careful);
            let early =
                |packed: &Packed| horizon.is_none_or(|horizon| packed.0.0 >> SEQUENCE_BITS < horizon.0);
            let ready = held.iter().take_while(|(_, _, packed)| early(packed)).count();
            for (shard, _, packed) in held.drain(..ready) {
                let mut events = self.unpack(shard, packed, query)?;
                if query.newest {
                    events.reverse();
                }
                found.extend(events);
            }
            if is_end && held.is_empty() {
                break;
            }
            if !held.is_empty() {
                // A clock is behind what another shard has written. It is waited for, a little.
                pauses += 1;
                if pauses > PAUSES_MAX {
                    break;
                }
                super::thread::pause(&self.runtime, PAUSE).await;
                merge.look_again();
            }
        }
        if query.newest {
            found.reverse();
        }
        Ok(found)
    }

    fn unpack(&self, shard: u16, packed: Packed, query: &LogQuery) -> Result<Vec<LoggedEvent>, StoreError> {
        let (version, bytes) = packed;
        let at = Millis(version.0 >> SEQUENCE_BITS);
        let mut events = unpack_events(0, at, &bytes).map_err(|damage| damaged(damage, &self.describe))?;
        for (index, event) in events.iter_mut().enumerate() {
            event.seq = place(version, shard, index);
        }
        events.retain(|event| {
            event.seq > query.after && query.intent.is_none_or(|intent| intent == event.event.intent)
        });
        Ok(events)
    }
}

/// The entries of a shard's log.
struct Entries {
    toward: Toward,
}

impl Source for Entries {
    type Entry = Packed;

    fn ask(&self, shared: &Shared, shard: u16, from: Version, most: usize) -> Vec<Vec<u8>> {
        let (key, most) = (shared.keys.log(shard), most.to_string());
        let from = if from.0 == u64::MAX { "+".to_owned() } else { version_text(from) };
        let range: &[&[u8]] = match self.toward {
            Toward::Newest => &[b"XRANGE", &key, from.as_bytes(), b"+", b"COUNT", most.as_bytes()],
            Toward::Oldest => &[b"XREVRANGE", &key, from.as_bytes(), b"-", b"COUNT", most.as_bytes()],
        };
        // The time first: whatever is written after the range was read is stamped later.
        vec![command(&[b"TIME"]), command(range)]
    }

    fn read(&self, shared: &Shared, replies: &[Value], most: usize) -> Result<Piece<Packed>, StoreError> {
        let [time, range] = replies else { return Err(odd(&Value::Nil, &shared.describe)) };
        let seconds = time.items().first().and_then(Value::number);
        let micros = time.items().get(1).and_then(Value::number);
        let as_of =
            seconds.zip(micros).map(|(s, us)| Millis(s.saturating_mul(1_000).saturating_add(us / 1_000)));
        let entries = read_entries(shared, range)?;
        let last = entries.last().filter(|_| entries.len() >= most).map(|(version, _)| version.0);
        let next = match self.toward {
            Toward::Newest => last.map(|last| Version(last + 1)),
            Toward::Oldest => last.and_then(|last| last.checked_sub(1)).map(Version),
        };
        let entries = entries.into_iter().map(|packed| (packed.0, packed)).collect();
        Ok(Piece { entries, next, as_of })
    }
}

fn read_entries(shared: &Shared, reply: &Value) -> Result<Vec<Packed>, StoreError> {
    let mut entries = Vec::with_capacity(reply.items().len());
    for entry in reply.items() {
        let [id, fields] = entry.items() else { return Err(odd(reply, &shared.describe)) };
        let id = id.bytes().unwrap_or_default();
        let (version, _) = read_version(id).map_err(|damage| damaged(damage, &shared.describe))?;
        let events = fields.items().get(1).and_then(Value::bytes).unwrap_or_default();
        entries.push((version, events.to_vec()));
    }
    Ok(entries)
}
